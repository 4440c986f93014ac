//! TCP, UDP and ICMP headers.

use crate::batch::Frame;
use crate::headers::{Fragment, Headers, Network, Transport as Kind};
use crate::node::{Context, Edge, Single, Step};
use crate::reason::Reason;
use crate::wire::{u8_at, u16_at};
use etherparse::checksum::Sum16BitWords;
use grantway_netif::headers::protocol::{ICMP, ICMPV6, TCP, UDP};
use grantway_netif::headers::tcp_flags::{ACK, FIN, RST, SYN};
use grantway_netif::headers::{Tcp, Udp, Why};
use grantway_netif::{Checksum, GsoKind};

/// Treatment of transport checksums for which nobody vouches. A checksum that is unfinished, or
/// vouched for, is never checked.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    /// Checksums are left to the receiver, as on any bridge.
    #[default]
    Leave,
    /// Checksums are checked if the whole frame is private.
    Verify,
}

/// Reads TCP, UDP and ICMP headers, and checks them as a receiver does.
#[derive(Debug, Default)]
pub struct Transport {
    /// Treatment of checksums.
    pub checks: Checks,
}

impl Transport {
    /// Whole packets.
    pub const ON: Edge = Edge(0);
    /// Fragments.
    pub const FRAGMENT: Edge = Edge(1);

    #[inline]
    pub(super) fn read(
        &self,
        frame: &mut Frame,
        bytes: &[u8],
        headers: &mut Headers,
    ) -> Result<(), Reason> {
        if !headers.fragment.has_transport() {
            return Ok(());
        }
        let packet = bytes.get(..headers.end as usize).unwrap_or(bytes);
        let first = headers.fragment == Fragment::First;
        // A header may not fit. With a tiny first fragment rules are evaded, so it has a reason of
        // its own.
        let short = |reason| if first { Reason::FragmentTiny } else { reason };
        let protocol = match frame.offload.gso.map(|gso| gso.kind) {
            None => headers.protocol,
            Some(GsoKind::Udp) => UDP,
            Some(GsoKind::Tcpv4 | GsoKind::Tcpv6) => TCP,
        };
        if protocol != headers.protocol {
            return Err(Reason::Gso);
        }
        match (protocol, headers.network) {
            (TCP, _) => tcp(packet, headers, short(Reason::TcpTruncated))?,
            (UDP, _) => udp(packet, headers, short(Reason::UdpTruncated))?,
            (ICMP, Network::V4) | (ICMPV6, Network::V6) => {
                icmp(packet, headers, short(Reason::IcmpTruncated))?;
            }
            _ => {}
        }
        let due = self.checks == Checks::Verify
            && frame.offload.checksum == Checksum::Unknown
            && frame.is_private()
            && !first;
        if due && matches!(headers.transport, Kind::Tcp | Kind::Udp) {
            verify(packet, headers)?;
            frame.offload.checksum = Checksum::Complete;
        }
        Ok(())
    }
}

#[inline]
fn tcp(packet: &[u8], headers: &mut Headers, short: Reason) -> Result<(), Reason> {
    let at = usize::from(headers.transport_at);
    let header = Tcp::read(packet, at).map_err(|why| match why {
        Why::HeaderLength => Reason::TcpHeaderLength,
        _ => short,
    })?;
    let flags = header.flags();
    let impossible = match flags & (SYN | FIN | RST | ACK) {
        0 => true,
        some => (some & SYN != 0 && some & (FIN | RST) != 0) || some & !RST == FIN,
    };
    if impossible {
        return Err(Reason::TcpFlags);
    }
    ports(header.ports(), headers);
    headers.transport = Kind::Tcp;
    headers.tcp_flags = flags;
    headers.payload_at = (at + header.header_len()) as u16;
    Ok(())
}

#[inline]
fn udp(packet: &[u8], headers: &mut Headers, short: Reason) -> Result<(), Reason> {
    let at = usize::from(headers.transport_at);
    let header = Udp::read(packet, at).map_err(|_| short)?;
    let length = header.datagram_len();
    let room = (headers.end as usize).saturating_sub(at);
    if length < Udp::BYTES || (length > room && headers.fragment == Fragment::Whole) {
        return Err(Reason::UdpLength);
    }
    ports(header.ports(), headers);
    headers.transport = Kind::Udp;
    headers.payload_at = (at + Udp::BYTES) as u16;
    Ok(())
}

fn icmp(packet: &[u8], headers: &mut Headers, short: Reason) -> Result<(), Reason> {
    let at = usize::from(headers.transport_at);
    let kind = u16_at(packet, at).ok_or(short)?;
    // Only requests and replies of echo have an identifier.
    let echo = match headers.network {
        Network::V6 => matches!(kind >> 8, 128 | 129),
        _ => matches!(kind >> 8, 0 | 8),
    };
    let identifier = u16_at(packet, at + 4).ok_or(short)?;
    u8_at(packet, at + 7).ok_or(short)?;
    headers.ports = [kind, if echo { identifier } else { 0 }];
    headers.transport = Kind::Icmp;
    headers.payload_at = (at + 8) as u16;
    Ok(())
}

#[inline]
fn ports([a, b, c, d]: [u8; 4], headers: &mut Headers) {
    headers.ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    headers.has_ports = true;
}

/// Returns the pseudo-header's sum for `length` bytes of transport.
pub(crate) fn pseudo_sum(headers: &Headers, length: u32) -> Sum16BitWords {
    let sum = match headers.network {
        Network::V6 => Sum16BitWords::new()
            .add_16bytes(headers.source.to_be_bytes())
            .add_16bytes(headers.target.to_be_bytes()),
        _ => Sum16BitWords::new()
            .add_4bytes((headers.source as u32).to_be_bytes())
            .add_4bytes((headers.target as u32).to_be_bytes()),
    };
    sum.add_2bytes([0, headers.protocol]).add_4bytes(length.to_be_bytes())
}

fn verify(packet: &[u8], headers: &Headers) -> Result<(), Reason> {
    let at = usize::from(headers.transport_at);
    let rest = packet.get(at..).unwrap_or(&[]);
    let (covered, wrong) = match headers.transport {
        Kind::Udp => {
            let wrong = Reason::UdpChecksum;
            match (u16_at(rest, 6), headers.network) {
                // The sender left the checksum out, which IPv6 does not allow.
                (Some(0), Network::V4) => return Ok(()),
                (Some(0) | None, _) => return Err(wrong),
                _ => {}
            }
            let length = usize::from(u16_at(rest, 4).unwrap_or(0));
            (rest.get(..length).ok_or(Reason::UdpLength)?, wrong)
        }
        _ => (rest, Reason::TcpChecksum),
    };
    let sum = pseudo_sum(headers, covered.len() as u32).add_slice(covered);
    if sum.ones_complement() == 0 { Ok(()) } else { Err(wrong) }
}

impl Single for Transport {
    fn name(&self) -> &'static str {
        "transport"
    }

    #[inline]
    fn process(&mut self, number: u8, context: &mut Context<'_>) -> Step {
        let mut frame = *context.batch.frame(number);
        let before = frame.offload.checksum;
        let bytes = frame.bytes(context.arena);
        let headers = context.batch.headers_mut(number);
        if let Err(reason) = self.read(&mut frame, bytes, headers) {
            return Step::Drop(reason);
        }
        let whole = headers.fragment == Fragment::Whole;
        if frame.offload.checksum != before {
            context.batch.frame_mut(number).offload = frame.offload;
        }
        Step::To(if whole { Self::ON } else { Self::FRAGMENT })
    }
}

//! IPv6 headers, and the extensions behind them.

use super::ipv4::place_fragment;
use crate::batch::Frame;
use crate::headers::{Fragment, Headers, Network};
use crate::node::{Context, Edge, Single, Step};
use crate::reason::Reason;
use crate::wire::{u8_at, u16_at, u32_at, u128_at};
use grantway_netif::GsoKind;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const HEADER: usize = 40;
/// The option of a jumbogram.
const JUMBO: u8 = 0xc2;

/// Checks IPv6 headers as a receiver does: version, lengths, where the packet says
/// that it is from, and extension headers, each where it may stand and as often as it may
/// (RFC 8200, 4.1): six at most. The chain has to be in the first fragment (RFC 7112).
#[derive(Debug, Default)]
pub struct Ipv6;

impl Ipv6 {
    /// Packets that are in order.
    pub const ON: Edge = Edge(0);

    #[inline]
    pub(super) fn read(frame: &Frame, bytes: &[u8], headers: &mut Headers) -> Result<(), Reason> {
        let at = usize::from(headers.network_at);
        let header = bytes.get(at..at + HEADER).ok_or(Reason::Ipv6Truncated)?;
        if header[0] >> 4 != 6 {
            return Err(Reason::Ipv6Version);
        }
        match frame.offload.gso {
            Some(gso) if gso.kind != GsoKind::Tcpv6 => return Err(Reason::Gso),
            _ => {}
        }
        let whole = frame.len as usize - at - HEADER;
        let payload = match u16_at(header, 4) {
            // Left for whoever cuts it.
            Some(0) if frame.offload.gso.is_some() => whole,
            payload => usize::from(payload.unwrap_or(0)),
        };
        if payload > whole {
            return Err(Reason::Ipv6Truncated);
        }
        let source = u128_at(header, 8).ok_or(Reason::Ipv6Truncated)?;
        if source >> 120 == 0xff {
            return Err(Reason::Ipv6Source);
        }
        headers.network = Network::V6;
        headers.source = source;
        headers.target = u128_at(header, 24).ok_or(Reason::Ipv6Truncated)?;
        let end = at + HEADER + payload;
        headers.end = end as u32;
        let packet = bytes.get(..end).unwrap_or(bytes);
        chain(packet, end, header[6], at + HEADER, headers)?;
        match frame.offload.gso {
            Some(_) if headers.fragment != Fragment::Whole => Err(Reason::Gso),
            _ => Ok(()),
        }
    }
}

/// Walks the extension headers of a packet that ends at `end`, and of which `packet`
/// is here.
fn chain(
    packet: &[u8],
    end: usize,
    mut next: u8,
    mut at: usize,
    headers: &mut Headers,
) -> Result<(), Reason> {
    let (first, mut seen) = (at, 0);
    // Each turn adds to what was seen, or is the last.
    loop {
        // How often each may stand in a chain: the destination's twice.
        let kind: u32 = match next {
            HOP_BY_HOP => 1,
            ROUTING => 2,
            FRAGMENT => 4,
            AUTHENTICATION => 8,
            DESTINATION if seen & 16 == 0 => 16,
            DESTINATION => 32,
            _ => {
                headers.protocol = next;
                headers.transport_at = u16::try_from(at).map_err(|_| Reason::Ipv6Extension)?;
                headers.payload_at = headers.transport_at;
                return Ok(());
            }
        };
        if seen & kind != 0 || (next == HOP_BY_HOP && at != first) {
            return Err(Reason::Ipv6Order);
        }
        seen |= kind;
        let short = Reason::Ipv6Extension;
        let length = usize::from(u8_at(packet, at + 1).ok_or(short)?);
        let length = match next {
            FRAGMENT => 8,
            AUTHENTICATION => 8 + 4 * length,
            _ => 8 + 8 * length,
        };
        let header = packet.get(at..at + length).ok_or(short)?;
        match next {
            ROUTING if header[3] != 0 => return Err(Reason::Ipv6Route),
            HOP_BY_HOP => hop_by_hop(&header[2..])?,
            FRAGMENT => {
                let place = u16_at(header, 2).ok_or(short)?;
                headers.fragment_id = u32_at(header, 4).ok_or(short)?;
                // An atomic fragment is a whole packet.
                if place & 0xfff9 != 0 {
                    let bytes = end - at - length;
                    place_fragment(headers, place & 0xfff8, place & 1 != 0, bytes)?;
                }
                if !headers.fragment.has_transport() {
                    headers.protocol = header[0];
                    headers.transport_at = (at + length) as u16;
                    headers.payload_at = headers.transport_at;
                    return Ok(());
                }
            }
            _ => {}
        }
        next = header[0];
        at += length;
    }
}

/// Looks at the options of a hop-by-hop header, of which there are at most 2046
/// bytes.
fn hop_by_hop(mut options: &[u8]) -> Result<(), Reason> {
    while let Some(&kind) = options.first() {
        let length = match kind {
            0 => 1,
            JUMBO => return Err(Reason::Ipv6Jumbo),
            _ => 2 + usize::from(u8_at(options, 1).ok_or(Reason::Ipv6Extension)?),
        };
        options = options.get(length..).ok_or(Reason::Ipv6Extension)?;
    }
    Ok(())
}

impl Single for Ipv6 {
    fn name(&self) -> &'static str {
        "ipv6"
    }

    #[inline]
    fn process(&mut self, number: u8, context: &mut Context<'_>) -> Step {
        let frame = *context.batch.frame(number);
        let bytes = frame.bytes(context.arena);
        match Self::read(&frame, bytes, context.batch.headers_mut(number)) {
            Ok(()) => Step::To(Self::ON),
            Err(reason) => Step::Drop(reason),
        }
    }
}

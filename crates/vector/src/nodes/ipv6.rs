//! IPv6 headers, and the extensions behind them.

use super::ipv4::place_fragment;
use crate::batch::Frame;
use crate::headers::{Fragment, Headers, Network};
use crate::node::{Context, Edge, Single, Step};
use crate::reason::Reason;
use crate::wire::{u8_at, u128_at};
use grantway_netif::GsoKind;
use grantway_netif::headers::protocol::{
    AUTHENTICATION, DESTINATION, FRAGMENT, HOP_BY_HOP, ROUTING,
};
use grantway_netif::headers::{self, Extensions, Why};

const HEADER: usize = headers::Ipv6::BYTES;
/// Type of the option that a jumbogram has.
const JUMBO: u8 = 0xc2;

/// Checks IPv6 headers as a receiver does: version, lengths, source address and extension headers.
/// Each extension header must stand where it may, and only as often as it may (RFC 8200, 4.1): six
/// at most. The chain has to be in the first fragment (RFC 7112).
#[derive(Debug, Default)]
pub struct Ipv6;

impl Ipv6 {
    /// Packets whose headers are valid.
    pub const ON: Edge = Edge(0);

    #[inline]
    pub(super) fn read(frame: &Frame, bytes: &[u8], headers: &mut Headers) -> Result<(), Reason> {
        let at = usize::from(headers.network_at);
        let ip = headers::Ipv6::read(bytes, at).map_err(|why| match why {
            Why::Version => Reason::Ipv6Version,
            _ => Reason::Ipv6Truncated,
        })?;
        match frame.offload.gso {
            Some(gso) if gso.kind == GsoKind::Tcpv4 => return Err(Reason::Gso),
            _ => {}
        }
        let whole = frame.len as usize - at - HEADER;
        let payload = match ip.payload_len() {
            // A segmenter sets the length of each segment.
            0 if frame.offload.gso.is_some() => whole,
            payload => payload,
        };
        if payload > whole {
            return Err(Reason::Ipv6Truncated);
        }
        // The source must be one that a host can have.
        let addresses = ip.addresses();
        let source = u128_at(addresses, 0).ok_or(Reason::Ipv6Truncated)?;
        if source >> 120 == 0xff {
            return Err(Reason::Ipv6Source);
        }
        // The addresses and the end are written down; then come the extension headers.
        headers.network = Network::V6;
        headers.source = source;
        headers.target = u128_at(addresses, 16).ok_or(Reason::Ipv6Truncated)?;
        let end = at + HEADER + payload;
        headers.end = end as u32;
        let packet = bytes.get(..end).unwrap_or(bytes);
        chain(packet, end, ip.extensions(at), headers)?;
        match frame.offload.gso {
            Some(_) if headers.fragment != Fragment::Whole => Err(Reason::Gso),
            _ => Ok(()),
        }
    }
}

/// Walks the extension headers of a packet that ends at `end`. `packet` has its private bytes.
fn chain(
    packet: &[u8],
    end: usize,
    mut chain: Extensions,
    headers: &mut Headers,
) -> Result<(), Reason> {
    let short = |_| Reason::Ipv6Extension;
    let (first, mut seen) = (chain.at(), 0);
    // Each turn adds to `seen`, or is the last.
    loop {
        let next = chain.next_header();
        // Each kind may stand once in a chain, and the destination's twice.
        let kind: u32 = match next {
            HOP_BY_HOP => 1,
            ROUTING => 2,
            FRAGMENT => 4,
            AUTHENTICATION => 8,
            DESTINATION if seen & 16 == 0 => 16,
            DESTINATION => 32,
            _ => break,
        };
        if seen & kind != 0 || (next == HOP_BY_HOP && chain.at() != first) {
            return Err(Reason::Ipv6Order);
        }
        seen |= kind;
        let Some(extension) = chain.step(packet).map_err(short)? else { break };
        let header = extension.bytes(packet).map_err(short)?;
        match next {
            ROUTING if extension.segments_left(packet).map_err(short)? != 0 => {
                return Err(Reason::Ipv6Route);
            }
            HOP_BY_HOP => hop_by_hop(&header[2..])?,
            FRAGMENT => {
                headers.fragment_id = extension.fragment_id(packet).map_err(short)?;
                let part = extension.part(packet).map_err(short)?;
                if !part.is_whole() {
                    place_fragment(headers, part, end - chain.at())?;
                }
                if !headers.fragment.has_transport() {
                    break;
                }
            }
            _ => {}
        }
    }
    headers.protocol = chain.next_header();
    headers.transport_at = u16::try_from(chain.at()).map_err(|_| Reason::Ipv6Extension)?;
    headers.payload_at = headers.transport_at;
    Ok(())
}

/// Checks the options of a hop-by-hop header. There are at most 2046 bytes of options.
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

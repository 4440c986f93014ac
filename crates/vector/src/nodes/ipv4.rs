//! IPv4 headers.

use crate::batch::Frame;
use crate::headers::{Fragment, Headers, Network};
use crate::node::{Context, Edge, Single, Step};
use crate::reason::Reason;
use crate::wire::u16_at;
use etherparse::checksum::Sum16BitWords;
use grantway_netif::GsoKind;
use grantway_netif::headers::{self, Part, Why};

const END: u8 = 0;
const NOP: u8 = 1;
const LOOSE_ROUTE: u8 = 131;
const STRICT_ROUTE: u8 = 137;

const BROADCAST: u32 = 0xffff_ffff;

/// Checks IPv4 headers as a receiver does: version, lengths, options, checksum, and the source
/// address. A source route is dropped, as hosts drop it, since rules are about the destination in
/// the header. The header's checksum is not checked if the frame is to be segmented: every segment
/// gets one of its own.
#[derive(Debug, Default)]
pub struct Ipv4;

impl Ipv4 {
    /// Packets whose header is valid.
    pub const ON: Edge = Edge(0);

    #[inline]
    pub(super) fn read(frame: &Frame, bytes: &[u8], headers: &mut Headers) -> Result<(), Reason> {
        let at = usize::from(headers.network_at);
        let ip = headers::Ipv4::read(bytes, at).map_err(|why| match why {
            Why::Version => Reason::Ipv4Version,
            Why::HeaderLength => Reason::Ipv4HeaderLength,
            _ => Reason::Ipv4Truncated,
        })?;
        let length = ip.header_len();
        let header = bytes.get(at..at + length).ok_or(Reason::Ipv4Truncated)?;
        let whole = frame.len as usize - at;
        let total = match ip.total_len() {
            // A segmenter sets the length of each segment.
            0 if frame.offload.gso.is_some() => whole,
            total => total,
        };
        // The packet must have its header, and must end within the frame.
        if total < length {
            return Err(Reason::Ipv4TotalLength);
        }
        if total > whole {
            return Err(Reason::Ipv4Truncated);
        }
        match frame.offload.gso {
            Some(gso) if gso.kind == GsoKind::Tcpv6 => return Err(Reason::Gso),
            Some(_) => {}
            None if !is_sound(header) => return Err(Reason::Ipv4Checksum),
            None => {}
        }
        if length > 20 {
            options(&header[20..])?;
        }
        // The source must be one that a host can have.
        let &[a, b, c, d, e, f, g, h] = ip.addresses();
        let source = u32::from_be_bytes([a, b, c, d]);
        if source >> 28 == 0xe || source == BROADCAST {
            return Err(Reason::Ipv4Source);
        }
        // Only now is the header known to be valid, and written down.
        headers.network = Network::V4;
        headers.source = source.into();
        headers.target = u32::from_be_bytes([e, f, g, h]).into();
        headers.end = (at + total) as u32;
        headers.transport_at = (at + length) as u16;
        headers.payload_at = headers.transport_at;
        headers.protocol = ip.protocol();
        if !ip.part().is_whole() {
            headers.fragment_id = ip.id().into();
            place_fragment(headers, ip.part(), total - length)?;
        }
        match frame.offload.gso {
            Some(_) if headers.fragment != Fragment::Whole => Err(Reason::Gso),
            _ => Ok(()),
        }
    }
}

/// Writes down which part of a packet a frame has.
pub(super) fn place_fragment(
    headers: &mut Headers,
    Part { at, more }: Part,
    bytes: usize,
) -> Result<(), Reason> {
    if bytes == 0 || (more && !bytes.is_multiple_of(8)) {
        return Err(Reason::FragmentLength);
    }
    // In IPv4 the header is part of the largest packet, too. IPv6 has the same bound here.
    if usize::from(at) + bytes > 65_535 - 20 {
        return Err(Reason::FragmentBeyond);
    }
    headers.fragment_at = at;
    headers.fragment_end = at + bytes as u16;
    headers.fragment = match (at, more) {
        (0, _) => Fragment::First,
        (_, true) => Fragment::Later,
        (_, false) => Fragment::Last,
    };
    Ok(())
}

/// Returns true if the checksum of a header is right.
#[inline]
fn is_sound(header: &[u8]) -> bool {
    let (first, rest) = header.split_first_chunk().unwrap_or((&[0; 16], header));
    // Most headers have no options, and a sum of known length needs no loop.
    let mut sum = Sum16BitWords::new().add_16bytes(*first);
    let sum = match rest {
        &[a, b, c, d] => sum.add_4bytes([a, b, c, d]),
        rest => sum.add_slice(rest),
    };
    sum.ones_complement() == 0
}

/// Checks each option. There are at most 40 bytes of options.
fn options(mut options: &[u8]) -> Result<(), Reason> {
    while let Some(&kind) = options.first() {
        let length = match kind {
            END => break,
            NOP => 1,
            LOOSE_ROUTE | STRICT_ROUTE => return Err(Reason::Ipv4SourceRoute),
            _ => match options.get(1) {
                Some(&length @ 2..) => usize::from(length),
                _ => return Err(Reason::Ipv4Option),
            },
        };
        options = options.get(length..).ok_or(Reason::Ipv4Option)?;
    }
    Ok(())
}

impl Single for Ipv4 {
    fn name(&self) -> &'static str {
        "ipv4"
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

/// Writes the checksum of an IPv4 header into it.
pub(crate) fn finish_header(header: &mut [u8]) {
    let Some(length) = header.first().map(|first| 4 * usize::from(first & 15)) else { return };
    let Some(header) = header.get_mut(..length) else { return };
    if u16_at(header, 10).is_none() {
        return;
    }
    header[10..12].fill(0);
    // etherparse sums native words, so its result is in memory order.
    let sum = Sum16BitWords::new().add_slice(header).ones_complement();
    header[10..12].copy_from_slice(&sum.to_ne_bytes());
}

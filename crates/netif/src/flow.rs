//! Flows, and the queue of each flow.
//!
//! Both ends of a vif choose a frame's queue by [`flow_hash`], so that the frames of one flow stay
//! in order. The hash has no secret. A sender can put all its frames on one queue, which lowers
//! only its own throughput.

use crate::headers::{Ipv4, Ipv6, Link, ethertype, ports, protocol};

/// The headers of a frame that name its flow.
pub(crate) struct Names<'a> {
    pub addresses: Addresses<'a>,
    /// Protocol and ports (source, then destination) of TCP and UDP; none of a
    /// fragment.
    pub ports: Option<(u8, [u8; 4])>,
}

/// Source, then destination, as on the wire.
pub(crate) enum Addresses<'a> {
    V4(&'a [u8; 8]),
    V6(&'a [u8; 32]),
}

/// Reads what names the flow of a frame. `None` if the frame is not IP, or ends
/// within its IP header.
#[inline]
pub(crate) fn names(frame: &[u8]) -> Option<Names<'_>> {
    let link = Link::read(frame).ok()?;
    match link.ethertype {
        ethertype::IPV4 => ipv4(frame, link.at),
        ethertype::IPV6 => ipv6(frame, link.at),
        _ => None,
    }
}

/// Returns a hash that all frames of a flow share, in both directions.
///
/// The hash of a TCP or UDP frame covers the IP addresses, the protocol and the ports. The hash of
/// any other IP frame covers the IP addresses only. So does the hash of a fragment, since only the
/// first fragment has ports, and of a frame that ends within its headers or has too many of them.
/// The hash of a frame that is not IP covers its Ethernet addresses.
#[inline]
pub fn flow_hash(frame: &[u8]) -> u32 {
    let hash = names(frame).map(|names| names.either_way());
    // The upper half: what is mixed last reaches all of its bits.
    (mix(hash.or_else(|| stations(frame)).unwrap_or(0)) >> 32) as u32
}

/// Returns the queue of a flow, from 0 to `queues` - 1. Returns 0 if `queues` is 0.
#[inline]
pub fn queue_of(hash: u32, queues: usize) -> usize {
    // The product's upper half is below `queues`.
    ((u64::from(hash) * queues as u64) >> 32) as usize
}

/// The Ethernet addresses.
fn stations(frame: &[u8]) -> Option<u64> {
    let &[a, b, c, d, e, f, g, h, i, j, k, l] = frame.first_chunk()?;
    let [to, from] = [[0, 0, a, b, c, d, e, f], [0, 0, g, h, i, j, k, l]];
    Some(either_way(u64::from_be_bytes(to), u64::from_be_bytes(from)))
}

impl Names<'_> {
    fn either_way(&self) -> u64 {
        let addresses = match self.addresses {
            Addresses::V4(&[a, b, c, d, e, f, g, h]) => {
                let (from, to) =
                    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
                either_way(from.into(), to.into())
            }
            Addresses::V6(both) => {
                let [from, to] = [&both[..16], &both[16..]].map(address);
                either_way(from, to)
            }
        };
        let ports = self.ports.map_or(0, |(protocol, [a, b, c, d])| {
            let (from, to) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            // Apart from each other, and from any address of IPv4.
            let kind = u64::from(protocol) << 48;
            either_way(kind | u64::from(from), kind | u64::from(to))
        });
        addresses.wrapping_add(ports)
    }
}

fn ipv4(frame: &[u8], at: usize) -> Option<Names<'_>> {
    let ip = Ipv4::read(frame, at).ok()?;
    let ports = if ip.part().is_whole() {
        numbered(frame, ip.protocol(), at + ip.header_len())
    } else {
        None
    };
    Some(Names { addresses: Addresses::V4(ip.addresses()), ports })
}

fn ipv6(frame: &[u8], at: usize) -> Option<Names<'_>> {
    let ip = Ipv6::read(frame, at).ok()?;
    let mut chain = ip.extensions(at);
    let ports = loop {
        // A fragment has no ports, and both ends agree that an atomic one has none, too.
        if chain.next_header() == protocol::FRAGMENT {
            break None;
        }
        match chain.step(frame) {
            Ok(Some(_)) => {}
            Ok(None) => break numbered(frame, chain.next_header(), chain.at()),
            Err(_) => break None,
        }
    };
    Some(Names { addresses: Addresses::V6(ip.addresses()), ports })
}

/// Returns protocol and ports of TCP and UDP.
fn numbered(frame: &[u8], protocol: u8, at: usize) -> Option<(u8, [u8; 4])> {
    Some((protocol, ports(frame, protocol, at)?))
}

fn address(bytes: &[u8]) -> u64 {
    let whole = bytes.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes));
    // The halves may be alike.
    mix((whole >> 64) as u64).wrapping_add(whole as u64)
}

/// A sum, and so the same for both directions.
fn either_way(one: u64, other: u64) -> u64 {
    mix(one).wrapping_add(mix(other))
}

/// Spreads each bit over all of them (the finalizer of splitmix64).
#[inline]
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

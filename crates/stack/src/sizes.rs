//! The segment size of each flow, which its SYN has.
//!
//! A SYN has the number of bytes that its sender accepts in a segment. That number is kept here:
//! smoltcp (0.14) tells a device the size of a large frame's segments only with IPv4.

use crate::options::{TIMES_LEN, times};
use alloc::collections::BTreeMap;
use grantway_netif::headers::{Family, Headers, Protocol, tcp_flags::SYN};
use grantway_ports::ETHERNET_HEADER;

/// Most flows whose size is kept. If one more begins, all are forgotten. Older flows then send the
/// shortest segments, which every host accepts.
const FLOWS: usize = 4096;
/// Most segments of this vif's size in a frame.
const SEGMENTS: usize = 64;
/// Shortest segment that a host may ask for, as in Linux. A shorter one would only make more work.
const SHORTEST: u16 = 48;
/// Longest frame of any family.
const FRAME: usize = 65_535;

const OPTION_END: u8 = 0;
const OPTION_NOTHING: u8 = 1;
const OPTION_SIZE: u8 = 2;

/// A flow: both addresses and both ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Flow {
    /// The peer's address, then ours.
    addresses: [[u8; 16]; 2],
    /// The peer's port, then ours.
    ports: [u8; 4],
}

/// Address of a frame that is the peer's.
#[derive(Clone, Copy)]
enum Peer {
    Source,
    Destination,
}

impl Flow {
    fn of(frame: &[u8], found: &Headers, peer: Peer) -> Option<Self> {
        let (first, len) = match found.family {
            Family::V4 => (found.ip + 12, 4),
            Family::V6 => (found.ip + 8, 16),
        };
        let &[a, b, c, d] = frame.get(found.start..)?.first_chunk()?;
        let (theirs, ours, ports) = match peer {
            Peer::Source => (first, first + len, [a, b, c, d]),
            Peer::Destination => (first + len, first, [c, d, a, b]),
        };
        let mut addresses = [[0; 16]; 2];
        for (address, at) in addresses.iter_mut().zip([theirs, ours]) {
            address[..len].copy_from_slice(frame.get(at..at + len)?);
        }
        Some(Self { addresses, ports })
    }
}

/// Options of a SYN of the other end of a flow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    /// Payload bytes that the other end accepts in a segment without options.
    pub size: u16,
    /// Timestamp of the other end, if it sends timestamps.
    pub time: Option<u32>,
}

/// The segment sizes of flows.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    flows: BTreeMap<Flow, Said>,
}

impl Sizes {
    /// Learns the size from a received SYN. `mtu` is the length of the vif's longest IP packet, in
    /// bytes. If the SYN has a timestamp, all segments will, and smoltcp must see the size that
    /// remains.
    pub fn learn(&mut self, frame: &mut [u8], found: &Headers, mtu: usize) {
        if !is_syn(frame, found) {
            return;
        }
        let Some(flow) = Flow::of(frame, found, Peer::Source) else { return };
        let Some(option) = size_option(frame, found) else {
            // An earlier connection between the same ports may have said one.
            self.flows.remove(&flow);
            return;
        };
        let said = u16::from_be_bytes(option.map(|at| frame[at]));
        // A size of 0 is no size.
        if said == 0 {
            return;
        }
        let size = said.clamp(SHORTEST, longest(found.family, mtu).max(SHORTEST));
        if self.flows.len() >= FLOWS && !self.flows.contains_key(&flow) {
            self.flows.clear();
        }
        let options = frame.get(found.start + 20..found.header_end);
        let time = options.and_then(times).map(|times| times.own);
        self.flows.insert(flow, Said { size, time });
        if time.is_some() {
            write(frame, option, said.saturating_sub(TIMES_LEN as u16).max(1));
        }
    }

    /// Returns the options of the other end's SYN, for the flow of our frame.
    pub fn said(&self, frame: &[u8], found: &Headers) -> Said {
        let known = Flow::of(frame, found, Peer::Destination).and_then(|f| self.flows.get(&f));
        let shortest = match found.family {
            Family::V4 => 536,
            Family::V6 => 1220,
        };
        known.copied().unwrap_or(Said { size: shortest, time: None })
    }
}

/// Returns the payload bytes of the segments of our frame: as many as the other end accepts and the
/// vif carries, less the options of this frame.
pub(crate) fn payload(accepted: u16, found: &Headers, mtu: usize) -> u16 {
    // At most 40, so it fits.
    let options = (found.header_end - found.start).saturating_sub(20) as u16;
    accepted.min(longest(found.family, mtu)).saturating_sub(options).max(1)
}

/// Writes the size that the vif accepts into a SYN of ours, in place of smoltcp's.
pub(crate) fn tell(frame: &mut [u8], found: &Headers, mtu: usize) {
    if is_syn(frame, found)
        && let Some(option) = size_option(frame, found)
    {
        write(frame, option, longest(found.family, mtu));
    }
}

/// Returns the most payload of a segment on a vif of this MTU, without options.
fn longest(family: Family, mtu: usize) -> u16 {
    let headers = match family {
        Family::V4 => 40,
        Family::V6 => 60,
    };
    mtu.saturating_sub(headers).clamp(1, usize::from(u16::MAX)) as u16
}

/// Returns the length, without options, of the longest frame whose payload is whole segments, for a
/// vif of this MTU. Room is left for the timestamp of each segment.
pub(crate) fn whole_frame(family: Family, mtu: usize) -> usize {
    let room = longest(family, FRAME - ETHERNET_HEADER);
    let size = usize::from(longest(family, mtu).min(room)).saturating_sub(TIMES_LEN).max(1);
    let payload = size * ((usize::from(room) - TIMES_LEN) / size).min(SEGMENTS);
    FRAME - usize::from(room) + payload
}

fn is_syn(frame: &[u8], found: &Headers) -> bool {
    found.protocol == Protocol::Tcp
        && frame.get(found.start + 13).is_some_and(|flags| flags & SYN != 0)
}

/// Returns the offsets of the two bytes of a SYN's segment size option.
fn size_option(frame: &[u8], found: &Headers) -> Option<[usize; 2]> {
    let mut at = found.start + 20;
    while at < found.header_end {
        match (*frame.get(at)?, frame.get(at + 1)) {
            (OPTION_END, _) => return None,
            (OPTION_NOTHING, _) => at += 1,
            (OPTION_SIZE, Some(4)) if at + 4 <= found.header_end => return Some([at + 2, at + 3]),
            (_, Some(&len)) if len >= 2 => at += usize::from(len),
            _ => return None,
        }
    }
    None
}

fn write(frame: &mut [u8], option: [usize; 2], size: u16) {
    for (at, byte) in option.into_iter().zip(size.to_be_bytes()) {
        if let Some(place) = frame.get_mut(at) {
            *place = byte;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use grantway_ports::finish::begin_checksum;

    /// Returns a SYN between two addresses of 10.0.0.0/24 that accepts segments of `size`.
    fn syn(from: u8, to: u8, size: u16) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 44, 0, 0, 0, 0, 64, 6, 0, 0]);
        frame.extend([10, 0, 0, from, 10, 0, 0, to, 0, 80, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0]);
        frame.extend([0x60, SYN, 0xff, 0xff, 0, 0, 0, 0, OPTION_SIZE, 4]);
        frame.extend(size.to_be_bytes());
        frame
    }

    #[test]
    fn a_syn_without_a_size_resets_the_size_of_an_earlier_syn() {
        let mut sizes = Sizes::default();
        let mut frame = syn(9, 1, 600);
        let found = begin_checksum(&mut frame).unwrap();
        sizes.learn(&mut frame, &found, 1500);
        frame[54..58].fill(OPTION_NOTHING);
        sizes.learn(&mut frame, &found, 1500);
        let mut frame = syn(1, 9, 0);
        let found = begin_checksum(&mut frame).unwrap();
        assert_eq!(sizes.said(&frame, &found).size, 536);
    }

    #[test]
    fn each_of_our_addresses_has_its_own_flows() {
        let mut sizes = Sizes::default();
        for (ours, size) in [(1, 600), (2, 700)] {
            let mut frame = syn(9, ours, size);
            let found = begin_checksum(&mut frame).unwrap();
            sizes.learn(&mut frame, &found, 1500);
        }
        for (ours, size) in [(1, 600), (2, 700)] {
            let mut frame = syn(ours, 9, 0);
            let found = begin_checksum(&mut frame).unwrap();
            // The frame has options of 4 bytes.
            assert_eq!(payload(sizes.said(&frame, &found).size, &found, 1500), size - 4);
        }
    }
}

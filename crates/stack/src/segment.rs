//! TCP segments, read from frames.

use grantway_netif::headers::{Family, Headers, Protocol};
use smoltcp::wire::{IpAddress, IpEndpoint, Ipv4Address, Ipv6Address, TcpOption, TcpPacket};

/// Both ends of a flow: our own end first.
pub(crate) type Ends = (IpEndpoint, IpEndpoint);

/// A segment: its ends, its header and its length.
pub(crate) struct Segment<'a> {
    pub from: IpEndpoint,
    pub to: IpEndpoint,
    pub header: TcpPacket<&'a [u8]>,
    pub payload: u32,
    pub number: u32,
    /// Sequence numbers that the segment uses.
    pub takes: u32,
}

impl<'a> Segment<'a> {
    /// Reads the segment of a frame whose headers were found. Returns `None` if the frame is not
    /// TCP.
    pub fn read(frame: &'a [u8], found: &Headers) -> Option<Self> {
        if found.protocol != Protocol::Tcp {
            return None;
        }
        let header = TcpPacket::new_checked(frame.get(found.start..found.end)?).ok()?;
        let (from, to) = addresses(frame, found)?;
        let payload = u32::try_from(found.end - found.header_end).ok()?;
        let takes = payload + u32::from(header.syn()) + u32::from(header.fin());
        Some(Self {
            from: IpEndpoint::new(from, header.src_port()),
            to: IpEndpoint::new(to, header.dst_port()),
            number: header.seq_number().0 as u32,
            header,
            payload,
            takes,
        })
    }

    /// Returns the ranges that the segment names.
    pub fn ranges(&self) -> Ranges {
        // Linux writes timestamps that stand alone in this way.
        match self.header.options() {
            [] | [1, 1, 8, 10, _, _, _, _, _, _, _, _] => Ranges::default(),
            _ => Ranges(self.header.selective_ack_ranges().unwrap_or_default()),
        }
    }

    /// Returns the window scale option, or 0 without one.
    pub fn shift(&self) -> u8 {
        let mut options = self.header.options();
        while !options.is_empty() {
            match TcpOption::parse(options) {
                Ok((_, TcpOption::WindowScale(shift))) => return shift.min(14),
                Ok((rest, _)) if rest.len() < options.len() => options = rest,
                _ => break,
            }
        }
        0
    }
}

/// Ranges of received numbers in an acknowledgement (RFC 2018). They may have any order and any
/// values.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Ranges([Option<(u32, u32)>; 3]);

impl Ranges {
    /// Returns true if the ranges name data that came behind a lost segment.
    pub fn is_selective(&self) -> bool {
        self.0[0].is_some()
    }

    /// Returns true if the ranges name data that came twice, in an acknowledgement of this number
    /// (RFC 2883).
    pub fn is_in_vain(&self, acknowledged: u32) -> bool {
        self.0[0].is_some_and(|(left, _)| before(left, acknowledged))
    }

    /// Returns true if the ranges name data behind `number` and before `next`, the first number
    /// that was not sent.
    pub fn reach(&self, number: u32, next: u32) -> bool {
        let sent = next.wrapping_sub(number);
        let reaches = |&(_, right): &(u32, u32)| (1..=sent).contains(&right.wrapping_sub(number));
        self.0.iter().flatten().any(reaches)
    }

    /// Returns the number of bytes between two numbers that came behind a lost segment. Bytes that
    /// are named twice count once: the first range may be inside the second one (RFC 2883).
    pub fn selected(&self, first: u32, next: u32) -> u32 {
        let mut within = self.0.map(|range| {
            let (left, right) = range.unwrap_or((first, first));
            let (left, right) = (left.wrapping_sub(first), right.wrapping_sub(first));
            if left < right && right <= next.wrapping_sub(first) { (left, right) } else { (0, 0) }
        });
        within.sort_unstable();
        let add = |(sum, end): (u32, u32), (left, right): (u32, u32)| {
            (sum + right.saturating_sub(left.max(end)), end.max(right))
        };
        within.into_iter().fold((0, 0), add).0
    }
}

fn addresses(frame: &[u8], found: &Headers) -> Option<(IpAddress, IpAddress)> {
    let at = |offset: usize| frame.get(found.ip + offset..);
    match found.family {
        Family::V4 => {
            let address = |offset| Some(Ipv4Address::from(*at(offset)?.first_chunk::<4>()?));
            Some((address(12)?.into(), address(16)?.into()))
        }
        Family::V6 => {
            let address = |offset| Some(Ipv6Address::from(*at(offset)?.first_chunk::<16>()?));
            Some((address(8)?.into(), address(24)?.into()))
        }
    }
}

/// Returns the later one of two numbers of TCP.
pub(crate) fn later(number: u32, other: u32) -> u32 {
    if before(number, other) { other } else { number }
}

/// Returns true if `number` comes before `other`, as numbers of TCP count.
pub(crate) fn before(number: u32, other: u32) -> bool {
    (number.wrapping_sub(other) as i32) < 0
}

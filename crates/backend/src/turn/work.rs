//! Prices of packets. A turn takes no more packets than its work allows, so a guest cannot make a
//! turn long. On the bridge a packet may go to all guests, and may be cut into thousands of
//! segments for each guest that accepts no large frames.
//!
//! The price of a packet is the most work that it can cause, by the data of its slots. So packets
//! that a turn leaves are still on the ring: they were not read, and nothing is lost or overtaken.

use grantway_netif::Gso;
use grantway_ports::finish::MAX_SEGMENTS;
use grantway_ring::PAGE_SIZE;
use std::time::Duration;

/// Most work of one turn, in units of about 100 ns: a millisecond. One packet goes, whatever
/// it costs.
pub(crate) const TURN: u32 = 10_000;

/// A unit of work, about.
const UNIT: Duration = Duration::from_nanos(100);

/// A receiver that is visited: the frame laid out, a slot taken and answered.
const VISIT: u32 = 2;
/// A page that is stored.
const PAGE: u32 = 6;
/// A segment that is built, and waits.
pub(crate) const SEGMENT: u32 = 2;
/// A segment that is built, and sent by itself: a TAP takes a system call.
pub(crate) const SEGMENT_SENT: u32 = 20;
/// Most segments of a frame that are sent one by one: a turn's work. Linux's longest frame has as
/// many at 132 bytes in each.
pub(crate) const SEGMENTS_SENT: usize = (TURN / SEGMENT_SENT) as usize;

/// Price of a packet of at most [`SHORT`] bytes for each receiver.
pub(crate) const SHORT_PRICE: u32 = VISIT + PAGE / 2;
/// Bytes of such a packet.
pub(crate) const SHORT: usize = 512;

/// Returns the most that a packet costs for each receiver, at this price of a segment.
#[inline]
pub(crate) fn price(len: usize, gso: Option<Gso>, segment: u32) -> u16 {
    let segments = gso.map_or(0, |gso| len / usize::from(gso.size.max(1)));
    // At most 16 pages. Of a frame that is to have more segments none is built: that many
    // are of 8 bytes in the longest frame, the least that Linux sends (`TCP_MIN_GSO_SIZE`).
    let (pages, segments) = (len.div_ceil(PAGE_SIZE) as u32, segments.min(MAX_SEGMENTS) as u32);
    (VISIT + PAGE * pages + segment * segments).min(u16::MAX.into()) as u16
}

/// The most time that a frame of this length takes a receiver to which it is given.
#[inline]
pub(crate) fn time_to_give(len: usize) -> Duration {
    UNIT * u32::from(price(len, None, SEGMENT))
}

/// A segment that is built and copied into a page.
const SEGMENT_GIVEN: u32 = 4;

/// Returns the most segments into which a frame to `receivers` receivers is cut for each receiver
/// that accepts no large frames. All segments together are two turns' work. A frame of more
/// is refused: TCP sends lost bytes again in one segment, and datagrams of such a frame are lost.
pub(crate) fn segments_for_each(receivers: u32) -> u16 {
    (2 * TURN / SEGMENT_GIVEN / receivers.max(1)).min(u16::MAX.into()) as u16
}

/// Returns the number of packets that are within a turn's work, by the price of each: 1 or more.
pub(crate) fn at_least_one(prices: impl Iterator<Item = u32>) -> usize {
    let mut left = TURN;
    let fits = |price: &u32| {
        let rest = left.checked_sub(*price);
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    prices.take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use grantway_netif::GsoKind;

    #[test]
    fn a_price_is_by_pages_and_segments_and_has_an_end() {
        let price = |len, gso| price(len, gso, SEGMENT);
        let gso = |size| Some(Gso { kind: GsoKind::Tcpv4, size });
        assert_eq!(price(60, None), 8);
        assert_eq!(price(65_535, None), 98);
        assert_eq!(price(65_535, gso(1448)), 98 + 2 * 45);
        for size in 0..=8 {
            assert_eq!(price(65_535, gso(size)), 98 + 2 * 8191, "{size}");
        }
        assert!(u32::from(price(SHORT, None)) >= SHORT_PRICE);
    }

    #[test]
    fn a_frame_of_the_most_segments_that_are_sent_is_a_turn_by_itself() {
        let most = Some(Gso { kind: GsoKind::Tcpv4, size: 132 });
        assert!(65_535_usize.div_ceil(132) <= SEGMENTS_SENT);
        assert!(u32::from(price(65_535, most, SEGMENT_SENT)) > TURN - 200);
        let least = Some(Gso { kind: GsoKind::Tcpv4, size: 1 });
        assert_eq!(price(65_535, least, SEGMENT_SENT), u16::MAX);
    }

    #[test]
    fn a_frame_for_all_is_cut_into_fewer_segments_the_more_they_are() {
        let all = [0, 1, 2, 100, 300, 5000, 5001].map(segments_for_each);
        assert_eq!(all, [5000, 5000, 2500, 50, 16, 1, 0]);
    }

    #[test]
    fn a_turn_takes_what_its_work_allows_and_one_packet_at_least() {
        let of = |prices: &[u32]| at_least_one(prices.iter().copied());
        assert_eq!(of(&[TURN / 2, TURN / 2, 1, 1]), 2);
        assert_eq!(of(&[TURN + 1, 1]), 1);
        assert_eq!(of(&[1, TURN, 1]), 1, "none overtakes another");
        assert_eq!(of(&[1; 64]), 64);
    }
}

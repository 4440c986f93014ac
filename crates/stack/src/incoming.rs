//! Received frames, in private memory, before smoltcp reads them.

use crate::sizes::Sizes;
use crate::stats::DeviceStats;
use grantway_netif::headers::{self, Family, Headers, Protocol, Why};
use grantway_netif::{Checksum, Offload};
use grantway_ports::finish::finish_checksum;

/// A frame for the stack, with its headers if it is TCP or UDP.
pub(crate) struct Admitted(pub Option<Headers>);

/// Returns `None` if a frame is not for the stack, and counts the reason. Notes the segment size of
/// a SYN.
pub(crate) fn admit(
    frame: &mut [u8],
    offload: Offload,
    sizes: &mut Sizes,
    mtu: usize,
    stats: &mut DeviceStats,
) -> Option<Admitted> {
    let found = match headers::read(frame, frame.len()) {
        Ok(found) => found,
        // ARP, ICMP and the like. smoltcp looks at their checksums itself.
        Err(Why::NotIp | Why::OtherTransport) => return Some(Admitted(None)),
        Err(_) => {
            stats.rx_malformed += 1;
            return None;
        }
    };
    if offload.checksum == Checksum::Unknown && !is_sound(frame, &found) {
        stats.rx_bad_checksum += 1;
        return None;
    }
    stats.rx_large += u64::from(offload.gso.is_some());
    sizes.learn(frame, &found, mtu);
    Some(Admitted(Some(found)))
}

/// Returns true if a checksum is correct. Used for frames that the backend did not mark as checked.
fn is_sound(frame: &mut [u8], found: &Headers) -> bool {
    let at = found.checksum_at();
    let Some(&[a, b]) = frame.get(at..at + 2) else { return false };
    if [a, b] == [0, 0] && found.protocol == Protocol::Udp {
        // The sender made none, which only IPv4 allows.
        return found.family == Family::V4;
    }
    // The checksum covers the last destination, which a routed packet may not show here.
    if found.routed || finish_checksum(frame).is_err() {
        return false;
    }
    // Zero and its complement are the same number; TCP may have either.
    let same = |one: u8, other: u8| [one, other] == [0, 0] || [one, other] == [0xff, 0xff];
    let Some(&[c, d]) = frame.get(at..at + 2) else { return false };
    [a, b] == [c, d] || (same(a, b) && same(c, d))
}

//! Times at which an address is announced.

use super::presence_frame;
use crate::clock::Clock;
use std::time::Duration;

/// Time after which an address is announced again: well within the 300 s after which learning
/// bridges forget it.
const EVERY: Duration = Duration::from_secs(60);
/// Returns an address in its usual notation.
pub(crate) fn written(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

/// Tells bridges the place of an address, by a broadcast from it. Without a broadcast, bridges
/// flood the frames for an address that never sends.
pub(crate) struct Presence {
    address: [u8; 6],
    clock: Clock,
    told: Option<Duration>,
}

impl Presence {
    /// Returns a presence that has not told the address yet.
    pub fn new(address: [u8; 6], clock: Clock) -> Self {
        Presence { address, clock, told: None }
    }

    /// Returns true if the address was told since the link came up.
    pub fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// Has the address told again: the link came up, and the bridges may be others now.
    pub fn again(&mut self) {
        self.told = None;
    }

    /// Writes the frame that tells the address, if it is due and fits. Returns its length.
    pub fn tell(&mut self, buf: &mut [u8]) -> Option<usize> {
        let now = (self.clock)();
        if self.told.is_some_and(|told| now.saturating_sub(told) < EVERY) {
            return None;
        }
        let frame = presence_frame(self.address);
        buf.get_mut(..frame.len())?.copy_from_slice(&frame);
        self.told = Some(now);
        Some(frame.len())
    }
}

impl std::fmt::Debug for Presence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = written(self.address);
        f.debug_struct("Presence").field("address", &address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_address;
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    };

    #[test]
    fn addresses_are_read_and_written() {
        let address = [0x00, 0x16, 0x3e, 0xff, 0x0a, 0x01];
        assert_eq!(written(address), "00:16:3e:ff:0a:01");
        assert_eq!(parse_address("00:16:3E:ff:0a:01"), Some(address));
        for text in
            ["", "00:16:3e:ff:0a", "00:16:3e:ff:0a:01:", "0:16:3e:ff:0a:01", "+0:16:3e:ff:0a:01"]
        {
            assert_eq!(parse_address(text), None, "{text}");
        }
    }

    #[test]
    fn the_address_is_announced_at_first_with_a_new_link_and_each_minute() {
        let seconds = Arc::new(AtomicU64::new(5));
        let now = Arc::clone(&seconds);
        let clock: Clock = Arc::new(move || Duration::from_secs(now.load(Relaxed)));
        let mut presence = Presence::new([2, 0, 0, 0, 0, 9], clock);
        let mut buf = vec![7; 100];
        assert!(!presence.is_told());
        assert_eq!(presence.tell(&mut buf[..59]), None, "no room for it");
        assert_eq!(presence.tell(&mut buf), Some(60));
        assert_eq!(buf[..16], [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 9, 0x88, 0xb5, 0, 0]);
        assert!(presence.is_told());
        seconds.store(64, Relaxed);
        assert_eq!(presence.tell(&mut buf), None);
        presence.again();
        assert_eq!(presence.tell(&mut buf), Some(60));
        seconds.store(64 + 60, Relaxed);
        assert_eq!(presence.tell(&mut buf), Some(60));
    }
}

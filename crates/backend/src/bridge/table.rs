//! Which addresses are where: learnt from what comes from there, forgotten with age.

use crate::queue::VifId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long an address that nothing came from is remembered, as in Linux's bridge.
const AGE_MAX: Duration = Duration::from_secs(300);
/// Addresses that are remembered of one vif, or of the uplink: one that sends from
/// more has them flooded to, and takes nobody else's place.
const OF_VIF_MAX: usize = 64;
const OF_UPLINK_MAX: usize = 4096;

pub(crate) type Address = [u8; 6];

/// Where a frame comes from or goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    /// A guest.
    Vif(VifId),
    /// The port beside the guests.
    Uplink,
}

/// What is to be done with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// It goes to one place.
    To(Place),
    /// It goes everywhere but where it came from.
    Flood,
    /// It goes nowhere: it is for where it came from.
    Back,
}

struct Learnt {
    place: Place,
    seen: Instant,
}

/// The addresses of one bridge.
#[derive(Default)]
pub(crate) struct Table {
    learnt: HashMap<Address, Learnt>,
    shares: HashMap<Place, Share>,
}

/// A place's part of the table.
#[derive(Default)]
struct Share {
    count: usize,
    /// When its old addresses were last looked for.
    swept: Option<Instant>,
}

/// How often old addresses are looked for to make room: that takes time.
const SWEEP: Duration = Duration::from_secs(1);

/// Whether an address is a group's, broadcast among them.
fn is_group(address: Address) -> bool {
    address[0] & 1 == 1
}

impl Table {
    /// Routes a frame by its first twelve bytes, and learns from it.
    pub fn route(&mut self, frame: &[u8], from: Place, now: Instant) -> Route {
        let (Some(&to), Some(&sender)) =
            (frame.first_chunk::<6>(), frame.get(6..).and_then(|rest| rest.first_chunk::<6>()))
        else {
            return Route::Back;
        };
        self.learn(sender, from, now);
        if is_group(to) {
            return Route::Flood;
        }
        match self.learnt.get(&to) {
            Some(learnt) if now.saturating_duration_since(learnt.seen) > AGE_MAX => {
                let place = learnt.place;
                self.forget(to, place);
                Route::Flood
            }
            Some(learnt) if learnt.place == from => Route::Back,
            Some(learnt) => Route::To(learnt.place),
            None => Route::Flood,
        }
    }

    fn learn(&mut self, address: Address, from: Place, now: Instant) {
        if is_group(address) || address == [0; 6] {
            return;
        }
        match self.learnt.get_mut(&address) {
            Some(learnt) if learnt.place == from => learnt.seen = now,
            Some(learnt) => {
                // It moved: its old place has room again.
                let old = learnt.place;
                self.forget(address, old);
                self.remember(address, from, now);
            }
            None => self.remember(address, from, now),
        }
    }

    fn remember(&mut self, address: Address, place: Place, now: Instant) {
        let most = if place == Place::Uplink { OF_UPLINK_MAX } else { OF_VIF_MAX };
        let share = self.shares.entry(place).or_default();
        let due = share.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP);
        if share.count >= most && due {
            share.swept = Some(now);
            share.count = sweep(&mut self.learnt, place, now);
        }
        if share.count < most {
            share.count += 1;
            self.learnt.insert(address, Learnt { place, seen: now });
        }
    }

    fn forget(&mut self, address: Address, place: Place) {
        if self.learnt.remove(&address).is_some()
            && let Some(share) = self.shares.get_mut(&place)
        {
            share.count -= 1;
        }
    }

    /// Forgets all of a place: it is no more.
    pub fn forget_place(&mut self, place: Place) {
        if self.shares.remove(&place).is_some() {
            self.learnt.retain(|_, learnt| learnt.place != place);
        }
    }
}

/// Forgets a place's addresses that are too old; how many it has left.
fn sweep(learnt: &mut HashMap<Address, Learnt>, place: Place, now: Instant) -> usize {
    let mut kept = 0;
    learnt.retain(|_, entry| {
        let old = now.saturating_duration_since(entry.seen) > AGE_MAX;
        let stays = entry.place != place || !old;
        kept += usize::from(stays && entry.place == place);
        stays
    });
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use grantway_hypervisor::DomId;

    const fn vif(domain: u16) -> Place {
        Place::Vif(VifId { domain: DomId(domain), devid: 0 })
    }

    const fn address(n: u32) -> Address {
        let [a, b, c, d] = n.to_be_bytes();
        [2, 0, a, b, c, d]
    }

    fn frame(to: Address, from: Address) -> Vec<u8> {
        [to, from, [8, 0, 0, 0, 0, 0]].concat()
    }

    #[test]
    fn what_is_learnt_is_not_flooded() {
        let (mut table, now) = (Table::default(), Instant::now());
        let (a, b) = (address(1), address(2));
        assert_eq!(table.route(&frame(b, a), vif(1), now), Route::Flood);
        assert_eq!(table.route(&frame(a, b), vif(2), now), Route::To(vif(1)));
        assert_eq!(table.route(&frame(b, a), vif(1), now), Route::To(vif(2)));
        assert_eq!(table.route(&frame(a, address(3)), vif(1), now), Route::Back);
        assert_eq!(table.route(&frame([0xff; 6], a), vif(1), now), Route::Flood);
        // It moves to the uplink, and grows old there.
        assert_eq!(table.route(&frame(a, b), Place::Uplink, now), Route::To(vif(1)));
        assert_eq!(table.route(&frame(b, a), vif(1), now), Route::To(Place::Uplink));
        let late = now + AGE_MAX + Duration::from_secs(1);
        assert_eq!(table.route(&frame(b, a), vif(1), late), Route::Flood);
        table.forget_place(vif(1));
        assert_eq!(table.route(&frame(a, b), vif(2), late), Route::Flood);
    }

    #[test]
    fn one_guest_cannot_fill_the_table_or_take_more_than_its_share() {
        let (mut table, now) = (Table::default(), Instant::now());
        table.route(&frame(address(9), address(1)), vif(1), now);
        for n in 100..10_000 {
            table.route(&frame(address(9), address(n)), vif(2), now);
        }
        assert_eq!(table.learnt.len(), 1 + OF_VIF_MAX);
        assert_eq!(table.route(&frame(address(1), address(5)), vif(3), now), Route::To(vif(1)));
        // What is too old makes room.
        let late = now + AGE_MAX + Duration::from_secs(1);
        table.route(&frame(address(9), address(50)), vif(2), late);
        assert_eq!(table.route(&frame(address(50), address(1)), vif(1), late), Route::To(vif(2)));
        assert_eq!(table.shares[&vif(2)].count, 1);
    }

    #[test]
    fn frames_too_short_to_have_addresses_and_groups_as_senders_teach_nothing() {
        let (mut table, now) = (Table::default(), Instant::now());
        for len in 0..12 {
            assert_eq!(table.route(&[0; 12][..len], vif(1), now), Route::Back);
        }
        table.route(&frame(address(1), [1; 6]), vif(1), now);
        table.route(&frame(address(1), [0; 6]), vif(1), now);
        assert!(table.learnt.is_empty());
    }
}

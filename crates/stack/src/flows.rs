//! A bounded table of TCP flows.

use crate::segment::Ends;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use smoltcp::time::Instant;

#[derive(Debug)]
struct Entry<V> {
    ends: Ends,
    /// Time of the last segment.
    last: Instant,
    /// True if both ends closed the flow.
    over: bool,
    value: V,
}

/// Values of up to `MOST` flows. If one more begins, a closed flow is forgotten, or else the flow
/// that was quiet for longest. Segments of a flow come in bursts, so the last flow is found without
/// a search.
#[derive(Debug)]
pub(crate) struct Flows<V, const MOST: usize> {
    places: BTreeMap<Ends, usize>,
    entries: Vec<Entry<V>>,
    /// Place of the last flow that was found.
    recent: usize,
}

impl<V, const MOST: usize> Default for Flows<V, MOST> {
    fn default() -> Self {
        Self { places: BTreeMap::new(), entries: Vec::new(), recent: 0 }
    }
}

impl<V, const MOST: usize> Flows<V, MOST> {
    /// Begins a flow. It replaces an earlier one between the same ends.
    pub fn insert(&mut self, ends: Ends, value: V, now: Instant) {
        self.remove(&ends);
        if self.entries.len() >= MOST {
            let least = self.entries.iter().min_by_key(|entry| (!entry.over, entry.last));
            if let Some(ends) = least.map(|entry| entry.ends) {
                self.remove(&ends);
            }
        }
        self.recent = self.entries.len();
        self.places.insert(ends, self.recent);
        self.entries.push(Entry { ends, last: now, over: false, value });
    }

    /// Forgets a flow.
    pub fn remove(&mut self, ends: &Ends) {
        let Some(place) = self.places.remove(ends) else { return };
        self.entries.swap_remove(place);
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(moved.ends, place);
        }
    }

    /// Returns true if the flow is known.
    pub fn contains(&self, ends: &Ends) -> bool {
        self.places.contains_key(ends)
    }

    /// Returns the value of a flow.
    pub fn get_mut(&mut self, ends: &Ends) -> Option<&mut V> {
        if self.entries.get(self.recent).is_none_or(|entry| entry.ends != *ends) {
            self.recent = *self.places.get(ends)?;
        }
        self.entries.get_mut(self.recent).map(|entry| &mut entry.value)
    }

    /// Notes that the last flow that was found had a segment.
    pub fn touch(&mut self, now: Instant) {
        if let Some(entry) = self.entries.get_mut(self.recent) {
            entry.last = now;
        }
    }

    /// Notes that the last flow that was found is closed.
    pub fn end(&mut self) {
        if let Some(entry) = self.entries.get_mut(self.recent) {
            entry.over = true;
        }
    }

    /// Returns the values.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|entry| &entry.value)
    }

    /// Returns all flows, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Ends, &mut V)> {
        self.entries.iter_mut().map(|entry| (&entry.ends, &mut entry.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::wire::{IpAddress, IpEndpoint};

    fn ends(port: u16) -> Ends {
        let end = |port| IpEndpoint::new(IpAddress::v4(10, 0, 0, 1), port);
        (end(port), end(80))
    }

    #[test]
    fn each_flow_has_its_own_value_also_after_others_went() {
        let mut flows = Flows::<u16, 16>::default();
        for port in 0..10_u16 {
            flows.insert(ends(port), port, Instant::ZERO);
        }
        for (gone, left) in (0..10_u16).map(|n| (n * 7 % 10, 9 - n)) {
            flows.remove(&ends(gone));
            assert!(!flows.contains(&ends(gone)) && flows.get_mut(&ends(gone)).is_none());
            let found =
                (0..10_u16).filter(|&port| flows.get_mut(&ends(port)).copied() == Some(port));
            assert_eq!(found.count(), usize::from(left));
        }
        assert_eq!(flows.values().count(), 0);
    }

    #[test]
    fn a_flow_that_is_over_makes_room_or_else_the_one_that_was_quiet_for_longest() {
        const MOST: usize = 300;
        let mut flows = Flows::<u16, MOST>::default();
        for port in 0..MOST as u16 {
            flows.insert(ends(port), port, Instant::from_millis(i64::from(port)));
        }
        assert!(flows.get_mut(&ends(0)).is_some());
        flows.touch(Instant::from_secs(1));
        flows.insert(ends(9999), 9999, Instant::from_secs(1));
        assert!(flows.contains(&ends(0)) && !flows.contains(&ends(1)));
        assert_eq!(flows.values().count(), MOST);
        assert!(flows.get_mut(&ends(200)).is_some());
        flows.end();
        flows.insert(ends(9998), 9998, Instant::from_secs(1));
        assert!(flows.contains(&ends(2)) && !flows.contains(&ends(200)));
        // The same ends take the place of their earlier flow.
        flows.insert(ends(0), 7, Instant::from_secs(2));
        assert_eq!(flows.get_mut(&ends(0)), Some(&mut 7));
        assert_eq!(flows.values().count(), MOST);
    }
}

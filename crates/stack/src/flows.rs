//! A bounded table of flows of TCP.

use crate::segment::Ends;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use smoltcp::time::Instant;

/// Most flows of a table. If one more begins, the flow that was quiet for longest is forgotten.
pub(crate) const FLOWS: usize = 256;

#[derive(Debug)]
struct Entry<V> {
    ends: Ends,
    /// Time of the last segment.
    last: Instant,
    value: V,
}

/// Values by flow. Segments of a flow come in bursts, so the last flow is found without a search.
#[derive(Debug)]
pub(crate) struct Flows<V> {
    places: BTreeMap<Ends, usize>,
    entries: Vec<Entry<V>>,
    /// Place of the flow that was found last.
    recent: usize,
}

impl<V> Default for Flows<V> {
    fn default() -> Self {
        Self { places: BTreeMap::new(), entries: Vec::new(), recent: 0 }
    }
}

impl<V> Flows<V> {
    /// Begins a flow, in place of an earlier one between the same ends.
    pub fn insert(&mut self, ends: Ends, value: V, now: Instant) {
        self.remove(&ends);
        if self.entries.len() >= FLOWS
            && let Some(quiet) =
                self.entries.iter().min_by_key(|entry| entry.last).map(|entry| entry.ends)
        {
            self.remove(&quiet);
        }
        self.recent = self.entries.len();
        self.places.insert(ends, self.recent);
        self.entries.push(Entry { ends, last: now, value });
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

    /// Notes that a segment of the flow that was found last passed.
    pub fn touch(&mut self, now: Instant) {
        if let Some(entry) = self.entries.get_mut(self.recent) {
            entry.last = now;
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
        let mut flows = Flows::default();
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
    fn the_flow_that_was_quiet_for_longest_makes_room() {
        let mut flows = Flows::default();
        for port in 0..FLOWS as u16 {
            flows.insert(ends(port), port, Instant::from_millis(i64::from(port)));
        }
        assert!(flows.get_mut(&ends(0)).is_some());
        flows.touch(Instant::from_secs(1));
        flows.insert(ends(9999), 9999, Instant::from_secs(1));
        assert!(flows.contains(&ends(0)) && !flows.contains(&ends(1)));
        assert_eq!(flows.values().count(), FLOWS);
        // The same ends take the place of their earlier flow.
        flows.insert(ends(0), 7, Instant::from_secs(2));
        assert_eq!(flows.get_mut(&ends(0)), Some(&mut 7));
        assert_eq!(flows.values().count(), FLOWS);
    }
}

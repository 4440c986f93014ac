//! The filter of multicast frames for a guest that asks for one (`request-multicast-control`): the
//! guest lists addresses by extras on its transmit ring.

use crate::ids::LISTED_MAX;
use crate::journal::Journal;
use grantway_netif::slots::tx::Multicast;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Address = [u8; 6];

/// The filter of one vif, shared by its queues.
#[derive(Default)]
pub(crate) struct MulticastFilter {
    /// True if the guest asked for the filter.
    wanted: AtomicBool,
    listed: Mutex<Listed>,
}

#[derive(Default)]
struct Listed {
    addresses: Vec<Address>,
    journal: Option<Journal>,
}

impl Listed {
    fn write_down(&self) {
        if let Some(journal) = &self.journal {
            journal.set_multicast(&self.addresses);
        }
    }
}

impl MulticastFilter {
    fn listed(&self) -> MutexGuard<'_, Listed> {
        // The list stays valid even if a thread panicked with the lock held.
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a connection with an empty list, or with the one that a killed process wrote down.
    pub fn begin(&self, journal: Option<Journal>, resume: bool) {
        let mut listed = self.listed();
        let left = journal.as_ref().filter(|_| resume).map(Journal::multicast);
        *listed = Listed { addresses: left.unwrap_or_default(), journal };
        listed.write_down();
    }

    /// Sets whether the guest wants listed addresses only.
    pub fn set_wanted(&self, wanted: bool) {
        self.wanted.store(wanted, Relaxed);
    }

    /// Returns true if the guest wants listed addresses only.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }

    /// Makes a change that the guest asked for. Returns false if it cannot be made.
    pub fn change(&self, change: Multicast) -> bool {
        match change {
            Multicast::Add(address) => self.add(address),
            Multicast::Remove(address) => {
                self.remove(address);
                true
            }
        }
    }

    /// Lists an address. Returns false if the list is full or the address is no group's.
    fn add(&self, address: Address) -> bool {
        let mut listed = self.listed();
        if listed.addresses.contains(&address) {
            return true;
        }
        let fits = listed.addresses.len() < LISTED_MAX && address[0] & 1 == 1;
        if fits {
            listed.addresses.push(address);
            listed.write_down();
        }
        fits
    }

    /// Takes an address off the list, if it is listed.
    fn remove(&self, address: Address) {
        let mut listed = self.listed();
        if let Some(at) = listed.addresses.iter().position(|a| *a == address) {
            listed.addresses.swap_remove(at);
            listed.write_down();
        }
    }

    /// Returns true if a frame for the guest passes. A broadcast always does.
    #[inline]
    pub fn passes(&self, frame: &[u8]) -> bool {
        if !self.is_wanted() {
            return true;
        }
        let Some(&address) = frame.first_chunk::<6>() else { return true };
        let is_group = address[0] & 1 == 1 && address != [0xff; 6];
        !is_group || self.listed().addresses.contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Address = [0x01, 0, 0x5e, 0, 0, 1];
    const OTHER: Address = [0x33, 0x33, 0, 0, 0, 1];

    #[test]
    fn unlisted_addresses_are_filtered_once_the_guest_asks() {
        let filter = MulticastFilter::default();
        filter.begin(None, false);
        assert!(filter.passes(&GROUP));
        filter.set_wanted(true);
        assert!(!filter.passes(&GROUP));
        assert!(filter.add(GROUP) && filter.add(GROUP));
        assert!(filter.passes(&GROUP) && !filter.passes(&OTHER));
        assert!(filter.passes(&[0xff; 6]) && filter.passes(&[2, 0, 0, 0, 0, 1]));
        assert!(filter.passes(&[1; 5]));
        filter.remove(GROUP);
        filter.remove(OTHER);
        assert!(!filter.passes(&GROUP));
        filter.begin(None, false);
        assert!(!filter.passes(&GROUP));
    }

    #[test]
    fn the_list_is_bounded_and_has_only_multicast_addresses() {
        let filter = MulticastFilter::default();
        assert!(!filter.add([2, 0, 0, 0, 0, 1]));
        for n in 0..LISTED_MAX {
            assert!(filter.add([1, 0, 0x5e, 0, 0, n as u8]));
        }
        assert!(!filter.add(OTHER));
        assert!(filter.add([1, 0, 0x5e, 0, 0, 3]));
        filter.remove([1, 0, 0x5e, 0, 0, 3]);
        assert!(filter.add(OTHER));
    }
}

//! A grant table in shared memory: Xen's version 1 entries, {u16 flags; u16
//! domid; u32 frame}, little-endian, 8 bytes each.
//!
//! The granting process writes an entry and takes it back. A process that maps or copies sets and
//! clears `reading` and `writing`. The host clears them for a process that died. Flags and domid
//! are one 32-bit word, so each of these is one compare-exchange, as in Xen.

use crate::sys::Words;
use grantway_hypervisor::{Access, DomId, GrantStatus};
use std::sync::atomic::{AtomicU32, Ordering};

const _: () = assert!(cfg!(target_endian = "little"), "v1 entries are little-endian");

/// Bytes of one entry.
pub const ENTRY_BYTES: usize = 8;

/// GTF_type_mask.
const TYPE_MASK: u32 = 3;
/// GTF_permit_access.
const PERMIT_ACCESS: u32 = 1;
/// GTF_readonly.
const READ_ONLY: u32 = 1 << 2;
/// GTF_reading: a domain reads the page or has it mapped.
const READING: u32 = 1 << 3;
/// GTF_writing: a domain writes the page or has it mapped for writing.
const WRITING: u32 = 1 << 4;

/// The table of one domain.
#[derive(Debug)]
pub struct GrantTable {
    words: Words,
    entries: u32,
}

/// Numbers of entries in force, and of those that a peer holds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// Entries that permit access.
    pub granted: u32,
    /// Entries with `reading` or `writing` set.
    pub held: u32,
}

impl GrantTable {
    /// Takes the table in `words`, which has `entries` entries.
    pub fn new(words: Words, entries: u32) -> Self {
        Self { words, entries }
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    #[inline]
    fn entry(&self, gref: u32) -> Option<(&AtomicU32, &AtomicU32)> {
        if gref >= self.entries {
            return None;
        }
        let at = gref as usize * 2;
        Some((self.words.word32(at)?, self.words.word32(at + 1)?))
    }

    /// Puts an entry in force: frame first, then, behind a release barrier,
    /// flags and domid.
    pub fn publish(&self, gref: u32, peer: DomId, frame: u32, access: Access) {
        if let Some((head, at)) = self.entry(gref) {
            at.store(frame, Ordering::Relaxed);
            let mut flags = PERMIT_ACCESS;
            if access == Access::ReadOnly {
                flags |= READ_ONLY;
            }
            // Pairs with the compare-exchange in `pin`.
            head.store(flags | u32::from(peer.0) << 16, Ordering::Release);
        }
    }

    /// Takes an entry back if nobody reads or writes through it. Returns true if it is out of force
    /// now.
    pub fn revoke(&self, gref: u32) -> bool {
        let Some((head, _)) = self.entry(gref) else {
            return true;
        };
        let mut seen = head.load(Ordering::Acquire);
        loop {
            if seen & (READING | WRITING) != 0 {
                return false;
            }
            if seen == 0 {
                return true;
            }
            match head.compare_exchange_weak(seen, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Holds an entry for `by`: sets `reading`, and `writing` if asked. Returns the frame that the
    /// granter wrote, not judged.
    pub fn pin(&self, gref: u32, by: DomId, write: bool) -> Result<u32, GrantStatus> {
        let Some((head, frame)) = self.entry(gref) else {
            return Err(GrantStatus::BAD_GNTREF);
        };
        let mut seen = head.load(Ordering::Relaxed);
        loop {
            if seen & TYPE_MASK != PERMIT_ACCESS || seen >> 16 != u32::from(by.0) {
                return Err(GrantStatus::BAD_GNTREF);
            }
            if write && seen & READ_ONLY != 0 {
                return Err(GrantStatus::PERMISSION_DENIED);
            }
            let mut want = seen | READING;
            if write {
                want |= WRITING;
            }
            // Acquire pairs with the release in `publish`: the frame is the
            // one that belongs to these flags. Release is not needed: nothing
            // of ours precedes the pin.
            match head.compare_exchange_weak(seen, want, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(frame.load(Ordering::Relaxed)),
                Err(now) => seen = now,
            }
        }
    }

    /// Ends a hold: of writing only, or of both.
    pub fn unpin(&self, gref: u32, writing_only: bool) {
        if let Some((head, _)) = self.entry(gref) {
            let bits = if writing_only { WRITING } else { READING | WRITING };
            // Pairs with the acquire in `revoke`: all that was read or written
            // through the grant comes before the page is free.
            head.fetch_and(!bits, Ordering::Release);
        }
    }

    /// Ends the holds of a dead process of `by`. Returns the number of entries.
    pub fn sweep(&self, by: DomId) -> u32 {
        let mut swept = 0;
        for gref in 0..self.entries {
            let Some((head, _)) = self.entry(gref) else {
                break;
            };
            let seen = head.load(Ordering::Relaxed);
            if seen & (READING | WRITING) != 0 && seen >> 16 == u32::from(by.0) {
                head.fetch_and(!(READING | WRITING), Ordering::Release);
                swept += 1;
            }
        }
        swept
    }

    /// Counts entries; each is looked at by itself.
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for gref in 0..self.entries {
            let Some((head, _)) = self.entry(gref) else {
                break;
            };
            let seen = head.load(Ordering::Relaxed);
            census.granted += u32::from(seen & TYPE_MASK == PERMIT_ACCESS);
            census.held += u32::from(seen & (READING | WRITING) != 0);
        }
        census
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::shared_memory;
    use std::sync::atomic::AtomicU32;

    fn table(entries: u32) -> GrantTable {
        let bytes = entries as usize * ENTRY_BYTES;
        let fd = shared_memory("test", bytes).unwrap();
        GrantTable::new(Words::of(&fd, bytes).unwrap(), entries)
    }

    #[test]
    fn an_entry_has_the_layout_of_xens_header() {
        let table = table(16);
        table.publish(9, DomId(0x0102), 0xaabb_ccdd, Access::ReadOnly);
        // {u16 flags = permit_access | readonly; u16 domid; u32 frame}
        assert_eq!(table.words.word32(18).unwrap().load(Ordering::Relaxed), 0x0102_0005);
        assert_eq!(table.words.word32(19).unwrap().load(Ordering::Relaxed), 0xaabb_ccdd);
        assert_eq!(table.pin(9, DomId(0x0102), false), Ok(0xaabb_ccdd));
        assert_eq!(table.words.word32(18).unwrap().load(Ordering::Relaxed), 0x0102_000d);
    }

    #[test]
    fn pins_are_refused_by_reason() {
        let table = table(16);
        table.publish(8, DomId(3), 1, Access::ReadOnly);
        assert_eq!(table.pin(8, DomId(4), false), Err(GrantStatus::BAD_GNTREF));
        assert_eq!(table.pin(8, DomId(3), true), Err(GrantStatus::PERMISSION_DENIED));
        assert_eq!(table.pin(9, DomId(3), false), Err(GrantStatus::BAD_GNTREF));
        assert_eq!(table.pin(16, DomId(3), false), Err(GrantStatus::BAD_GNTREF));
        assert_eq!(table.pin(u32::MAX, DomId(3), false), Err(GrantStatus::BAD_GNTREF));
    }

    #[test]
    fn a_held_entry_is_not_revoked() {
        let table = table(16);
        table.publish(8, DomId(3), 1, Access::ReadWrite);
        table.pin(8, DomId(3), true).unwrap();
        assert!(!table.revoke(8));
        table.unpin(8, true);
        assert!(!table.revoke(8), "still reading");
        table.unpin(8, false);
        assert!(table.revoke(8));
        assert!(table.revoke(8), "twice is the same as once");
        assert_eq!(table.census(), Census::default());
    }

    /// XSA-396: a revoke that looks first and takes back afterwards does so under a peer that came
    /// in between.
    #[test]
    fn a_revoke_and_a_pin_never_both_succeed() {
        const ENTRIES: u32 = 4096;
        /// At one entry of this many the pin comes first, at another one the revoke.
        const ORDERED: u32 = 1024;
        const LOOKS: u32 = 50;
        let table = table(ENTRIES);
        let progress = [AtomicU32::new(0), AtomicU32::new(0)];
        // Both come to each entry at nearly the same time, if both have a processor.
        let meet = |own: usize, at: u32| {
            progress[own].store(at, Ordering::SeqCst);
            let other = &progress[1 - own];
            let mut looks = 0;
            while other.load(Ordering::SeqCst) < at && looks < LOOKS {
                std::hint::spin_loop();
                looks += 1;
            }
            let first = at % ORDERED;
            while first < 2 && first as usize != own && other.load(Ordering::SeqCst) <= at {
                std::thread::yield_now();
            }
            for _ in 0..(at >> (4 * own)) % 16 {
                std::hint::spin_loop();
            }
        };
        let (mut revoked, mut pinned) = (0, 0);
        for round in 0..200 {
            for gref in 8..ENTRIES {
                table.publish(gref, DomId(3), gref, Access::ReadWrite);
            }
            let first = round * ENTRIES;
            let [mut taken_back, mut held] = [Vec::new(), Vec::new()];
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for gref in 8..ENTRIES {
                        meet(0, first + gref);
                        held.push(table.pin(gref, DomId(3), true).is_ok());
                    }
                });
                for gref in 8..ENTRIES {
                    meet(1, first + gref);
                    taken_back.push(table.revoke(gref));
                }
            });
            for (gref, (revoke, pin)) in (8..).zip(taken_back.into_iter().zip(held)) {
                assert_ne!(revoke, pin, "entry {gref}: revoked {revoke}, pinned {pin}");
                revoked += u32::from(revoke);
                pinned += u32::from(pin);
                table.unpin(gref, false);
            }
        }
        assert!(revoked > 0 && pinned > 0, "{revoked} revoked first, {pinned} pinned first");
    }

    #[test]
    fn a_sweep_ends_the_holds_of_one_domain() {
        let table = table(32);
        for gref in 8..16 {
            table.publish(gref, DomId((gref % 2) as u16), gref, Access::ReadWrite);
            table.pin(gref, DomId((gref % 2) as u16), gref % 3 == 0).unwrap();
        }
        assert_eq!(table.census(), Census { granted: 8, held: 8 });
        assert_eq!(table.sweep(DomId(1)), 4);
        assert_eq!(table.census(), Census { granted: 8, held: 4 });
    }
}

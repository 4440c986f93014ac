//! The journal of the pages that a queue has staged, in pages of its own.
//!
//! Each entry says which control request added it or took it out. A request counts once it is
//! answered. The effect of a request that was cut short does not count: the successor carries the
//! request out again, from the state before it.

use super::JournalMemory;
use crate::ids::{QUEUE_PAGES, STAGED_PAGES};
use grantway_netif::ctrl::{GrefEntry, GrefFlags};
use grantway_ring::PAGE_SIZE;
use std::collections::HashMap;

/// Bytes of an entry: the reference, and its state.
const ENTRY: usize = 8;
const ENTRIES_A_PAGE: usize = PAGE_SIZE / ENTRY;

const ENTRIES: usize = STAGED_PAGES * ENTRIES_A_PAGE;
const _: () = assert!(ENTRIES == QUEUE_PAGES);

/// States of an entry. A free entry has the state 0.
const STAGED: u32 = 1;
const LEAVING: u32 = 2;
const READONLY: u32 = 4;
/// Shift of the request above the state, as far as its index fits. Only one request is unanswered
/// at a time, so much fewer bits tell it from others.
const REQUEST_SHIFT: u32 = 3;

/// The staged pages of one queue.
pub(crate) struct StagedJournal<J> {
    pages: Vec<J>,
    /// Place of the entry of each reference.
    places: HashMap<u32, usize>,
    free: Vec<usize>,
}

impl<J: JournalMemory> StagedJournal<J> {
    /// Begins with nothing staged, whatever the [`STAGED_PAGES`] pages hold.
    pub fn begin(pages: Vec<J>) -> Self {
        let journal = Self { pages, places: HashMap::new(), free: (0..ENTRIES).rev().collect() };
        for place in 0..ENTRIES {
            if journal.state(place) != 0 {
                journal.set(place, 4, 0);
            }
        }
        journal
    }

    /// Takes up the journal after a kill. Returns the entries that were staged when all requests
    /// before the index `answered` were answered. The `status` of these entries means nothing.
    pub fn resume(pages: Vec<J>, answered: u32) -> (Self, Vec<GrefEntry>) {
        let mut journal = Self { pages, places: HashMap::new(), free: Vec::new() };
        let mut staged = Vec::new();
        for place in (0..ENTRIES).rev() {
            let (gref, state) = (journal.get(place, 0), journal.state(place));
            let cut_short = state >> REQUEST_SHIFT == request(answered) >> REQUEST_SHIFT;
            // A page counts if an answered request staged it, or if only an unanswered one took it
            // out.
            let stays = match state & (STAGED | LEAVING) {
                STAGED => !cut_short,
                LEAVING => cut_short,
                _ => false,
            };
            if !stays || journal.places.contains_key(&gref) {
                if state != 0 {
                    // The entry is freed, whatever the request does when it is carried out again.
                    journal.set(place, 4, 0);
                }
                journal.free.push(place);
                continue;
            }
            journal.places.insert(gref, place);
            let readonly = state & READONLY != 0;
            let flags = if readonly { GrefFlags::READONLY } else { GrefFlags::empty() };
            staged.push(GrefEntry { gref, flags, status: 0 });
            if state & LEAVING != 0 {
                // The request comes again, and may leave the page staged.
                let before = request(answered.wrapping_sub(1));
                journal.set(place, 4, before | STAGED | (state & READONLY));
            }
        }
        (journal, staged)
    }

    /// Notes that the request at this index has staged these pages.
    pub fn added(&mut self, index: u32, entries: &[GrefEntry]) {
        for entry in entries {
            let Some(place) = self.free.pop() else { return };
            let readonly = entry.flags.contains(GrefFlags::READONLY);
            let readonly = if readonly { READONLY } else { 0 };
            // No state may refer to a reference that is half written.
            self.set(place, 4, 0);
            self.set(place, 0, entry.gref);
            self.set(place, 4, request(index) | STAGED | readonly);
            self.places.insert(entry.gref, place);
        }
    }

    /// Notes that the request at this index has taken this page out.
    pub fn left(&mut self, index: u32, gref: u32) {
        if let Some(place) = self.places.remove(&gref) {
            let state = self.state(place);
            self.set(place, 4, request(index) | LEAVING | (state & READONLY));
            self.free.push(place);
        }
    }

    fn state(&self, place: usize) -> u32 {
        self.get(place, 4)
    }

    fn get(&self, place: usize, offset: usize) -> u32 {
        let mut bytes = [0; 4];
        if let Some(page) = self.pages.get(place / ENTRIES_A_PAGE) {
            page.get(place % ENTRIES_A_PAGE * ENTRY + offset, &mut bytes);
        }
        u32::from_ne_bytes(bytes)
    }

    fn set(&self, place: usize, offset: usize, word: u32) {
        if let Some(page) = self.pages.get(place / ENTRIES_A_PAGE) {
            page.put_word(place % ENTRIES_A_PAGE * ENTRY + offset, word);
        }
    }
}

/// Returns a request's index as an entry has it.
fn request(index: u32) -> u32 {
    index << REQUEST_SHIFT
}

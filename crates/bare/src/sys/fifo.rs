//! Memory of event channels in queues (Xen's `event_channel.h`, the FIFO ABI): the control block
//! of the one processor, and a word for each port.

use super::hypercall::events;
use super::memory::frame;
use crate::fifo::{MASKED, Memory};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use grantway_ring::{PAGE_SIZE, SharedPage, SharedRun};

/// Words in a page.
const WORDS_A_PAGE: usize = PAGE_SIZE / 4;
/// Most pages of words: ports have 17 bits.
const PAGES_MAX: usize = (1 << 17) / WORDS_A_PAGE;
/// Offset of the heads of queues in the control block, whose first word says which are ready.
const HEADS: usize = 8;

/// The pages, which Xen has for as long as the guest runs in its domain.
#[derive(Debug)]
pub struct Pages {
    control: SharedPage,
    words: Vec<SharedPage>,
}

impl Pages {
    /// Has Xen go over to queues. Returns none if it has none, or if there is no memory.
    pub fn new() -> Option<Self> {
        let control = SharedRun::try_private(1)?.page(0)?;
        (events::init_control(frame(&control)) == 0).then(|| Self { control, words: Vec::new() })
    }

    /// Returns the number of ports for which there are words.
    pub fn ports(&self) -> usize {
        self.words.len() * WORDS_A_PAGE
    }

    /// Adds pages until there is a word for this port. Returns false if Xen refuses one, or if
    /// there is no memory.
    pub fn reach(&mut self, port: u32) -> bool {
        while self.ports() <= port as usize {
            let Some(page) = self.add() else { return false };
            self.words.push(page);
        }
        true
    }

    /// Gives Xen one more page of words, all of which are masked.
    fn add(&self) -> Option<SharedPage> {
        let page = (self.words.len() < PAGES_MAX).then(|| SharedRun::try_private(1))??.page(0)?;
        for at in 0..WORDS_A_PAGE {
            word(&page, at).store(MASKED, SeqCst);
        }
        (events::expand_array(frame(&page)) == 0).then_some(page)
    }

    fn word_of(&self, port: u32) -> Option<&AtomicU32> {
        let port = port as usize;
        Some(word(self.words.get(port / WORDS_A_PAGE)?, port % WORDS_A_PAGE))
    }
}

impl Memory for Pages {
    fn load(&self, port: u32) -> Option<u32> {
        Some(self.word_of(port)?.load(SeqCst))
    }

    fn exchange(&self, port: u32, old: u32, new: u32) -> Result<(), u32> {
        match self.word_of(port) {
            Some(word) => word.compare_exchange(old, new, SeqCst, SeqCst).map(drop),
            None => Ok(()),
        }
    }

    fn head(&self, queue: usize) -> u32 {
        word(&self.control, HEADS / 4 + queue).load(SeqCst)
    }

    fn is_ready(&self) -> bool {
        word(&self.control, 0).load(SeqCst) != 0
    }

    fn take_ready(&self) -> u32 {
        word(&self.control, 0).swap(0, SeqCst)
    }
}

/// Returns a word of a page.
fn word(page: &SharedPage, at: usize) -> &AtomicU32 {
    let at = at % WORDS_A_PAGE;
    // SAFETY: the place lies in the page, which lives as long as this handle to it, is aligned, and
    // everybody who reaches it does so by atomic operations.
    unsafe { &*page.as_ptr().as_ptr().cast::<AtomicU32>().add(at) }
}

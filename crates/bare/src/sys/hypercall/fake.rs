//! The Xen of tests: event channels, and the timer.

use super::{EVENT_CHANNEL_OP, SCHED_OP, VCPU_OP};
use crate::sys::shared::SharedInfo;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::boxed::Box;
use std::cell::RefCell;
use std::vec::Vec;

const PENDING: u32 = 1 << 31;
const MASKED: u32 = 1 << 30;
const LINKED: u32 = 1 << 29;

/// State of this Xen, one per thread, as each test has one.
#[derive(Default)]
pub struct Xen {
    /// Page of shared information.
    pub shared: Option<SharedInfo>,
    /// True if it has queues of event channels.
    pub has_fifo: bool,
    /// Ports that were made, and those that were closed.
    pub made: u32,
    pub closed: Vec<u32>,
    /// Ports of each poll.
    pub polls: Vec<Vec<u32>>,
    /// Times for which the timer was set.
    pub timers: Vec<u64>,
    /// Number of waits for an upcall.
    pub halts: usize,
    /// Event that ends a wait for an upcall.
    pub on_halt: Option<Box<dyn FnMut()>>,
    control: Option<usize>,
    words: Vec<usize>,
    tail: u32,
}

std::thread_local! {
    static XEN: RefCell<Xen> = RefCell::default();
}

/// Looks at this Xen, or changes it.
pub fn with<T>(work: impl FnOnce(&mut Xen) -> T) -> T {
    XEN.with_borrow_mut(work)
}

/// Begins anew: the guest is in another domain.
pub fn renew(shared: SharedInfo, has_fifo: bool) {
    with(|xen| *xen = Xen { shared: Some(shared), has_fifo, ..Xen::default() });
}

/// Waits for an upcall.
pub fn halt() {
    let mut on_halt = with(|xen| {
        xen.halts += 1;
        xen.on_halt.take()
    });
    let event = on_halt.as_mut().expect("the guest would wait for ever");
    event();
    with(|xen| xen.on_halt = on_halt);
}

/// Signals a port.
pub fn signal(port: u32) {
    with(|xen| xen.signal(port));
}

/// Writes a word of a structure.
fn put(structure: u64, at: usize, word: u32) {
    // SAFETY: a hypercall's argument is a structure of the caller's, which has this word.
    unsafe { (structure as *mut u8).add(at).cast::<u32>().write(word) };
}

/// Reads a long word of a structure.
fn get(structure: u64, at: usize) -> u64 {
    // SAFETY: as above.
    unsafe { (structure as *const u8).add(at).cast::<u64>().read_unaligned() }
}

/// Makes a hypercall.
pub(super) fn call(number: u64, first: u64, second: u64, third: u64) -> i64 {
    with(|xen| match (number, first) {
        (EVENT_CHANNEL_OP, 6 | 7) => xen.make(second, 4),
        (EVENT_CHANNEL_OP, 1) => xen.make(second, 8),
        (EVENT_CHANNEL_OP, 3) => {
            xen.closed.push(get_word(second));
            0
        }
        (EVENT_CHANNEL_OP, 4) => {
            xen.signal(get_word(second));
            0
        }
        (EVENT_CHANNEL_OP, 11) if xen.has_fifo => {
            xen.control = Some(get(second, 0) as usize * 4096);
            0
        }
        (EVENT_CHANNEL_OP, 12) if xen.control.is_some() => {
            xen.words.push(get(second, 0) as usize * 4096);
            0
        }
        (VCPU_OP, 8) => {
            xen.timers.push(get(third, 0));
            0
        }
        (SCHED_OP, 3) => {
            let count = get(second, 8) as u32 as usize;
            // SAFETY: the structure has the address and the length of a list.
            let ports = unsafe { std::slice::from_raw_parts(get(second, 0) as *const u32, count) };
            xen.polls.push(ports.to_vec());
            0
        }
        _ => -38,
    })
}

fn get_word(structure: u64) -> u32 {
    // SAFETY: as for a long word.
    unsafe { (structure as *const u32).read() }
}

impl Xen {
    fn make(&mut self, structure: u64, at: usize) -> i64 {
        self.made += 1;
        put(structure, at, self.made);
        0
    }

    fn word(&self, port: u32) -> Option<&AtomicU32> {
        let page = *self.words.get(port as usize / 1024)?;
        // SAFETY: the guest gave the page.
        Some(unsafe { &*(page as *const AtomicU32).add(port as usize % 1024) })
    }

    fn signal(&mut self, port: u32) {
        let Some(control) = self.control else { return self.signal_bit(port) };
        let word = self.word(port).expect("a page for the port");
        let before = word.fetch_or(PENDING, SeqCst);
        if before & MASKED != 0 || word.fetch_or(LINKED, SeqCst) & LINKED != 0 {
            return;
        }
        let tail = (self.tail != port).then(|| self.word(self.tail)).flatten();
        let link = |tail: &AtomicU32| {
            let linked = |word: u32| (word & LINKED != 0).then_some(word | port);
            tail.fetch_update(SeqCst, SeqCst, linked).is_ok()
        };
        if !tail.is_some_and(link) {
            // SAFETY: the guest gave the control block, whose queue of the default priority is 7.
            unsafe {
                (*(control as *const AtomicU32).add(2 + 7)).store(port, SeqCst);
                (*(control as *const AtomicU32)).fetch_or(1 << 7, SeqCst);
            }
        }
        self.tail = port;
    }

    fn signal_bit(&self, port: u32) {
        let shared = self.shared.as_ref().expect("a page of shared information");
        let (word, bit) = ((port / 64) as usize, 1 << (port % 64));
        let before = shared.word(0x800 + word * 8).fetch_or(bit, SeqCst);
        if before & bit == 0 && shared.word(0xa00 + word * 8).load(SeqCst) & bit == 0 {
            shared.word(8).fetch_or(1 << word, SeqCst);
        }
    }
}

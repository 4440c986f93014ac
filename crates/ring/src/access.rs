//! Interface between the ends of a ring and its memory, and the fences between the two ends.
//!
//! # Why relaxed accesses and explicit fences
//!
//! The indices are loaded and stored relaxed. The eight fences of [`Fence`] provide all ordering.
//! Each ordering has one name and one place, so a test can remove exactly one: `tests/loom.rs`
//! wraps a memory, skips a single fence, and requires that loom finds a torn slot or a lost
//! wake-up.

#[cfg(not(loom))]
use core::sync::atomic::{Ordering, fence};
#[cfg(loom)]
use loom::sync::atomic::{Ordering, fence};

/// The four index words at the head of a ring page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    /// `req_prod`: requests published; the frontend writes it.
    ReqProd,
    /// `req_event`: the backend asks to be notified when `req_prod` reaches it.
    ReqEvent,
    /// `rsp_prod`: responses published; the backend writes it.
    RspProd,
    /// `rsp_event`: the frontend asks to be notified when `rsp_prod` reaches it.
    RspEvent,
}

/// The fences of the protocol, each with its pair on the other side.
///
/// The tests named are in `tests/loom.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// Release, in [`Front::publish`](crate::Front::publish): request slots
    /// before `req_prod`. It also keeps the reads of earlier responses before
    /// their slots' next publication. Pair: [`Fence::RequestsSeen`]. Without
    /// it: `without_requests_written_a_request_is_torn`.
    RequestsWritten,
    /// Acquire, in [`Back`](crate::Back) wherever `req_prod` is read: `req_prod`
    /// before request slots. Pair: [`Fence::RequestsWritten`]. Without it:
    /// `without_requests_seen_a_request_is_torn`.
    RequestsSeen,
    /// Release, in [`Back::publish`](crate::Back::publish): response slots
    /// before `rsp_prod`, and the reads of the requests that they replaced.
    /// Pair: [`Fence::ResponsesSeen`]. Without it:
    /// `without_responses_written_a_response_is_torn`,
    /// `without_responses_written_a_reused_slot_is_torn`.
    ResponsesWritten,
    /// Acquire, in [`Front`](crate::Front) wherever `rsp_prod` is read:
    /// `rsp_prod` before response slots, and before the next request is
    /// written over them. Pair: [`Fence::ResponsesWritten`]. Without it:
    /// `without_responses_seen_a_response_is_torn`,
    /// `without_responses_seen_a_reused_slot_is_torn`.
    ResponsesSeen,
    /// Full, in [`Front::publish`](crate::Front::publish): `req_prod` written
    /// before `req_event` is read. Pair: [`Fence::RequestsArmed`]; with both,
    /// one of the two sides sees what the other wrote. Without it:
    /// `without_requests_published_a_wakeup_is_lost`.
    RequestsPublished,
    /// Full, in [`Back::arm`](crate::Back::arm): `req_event` written before
    /// `req_prod` is read again. Pair: [`Fence::RequestsPublished`]. Without
    /// it: `without_requests_armed_a_wakeup_is_lost`.
    RequestsArmed,
    /// Full, in [`Back::publish`](crate::Back::publish): `rsp_prod` written
    /// before `rsp_event` is read. Pair: [`Fence::ResponsesArmed`]. Without it:
    /// `without_responses_published_a_wakeup_is_lost`.
    ResponsesPublished,
    /// Full, in [`Front::arm`](crate::Front::arm): `rsp_event` written before
    /// `rsp_prod` is read again. Pair: [`Fence::ResponsesPublished`]. Without
    /// it: `without_responses_armed_a_wakeup_is_lost`.
    ResponsesArmed,
}

impl Fence {
    /// Executes the fence.
    #[inline(always)]
    pub fn issue(self) {
        match self {
            Self::RequestsWritten | Self::ResponsesWritten => fence(Ordering::Release),
            Self::RequestsSeen | Self::ResponsesSeen => fence(Ordering::Acquire),
            Self::RequestsPublished
            | Self::RequestsArmed
            | Self::ResponsesPublished
            | Self::ResponsesArmed => fence(Ordering::SeqCst),
        }
    }
}

/// Memory of a ring. `W` is the number of 32-bit words in a slot.
///
/// All methods take `&self`, since a peer writes the same memory at the same time. An
/// implementation reads or writes each word once. It provides no order beyond
/// [`fence`](Self::fence).
pub trait RingMemory<const W: usize> {
    /// Returns the number of slots. It is a power of two, and does not change.
    fn slots(&self) -> u32;

    /// Loads an index word, relaxed.
    fn load(&self, index: Index) -> u32;

    /// Stores an index word, relaxed.
    fn store(&self, index: Index, value: u32);

    /// Copies a slot out, and reads each word once. `index` is free-running: the slot is `index`
    /// modulo the number of slots.
    fn read_slot(&self, index: u32) -> [u32; W];

    /// Copies a whole slot in. `index` is free-running, as in [`read_slot`](Self::read_slot).
    fn write_slot(&self, index: u32, words: [u32; W]);

    /// Copies consecutive slots out, from `index` on, at most as many as the ring has.
    #[inline]
    fn read_slots(&self, index: u32, out: &mut [[u32; W]]) {
        for (words, at) in out.iter_mut().zip(0..) {
            *words = self.read_slot(index.wrapping_add(at));
        }
    }

    /// Copies consecutive slots in, from `index` on, at most as many as the ring has.
    #[inline]
    fn write_slots(&self, index: u32, slots: &[[u32; W]]) {
        for (words, at) in slots.iter().zip(0..) {
            self.write_slot(index.wrapping_add(at), *words);
        }
    }

    /// Sets the whole memory to zero: indices, padding and slots.
    fn clear(&self);

    /// Orders the accesses before it and after it. Only a test that shows that a fence is necessary
    /// needs to override this method.
    #[inline(always)]
    fn fence(&self, which: Fence) {
        which.issue();
    }
}

//! Layout of a worker's private memory, and limits on what a turn brings into it.

use grantway_ports::RECV_BUFFER;
use grantway_ring::PAGE_SIZE;

/// Bytes of a packet that are private before its receiver is known: enough for all headers that are
/// read.
pub(crate) const HEAD: usize = 128;

/// Slots of one ring, and the most slots that a turn can read.
pub(crate) const RING_SLOTS: usize = 256;
/// Most packets that a queue may move each way in one turn, so that no queue waits long for its
/// worker.
pub(crate) const BURST: usize = 64;

/// Room for the private heads of a burst, before the rest of the arena.
pub(crate) const HEADS: usize = BURST * HEAD;

/// Bytes of the arena, which are enough for a turn: heads, whole pages for all slots of a ring,
/// gaps for alignment, and room to receive one more frame.
pub(crate) const ARENA: usize =
    HEADS + RING_SLOTS * PAGE_SIZE + BURST * (64 + PAGE_SIZE) + RECV_BUFFER;

/// Pages of a worker's arena. On Xen the domain grants these pages to itself, up to gntalloc's
/// limit. Pages beyond the limit are ordinary memory, and copies to them are slower.
pub const ARENA_PAGES: u64 = ARENA.div_ceil(PAGE_SIZE) as u64;

/// Returns the best place in the arena, from `at` on, for `len` bytes. If they exceed a page, the
/// first `lead` bytes end where a page ends, and the others fill the next pages from their starts.
/// If they fit into one page, they lie in one page. Heads lie close together.
#[inline]
pub(crate) fn place(at: usize, lead: usize, len: usize) -> usize {
    if len <= HEAD {
        at
    } else if len > PAGE_SIZE {
        (at + lead).next_multiple_of(PAGE_SIZE) - lead
    } else if at % PAGE_SIZE + len > PAGE_SIZE {
        at.next_multiple_of(PAGE_SIZE)
    } else {
        at
    }
}

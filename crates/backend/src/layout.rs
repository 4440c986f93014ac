//! How a worker's private memory is laid out, and how much a turn brings into it.

use grantway_ports::RECV_BUFFER;
use grantway_ring::PAGE_SIZE;

/// Bytes of a packet that are private before it is known where it goes: enough for
/// every header that is looked at.
pub(crate) const HEAD: usize = 128;

/// Slots of one ring, the most that a turn can look at.
pub(crate) const RING_SLOTS: usize = 256;
/// Packets that a queue may move each way in one turn, so that none waits long
/// for its worker.
pub(crate) const BURST: usize = 64;

/// Room for the private heads of a burst, before the rest of the arena.
pub(crate) const HEADS: usize = BURST * HEAD;

/// Bytes that a turn may bring in: heads, a ring's worth of whole pages, what
/// aligning them costs, and room to receive one more frame behind them.
pub(crate) const ARENA: usize =
    HEADS + RING_SLOTS * PAGE_SIZE + BURST * (64 + PAGE_SIZE) + RECV_BUFFER;

/// Pages of a worker's arena. On Xen the domain grants them to itself, as far as
/// gntalloc's limit goes; what is beyond is ordinary memory, which copies are slower to.
pub const ARENA_PAGES: u64 = ARENA.div_ceil(PAGE_SIZE) as u64;

/// Where in the arena, from `at` on, `len` bytes best begin of which the first
/// `lead` lie before the end of a page that the others fill from its start; all of
/// them in one page where they fit into one. Heads lie close together.
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

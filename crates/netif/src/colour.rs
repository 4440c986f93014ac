//! Cache colouring: the best offset for a short frame in its page.
//!
//! Buffers that begin at the same offset of their pages share a few sets of the first-level cache,
//! and evict each other. The sender of a frame chooses its offset freely, so both ends can spread
//! them.

use crate::PAGE_BYTES;

/// Cache lines of a page, and so the offsets that there are.
const LINES: usize = PAGE_BYTES / 64;

/// Returns the offset in its page for buffer `number` of a burst or pool. The offset is a multiple
/// of 64, and `len` bytes from there end within the page. Returns 0 if `len` bytes leave no choice.
#[must_use]
pub const fn colour(number: u32, len: usize) -> u16 {
    let Some(slack) = PAGE_BYTES.checked_sub(len) else { return 0 };
    // Whole lines that may be left free in front, and a share of them.
    let lines = slack / 64 + 1;
    // Below a page.
    ((number as usize % LINES) * lines / LINES * 64) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_line_of_the_page_and_leaves_room_for_all_bytes() {
        for len in 0..=PAGE_BYTES + 1 {
            for number in [0, 1, 7, 62, 63, 64, 1000, u32::MAX] {
                let offset = usize::from(colour(number, len));
                assert!(offset == 0 || (offset % 64 == 0 && offset + len <= PAGE_BYTES));
            }
        }
    }

    #[test]
    fn short_frames_begin_at_every_line() {
        let all: [u16; LINES] = core::array::from_fn(|n| colour(n as u32, 64));
        assert!(all.iter().enumerate().all(|(n, &offset)| usize::from(offset) == n * 64));
    }
}

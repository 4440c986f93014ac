//! Functions that the compiler calls for copies and comparisons. Memory is moved by instructions
//! that it does not turn into calls to the functions themselves. `tests/no_std` has this file, too.
//!
//! Up to 32 bytes go by two or four moves that overlap, more by string instructions of 8 bytes. A
//! processor with fast strings is as quick by either width, and an emulator counts each repetition.

use core::arch::asm;

/// Longest ranges that are moved by words of 8 bytes which overlap: two of them, and four.
const TWO: usize = 16;
const FOUR: usize = 32;

// SAFETY: the C library's contract, and the only function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller promises both ranges, and each access lies in them: those from the ends
    // are used where they have the bytes. The direction flag is clear in every Rust function.
    unsafe {
        if len > FOUR {
            // The end first: it overlaps what the instruction moves.
            asm!("mov {end}, [{from} + {len} - 8]",
                "mov [{to} + {len} - 8], {end}",
                end = out(reg) _, from = in(reg) from, to = in(reg) to, len = in(reg) len,
                options(nostack, preserves_flags));
            asm!("rep movsq", inout("rcx") len / 8 => _, inout("rdi") to => _,
                inout("rsi") from => _, options(nostack, preserves_flags));
        } else {
            short(to, from, len);
        }
    }
    to
}

/// Moves up to 32 bytes: all are read before any is written, so the ranges may overlap.
///
/// # Safety
///
/// `from` is readable and `to` writable for `len` bytes, which are at most 32.
#[inline]
unsafe fn short(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's promise; accesses from either end lie within the range.
    unsafe {
        if len > TWO {
            asm!("mov {a}, [{from}]", "mov {b}, [{from} + 8]",
                "mov {c}, [{from} + {len} - 16]", "mov {d}, [{from} + {len} - 8]",
                "mov [{to}], {a}", "mov [{to} + 8], {b}",
                "mov [{to} + {len} - 16], {c}", "mov [{to} + {len} - 8], {d}",
                a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
                from = in(reg) from, to = in(reg) to, len = in(reg) len,
                options(nostack, preserves_flags));
        } else if len >= 8 {
            asm!("mov {a}, [{from}]", "mov {b}, [{from} + {len} - 8]",
                "mov [{to}], {a}", "mov [{to} + {len} - 8], {b}",
                a = out(reg) _, b = out(reg) _,
                from = in(reg) from, to = in(reg) to, len = in(reg) len,
                options(nostack, preserves_flags));
        } else if len >= 4 {
            asm!("mov {a:e}, [{from}]", "mov {b:e}, [{from} + {len} - 4]",
                "mov [{to}], {a:e}", "mov [{to} + {len} - 4], {b:e}",
                a = out(reg) _, b = out(reg) _,
                from = in(reg) from, to = in(reg) to, len = in(reg) len,
                options(nostack, preserves_flags));
        } else if len > 0 {
            // The first, the middle one and the last, of which some may be the same.
            asm!("movzx {a:e}, byte ptr [{from}]", "movzx {b:e}, byte ptr [{from} + {half}]",
                "movzx {c:e}, byte ptr [{from} + {len} - 1]",
                "mov [{to}], {a:l}", "mov [{to} + {half}], {b:l}", "mov [{to} + {len} - 1], {c:l}",
                a = out(reg) _, b = out(reg) _, c = out(reg) _, half = in(reg) len / 2,
                from = in(reg) from, to = in(reg) to, len = in(reg) len,
                options(nostack, preserves_flags));
        }
    }
}

// SAFETY: as above.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller promises both ranges. No byte is written before it is read: short ranges
    // are read whole, a range that moves down goes by the first byte first, and one that moves up
    // by the last: words from the end, and then the bytes that are left in front. The direction
    // flag is cleared again.
    unsafe {
        if len <= FOUR {
            short(to, from, len);
        } else if (to as usize).wrapping_sub(from as usize) >= len {
            asm!("rep movsq", "mov ecx, {rest:e}", "rep movsb",
                rest = in(reg) len % 8, inout("rcx") len / 8 => _, inout("rdi") to => _,
                inout("rsi") from => _, options(nostack, preserves_flags));
        } else {
            asm!("std", "rep movsq", "add rsi, 7", "add rdi, 7", "mov ecx, {rest:e}", "rep movsb",
                "cld",
                rest = in(reg) len % 8, inout("rcx") len / 8 => _,
                inout("rdi") to.wrapping_add(len).wrapping_sub(8) => _,
                inout("rsi") from.wrapping_add(len).wrapping_sub(8) => _,
                options(nostack));
        }
    }
    to
}

// SAFETY: as above.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
    let word = u64::from(byte as u8) * 0x0101_0101_0101_0101;
    // SAFETY: the caller promises the range, and the last word of it lies in it, if it has one.
    unsafe {
        if len >= 8 {
            asm!("mov [{to} + {len} - 8], {word}", to = in(reg) to, len = in(reg) len,
                word = in(reg) word, options(nostack, preserves_flags));
            asm!("rep stosq", inout("rcx") len / 8 => _, inout("rdi") to => _, in("rax") word,
                options(nostack, preserves_flags));
        } else {
            asm!("rep stosb", inout("rcx") len => _, inout("rdi") to => _, in("rax") word,
                options(nostack, preserves_flags));
        }
    }
    to
}

// SAFETY: as above.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn memcmp(one: *const u8, two: *const u8, len: usize) -> i32 {
    for at in 0..len {
        // SAFETY: the caller promises both ranges.
        let (a, b) = unsafe { (one.add(at).read(), two.add(at).read()) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

// SAFETY: as above.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn bcmp(one: *const u8, two: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's promise is the same.
    unsafe { memcmp(one, two, len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that differ from those near them.
    fn pattern() -> [u8; 256] {
        core::array::from_fn(|at| (at * 37 % 251) as u8 + 1)
    }

    #[test]
    fn each_length_and_place_is_copied_and_nothing_beside_it() {
        let from = pattern();
        for len in 0..=100 {
            for (at, into) in [(0, 0), (1, 0), (0, 3), (7, 5), (8, 16)] {
                let mut to = [0; 256];
                // SAFETY: both ranges lie in the arrays.
                let back = unsafe { memcpy(to.as_mut_ptr().add(into), from[at..].as_ptr(), len) };
                assert_eq!(back, to[into..].as_mut_ptr());
                assert_eq!(to[into..into + len], from[at..at + len], "{len} bytes");
                assert!(to[..into].iter().chain(&to[into + len..]).all(|byte| *byte == 0), "{len}");
            }
        }
    }

    #[test]
    fn ranges_that_overlap_are_moved_in_either_direction() {
        for len in 0..=100 {
            for (at, into) in (0..20).flat_map(|at| (0..20).map(move |into| (at, into))) {
                let mut bytes = pattern();
                let mut expected = pattern();
                expected.copy_within(at..at + len, into);
                let start = bytes.as_mut_ptr();
                // SAFETY: both ranges lie in the array.
                unsafe { memmove(start.add(into), start.add(at), len) };
                assert_eq!(bytes, expected, "{len} bytes from {at} to {into}");
            }
        }
    }

    #[test]
    fn each_length_is_set_and_nothing_beside_it() {
        for len in 0..=100 {
            let mut bytes = [0; 128];
            // SAFETY: the range lies in the array. The value is that of a byte, whatever else is in it.
            unsafe { memset(bytes.as_mut_ptr().add(3), 0x1234_56a5, len) };
            assert!(bytes[3..3 + len].iter().all(|byte| *byte == 0xa5), "{len} bytes");
            assert!(bytes[..3].iter().chain(&bytes[3 + len..]).all(|byte| *byte == 0), "{len}");
        }
    }

    #[test]
    fn the_first_byte_that_differs_decides() {
        let (one, mut two) = (pattern(), pattern());
        for at in 0..64 {
            two[at] += 1;
            // SAFETY: both ranges lie in the arrays.
            let compared = |len| unsafe { memcmp(one.as_ptr(), two.as_ptr(), len) };
            assert_eq!(compared(at), 0);
            assert!(compared(at + 1) < 0 && compared(256) < 0);
            // SAFETY: both ranges lie in the arrays.
            assert!(unsafe { memcmp(two.as_ptr(), one.as_ptr(), 256) } > 0);
            // SAFETY: both ranges lie in the arrays.
            assert_ne!(unsafe { bcmp(one.as_ptr(), two.as_ptr(), at + 1) }, 0);
            two[at] -= 1;
        }
    }
}

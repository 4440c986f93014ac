//! Functions that the compiler calls for copies and comparisons. They are one instruction each, or
//! loops that it does not turn into calls to themselves. `tests/no_std` has this file, too.

use core::arch::asm;

// SAFETY: the C library's contract, and the only function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller promises both ranges; the direction flag is clear
    // in every Rust function.
    unsafe {
        asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
    to
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= len {
        // SAFETY: no byte is written before it is read.
        return unsafe { memcpy(to, from, len) };
    }
    // SAFETY: as for memcpy, from the last byte down; the flag is cleared
    // again.
    unsafe {
        asm!("std", "rep movsb", "cld",
            inout("rcx") len => _,
            inout("rdi") to.wrapping_add(len).wrapping_sub(1) => _,
            inout("rsi") from.wrapping_add(len).wrapping_sub(1) => _,
            options(nostack));
    }
    to
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
    // SAFETY: the caller promises the range.
    unsafe {
        asm!("rep stosb", inout("rcx") len => _, inout("rdi") to => _, in("al") byte as u8,
            options(nostack, preserves_flags));
    }
    to
}

// SAFETY: as above.
#[unsafe(no_mangle)]
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
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, two: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's promise is the same.
    unsafe { memcmp(one, two, len) }
}

//! The one copy by which bytes enter and leave shared memory.
//!
//! # What a copy promises
//!
//! The destination gets, byte by byte, values that the source held at some
//! moment during the call. The source is not looked at again after it returns,
//! whatever the optimiser does with the code around: on x86-64 every access is
//! in an `asm!` block, elsewhere every access is volatile, and neither may be
//! repeated, dropped or moved. So what is judged afterwards is the private
//! side, and cannot change under the judge (XSA-155).
//!
//! # Sizes
//!
//! A string copy takes some tens of cycles to start, which a 64-byte packet
//! cannot pay. Up to 128 bytes are copied by a few loads of the widest kind
//! and as many stores, where the last load may overlap the one before; up to
//! [`LONG`] by a loop of 64-byte blocks; only beyond that by `rep movsq`, which is as
//! quick as one of bytes, and quicker where the processor has no fast one of those.

/// From how many bytes on a string copy wins over a loop.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LONG: usize = 1024;

/// Copies `len` bytes where a peer may write either side meanwhile.
///
/// # Safety
///
/// `src` is valid for reads and `dst` for writes of `len` bytes. They may
/// overlap; what the overlap then holds is unspecified.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller promised `len` bytes on both sides,
    // and each branch stays within as many.
    unsafe {
        // Most frames of small packets, in one comparison.
        if len.wrapping_sub(33) < 32 {
            if widest::is_known() { widest::upto_64(src, dst, len) } else { upto_64(src, dst, len) }
        } else if len > 64 {
            long(src, dst, len);
        } else if len > 16 {
            wide::upto_32(src, dst, len);
        } else if len >= 8 {
            wide::words(src, dst, len);
        } else {
            short(src, dst, len);
        }
    }
}

/// 33 to 64 bytes, where the widest registers are missing, or not yet known of: out of
/// the way of who has them.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[cold]
#[inline(never)]
unsafe fn upto_64(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller promised `len` bytes, 33 to 64.
    unsafe {
        if widest::is_there() {
            widest::upto_64(src, dst, len)
        } else {
            wide::upto_64(src, dst, len)
        }
    }
}

/// Fewer than 8 bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn short(src: *const u8, dst: *mut u8, len: usize) {
    if len >= 4 {
        // SAFETY: two words of 4 bytes, at the start and up to the end.
        unsafe {
            core::arch::asm!(
                "mov {a:e}, dword ptr [{src}]",
                "mov {b:e}, dword ptr [{src} + {len} - 4]",
                "mov dword ptr [{dst}], {a:e}",
                "mov dword ptr [{dst} + {len} - 4], {b:e}",
                src = in(reg) src, dst = in(reg) dst, len = in(reg) len,
                a = out(reg) _, b = out(reg) _,
                options(nostack, preserves_flags)
            );
        }
    } else {
        for at in 0..len {
            // SAFETY: `at` is below `len`; single bytes are always aligned.
            unsafe { dst.add(at).write_volatile(src.add(at).read_volatile()) };
        }
    }
}

/// More than 64 bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(never)]
unsafe fn long(src: *const u8, dst: *mut u8, len: usize) {
    let there = widest::is_there();
    // SAFETY: the caller promised `len` bytes, more than 64.
    unsafe {
        if len >= LONG && !widest::beat_strings() {
            string(src, dst, len);
        } else if there {
            blocks(src, dst, len, |src, dst, len| widest::upto_64(src, dst, len));
        } else {
            blocks(src, dst, len, |src, dst, len| wide::upto_64(src, dst, len));
        }
    }
}

/// 8 bytes and more.
///
/// # Safety
///
/// As [`copy`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn string(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller promised `len` bytes, of which the words are no more and the
    // last word begins no earlier than the first; the ABI keeps the direction flag clear.
    unsafe {
        core::arch::asm!(
            "rep movsq",
            inout("rcx") len / 8 => _,
            inout("rsi") src => _,
            inout("rdi") dst => _,
            options(nostack, preserves_flags)
        );
        wide::words(src.add(len - 8), dst.add(len - 8), 8);
    }
}

/// More than 64 bytes, by `block`, which copies 64.
///
/// # Safety
///
/// As [`copy`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn blocks(
    src: *const u8,
    dst: *mut u8,
    len: usize,
    block: impl Fn(*const u8, *mut u8, usize),
) {
    let mut at = 0;
    while at + 64 < len {
        // SAFETY: 64 bytes at `at` end before `len`.
        unsafe { block(src.add(at), dst.add(at), 64) };
        at += 64;
    }
    // SAFETY: `len` is above 64, so the last 64 bytes exist.
    unsafe { block(src.add(len - 64), dst.add(len - 64), 64) };
}

/// Blocks by 32-byte registers, where processor and kernel have them. It is not the
/// instructions that this saves: a store to a line that the peer has waits for it in
/// the store buffer, of some 64 entries. Two entries to 64 bytes in place of four
/// let twice as many lines be under way.
#[cfg(all(target_arch = "x86_64", not(miri), target_feature = "sse2"))]
mod widest {
    use core::arch::asm;
    use core::arch::x86_64::__cpuid;
    use core::sync::atomic::{AtomicU8, Ordering};

    const UNKNOWN: u8 = 0;
    const MISSING: u8 = 1;
    const THERE: u8 = 2;
    /// And a loop of them beats a string copy of any length.
    const BEST: u8 = 3;
    static FOUND: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Returns true if such registers are known to be there: one comparison.
    #[inline(always)]
    pub(super) fn is_known() -> bool {
        FOUND.load(Ordering::Relaxed) >= THERE
    }

    /// Returns true if such registers are there.
    #[inline]
    pub(super) fn is_there() -> bool {
        match FOUND.load(Ordering::Relaxed) {
            UNKNOWN => look() >= THERE,
            found => found >= THERE,
        }
    }

    /// Returns true if such registers are known to be there, and faster than string copies.
    #[inline]
    pub(super) fn beat_strings() -> bool {
        FOUND.load(Ordering::Relaxed) == BEST
    }

    #[cold]
    fn look() -> u8 {
        // CPUID leaf 0, EBX: how the vendor's name begins; leaf 1, ECX: 27 the kernel
        // saves extended state, 28 AVX. XCR0: 1 and 2, that it saves these registers.
        const OSXSAVE_AVX: u32 = 1 << 27 | 1 << 28;
        let mut there = __cpuid(1).ecx & OSXSAVE_AVX == OSXSAVE_AVX;
        if there {
            let low: u32;
            // SAFETY: OSXSAVE says that XGETBV may be used.
            unsafe {
                asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack));
            }
            there = low & 0b110 == 0b110;
        }
        let intel = __cpuid(0).ebx == u32::from_le_bytes(*b"Genu");
        let found = match there {
            true if intel => BEST,
            true => THERE,
            false => MISSING,
        };
        FOUND.store(found, Ordering::Relaxed);
        found
    }

    /// Code without AVX expects the upper halves of these registers to be zero. Code with
    /// AVX may hold values there, in any of them, and needs no such care.
    #[cfg(not(target_feature = "avx"))]
    macro_rules! zero_upper_halves {
        () => {
            "vzeroupper"
        };
    }
    #[cfg(target_feature = "avx")]
    macro_rules! zero_upper_halves {
        () => {
            ""
        };
    }

    /// 32 to 64 bytes.
    ///
    /// # Safety
    ///
    /// As [`super::copy`], and [`is_there`] said so.
    #[inline(always)]
    pub(super) unsafe fn upto_64(src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: a register of 32 bytes from the start, one up to the end. No register but
        // these two changes: `vzeroupper` is there only where no code has upper halves.
        unsafe {
            asm!(
                "vmovups {a:y}, ymmword ptr [{src}]",
                "vmovups {b:y}, ymmword ptr [{src} + {len} - 32]",
                "vmovups ymmword ptr [{dst}], {a:y}",
                "vmovups ymmword ptr [{dst} + {len} - 32], {b:y}",
                zero_upper_halves!(),
                src = in(reg) src, dst = in(reg) dst, len = in(reg) len,
                a = out(xmm_reg) _, b = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Kernels that keep their hands off the vector registers have none of these.
#[cfg(all(target_arch = "x86_64", not(miri), not(target_feature = "sse2")))]
mod widest {
    #[inline(always)]
    pub(super) fn is_known() -> bool {
        false
    }

    #[inline(always)]
    pub(super) fn is_there() -> bool {
        false
    }

    #[inline(always)]
    pub(super) fn beat_strings() -> bool {
        false
    }

    pub(super) use super::wide::upto_64;
}

/// Blocks by 16-byte registers.
#[cfg(all(target_arch = "x86_64", not(miri), target_feature = "sse2"))]
mod wide {
    use core::arch::asm;

    /// 8 to 16 bytes.
    #[inline]
    pub(super) unsafe fn words(src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: two words of 8 bytes, at the start and up to the end.
        unsafe {
            asm!(
                "mov {a}, qword ptr [{src}]",
                "mov {b}, qword ptr [{src} + {len} - 8]",
                "mov qword ptr [{dst}], {a}",
                "mov qword ptr [{dst} + {len} - 8], {b}",
                src = in(reg) src, dst = in(reg) dst, len = in(reg) len,
                a = out(reg) _, b = out(reg) _,
                options(nostack, preserves_flags)
            );
        }
    }

    /// 16 to 32 bytes.
    #[inline]
    pub(super) unsafe fn upto_32(src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: two words of 16 bytes, at the start and up to the end.
        unsafe {
            asm!(
                "movups {a}, xmmword ptr [{src}]",
                "movups {b}, xmmword ptr [{src} + {len} - 16]",
                "movups xmmword ptr [{dst}], {a}",
                "movups xmmword ptr [{dst} + {len} - 16], {b}",
                src = in(reg) src, dst = in(reg) dst, len = in(reg) len,
                a = out(xmm_reg) _, b = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        }
    }

    /// 32 to 64 bytes.
    #[inline]
    pub(super) unsafe fn upto_64(src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: two words of 16 bytes from the start, two up to the end.
        unsafe {
            asm!(
                "movups {a}, xmmword ptr [{src}]",
                "movups {b}, xmmword ptr [{src} + 16]",
                "movups {c}, xmmword ptr [{src} + {len} - 32]",
                "movups {d}, xmmword ptr [{src} + {len} - 16]",
                "movups xmmword ptr [{dst}], {a}",
                "movups xmmword ptr [{dst} + 16], {b}",
                "movups xmmword ptr [{dst} + {len} - 32], {c}",
                "movups xmmword ptr [{dst} + {len} - 16], {d}",
                src = in(reg) src, dst = in(reg) dst, len = in(reg) len,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Blocks by 8-byte registers, for kernels that keep their hands off the
/// vector registers.
#[cfg(all(target_arch = "x86_64", not(miri), not(target_feature = "sse2")))]
mod wide {
    use core::arch::asm;

    /// 8 to 16 bytes.
    #[inline]
    pub(super) unsafe fn words(src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: two words of 8 bytes, at the start and up to the end.
        unsafe {
            asm!(
                "mov {a}, qword ptr [{src}]",
                "mov {b}, qword ptr [{src} + {len} - 8]",
                "mov qword ptr [{dst}], {a}",
                "mov qword ptr [{dst} + {len} - 8], {b}",
                src = in(reg) src, dst = in(reg) dst, len = in(reg) len,
                a = out(reg) _, b = out(reg) _,
                options(nostack, preserves_flags)
            );
        }
    }

    /// 16 to 32 bytes.
    #[inline]
    pub(super) unsafe fn upto_32(src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: 16 bytes from the start, 16 up to the end.
        unsafe {
            words(src, dst, 16);
            words(src.add(len - 16), dst.add(len - 16), 16);
        }
    }

    /// 32 to 64 bytes.
    #[inline]
    pub(super) unsafe fn upto_64(src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: 32 bytes from the start, 32 up to the end.
        unsafe {
            upto_32(src, dst, 32);
            upto_32(src.add(len - 32), dst.add(len - 32), 32);
        }
    }
}

/// Copies `len` bytes where a peer may write either side meanwhile.
///
/// # Safety
///
/// `src` is valid for reads and `dst` for writes of `len` bytes. They may
/// overlap; what the overlap then holds is unspecified.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
pub(crate) unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    use core::sync::atomic::{Ordering, compiler_fence};
    const WORD: usize = size_of::<usize>();
    compiler_fence(Ordering::SeqCst);
    let mut at = 0;
    // Words only where both sides reach alignment together.
    if (src.addr() ^ dst.addr()) & (WORD - 1) == 0 {
        while at < len && (src.addr() + at) & (WORD - 1) != 0 {
            // SAFETY: `at` is below `len`.
            unsafe { dst.add(at).write_volatile(src.add(at).read_volatile()) };
            at += 1;
        }
        while at + WORD <= len {
            // SAFETY: a word at `at` ends by `len`, and both sides are aligned.
            unsafe {
                let word = src.add(at).cast::<usize>().read_volatile();
                dst.add(at).cast::<usize>().write_volatile(word);
            }
            at += WORD;
        }
    }
    while at < len {
        // SAFETY: `at` is below `len`.
        unsafe { dst.add(at).write_volatile(src.add(at).read_volatile()) };
        at += 1;
    }
    compiler_fence(Ordering::SeqCst);
}

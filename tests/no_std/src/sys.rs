//! Basis of a unikernel: a start, an end, a console, and an allocator over an arena.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("the start and the two system calls are written for Linux on x86-64");

// The kernel enters with the stack aligned to 16 bytes and no return address on
// it; the call makes it what the ABI promises a function.
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "call {start}",
    "ud2",
    start = sym crate::start,
);

/// Ends the program.
pub fn exit(status: i32) -> ! {
    // SAFETY: exit_group takes a number and does not return.
    unsafe {
        core::arch::asm!("syscall", in("rax") 231, in("rdi") status, options(noreturn));
    }
}

/// Standard output.
pub struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: write reads `text.len()` bytes at `text`, and clobbers what is
        // named. A short write loses words, and nothing else.
        unsafe {
            core::arch::asm!(
                "syscall",
                inlateout("rax") 1_isize => _,
                in("rdi") 1, in("rsi") text.as_ptr(), in("rdx") text.len(),
                lateout("rcx") _, lateout("r11") _,
                options(nostack, readonly),
            );
        }
        Ok(())
    }
}

const ARENA: usize = 64 << 20;

/// Memory that is given out once and never taken back.
#[repr(align(4096))]
struct Arena {
    bytes: UnsafeCell<[u8; ARENA]>,
    used: AtomicUsize,
}

// SAFETY: `used` gives each byte to one caller only.
unsafe impl Sync for Arena {}

#[global_allocator]
static HEAP: Arena = Arena { bytes: UnsafeCell::new([0; ARENA]), used: AtomicUsize::new(0) };

// SAFETY: each block is inside the arena, aligned as asked (the arena itself is
// aligned to a page, and nothing here asks for more), and given out once.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let place = |used: usize| {
            let at = used.checked_next_multiple_of(layout.align())?;
            let end = at.checked_add(layout.size())?;
            (end <= ARENA && layout.align() <= 4096).then_some((at, end))
        };
        let used = self.used.fetch_update(Relaxed, Relaxed, |used| Some(place(used)?.1));
        let Some((at, _)) = used.ok().and_then(place) else { return null_mut() };
        // SAFETY: `place` keeps the offset within the arena.
        unsafe { self.bytes.get().cast::<u8>().add(at) }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[panic_handler]
fn panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    use fmt::Write;
    let _ = writeln!(Console, "no_std: {info}");
    exit(101)
}

/// Named by the precompiled `alloc`, and never called: a panic aborts.
// SAFETY: the only function of this name, as nothing brings an unwinder.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Named by the precompiled `alloc`, and never called: a panic aborts.
// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    exit(102)
}

#[path = "../../../crates/bare/src/sys/mem.rs"]
mod mem;

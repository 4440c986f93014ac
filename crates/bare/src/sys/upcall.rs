//! Upcalls: the interrupt by which Xen says that an event is pending.
//!
//! The handler runs on a stack of its own and uses one register, which it keeps: the code that it
//! interrupts has values below its stack pointer (the red zone) and in SSE registers, as the
//! precompiled core library does. It clears `evtchn_upcall_pending`, and nothing else: events stay
//! where Xen put them until the program looks there.
//!
//! Interrupts are on only while the program waits ([`wait`]) or asks for it ([`during`]).

/// Vector of the interrupt: the first behind those of exceptions.
pub const VECTOR: usize = 32;

#[cfg(not(test))]
mod handler {
    use super::super::memory::SHARED_INFO;
    use core::sync::atomic::AtomicU64;

    core::arch::global_asm!(
        ".pushsection .text.grantway_upcall, \"ax\"",
        ".balign 16",
        "grantway_upcall:",
        "push rax",
        "inc qword ptr [rip + {upcalls}]",
        // evtchn_upcall_pending of processor 0 is the first byte of the page. An `iretq` is
        // serialising: events are looked at after this.
        "mov eax, {page}",
        "mov byte ptr [rax], 0",
        "pop rax",
        "iretq",
        ".popsection",
        upcalls = sym UPCALLS,
        page = const SHARED_INFO,
    );

    unsafe extern "C" {
        /// The handler.
        static grantway_upcall: u8;
    }

    /// Upcalls since the entry.
    pub static UPCALLS: AtomicU64 = AtomicU64::new(0);

    /// Returns the address of the handler.
    pub fn address() -> usize {
        core::ptr::addr_of!(grantway_upcall) as usize
    }
}

#[cfg(not(test))]
pub(super) use handler::address;

/// Returns the number of upcalls that Xen has made since the entry.
#[cfg(not(test))]
#[must_use]
pub fn count() -> u64 {
    handler::UPCALLS.load(core::sync::atomic::Ordering::Relaxed)
}

/// Gives the processor away until an upcall came, or comes at once if one is due.
///
/// No upcall is lost in between: `sti` turns interrupts on behind the instruction that follows it,
/// and Xen takes `hlt` for SCHEDOP_block, after that. A hypercall SCHEDOP_block in its place would
/// not do: a guest of the type pvh does not block if an upcall is due *and* interrupts are on, so
/// they would have to be on before it, and an upcall in between would be missed.
#[cfg(not(test))]
pub fn wait() {
    // SAFETY: the handler is set up before the program runs, and keeps all registers and the
    // stack. It writes to memory, which the statement may do.
    unsafe { core::arch::asm!("sti", "hlt", "cli", options(nostack)) };
}

/// Does work with upcalls on. Returns its result.
#[cfg(not(test))]
pub fn during<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: as for `wait`; the handler touches nothing that the work uses.
    unsafe { core::arch::asm!("sti", options(nostack)) };
    let result = work();
    // SAFETY: changes the flag only.
    unsafe { core::arch::asm!("cli", options(nostack)) };
    result
}

/// Gives the processor to the Xen of tests.
#[cfg(test)]
pub fn wait() {
    super::hypercall::fake::halt();
}

/// Returns the number of upcalls that the Xen of tests has made: none.
#[cfg(test)]
#[must_use]
pub fn count() -> u64 {
    0
}

/// Does work, in tests.
#[cfg(test)]
pub fn during<T>(work: impl FnOnce() -> T) -> T {
    work()
}

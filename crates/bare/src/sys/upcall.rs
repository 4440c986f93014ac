//! Upcalls: the interrupt by which Xen says that an event is pending.
//!
//! The handler runs on a stack of its own and uses one register, which it keeps: the code that it
//! interrupts has values below its stack pointer (the red zone) and in SSE registers, as the
//! precompiled core library does. It clears `evtchn_upcall_pending`, and nothing else: events stay
//! where Xen put them until the program looks there.
//!
//! Interrupts are on only while the program waits ([`wait`]) or asks for it ([`during`]).
//!
//! `sti` turns interrupts on behind the instruction that follows it, so that no upcall comes
//! between it and `hlt`. That is so of a processor, and not of everything that a guest runs on:
//! where a hypervisor takes the processor away between the two, it has to give that state back with
//! it. QEMU's emulation of AMD's virtual machines does not: its `vmrun` leaves `int_state` unread.
//! So a handler that comes there goes on behind the `hlt`: the wait is over.

/// Vector of the interrupt: the first behind those of exceptions.
pub const VECTOR: usize = 32;

#[cfg(not(test))]
mod handler {
    use super::super::memory::SHARED_INFO;
    use core::sync::atomic::AtomicU64;

    core::arch::global_asm!(
        ".pushsection .text.grantway_upcall, \"ax\"",
        // A build with several codegen units has this in another object than its users.
        ".globl grantway_upcall, grantway_wait, grantway_cut_short",
        ".balign 16",
        "grantway_upcall:",
        "push rax",
        "inc qword ptr [rip + {upcalls}]",
        // evtchn_upcall_pending of processor 0 is the first byte of the page. An `iretq` is
        // serialising: events are looked at after this.
        "mov eax, {page}",
        "mov byte ptr [rax], 0",
        // The place to return to is the first word of the frame. A `hlt` is one byte.
        "lea rax, [rip + grantway_halt]",
        "cmp rax, [rsp + 8]",
        "jne 2f",
        "inc qword ptr [rsp + 8]",
        "2: pop rax",
        "iretq",
        ".balign 16",
        "grantway_wait:",
        "sti",
        "grantway_halt:",
        "hlt",
        "cli",
        "ret",
        // The frame of an interrupt between the two, on the stack that it interrupted.
        ".balign 16",
        "grantway_cut_short:",
        "mov rax, rsp",
        "mov ecx, ss",
        "push rcx",
        "push rax",
        "pushfq",
        "mov ecx, cs",
        "push rcx",
        "lea rcx, [rip + grantway_halt]",
        "push rcx",
        "jmp grantway_upcall",
        ".popsection",
        upcalls = sym UPCALLS,
        page = const SHARED_INFO,
    );

    unsafe extern "C" {
        /// The handler.
        static grantway_upcall: u8;
        /// The wait, with the only `hlt` that has interrupts on.
        pub fn grantway_wait();
        /// A wait with an upcall before the `hlt`.
        pub fn grantway_cut_short();
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
/// No upcall is lost in between: the handler goes on behind the `hlt` that it comes before. Xen
/// takes `hlt` for SCHEDOP_block. A hypercall SCHEDOP_block in its place would
/// not do: a guest of the type pvh does not block if an upcall is due *and* interrupts are on, so
/// they would have to be on before it, and an upcall in between would be missed.
#[cfg(not(test))]
pub fn wait() {
    // SAFETY: the handler is set up before the program runs, and keeps all registers and the
    // stack. The function changes nothing else.
    unsafe { handler::grantway_wait() };
}

/// Waits, with an upcall between `sti` and `hlt`. A guest that halted then would not come back, as
/// its interrupts are off. For checks: no machine can be asked to do this.
#[cfg(not(test))]
pub fn cut_short() {
    // SAFETY: as for `wait`; the frame lies below the stack pointer of a call.
    unsafe { handler::grantway_cut_short() };
}

/// Does nothing, in tests.
#[cfg(test)]
pub fn cut_short() {}

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

/// Signals a port of this guest's own in the middle of the caller, with upcalls on. Xen makes the
/// upcall behind the instruction of the hypercall. No function is called, so the caller's values stay
/// where they are, below its stack pointer too.
#[cfg(not(test))]
#[inline(always)]
pub fn signal_here(port: &u32) {
    let by_amd = u32::from(super::hypercall::is_vmmcall());
    // SAFETY: EVTCHNOP_send is 4, of evtchn_send, a word, which Xen only reads. Xen keeps all
    // registers but those named, and the handler keeps all.
    unsafe {
        core::arch::asm!("test {amd:e}, {amd:e}", "jnz 2f", "vmcall", "jmp 3f", "2: vmmcall", "3:",
            amd = in(reg) by_amd,
            inlateout("rax") super::hypercall::EVENT_CHANNEL_OP => _,
            inlateout("rdi") 4_u64 => _, inlateout("rsi") core::ptr::from_ref(port) as u64 => _,
            out("rdx") _, out("r10") _, out("r8") _, out("rcx") _, out("r11") _,
            options(nostack));
    }
}

/// Signals a port of the Xen of tests.
#[cfg(test)]
pub fn signal_here(port: &u32) {
    super::hypercall::events::send(grantway_hypervisor::Port(*port));
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

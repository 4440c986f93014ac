//! Interrupts of the processor: each exception ends the guest, with a word on its console, and the
//! one interrupt is Xen's upcall.

use super::hypercall::run::{Shutdown, shutdown};
use super::{task, upcall};
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Exceptions that there are.
const EXCEPTIONS: usize = 32;
/// Gates of the table.
const GATES: usize = upcall::VECTOR + 1;
/// Bytes of each stub.
const STUB: usize = 16;
/// Exceptions for which the processor has an error code on the stack.
const WITH_CODE: u32 = 1 << 8 | 0x1f << 10 | 1 << 17 | 1 << 21 | 1 << 29 | 1 << 30;
/// Selector of the code, and kind of a gate by which no further interrupt is taken.
const CODE: u16 = 0x08;
const GATE: u16 = 0x8e00;

global_asm!(
    ".pushsection .text.grantway_exceptions, \"ax\"",
    // As in `upcall`.
    ".globl grantway_exceptions",
    ".balign 16",
    "grantway_exceptions:",
    ".set grantway_vector, 0",
    ".rept {vectors}",
    ".balign {stub}",
    "push grantway_vector",
    "jmp 2f",
    ".set grantway_vector, grantway_vector + 1",
    ".endr",
    "2:",
    "mov rdi, rsp",
    "and rsp, -16",
    "cld",
    "call {end}",
    "ud2",
    ".popsection",
    vectors = const EXCEPTIONS,
    stub = const STUB,
    end = sym end,
);

unsafe extern "C" {
    /// The stubs.
    static grantway_exceptions: u8;
}

/// A gate of the table.
#[repr(C)]
#[derive(Clone, Copy)]
struct Gate {
    low: u16,
    selector: u16,
    kind: u16,
    middle: u16,
    high: u32,
    reserved: u32,
}

impl Gate {
    /// Returns a gate to the code at an address, on the stack of this number ([`task`]).
    const fn new(address: usize, stack: u16) -> Self {
        Self {
            low: address as u16,
            selector: CODE,
            kind: GATE | stack,
            middle: (address >> 16) as u16,
            high: (address >> 32) as u32,
            reserved: 0,
        }
    }
}

static mut TABLE: [Gate; GATES] = [Gate::new(0, 0); GATES];

/// Operand of `lidt`: the table's place and size.
#[repr(C, packed)]
struct Register {
    limit: u16,
    table: u64,
}

/// Sets the table up.
pub(super) fn begin() {
    let stubs = core::ptr::addr_of!(grantway_exceptions) as usize;
    let exceptions = (0..EXCEPTIONS).map(|at| Gate::new(stubs + at * STUB, task::EXCEPTIONS));
    let upcall = Gate::new(upcall::address(), task::UPCALLS);
    let table = core::ptr::addr_of_mut!(TABLE);
    for (at, gate) in exceptions.chain([upcall]).enumerate() {
        // SAFETY: the guest has one processor, which does not know the table yet, and nothing has a
        // reference to it.
        unsafe { (*table)[at] = gate };
    }
    let register = Register { limit: (size_of::<[Gate; GATES]>() - 1) as u16, table: table as u64 };
    // SAFETY: the table is there for good, and each of its gates leads to a stub or to the upcall.
    unsafe { asm!("lidt [{}]", in(reg) &raw const register, options(readonly, nostack)) };
}

/// True once an exception ends the guest: one that comes then is not reported.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Ends the guest. `stack` has the number of the exception, and then what the processor put there.
extern "C" fn end(stack: *const u64) -> ! {
    if ENDING.swap(true, SeqCst) {
        shutdown(Shutdown::Crash);
    }
    // SAFETY: a stub calls this with its stack, which has at least five words.
    let [vector, first, second] = unsafe { [0, 1, 2].map(|at| stack.add(at).read()) };
    let (code, place) = match WITH_CODE >> (vector & 31) & 1 {
        0 => (0, first),
        _ => (first, second),
    };
    let address: u64;
    // SAFETY: reads the address of the last page fault.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack)) };
    crate::println!("exception {vector} at {place:#x}, error code {code:#x}, address {address:#x}");
    shutdown(Shutdown::Crash)
}

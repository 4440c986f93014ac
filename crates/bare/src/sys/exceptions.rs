//! Exceptions of the processor: each ends the guest, with a word on its console.

use super::hypercall::{Shutdown, shutdown};
use core::arch::{asm, global_asm};

/// Exceptions that there are.
const VECTORS: usize = 32;
/// Bytes of each stub.
const STUB: usize = 16;
/// Exceptions for which the processor has an error code on the stack.
const WITH_CODE: u32 = 1 << 8 | 0x1f << 10 | 1 << 17 | 1 << 21 | 1 << 29 | 1 << 30;
/// Selector of the code, and kind of a gate by which no further interrupt is taken.
const CODE: u16 = 0x08;
const GATE: u16 = 0x8e00;

global_asm!(
    ".pushsection .text.grantway_exceptions, \"ax\"",
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
    vectors = const VECTORS,
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

static mut TABLE: [Gate; VECTORS] =
    [Gate { low: 0, selector: 0, kind: 0, middle: 0, high: 0, reserved: 0 }; VECTORS];

/// What the processor is told of the table.
#[repr(C, packed)]
struct Register {
    limit: u16,
    table: u64,
}

/// Sets the table up.
pub(super) fn begin() {
    let stubs = core::ptr::addr_of!(grantway_exceptions) as usize;
    let table = core::ptr::addr_of_mut!(TABLE);
    for vector in 0..VECTORS {
        let address = stubs + vector * STUB;
        let gate = Gate {
            low: address as u16,
            selector: CODE,
            kind: GATE,
            middle: (address >> 16) as u16,
            high: (address >> 32) as u32,
            reserved: 0,
        };
        // SAFETY: the guest has one processor, which does not know the table yet, and nobody has a
        // reference to it.
        unsafe { (*table)[vector] = gate };
    }
    let register =
        Register { limit: (size_of::<[Gate; VECTORS]>() - 1) as u16, table: table as u64 };
    // SAFETY: the table is there for good, and each of its gates leads to a stub.
    unsafe { asm!("lidt [{}]", in(reg) &raw const register, options(readonly, nostack)) };
}

/// Ends the guest. `stack` has the number of the exception, and then what the processor put there.
extern "C" fn end(stack: *const u64) -> ! {
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

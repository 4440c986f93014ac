//! Stacks to which the processor goes by itself, for exceptions and upcalls: the task state, its
//! descriptor, and its register.

use core::arch::asm;
use core::cell::UnsafeCell;

/// A stack.
#[repr(C, align(16))]
struct Stack<const BYTES: usize>(UnsafeCell<[u8; BYTES]>);

// SAFETY: the processor alone uses it.
unsafe impl<const BYTES: usize> Sync for Stack<BYTES> {}

impl<const BYTES: usize> Stack<BYTES> {
    const fn new() -> Self {
        Self(UnsafeCell::new([0; BYTES]))
    }

    /// Returns the address behind the stack, where it begins.
    fn end(&self) -> u64 {
        self.0.get() as u64 + BYTES as u64
    }
}

/// Number of the stack for exceptions in gates. The program's own may be the reason of one.
pub const EXCEPTIONS: u16 = 1;
/// Number of the stack for upcalls in gates.
pub const UPCALLS: u16 = 2;

static EXCEPTION_STACK: Stack<{ 16 << 10 }> = Stack::new();
static UPCALL_STACK: Stack<256> = Stack::new();

/// Words of the task state (Intel's manual, 8.7): 104 bytes.
const WORDS: usize = 26;
/// Index of the first stack of gates among them.
const STACKS: usize = 9;
/// Index of the place of a map of ports, which begins behind the state: there is none.
const PORTS: usize = 25;

/// The task state, in words, since its addresses are not aligned to 8 bytes.
#[repr(C, align(16))]
struct State(UnsafeCell<[u32; WORDS]>);

// SAFETY: written once, before the processor knows it.
unsafe impl Sync for State {}

static STATE: State = State(UnsafeCell::new([0; WORDS]));

/// Selector of the state in the table of segments, and the index of its descriptor there.
const SELECTOR: u16 = 0x18;
const DESCRIPTOR: usize = 3;

unsafe extern "C" {
    /// The table of segments (`entry`), whose last two words are for the descriptor.
    static mut grantway_gdt: [u64; 5];
}

/// Sets the stacks up.
pub(super) fn begin() {
    let mut words = [0; WORDS];
    for (number, end) in [(EXCEPTIONS, EXCEPTION_STACK.end()), (UPCALLS, UPCALL_STACK.end())] {
        let at = STACKS + (usize::from(number) - 1) * 2;
        (words[at], words[at + 1]) = (end as u32, (end >> 32) as u32);
    }
    words[PORTS] = (size_of::<State>() as u32) << 16;
    let (base, limit) = (STATE.0.get() as u64, (WORDS * 4 - 1) as u64);
    // Present, of the kind "task state of 64 bits".
    let low = limit | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56;
    // SAFETY: the guest's one processor does not know the state and its descriptor yet, and nothing
    // has a reference to either. The register gets the selector of that descriptor.
    unsafe {
        STATE.0.get().write(words);
        let table = core::ptr::addr_of_mut!(grantway_gdt);
        (*table)[DESCRIPTOR] = low;
        (*table)[DESCRIPTOR + 1] = base >> 32;
        asm!("ltr {:x}", in(reg) SELECTOR, options(nostack));
    }
}

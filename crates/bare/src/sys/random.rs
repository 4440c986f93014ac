//! Random numbers of the processor.

use core::arch::x86_64::__cpuid;

/// Bit of `ecx` in leaf 1 that says so.
const RDRAND: u32 = 1 << 30;
/// Attempts, of which the processor may refuse some.
const TRIES: u32 = 10;

/// Returns a random number of the processor (`rdrand`). Returns `None` if the processor lacks the
/// instruction, or refuses it repeatedly.
#[must_use]
pub fn random() -> Option<u64> {
    if __cpuid(1).ecx & RDRAND == 0 {
        return None;
    }
    (0..TRIES).find_map(|_| {
        let (number, done): (u64, u8);
        // SAFETY: the processor has the instruction, which changes what is named.
        unsafe {
            core::arch::asm!("rdrand {}", "setc {}", out(reg) number, out(reg_byte) done,
                options(nomem, nostack));
        }
        (done != 0).then_some(number)
    })
}

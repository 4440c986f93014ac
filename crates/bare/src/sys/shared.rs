//! The page of shared information: pending upcalls, time, and the bits of `two_level`.

use super::memory;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst, fence};
use grantway_ring::{PAGE_SIZE, SharedPage};

/// Offsets in `shared_info` on x86-64, which begins with the `vcpu_info` of processor 0.
const UPCALL_PENDING: usize = 0;
const TIME: usize = 32;
/// Offset of `wc_version`, behind 32 `vcpu_info` of 64 bytes and two sets of 4,096 bits.
const WALL: usize = 3072;

/// The page. It lies at the same address before and after a restoration.
#[derive(Debug, Clone)]
pub struct SharedInfo {
    page: SharedPage,
    /// Nanoseconds that this guest's clock is before the host's, modulo 2^64: another host's clock
    /// may say less.
    ahead: Arc<AtomicU64>,
    /// The latest time that the clock said.
    last: Arc<AtomicU64>,
}

/// The time, as Xen wrote it last (`vcpu_time_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeInfo {
    /// Count of the processor's clock at that moment.
    pub stamp: u64,
    /// Nanoseconds since the host started, at that moment.
    pub system: u64,
    /// Factor of counts, in 1/2^32 of a nanosecond after the shift.
    pub factor: u32,
    /// Shift of counts to the left, or to the right if it is negative.
    pub shift: i8,
}

impl SharedInfo {
    /// Has Xen put the page among the guest's. Returns none if it refuses.
    pub fn new() -> Option<Self> {
        Some(Self::over(memory::shared_info()?))
    }

    /// Makes it of this page.
    pub fn over(page: SharedPage) -> Self {
        Self { page, ahead: Arc::default(), last: Arc::default() }
    }

    /// Has Xen put the page there again, in a guest that was restored and whose clock had said
    /// `before`. Returns false if Xen refuses.
    pub fn renew(&self, before: u64) -> bool {
        let done = memory::shared_info().is_some();
        if done {
            self.ahead.store(before.wrapping_sub(self.host_time()), SeqCst);
        }
        done
    }

    /// Returns the nanoseconds since the host started.
    fn host_time(&self) -> u64 {
        let (time, count) = self.time();
        time.at(count)
    }

    /// Returns the nanoseconds of this guest's clock, which never goes back.
    pub fn now(&self) -> u64 {
        let now = self.host_time().wrapping_add(self.ahead.load(SeqCst));
        now.max(self.last.fetch_max(now, SeqCst))
    }

    /// Returns the time of the host's clock when this guest's says `at`.
    pub fn on_host(&self, at: u64) -> u64 {
        at.wrapping_sub(self.ahead.load(SeqCst))
    }

    /// Returns the nanoseconds since 1970 by the host's wall clock: the time at which the host
    /// started by it, and the time since.
    pub fn wall(&self) -> u64 {
        let mut bytes = [0; 12];
        self.settled(WALL, || {
            let _ = self.page.read(WALL + 4, &mut bytes);
        });
        let (words, _) = bytes.as_chunks::<4>();
        let [seconds, nanoseconds, high] =
            [0, 1, 2].map(|at| u64::from(u32::from_le_bytes(words[at])));
        let start =
            (high << 32 | seconds).saturating_mul(1_000_000_000).saturating_add(nanoseconds);
        start.saturating_add(self.host_time())
    }

    /// Has `read` read what Xen writes behind the version at an offset, until Xen wrote nothing of
    /// it meanwhile.
    fn settled(&self, at: usize, mut read: impl FnMut()) {
        // SAFETY: both places of a version lie in the page and are aligned; Xen changes a version
        // before and after it writes.
        let version = unsafe { &*self.page.as_ptr().as_ptr().add(at).cast::<AtomicU32>() };
        loop {
            let before = version.load(SeqCst);
            read();
            fence(SeqCst);
            if before % 2 == 0 && version.load(SeqCst) == before {
                return;
            }
            core::hint::spin_loop();
        }
    }

    /// Returns the long word at an offset, which is a multiple of 8 below the page's end.
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        let at = (at % PAGE_SIZE) & !7;
        // SAFETY: the place lies in the page, which is there for good, is aligned, and everybody
        // who reaches it does so by atomic operations.
        unsafe { &*self.page.as_ptr().as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Forgets that an upcall is due. Events that come afterwards make it due again.
    pub fn forget_upcall(&self) {
        // SAFETY: as for a word; the byte is Xen's `evtchn_upcall_pending`, which no word covers
        // that this program writes.
        let byte = unsafe { &*self.page.as_ptr().as_ptr().add(UPCALL_PENDING).cast::<AtomicU8>() };
        byte.store(0, SeqCst);
    }

    /// Returns the time that Xen wrote last for this processor, and a count of its clock.
    fn time(&self) -> (TimeInfo, u64) {
        let (mut bytes, mut count) = ([0; 24], 0);
        self.settled(TIME, || {
            let _ = self.page.read(TIME + 8, &mut bytes);
            // Each time, as the guest may go on on another processor.
            count = counted();
        });
        (parse(&bytes), count)
    }
}

impl TimeInfo {
    /// Returns the nanoseconds that it was when the processor's clock had this count.
    pub fn at(self, count: u64) -> u64 {
        let passed = u128::from(count.saturating_sub(self.stamp));
        let scaled = match self.shift {
            shift @ 0.. => passed << shift.min(32),
            shift => passed >> shift.unsigned_abs().min(63),
        };
        // A wrap takes five centuries.
        self.system.wrapping_add(((scaled * u128::from(self.factor)) >> 32) as u64)
    }
}

fn parse(bytes: &[u8; 24]) -> TimeInfo {
    let (words, _) = bytes.as_chunks::<4>();
    let word = |at: usize| u32::from_le_bytes(words[at]);
    let long = |at| u64::from(word(at)) | u64::from(word(at + 1)) << 32;
    TimeInfo { stamp: long(0), system: long(2), factor: word(4), shift: bytes[20] as i8 }
}

/// Returns the count of the processor's clock, read behind what comes before.
fn counted() -> u64 {
    // SAFETY: reads a counter.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grantway_ring::SharedRun;

    fn shared() -> SharedInfo {
        SharedInfo::over(SharedRun::private(1).page(0).unwrap())
    }

    #[test]
    fn time_is_read_from_its_place() {
        let shared = shared();
        shared.page.write(TIME + 8, &0x0102_0304_0506_0708_u64.to_le_bytes()).unwrap();
        shared.page.write(TIME + 16, &9_u64.to_le_bytes()).unwrap();
        shared.page.write(TIME + 24, &7_u32.to_le_bytes()).unwrap();
        shared.page.write(TIME + 28, &[0xfe]).unwrap();
        let time = TimeInfo { stamp: 0x0102_0304_0506_0708, system: 9, factor: 7, shift: -2 };
        assert_eq!(shared.time().0, time);
    }

    #[test]
    fn the_wall_clock_is_the_start_of_the_host_and_the_time_since() {
        let shared = shared();
        // By a clock that stands, the host started 9 ns ago.
        shared.page.write(TIME + 16, &9_u64.to_le_bytes()).unwrap();
        shared.page.write(3076, &1_700_000_000_u32.to_le_bytes()).unwrap();
        shared.page.write(3080, &5_u32.to_le_bytes()).unwrap();
        assert_eq!(shared.wall(), 1_700_000_000_000_000_014);
        // The word above its 32 bits of seconds.
        shared.page.write(3084, &1_u32.to_le_bytes()).unwrap();
        assert_eq!(shared.wall(), ((1 << 32) + 1_700_000_000) * 1_000_000_000 + 14);
    }

    #[test]
    fn counts_become_nanoseconds_by_the_factor_and_the_shift() {
        let time = |factor, shift| TimeInfo { stamp: 1000, system: 50, factor, shift };
        // Factors are in 1/2^32: half a nanosecond, and the largest there is.
        let half = 1 << 31;
        for (factor, shift, count, nanoseconds) in [
            (half, 0, 1000, 50),
            (half, 0, 1001, 50),
            (half, 0, 1002, 51),
            (half, 1, 1002, 52),
            (half, -1, 1008, 52),
            (half, -2, 1008, 51),
            (u32::MAX, 0, 1000 + (1 << 32), 50 + (1 << 32) - 1),
            (0, 5, 9999, 50),
            // A processor whose clock is behind that of the one that wrote the time.
            (half, 0, 999, 50),
        ] {
            let text = alloc::format!("{factor} {shift} {count}");
            assert_eq!(time(factor, shift).at(count), nanoseconds, "{text}");
        }
    }

    #[test]
    fn a_clock_of_2_5_ghz_is_right_after_a_century() {
        // 0.4 ns per count.
        let factor = (0.4 * f64::from(1 << 16) * f64::from(1 << 16)) as u32;
        let century = 100 * 365 * 86_400 * 1_000_000_000_u64;
        let count = (u128::from(century) * 5 / 2) as u64;
        let time = TimeInfo { stamp: 0, system: 0, factor, shift: 0 };
        assert!(time.at(count).abs_diff(century) < century / 1_000_000_000);
    }

    #[test]
    fn any_shift_and_count_give_a_time() {
        for shift in i8::MIN..=i8::MAX {
            for count in [0, 1, u64::MAX] {
                let time = TimeInfo { stamp: 0, system: u64::MAX, factor: u32::MAX, shift };
                time.at(count);
            }
        }
    }
}

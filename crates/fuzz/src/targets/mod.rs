//! Targets: the code that is fuzzed, and the promises that it keeps.

mod backend_machine;
mod capture;
mod control;
mod extra;
mod flows;
mod frontend_machine;
mod rx_layout;
mod segments;
mod slots_rx;
mod slots_tx;
mod stack;
mod vector;

/// One target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of the target and of its corpus.
    pub name: &'static str,
    /// Bytes that belong together in an input. Tests often change inputs by this many.
    pub unit: usize,
    /// Function that takes any bytes.
    ///
    /// # Panics
    /// The code under test breaks a promise.
    pub run: fn(&[u8]),
    /// Function that returns the tally of all runs of this process; none if the inputs say enough.
    pub tally: Option<fn() -> Tally>,
}

/// Frames that were made of inputs, and their fate.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Number of frames that were given.
    pub frames: u64,
    /// Number of dropped frames, for every reason that there is.
    pub drops: Vec<(&'static str, u64)>,
}

/// Every target.
pub const ALL: &[Target] = &[
    Target { name: "slots_tx", unit: 12, run: slots_tx::run, tally: None },
    Target { name: "slots_rx", unit: 8, run: slots_rx::run, tally: None },
    Target { name: "rx_layout", unit: 1, run: rx_layout::run, tally: None },
    Target { name: "extra", unit: 8, run: extra::run, tally: None },
    Target { name: "control", unit: 16, run: control::run, tally: None },
    Target { name: "backend_machine", unit: 1, run: backend_machine::run, tally: None },
    Target { name: "frontend_machine", unit: 1, run: frontend_machine::run, tally: None },
    Target { name: "segments", unit: 1, run: segments::run, tally: None },
    Target { name: "stack", unit: 1, run: stack::run, tally: None },
    Target { name: "vector", unit: 1, run: vector::run, tally: Some(vector::tally) },
    Target { name: "capture", unit: 4, run: capture::run, tally: None },
    Target { name: "flows", unit: 14, run: flows::run, tally: None },
];

/// Returns the target of this name.
#[must_use]
pub fn find(name: &str) -> Option<Target> {
    ALL.iter().copied().find(|target| target.name == name)
}

/// Returns slots of `N` words. Bytes that make no whole slot are left out. The last slot but one is
/// repeated as often as the first byte says. So chains can be longer than an input, and can still
/// end.
fn slots<const N: usize>(data: &[u8]) -> Vec<[u32; N]> {
    let Some((&again, data)) = data.split_first() else { return Vec::new() };
    let slot = |bytes: &[u8]| {
        std::array::from_fn(|word| {
            let at = 4 * word;
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        })
    };
    let mut slots: Vec<_> = data.chunks_exact(4 * N).map(slot).collect();
    if let Some(at) = slots.len().checked_sub(2) {
        let one = slots[at];
        slots.splice(at..at, std::iter::repeat_n(one, usize::from(again)));
    }
    slots
}

/// The bytes of an input, one value after the other; zeroes past its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }
}

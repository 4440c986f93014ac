//! Bounds of what is kept about flows.

/// Bounds of what is kept about flows. With the defaults it is less than 160 MiB, whatever
/// packets come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most flows at a time. Where there are more, the smallest go that have ended or
    /// were quiet for a minute; if none has, new ones are counted and not followed.
    pub flows: usize,
    /// Points that the series of all flows share, beyond 32 that each has.
    pub points: usize,
    /// Most stalls of a flow that are listed, the longest.
    pub stalls: usize,
    /// The shortest stall, in nanoseconds.
    pub stall: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { flows: 2048, points: 1 << 20, stalls: 64, stall: 100_000_000 }
    }
}

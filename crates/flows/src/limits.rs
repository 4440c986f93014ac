//! Limits of the memory for flows.

/// Limits of the memory. The defaults keep it below 160 MiB, whatever packets come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most flows at a time. If there are more, the smallest flows that have ended or were quiet
    /// for a minute are forgotten. If there are none, new flows are counted and not followed.
    pub flows: usize,
    /// Points that the series of all flows share, beyond 32 of each series.
    pub points: usize,
    /// Most stalls of a flow that are listed. The longest are kept.
    pub stalls: usize,
    /// The shortest stall that counts, in nanoseconds.
    pub stall: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { flows: 2048, points: 1 << 20, stalls: 64, stall: 100_000_000 }
    }
}

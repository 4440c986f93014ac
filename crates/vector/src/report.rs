//! What the nodes know, for whoever shows it.

use crate::batch::Nanos;
use std::collections::HashMap;

/// What a rule or a filter was the first to fit.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Frames.
    pub packets: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
}

impl Count {
    /// Counts a frame.
    #[inline]
    pub fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }
}

/// One flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Source and destination, as `Headers` has them.
    pub addresses: [u128; 2],
    /// Source and destination port.
    pub ports: [u16; 2],
    /// Protocol.
    pub protocol: u8,
    /// Whether the addresses are IPv6's.
    pub is_v6: bool,
    /// What went by.
    pub count: Count,
    /// When the first frame did, and the last.
    pub times: [Nanos; 2],
}

/// What the nodes know.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// The firewall's rules, in order, by name.
    pub rules: Vec<(String, Count)>,
    /// What no rule fitted.
    pub by_default: Count,
    /// Connections that are remembered.
    pub connections: u64,
    /// Packets that are remembered since fragments of them came.
    pub fragmented: u64,
    /// The classifier's filters, in order, by name.
    pub filters: Vec<(String, Count)>,
    /// Stations that the bridge remembers.
    pub stations: u64,
    /// Those that it had no room for.
    pub stations_refused: u64,
    /// Flows that are remembered.
    pub flows: Vec<Flow>,
    /// What went by of flows that there was no room for.
    pub other_flows: Count,
    /// Frames that were copied to a capture.
    pub mirrored: u64,
    /// Why the capture ended, where it did.
    pub mirror_error: Option<String>,
    /// Segments that were merged into others.
    pub merged: u64,
}

/// The counts of new rules: those that were there before, by name, go on.
pub(crate) fn carried<T>(
    old: &[T],
    counts: &[Count],
    new: &[T],
    name: impl Fn(&T) -> String,
) -> Vec<Count> {
    let known: HashMap<String, Count> = old.iter().map(&name).zip(counts.iter().copied()).collect();
    new.iter().map(|item| known.get(&name(item)).copied().unwrap_or_default()).collect()
}

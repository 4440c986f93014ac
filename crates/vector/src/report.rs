//! Report of the nodes, for the commands that show it.

use crate::batch::Nanos;
use std::collections::HashMap;

/// Frames for which a rule or a filter was the first that fits.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Number of frames.
    pub packets: u64,
    /// Bytes of the frames, without FCS.
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

/// A flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Source and destination address, as `Headers` has them.
    pub addresses: [u128; 2],
    /// Source and destination port.
    pub ports: [u16; 2],
    /// Protocol.
    pub protocol: u8,
    /// True if the addresses are IPv6's.
    pub is_v6: bool,
    /// Frames of the flow.
    pub count: Count,
    /// Times of the first frame and of the last.
    pub times: [Nanos; 2],
}

/// Counters of all nodes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// Counts of the firewall's rules, in order, by name.
    pub rules: Vec<(String, Count)>,
    /// Count of frames that no rule fits.
    pub by_default: Count,
    /// Number of connections that are remembered.
    pub connections: u64,
    /// Number of packets that are remembered because fragments of them came.
    pub fragmented: u64,
    /// Counts of the classifier's filters, in order, by name.
    pub filters: Vec<(String, Count)>,
    /// Number of stations that the bridge remembers.
    pub stations: u64,
    /// Number of stations for which the bridge had no room.
    pub stations_refused: u64,
    /// Flows that are remembered, those with most bytes first.
    pub flows: Vec<Flow>,
    /// Count of frames whose flow had no room.
    pub other_flows: Count,
    /// Number of frames that were copied to a capture.
    pub mirrored: u64,
    /// Error because of which the capture ended, if it did.
    pub mirror_error: Option<String>,
    /// Number of segments that were merged into others.
    pub merged: u64,
}

/// Returns the state of new rules. A rule that was there before, by name, keeps its state.
pub(crate) fn carried<T, S: Copy + Default>(
    old: &[T],
    states: &[S],
    new: &[T],
    name: impl Fn(&T) -> String,
) -> Vec<S> {
    let known: HashMap<String, S> = old.iter().map(&name).zip(states.iter().copied()).collect();
    new.iter().map(|item| known.get(&name(item)).copied().unwrap_or_default()).collect()
}

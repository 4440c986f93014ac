//! Report of the nodes, for the commands that show it.

use crate::batch::Nanos;
use std::collections::HashMap;

/// Count of frames for which a rule or a filter was the first match.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
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

    /// Adds the frames of another count.
    fn join(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// A flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
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
#[non_exhaustive]
pub struct Report {
    /// Counts of the firewall's rules, in order, by name.
    pub rules: Vec<(String, Count)>,
    /// Count of frames that match no rule.
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

impl Report {
    /// Adds the report of a twin. Counts of the same rules add up. Stations and connections are
    /// known to all twins, and those of the twin that knows most are reported; one twin alone
    /// refuses a station.
    pub fn add(&mut self, twin: &Self) {
        let sum = |known: &mut Vec<(String, Count)>, more: &[(String, Count)]| {
            // Rules that were loaded a moment ago have no counts that matter.
            let same = known.iter_mut().zip(more).filter(|(known, more)| known.0 == more.0);
            same.for_each(|(known, more)| known.1.join(more.1));
        };
        sum(&mut self.rules, &twin.rules);
        sum(&mut self.filters, &twin.filters);
        self.by_default.join(twin.by_default);
        self.other_flows.join(twin.other_flows);
        self.connections = self.connections.max(twin.connections);
        self.stations = self.stations.max(twin.stations);
        self.stations_refused += twin.stations_refused;
        self.fragmented += twin.fragmented;
        self.mirrored += twin.mirrored;
        self.merged += twin.merged;
        if self.mirror_error.is_none() {
            self.mirror_error.clone_from(&twin.mirror_error);
        }
        self.add_flows(&twin.flows);
    }

    /// Adds flows. Both ends of one may be vifs of different twins.
    fn add_flows(&mut self, flows: &[Flow]) {
        let key = |flow: &Flow| (flow.addresses, flow.ports, flow.protocol, flow.is_v6);
        let known = self.flows.iter().enumerate();
        let known: HashMap<_, usize> = known.map(|(at, flow)| (key(flow), at)).collect();
        for flow in flows {
            match known.get(&key(flow)).and_then(|&at| self.flows.get_mut(at)) {
                Some(known) => {
                    known.count.join(flow.count);
                    let [first, last] = known.times;
                    known.times = [first.min(flow.times[0]), last.max(flow.times[1])];
                }
                None => self.flows.push(*flow),
            }
        }
        self.flows.sort_by_key(|flow| std::cmp::Reverse(flow.count.bytes));
    }
}

/// Returns the state of new rules. A rule that was there before, by name, keeps its state.
pub(crate) fn carried<T, S: Clone + Default>(
    old: &[T],
    states: &[S],
    new: &[T],
    name: impl Fn(&T) -> String,
) -> Vec<S> {
    let known: HashMap<String, S> = old.iter().map(&name).zip(states.iter().cloned()).collect();
    new.iter().map(|item| known.get(&name(item)).cloned().unwrap_or_default()).collect()
}

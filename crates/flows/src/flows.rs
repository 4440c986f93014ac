//! All flows.

use crate::count::{Count, Skipped};
use crate::flow::{Context, Flow};
use crate::limits::Limits;
use crate::merged::Merged;
use crate::report::Report;
use crate::rings::{Event, Ring, Rings};
use crate::segment::{Endpoint, Segment};
use crate::series::Budget;
use grantway_netif::headers::Why;
use std::collections::{BTreeMap, HashMap};

/// Time in nanoseconds after which a flow without packets may be forgotten.
const QUIET: u64 = 60_000_000_000;

/// Number of flows that are found without a table.
const RECENT: usize = 16;

/// Number of points that may have a name: those below this number.
pub const NAMES_MAX: usize = 4096;

/// A packet, as it was captured or as a node has it.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Time in nanoseconds since any moment. A time before the last one counts as the last one.
    pub time: u64,
    /// First bytes of the packet, from the Ethernet header to TCP's options.
    pub head: &'a [u8],
    /// Number of bytes of the whole packet.
    pub length: usize,
    /// Point at which the packet was seen: the interface of a capture, or one number for all of a
    /// node. A connection that is seen at two points is two flows. Otherwise each segment would
    /// count as sent again.
    pub point: u32,
    /// The ring that the packet crosses.
    pub ring: Ring,
}

/// Both ends of a flow, in an order that does not depend on the sender, and the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    ends: [Endpoint; 2],
    point: u32,
    vlan: u16,
}

impl Key {
    fn of(segment: &Segment, point: u32) -> Self {
        let (from, to) = (segment.from, segment.to);
        let ends = if from <= to { [from, to] } else { [to, from] };
        Self { ends, point, vlan: segment.vlan }
    }

    /// Returns the place of the flow among the recent ones. A peer that makes flows share a place
    /// gains nothing, since these are then looked up in the table.
    fn slot(&self) -> usize {
        let [one, other] = self.ends.map(|end| u32::from(end.port));
        (one ^ other ^ self.point) as usize % RECENT
    }
}

/// Flows, followed packet by packet, without a clock or a file.
#[derive(Debug)]
pub struct Flows {
    limits: Limits,
    flows: Vec<Flow>,
    known: HashMap<Key, usize>,
    /// The last flow of each [`Key::slot`]. Most packets belong to a flow that had a packet just
    /// before.
    recent: [Option<(Key, usize)>; RECENT],
    budget: Budget,
    rings: Rings,
    /// Names of points.
    names: BTreeMap<u32, String>,
    times: Option<[u64; 2]>,
    all: Count,
    skipped: Skipped,
    numbers: u64,
    /// Number of segments of flows that are not followed, until old flows are searched again.
    patience: usize,
}

impl Flows {
    /// Makes an analysis without flows.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            flows: Vec::new(),
            known: HashMap::new(),
            recent: [None; RECENT],
            budget: Budget(limits.points),
            rings: Rings::default(),
            names: BTreeMap::new(),
            times: None,
            all: Count::default(),
            skipped: Skipped::default(),
            numbers: 0,
            patience: 0,
        }
    }

    /// Sets the name of a point for reports, if the point is below [`NAMES_MAX`].
    pub fn name_point(&mut self, point: u32, name: &str) {
        if (point as usize) < NAMES_MAX {
            self.names.insert(point, name.to_owned());
        }
    }

    /// Takes a packet.
    pub fn packet(&mut self, packet: &Packet<'_>) {
        self.take(packet, None);
    }

    /// Takes a packet that was merged of several segments. The results are those of the segments
    /// one by one. If the packet cannot have been merged in this way, it counts as one.
    pub fn merged(&mut self, packet: &Packet<'_>, of: Merged) {
        self.take(packet, Some(of));
    }

    fn take(&mut self, packet: &Packet<'_>, merged: Option<Merged>) {
        let now = self.passes(packet.time);
        let mut length = packet.length as u64;
        let read = Segment::read(packet.head, packet.length).map(|mut segment| {
            merged.into_iter().for_each(|merged| merged.mark(&mut segment));
            segment
        });
        let segments = read.map_or(1, |segment| u64::from(segment.segments));
        if let Ok(segment) = read {
            // Each segment had the headers, of which the packet has one copy.
            length += (segments - 1) * length.saturating_sub(segment.payload.into());
        }
        self.all.add(segments, length);
        let segment = match read {
            Ok(segment) => segment,
            Err(Why::NotIp | Why::OtherTransport | Why::TooShort) => {
                return self.skipped.other.add(1, length);
            }
            Err(_) => return self.skipped.unread.add(1, length),
        };
        self.rings.passed(packet.ring, segment.payload > 0, now);
        let Some(at) = self.find(&segment, packet.point, now) else {
            return self.skipped.forgotten.add(segments, length);
        };
        let Self { limits, budget, rings, .. } = self;
        let mut context = Context { limits, budget, rings, now };
        self.flows[at].take(&segment, packet.ring, length, &mut context);
    }

    /// Takes an event of a ring. Events of a moment come before the packets of that moment that
    /// they release.
    pub fn event(&mut self, time: u64, ring: Ring, event: Event) {
        let now = self.passes(time);
        self.rings.happened(ring, event, now);
    }

    /// Counts packets that passed and are not given to this analysis.
    pub fn lost(&mut self, packets: u64) {
        self.skipped.lost = self.skipped.lost.saturating_add(packets);
    }

    /// Advances the time without a packet. A stall that goes on lasts at least until then.
    pub fn advance(&mut self, time: u64) {
        self.passes(time);
    }

    /// Returns the report at this time. The cost is a pass over all that is kept, so a live node
    /// makes a report only when one is asked for.
    #[must_use]
    pub fn report(&self) -> Report {
        let [first, last] = self.times.unwrap_or_default();
        let flows = self.flows.iter().map(|flow| {
            let stalls = flow.stalls(last, &self.rings, &self.limits);
            let name = self.names.get(&flow.point).map(String::as_str);
            crate::report::flow(flow, name, &stalls, first)
        });
        let mut flows: Vec<_> = flows.collect();
        flows.sort_by_key(|flow| (std::cmp::Reverse(flow.bytes), flow.number));
        Report {
            start: first,
            seconds: crate::report::seconds(last.saturating_sub(first)),
            all: self.all,
            skipped: self.skipped,
            flows,
        }
    }

    fn passes(&mut self, time: u64) -> u64 {
        let [_, last] = self.times.get_or_insert([time; 2]);
        *last = time.max(*last);
        *last
    }

    /// Returns the place of a segment's flow. Makes the flow if there is none.
    fn find(&mut self, segment: &Segment, point: u32, now: u64) -> Option<usize> {
        let key = Key::of(segment, point);
        let slot = key.slot();
        let known = match self.recent.get(slot) {
            Some(&Some((recent, at))) if recent == key => Some(at),
            _ => self.known.get(&key).copied(),
        };
        let known = known.filter(|&at| self.flows.get(at).is_some_and(|f| !f.is_over(segment)));
        let at = match known {
            Some(at) => at,
            None => self.begin(key, segment, now)?,
        };
        if let Some(recent) = self.recent.get_mut(slot) {
            *recent = Some((key, at));
        }
        Some(at)
    }

    fn begin(&mut self, key: Key, segment: &Segment, now: u64) -> Option<usize> {
        if self.flows.len() >= self.limits.flows && !self.make_room(now) {
            return None;
        }
        self.numbers += 1;
        let at = self.flows.len();
        self.flows.push(Flow::new(self.numbers, segment, key.point, now));
        self.known.insert(key, at);
        Some(at)
    }

    /// Forgets up to a quarter of the flows, the smallest that are over or quiet. Returns false if
    /// there are none. The cost is a pass over all flows, so this is not done for every segment.
    fn make_room(&mut self, now: u64) -> bool {
        if self.patience > 0 {
            self.patience -= 1;
            return false;
        }
        let over = |flow: &Flow| flow.closed || now.saturating_sub(flow.last) >= QUIET;
        let mut sizes: Vec<_> =
            self.flows.iter().filter(|f| over(f)).map(|f| (f.wire, f.number)).collect();
        sizes.sort_unstable();
        sizes.truncate((self.limits.flows / 4).max(1));
        let Some(&largest) = sizes.last() else {
            self.patience = self.limits.flows;
            return false;
        };
        let Self { flows, budget, skipped, .. } = self;
        flows.retain(|flow| {
            let goes = over(flow) && (flow.wire, flow.number) <= largest;
            if goes {
                budget.0 += flow.taken();
                skipped.forgotten.add(flow.packets, flow.wire);
                skipped.forgotten_flows += 1;
            }
            !goes
        });
        self.recent = [None; RECENT];
        let places = self.flows.iter().enumerate().map(|(at, flow)| (flow.key(), at));
        // If several flows have one key, the last one goes on.
        self.known = places.collect();
        true
    }
}

impl Flow {
    fn key(&self) -> Key {
        let [a, b] = self.ends;
        let ends = if a <= b { [a, b] } else { [b, a] };
        Key { ends, point: self.point, vlan: self.vlan }
    }
}

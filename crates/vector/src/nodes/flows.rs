//! Flows that go through the graph, and their counts.

use crate::batch::Nanos;
use crate::headers::{Headers, Network};
use crate::node::{Context, Edge, Node, Out};
use crate::report::{Count, Flow, Report};
use crate::rules::Rules;
use crate::secret::{Keyed, Secret};
use crate::set::Set;
use std::collections::HashMap;
use std::sync::Arc;

/// Most flows that are remembered.
pub const FLOWS_MAX: usize = 8192;
/// Time that a flow is remembered without a further frame.
const AGE_MAX: Nanos = 60_000_000_000;
/// Least time between two searches for old flows to make room.
const SWEEP: Nanos = 1_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    addresses: [u128; 2],
    ports: [u16; 2],
    protocol: u8,
    network: Network,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    count: Count,
    times: [Nanos; 2],
}

/// Counts the frames and bytes of each IP flow, if the rules ask for it.
#[derive(Debug)]
pub struct Flows {
    wanted: bool,
    known: HashMap<Key, Known, Keyed>,
    beyond: Count,
    swept: Nanos,
}

impl Flows {
    /// All frames.
    pub const ON: Edge = Edge(0);

    /// Makes a node that knows no flow.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        let known = HashMap::with_capacity_and_hasher(2 * FLOWS_MAX, Keyed(secret));
        Self { wanted: false, known, beyond: Count::default(), swept: 0 }
    }

    fn count(&mut self, headers: &Headers, bytes: u32, now: Nanos) {
        if !matches!(headers.network, Network::V4 | Network::V6) {
            return;
        }
        let key = Key {
            addresses: [headers.source, headers.target],
            ports: if headers.has_ports { headers.ports } else { [0; 2] },
            protocol: headers.protocol,
            network: headers.network,
        };
        if let Some(known) = self.known.get_mut(&key) {
            known.count.add(bytes);
            known.times[1] = now;
            return;
        }
        if self.known.len() >= FLOWS_MAX && now.saturating_sub(self.swept) >= SWEEP {
            self.swept = now;
            self.known.retain(|_, known| now.saturating_sub(known.times[1]) <= AGE_MAX);
        }
        if self.known.len() >= FLOWS_MAX {
            return self.beyond.add(bytes);
        }
        let mut count = Count::default();
        count.add(bytes);
        self.known.insert(key, Known { count, times: [now; 2] });
    }
}

impl Node for Flows {
    fn name(&self) -> &'static str {
        "flows"
    }

    fn process(&mut self, list: &Set, context: &mut Context<'_>, out: &mut Out) {
        for number in list {
            let bytes = context.batch.frame(number).len;
            self.count(context.batch.headers(number), bytes, context.now);
        }
        out.all(Self::ON, list);
    }

    fn idle(&self) -> Option<Edge> {
        (!self.wanted).then_some(Self::ON)
    }

    fn reload(&mut self, rules: &Arc<Rules>) {
        self.wanted = rules.flows;
        if !self.wanted {
            self.known.clear();
            self.beyond = Count::default();
        }
    }

    fn report(&self, report: &mut Report) {
        let flow = |(key, known): (&Key, &Known)| Flow {
            addresses: key.addresses,
            ports: key.ports,
            protocol: key.protocol,
            is_v6: key.network == Network::V6,
            count: known.count,
            times: known.times,
        };
        report.flows = self.known.iter().map(flow).collect();
        report.flows.sort_unstable_by_key(|flow| std::cmp::Reverse(flow.count.bytes));
        report.other_flows = self.beyond;
    }
}

//! The nodes, in the order in which lists go through them.

use crate::batch::{Batch, Nanos, PortId};
use crate::node::{Context, EDGES_MAX, Edge, Node, Out};
use crate::reason::Drops;
use crate::receivers::{Receivers, Takes};
use crate::report::Report;
use crate::rules::Rules;
use crate::set::Set;
use std::sync::Arc;

/// Most nodes of a graph.
pub const NODES_MAX: usize = 64;

/// One list in so many is timed: reading the clock takes longer than most nodes
/// take for a frame.
const TIMED: u64 = 64;

/// Where an idle node leads that has no way out.
const NOWHERE: u8 = u8::MAX;

/// A node of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeId(u8);

/// A graph has as many nodes as it can have, or a node has more ways out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Too many nodes.
    #[error("the graph has {NODES_MAX} nodes, expected no more; leave one out")]
    Nodes,
    /// Too many ways out.
    #[error("{node} has {found} ways out, expected at most {EDGES_MAX}")]
    Edges {
        /// The node.
        node: &'static str,
        /// Its ways out.
        found: usize,
    },
}

/// What went through a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeCounters {
    /// The node's name.
    pub name: &'static str,
    /// Frames.
    pub packets: u64,
    /// Lists.
    pub vectors: u64,
    /// Frames of the lists that were timed, one list in 64.
    pub timed_packets: u64,
    /// Nanoseconds that those took.
    pub timed_ns: u64,
}

impl NodeCounters {
    /// Frames of a list, on average.
    #[must_use]
    pub fn packets_a_vector(&self) -> f64 {
        self.packets as f64 / self.vectors.max(1) as f64
    }

    /// Nanoseconds of a frame; none where no list was timed.
    #[must_use]
    pub fn ns_a_packet(&self) -> Option<f64> {
        (self.timed_packets > 0).then(|| self.timed_ns as f64 / self.timed_packets as f64)
    }
}

struct Place {
    node: Box<dyn Node>,
    /// The nodes that its ways out were given.
    given: [u8; EDGES_MAX],
    /// Where they lead now, past nodes that are idle.
    edges: [u8; EDGES_MAX],
    ways: usize,
    counters: NodeCounters,
}

/// Nodes, each with ways out to others that were there before it: so no way leads
/// round, each node takes one list of a batch at most, and the work of a batch is
/// bounded by nodes times frames.
pub struct Graph {
    places: Vec<Place>,
    waiting: Box<[Set; NODES_MAX]>,
    drops: Drops,
    receivers: Receivers,
    clock: fn() -> Nanos,
    out: Out,
    /// The node that lists come to first.
    first: usize,
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.counters()).finish()
    }
}

impl Graph {
    /// Without a node; `clock` is for the nodes' times.
    #[must_use]
    pub fn new(clock: fn() -> Nanos) -> Self {
        Self {
            places: Vec::new(),
            waiting: Box::new([Set::EMPTY; NODES_MAX]),
            drops: Drops::default(),
            receivers: Receivers::default(),
            clock,
            out: Out::default(),
            first: NOWHERE.into(),
        }
    }

    /// Adds a node in front of those that its ways out lead to.
    ///
    /// # Errors
    /// There are too many nodes, or ways out of this one.
    pub fn add(&mut self, node: impl Node + 'static, to: &[NodeId]) -> Result<NodeId, GraphError> {
        let name = node.name();
        let number = self.places.len();
        if number >= NODES_MAX {
            return Err(GraphError::Nodes);
        }
        let mut edges = [0; EDGES_MAX];
        if to.len() > EDGES_MAX {
            return Err(GraphError::Edges { node: name, found: to.len() });
        }
        for (edge, to) in edges.iter_mut().zip(to) {
            *edge = to.0;
        }
        let counters = NodeCounters { name, packets: 0, vectors: 0, timed_packets: 0, timed_ns: 0 };
        let (node, given, ways) = (Box::new(node), edges, to.len());
        self.places.push(Place { node, given, edges, ways, counters });
        self.find_ways();
        Ok(NodeId(number as u8))
    }

    /// Takes all frames of a batch through the graph, from the node that was added
    /// last on. What becomes of each stands in the batch afterwards.
    pub fn run(&mut self, batch: &mut Batch, arena: &mut [u8], now: Nanos) {
        if batch.is_empty() || self.first >= self.places.len() {
            return;
        }
        let clock = self.clock;
        self.waiting[self.first] = batch.all();
        // Nodes with a list; ways lead downwards only.
        let mut active: u64 = 1 << self.first;
        let (receivers, drops) = (&self.receivers, &mut self.drops);
        let mut context = Context { now, arena, batch, receivers, drops };
        while active != 0 {
            let number = 63 - active.leading_zeros() as usize;
            active &= !(1 << number);
            let list = std::mem::take(&mut self.waiting[number]);
            let Some(place) = self.places.get_mut(number) else { continue };
            let counters = &mut place.counters;
            let frames = list.len() as u64;
            let timed = counters.vectors.is_multiple_of(TIMED);
            counters.vectors += 1;
            counters.packets += frames;
            let start = if timed { clock() } else { 0 };
            self.out.begin(place.ways);
            place.node.process(&list, &mut context, &mut self.out);
            if timed {
                counters.timed_packets += frames;
                counters.timed_ns += clock().saturating_sub(start);
            }
            for (list, &to) in self.out.lists().iter_mut().zip(&place.edges) {
                if list.is_empty() {
                    continue;
                }
                if let Some(waiting) = self.waiting.get_mut(usize::from(to)) {
                    waiting.merge(list);
                    active |= 1 << to;
                }
                *list = Set::EMPTY;
            }
        }
    }

    /// Has all nodes go by other rules, between two lists: no frame is lost, and what
    /// nodes remember of frames stays.
    pub fn load(&mut self, rules: &Arc<Rules>) {
        for place in &mut self.places {
            place.node.reload(rules);
        }
        self.find_ways();
    }

    /// Finds the ways past nodes that have nothing to do.
    fn find_ways(&mut self) {
        // From the end, so that the ways of a node that is passed are known.
        let mut past: Vec<u8> = Vec::with_capacity(self.places.len());
        for (number, place) in self.places.iter_mut().enumerate() {
            let lead = |to: u8| past.get(usize::from(to)).copied().unwrap_or(to);
            for (edge, &given) in place.edges.iter_mut().zip(&place.given) {
                *edge = lead(given);
            }
            let ways = place.edges.get(..place.ways).unwrap_or(&[]);
            let way = |edge: Edge| ways.get(usize::from(edge.0)).copied().unwrap_or(NOWHERE);
            past.push(place.node.idle().map_or(number as u8, way));
        }
        self.first = past.last().map_or(NOWHERE, |&first| first).into();
    }

    /// Whether a frame that begins with these bytes may be flooded, before it is known where
    /// it goes.
    #[must_use]
    pub fn may_flood(&self, head: &[u8], now: Nanos) -> bool {
        self.places.iter().any(|place| place.node.may_flood(head, now))
    }

    /// A port is no more, and its number may be another's.
    pub fn forget(&mut self, port: PortId) {
        self.receivers.set(port, Takes::default());
        for place in &mut self.places {
            place.node.forget(port);
        }
    }

    /// A port takes this as it is from now on.
    pub fn set_receiver(&mut self, port: PortId, takes: Takes) {
        self.receivers.set(port, takes);
    }

    /// What ports take as it is.
    #[must_use]
    pub fn receivers(&self) -> &Receivers {
        &self.receivers
    }

    /// What the nodes know.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut report = Report::default();
        for place in &self.places {
            place.node.report(&mut report);
        }
        report
    }

    /// What went through the nodes, in the order in which lists do.
    pub fn counters(&self) -> impl Iterator<Item = NodeCounters> + '_ {
        self.places.iter().rev().map(|place| place.counters)
    }

    /// Frames dropped, by reason.
    #[must_use]
    pub fn drops(&self) -> &Drops {
        &self.drops
    }
}

#[cfg(test)]
mod tests;

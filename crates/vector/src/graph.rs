//! The nodes, in the order in which lists go through them.

use crate::batch::{Batch, Nanos, PortId};
use crate::bucket::Buckets;
use crate::news::News;
use crate::node::{Context, EDGES_MAX, Edge, Node, Out};
use crate::reason::Drops;
use crate::receivers::{Receivers, Takes};
use crate::report::Report;
use crate::rules::Rules;
use crate::set::Set;
use std::sync::Arc;

/// Most nodes of a graph.
pub const NODES_MAX: usize = 64;

/// Number of lists of which one is timed: reading the clock takes longer than most nodes take for a
/// frame.
const TIMED: u64 = 64;

/// Way of an idle node that has no way out.
const NOWHERE: u8 = u8::MAX;

/// A node of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeId(u8);

/// Error of a graph that has too many nodes, or of a node that has too many ways out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// Too many nodes.
    #[error("the graph has {NODES_MAX} nodes, expected no more; leave one out")]
    Nodes,
    /// Too many ways out.
    #[error("{node} has {found} ways out, expected at most {EDGES_MAX}")]
    Edges {
        /// Name of the node.
        node: &'static str,
        /// Number of its ways out.
        found: usize,
    },
}

/// Counters of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeCounters {
    /// The node's name.
    pub name: &'static str,
    /// Number of frames.
    pub packets: u64,
    /// Number of lists.
    pub vectors: u64,
    /// Number of frames in the lists that were timed, one list in 64.
    pub timed_packets: u64,
    /// Nanoseconds that the timed lists took.
    pub timed_ns: u64,
}

impl NodeCounters {
    /// Returns the average number of frames per list.
    #[must_use]
    pub fn packets_a_vector(&self) -> f64 {
        self.packets as f64 / self.vectors.max(1) as f64
    }

    /// Returns the average nanoseconds per frame, or `None` if no list was timed.
    #[must_use]
    pub fn ns_a_packet(&self) -> Option<f64> {
        (self.timed_packets > 0).then(|| self.timed_ns as f64 / self.timed_packets as f64)
    }
}

struct Place {
    node: Box<dyn Node>,
    /// Nodes that the ways out were given.
    given: [u8; EDGES_MAX],
    /// Nodes to which the ways out lead now, past idle nodes.
    edges: [u8; EDGES_MAX],
    ways: usize,
    counters: NodeCounters,
}

/// Graph of nodes. Each node has ways out to nodes that were added before it, so the graph has no
/// cycle, and each node processes at most one list per batch. The work for a batch is at most the
/// number of nodes times the number of frames.
pub struct Graph {
    places: Vec<Place>,
    waiting: Box<[Set; NODES_MAX]>,
    drops: Drops,
    receivers: Receivers,
    clock: fn() -> Nanos,
    out: Out,
    /// Number of the node to which lists come first.
    first: usize,
    /// News of the frames so far, if the nodes have twins.
    news: Option<Vec<News>>,
    /// The rules that were loaded last, and the bytes that are left of their rates.
    rules: Arc<Rules>,
    buckets: Buckets,
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.counters()).finish()
    }
}

impl Graph {
    /// Makes a graph without nodes. `clock` measures the time that nodes take.
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
            news: None,
            rules: Arc::default(),
            buckets: Buckets::default(),
        }
    }

    /// Adds a node in front of the nodes to which its ways out lead. Way out number n leads to
    /// `to[n]`.
    ///
    /// # Errors
    /// Returns [`GraphError`] if the graph has too many nodes, or this node too many ways out.
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

    /// Returns the node that was added last. Lists come to it first, so a node in front of the graph
    /// leads there. Returns none if the graph has no node.
    #[must_use]
    pub fn entry(&self) -> Option<NodeId> {
        self.places.len().checked_sub(1).map(|last| NodeId(last as u8))
    }

    /// Passes all frames of a batch through the graph. The node that was added last is the first.
    /// Afterwards the batch has a verdict for each frame.
    pub fn run(&mut self, batch: &mut Batch, arena: &mut [u8], now: Nanos) {
        if batch.is_empty() || self.first >= self.places.len() {
            return;
        }
        let clock = self.clock;
        self.waiting[self.first] = batch.all();
        // Each bit is a node with a list. Ways lead to lower numbers only, so the highest goes
        // first.
        let mut active: u64 = 1 << self.first;
        let (receivers, drops) = (&self.receivers, &mut self.drops);
        let news = self.news.as_mut();
        let mut context = Context { now, arena, batch, receivers, drops, news };
        while active != 0 {
            let number = 63 - active.leading_zeros() as usize;
            active &= !(1 << number);
            let list = std::mem::take(&mut self.waiting[number]);
            let Some(place) = self.places.get_mut(number) else { continue };
            let counters = &mut place.counters;
            let frames = list.len() as u64;
            // One list in many is timed, beginning with the first.
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
            // The node's lists join those that wait at the next nodes.
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

    /// Loads new rules into all nodes. No frame is lost, and the nodes keep their state of earlier
    /// frames. An unchanged rate, of a vif or of a filter with the same name, keeps its remaining
    /// bytes. Twins with the same rules share these bytes.
    pub fn load(&mut self, rules: &Arc<Rules>) {
        self.buckets = match &self.news {
            Some(_) => rules.common_buckets(&self.rules).clone(),
            None => rules.buckets_after(&self.rules, &self.buckets),
        };
        for place in &mut self.places {
            place.node.reload(rules);
            place.node.refill(&self.buckets);
        }
        self.rules = Arc::clone(rules);
        self.find_ways();
    }

    /// Finds the ways past nodes that have nothing to do.
    fn find_ways(&mut self) {
        // The nodes added first are the last ones on the way. So the ways of a node that is passed
        // are known.
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

    /// Returns true if a frame that begins with `head` may be flooded, before its receivers are
    /// known.
    #[must_use]
    pub fn may_flood(&self, head: &[u8], now: Nanos) -> bool {
        self.places.iter().any(|place| place.node.may_flood(head, now))
    }

    /// Collects news for the twins of the nodes, until [`Graph::news`] takes them: at most two
    /// facts per frame. Call it before rules are loaded.
    pub fn has_twins(&mut self) {
        self.news.get_or_insert_default();
    }

    /// Takes the news of the frames since the last call. Keeps their room.
    pub fn news(&mut self) -> impl Iterator<Item = News> + '_ {
        self.news.iter_mut().flat_map(|news| news.drain(..))
    }

    /// Applies the news of twins.
    pub fn hear(&mut self, news: &[News], now: Nanos) {
        for place in self.places.iter_mut().filter(|_| !news.is_empty()) {
            news.iter().for_each(|news| place.node.hear(news, now));
        }
    }

    /// Forgets a port that is gone. Its number may be given to another port.
    pub fn forget(&mut self, port: PortId) {
        self.receivers.set(port, Takes::default());
        for place in &mut self.places {
            place.node.forget(port);
        }
    }

    /// Sets the frames that a port accepts as they are, from now on.
    pub fn set_receiver(&mut self, port: PortId, takes: Takes) {
        self.receivers.set(port, takes);
    }

    /// Returns the frames that ports accept as they are.
    #[must_use]
    pub fn receivers(&self) -> &Receivers {
        &self.receivers
    }

    /// Returns the report of all nodes.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut report = Report::default();
        for place in &self.places {
            place.node.report(&mut report);
        }
        report
    }

    /// Returns the counters of the nodes, in the order in which lists go through them.
    pub fn counters(&self) -> impl Iterator<Item = NodeCounters> + '_ {
        self.places.iter().rev().map(|place| place.counters)
    }

    /// Returns the number of dropped frames, by reason.
    #[must_use]
    pub fn drops(&self) -> &Drops {
        &self.drops
    }
}

#[cfg(test)]
mod tests;

//! Nodes: a node takes its step for a whole list before the next one begins.

use crate::batch::{Batch, Nanos, PortId, Verdict};
use crate::bucket::Buckets;
use crate::news::{Fact, News};
use crate::reason::{Drops, Reason};
use crate::receivers::Receivers;
use crate::report::Report;
use crate::rules::Rules;
use crate::set::Set;
use std::sync::Arc;

/// Most ways out of a node.
pub const EDGES_MAX: usize = 6;

/// A way out of a node: its place among the ways out that the graph was given for the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge(pub u8);

/// Everything that a node works on.
#[derive(Debug)]
pub struct Context<'a> {
    /// Time of the run. All frames have the same time, so that it makes no difference how they were
    /// cut into lists.
    pub now: Nanos,
    /// Arena with the private bytes of frames.
    pub arena: &'a mut [u8],
    /// The frames.
    pub batch: &'a mut Batch,
    /// Kinds of frames that each port accepts as they are.
    pub receivers: &'a Receivers,
    pub(crate) drops: &'a mut Drops,
    /// News for the twins of the nodes, if there are any.
    pub(crate) news: Option<&'a mut Vec<News>>,
}

impl<'a> Context<'a> {
    /// Makes the context for a node that is run by hand, outside of a graph.
    pub fn new(
        now: Nanos,
        arena: &'a mut [u8],
        batch: &'a mut Batch,
        (receivers, drops): (&'a Receivers, &'a mut Drops),
    ) -> Self {
        Self { now, arena, batch, receivers, drops, news: None }
    }

    /// Drops a frame, and counts the reason.
    #[inline]
    pub fn drop(&mut self, frame: u8, reason: Reason) {
        self.drops.count(reason);
        self.batch.decide(frame, Verdict::Drop(reason));
    }

    /// Tells the node's twins of a fact.
    #[inline]
    pub(crate) fn tell(&mut self, fact: Fact) {
        if let Some(news) = &mut self.news {
            news.push(News(fact));
        }
    }
}

/// Ways out for the frames of a list. A frame without a way out stays: it was dropped, merged or
/// delivered.
#[derive(Debug, Default)]
pub struct Out {
    lists: [Set; EDGES_MAX],
    ways: usize,
}

impl Out {
    /// Begins a list of a node that has this many ways out.
    #[inline]
    pub(crate) fn begin(&mut self, ways: usize) {
        self.ways = ways;
    }

    /// Returns the lists for those ways.
    #[inline]
    pub(crate) fn lists(&mut self) -> &mut [Set] {
        self.lists.get_mut(..self.ways).unwrap_or(&mut [])
    }

    /// Sends a frame on. An edge that the node was not given leads nowhere.
    #[inline]
    pub fn to(&mut self, edge: Edge, frame: u8) {
        if let Some(list) = self.lists().get_mut(usize::from(edge.0)) {
            list.insert(frame);
        }
    }

    /// Sends all of `frames` on.
    #[inline]
    pub fn all(&mut self, edge: Edge, frames: &Set) {
        if let Some(list) = self.lists().get_mut(usize::from(edge.0)) {
            list.merge(frames);
        }
    }
}

/// A step that is taken for a list of frames.
pub trait Node: Send {
    /// Returns the node's name in reports.
    fn name(&self) -> &'static str;

    /// Takes the step for each frame of `list`, which is never empty.
    fn process(&mut self, list: &Set, context: &mut Context<'_>, out: &mut Out);

    /// Returns the way out that every frame would take, if the node has nothing to do. Lists go
    /// past the node then. The graph asks when a node is added and when rules are loaded.
    fn idle(&self) -> Option<Edge> {
        None
    }

    /// Returns true if the node may flood a frame that begins with `head`. The call learns no
    /// station.
    fn may_flood(&self, head: &[u8], now: Nanos) -> bool {
        let _ = (head, now);
        false
    }

    /// Loads new rules. The node keeps its state of earlier frames.
    fn reload(&mut self, rules: &Arc<Rules>) {
        let _ = rules;
    }

    /// Takes the buckets of the rates in the rules that it obeys.
    fn refill(&mut self, buckets: &Buckets) {
        let _ = buckets;
    }

    /// Applies a fact that a twin learnt from a frame.
    fn hear(&mut self, news: &News, now: Nanos) {
        let _ = (news, now);
    }

    /// Forgets a port that is gone. Its number may be given to another port.
    fn forget(&mut self, port: PortId) {
        let _ = port;
    }

    /// Adds the node's counters to a report.
    fn report(&self, report: &mut Report) {
        let _ = report;
    }
}

/// Decision of a node about one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The frame goes on.
    To(Edge),
    /// The frame goes no further.
    Drop(Reason),
}

/// A step that is taken for one frame at a time.
pub trait Single: Send {
    /// Returns the node's name in reports.
    fn name(&self) -> &'static str;

    /// Takes the step for one frame.
    fn process(&mut self, frame: u8, context: &mut Context<'_>) -> Step;

    /// Returns the way past the node, as [`Node::idle`] does.
    fn idle(&self) -> Option<Edge> {
        None
    }

    /// Loads new rules, as [`Node::reload`] does.
    fn reload(&mut self, rules: &Arc<Rules>) {
        let _ = rules;
    }

    /// Takes buckets, as [`Node::refill`] does.
    fn refill(&mut self, buckets: &Buckets) {
        let _ = buckets;
    }

    /// Forgets a port, as [`Node::forget`] does.
    fn forget(&mut self, port: PortId) {
        let _ = port;
    }

    /// Adds to a report, as [`Node::report`] does.
    fn report(&self, report: &mut Report) {
        let _ = report;
    }
}

/// A node that takes a [`Single`] step for each frame of a list.
#[derive(Debug, Default)]
pub struct Each<T>(pub T);

impl<T: Single> Node for Each<T> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    #[inline]
    fn process(&mut self, list: &Set, context: &mut Context<'_>, out: &mut Out) {
        for frame in list {
            match self.0.process(frame, context) {
                Step::To(edge) => out.to(edge, frame),
                Step::Drop(reason) => context.drop(frame, reason),
            }
        }
    }

    fn idle(&self) -> Option<Edge> {
        self.0.idle()
    }

    fn reload(&mut self, rules: &Arc<Rules>) {
        self.0.reload(rules);
    }

    fn refill(&mut self, buckets: &Buckets) {
        self.0.refill(buckets);
    }

    fn forget(&mut self, port: PortId) {
        self.0.forget(port);
    }

    fn report(&self, report: &mut Report) {
        self.0.report(report);
    }
}

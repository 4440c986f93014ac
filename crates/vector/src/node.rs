//! A step that is taken for a whole list before the next begins.

use crate::batch::{Batch, Nanos, PortId, Verdict};
use crate::reason::{Drops, Reason};
use crate::receivers::Receivers;
use crate::report::Report;
use crate::rules::Rules;
use crate::set::Set;
use std::sync::Arc;

/// Most ways out of a node.
pub const EDGES_MAX: usize = 6;

/// A way out of a node: the number of one of those that the graph was given for
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge(pub u8);

/// What a node works on.
#[derive(Debug)]
pub struct Context<'a> {
    /// The time of the run: the same for all frames, so that it makes no
    /// difference how they were cut into lists.
    pub now: Nanos,
    /// Where the private bytes of frames are.
    pub arena: &'a mut [u8],
    /// The frames.
    pub batch: &'a mut Batch,
    /// What each port takes as it is.
    pub receivers: &'a Receivers,
    pub(crate) drops: &'a mut Drops,
}

impl<'a> Context<'a> {
    /// For a node that is run by hand, outside of a graph.
    pub fn new(
        now: Nanos,
        arena: &'a mut [u8],
        batch: &'a mut Batch,
        (receivers, drops): (&'a Receivers, &'a mut Drops),
    ) -> Self {
        Self { now, arena, batch, receivers, drops }
    }

    /// Drops a frame, and counts why.
    #[inline]
    pub fn drop(&mut self, frame: u8, reason: Reason) {
        self.drops.count(reason);
        self.batch.decide(frame, Verdict::Drop(reason));
    }
}

/// Where the frames of a list go next. What a node gives no way out stays where
/// it is: it was dropped, merged or delivered.
#[derive(Debug, Default)]
pub struct Out {
    lists: [Set; EDGES_MAX],
    ways: usize,
}

impl Out {
    /// Of a node with so many ways out.
    #[inline]
    pub(crate) fn begin(&mut self, ways: usize) {
        self.ways = ways;
    }

    /// The lists of those ways.
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

    /// Sends all of these on.
    #[inline]
    pub fn all(&mut self, edge: Edge, frames: &Set) {
        if let Some(list) = self.lists().get_mut(usize::from(edge.0)) {
            list.merge(frames);
        }
    }
}

/// A node that is given lists.
pub trait Node: Send {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// Takes its step for each frame of `list`, which is never empty.
    fn process(&mut self, list: &Set, context: &mut Context<'_>, out: &mut Out);

    /// The way out that every frame would take, while there is nothing to do here:
    /// lists go past the node then. Asked when rules were loaded.
    fn idle(&self) -> Option<Edge> {
        None
    }

    /// Whether it may flood a frame that begins with these bytes. Nothing is learnt by
    /// asking.
    fn may_flood(&self, head: &[u8], now: Nanos) -> bool {
        let _ = (head, now);
        false
    }

    /// Goes by other rules from now on. What it remembers of frames stays.
    fn reload(&mut self, rules: &Arc<Rules>) {
        let _ = rules;
    }

    /// A port is no more, and its number may be another's.
    fn forget(&mut self, port: PortId) {
        let _ = port;
    }

    /// Adds what it knows to a report.
    fn report(&self, report: &mut Report) {
        let _ = report;
    }
}

/// What a node that is given one frame says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It goes on.
    To(Edge),
    /// It goes no further.
    Drop(Reason),
}

/// A node that is given one frame at a time.
pub trait Single: Send {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// Takes its step for one frame.
    fn process(&mut self, frame: u8, context: &mut Context<'_>) -> Step;

    /// As [`Node::idle`].
    fn idle(&self) -> Option<Edge> {
        None
    }

    /// As [`Node::reload`].
    fn reload(&mut self, rules: &Arc<Rules>) {
        let _ = rules;
    }

    /// As [`Node::forget`].
    fn forget(&mut self, port: PortId) {
        let _ = port;
    }

    /// As [`Node::report`].
    fn report(&self, report: &mut Report) {
        let _ = report;
    }
}

/// Has a node that is written for one frame take its step for each of a list.
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

    fn forget(&mut self, port: PortId) {
        self.0.forget(port);
    }

    fn report(&self, report: &mut Report) {
        self.0.report(report);
    }
}

//! The packets of a turn as one list, and their way through the graph of nodes.

use crate::layout::BURST;
use crate::state::stats::VifStats;
use crate::turn::batch::TxBatch;
use grantway_ports::FramePlace;
use grantway_vector::graph::NodeCounters;
use grantway_vector::reason::Drops;
use grantway_vector::report::Report;
use grantway_vector::{
    BATCH_MAX, Batch, Frame, Graph, Merger, News, PortId, Reason, Rules, Verdict,
};
use std::sync::Arc;
use std::time::Instant;

/// The port beside the vifs: the bridge's uplink, or the port behind a vif.
pub(crate) const UPLINK: PortId = PortId(0);
/// Name of the port beside the vifs in rules.
pub(crate) const UPLINK_NAME: &str = "uplink";

/// Stations behind the uplink that are remembered, if the rules have no number for it. Whole
/// networks may be there.
const UPLINK_STATIONS: u32 = 4096;

/// Port from which the frames of a list come, and port to which they go if it is known before the
/// graph runs.
pub(crate) type Way = (PortId, Option<PortId>);

/// Counters of a graph, and the state of its nodes.
#[derive(Debug, Clone)]
pub struct GraphReport {
    /// The nodes, in the order in which lists pass through them.
    pub nodes: Vec<NodeCounters>,
    /// Frames dropped, by reason.
    pub drops: Drops,
    /// State of the nodes.
    pub known: Report,
}

impl GraphReport {
    /// Adds the report of another worker's graph. State that both graphs know counts once.
    pub(crate) fn add(&mut self, other: &Self) {
        for more in &other.nodes {
            if let Some(node) = self.nodes.iter_mut().find(|node| node.name == more.name) {
                node.packets += more.packets;
                node.vectors += more.vectors;
                node.timed_packets += more.timed_packets;
                node.timed_ns += more.timed_ns;
            }
        }
        self.drops.join(&other.drops);
        self.known.add(&other.known);
    }
}

// Each packet of a turn finds a place in the list: rules see all of them.
const _: () = assert!(BURST <= BATCH_MAX);

/// Rules, as the graphs of all workers have them.
#[derive(Clone)]
pub(crate) struct Loaded {
    rules: Arc<Rules>,
    /// True if the rules judge packets without a bridge, too.
    is_asked: bool,
}

impl Loaded {
    pub fn new(mut rules: Rules) -> Self {
        let is_asked = !rules.is_empty();
        let most = rules.learning.stations.max(UPLINK_STATIONS);
        if let Some(uplink) = rules.vif_mut(UPLINK) {
            uplink.stations.get_or_insert(most);
        }
        Self { rules: Arc::new(rules), is_asked }
    }
}

/// A graph, and the list that goes through it.
pub(crate) struct Lists {
    graph: Graph,
    batch: Batch,
    rules: Arc<Rules>,
    /// True if the rules judge packets without a bridge, too.
    is_asked: bool,
    /// Frame of each packet of the turn, if the packet is in the list.
    frames: [Option<u8>; BURST],
    /// The time that the graph's clock counts from.
    began: Instant,
}

impl Lists {
    pub fn new(graph: Graph, now: Instant) -> Self {
        let mut lists = Self {
            graph,
            batch: Batch::new(),
            rules: Arc::default(),
            is_asked: false,
            frames: [None; BURST],
            began: now,
        };
        lists.load(Loaded::new(Rules::default()));
        lists
    }

    /// Loads other rules, which judge from the next list on.
    pub fn load(&mut self, Loaded { rules, is_asked }: Loaded) {
        (self.rules, self.is_asked) = (rules, is_asked);
        self.graph.load(&self.rules);
    }

    /// Keeps news for the graphs of other workers from now on.
    pub fn has_twins(&mut self) {
        self.graph.has_twins();
    }

    /// Takes the news of the lists since the last call.
    pub fn news(&mut self) -> impl Iterator<Item = News> + '_ {
        self.graph.news()
    }

    /// Takes in what the graphs of other workers learnt.
    pub fn hear(&mut self, news: &[News], now: Instant) {
        if !news.is_empty() {
            let now = now.saturating_duration_since(self.began);
            self.graph.hear(news, now.as_nanos() as u64);
        }
    }

    /// Returns true if the rules judge packets between a guest and its own port.
    pub fn are_asked(&self) -> bool {
        self.is_asked
    }

    /// Returns true if a frame that `from` floods reaches `to`.
    pub fn may_pass(&self, from: PortId, to: PortId) -> bool {
        self.rules.may_pass(from, to)
    }

    /// Returns true if a frame that begins with `head` may be flooded. Learns nothing.
    pub fn may_flood(&self, head: &[u8], now: Instant) -> bool {
        let now = now.saturating_duration_since(self.began);
        self.graph.may_flood(head, now.as_nanos() as u64)
    }

    /// Forgets a port that is gone.
    pub fn forget(&mut self, port: PortId) {
        self.graph.forget(port);
    }

    /// Passes the packets of a turn that are sent on through the graph. At most `private` bytes of
    /// each are private.
    pub fn run_heads(
        &mut self,
        batch: &TxBatch,
        private: usize,
        arena: &mut [u8],
        (from, to): Way,
        now: Instant,
    ) {
        self.batch.clear();
        self.frames = [None; BURST];
        for packet in batch.all_outgoing(private) {
            // The arena is small, and a turn has no more packets than a byte counts.
            let (at, token) = (packet.at() as u32, packet.number() as u32);
            let (head, len) = (packet.private() as u32, packet.len() as u32);
            let number = self.batch.len();
            let frame = Frame { at, head, len, token, offload: packet.offload(), from };
            if self.batch.push(frame).is_ok()
                && let Some(of) = self.frames.get_mut(packet.number())
            {
                *of = Some(number as u8);
            }
        }
        self.run(arena, to, now);
    }

    /// Merges segments and datagrams of the list for receivers that take large frames. Returns false
    /// if it did not look for any, since the list's ends are none.
    pub fn merge(&mut self, merger: &mut Merger, arena: &mut [u8]) -> bool {
        merger.link(&mut self.batch, arena)
    }

    /// Returns true if other frames were merged into `frame`.
    pub fn is_merged(&self, frame: u8) -> bool {
        self.batch.link(frame).is_some()
    }

    /// Iterates over a frame and those that were merged into it. Yields each with the number of
    /// bytes at its start that are left out; a frame's token is its packet's number.
    pub fn pieces(&self, frame: u8) -> impl Iterator<Item = (&Frame, u32)> {
        self.batch.pieces(frame)
    }

    /// Returns the number of frames in the list.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// A frame as it is by now.
    pub fn frame(&self, frame: u8) -> &Frame {
        self.batch.frame(frame)
    }

    /// The frame that a packet of the turn is.
    pub fn frame_of(&self, packet: usize) -> Option<u8> {
        self.frames.get(packet).copied().flatten()
    }

    /// Takes these frames, all of each in private memory, through the graph: the
    /// number of each is its place in the list.
    pub fn run_whole(
        &mut self,
        arena: &mut [u8],
        frames: &[FramePlace],
        (from, to): Way,
        now: Instant,
    ) {
        self.batch.clear();
        for &FramePlace { at, meta } in frames {
            let (at, len) = (at as u32, meta.len as u32);
            // A burst at most.
            let _ = self.batch.push(Frame {
                at,
                head: len,
                len,
                token: 0,
                offload: meta.offload,
                from,
            });
        }
        self.run(arena, to, now);
    }

    fn run(&mut self, arena: &mut [u8], to: Option<PortId>, now: Instant) {
        if let Some(to) = to {
            for frame in &self.batch.all() {
                self.batch.decide(frame, Verdict::To(to));
            }
        }
        let now = now.saturating_duration_since(self.began);
        self.graph.run(&mut self.batch, arena, now.as_nanos() as u64);
        if to.is_some() {
            // Where a vif has a port of its own, all of its frames go through this graph.
            self.graph.news().for_each(drop);
        }
    }

    /// Returns the verdict on a frame.
    #[inline]
    pub fn verdict(&self, frame: u8) -> Verdict {
        self.batch.verdict(frame)
    }

    /// Counts the frames from `first` on that have the same verdict and the same queue, within the
    /// first `frames` of the list. Returns 1 or more.
    pub fn alike(&self, first: usize, frames: usize) -> usize {
        self.batch.alike(first, frames)
    }

    /// The receiver's queue that a filter chose.
    #[inline]
    pub fn queue(&self, frame: u8) -> Option<u16> {
        self.batch.queue(frame)
    }

    /// Returns the counters and the state of the graph, with the merger behind it.
    pub fn report(&self, merger: Option<&Merger>) -> GraphReport {
        let mut report = GraphReport {
            nodes: self.graph.counters().collect(),
            drops: self.graph.drops().clone(),
            known: self.graph.report(),
        };
        if let Some(merger) = merger {
            report.nodes.extend(merger.counters());
            report.known.merged += merger.merged();
        }
        report
    }
}

/// Counts packets that a guest sent and that the graph ended, by the verdict on them.
pub(crate) fn count_dropped(stats: &VifStats, verdict: Verdict, packets: u64) {
    let counter = match verdict {
        Verdict::Drop(Reason::Hairpin) => &stats.tx_dropped_back,
        _ => &stats.tx_dropped_rules,
    };
    VifStats::add(counter, packets);
}

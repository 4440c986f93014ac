//! Merges TCP segments and UDP datagrams of a burst for receivers that accept large frames.

use crate::batch::{Batch, Frame, Nanos, PortId, Verdict};
use crate::graph::{Graph, NodeCounters};
use crate::path::merging;
use crate::receivers::Takes;
use crate::set::BATCH_MAX;
use arrayvec::ArrayVec;
use grantway_netif::headers::{Payload, payload, protocol::TCP, protocol::UDP};
use grantway_ports::{FrameMeta, FramePlace, Port, PortError, RECV_BUFFER, SentBurst};

/// Number of the port to which a burst goes.
const PORT: PortId = PortId(0);
/// Longest frame whose TCP segment is too small to be worth a look, in bytes: an acknowledgement.
const SHORT: usize = 128;

/// Merges the segments of one turn, and the datagrams if the receiver accepts them merged. No frame
/// waits for others, and frames of a flow stay in their order.
#[derive(Debug)]
pub struct Merger {
    graph: Graph,
    batch: Batch,
    /// Room for ports that want a merged frame in one piece.
    room: Box<[u8]>,
}

impl Merger {
    /// Makes a merger. `clock` is for the report.
    #[must_use]
    pub fn new(clock: fn() -> Nanos) -> Self {
        let mut graph = merging(clock);
        graph.set_receiver(PORT, Takes::ALL);
        let room = vec![0; RECV_BUFFER].into_boxed_slice();
        Self { graph, batch: Batch::new(), room }
    }

    /// Gives the frames at these places of `arena` to a port that wants them merged, as
    /// [`Port::send_burst`] does. Datagrams are merged if the port wants that, too. Frames that can
    /// be merged are given as one frame, by its pieces. Headers in the arena are changed.
    ///
    /// # Errors
    /// Returns an error if the port cannot be used any more.
    pub fn send_burst(
        &mut self,
        port: &mut dyn Port,
        arena: &mut [u8],
        frames: &[FramePlace],
    ) -> Result<SentBurst, PortError> {
        let ends = [frames.first(), frames.last()];
        let udp = port.caps().wants_merged_udp;
        let looks = |place: &FramePlace| looks(place.bytes(arena), place.meta.len, || udp);
        if frames.len() < 2 || !ends.into_iter().flatten().any(looks) {
            return port.send_burst(arena, frames);
        }
        if self.graph.receivers().of(PORT).udp != udp {
            self.graph.set_receiver(PORT, Takes { udp, ..Takes::ALL });
        }
        let mut sent = SentBurst::default();
        for frames in frames.chunks(BATCH_MAX) {
            self.fill(frames);
            self.graph.run(&mut self.batch, arena, 0);
            self.give(port, arena, &mut sent)?;
        }
        Ok(sent)
    }

    /// Links frames of a batch whose verdicts are known, for ports that accept large frames.
    /// Returns true if the graph looked at the batch. If nothing is to be merged, only two frames
    /// are looked at.
    pub fn link(&mut self, batch: &mut Batch, arena: &mut [u8]) -> bool {
        // The number of each frame of a batch fits `u8`.
        let last = batch.len().saturating_sub(1) as u8;
        let receivers = self.graph.receivers();
        let looks = last > 0
            && [0, last].into_iter().any(|number| {
                let frame = batch.frame(number);
                let udp = || receivers.takes_udp(batch.verdict(number));
                looks(frame.bytes(arena), frame.len as usize, udp)
            });
        if looks {
            self.graph.run(batch, arena, 0);
        }
        looks
    }

    /// Sets the frames that a port of batches accepts as they are, from now on.
    pub fn set_receiver(&mut self, port: PortId, takes: Takes) {
        self.graph.set_receiver(port, takes);
    }

    /// Returns the counters of the nodes.
    pub fn counters(&self) -> impl Iterator<Item = NodeCounters> + '_ {
        self.graph.counters()
    }

    /// Returns the number of segments that were merged into others.
    #[must_use]
    pub fn merged(&self) -> u64 {
        self.graph.report().merged
    }

    /// Makes a batch of frames that are all in private memory.
    fn fill(&mut self, frames: &[FramePlace]) {
        self.batch.clear();
        for &FramePlace { at, meta: FrameMeta { len, offload } } in frames {
            // An arena is far below 4 GiB, and the number of each frame of a batch fits `u8`.
            let (at, len, number) = (at as u32, len as u32, self.batch.len() as u8);
            let frame = Frame { at, head: len, len, token: 0, offload, from: PORT };
            if self.batch.push(frame).is_ok() {
                self.batch.decide(number, Verdict::To(PORT));
            }
        }
    }

    /// Gives the batch's frames to the port, merged ones in pieces.
    fn give(
        &mut self,
        port: &mut dyn Port,
        arena: &[u8],
        sent: &mut SentBurst,
    ) -> Result<(), PortError> {
        let Self { batch, room, .. } = self;
        for number in &batch.all() {
            let frame = batch.frame(number);
            if batch.verdict(number) == Verdict::Merged {
                continue;
            }
            if batch.link(number).is_none() {
                let bytes = frame.bytes(arena);
                sent.count(port.send(bytes, frame.offload), 1, bytes.len())?;
                continue;
            }
            let mut pieces = ArrayVec::<&[u8], BATCH_MAX>::new();
            let mut bytes = 0;
            for (piece, skip) in batch.pieces(number) {
                bytes += piece.len as usize;
                // A frame has no more pieces than a batch has frames.
                pieces.push(piece.bytes(arena).get(skip as usize..).unwrap_or(&[]));
            }
            let before = sent.taken;
            sent.count(port.send_pieces(&pieces, frame.offload, room), pieces.len(), bytes)?;
            sent.merged += sent.taken - before;
        }
        Ok(())
    }
}

/// Returns true if a frame of `len` bytes that begins with `head` is a TCP segment worth a look, or
/// UDP for a receiver that accepts datagrams merged (`udp`). If neither the first nor the last
/// frame of a burst is one, nothing is merged. So a burst of anything else costs next to nothing.
fn looks(head: &[u8], len: usize, udp: impl Fn() -> bool) -> bool {
    let protocol = match payload(head) {
        Payload::Ipv4(at) => head.get(at + 9),
        Payload::Ipv6(at) => head.get(at + 6),
        Payload::Other | Payload::Truncated => None,
    };
    match protocol {
        Some(&TCP) => len > SHORT,
        Some(&UDP) => udp(),
        _ => false,
    }
}

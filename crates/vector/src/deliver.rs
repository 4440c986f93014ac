//! Delivery of a batch's frames by their verdicts. Each receiver gets a copy, cut and finished if
//! it does not accept the frame as it is.

use crate::batch::{Batch, Frame, PortId, Verdict};
use crate::reason::{Drops, Reason};
use crate::receivers::{Receivers, Takes};
use crate::rules::Rules;
use grantway_netif::{Checksum, Offload};
use grantway_ports::RECV_BUFFER;
use grantway_ports::finish::{SegmentChecksum, Segments, finish_checksum};

/// Receiver of all deliveries of a batch.
pub trait Sink {
    /// Takes a private frame, finished as far as the port needs it. `queue` is the port's queue for
    /// the frame, if a filter chose one.
    fn whole(&mut self, to: PortId, queue: Option<u16>, frame: &[u8], offload: Offload);

    /// Takes a frame of which a part is where the buffer policy has it. Its pieces are
    /// [`Batch::pieces`]. The frame is given even if the port does not accept it as it is.
    fn handle(&mut self, to: PortId, queue: Option<u16>, batch: &Batch, frame: u8);
}

/// Carries verdicts out, in the batch's order.
#[derive(Debug)]
pub struct Delivery {
    whole: Box<[u8]>,
    segment: Box<[u8]>,
    drops: Drops,
}

impl Default for Delivery {
    fn default() -> Self {
        let buffer = || vec![0; RECV_BUFFER].into_boxed_slice();
        Self { whole: buffer(), segment: buffer(), drops: Drops::default() }
    }
}

impl Delivery {
    /// Gives each frame to its receivers. A flooded frame goes to those `members` that it may
    /// reach.
    pub fn run(
        &mut self,
        (batch, arena): (&Batch, &[u8]),
        (rules, receivers): (&Rules, &Receivers),
        members: &[PortId],
        sink: &mut dyn Sink,
    ) {
        for (number, verdict) in batch.deliveries() {
            let from = batch.frame(number).from;
            let one;
            let to: &[PortId] = match verdict {
                Verdict::To(port) => {
                    one = [port];
                    &one
                }
                _ => members,
            };
            let flooded = verdict == Verdict::Flood;
            let may = |to: &&PortId| !flooded || (**to != from && rules.may_pass(from, **to));
            for &to in to.iter().filter(may) {
                self.give((batch, arena), number, (to, receivers.of(to)), sink);
            }
        }
    }

    fn give(
        &mut self,
        (batch, arena): (&Batch, &[u8]),
        number: u8,
        (to, takes): (PortId, Takes),
        sink: &mut dyn Sink,
    ) {
        let queue = batch.queue(number);
        let frame = batch.frame(number);
        if !batch.pieces(number).all(|(piece, _)| piece.is_private()) {
            return sink.handle(to, queue, batch, number);
        }
        let bytes = match batch.link(number) {
            None => frame.bytes(arena),
            Some(_) => match gather(batch, number, arena, &mut self.whole) {
                Some(bytes) => bytes,
                None => return self.drops.count(Reason::Unfinishable),
            },
        };
        if given(bytes, frame, takes, &mut self.segment, &mut |bytes, offload| {
            sink.whole(to, queue, bytes, offload);
        })
        .is_none()
        {
            self.drops.count(Reason::Unfinishable);
        }
    }

    /// Returns the number of frames that could not be finished.
    #[must_use]
    pub fn drops(&self) -> &Drops {
        &self.drops
    }
}

/// Copies a frame and the payloads that were merged into it, one piece after the other. Returns
/// none if a piece is too short, or the room too small.
fn gather<'a>(batch: &Batch, number: u8, arena: &[u8], room: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut end = 0;
    for (piece, skip) in batch.pieces(number) {
        let bytes = piece.bytes(arena).get(skip as usize..)?;
        room.get_mut(end..end + bytes.len())?.copy_from_slice(bytes);
        end += bytes.len();
    }
    room.get(..end)
}

/// Gives a frame as it is, or finished, or in segments. Returns none if that is impossible.
fn given(
    bytes: &[u8],
    frame: &Frame,
    takes: Takes,
    room: &mut [u8],
    give: &mut dyn FnMut(&[u8], Offload),
) -> Option<()> {
    let offload = frame.offload;
    match offload.gso {
        Some(gso) if !takes.gso(gso) => {
            let checksum = match takes.checksum {
                true => SegmentChecksum::Partial,
                false => SegmentChecksum::Whole,
            };
            let mut segments = Segments::new(bytes, gso, checksum).ok()?;
            while let Some(segment) = segments.next_into(room).ok()? {
                give(room.get(..segment.len)?, segment.offload);
            }
        }
        None if offload.checksum == Checksum::Partial && !takes.checksum => {
            let copy = room.get_mut(..bytes.len())?;
            copy.copy_from_slice(bytes);
            finish_checksum(copy).ok()?;
            give(copy, Offload { checksum: Checksum::Complete, gso: None });
        }
        _ => give(bytes, offload),
    }
    Some(())
}

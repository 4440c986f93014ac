//! Frames that are written to private memory.

use super::{HEAD, TestFrames};
use crate::testframe::{SEQUENCE_IN_TAG, TaggedAt};

impl TestFrames {
    /// Returns the number of frames made of one flow; 0 if the flow is not one of these.
    pub(crate) fn made_of(&self, flow: u16) -> u64 {
        let at = flow.checked_sub(self.stream.first).map(usize::from);
        at.and_then(|at| self.stream.sequences.get(at)).copied().unwrap_or(0)
    }

    /// Writes the next frame. Returns false, and takes no frame, at the end or if `buf` is shorter
    /// than a frame.
    #[inline]
    pub(crate) fn next_into(&mut self, buf: &mut [u8]) -> bool {
        let Some(frame) = buf.get_mut(..self.size) else {
            return false;
        };
        let at = self.stream.flow;
        let Some(stamp) = self.advance() else {
            return false;
        };
        write_frame(frame, &self.stream.heads[at], &self.pattern, self.tagged, stamp.sequence);
        true
    }

    /// Writes a frame into each room, which is as long as a frame. The first `kept` rooms hold
    /// frames of these already: there only the head is written.
    pub(crate) fn fill<'a>(&mut self, rooms: impl Iterator<Item = &'a mut [u8]>, kept: usize) {
        let Self { pattern, tagged, stream, .. } = self;
        for (number, room) in rooms.enumerate() {
            let written = if number < kept { pattern.len().min(HEAD) } else { pattern.len() };
            let (at, frame) = (stream.flow, &mut room[..written]);
            let sequence = stream.sequences[at];
            write_frame(frame, &stream.heads[at], &pattern[..written], *tagged, sequence);
            stream.sequences[at] = sequence + 1;
            stream.flow = if at + 1 == stream.sequences.len() { 0 } else { at + 1 };
            stream.made += 1;
        }
    }

    /// Returns a frame of `flow` with sequence 0. Returns `None` if the flow is not one of these.
    pub(crate) fn template(&self, flow: u16) -> Option<Vec<u8>> {
        let at = flow.checked_sub(self.stream.first)?;
        let head = self.stream.heads.get(usize::from(at))?;
        let mut frame = self.pattern.clone();
        let len = frame.len().min(HEAD);
        frame[..len].copy_from_slice(&head[..len]);
        Some(frame)
    }
}

/// Writes as much of a frame as the pattern has.
#[inline]
fn write_frame(
    frame: &mut [u8],
    head: &[u8; HEAD],
    pattern: &[u8],
    tagged: Option<TaggedAt>,
    sequence: u64,
) {
    match frame.split_first_chunk_mut::<HEAD>() {
        Some((start, rest)) => {
            *start = *head;
            if !rest.is_empty() {
                rest.copy_from_slice(&pattern[HEAD..]);
            }
        }
        None => frame.copy_from_slice(&head[..pattern.len()]),
    }
    stamp(frame, tagged, sequence);
}

/// Writes the sequence of a frame, if it carries one.
#[inline]
pub(crate) fn stamp(frame: &mut [u8], tagged: Option<TaggedAt>, sequence: u64) {
    let Some(at) = tagged else { return };
    let at = at.offset() + SEQUENCE_IN_TAG;
    if let Some(field) = frame.get_mut(at..at + 8) {
        field.copy_from_slice(&sequence.to_be_bytes());
    }
}

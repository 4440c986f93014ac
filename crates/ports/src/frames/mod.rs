//! Numbered test frames, for [`Generator`](crate::Generator) and for guests without an operating
//! system.
//!
//! The head of each flow's frames is built once, and the rest is one pattern for all. Only the
//! sequence is written per frame.

mod config;
mod heads;
mod run;
#[cfg(feature = "std")]
mod written;

use crate::testframe::TaggedAt;
use alloc::vec;
use alloc::vec::Vec;
use heads::head;
use run::Ahead;

#[cfg(feature = "std")]
pub(crate) use config::MAX_FLOWS;
pub use config::{GeneratorConfig, GeneratorError};
pub use run::Run;
#[cfg(feature = "std")]
pub(crate) use written::stamp;

/// Length of the bytes that are kept per flow: all headers and the tag, in one cache line.
const HEAD: usize = 64;

/// Flow and sequence of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Number of the flow, from 0.
    pub flow: u16,
    /// Number of the frame within its flow, from 0.
    pub sequence: u64,
}

/// Numbered test frames of some flows, made one after the other. They have no rate: a
/// [`Generator`](crate::Generator) adds bursts, rates and windows.
pub struct TestFrames {
    size: usize,
    /// Frames to make; `None` for no end.
    count: Option<u64>,
    pub(crate) tagged: Option<TaggedAt>,
    /// Payload of all frames: byte n is n, for the whole size.
    pattern: Vec<u8>,
    pub(crate) stream: Stream,
}

/// Flows of one queue, and their progress.
#[derive(Default)]
pub(crate) struct Stream {
    /// Number of the first flow.
    pub first: u16,
    heads: Vec<[u8; HEAD]>,
    sequences: Vec<u64>,
    ahead: Ahead,
    /// Index of the next frame's flow, counted from the first.
    flow: usize,
    pub made: u64,
}

impl Stream {
    pub fn new(config: &GeneratorConfig, first: u16) -> Self {
        let flows = config.flows as usize;
        // The number fits: there are at most MAX_FLOWS in all.
        let heads = (0..flows).map(|at| head(config, first + at as u16)).collect();
        Stream { first, heads, sequences: vec![0; flows], ..Stream::default() }
    }
}

impl TestFrames {
    /// Returns frames of which none was made yet.
    ///
    /// # Errors
    /// A value of `config` is out of bounds.
    pub fn new(config: &GeneratorConfig) -> Result<Self, GeneratorError> {
        config.check()?;
        Ok(Self::of(config, Stream::new(config, 0)))
    }

    /// Returns frames that continue from this progress.
    pub(crate) fn of(config: &GeneratorConfig, stream: Stream) -> Self {
        Self {
            size: config.size,
            count: config.count,
            tagged: TaggedAt::of_size(config.size),
            pattern: (0..config.size).map(|n| n as u8).collect(),
            stream,
        }
    }

    /// Returns the number of frames that were made.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.stream.made
    }

    /// Returns true if all of [`count`](GeneratorConfig::count) were made.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.left() == 0
    }

    /// Returns the number of frames that are left to be made.
    pub(crate) fn left(&self) -> u64 {
        self.count.map_or(u64::MAX, |count| count.saturating_sub(self.stream.made))
    }

    /// Takes the next frame's flow and sequence without writing a frame. Returns `None` at the end.
    #[inline]
    pub(crate) fn advance(&mut self) -> Option<Stamp> {
        if self.finished() {
            return None;
        }
        let stream = &mut self.stream;
        let at = stream.flow;
        let sequence = stream.sequences[at];
        stream.sequences[at] = sequence + 1;
        stream.flow = if at + 1 == stream.sequences.len() { 0 } else { at + 1 };
        stream.made += 1;
        // The number fits: there are at most MAX_FLOWS in all.
        Some(Stamp { flow: stream.first + at as u16, sequence })
    }
}

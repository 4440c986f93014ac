//! The check of numbered test frames, which finds lost and damaged ones.

#[cfg(feature = "std")]
mod port;

use crate::testframe::{SEQUENCE_IN_TAG, TAG_LEN, TIME_LEN, Tag, TaggedAt};
#[cfg(feature = "std")]
use crate::timing::Timing;
use alloc::vec;
use alloc::vec::Vec;

#[cfg(feature = "std")]
pub use port::CheckPort;

/// Number of sequences before the newest one that are remembered for each flow.
pub(crate) const WINDOW: u64 = 1024;
const WORDS: usize = (WINDOW / 64) as usize;
/// Largest step ahead that counts as possible. A frame further ahead is corrupt.
const MAX_STEP: u64 = 1 << 32;
/// Length to which a shorter frame may be padded on its way.
const MIN_WIRE: usize = 60;
/// Number of the first bytes that identify a frame.
const HEAD: usize = 64;

/// Settings of a checker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckerConfig {
    /// Most flows that are followed, at most 65,536. A flow takes about 200 bytes of memory as soon
    /// as it, or a flow with a higher number, is seen.
    pub flows: u32,
    /// Interval at which bytes behind the tag are compared: in every n-th frame; 0 for none.
    pub payload_every: u32,
    /// True if each flow is expected to begin with sequence 0. False if it begins with the first
    /// frame seen.
    pub from_zero: bool,
}

impl Default for CheckerConfig {
    fn default() -> Self {
        CheckerConfig { flows: 65_536, payload_every: 64, from_zero: true }
    }
}

/// Judgement of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The frame is the next one of its flow.
    InOrder,
    /// The frame is this number of sequences ahead of the expected one. The frames in between count
    /// as lost until they arrive.
    Ahead(u64),
    /// The frame is late. It was counted as lost, and this is corrected.
    Reordered,
    /// The frame was seen before.
    Duplicated,
    /// The frame is more than 1,024 behind the newest of its flow, or before its first. It is late
    /// or repeated, and the checker cannot tell which.
    Stale,
    /// The frame comes from a generator, but is damaged: wrong length, wrong payload, or an
    /// impossible sequence or flow. It is counted in no flow.
    Corrupt,
    /// The frame does not come from a generator, or is too short for a number.
    Foreign,
}

/// Counts of the frames of one flow, or of all flows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct FlowReport {
    /// Undamaged frames that arrived, late and repeated ones included.
    pub received: u64,
    /// Frames that did not arrive, or arrived so late that they could not be told from repeated
    /// ones.
    pub lost: u64,
    /// Frames that arrived again.
    pub duplicated: u64,
    /// Frames that arrived after a later one of their flow.
    pub reordered: u64,
    /// Frames that are [`Verdict::Stale`].
    pub stale: u64,
}

impl FlowReport {
    /// Returns the sum of two sets of flows.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            received: self.received + other.received,
            lost: self.lost + other.lost,
            duplicated: self.duplicated + other.duplicated,
            reordered: self.reordered + other.reordered,
            stale: self.stale + other.stale,
        }
    }
}

/// Check of a generator's frames, in bounded memory.
#[derive(Debug)]
pub struct Checker {
    config: CheckerConfig,
    flows: Vec<Flow>,
    until_payload: u32,
    corrupt: u64,
    foreign: u64,
    #[cfg(feature = "std")]
    timing: Option<Timing>,
    /// The next frame, if no frame is lost or out of order.
    expected: Option<Expected>,
}

/// The next frame of its flow, by all that is judged of each frame.
#[derive(Debug)]
struct Expected {
    at: TaggedAt,
    tag: Tag,
    /// The tag's bytes before the sequence.
    head: [u8; SEQUENCE_IN_TAG],
}

impl Expected {
    /// Returns the frame that follows the one with this tag.
    fn behind(at: TaggedAt, tag: Tag) -> Self {
        let tag = Tag { sequence: tag.sequence.wrapping_add(1), ..tag };
        let [m0, m1, m2, m3, l0, l1, f0, f1, ..] = tag.encode();
        Self { at, tag, head: [m0, m1, m2, m3, l0, l1, f0, f1] }
    }

    /// Returns true if a frame of `len` bytes that begins with `frame` is the one of this flow and
    /// sequence.
    #[inline]
    fn is(&self, frame: &[u8], len: usize, sequence: u64) -> bool {
        let tag = frame.get(self.at.offset()..).and_then(|rest| rest.first_chunk::<TAG_LEN>());
        let Some([head @ .., s0, s1, s2, s3, s4, s5, s6, s7]) = tag else { return false };
        (len == usize::from(self.tag.length))
            & (*head == self.head)
            & (u64::from_be_bytes([*s0, *s1, *s2, *s3, *s4, *s5, *s6, *s7]) == sequence)
            & (frame[12..14] == self.at.ethertype())
    }
}

#[derive(Debug, Clone)]
struct Flow {
    /// First sequence that is expected at all, once it is known.
    base: Option<u64>,
    /// One past the newest sequence seen.
    next: u64,
    /// Bit s mod WINDOW: true if s, of the last WINDOW sequences before `next`, arrived.
    seen: [u64; WORDS],
    report: FlowReport,
}

impl Flow {
    fn new(base: Option<u64>) -> Flow {
        Flow { base, next: 0, seen: [0; WORDS], report: FlowReport::default() }
    }

    #[inline]
    fn bit(sequence: u64) -> (usize, u64) {
        let n = sequence % WINDOW;
        ((n / 64) as usize, 1 << (n % 64))
    }

    /// Sets `next` to `to`; the sequences that are passed over are unseen and lost.
    fn pass_to(&mut self, to: u64) {
        if to - self.next >= WINDOW {
            self.seen = [0; WORDS];
        } else {
            for sequence in self.next..to {
                let (word, bit) = Flow::bit(sequence);
                self.seen[word] &= !bit;
            }
        }
        self.report.lost += to - self.next;
        self.next = to;
    }

    /// Counts a frame of this sequence, and judges it.
    #[inline]
    fn note(&mut self, sequence: u64) -> Verdict {
        let base = *self.base.get_or_insert_with(|| {
            self.next = sequence;
            sequence
        });
        let (word, bit) = Flow::bit(sequence);
        // The next frame.
        if sequence == self.next {
            self.seen[word] |= bit;
            self.next += 1;
            self.report.received += 1;
            return Verdict::InOrder;
        }
        // A frame ahead: the frames before it count as lost.
        if sequence > self.next {
            let step = sequence - self.next;
            if step > MAX_STEP || sequence == u64::MAX {
                return Verdict::Corrupt;
            }
            self.pass_to(sequence);
            self.seen[word] |= bit;
            self.next += 1;
            self.report.received += 1;
            return Verdict::Ahead(step);
        }
        // A frame from before: it is late, or was seen already.
        self.report.received += 1;
        if sequence < base || self.next - sequence > WINDOW {
            self.report.stale += 1;
            return Verdict::Stale;
        }
        if self.seen[word] & bit != 0 {
            self.report.duplicated += 1;
            return Verdict::Duplicated;
        }
        self.seen[word] |= bit;
        self.report.lost -= 1;
        self.report.reordered += 1;
        Verdict::Reordered
    }
}

impl Checker {
    /// Returns a checker that has seen no frame.
    #[must_use]
    pub fn new(config: CheckerConfig) -> Self {
        let until_payload = config.payload_every;
        Checker {
            config,
            flows: Vec::new(),
            until_payload,
            corrupt: 0,
            foreign: 0,
            #[cfg(feature = "std")]
            timing: None,
            expected: None,
        }
    }

    /// Judges one frame, and counts it.
    #[inline]
    pub fn check(&mut self, frame: &[u8]) -> Verdict {
        self.check_head(frame, frame.len()).unwrap_or_else(|| self.check_any(frame))
    }

    /// Judges a frame of `len` bytes by its first bytes, 64 of which are enough. Returns `None`
    /// unless the frame is the expected one and its payload is not to be compared. It is not judged
    /// then, and the whole frame is needed.
    #[inline]
    fn check_head(&mut self, head: &[u8], len: usize) -> Option<Verdict> {
        let expected = self.expected.as_mut()?;
        let flow = self.flows.get_mut(usize::from(expected.tag.flow))?;
        let sequence = expected.tag.sequence;
        if self.until_payload == 1 || !expected.is(head, len, sequence) {
            return None;
        }
        self.until_payload = self.until_payload.saturating_sub(1);
        expected.tag.sequence = sequence.wrapping_add(1);
        Some(flow.note(sequence))
    }

    /// Judges a frame of `len` bytes in the place where it was received. `copy` copies the first
    /// bytes of the frame into a buffer, as many as fit, and returns their number. It is called for
    /// 64 bytes, and for the whole frame if 64 are not enough.
    #[inline]
    pub fn check_in_place(&mut self, len: usize, copy: impl Fn(&mut [u8]) -> usize) {
        let mut head = [0; HEAD];
        let copied = copy(&mut head);
        let head = head.get(..copied).unwrap_or(&[]);
        if len <= HEAD {
            self.check(head);
        } else if self.check_head(head, len).is_none() {
            let mut whole = vec![0; len];
            copy(&mut whole);
            self.check(&whole);
        }
    }

    fn check_any(&mut self, frame: &[u8]) -> Verdict {
        let Some((at, tag)) = Tag::find(frame) else {
            self.foreign += 1;
            return Verdict::Foreign;
        };
        // A short frame may have been padded on its way.
        let length = usize::from(tag.length);
        let padded = length < frame.len() && frame.len() <= MIN_WIRE;
        let end = at.offset() + TAG_LEN;
        let body = if tag.timed { end + TIME_LEN } else { end };
        let fits = length >= body && (length == frame.len() || padded);
        if !fits || !self.payload_is_whole(&frame[..length.min(frame.len())], body) {
            self.corrupt += 1;
            return Verdict::Corrupt;
        }
        let Some(flow) = self.flow(tag.flow) else {
            self.corrupt += 1;
            return Verdict::Corrupt;
        };
        let verdict = flow.note(tag.sequence);
        // The expectation holds with one flow, or while one flow sends several frames.
        let plain = verdict == Verdict::InOrder && !tag.timed;
        self.expected = plain.then(|| Expected::behind(at, tag));
        if verdict == Verdict::Corrupt {
            self.corrupt += 1;
            return verdict;
        }
        #[cfg(feature = "std")]
        if tag.timed
            && let Some(time) = frame.get(end..).and_then(|rest| rest.first_chunk())
            && let Some(timing) = &mut self.timing
        {
            timing.arrived(*time);
        }
        verdict
    }

    /// Notes that the generator made `made` frames of `flow` and will make no more. Frames behind
    /// the last one seen are lost, too.
    pub fn finish(&mut self, flow: u16, made: u64) {
        if let Some(flow) = self.flow(flow) {
            flow.base.get_or_insert(0);
            if made > flow.next {
                flow.pass_to(made);
            }
        }
    }

    /// Returns the number of damaged frames.
    #[must_use]
    pub fn corrupt(&self) -> u64 {
        self.corrupt
    }

    /// Returns the number of frames that did not come from a generator.
    #[must_use]
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Returns the counts of one flow.
    #[must_use]
    pub fn flow_report(&self, flow: u16) -> FlowReport {
        self.flows.get(usize::from(flow)).map(|f| f.report).unwrap_or_default()
    }

    /// Returns the counts of all flows together.
    #[must_use]
    pub fn total(&self) -> FlowReport {
        let reports = self.flows.iter().map(|flow| flow.report);
        reports.fold(FlowReport::default(), FlowReport::plus)
    }

    #[inline]
    fn flow(&mut self, number: u16) -> Option<&mut Flow> {
        let at = usize::from(number);
        if at >= self.flows.len() {
            if at >= self.config.flows as usize {
                return None;
            }
            let base = self.config.from_zero.then_some(0);
            self.flows.resize(at + 1, Flow::new(base));
        }
        self.flows.get_mut(at)
    }

    #[inline]
    fn payload_is_whole(&mut self, frame: &[u8], body: usize) -> bool {
        if self.config.payload_every == 0 {
            return true;
        }
        self.until_payload -= 1;
        if self.until_payload > 0 {
            return true;
        }
        self.until_payload = self.config.payload_every;
        let bytes = frame.iter().enumerate().skip(body);
        bytes.fold(0, |wrong, (n, &byte)| wrong | (byte ^ n as u8)) == 0
    }
}

impl Default for Checker {
    fn default() -> Self {
        Checker::new(CheckerConfig::default())
    }
}

#[cfg(test)]
mod tests;

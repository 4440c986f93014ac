//! The port that checks the frames that are sent to it.

use super::{Checker, Flow};
use crate::{
    address::Presence,
    clock::Clock,
    port::{
        CheckReport, Counters, FrameMeta, FramePlace, Port, PortCaps, PortControl, PortError,
        PortReport, Probe, Readiness, SendError, SentBurst,
    },
    timing::Timing,
};
use grantway_netif::Offload;

impl Checker {
    /// Returns a checker that also measures the travel time of frames that carry a time. `clock`
    /// must be the clock of their sender.
    #[must_use]
    pub fn timed_by(self, clock: Clock) -> Self {
        Checker { timing: Some(Timing::new(clock)), ..self }
    }

    /// Returns a checker for another queue that has seen no frame.
    fn another(&self) -> Self {
        let timing = self.timing.as_ref().map(Timing::another);
        Checker { timing, ..Checker::new(self.config.clone()) }
    }

    /// Judges frames from the first on, as long as each is the expected one and its payload is not
    /// compared. Returns the number of judged frames.
    fn check_expected(&mut self, arena: &[u8], frames: &[FramePlace]) -> usize {
        let Some(expected) = &mut self.expected else { return 0 };
        let Some(flow) = self.flows.get_mut(usize::from(expected.tag.flow)) else { return 0 };
        if flow.base.is_none() || flow.next != expected.tag.sequence {
            return 0;
        }
        let most = match self.until_payload {
            0 => frames.len(),
            left => frames.len().min(left as usize - 1),
        };
        let first = expected.tag.sequence;
        let next = (first..).zip(&frames[..most]);
        let other = next.take_while(|&(sequence, place)| {
            let frame = place.bytes(arena);
            expected.is(frame, frame.len(), sequence)
        });
        let count = other.count();
        expected.tag.sequence = first.wrapping_add(count as u64);
        flow.pass_in_order(count as u64);
        // The count is at most the frames that were left.
        self.until_payload = self.until_payload.saturating_sub(count as u32);
        count
    }

    /// Returns the travel times of frames in nanoseconds, ascending and to two digits, each with
    /// its number of frames.
    #[must_use]
    pub fn latency(&self) -> Vec<(u64, u64)> {
        self.timing.as_ref().map(Timing::counts).unwrap_or_default()
    }

    /// Returns the findings for a port's report.
    pub(crate) fn report(&self) -> CheckReport {
        CheckReport { total: self.total(), corrupt: self.corrupt, foreign: self.foreign }
    }
}

impl Flow {
    /// Counts the next `count` frames as arrived in order.
    #[inline]
    fn pass_in_order(&mut self, count: u64) {
        let end = self.next + count;
        let mut at = self.next;
        while at < end {
            let (word, bit) = Flow::bit(at);
            let here = (end - at).min(64 - at % 64);
            self.seen[word] |= (bit << (here - 1) << 1).wrapping_sub(bit);
            at += here;
        }
        self.next = end;
        self.report.received += count;
    }
}

/// A [`Checker`] as a port: it checks the frames that are sent to it.
#[derive(Debug, Default)]
pub struct CheckPort {
    checker: Checker,
    presence: Option<Presence>,
    counters: Counters,
}

impl CheckPort {
    /// Returns a port that passes its frames to `checker`.
    #[must_use]
    pub fn new(checker: Checker) -> Self {
        CheckPort { checker, presence: None, counters: Counters::default() }
    }

    /// Returns a port that passes its frames to `checker`, and has an address. It sends a broadcast
    /// from this address when its link comes up, and once per minute. So bridges learn the place of
    /// the address.
    #[must_use]
    pub fn at(checker: Checker, address: [u8; 6], clock: Clock) -> Self {
        let presence = Some(Presence::new(address, clock));
        CheckPort { presence, ..CheckPort::new(checker) }
    }

    /// Returns the checker behind the port.
    #[must_use]
    pub fn checker(&self) -> &Checker {
        &self.checker
    }

    /// Judges a frame of `len` bytes where it was received, as [`Checker::check_in_place`] does.
    #[inline]
    pub fn check_in_place(&mut self, len: usize, copy: impl Fn(&mut [u8]) -> usize) {
        self.checker.check_in_place(len, copy);
        self.counters.count_sent(len);
    }
}

impl Port for CheckPort {
    fn send(&mut self, frame: &[u8], _: Offload) -> Result<(), SendError> {
        self.checker.check(frame);
        self.counters.count_sent(frame.len());
        Ok(())
    }

    fn send_burst(&mut self, arena: &[u8], frames: &[FramePlace]) -> Result<SentBurst, PortError> {
        let mut left = frames;
        while let [first, ..] = left {
            let expected = self.checker.check_expected(arena, left);
            if expected == 0 {
                self.checker.check(first.bytes(arena));
            }
            left = &left[expected.max(1)..];
        }
        let bytes = frames.iter().map(|place| place.meta.len).sum();
        self.counters.count_sent_burst(frames.len(), bytes);
        Ok(SentBurst { taken: frames.len(), bytes, ..SentBurst::default() })
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        let Some(len) = self.presence.as_mut().and_then(|presence| presence.tell(buf)) else {
            return Ok(None);
        };
        self.counters.count_received(len);
        Ok(Some(FrameMeta { len, offload: Offload::default() }))
    }

    fn readiness(&self) -> Readiness<'_> {
        match &self.presence {
            Some(presence) if !presence.is_told() => Readiness::Now,
            _ => Readiness::Idle,
        }
    }

    fn caps(&self) -> PortCaps {
        PortCaps { max_queues: u32::MAX, ..PortCaps::default() }
    }
}

impl PortControl for CheckPort {
    fn set_link(&mut self, up: bool) -> Result<(), PortError> {
        if let Some(presence) = self.presence.as_mut().filter(|_| up) {
            presence.again();
        }
        Ok(())
    }

    /// Opens a queue with a checker of its own, so each flow must keep to one queue. Only the first
    /// queue announces the address to bridges.
    fn another_queue(&mut self) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(Self::new(self.checker.another())))
    }
}

impl Probe for CheckPort {
    fn name(&self) -> &str {
        "check"
    }

    fn report(&self) -> PortReport {
        PortReport {
            checked: Some(self.checker.report()),
            latency: self.checker.latency(),
            ..PortReport::new(self.name(), &self.counters)
        }
    }
}

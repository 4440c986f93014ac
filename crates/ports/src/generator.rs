//! The port that makes numbered test frames.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arrayvec::ArrayVec;
use grantway_netif::Offload;
use grantway_ring::PAGE_SIZE;

use crate::{
    checker::Checker,
    clock::Clock,
    frames::{GeneratorConfig, GeneratorError, MAX_FLOWS, Run, Stamp, Stream, TestFrames, stamp},
    port::{
        BURST, Counters, FrameMeta, FramePlace, Port, PortCaps, PortControl, PortError, PortReport,
        Probe, Readiness, SendError,
    },
    testframe::{MAGIC_TIMED, SEQUENCE_IN_TAG, TAG_LEN, TIME_LEN},
    timing,
};

/// A port that makes numbered frames. Frames that are sent to it are counted and dropped.
///
/// Each further queue makes frames of its own flows. If a queue is closed, the next queue that is
/// opened gets its flows, and continues their numbers.
pub struct Generator {
    config: GeneratorConfig,
    frames: TestFrames,
    schedule: Schedule,
    siblings: Arc<Mutex<Siblings>>,
    clock: Clock,
    /// Checker of the frames that come back, if frames carry times.
    returned: Option<Checker>,
    counters: Counters,
    name: String,
}

/// Time at which frames are due.
#[derive(Debug, Default, Clone, Copy)]
struct Schedule {
    start: Option<Duration>,
    /// Frames that may be made, by the last reading of the clock, the burst or the window.
    allowed: u64,
}

/// State that the queues of one generator share.
struct Siblings {
    /// Number of the first flow that no queue has had.
    next: u32,
    /// Flows of queues that were closed, by their first flow.
    left: BTreeMap<u16, (Stream, Schedule)>,
}

impl Generator {
    /// Returns a generator that has made no frame yet. `clock` is read if there is a rate, and its
    /// first reading is the start of the schedule. It is also read if frames carry times.
    ///
    /// # Errors
    /// A value of `config` is out of bounds.
    pub fn new(config: GeneratorConfig, clock: Clock) -> Result<Self, GeneratorError> {
        config.check()?;
        let siblings = Siblings { next: config.flows, left: BTreeMap::new() };
        let stream = (Stream::new(&config, 0), Schedule::default());
        Ok(Self::with(config, clock, stream, Arc::new(Mutex::new(siblings))))
    }

    fn with(
        config: GeneratorConfig,
        clock: Clock,
        (stream, schedule): (Stream, Schedule),
        siblings: Arc<Mutex<Siblings>>,
    ) -> Self {
        Generator {
            name: format!("generator:size={},flows={}", config.size, config.flows),
            returned: (config.timed > 0).then(|| Checker::default().timed_by(clock.clone())),
            frames: TestFrames::of(&config, stream),
            schedule,
            siblings,
            clock,
            counters: Counters::default(),
            config,
        }
    }

    /// Returns the settings of the generator.
    #[must_use]
    pub fn config(&self) -> &GeneratorConfig {
        &self.config
    }

    /// Returns the number of frames that this queue has made.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.frames.made()
    }

    /// Returns the number of frames made of one flow; 0 if the flow is not one of this queue.
    #[must_use]
    pub fn made_of(&self, flow: u16) -> u64 {
        self.frames.made_of(flow)
    }

    /// Returns true if all of [`count`](GeneratorConfig::count) were made.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.frames.finished()
    }

    /// Returns the offset of the sequence in a frame: 8 bytes, big-endian. Returns `None` if frames
    /// have fewer than 30 bytes, which is too short for a sequence.
    #[must_use]
    pub fn sequence_at(&self) -> Option<usize> {
        self.frames.tagged.map(|at| at.offset() + SEQUENCE_IN_TAG)
    }

    /// Takes the next frame's flow and sequence without writing a frame, for callers that change a
    /// template of their own. Returns `None` at the end.
    #[inline]
    pub fn advance(&mut self) -> Option<Stamp> {
        self.frames.advance()
    }

    /// Writes the next frame and returns its length. Returns 0, and takes no frame, at the end or
    /// if `buf` is shorter than a frame.
    #[inline]
    pub fn next_into(&mut self, buf: &mut [u8]) -> usize {
        if !self.frames.next_into(buf) {
            return 0;
        }
        let size = self.config.size;
        self.write_time(&mut buf[..size]);
        size
    }

    /// Returns a frame of `flow` with sequence 0 as a template. Returns `None` if this queue does
    /// not have the flow.
    #[must_use]
    pub fn template(&self, flow: u16) -> Option<Vec<u8>> {
        self.frames.template(flow)
    }

    /// Writes `sequence` (see [`advance`](Self::advance)) into a copy of a template. A frame that
    /// is too short for a sequence stays unchanged.
    #[inline]
    pub fn patch(&self, frame: &mut [u8], sequence: u64) {
        stamp(frame, self.frames.tagged, sequence);
    }

    /// Returns the frames that may be made now, at most `most` and at most a burst, as
    /// [`TestFrames::run`] does. Afterwards the caller passes the number of frames that it wrote to
    /// [`Generator::made_in_place`].
    pub fn run(&mut self, most: usize) -> Run<'_> {
        let due = self.due_of(most);
        self.frames.run(due)
    }

    /// Notes that the first `frames` frames of the last [`Run`] were made.
    pub fn made_in_place(&mut self, frames: usize) {
        self.frames.made_in_place(frames);
        self.counters.count_burst(frames, self.config.size);
    }

    /// Writes the time at which the frame that was just taken was due, if it is one that carries a
    /// time.
    #[inline]
    fn write_time(&self, frame: &mut [u8]) {
        let (Some(at), every) = (self.frames.tagged, u64::from(self.config.timed)) else { return };
        let number = self.frames.made().saturating_sub(1);
        if every == 0 || !number.is_multiple_of(every) {
            return;
        }
        let tag = at.offset();
        if let Some(magic) = frame.get_mut(tag..tag + 4) {
            magic.copy_from_slice(&MAGIC_TIMED.to_be_bytes());
        }
        if let Some(field) = frame.get_mut(tag + TAG_LEN..tag + TAG_LEN + TIME_LEN) {
            field.copy_from_slice(&timing::encode(self.due_at(number)));
        }
    }

    /// Returns the time at which a frame of this queue was due; now, if there is no schedule.
    fn due_at(&self, number: u64) -> Duration {
        let (rate, burst) = (self.config.rate, u64::from(self.config.burst));
        let Some(start) = self.schedule.start.filter(|_| rate > 0) else { return (self.clock)() };
        let first = u128::from(number - number % burst);
        let nanos = first * 1_000_000_000 / u128::from(rate);
        start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Writes the frames that are due to an arena, of which the first `kept` hold a frame of this
    /// generator already. Returns their number.
    #[inline]
    fn make(
        &mut self,
        arena: &mut [u8],
        frames: &mut ArrayVec<FramePlace, BURST>,
        kept: usize,
    ) -> usize {
        let most = self.due_of(frames.remaining_capacity());
        let size = self.config.size;
        let step = size.next_multiple_of(64);
        let before = self.frames.made();
        if self.config.timed > 0 {
            for room in arena.chunks_exact_mut(step).take(most) {
                self.next_into(room);
            }
        } else {
            self.frames.fill(arena.chunks_exact_mut(step).take(most), kept);
        }
        let made = (self.frames.made() - before) as usize;
        let meta = FrameMeta { len: size, offload: Offload::default() };
        frames.extend((0..made).map(|n| FramePlace { at: n * step, meta }));
        self.counters.count_burst(made, size);
        made
    }

    /// Returns the number of frames that may be made now, at most `most`.
    fn due_of(&mut self, most: usize) -> usize {
        if self.finished() || !self.due() {
            return 0;
        }
        let left = self.schedule.allowed - self.frames.made();
        let left = left.min(self.frames.left());
        usize::try_from(left).unwrap_or(most).min(most)
    }

    /// Returns true if another frame may be made now.
    fn due(&mut self) -> bool {
        let (made, schedule) = (self.frames.made(), &mut self.schedule);
        if self.config.window > 0 {
            schedule.allowed = self.counters.sent.saturating_add(self.config.window.into());
            return made < schedule.allowed;
        }
        if made < schedule.allowed {
            return true;
        }
        let burst = u64::from(self.config.burst);
        if self.config.rate == 0 {
            // At the end of a burst there is no frame, once.
            let fresh = schedule.allowed == 0;
            schedule.allowed = made.saturating_add(burst);
            return fresh;
        }
        let now = (self.clock)();
        let start = *schedule.start.get_or_insert(now);
        let nanos = now.saturating_sub(start).as_nanos();
        let frames = nanos.saturating_mul(u128::from(self.config.rate)) / 1_000_000_000;
        let bursts = u64::try_from(frames).unwrap_or(u64::MAX) / burst + 1;
        schedule.allowed = bursts.saturating_mul(burst);
        made < schedule.allowed
    }
}

impl std::fmt::Debug for Generator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generator")
            .field("config", &self.config)
            .field("made", &self.frames.made())
            .finish_non_exhaustive()
    }
}

impl Port for Generator {
    fn send(&mut self, frame: &[u8], _: Offload) -> Result<(), SendError> {
        if let Some(returned) = &mut self.returned {
            returned.check(frame);
        }
        self.counters.count_sent(frame.len());
        Ok(())
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        if self.finished() || !self.due() {
            return Ok(None);
        }
        match self.next_into(buf) {
            0 => Ok(None),
            len => {
                self.counters.count_received(len);
                Ok(Some(FrameMeta { len, offload: Offload::default() }))
            }
        }
    }

    fn recv_burst(
        &mut self,
        arena: &mut [u8],
        frames: &mut ArrayVec<FramePlace, BURST>,
    ) -> Result<(), PortError> {
        self.make(arena, frames, 0);
        Ok(())
    }

    /// Writes only the bytes that differ, as a program does whose packets lie ready in buffers.
    fn recv_own_burst(
        &mut self,
        arena: &mut [u8],
        kept: &mut usize,
        frames: &mut ArrayVec<FramePlace, BURST>,
    ) -> Result<(), PortError> {
        let made = self.make(arena, frames, *kept);
        *kept = made.max(*kept);
        Ok(())
    }

    fn readiness(&self) -> Readiness<'_> {
        match self.finished() {
            true => Readiness::Idle,
            false => Readiness::Now,
        }
    }

    fn caps(&self) -> PortCaps {
        let (max_queues, short) = (MAX_FLOWS / self.config.flows, self.config.size <= PAGE_SIZE);
        PortCaps { max_queues, short, ..PortCaps::default() }
    }
}

impl PortControl for Generator {
    fn another_queue(&mut self) -> Result<Box<dyn Port>, PortError> {
        let mut siblings = self.siblings.lock().unwrap_or_else(PoisonError::into_inner);
        let left = siblings.left.pop_first().map(|(_, stream)| stream);
        let fresh = || {
            let first = siblings.next;
            let end = first.checked_add(self.config.flows).filter(|end| *end <= MAX_FLOWS)?;
            siblings.next = end;
            let stream = Stream::new(&self.config, u16::try_from(first).ok()?);
            Some((stream, Schedule::default()))
        };
        let stream = left.or_else(fresh);
        let stream = stream.ok_or_else(|| PortError::NoMoreQueues { port: self.name.clone() })?;
        let (clock, siblings) = (Arc::clone(&self.clock), Arc::clone(&self.siblings));
        Ok(Box::new(Self::with(self.config.clone(), clock, stream, siblings)))
    }
}

impl Probe for Generator {
    fn name(&self) -> &str {
        &self.name
    }

    fn report(&self) -> PortReport {
        PortReport {
            checked: self.returned.as_ref().map(Checker::report),
            latency: self.returned.as_ref().map(Checker::latency).unwrap_or_default(),
            ..PortReport::new(&self.name, &self.counters)
        }
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        let stream = mem::take(&mut self.frames.stream);
        let mut siblings = self.siblings.lock().unwrap_or_else(PoisonError::into_inner);
        siblings.left.insert(stream.first, (stream, self.schedule));
    }
}

#[cfg(test)]
mod tests;

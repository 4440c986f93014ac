//! The port that makes numbered test frames.
//!
//! The head of each flow's frames is built once, and the rest is one pattern for all. Only the
//! sequence is written per frame.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arrayvec::ArrayVec;
use etherparse::{EtherType, Ethernet2Header, IpNumber, Ipv4Header, UdpHeader};
use grantway_netif::Offload;
use grantway_ring::PAGE_SIZE;

use crate::{
    checker::Checker,
    clock::Clock,
    port::{
        BURST, Counters, ETHERNET_HEADER, FrameMeta, FramePlace, Port, PortCaps, PortControl,
        PortError, PortReport, Probe, Readiness, SendError,
    },
    testframe::{EXPERIMENTAL, MAGIC_TIMED, SEQUENCE_IN_TAG, TAG_LEN, Tag, TaggedAt, UDP_HEADERS},
    timing::{self, TIME_LEN},
};

mod run;

use run::Ahead;
pub use run::Run;

/// Largest frame in bytes, Ethernet header included.
const MAX_SIZE: usize = 65_535;
/// Most flows: the tag's number of a flow has 16 bits.
const MAX_FLOWS: u32 = 65_536;
/// Length of the bytes that are kept per flow: all headers and the tag, in one cache line.
const HEAD: usize = 64;
/// Length of the smallest frame that can carry a time behind its tag.
const TIMED_SIZE: usize = UDP_HEADERS + TAG_LEN + TIME_LEN;

/// Settings of a generator.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GeneratorConfig {
    /// Length of each frame in bytes, 14 to 65,535: with the Ethernet header, without FCS.
    pub size: usize,
    /// Frames that come together, at least 1. With a rate they are due together. Without a
    /// rate [`Port::recv`] says once after each burst that there is no frame.
    pub burst: u32,
    /// Frames per second from each queue; 0 for as fast as they are asked for. The schedule
    /// does not wait for a slow reader: a late frame is due at once.
    pub rate: u64,
    /// Flows of each queue, taken in turn; 1 to 65,536 over all queues. Each flow has its own
    /// UDP source port and its own sequence from 0.
    pub flows: u32,
    /// Frames to make in each queue; `None` for no end.
    pub count: Option<u64>,
    /// Most frames of a queue that are under way: one has to come back before the next is
    /// made. 0 for no bound. A window takes the place of rate and burst.
    pub window: u32,
    /// Interval of the frames of a queue that carry the time at which they were due: every
    /// n-th, from the first on. Frames that come back are judged and timed. 0 for none.
    /// Needs a size of at least 64 bytes.
    pub timed: u32,
    /// Destination MAC address.
    pub destination: [u8; 6],
    /// Source MAC address.
    pub source: [u8; 6],
}

impl GeneratorConfig {
    /// Checks the bounds of every value.
    ///
    /// # Errors
    /// A value is out of bounds.
    pub fn check(&self) -> Result<(), GeneratorError> {
        if !(ETHERNET_HEADER..=MAX_SIZE).contains(&self.size) {
            return Err(GeneratorError::Size(self.size));
        }
        if self.burst == 0 {
            return Err(GeneratorError::Burst);
        }
        if !(1..=MAX_FLOWS).contains(&self.flows) {
            return Err(GeneratorError::Flows(self.flows));
        }
        if self.window > 0 && self.rate > 0 {
            return Err(GeneratorError::Window { window: self.window, rate: self.rate });
        }
        if self.timed > 0 && self.size < TIMED_SIZE {
            return Err(GeneratorError::Timed(self.size));
        }
        Ok(())
    }
}

impl Default for GeneratorConfig {
    fn default() -> Self {
        GeneratorConfig {
            size: 64,
            burst: 64,
            rate: 0,
            flows: 1,
            count: None,
            window: 0,
            timed: 0,
            destination: [0x02, 0x47, 0x57, 0, 0, 2],
            source: [0x02, 0x47, 0x57, 0, 0, 1],
        }
    }
}

/// Reason for which a generator cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GeneratorError {
    /// The size is out of bounds.
    #[error("generator: size {0}, expected 14 to 65535 bytes (64 is usual)")]
    Size(usize),
    /// The burst is 0.
    #[error("generator: burst 0, expected at least 1 frame (64 is usual)")]
    Burst,
    /// The number of flows is out of bounds.
    #[error("generator: {0} flows, expected 1 to 65536")]
    Flows(u32),
    /// A window and a rate are both given.
    #[error("generator: window {window} with rate {rate}, expected one of them; leave one out")]
    Window {
        /// The window.
        window: u32,
        /// The rate.
        rate: u64,
    },
    /// The frames are too short for a time.
    #[error("generator: size {0} with timed, expected at least 64 bytes, to hold a time")]
    Timed(usize),
}

/// Flow and sequence of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Number of the flow, from 0.
    pub flow: u16,
    /// Number of the frame within its flow, from 0.
    pub sequence: u64,
}

/// A port that makes numbered frames. It counts the frames that are sent to it and forgets them.
///
/// Each further queue makes frames of its own flows. A closed queue leaves its flows to the next
/// one that is opened, which goes on with their numbers.
pub struct Generator {
    config: GeneratorConfig,
    tagged: Option<TaggedAt>,
    /// Payload of all frames: byte n is n, for the whole size.
    pattern: Vec<u8>,
    stream: Stream,
    siblings: Arc<Mutex<Siblings>>,
    clock: Clock,
    /// Checker of the frames that come back, if frames carry times.
    returned: Option<Checker>,
    counters: Counters,
    name: String,
}

/// Flows of one queue, and their progress.
#[derive(Default)]
struct Stream {
    /// Number of the first flow.
    first: u16,
    heads: Vec<[u8; HEAD]>,
    sequences: Vec<u64>,
    ahead: Ahead,
    /// Index of the next frame's flow, counted from the first.
    flow: usize,
    made: u64,
    start: Option<Duration>,
    /// Frames that may be made, by the last reading of the clock, the burst or the window.
    allowed: u64,
}

/// State that the queues of one generator share.
struct Siblings {
    /// Number of the first flow that no queue has had.
    next: u32,
    /// Flows of queues that were closed, by their first flow.
    left: BTreeMap<u16, Stream>,
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
        let stream = Stream::new(&config, 0);
        Ok(Self::with(config, clock, stream, Arc::new(Mutex::new(siblings))))
    }

    fn with(
        config: GeneratorConfig,
        clock: Clock,
        stream: Stream,
        siblings: Arc<Mutex<Siblings>>,
    ) -> Self {
        Generator {
            tagged: TaggedAt::of_size(config.size),
            pattern: (0..config.size).map(|n| n as u8).collect(),
            name: format!("generator:size={},flows={}", config.size, config.flows),
            returned: (config.timed > 0).then(|| Checker::default().timed_by(clock.clone())),
            stream,
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
        self.stream.made
    }

    /// Returns the number of frames made of one flow; 0 if the flow is not one of this queue.
    #[must_use]
    pub fn made_of(&self, flow: u16) -> u64 {
        let at = flow.checked_sub(self.stream.first).map(usize::from);
        at.and_then(|at| self.stream.sequences.get(at)).copied().unwrap_or(0)
    }

    /// Returns true if all of [`count`](GeneratorConfig::count) were made.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.config.count.is_some_and(|count| self.stream.made >= count)
    }

    /// Returns the offset in a frame of the 8 bytes, big-endian, that hold the sequence. Returns
    /// `None` if frames are too short (below 30 bytes) to carry one.
    #[must_use]
    pub fn sequence_at(&self) -> Option<usize> {
        self.tagged.map(|at| at.offset() + SEQUENCE_IN_TAG)
    }

    /// Takes the next frame's flow and sequence without writing a frame, for callers that patch a
    /// template of their own. Returns `None` at the end.
    #[inline]
    pub fn advance(&mut self) -> Option<Stamp> {
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

    /// Writes the next frame and returns its length. Returns 0, and takes no frame, at the end or
    /// if `buf` is shorter than a frame.
    #[inline]
    pub fn next_into(&mut self, buf: &mut [u8]) -> usize {
        let size = self.config.size;
        let Some(frame) = buf.get_mut(..size) else {
            return 0;
        };
        let at = self.stream.flow;
        let Some(stamp) = self.advance() else {
            return 0;
        };
        write_frame(frame, &self.stream.heads[at], &self.pattern, self.tagged, stamp.sequence);
        self.write_time(frame);
        size
    }

    /// Returns a frame of `flow` with sequence 0, to be patched later. Returns `None` if the flow
    /// is not one of this queue.
    #[must_use]
    pub fn template(&self, flow: u16) -> Option<Vec<u8>> {
        let at = flow.checked_sub(self.stream.first)?;
        let head = self.stream.heads.get(usize::from(at))?;
        let mut frame = self.pattern.clone();
        let len = frame.len().min(HEAD);
        frame[..len].copy_from_slice(&head[..len]);
        Some(frame)
    }

    /// Writes `sequence` (see [`advance`](Self::advance)) into a copy of a template. A frame that
    /// is too short for a sequence stays unchanged.
    #[inline]
    pub fn patch(&self, frame: &mut [u8], sequence: u64) {
        stamp(frame, self.tagged, sequence);
    }

    /// Writes the time at which the frame that was just taken was due, if it is one that carries a
    /// time.
    #[inline]
    fn write_time(&self, frame: &mut [u8]) {
        let (Some(at), every) = (self.tagged, u64::from(self.config.timed)) else { return };
        let number = self.stream.made.saturating_sub(1);
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
        let Some(start) = self.stream.start.filter(|_| rate > 0) else { return (self.clock)() };
        let first = u128::from(number - number % burst);
        let nanos = first * 1_000_000_000 / u128::from(rate);
        start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the number of frames that may be made now, at most `most`.
    fn due_of(&mut self, most: usize) -> usize {
        if self.finished() || !self.due() {
            return 0;
        }
        let left = self.stream.allowed - self.stream.made;
        let left = self.config.count.map_or(left, |count| left.min(count - self.stream.made));
        usize::try_from(left).unwrap_or(most).min(most)
    }

    /// Returns true if another frame may be made now.
    fn due(&mut self) -> bool {
        let stream = &mut self.stream;
        if self.config.window > 0 {
            stream.allowed = self.counters.sent.saturating_add(self.config.window.into());
            return stream.made < stream.allowed;
        }
        if stream.made < stream.allowed {
            return true;
        }
        let burst = u64::from(self.config.burst);
        if self.config.rate == 0 {
            // At the end of a burst there is no frame, once.
            let fresh = stream.allowed == 0;
            stream.allowed = stream.made.saturating_add(burst);
            return fresh;
        }
        let now = (self.clock)();
        let start = *stream.start.get_or_insert(now);
        let nanos = now.saturating_sub(start).as_nanos();
        let frames = nanos.saturating_mul(u128::from(self.config.rate)) / 1_000_000_000;
        let bursts = u64::try_from(frames).unwrap_or(u64::MAX) / burst + 1;
        stream.allowed = bursts.saturating_mul(burst);
        stream.made < stream.allowed
    }
}

/// Writes a frame that is as long as the pattern.
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
fn stamp(frame: &mut [u8], tagged: Option<TaggedAt>, sequence: u64) {
    let Some(at) = tagged else { return };
    let at = at.offset() + SEQUENCE_IN_TAG;
    if let Some(field) = frame.get_mut(at..at + 8) {
        field.copy_from_slice(&sequence.to_be_bytes());
    }
}

impl Stream {
    /// Writes a frame into each room, as long as the pattern.
    fn fill<'a>(
        &mut self,
        pattern: &[u8],
        tagged: Option<TaggedAt>,
        rooms: impl Iterator<Item = &'a mut [u8]>,
    ) {
        for room in rooms {
            let (at, frame) = (self.flow, &mut room[..pattern.len()]);
            let sequence = self.sequences[at];
            write_frame(frame, &self.heads[at], pattern, tagged, sequence);
            self.sequences[at] = sequence + 1;
            self.flow = if at + 1 == self.sequences.len() { 0 } else { at + 1 };
            self.made += 1;
        }
    }

    fn new(config: &GeneratorConfig, first: u16) -> Self {
        let flows = config.flows as usize;
        // The number fits: there are at most MAX_FLOWS in all.
        let heads = (0..flows).map(|at| head(config, first + at as u16)).collect();
        Stream { first, heads, sequences: vec![0; flows], ..Stream::default() }
    }
}

/// Returns the head that the frames of a flow share, with sequence 0.
fn head(config: &GeneratorConfig, flow: u16) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    for (n, byte) in head.iter_mut().enumerate() {
        *byte = n as u8;
    }
    head[..6].copy_from_slice(&config.destination);
    head[6..12].copy_from_slice(&config.source);
    head[12..14].copy_from_slice(&EXPERIMENTAL.to_be_bytes());
    let Some(at) = TaggedAt::of_size(config.size) else { return head };
    if at == TaggedAt::Udp {
        head[..UDP_HEADERS].copy_from_slice(&udp_headers(config, flow));
    }
    let tag = Tag { length: config.size as u16, flow, sequence: 0, timed: false }.encode();
    head[at.offset()..at.offset() + TAG_LEN].copy_from_slice(&tag);
    head
}

/// Returns the headers of Ethernet, IPv4 and UDP, from 198.18.0.1 to 198.19.0.1 (the block of RFC
/// 2544). There is no UDP checksum, since the sequence changes.
fn udp_headers(config: &GeneratorConfig, flow: u16) -> [u8; UDP_HEADERS] {
    // The length is at most 65,521, which both length fields hold.
    let datagram = (config.size - ETHERNET_HEADER - 20) as u16;
    let ethernet = Ethernet2Header {
        source: config.source,
        destination: config.destination,
        ether_type: EtherType::IPV4,
    };
    let mut ip = Ipv4Header {
        total_len: 20 + datagram,
        time_to_live: 64,
        protocol: IpNumber::UDP,
        source: [198, 18, 0, 1],
        destination: [198, 19, 0, 1],
        ..Ipv4Header::default()
    };
    ip.header_checksum = ip.calc_header_checksum();
    let udp = UdpHeader { source_port: flow, destination_port: 9, length: datagram, checksum: 0 };
    let mut headers = [0; UDP_HEADERS];
    headers[..14].copy_from_slice(&ethernet.to_bytes());
    headers[14..34].copy_from_slice(&ip.to_bytes());
    headers[34..].copy_from_slice(&udp.to_bytes());
    headers
}

impl std::fmt::Debug for Generator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generator")
            .field("config", &self.config)
            .field("made", &self.stream.made)
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
        let most = self.due_of(frames.remaining_capacity());
        let size = self.config.size;
        let step = size.next_multiple_of(64);
        let before = self.stream.made;
        if self.config.timed > 0 {
            for room in arena.chunks_exact_mut(step).take(most) {
                self.next_into(room);
            }
        } else {
            self.stream.fill(&self.pattern, self.tagged, arena.chunks_exact_mut(step).take(most));
        }
        let made = (self.stream.made - before) as usize;
        let meta = FrameMeta { len: size, offload: Offload::default() };
        frames.extend((0..made).map(|n| FramePlace { at: n * step, meta }));
        self.counters.count_burst(made, size);
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
            Some(Stream::new(&self.config, u16::try_from(first).ok()?))
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
        let stream = mem::take(&mut self.stream);
        let mut siblings = self.siblings.lock().unwrap_or_else(PoisonError::into_inner);
        siblings.left.insert(stream.first, stream);
    }
}

#[cfg(test)]
mod tests;

//! The source of numbered test frames.
//!
//! The head of each flow's frame is built once, the rest is one pattern for
//! all; per frame only the sequence is written.

use std::{os::fd::BorrowedFd, time::Duration};

use etherparse::{EtherType, Ethernet2Header, IpNumber, Ipv4Header, UdpHeader};
use grantway_netif::Offload;

use crate::{
    clock::Clock,
    port::{Counters, ETHERNET_HEADER, FrameMeta, Port, PortError, SendError},
    testframe::{EXPERIMENTAL, SEQUENCE_IN_TAG, TAG_LEN, Tag, TaggedAt, UDP_HEADERS},
};

/// Largest frame in bytes, Ethernet header included.
const MAX_SIZE: usize = 65_535;
/// Most flows: what the tag can number.
const MAX_FLOWS: u32 = 65_536;
/// What is kept per flow: all headers and the tag, in one cache line.
const HEAD: usize = 64;

/// What a generator makes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GeneratorConfig {
    /// Length of each frame in bytes, 14 to 65,535: Ethernet header included,
    /// FCS not.
    pub size: usize,
    /// Frames that come together, at least 1: with a rate they fall due
    /// together, without one [`Port::recv`] says once after each burst that
    /// there is nothing.
    pub burst: u32,
    /// Frames a second; 0 for as fast as they are asked for. The schedule does
    /// not wait for a slow reader: what is late is due at once.
    pub rate: u64,
    /// Flows, 1 to 65,536, taken in turn; each has its own UDP source port and
    /// its own sequence from 0.
    pub flows: u32,
    /// Frames to make in all; `None` for no end.
    pub count: Option<u64>,
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
            destination: [0x02, 0x47, 0x57, 0, 0, 2],
            source: [0x02, 0x47, 0x57, 0, 0, 1],
        }
    }
}

/// Why there is no such generator.
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
}

/// Flow and sequence of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The flow, from 0.
    pub flow: u16,
    /// The frame's number within its flow, from 0.
    pub sequence: u64,
}

/// Makes numbered frames; what is sent to it is counted and forgotten.
pub struct Generator {
    config: GeneratorConfig,
    tagged: Option<TaggedAt>,
    heads: Vec<[u8; HEAD]>,
    /// Byte n is n, for the whole size.
    pattern: Vec<u8>,
    sequences: Vec<u64>,
    flow: usize,
    made: u64,
    clock: Clock,
    start: Option<Duration>,
    /// Frames due by the last look at the clock, or of this burst.
    allowed: u64,
    counters: Counters,
    name: String,
}

impl Generator {
    /// A generator that has made nothing yet. `clock` is only read if there is
    /// a rate, and its first reading is the start of the schedule.
    ///
    /// # Errors
    /// A value of `config` is out of bounds.
    pub fn new(config: GeneratorConfig, clock: Clock) -> Result<Self, GeneratorError> {
        config.check()?;
        let tagged = TaggedAt::of_size(config.size);
        let flows = config.flows as usize;
        let mut generator = Generator {
            heads: Vec::with_capacity(flows),
            pattern: (0..config.size).map(|n| n as u8).collect(),
            sequences: vec![0; flows],
            name: format!("generator:size={},flows={flows}", config.size),
            tagged,
            flow: 0,
            made: 0,
            clock,
            start: None,
            allowed: 0,
            counters: Counters::default(),
            config,
        };
        for flow in 0..flows {
            let head = generator.head(flow as u16);
            generator.heads.push(head);
        }
        Ok(generator)
    }

    /// What it was made with.
    #[must_use]
    pub fn config(&self) -> &GeneratorConfig {
        &self.config
    }

    /// Frames made so far.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Frames made so far of one flow; 0 for a flow that there is not.
    #[must_use]
    pub fn made_of(&self, flow: u16) -> u64 {
        self.sequences.get(usize::from(flow)).copied().unwrap_or(0)
    }

    /// Whether all of [`count`](GeneratorConfig::count) were made.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.config.count.is_some_and(|count| self.made >= count)
    }

    /// Offset in a frame of the 8 bytes, big-endian, that hold the sequence;
    /// `None` where frames are too short (below 30 bytes) to carry one.
    #[must_use]
    pub fn sequence_at(&self) -> Option<usize> {
        self.tagged.map(|at| at.offset() + SEQUENCE_IN_TAG)
    }

    /// The next frame's flow and sequence, taken without writing a frame, for
    /// callers that patch a template of their own. `None` at the end.
    #[inline]
    pub fn advance(&mut self) -> Option<Stamp> {
        if self.finished() {
            return None;
        }
        let flow = self.flow;
        let sequence = self.sequences[flow];
        self.sequences[flow] = sequence + 1;
        self.flow = if flow + 1 == self.sequences.len() { 0 } else { flow + 1 };
        self.made += 1;
        Some(Stamp { flow: flow as u16, sequence })
    }

    /// Writes the next frame and returns its length. Returns 0, and takes no
    /// frame, at the end and where `buf` is shorter than a frame.
    #[inline]
    pub fn next_into(&mut self, buf: &mut [u8]) -> usize {
        let size = self.config.size;
        let Some(frame) = buf.get_mut(..size) else {
            return 0;
        };
        let Some(stamp) = self.advance() else {
            return 0;
        };
        let head = &self.heads[usize::from(stamp.flow)];
        match frame.split_first_chunk_mut::<HEAD>() {
            Some((start, rest)) => {
                *start = *head;
                rest.copy_from_slice(&self.pattern[HEAD..]);
            }
            None => frame.copy_from_slice(&head[..size]),
        }
        self.stamp(frame, stamp.sequence);
        size
    }

    /// A frame of `flow`, with sequence 0, to be patched later; `None` for a
    /// flow that there is not.
    #[must_use]
    pub fn template(&self, flow: u16) -> Option<Vec<u8>> {
        let head = self.heads.get(usize::from(flow))?;
        let mut frame = self.pattern.clone();
        let len = frame.len().min(HEAD);
        frame[..len].copy_from_slice(&head[..len]);
        Some(frame)
    }

    /// Writes `sequence` (see [`advance`](Self::advance)) into a copy of a
    /// template; frames too short for one stay as they are.
    #[inline]
    pub fn patch(&self, frame: &mut [u8], sequence: u64) {
        self.stamp(frame, sequence);
    }

    #[inline]
    fn stamp(&self, frame: &mut [u8], sequence: u64) {
        let Some(at) = self.tagged else { return };
        let at = at.offset() + SEQUENCE_IN_TAG;
        if let Some(field) = frame.get_mut(at..at + 8) {
            field.copy_from_slice(&sequence.to_be_bytes());
        }
    }

    fn head(&self, flow: u16) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        for (n, byte) in head.iter_mut().enumerate() {
            *byte = n as u8;
        }
        let config = &self.config;
        head[..6].copy_from_slice(&config.destination);
        head[6..12].copy_from_slice(&config.source);
        head[12..14].copy_from_slice(&EXPERIMENTAL.to_be_bytes());
        let Some(at) = self.tagged else { return head };
        if at == TaggedAt::Udp {
            head[..UDP_HEADERS].copy_from_slice(&self.udp_headers(flow));
        }
        let tag = Tag { length: config.size as u16, flow, sequence: 0 }.encode();
        head[at.offset()..at.offset() + TAG_LEN].copy_from_slice(&tag);
        head
    }

    /// Ethernet, IPv4 and UDP, from 198.18.0.1 to 198.19.0.1 (the block of
    /// RFC 2544), UDP checksum absent since the sequence changes.
    fn udp_headers(&self, flow: u16) -> [u8; UDP_HEADERS] {
        // At most 65,521, which both length fields hold.
        let datagram = (self.config.size - ETHERNET_HEADER - 20) as u16;
        let ethernet = Ethernet2Header {
            source: self.config.source,
            destination: self.config.destination,
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
        let udp =
            UdpHeader { source_port: flow, destination_port: 9, length: datagram, checksum: 0 };
        let mut headers = [0; UDP_HEADERS];
        headers[..14].copy_from_slice(&ethernet.to_bytes());
        headers[14..34].copy_from_slice(&ip.to_bytes());
        headers[34..].copy_from_slice(&udp.to_bytes());
        headers
    }

    /// Whether another frame may be handed out now.
    fn due(&mut self) -> bool {
        if self.made < self.allowed {
            return true;
        }
        let burst = u64::from(self.config.burst);
        if self.config.rate == 0 {
            // The end of a burst: nothing, this once.
            let fresh = self.allowed == 0;
            self.allowed = self.made.saturating_add(burst);
            return fresh;
        }
        let now = (self.clock)();
        let start = *self.start.get_or_insert(now);
        let nanos = now.saturating_sub(start).as_nanos();
        let frames = nanos.saturating_mul(u128::from(self.config.rate)) / 1_000_000_000;
        let bursts = u64::try_from(frames).unwrap_or(u64::MAX) / burst + 1;
        self.allowed = bursts.saturating_mul(burst);
        self.made < self.allowed
    }
}

impl std::fmt::Debug for Generator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generator")
            .field("config", &self.config)
            .field("made", &self.made)
            .finish_non_exhaustive()
    }
}

impl Port for Generator {
    fn send(&mut self, frame: &[u8], _: Offload) -> Result<(), SendError> {
        self.counters.count_sent(frame.len());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
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

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn always_ready(&self) -> bool {
        !self.finished()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

#[cfg(test)]
mod tests;

//! The one encoder of pcapng blocks (draft-ietf-opsawg-pcapng): little-endian, times in
//! nanoseconds, Ethernet.

use super::record::{COMMENT, DROPCOUNT, FLAGS, NAME, QUEUE, RESOLUTION};
use super::writer::Direction;
use super::{ETHERNET, SNAPLEN};
use std::time::Duration;

/// Type of a section header block.
pub(super) const SECTION: u32 = 0x0a0d_0d0a;
/// Type of an interface description block.
pub(super) const INTERFACE: u32 = 1;
/// Type of an enhanced packet block.
pub(super) const ENHANCED_PACKET: u32 = 6;

/// Byte-order magic of a section header.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// `opt_endofopt`.
const END: u16 = 0;
/// Most bytes of an interface's name, or of a comment, that are written.
const TEXT_MAX: usize = 256;

/// Content of an enhanced packet block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet<'a> {
    /// Time since 1970.
    pub time: Duration,
    /// Number of the interface, from 0 on.
    pub interface: u32,
    /// Bytes that were captured; at most [`SNAPLEN`] are written.
    pub bytes: &'a [u8],
    /// Bytes on the wire; at least those that were captured are written.
    pub length: u32,
    /// A comment; empty for no comment.
    pub comment: &'a str,
    /// Direction of the packet.
    pub direction: Option<Direction>,
    /// Packets that were lost since the one before; not written if 0.
    pub lost: u64,
    /// Queue of the interface.
    pub queue: Option<u32>,
}

/// Encoder of one block at a time.
#[derive(Debug, Default)]
pub(super) struct Block(Vec<u8>);

impl Block {
    /// Encodes a section header: version 1.0, a length that is not known.
    pub(super) fn section(&mut self) -> &[u8] {
        self.begin(SECTION);
        self.words(&[BYTE_ORDER, 1, u32::MAX, u32::MAX]);
        self.end()
    }

    /// Encodes the description of an interface.
    pub(super) fn interface(&mut self, name: Option<&str>) -> &[u8] {
        self.begin(INTERFACE);
        self.words(&[ETHERNET.into(), SNAPLEN]);
        if let Some(name) = name {
            self.option(NAME, clip(name.as_bytes()));
        }
        // Ticks are 10^-9 s.
        self.option(RESOLUTION, &[9]);
        self.option(END, &[]);
        self.end()
    }

    /// Encodes a packet.
    pub(super) fn packet(&mut self, packet: &Packet<'_>) -> &[u8] {
        let nanos = u64::try_from(packet.time.as_nanos()).unwrap_or(u64::MAX);
        let bytes = packet.bytes.get(..SNAPLEN as usize).unwrap_or(packet.bytes);
        // The length is at most SNAPLEN.
        let captured = bytes.len() as u32;
        let length = packet.length.max(captured);
        self.begin(ENHANCED_PACKET);
        self.words(&[packet.interface, (nanos >> 32) as u32, nanos as u32, captured, length]);
        self.padded(bytes);
        let body = self.0.len();
        if !packet.comment.is_empty() {
            self.option(COMMENT, clip(packet.comment.as_bytes()));
        }
        if let Some(direction) = packet.direction {
            self.option(FLAGS, &direction.flags().to_le_bytes());
        }
        if packet.lost > 0 {
            self.option(DROPCOUNT, &packet.lost.to_le_bytes());
        }
        if let Some(queue) = packet.queue {
            self.option(QUEUE, &queue.to_le_bytes());
        }
        if self.0.len() > body {
            self.option(END, &[]);
        }
        self.end()
    }

    /// Begins a block. Its length is filled in at its end.
    fn begin(&mut self, kind: u32) {
        self.0.clear();
        self.words(&[kind, 0]);
    }

    /// Ends the block, and returns it.
    fn end(&mut self) -> &[u8] {
        let length = (self.0.len() as u32 + 4).to_le_bytes();
        if let Some(field) = self.0.get_mut(4..8) {
            field.copy_from_slice(&length);
        }
        self.0.extend(length);
        &self.0
    }

    fn words(&mut self, words: &[u32]) {
        words.iter().for_each(|word| self.0.extend_from_slice(&word.to_le_bytes()));
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        // Values have at most TEXT_MAX bytes.
        self.0.extend_from_slice(&code.to_le_bytes());
        self.0.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.padded(value);
    }
}

fn clip(text: &[u8]) -> &[u8] {
    text.get(..TEXT_MAX).unwrap_or(text)
}

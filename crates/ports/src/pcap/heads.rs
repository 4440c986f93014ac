//! Writing what passes on several interfaces as it happens: heads of packets, and
//! what is said beside them.

use super::record::{COMMENT, DROPCOUNT, FLAGS, QUEUE};
use super::writer::Direction;
use super::{ETHERNET, SNAPLEN};
use std::io::{self, Write};
use std::time::Duration;

/// Most bytes of an interface's name, or of a comment, that are written.
const TEXT_MAX: usize = 256;

const END: u16 = 0;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;

/// The head of a packet, or a comment without one.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// When, since 1970.
    pub time: Duration,
    /// By the number that [`HeadsWriter::interface`] gave.
    pub interface: u32,
    /// Which of the interface's queues.
    pub queue: u32,
    /// Which way it went.
    pub direction: Direction,
    /// Its first bytes.
    pub bytes: &'a [u8],
    /// How many it has.
    pub length: u32,
    /// What is said beside it; nothing where empty.
    pub comment: &'a str,
    /// Packets that were lost since the one before.
    pub lost: u64,
}

/// Writes a pcapng of several interfaces, nanosecond times. Each call writes whole
/// blocks to the sink, which is to buffer them.
#[derive(Debug)]
pub struct HeadsWriter<W> {
    sink: W,
    interfaces: u32,
    block: Vec<u8>,
}

impl<W: Write> HeadsWriter<W> {
    /// Writes the header of the file.
    ///
    /// # Errors
    /// The sink cannot be written.
    pub fn new(sink: W) -> io::Result<Self> {
        let mut writer = Self { sink, interfaces: 0, block: Vec::new() };
        // Byte order, version 1.0, a length that is not known.
        writer.words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]);
        writer.end(0x0a0d_0d0a)?;
        Ok(writer)
    }

    /// Describes one more interface: its number.
    ///
    /// # Errors
    /// The sink cannot be written.
    pub fn interface(&mut self, name: &str) -> io::Result<u32> {
        self.words(&[ETHERNET.into(), SNAPLEN]);
        self.option(IF_NAME, clip(name.as_bytes()));
        self.option(IF_TSRESOL, &[9]);
        self.option(END, &[]);
        self.end(1)?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Writes one.
    ///
    /// # Errors
    /// The sink cannot be written.
    pub fn write(&mut self, head: &Head<'_>) -> io::Result<()> {
        let nanos = u64::try_from(head.time.as_nanos()).unwrap_or(u64::MAX);
        let bytes = head.bytes.get(..SNAPLEN as usize).unwrap_or(head.bytes);
        // At most SNAPLEN.
        let captured = bytes.len() as u32;
        let length = head.length.max(captured);
        self.words(&[head.interface, (nanos >> 32) as u32, nanos as u32, captured, length]);
        self.padded(bytes);
        if !head.comment.is_empty() {
            self.option(COMMENT, clip(head.comment.as_bytes()));
        }
        self.option(FLAGS, &head.direction.flags().to_le_bytes());
        if head.lost > 0 {
            self.option(DROPCOUNT, &head.lost.to_le_bytes());
        }
        self.option(QUEUE, &head.queue.to_le_bytes());
        self.option(END, &[]);
        self.end(6)
    }

    /// Has the sink write out what it keeps.
    ///
    /// # Errors
    /// The sink cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    fn words(&mut self, words: &[u32]) {
        self.block.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        // Values are at most TEXT_MAX.
        self.block.extend(code.to_le_bytes().into_iter().chain((value.len() as u16).to_le_bytes()));
        self.padded(value);
    }

    /// Writes the block, whose body is there.
    fn end(&mut self, kind: u32) -> io::Result<()> {
        let length = self.block.len() as u32 + 12;
        self.words(&[length]);
        self.sink.write_all(&kind.to_le_bytes())?;
        self.sink.write_all(&length.to_le_bytes())?;
        let written = self.sink.write_all(&self.block);
        self.block.clear();
        written
    }
}

fn clip(text: &[u8]) -> &[u8] {
    text.get(..TEXT_MAX).unwrap_or(text)
}

//! A writer for the packets of several interfaces while they pass: the first bytes of packets, and
//! comments.

use super::blocks::{Block, Packet};
use super::writer::Direction;
use std::io::{self, Write};
use std::time::Duration;

/// The head of a packet, or a comment without a packet.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// Time since 1970.
    pub time: Duration,
    /// Number of the interface, from [`HeadsWriter::interface`].
    pub interface: u32,
    /// Queue of the interface.
    pub queue: u32,
    /// Direction of the packet.
    pub direction: Direction,
    /// First bytes of the packet.
    pub bytes: &'a [u8],
    /// Length of the whole packet in bytes.
    pub length: u32,
    /// Comment on the packet; empty for no comment.
    pub comment: &'a str,
    /// Packets that were lost since the one before.
    pub lost: u64,
}

/// Writes a pcapng with several interfaces and times in nanoseconds. Each call writes whole blocks
/// to the sink, which should buffer them.
#[derive(Debug)]
pub struct HeadsWriter<W> {
    sink: W,
    interfaces: u32,
    block: Block,
}

impl<W: Write> HeadsWriter<W> {
    /// Writes the header of the file.
    ///
    /// # Errors
    /// The sink cannot be written.
    pub fn new(sink: W) -> io::Result<Self> {
        let mut writer = Self { sink, interfaces: 0, block: Block::default() };
        writer.sink.write_all(writer.block.section())?;
        Ok(writer)
    }

    /// Describes one more interface, and returns its number.
    ///
    /// # Errors
    /// The sink cannot be written.
    pub fn interface(&mut self, name: &str) -> io::Result<u32> {
        self.sink.write_all(self.block.interface(Some(name)))?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Writes one packet or comment.
    ///
    /// # Errors
    /// The sink cannot be written.
    pub fn write(&mut self, head: &Head<'_>) -> io::Result<()> {
        let &Head { time, interface, queue, direction, bytes, length, comment, lost } = head;
        let (direction, queue) = (Some(direction), Some(queue));
        let packet = Packet { time, interface, bytes, length, comment, direction, lost, queue };
        self.sink.write_all(self.block.packet(&packet))
    }

    /// Has the sink write out its buffer.
    ///
    /// # Errors
    /// The sink cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

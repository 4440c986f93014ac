//! Reader of captures, one record at a time, in bounded memory.
//!
//! The reader reads and bounds a record's length first. Only a record that is whole in the buffer
//! goes to the parser.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use pcap_parser::{
    Block, PcapHeader, parse_block_be, parse_block_le, parse_pcap_frame, parse_pcap_frame_be,
    parse_pcap_header, traits::PcapNGPacketBlock,
};

use super::blocks::{ENHANCED_PACKET, INTERFACE, SECTION};
use super::record::{Options, Record, Ticks, name};
use super::{CaptureError, CaptureFormat, ETHERNET, MAX_RECORD};

/// Bytes read at once.
const CHUNK: usize = 64 * 1024;
/// Most interfaces that a pcapng section may describe.
const MAX_INTERFACES: usize = 4096;

const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;

/// Reads the frames of a pcap or pcapng file in their order.
#[derive(Debug)]
pub struct CaptureReader<R = File> {
    source: Source<R>,
    big_endian: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Pcap {
        /// True if fractions of a second are nanoseconds; false for microseconds.
        nanos: bool,
    },
    PcapNg(Section),
}

/// The section of a pcapng file that is being read.
#[derive(Debug, Default)]
struct Section {
    /// Number of interfaces of the sections before.
    earlier: u32,
    /// Interfaces of this section so far.
    interfaces: Vec<Interface>,
}

#[derive(Debug)]
struct Interface {
    link: u16,
    /// Most bytes captured of a packet; 0 for no limit.
    snaplen: u32,
    ticks: Ticks,
    name: Option<Box<str>>,
}

impl CaptureReader<File> {
    /// Opens a capture, in the format that its first bytes show.
    ///
    /// # Errors
    /// The file is no capture of Ethernet frames, or cannot be read.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let file = File::open(path).map_err(|source| CaptureError::Io {
            path: path.to_owned(),
            operation: "opening it",
            source,
        })?;
        Self::new(file, path)
    }
}

impl<R: Read> CaptureReader<R> {
    /// Reads a capture from any source. `path` is only used in errors.
    ///
    /// # Errors
    /// The source is no capture of Ethernet frames, or cannot be read.
    pub fn new(source: R, path: &Path) -> Result<Self, CaptureError> {
        let mut source = Source::new(source, path);
        let have = source.fill(4)?;
        let magic = source.bytes()[..have.min(4)].to_vec();
        let (big_endian, kind) = match magic[..] {
            [0xd4, 0xc3, 0xb2, 0xa1] => (false, Kind::Pcap { nanos: false }),
            [0x4d, 0x3c, 0xb2, 0xa1] => (false, Kind::Pcap { nanos: true }),
            [0xa1, 0xb2, 0xc3, 0xd4] => (true, Kind::Pcap { nanos: false }),
            [0xa1, 0xb2, 0x3c, 0x4d] => (true, Kind::Pcap { nanos: true }),
            // The byte order is in the section header.
            [0x0a, 0x0d, 0x0d, 0x0a] => (false, Kind::PcapNg(Section::default())),
            _ => {
                return Err(CaptureError::Magic { path: path.to_owned(), found: magic });
            }
        };
        let mut reader = CaptureReader { source, big_endian, kind };
        if let Kind::Pcap { .. } = reader.kind {
            reader.file_header()?;
        }
        Ok(reader)
    }

    /// Returns the file's format.
    #[must_use]
    pub fn format(&self) -> CaptureFormat {
        match self.kind {
            Kind::Pcap { .. } => CaptureFormat::Pcap,
            Kind::PcapNg(_) => CaptureFormat::PcapNg,
        }
    }

    /// Returns the next frame, or `None` at the end of the file. The frame stays valid until the
    /// next call.
    ///
    /// # Errors
    /// The file is damaged or not Ethernet. The rest of it cannot be read.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, CaptureError> {
        let Some(span) = self.next_span()? else { return Ok(None) };
        let frame = self.source.position + span.start;
        self.source.consume(span.record);
        Ok(Some(&self.source.buffer[frame..frame + span.len]))
    }

    /// Returns the next frame with its time, interface and options, or `None` at the end. The
    /// record stays valid until the next call.
    ///
    /// # Errors
    /// The errors of [`next_frame`](Self::next_frame); or the frame's time is not between 1970 and
    /// 2554.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        let Some(span) = self.next_span()? else { return Ok(None) };
        // An interface has its own unit of time.
        let time = match (span.ticks, &self.kind) {
            (Some(ticks), Kind::PcapNg(section)) => {
                let interface = section.interfaces.get(span.interface as usize);
                let Some(time) = interface.and_then(|known| known.ticks.nanos(ticks)) else {
                    return Err(self.source.malformed("a time that is not between 1970 and 2554"));
                };
                Some(time)
            }
            (time, _) => time,
        };
        let (earlier, name) = match &self.kind {
            Kind::PcapNg(section) => {
                let interface = section.interfaces.get(span.interface as usize);
                (section.earlier, interface.and_then(|known| known.name.as_deref()))
            }
            Kind::Pcap { .. } => (0, None),
        };
        let at = self.source.position;
        self.source.consume(span.record);
        let bytes = &self.source.buffer[at..at + span.record];
        // Options lie between the frame's padding and the length that ends the block.
        let end = span.record.saturating_sub(4);
        let options = bytes.get(span.options..end).unwrap_or_default();
        Ok(Some(Record {
            frame: &bytes[span.start..span.start + span.len],
            length: span.length.max(span.len as u32),
            time,
            interface: earlier.saturating_add(span.interface),
            name,
            options: Options { bytes: options, big_endian: self.big_endian },
        }))
    }

    fn next_span(&mut self) -> Result<Option<Span>, CaptureError> {
        match &mut self.kind {
            Kind::Pcap { nanos } => next_record(&mut self.source, self.big_endian, *nanos),
            Kind::PcapNg(section) => next_packet(&mut self.source, &mut self.big_endian, section),
        }
    }

    fn file_header(&mut self) -> Result<(), CaptureError> {
        self.source.need(24)?;
        let (path, offset) = (&self.source.path, self.source.offset);
        let Ok((_, header)) = parse_pcap_header(self.source.bytes()) else {
            return Err(self.source.malformed("the file header does not parse"));
        };
        let PcapHeader { version_major: 2, network, .. } = header else {
            return Err(self.source.malformed("a version of the format other than 2"));
        };
        // The upper bits say that frames have a frame check sequence, which would be sent as
        // payload.
        if network.0 != i32::from(ETHERNET) {
            let found = i64::from(network.0);
            return Err(CaptureError::LinkType { path: path.clone(), offset, found });
        }
        self.source.consume(24);
        Ok(())
    }
}

/// A frame within the record at the source's position.
struct Span {
    start: usize,
    len: usize,
    record: usize,
    /// Number of bytes on the wire.
    length: u32,
    /// Number of the interface in the section.
    interface: u32,
    /// Time in the interface's unit, or in nanoseconds in a pcap file.
    ticks: Option<u64>,
    /// Offset of the options.
    options: usize,
}

fn next_record<R: Read>(
    source: &mut Source<R>,
    big_endian: bool,
    nanos: bool,
) -> Result<Option<Span>, CaptureError> {
    if source.fill(1)? == 0 {
        return Ok(None);
    }
    source.need(16)?;
    let captured = source.u32_at(8, big_endian) as usize;
    let record = captured.saturating_add(16);
    source.need(record)?;
    let [seconds, fraction, length] = [0, 4, 12].map(|at| u64::from(source.u32_at(at, big_endian)));
    let ticks = seconds * 1_000_000_000 + fraction * if nanos { 1 } else { 1000 };
    let parse = if big_endian { parse_pcap_frame_be } else { parse_pcap_frame };
    match parse(source.bytes()) {
        Ok((_, block)) if block.data.len() == captured => Ok(Some(Span {
            start: 16,
            len: captured,
            record,
            length: length as u32,
            interface: 0,
            ticks: Some(ticks),
            options: record,
        })),
        _ => Err(source.malformed("the record does not parse")),
    }
}

fn next_packet<R: Read>(
    source: &mut Source<R>,
    big_endian: &mut bool,
    section: &mut Section,
) -> Result<Option<Span>, CaptureError> {
    while let Some(length) = next_block(source, big_endian, section)? {
        let Some(span) = read_block(source, length, *big_endian, &mut section.interfaces)? else {
            source.consume(length);
            continue;
        };
        return match section.interfaces.get(span.interface as usize) {
            Some(&Interface { link: ETHERNET, .. }) => Ok(Some(span)),
            Some(&Interface { link, .. }) => Err(CaptureError::LinkType {
                path: source.path.clone(),
                offset: source.offset,
                found: i64::from(link),
            }),
            None => Err(source.malformed("a packet of an interface not described")),
        };
    }
    Ok(None)
}

/// Brings the next block of a known type into the window, and skips all others. Returns its length,
/// or none at the end of the file.
fn next_block<R: Read>(
    source: &mut Source<R>,
    big_endian: &mut bool,
    section: &mut Section,
) -> Result<Option<usize>, CaptureError> {
    loop {
        if source.fill(1)? == 0 {
            return Ok(None);
        }
        source.need(12)?;
        let kind = source.u32_at(0, *big_endian);
        // A section may have another byte order, and has its own interfaces.
        if kind == SECTION {
            *big_endian = match source.bytes()[8..12] {
                [0x4d, 0x3c, 0x2b, 0x1a] => false,
                [0x1a, 0x2b, 0x3c, 0x4d] => true,
                _ => return Err(source.malformed("a section without its byte-order magic")),
            };
            section.earlier = section.earlier.saturating_add(section.interfaces.len() as u32);
            section.interfaces.clear();
        }
        // The length is checked before anything is read by it.
        let length = source.u32_at(4, *big_endian) as usize;
        if length < 12 || !length.is_multiple_of(4) {
            return Err(source.malformed("a block length that is below 12 or not a multiple of 4"));
        }
        if !matches!(kind, SECTION | INTERFACE | OBSOLETE_PACKET | SIMPLE_PACKET | ENHANCED_PACKET)
        {
            source.skip(length)?;
            continue;
        }
        source.need(length)?;
        if source.u32_at(length - 4, *big_endian) as usize != length {
            return Err(source.malformed("a block whose two lengths differ"));
        }
        return Ok(Some(length));
    }
}

/// Reads the block at the window's start. An interface is added to the section's. A packet is
/// returned.
fn read_block<R: Read>(
    source: &Source<R>,
    length: usize,
    big_endian: bool,
    interfaces: &mut Vec<Interface>,
) -> Result<Option<Span>, CaptureError> {
    if source.u32_at(0, big_endian) == ENHANCED_PACKET {
        return packet(source, length, big_endian).map(Some);
    }
    let parse = if big_endian { parse_block_be } else { parse_block_le };
    let Ok((_, block)) = parse(&source.bytes()[..length]) else {
        return Err(source.malformed("a block that does not parse"));
    };
    match block {
        Block::SectionHeader(_) => Ok(None),
        Block::InterfaceDescription(found) if interfaces.len() < MAX_INTERFACES => {
            // The link type has 16 bits in the file, so this never wraps.
            let link = found.linktype.0 as u16;
            let options = source.bytes().get(16..length - 4).unwrap_or_default();
            let options = Options { bytes: options, big_endian };
            let (ticks, name) = (Ticks::of(options), name(options));
            interfaces.push(Interface { link, snaplen: found.snaplen, ticks, name });
            Ok(None)
        }
        Block::InterfaceDescription(_) => {
            Err(source.malformed("a section of more than 4096 interfaces"))
        }
        Block::SimplePacket(found) => {
            // A simple packet has no captured length: the first interface's limit bounds it.
            let limit = match interfaces.first() {
                Some(Interface { snaplen, .. }) if *snaplen > 0 => *snaplen as usize,
                _ => usize::MAX,
            };
            Ok(Some(Span {
                start: 12,
                len: found.packet_data().len().min(limit),
                record: length,
                length: found.origlen,
                interface: 0,
                ticks: None,
                options: length,
            }))
        }
        _ => {
            Err(source
                .malformed("an obsolete packet block; rewrite the file with `editcap -F pcapng`"))
        }
    }
}

/// Reads the enhanced packet block at the window's start, which almost all blocks of a large capture
/// are. The parser would put the options of each into memory of its own.
fn packet<R: Read>(
    source: &Source<R>,
    length: usize,
    big_endian: bool,
) -> Result<Span, CaptureError> {
    // Twelve bytes are the block's own, and twenty are the fixed fields.
    if length < 32 {
        return Err(source.malformed("a block that does not parse"));
    }
    let [interface, high, low, captured, length_on_wire] =
        [8, 12, 16, 20, 24].map(|at| source.u32_at(at, big_endian));
    let len = captured as usize;
    let Some(options) = len.checked_next_multiple_of(4).filter(|&padded| padded <= length - 32)
    else {
        return Err(source.malformed("a packet longer than its block"));
    };
    Ok(Span {
        start: 28,
        len,
        record: length,
        length: length_on_wire,
        interface,
        ticks: Some(u64::from(high) << 32 | u64::from(low)),
        options: 28 + options,
    })
}

/// A window on the file, of at most [`MAX_RECORD`] and a chunk.
#[derive(Debug)]
struct Source<R> {
    reader: R,
    path: PathBuf,
    buffer: Vec<u8>,
    /// Start of the unread bytes in `buffer`.
    position: usize,
    /// Offset of the unread bytes in the file.
    offset: u64,
    ended: bool,
}

impl<R: Read> Source<R> {
    fn new(reader: R, path: &Path) -> Self {
        Source {
            reader,
            path: path.to_owned(),
            buffer: Vec::new(),
            position: 0,
            offset: 0,
            ended: false,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.position..]
    }

    /// Reads until `want` bytes are there or the file ends. Returns the number of unread bytes.
    fn fill(&mut self, want: usize) -> Result<usize, CaptureError> {
        let have = self.buffer.len() - self.position;
        if have >= want || self.ended {
            return Ok(have);
        }
        self.buffer.drain(..self.position);
        self.position = 0;
        while self.buffer.len() < want && !self.ended {
            let old = self.buffer.len();
            self.buffer.resize(old + CHUNK, 0);
            let read = self.reader.read(&mut self.buffer[old..]);
            self.buffer.truncate(old + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    let path = self.path.clone();
                    return Err(CaptureError::Io { path, operation: "reading it", source });
                }
            }
        }
        Ok(self.buffer.len())
    }

    /// Reads until a record of `want` bytes is there.
    ///
    /// # Errors
    /// The record is longer than [`MAX_RECORD`], or the file ends before its end.
    fn need(&mut self, want: usize) -> Result<(), CaptureError> {
        let offset = self.offset;
        if want > MAX_RECORD {
            let (path, length) = (self.path.clone(), want as u64);
            return Err(CaptureError::RecordTooLong { path, offset, length });
        }
        let have = self.fill(want)?;
        if have < want {
            let (path, expected, found) = (self.path.clone(), want as u64, have as u64);
            return Err(CaptureError::Truncated { path, offset, expected, found });
        }
        Ok(())
    }

    fn consume(&mut self, len: usize) {
        self.position += len;
        self.offset += len as u64;
    }

    /// Passes over a block of any length, without holding all of it.
    fn skip(&mut self, len: usize) -> Result<(), CaptureError> {
        let start = self.offset;
        let mut left = len;
        while left > 0 {
            let have = self.fill(1)?.min(left);
            if have == 0 {
                return Err(CaptureError::Truncated {
                    path: self.path.clone(),
                    offset: start,
                    expected: len as u64,
                    found: (len - left) as u64,
                });
            }
            self.consume(have);
            left -= have;
        }
        Ok(())
    }

    /// Returns a word of the record at the position, which `need` has read.
    fn u32_at(&self, at: usize, big_endian: bool) -> u32 {
        let word: [u8; 4] = match self.bytes().get(at..at + 4) {
            Some(&[a, b, c, d]) => [a, b, c, d],
            _ => [0; 4],
        };
        if big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }

    fn malformed(&self, what: &'static str) -> CaptureError {
        CaptureError::Malformed { path: self.path.clone(), offset: self.offset, what }
    }
}

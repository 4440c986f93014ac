//! Writer of captures: little-endian, nanosecond times, one Ethernet interface.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use grantway_netif::{Checksum, Offload};

use super::blocks::{Block, Packet};
use super::{CaptureError, CaptureFormat, ETHERNET, SNAPLEN};
use crate::finish::{SegmentChecksum, Segments, finish_checksum};

/// Bytes that are buffered before they are written out without a call of `flush`.
const BUFFER: usize = 256 * 1024;

/// Direction of a frame, for formats that can store it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Received from the port.
    Inbound,
    /// Sent to the port.
    Outbound,
}

impl Direction {
    /// Returns the direction's bits in `epb_flags`.
    pub(super) fn flags(self) -> u32 {
        match self {
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        }
    }
}

/// Writes frames to a capture. Buffered bytes are written out by [`flush`](Self::flush), or when
/// the writer is dropped.
#[derive(Debug)]
pub struct CaptureWriter<W: Write = File> {
    out: BufWriter<W>,
    path: PathBuf,
    format: CaptureFormat,
    scratch: Vec<u8>,
    block: Block,
}

impl CaptureWriter<File> {
    /// Creates the file, or empties it, in the format of its extension.
    ///
    /// # Errors
    /// The extension is neither `.pcap` nor `.pcapng`, or the file cannot be
    /// written.
    pub fn create(path: &Path) -> Result<Self, CaptureError> {
        let format = CaptureFormat::from_extension(path)
            .ok_or_else(|| CaptureError::Extension { path: path.to_owned() })?;
        let file = File::create(path).map_err(|source| CaptureError::Io {
            path: path.to_owned(),
            operation: "creating it",
            source,
        })?;
        Self::new(file, path, format)
    }
}

impl<W: Write> CaptureWriter<W> {
    /// Writes to any sink. `path` is only used in errors.
    ///
    /// # Errors
    /// The file's header could not be written.
    pub fn new(sink: W, path: &Path, format: CaptureFormat) -> Result<Self, CaptureError> {
        let out = BufWriter::with_capacity(BUFFER, sink);
        let (scratch, block) = (Vec::new(), Block::default());
        let mut writer = CaptureWriter { out, path: path.to_owned(), format, scratch, block };
        writer.header().map_err(|source| writer.failed(source))?;
        // A reader that follows the file finds a whole, empty capture.
        writer.flush()?;
        Ok(writer)
    }

    /// Returns the file's format.
    #[must_use]
    pub fn format(&self) -> CaptureFormat {
        self.format
    }

    /// Writes one frame, or its segments, with finished checksums. A frame whose headers do not
    /// allow this is written unchanged. Returns true if a checksum or segmentation was finished.
    ///
    /// # Errors
    /// The file cannot be written, or the time does not fit its format.
    pub fn write(
        &mut self,
        time: Duration,
        frame: &[u8],
        offload: Offload,
        direction: Option<Direction>,
    ) -> Result<bool, CaptureError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = self.finished(time, frame, offload, direction, &mut scratch);
        self.scratch = scratch;
        result
    }

    fn finished(
        &mut self,
        time: Duration,
        frame: &[u8],
        offload: Offload,
        direction: Option<Direction>,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, CaptureError> {
        let whole = SegmentChecksum::Whole;
        if let Some(Ok(mut segments)) = offload.gso.map(|gso| Segments::new(frame, gso, whole)) {
            scratch.resize(segments.longest(), 0);
            while let Ok(Some(segment)) = segments.next_into(scratch) {
                self.record(time, &scratch[..segment.len], direction)?;
            }
            return Ok(true);
        }
        if offload.checksum != Checksum::Partial {
            self.record(time, frame, direction)?;
            return Ok(false);
        }
        scratch.clear();
        scratch.extend_from_slice(frame);
        let finished = finish_checksum(scratch).is_ok();
        self.record(time, scratch, direction)?;
        Ok(finished)
    }

    /// Writes out the buffered bytes.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<(), CaptureError> {
        self.out.flush().map_err(|source| self.failed(source))
    }

    fn record(
        &mut self,
        time: Duration,
        frame: &[u8],
        direction: Option<Direction>,
    ) -> Result<(), CaptureError> {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        if length > SNAPLEN {
            let source = io::Error::other("a frame longer than 262144 bytes");
            return Err(self.failed(source));
        }
        let done = match self.format {
            CaptureFormat::Pcap => {
                let Ok(seconds) = u32::try_from(time.as_secs()) else {
                    let seconds = time.as_secs();
                    return Err(CaptureError::Time { path: self.path.clone(), seconds });
                };
                let words = [seconds, time.subsec_nanos(), length, length];
                self.words(&words).and_then(|()| self.out.write_all(frame))
            }
            CaptureFormat::PcapNg => {
                let packet = Packet {
                    time,
                    interface: 0,
                    bytes: frame,
                    length,
                    comment: "",
                    direction,
                    lost: 0,
                    queue: None,
                };
                self.out.write_all(self.block.packet(&packet))
            }
        };
        done.map_err(|source| self.failed(source))
    }

    fn header(&mut self) -> io::Result<()> {
        match self.format {
            CaptureFormat::Pcap => {
                // The words are the magic of nanosecond times, version 2.4, zone, accuracy,
                // snapshot length and link type.
                let link = u32::from(ETHERNET);
                self.words(&[0xa1b2_3c4d, 0x0004_0002, 0, 0, SNAPLEN, link])
            }
            CaptureFormat::PcapNg => {
                self.out.write_all(self.block.section())?;
                self.out.write_all(self.block.interface(None))
            }
        }
    }

    fn words(&mut self, words: &[u32]) -> io::Result<()> {
        for word in words {
            self.out.write_all(&word.to_le_bytes())?;
        }
        Ok(())
    }

    fn failed(&self, source: io::Error) -> CaptureError {
        CaptureError::Io { path: self.path.clone(), operation: "writing it", source }
    }
}

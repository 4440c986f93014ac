//! Capture files, pcap and pcapng, in both directions.
//!
//! Reading is bounded: a record larger than [`MAX_RECORD`] is an error, and no memory is allocated
//! for it. Frames are written byte for byte, after work for a network card was done. So a capture
//! has the frames of a wire, with finished checksums and without large frames. It can be played
//! again.
//! frames, and can be played again.

mod blocks;
mod heads;
mod port;
mod reader;
mod record;
mod writer;

use std::{fmt, io, path::PathBuf};

pub use heads::{Head, HeadsWriter};
pub use port::PcapPort;
pub use reader::CaptureReader;
pub use record::Record;
pub use writer::{CaptureWriter, Direction};

/// Largest packet record or block, in bytes, that is read into memory: four times libpcap's largest
/// snapshot.
pub const MAX_RECORD: usize = 1 << 20;

/// Snapshot length written to capture files, libpcap's largest.
pub const SNAPLEN: u32 = 262_144;

/// `LINKTYPE_ETHERNET`.
pub(crate) const ETHERNET: u16 = 1;

/// The two formats of captures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CaptureFormat {
    /// The old format, with one link type per file. It is written with times in nanoseconds.
    Pcap,
    /// The new format: blocks, interfaces, directions.
    PcapNg,
}

impl CaptureFormat {
    /// Returns the format that belongs to a file's extension.
    #[must_use]
    pub fn from_extension(path: &std::path::Path) -> Option<CaptureFormat> {
        let extension = path.extension()?.to_str()?;
        match extension.to_ascii_lowercase().as_str() {
            "pcap" => Some(CaptureFormat::Pcap),
            "pcapng" => Some(CaptureFormat::PcapNg),
            _ => None,
        }
    }
}

impl fmt::Display for CaptureFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CaptureFormat::Pcap => "pcap",
            CaptureFormat::PcapNg => "pcapng",
        })
    }
}

/// Reason why a capture file could not be read or written.
///
/// Offsets are in bytes from the start of the file to the start of the record or block.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file could not be opened, read or written.
    #[error("{}: {operation} failed: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Operation that failed.
        operation: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The extension of the output file is not that of a capture format.
    #[error("{}: the extension says no format; name the file .pcap or .pcapng", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// The file does not begin like a capture.
    #[error(
        "{}: starts with {found:02x?}, which is neither pcap nor pcapng; convert it with `editcap -F pcapng IN OUT`",
        path.display()
    )]
    Magic {
        /// The file.
        path: PathBuf,
        /// First bytes of the file, at most four.
        found: Vec<u8>,
    },
    /// The frames are not Ethernet.
    #[error(
        "{}: offset {offset}: link type {found}, only Ethernet (1) is taken; convert it with `tcprewrite` or capture on an Ethernet interface",
        path.display()
    )]
    LinkType {
        /// The file.
        path: PathBuf,
        /// Offset of the file header or packet.
        offset: u64,
        /// The link type.
        found: i64,
    },
    /// The file ends within a record.
    #[error(
        "{}: offset {offset}: the record has {expected} bytes and the file ends after {found}; the capture was cut short, mend it with `editcap IN OUT`",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Offset of the record.
        offset: u64,
        /// Length that the record claims, in bytes.
        expected: u64,
        /// Number of bytes in the file from there on.
        found: u64,
    },
    /// A record is too large to be real.
    #[error(
        "{}: offset {offset}: a record of {length} bytes, at most 1048576 are read; the file is damaged",
        path.display()
    )]
    RecordTooLong {
        /// The file.
        path: PathBuf,
        /// Offset of the record.
        offset: u64,
        /// The length that the record claims.
        length: u64,
    },
    /// A record contradicts itself.
    #[error("{}: offset {offset}: {what}; the file is damaged", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Offset of the record.
        offset: u64,
        /// Defect that was found.
        what: &'static str,
    },
    /// A time does not fit the format.
    #[error("{}: the time {seconds} s since 1970 does not fit the format; write .pcapng", path.display())]
    Time {
        /// The file.
        path: PathBuf,
        /// The time, in seconds since 1970.
        seconds: u64,
    },
}

#[cfg(test)]
mod tests;

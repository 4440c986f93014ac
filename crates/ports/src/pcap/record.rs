//! Frames of a capture, with their time, interface and options.

use super::Direction;

/// `opt_comment`.
pub(super) const COMMENT: u16 = 1;
/// `epb_flags`.
pub(super) const FLAGS: u16 = 2;
/// `epb_dropcount`.
pub(super) const DROPCOUNT: u16 = 4;
/// `epb_queue`.
pub(super) const QUEUE: u16 = 6;
/// `if_name`.
pub(super) const NAME: u16 = 2;
/// `if_tsresol`.
pub(super) const RESOLUTION: u16 = 9;
/// Most bytes of a name that are kept.
const NAME_MAX: usize = 64;
const NANOS: u128 = 1_000_000_000;

/// A frame of a capture, with the data that the file has on it.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Captured bytes of the frame.
    pub frame: &'a [u8],
    /// Number of bytes on the wire; never less than were captured.
    pub length: u32,
    /// Time in nanoseconds since 1970, or `None` in a block without a time.
    pub time: Option<u64>,
    /// Number of the interface, from 0 on. Interfaces of different sections of the file have
    /// different numbers.
    pub interface: u32,
    /// Name of the interface, if the file has one.
    pub name: Option<&'a str>,
    pub(super) options: Options<'a>,
}

impl<'a> Record<'a> {
    /// Returns the direction of the packet, if the file has it.
    #[must_use]
    pub fn direction(&self) -> Option<Direction> {
        let mut options = self.options;
        let (_, value) = options.find(|(code, _)| *code == FLAGS)?;
        let word = self.options.word(value)?;
        match word & 3 {
            1 => Some(Direction::Inbound),
            2 => Some(Direction::Outbound),
            _ => None,
        }
    }

    /// Returns the queue of the interface on which the packet was seen, if the file has it.
    #[must_use]
    pub fn queue(&self) -> Option<u32> {
        let mut options = self.options;
        let (_, value) = options.find(|(code, _)| *code == QUEUE)?;
        self.options.word(value)
    }

    /// Returns the number of packets that the capturing program lost since the last packet, or 0 if
    /// the file does not have it.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let mut options = self.options;
        let found = options.find(|(code, _)| *code == DROPCOUNT);
        let value = found.and_then(|(_, value)| <[u8; 8]>::try_from(value).ok());
        value.map_or(0, |value| match self.options.big_endian {
            true => u64::from_be_bytes(value),
            false => u64::from_le_bytes(value),
        })
    }

    /// Returns the comments on the packet.
    pub fn comments(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.options.filter(|(code, _)| *code == COMMENT).map(|(_, value)| value)
    }
}

/// Options of a block. Each has a code, a length, and a value padded to 4 bytes. The list ends at
/// the first damaged one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options<'a> {
    pub bytes: &'a [u8],
    pub big_endian: bool,
}

impl Options<'_> {
    fn half(&self, at: usize) -> Option<u16> {
        let half = self.bytes.get(at..at + 2)?.try_into().ok()?;
        Some(if self.big_endian { u16::from_be_bytes(half) } else { u16::from_le_bytes(half) })
    }

    fn word(&self, value: &[u8]) -> Option<u32> {
        let word = value.try_into().ok()?;
        Some(if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) })
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (code, length) = (self.half(0)?, usize::from(self.half(2)?));
        if code == 0 {
            return None;
        }
        let value = self.bytes.get(4..4 + length)?;
        self.bytes = self.bytes.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
        Some((code, value))
    }
}

/// Returns the name of an interface, if the file has one. Characters other than printable ASCII are
/// replaced, so that it stays on one line.
pub(super) fn name(mut options: Options<'_>) -> Option<Box<str>> {
    let (_, value) = options.find(|(code, _)| *code == NAME)?;
    let name = String::from_utf8_lossy(&value[..value.len().min(NAME_MAX)]);
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    let name: String = name.trim_end_matches('\0').chars().map(plain).collect();
    (!name.is_empty()).then(|| name.into())
}

/// Unit and offset of an interface's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticks {
    /// `if_tsresol`: ticks per second, as a power of ten, or of two if the upper bit is set.
    resolution: u8,
    /// `if_tsoffset`: seconds to be added.
    offset: i64,
}

impl Ticks {
    /// Reads the unit and offset of these options. Without them, times are microseconds since 1970.
    pub(super) fn of(options: Options<'_>) -> Self {
        let mut ticks = Self { resolution: 6, offset: 0 };
        for (code, value) in options {
            match (code, value) {
                (RESOLUTION, &[resolution]) => ticks.resolution = resolution,
                (14, value) => {
                    let Ok(value) = value.try_into() else { continue };
                    ticks.offset = match options.big_endian {
                        true => i64::from_be_bytes(value),
                        false => i64::from_le_bytes(value),
                    };
                }
                _ => {}
            }
        }
        ticks
    }

    /// Returns nanoseconds since 1970, or `None` if a 64-bit number is too short for them.
    pub(super) fn nanos(self, ticks: u64) -> Option<u64> {
        // The product has at most 94 bits.
        let scaled = u128::from(ticks) * NANOS;
        let exponent = u32::from(self.resolution & 0x7f);
        let nanos = match self.resolution & 0x80 {
            0 => scaled / 10_u128.checked_pow(exponent).unwrap_or(u128::MAX),
            _ => scaled >> exponent,
        };
        let offset = i128::from(self.offset) * NANOS as i128;
        u64::try_from(nanos as i128 + offset).ok()
    }
}

//! Segments of one flow that a capture has as one packet.

use crate::rings::PREFIX;
use crate::segment::{Flags, Segment};

/// Start of the comment of merged segments, behind the prefix.
const NAME: &[u8] = b"segments=";
/// Most segments of a packet. A backend merges fewer: those of one burst.
const SEGMENTS_MAX: u32 = 1024;

/// The segments of which a packet was merged. They followed on each other and had one time, one
/// acknowledgement, one window and the same options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Merged {
    segments: u32,
    size: u32,
}

impl Merged {
    /// Describes `segments` segments of `size` bytes of payload, of which the last may have fewer.
    /// Returns none unless there are 2 to 1024 segments of 2 bytes or more. A segment of one byte may
    /// be a probe, which is never merged.
    #[must_use]
    pub fn new(segments: u32, size: u32) -> Option<Self> {
        ((2..=SEGMENTS_MAX).contains(&segments) && size > 1).then_some(Self { segments, size })
    }

    /// Returns the comment beside the packet in a capture: `grantway:segments=12x1448` for 12
    /// segments of 1448 bytes.
    #[must_use]
    pub fn comment(self) -> String {
        format!("grantway:segments={}x{}", self.segments, self.size)
    }

    /// Returns the segments that a comment describes.
    #[must_use]
    pub fn read(comment: &[u8]) -> Option<Self> {
        let numbers = comment.strip_prefix(PREFIX)?.strip_prefix(NAME)?.trim_ascii();
        let (segments, size) = std::str::from_utf8(numbers).ok()?.split_once('x')?;
        Self::new(segments.parse().ok()?, size.parse().ok()?)
    }

    /// Notes in a segment that it was merged. Does nothing if its payload is not that of such
    /// segments, or if it begins or ends a flow.
    pub(crate) fn mark(self, segment: &mut Segment) {
        let (payload, size) = (u64::from(segment.payload), u64::from(self.size));
        let segments = u64::from(self.segments);
        let ends = [Flags::SYN, Flags::FIN, Flags::RST];
        let is_plain = !ends.into_iter().any(|flag| segment.flags.has(flag));
        if is_plain && payload > (segments - 1) * size && payload <= segments * size {
            (segment.segments, segment.size) = (self.segments, self.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_says_how_many_segments_of_which_size() {
        let merged = Merged::new(12, 1448).expect("segments");
        assert_eq!(merged.comment(), "grantway:segments=12x1448");
        assert_eq!(Merged::read(b"grantway:segments=12x1448\n"), Some(merged));
        for other in [
            &b""[..],
            b"segments=12x1448",
            b"grantway:woken",
            b"grantway:segments=12",
            b"grantway:segments=1x1448",
            b"grantway:segments=1025x1448",
            b"grantway:segments=2x1",
            b"grantway:segments=2x4294967296",
            b"grantway:segments=-2x4",
            b"grantway:segments=2x\xff",
        ] {
            assert_eq!(Merged::read(other), None, "{}", other.escape_ascii());
        }
    }
}

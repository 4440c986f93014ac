//! Kinds of unfinished frames that a port may give.

/// Unfinished frames that the reading side of a port accepts.
///
/// The kernel finishes frames of a kind that is off. Segmentation needs the checksum:
/// without `checksum`, `tso4` and `tso6` count as off.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TapOffloads {
    /// Frames whose transport checksum is unfinished.
    pub checksum: bool,
    /// TCP over IPv4 frames larger than the MTU.
    pub tso4: bool,
    /// TCP over IPv6 frames larger than the MTU.
    pub tso6: bool,
}

impl TapOffloads {
    /// Only finished frames.
    pub const NONE: TapOffloads = TapOffloads { checksum: false, tso4: false, tso6: false };
    /// Everything that netif can carry.
    pub const ALL: TapOffloads = TapOffloads { checksum: true, tso4: true, tso6: true };

    pub(crate) const fn effective(self) -> TapOffloads {
        TapOffloads {
            checksum: self.checksum,
            tso4: self.checksum && self.tso4,
            tso6: self.checksum && self.tso6,
        }
    }
}

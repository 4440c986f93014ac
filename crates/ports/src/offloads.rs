//! Kinds of unfinished frames that a port may return.

/// Unfinished frames that the reading side of a port accepts.
///
/// The kernel finishes frames of a kind that is off. Segmentation needs the checksum: if `checksum`
/// is off, all kinds count as off.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TapOffloads {
    /// Frames whose transport checksum is unfinished.
    pub checksum: bool,
    /// TCP over IPv4 frames larger than the MTU.
    pub tso4: bool,
    /// TCP over IPv6 frames larger than the MTU.
    pub tso6: bool,
    /// Frames with several datagrams of one UDP flow, over IPv4 or IPv6. They count as off if the
    /// kernel cannot make them (before Linux 6.2). netif cannot carry them, so their reader must
    /// cut them.
    pub uso: bool,
}

impl TapOffloads {
    /// Only finished frames.
    pub const NONE: TapOffloads =
        TapOffloads { checksum: false, tso4: false, tso6: false, uso: false };
    /// Everything that a TAP or a packet socket can give.
    pub const ALL: TapOffloads = TapOffloads { checksum: true, tso4: true, tso6: true, uso: true };
    /// Everything that netif can carry.
    pub const NETIF: TapOffloads = TapOffloads { uso: false, ..Self::ALL };

    pub(crate) const fn effective(self) -> TapOffloads {
        TapOffloads {
            checksum: self.checksum,
            tso4: self.checksum && self.tso4,
            tso6: self.checksum && self.tso6,
            uso: self.checksum && self.uso,
        }
    }
}

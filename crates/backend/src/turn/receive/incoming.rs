//! A frame for the guest, in private memory, until it is laid out on the guest's pages or waits
//! for some.

use crate::ids::Key;
use grantway_netif::Offload;
use grantway_ports::FramePlace;

/// A frame for the guest, in the arena.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incoming {
    pub at: usize,
    pub len: usize,
    pub offload: Offload,
    pub origin: Origin,
}

/// Origin of a frame for the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The queue's own port.
    Port,
    /// Another queue of the vif, which found by the guest's own settings that it is this one's.
    Lane,
    /// The bridge.
    Bridge {
        /// Queue of the guest that sent the frame, or `None` for the uplink.
        sender: Option<Key>,
        /// If it goes to other guests, too: into how many segments it may be cut for each.
        flooded: Option<u16>,
    },
}

impl Origin {
    /// The queue of the guest that sent it, if it came by the bridge.
    pub fn sender(self) -> Option<Key> {
        match self {
            Self::Bridge { sender, .. } => sender,
            Self::Port | Self::Lane => None,
        }
    }

    /// Returns the most segments that it may be cut into, if it goes to other guests, too.
    pub fn flooded(self) -> Option<u16> {
        match self {
            Self::Bridge { flooded, .. } => flooded,
            Self::Port | Self::Lane => None,
        }
    }
}

impl Incoming {
    /// The frame at a place in the arena.
    pub fn new(FramePlace { at, meta }: FramePlace, origin: Origin) -> Self {
        Self { at, len: meta.len, offload: meta.offload, origin }
    }

    /// Returns the bytes of the frame.
    pub fn bytes<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        &arena[self.at..self.at + self.len]
    }
}

//! Frames that a guest accepts, and the patience with a guest that posts no pages.

use grantway_netif::headers::{Payload, payload};
use grantway_netif::{Checksum, GsoKind, Offload};
use grantway_ports::TapOffloads;
use std::time::Duration;

/// Time that a frame may wait if the guest does not signal that it posted pages (no
/// `feature-rx-notify`), as in Linux's netback.
const WITHOUT_NOTIFY: Duration = Duration::from_millis(30);

/// The patience with a guest that posts no pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Time after which a waiting frame is dropped, and all later ones.
    pub drain: Duration,
    /// Time after which the vif's carrier goes off. `None` if the guest does not signal that it
    /// posted pages: nothing would show that the guest is back.
    pub stall: Option<Duration>,
}

impl Default for Patience {
    fn default() -> Self {
        Self::LINUX
    }
}

impl Patience {
    /// Patience of Linux's netback: 10 s and 60 s.
    pub const LINUX: Self =
        Self { drain: Duration::from_secs(10), stall: Some(Duration::from_secs(60)) };

    /// Returns the patience with a guest that sends no signal when it posts pages.
    pub(crate) fn without_notify(self) -> Self {
        Self { drain: self.drain.min(WITHOUT_NOTIFY), stall: None }
    }
}

/// Frames that the guest accepts, by the keys of its frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guest {
    /// Frames over several pages (`feature-sg`).
    pub scatter_gather: bool,
    /// Blank checksums over IPv6 (`feature-ipv6-csum-offload`).
    pub checksum_ipv6: bool,
    /// Unfinished frames. `checksum` is for blank checksums over IPv4, and over all protocols
    /// except IPv6.
    pub offloads: TapOffloads,
    /// Bytes that stay free in front of each frame in its first page, for an XDP program of the
    /// guest (`xdp-headroom`). With an XDP program, a stock netfront drops frames over several
    /// pages. So large frames are cut for it.
    pub headroom: u16,
    /// Patience with the guest when it posts no pages.
    pub patience: Patience,
}

impl Guest {
    /// Returns true if the guest accepts a frame with these first bytes and this offload.
    pub fn takes(&self, head: &[u8], offload: Offload) -> bool {
        match offload.gso.map(|gso| gso.kind) {
            Some(GsoKind::Tcpv4) => self.takes_large(self.offloads.tso4),
            Some(GsoKind::Tcpv6) => self.takes_large(self.offloads.tso6),
            // netif cannot carry it, whatever a guest accepts.
            Some(GsoKind::Udp) => false,
            None => offload.checksum != Checksum::Partial || self.takes_blank(head),
        }
    }

    /// Returns true if the guest accepts large frames, given that its keys accept their kind.
    pub fn takes_large(&self, accepted: bool) -> bool {
        accepted && self.headroom == 0
    }

    /// Returns true if the guest accepts a frame with these first bytes and a blank checksum.
    pub fn takes_blank(&self, head: &[u8]) -> bool {
        match payload(head) {
            Payload::Ipv6(_) => self.checksum_ipv6,
            _ => self.offloads.checksum,
        }
    }
}

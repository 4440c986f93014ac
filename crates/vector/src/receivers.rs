//! What each port takes as it is.

use crate::batch::PortId;
use grantway_netif::{Gso, GsoKind};

/// Unfinished frames that a port takes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Takes {
    /// With unfinished checksums.
    pub checksum: bool,
    /// To be segmented, over IPv4.
    pub gso_v4: bool,
    /// To be segmented, over IPv6.
    pub gso_v6: bool,
}

impl Takes {
    /// Everything, as a TAP does.
    pub const ALL: Self = Self { checksum: true, gso_v4: true, gso_v6: true };

    /// Whether it takes frames to be segmented so.
    #[inline]
    #[must_use]
    pub fn gso(self, gso: Gso) -> bool {
        self.checksum
            && match gso.kind {
                GsoKind::Tcpv4 => self.gso_v4,
                GsoKind::Tcpv6 => self.gso_v6,
            }
    }
}

/// What each port takes; nothing unfinished, until it says otherwise.
#[derive(Debug, Default, Clone)]
pub struct Receivers(Vec<Takes>);

impl Receivers {
    /// What a port takes.
    #[inline]
    #[must_use]
    pub fn of(&self, port: PortId) -> Takes {
        self.0.get(usize::from(port.0)).copied().unwrap_or_default()
    }

    /// A port takes this from now on.
    pub fn set(&mut self, port: PortId, takes: Takes) {
        let at = usize::from(port.0);
        if self.0.len() <= at {
            self.0.resize(at + 1, Takes::default());
        }
        if let Some(known) = self.0.get_mut(at) {
            *known = takes;
        }
    }
}

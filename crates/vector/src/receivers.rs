//! Frames that each port accepts as they are.

use crate::batch::PortId;
use grantway_netif::{Gso, GsoKind};

/// Kinds of unfinished frames that a port accepts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Takes {
    /// True if frames may have unfinished checksums.
    pub checksum: bool,
    /// True if frames over IPv4 may still have to be segmented.
    pub gso_v4: bool,
    /// True if frames over IPv6 may still have to be segmented.
    pub gso_v6: bool,
}

impl Takes {
    /// All kinds, as a TAP accepts them.
    pub const ALL: Self = Self { checksum: true, gso_v4: true, gso_v6: true };

    /// Returns true if the port accepts frames that are to be segmented as `gso` says.
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

/// Kinds of frames that each port accepts. A port that was not set accepts nothing unfinished.
#[derive(Debug, Default, Clone)]
pub struct Receivers(Vec<Takes>);

impl Receivers {
    /// Returns the kinds that a port accepts.
    #[inline]
    #[must_use]
    pub fn of(&self, port: PortId) -> Takes {
        self.0.get(usize::from(port.0)).copied().unwrap_or_default()
    }

    /// Sets the kinds that a port accepts from now on.
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

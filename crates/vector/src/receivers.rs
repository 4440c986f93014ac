//! Frames that each port accepts as they are.

use crate::batch::{PortId, Verdict};
use grantway_netif::{Gso, GsoKind};
use grantway_ports::PortCaps;

/// Kinds of unfinished frames that a port accepts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Takes {
    /// True if frames may have unfinished checksums.
    pub checksum: bool,
    /// True if frames over IPv4 may still have to be segmented.
    pub gso_v4: bool,
    /// True if frames over IPv6 may still have to be segmented.
    pub gso_v6: bool,
    /// True if frames may have several datagrams of one UDP flow, which still have to be cut. No
    /// guest accepts them: netif cannot carry them.
    pub udp: bool,
}

impl Takes {
    /// All kinds, as a TAP accepts them if the kernel has segmentation of UDP.
    pub const ALL: Self = Self { checksum: true, gso_v4: true, gso_v6: true, udp: true };

    /// Returns the kinds that a port wants merged, or an empty result if it wants nothing merged.
    #[must_use]
    pub fn merged(caps: PortCaps) -> Self {
        match caps.wants_merged {
            true => Self { udp: caps.wants_merged_udp, ..Self::ALL },
            false => Self::default(),
        }
    }

    /// Returns true if the port accepts frames with the segmentation `gso`.
    #[inline]
    #[must_use]
    pub fn gso(self, gso: Gso) -> bool {
        self.checksum
            && match gso.kind {
                GsoKind::Tcpv4 => self.gso_v4,
                GsoKind::Tcpv6 => self.gso_v6,
                GsoKind::Udp => self.udp,
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

    /// Returns true if a frame with this verdict goes to one port, which accepts datagrams merged.
    #[inline]
    #[must_use]
    pub fn takes_udp(&self, verdict: Verdict) -> bool {
        matches!(verdict, Verdict::To(port) if self.of(port).udp)
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

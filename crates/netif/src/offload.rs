//! Offloads travel beside a frame's bytes: the state of its checksum, and its segmentation.

use crate::headers::Family;
use thiserror::Error;

/// State of a frame's transport checksum.
///
/// The three states are never folded into two: a frame from another guest may
/// be trustworthy and yet carry no checksum at all.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// Nobody vouches for the checksum; it is in the frame and must be checked.
    #[default]
    Unknown,
    /// The data is good, and the checksum field holds only the pseudo-header
    /// sum: whoever puts the frame on a wire fills it in (`csum_blank` and
    /// `data_validated`).
    Partial,
    /// The data is good and the checksum in the frame is whole
    /// (`data_validated` alone).
    Complete,
}

/// The protocol that a large frame is to be segmented for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GsoKind {
    /// TCP over IPv4.
    Tcpv4,
    /// TCP over IPv6.
    Tcpv6,
    /// UDP over either version of IP: several datagrams of one flow. A TAP has it (USO), and netif
    /// has no number for it, so [`TcpGso`] cannot hold it.
    Udp,
}

/// Segmentation left to whoever cannot take the frame whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gso {
    /// The protocol to segment for.
    pub kind: GsoKind,
    /// Largest payload of a segment in bytes, headers not counted; never 0.
    pub size: u16,
}

/// Segmentation that an [`Extra`](crate::Extra) can express (`XEN_NETIF_GSO_TYPE_*`): that of TCP.
/// No slot is read or written with any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TcpGso {
    /// The version of IP.
    pub family: Family,
    /// Largest payload of a segment in bytes, headers not counted; never 0.
    pub size: u16,
}

/// Error for segmentation that netif cannot express.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
#[error("segmentation of UDP, expected that of TCP")]
pub struct NotTcp;

impl TryFrom<Gso> for TcpGso {
    type Error = NotTcp;

    #[inline]
    fn try_from(gso: Gso) -> Result<Self, NotTcp> {
        let family = match gso.kind {
            GsoKind::Tcpv4 => Family::V4,
            GsoKind::Tcpv6 => Family::V6,
            GsoKind::Udp => return Err(NotTcp),
        };
        Ok(Self { family, size: gso.size })
    }
}

impl From<TcpGso> for Gso {
    #[inline]
    fn from(gso: TcpGso) -> Self {
        let kind = match gso.family {
            Family::V4 => GsoKind::Tcpv4,
            Family::V6 => GsoKind::Tcpv6,
        };
        Self { kind, size: gso.size }
    }
}

/// Offloads of a frame, which travel beside its bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Offload {
    /// State of the transport checksum. `Partial` wherever `gso` is set.
    pub checksum: Checksum,
    /// Segmentation, where the frame is larger than the path's MTU.
    pub gso: Option<Gso>,
}

//! Offloads of a frame: the state of its checksum, and its segmentation. They are passed beside its
//! bytes.

use crate::headers::Family;
use thiserror::Error;

/// State of a frame's transport checksum.
///
/// There are three states, not two: a frame of another guest may have valid data and no checksum.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// The frame has a checksum that nobody has verified. The receiver must verify it.
    #[default]
    Unknown,
    /// The data is valid, and the checksum field holds the sum of the pseudo-header only. A sender
    /// to a physical link must complete it (`csum_blank` and `data_validated`).
    Partial,
    /// The data is valid, and the checksum in the frame is complete (`data_validated` alone).
    Complete,
}

/// Protocol by which a large frame is to be segmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GsoKind {
    /// TCP over IPv4.
    Tcpv4,
    /// TCP over IPv6.
    Tcpv6,
    /// UDP over either version of IP: several datagrams of one flow. A TAP supports it (USO). netif
    /// has no number for it, so [`TcpGso`] cannot hold it.
    Udp,
}

/// Segmentation of a large frame, for a receiver that does not accept the frame as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gso {
    /// Protocol of the segments.
    pub kind: GsoKind,
    /// Largest payload of a segment in bytes, without headers. It is never 0.
    pub size: u16,
}

/// Segmentation that an [`Extra`](crate::Extra) can express (`XEN_NETIF_GSO_TYPE_*`): that of TCP
/// only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TcpGso {
    /// The version of IP.
    pub family: Family,
    /// Largest payload of a segment in bytes, without headers. It is never 0.
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

/// Offloads of a frame.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Offload {
    /// State of the transport checksum. It is `Partial` if `gso` is set.
    pub checksum: Checksum,
    /// Segmentation, if the frame is larger than the path's MTU.
    pub gso: Option<Gso>,
}

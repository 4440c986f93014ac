//! Offloads travel beside a frame's bytes: the state of its checksum, and its segmentation.

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

/// The protocol that a large frame is to be segmented for
/// (`XEN_NETIF_GSO_TYPE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GsoKind {
    /// TCP over IPv4, type 1.
    Tcpv4,
    /// TCP over IPv6, type 2.
    Tcpv6,
}

/// Segmentation left to whoever cannot take the frame whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gso {
    /// The protocol to segment for.
    pub kind: GsoKind,
    /// Largest payload of a segment in bytes, headers not counted; never 0.
    pub size: u16,
}

/// Offloads of a frame, which travel beside its bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Offload {
    /// State of the transport checksum. `Partial` wherever `gso` is set.
    pub checksum: Checksum,
    /// Segmentation, where the frame is larger than the path's MTU.
    pub gso: Option<Gso>,
}

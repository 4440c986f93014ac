//! Headers of a frame, read once for every node behind.

/// Network layer of a frame.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Network {
    /// None of the others, or not looked at yet.
    #[default]
    Other = 0,
    /// IPv4.
    V4 = 4,
    /// IPv6.
    V6 = 6,
    /// ARP for IPv4 over Ethernet.
    Arp = 1,
}

/// Part of an IP packet that a frame has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fragment {
    /// The whole packet.
    #[default]
    Whole,
    /// The first fragment, which has the transport header.
    First,
    /// A later fragment. Its ports are those of the first, if that came before.
    Later,
    /// The last fragment, which is otherwise like a later one.
    Last,
}

impl Fragment {
    /// Returns true if the frame has the transport header.
    #[inline]
    #[must_use]
    pub const fn has_transport(self) -> bool {
        matches!(self, Self::Whole | Self::First)
    }
}

/// Transport layer of a frame.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Transport {
    /// None of the others, or not looked at.
    #[default]
    Other,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP of either version. The ports are its type and code, and its identifier.
    Icmp,
}

/// Headers of a frame. Each part is written by the node that checked it, and is zero before.
/// Offsets are in bytes from the frame's first.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// Source address of IP; an IPv4 address is in the low half. Of ARP, the sender.
    pub source: u128,
    /// Destination address of IP. Of ARP, the target.
    pub target: u128,
    /// End of the IP packet: the frame's end, or earlier if the frame is padded.
    pub end: u32,
    /// Start of the IP or ARP header.
    pub network_at: u16,
    /// Start of the transport header, or of a fragment's bytes.
    pub transport_at: u16,
    /// Start of the transport's payload.
    pub payload_at: u16,
    /// EtherType, behind the VLAN tags.
    pub ethertype: u16,
    /// Number of the outermost VLAN; 0 without a tag.
    pub vlan: u16,
    /// Identification of a fragment's packet.
    pub fragment_id: u32,
    /// Offset of a fragment's bytes in the packet, in bytes.
    pub fragment_at: u16,
    /// End of a fragment's bytes in the packet.
    pub fragment_end: u16,
    /// Source and destination port.
    pub ports: [u16; 2],
    /// Network layer.
    pub network: Network,
    /// Protocol number, behind IPv6's extension headers.
    pub protocol: u8,
    /// Transport layer that was read; a later fragment has none.
    pub transport: Transport,
    /// Part of the packet that the frame has.
    pub fragment: Fragment,
    /// Flags of TCP.
    pub tcp_flags: u8,
    /// True if the ports are known. Those of a later fragment are known from the first.
    pub has_ports: bool,
}

// The headers of a frame fill one cache line.
const _: () = assert!(size_of::<Headers>() == 64);

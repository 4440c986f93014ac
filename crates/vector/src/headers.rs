//! What was read of a frame's headers, once, for every node behind.

/// What a frame carries.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Network {
    /// Neither of the others, or not looked at yet.
    #[default]
    Other = 0,
    /// IPv4.
    V4 = 4,
    /// IPv6.
    V6 = 6,
    /// ARP for IPv4 over Ethernet.
    Arp = 1,
}

/// Which part of an IP packet a frame has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fragment {
    /// All of it.
    #[default]
    Whole,
    /// The first, which has the transport header.
    First,
    /// Another, whose ports are those of the first, where that came before.
    Later,
    /// The last, which is like the others before it.
    Last,
}

impl Fragment {
    /// Whether the frame has the transport header.
    #[inline]
    #[must_use]
    pub const fn has_transport(self) -> bool {
        matches!(self, Self::Whole | Self::First)
    }
}

/// What the transport header is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Transport {
    /// None, or not looked at.
    #[default]
    Other,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP of either version: the ports are its type and code, and its
    /// identifier.
    Icmp,
}

/// A frame's headers. Each part is written by the node that checked it, and is
/// zero before. Offsets are in bytes from the frame's first.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// IP source; an IPv4 address is in the low half. ARP: the sender.
    pub source: u128,
    /// IP destination. ARP: the target.
    pub target: u128,
    /// End of the IP packet: the frame's, or earlier where it is padded.
    pub end: u32,
    /// Start of the IP or ARP header.
    pub network_at: u16,
    /// Start of the transport header, or of a fragment's bytes.
    pub transport_at: u16,
    /// Start of what the transport carries.
    pub payload_at: u16,
    /// Type, behind the VLAN tags.
    pub ethertype: u16,
    /// The outermost VLAN's number; 0 where there is no tag.
    pub vlan: u16,
    /// A fragment's identification.
    pub fragment_id: u32,
    /// Where a fragment's bytes belong in the packet, in bytes.
    pub fragment_at: u16,
    /// Where they end.
    pub fragment_end: u16,
    /// Source and destination port.
    pub ports: [u16; 2],
    /// Which network layer.
    pub network: Network,
    /// Protocol, behind IPv6's extension headers.
    pub protocol: u8,
    /// Which transport was read: none of a later fragment.
    pub transport: Transport,
    /// Which part of the packet it is.
    pub fragment: Fragment,
    /// TCP's flags.
    pub tcp_flags: u8,
    /// Whether the ports are known: of a later fragment, from the first.
    pub has_ports: bool,
}

// One line of the cache a frame.
const _: () = assert!(size_of::<Headers>() == 64);

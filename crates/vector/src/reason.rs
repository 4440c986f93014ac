//! Reasons to drop a frame, each with a counter of its own.

mod own;

pub use own::{OWN_REASONS_MAX, OwnReason, ReasonError};

macro_rules! reasons {
    ($($(#[$meta:meta])* $name:ident = $text:literal,)*) => {
        /// Reason to drop a frame.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[$meta])* $name,)*
            /// A node of the caller's own dropped the frame, for a reason of its own:
            /// [`Reason::own`].
            Own(OwnReason),
        }

        /// Numbers of the counters.
        #[derive(Clone, Copy)]
        enum Number { $($name,)* }

        impl Reason {
            /// Every reason of this crate's nodes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the name of the reason in reports.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Own(own) => own.as_str(),
                }
            }

            /// Returns the number of the reason's counter.
            #[inline]
            const fn number(self) -> usize {
                match self {
                    $(Self::$name => Number::$name as usize,)*
                    Self::Own(own) => Self::ALL.len() + own.number(),
                }
            }
        }
    };
}

reasons! {
    /// The frame ends within its Ethernet header.
    EthernetTruncated = "ethernet-truncated",
    /// The frame ends within a VLAN tag.
    VlanTruncated = "vlan-truncated",
    /// The frame has more VLAN tags than the nodes read.
    VlanDepth = "vlan-depth",
    /// The Ethernet source is the address of a group.
    EthernetSource = "ethernet-source",
    /// The frame ends within its IPv4 header, or before the length that it says.
    Ipv4Truncated = "ipv4-truncated",
    /// An IPv4 packet of another version.
    Ipv4Version = "ipv4-version",
    /// An IPv4 header of less than five words.
    Ipv4HeaderLength = "ipv4-header-length",
    /// An IPv4 packet that says that it is shorter than its header.
    Ipv4TotalLength = "ipv4-total-length",
    /// An IPv4 header whose checksum is wrong.
    Ipv4Checksum = "ipv4-checksum",
    /// An IPv4 option without a length, or longer than the header.
    Ipv4Option = "ipv4-option",
    /// An IPv4 source route, which has another destination than the header.
    Ipv4SourceRoute = "ipv4-source-route",
    /// An IPv4 source that no host has: a group, or the broadcast address.
    Ipv4Source = "ipv4-source",
    /// The frame ends within its IPv6 header, or before the length that it says.
    Ipv6Truncated = "ipv6-truncated",
    /// An IPv6 packet of another version.
    Ipv6Version = "ipv6-version",
    /// An IPv6 source that no host has: a group.
    Ipv6Source = "ipv6-source",
    /// An IPv6 extension header that does not end within the packet.
    Ipv6Extension = "ipv6-extension",
    /// An IPv6 extension header at a wrong place, or one time too often.
    Ipv6Order = "ipv6-order",
    /// A routing header that goes on to another destination.
    Ipv6Route = "ipv6-route",
    /// A jumbogram.
    Ipv6Jumbo = "ipv6-jumbo",
    /// A fragment that ends behind the largest packet.
    FragmentBeyond = "fragment-beyond",
    /// An empty fragment, or one before the last whose length is no multiple of 8.
    FragmentLength = "fragment-length",
    /// A first fragment that ends within the transport header.
    FragmentTiny = "fragment-tiny",
    /// A fragment that overlaps another, or whose packet had one that does.
    FragmentOverlap = "fragment-overlap",
    /// A fragment that makes a packet more pieces than are remembered, or that comes after it.
    FragmentPieces = "fragment-pieces",
    /// The packet ends within its TCP header.
    TcpTruncated = "tcp-truncated",
    /// A TCP header of less than five words.
    TcpHeaderLength = "tcp-header-length",
    /// TCP flags that no connection has.
    TcpFlags = "tcp-flags",
    /// A TCP checksum is wrong.
    TcpChecksum = "tcp-checksum",
    /// The packet ends within its UDP header.
    UdpTruncated = "udp-truncated",
    /// A UDP length that is less than the header, or goes beyond the packet.
    UdpLength = "udp-length",
    /// A UDP checksum is wrong.
    UdpChecksum = "udp-checksum",
    /// The packet ends within its ICMP header.
    IcmpTruncated = "icmp-truncated",
    /// Segmentation is asked for a frame that is of another transport protocol or IP version.
    Gso = "gso",
    /// ARP that is not for IPv4 over Ethernet, or ends too early.
    Arp = "arp",
    /// An Ethernet source that is not the vif's.
    SpoofedMac = "spoofed-mac",
    /// An IPv4 source that is not the vif's.
    SpoofedIpv4 = "spoofed-ipv4",
    /// An IPv6 source, or an advertised neighbour, that is not the vif's.
    SpoofedIpv6 = "spoofed-ipv6",
    /// An ARP sender that is not the vif.
    SpoofedArp = "spoofed-arp",
    /// Neither IP nor ARP, from a vif whose networks are listed.
    SpoofedOther = "spoofed-other",
    /// A rule of the firewall dropped the frame.
    Firewall = "firewall",
    /// No further connection can be remembered.
    Connections = "connections",
    /// A filter of the classifier dropped the frame.
    Filter = "filter",
    /// The frame is beyond the rate of a filter.
    Policed = "policed",
    /// The frame is beyond the rate of the vif.
    Rate = "rate",
    /// The destination is an address that bridges do not relay (IEEE 802.1Q, table 8-1).
    LinkLocal = "link-local",
    /// The destination is the port from which the frame came.
    Hairpin = "hairpin",
    /// The frame is from one isolated vif to another.
    Isolated = "isolated",
    /// The receiver does not accept the frame as it is, and it cannot be finished here.
    Unfinishable = "unfinishable",
}

impl Reason {
    /// Makes a reason for the drops of a node of one's own. Every graph of the process counts it, and
    /// reports, metrics and messages show it by its name. Make it once, and give it to the nodes.
    ///
    /// ```
    /// use grantway_vector::Reason;
    ///
    /// let short = Reason::own("below-60-bytes")?;
    /// assert_eq!(short.to_string(), "below-60-bytes");
    /// // Each name stands for one reason.
    /// assert!(Reason::own("below-60-bytes").is_err());
    /// assert!(Reason::own("firewall").is_err());
    /// # Ok::<(), grantway_vector::reason::ReasonError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The name is not lower-case letters, digits and hyphens, another reason has it, or there are
    /// [`OWN_REASONS_MAX`] own reasons already.
    pub fn own(name: &'static str) -> Result<Self, ReasonError> {
        OwnReason::new(name).map(Self::Own)
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Number of dropped frames, by reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drops([u64; COUNTERS]);

/// Number of counters.
const COUNTERS: usize = Reason::ALL.len() + OWN_REASONS_MAX;

impl Default for Drops {
    fn default() -> Self {
        Self([0; COUNTERS])
    }
}

impl Drops {
    /// Counts one frame.
    #[inline]
    pub fn count(&mut self, reason: Reason) {
        self.0[reason.number()] += 1;
    }

    /// Counts frames that another graph dropped.
    pub fn add(&mut self, reason: Reason, frames: u64) {
        self.0[reason.number()] += frames;
    }

    /// Adds all frames that another graph dropped.
    pub fn join(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }

    /// Returns the number of frames dropped for a reason.
    #[must_use]
    pub fn of(&self, reason: Reason) -> u64 {
        self.0[reason.number()]
    }

    /// Returns the number of frames dropped for all reasons together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the reasons that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        let all = Reason::ALL.iter().copied().chain(OwnReason::all().map(Reason::Own));
        all.map(|reason| (reason, self.of(reason))).filter(|&(_, n)| n > 0)
    }
}

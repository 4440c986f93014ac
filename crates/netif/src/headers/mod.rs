//! The one reader of headers: Ethernet, VLAN tags, IPv4, IPv6, TCP and UDP.
//!
//! The frame may come from a hostile guest. Every read is bounded by the slice,
//! every chain by a constant, and a header that does not fit is a [`Why`].
//! All offsets are in bytes from the first byte of the frame.
//!
//! [`read`] finds the TCP or UDP header of a frame. A caller that needs less, or
//! that has its own judgement on the way, reads layer by layer with the parts
//! that [`read`] is made of: [`Link`], [`Ipv4`], [`Ipv6`] with [`Extensions`],
//! [`Tcp`] and [`Udp`].

mod ipv4;
mod ipv6;
mod link;
mod transport;

pub use ipv4::Ipv4;
pub use ipv6::{Extension, Extensions, Ipv6, MAX_EXTENSIONS};
pub use link::{Link, MAX_VLAN_TAGS, Payload, payload};
pub use transport::{Tcp, Udp, ports};

use crate::ETH_HEADER_BYTES;

/// Values of the Ethernet type field (IANA, IEEE 802 Numbers).
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// VLAN tag (IEEE 802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// Outer VLAN tag (IEEE 802.1ad).
    pub const QINQ: u16 = 0x88a8;
}

/// IP protocol numbers, which are also IPv6's next headers (IANA, Protocol Numbers).
pub mod protocol {
    /// IPv6 hop-by-hop options (RFC 8200, 4.3).
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 routing header (RFC 8200, 4.4).
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header (RFC 8200, 4.5).
    pub const FRAGMENT: u8 = 44;
    /// Authentication header (RFC 4302).
    pub const AUTHENTICATION: u8 = 51;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// IPv6 destination options (RFC 8200, 4.6).
    pub const DESTINATION: u8 = 60;
}

/// Flags of a TCP header, as bits of its byte 13 (RFC 9293, 3.1).
pub mod tcp_flags {
    /// The sender has no more data.
    pub const FIN: u8 = 0x01;
    /// First segment of its sender.
    pub const SYN: u8 = 0x02;
    /// The connection is aborted.
    pub const RST: u8 = 0x04;
    /// The receiver should pass the data on.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 0x10;
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: u8 = 0x80;
}

/// Reason why the headers of a frame cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Why {
    /// The frame is shorter than an Ethernet header.
    #[error("the frame is shorter than an Ethernet header")]
    TooShort,
    /// The frame carries neither IPv4 nor IPv6, or has over
    /// [`MAX_VLAN_TAGS`] VLAN tags.
    #[error("the frame carries neither IPv4 nor IPv6, or has over {MAX_VLAN_TAGS} VLAN tags")]
    NotIp,
    /// The frame ends within a header, or before the length in its IP header.
    #[error("the frame ends within a header, or before the length in its IP header")]
    Truncated,
    /// The version in the IP header is not that of the Ethernet type.
    #[error("the version in the IP header is not that of the Ethernet type")]
    Version,
    /// An IPv4 or TCP header claims fewer than 20 bytes.
    #[error("an IPv4 or TCP header claims fewer than 20 bytes")]
    HeaderLength,
    /// An IPv4 packet claims to be shorter than its header.
    #[error("an IPv4 packet claims to be shorter than its header")]
    TotalLength,
    /// The packet is a fragment.
    #[error("the packet is a fragment")]
    Fragment,
    /// There are more than [`MAX_EXTENSIONS`] IPv6 extension headers.
    #[error("there are more than {MAX_EXTENSIONS} IPv6 extension headers")]
    Extensions,
    /// The packet is neither TCP nor UDP.
    #[error("the packet is neither TCP nor UDP")]
    OtherTransport,
}

/// IP version of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Transport protocols that [`read`] finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TCP: checksum 16 bytes into the header.
    Tcp,
    /// UDP: checksum 6 bytes into the header.
    Udp,
}

impl Protocol {
    /// Returns the number in the IP header, one of [`protocol`].
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Protocol::Tcp => protocol::TCP,
            Protocol::Udp => protocol::UDP,
        }
    }

    /// Returns the bytes from the start of the header to its checksum.
    #[must_use]
    pub const fn checksum_offset(self) -> usize {
        match self {
            Protocol::Tcp => 16,
            Protocol::Udp => 6,
        }
    }
}

/// Part of an IP packet that a fragment carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Offset of its bytes in the packet, in bytes: a multiple of 8.
    pub at: u16,
    /// True if more fragments follow.
    pub more: bool,
}

impl Part {
    /// Returns true if it is the whole packet. An IPv6 fragment header may say so,
    /// too (RFC 6946, an atomic fragment).
    #[inline]
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.at == 0 && !self.more
    }
}

/// Places of the headers of a TCP or UDP packet, in bytes from the start of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// The IP version.
    pub family: Family,
    /// The transport protocol.
    pub protocol: Protocol,
    /// Number of the outermost VLAN, below 4096; 0 without a tag.
    pub vlan: u16,
    /// Start of the IP header.
    pub ip: usize,
    /// Start of the transport header.
    pub start: usize,
    /// End of the transport header, options included.
    pub header_end: usize,
    /// End of the IP packet: the end of the frame, or earlier if the frame is
    /// padded.
    pub end: usize,
    /// True if TCP's CWR flag is set, which only the first of several segments repeats.
    pub cwr: bool,
    /// True if the destination in the IP header may not be the last one, whose address a checksum
    /// covers: there is an IPv6 routing header with segments left, or an IPv4 option, which may be
    /// a source route.
    pub routed: bool,
}

impl Headers {
    /// Returns the start of the checksum field, which lies wholly within the frame.
    #[must_use]
    pub const fn checksum_at(&self) -> usize {
        self.start + self.protocol.checksum_offset()
    }
}

/// Finds the TCP or UDP header of a frame of `len` bytes that begins with `head`:
/// behind Ethernet, up to [`MAX_VLAN_TAGS`] VLAN tags, and IPv4 or IPv6 with up to
/// [`MAX_EXTENSIONS`] extension headers.
///
/// If the IP length is 0, the packet ends with the frame: some stacks leave the length to the end
/// that makes the segments.
///
/// # Errors
/// Returns [`Why`] if the frame is faulty or carries something else. If the headers do not end
/// within `head`, it is [`Why::Truncated`], even if the frame is longer.
pub fn read(head: &[u8], len: usize) -> Result<Headers, Why> {
    if len < usize::from(ETH_HEADER_BYTES) {
        return Err(Why::TooShort);
    }
    let link = Link::read(head)?;
    let found = match link.ethertype {
        ethertype::IPV4 => read_v4(head, len, link.at)?,
        ethertype::IPV6 => read_v6(head, len, link.at)?,
        _ => return Err(Why::NotIp),
    };
    Ok(Headers { vlan: link.vlan, ..found })
}

fn read_v4(head: &[u8], len: usize, at: usize) -> Result<Headers, Why> {
    let ip = Ipv4::read(head, at)?;
    if !ip.part().is_whole() {
        return Err(Why::Fragment);
    }
    let header = ip.header_len();
    let claimed = ip.total_len();
    if claimed != 0 && claimed < header {
        return Err(Why::TotalLength);
    }
    let end = packet_end(len, at, claimed)?;
    let found = transport(head, end, ip.protocol(), at + header)?;
    Ok(Headers { ip: at, routed: header > Ipv4::BYTES, ..found })
}

fn read_v6(head: &[u8], len: usize, at: usize) -> Result<Headers, Why> {
    let ip = Ipv6::read(head, at)?;
    let claimed = match ip.payload_len() {
        0 => 0,
        payload => Ipv6::BYTES + payload,
    };
    let end = packet_end(len, at, claimed)?;
    let mut routed = false;
    let mut chain = ip.extensions(at);
    while let Some(extension) = chain.step(head)? {
        match extension.kind {
            protocol::ROUTING => routed |= extension.segments_left(head)? != 0,
            protocol::FRAGMENT if !extension.part(head)?.is_whole() => return Err(Why::Fragment),
            _ => {}
        }
    }
    let found = transport(head, end, chain.next_header(), chain.at())?;
    Ok(Headers { family: Family::V6, ip: at, routed, ..found })
}

/// Returns the end of an IP packet of `claimed` bytes, 0 for all of the frame.
fn packet_end(len: usize, ip: usize, claimed: usize) -> Result<usize, Why> {
    match claimed {
        0 => Ok(len),
        n if ip + n <= len => Ok(ip + n),
        _ => Err(Why::Truncated),
    }
}

/// Reads the transport header at `start` of a packet that ends at `end`. The caller
/// fills in the rest.
fn transport(head: &[u8], end: usize, number: u8, start: usize) -> Result<Headers, Why> {
    let packet = head.get(..end).unwrap_or(head);
    let (protocol, header, cwr) = match number {
        protocol::TCP => {
            let tcp = Tcp::read(packet, start)?;
            (Protocol::Tcp, tcp.header_len(), tcp.flags() & tcp_flags::CWR != 0)
        }
        protocol::UDP => {
            Udp::read(packet, start)?;
            (Protocol::Udp, Udp::BYTES, false)
        }
        _ => return Err(Why::OtherTransport),
    };
    Ok(Headers {
        family: Family::V4,
        protocol,
        vlan: 0,
        ip: 0,
        start,
        header_end: start + header,
        end,
        cwr,
        routed: false,
    })
}

/// Returns the `N` bytes at `at`, if they are there.
#[inline]
fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Result<&[u8; N], Why> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(Why::Truncated)
}

/// Returns the 16-bit number at `at` of a header; 0 past its end.
#[inline]
fn half<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    match header.get(at..at + 2) {
        Some(&[high, low]) => u16::from_be_bytes([high, low]),
        _ => 0,
    }
}

//! What an Ethernet frame carries behind its header and its VLAN tags.

/// Most VLAN tags that are passed over.
pub const MAX_VLAN_TAGS: usize = 2;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const QINQ: u16 = 0x88a8;

/// What a frame carries, by its type field. Its headers are not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payload {
    /// An IPv4 packet, from this byte of the frame on.
    Ipv4(usize),
    /// An IPv6 packet, from this byte of the frame on.
    Ipv6(usize),
    /// Something else, or more tags than [`MAX_VLAN_TAGS`].
    Other,
    /// The frame ends before it says what.
    Truncated,
}

/// Looks at a frame's type field, behind up to [`MAX_VLAN_TAGS`] tags.
#[inline]
pub fn payload(frame: &[u8]) -> Payload {
    let mut at = 12;
    for _ in 0..=MAX_VLAN_TAGS {
        let Some(&[high, low]) = frame.get(at..at + 2) else { return Payload::Truncated };
        match u16::from_be_bytes([high, low]) {
            IPV4 => return Payload::Ipv4(at + 2),
            IPV6 => return Payload::Ipv6(at + 2),
            VLAN | QINQ => at += 4,
            _ => return Payload::Other,
        }
    }
    Payload::Other
}

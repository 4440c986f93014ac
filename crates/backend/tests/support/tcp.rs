//! TCP frames laid out by hand, and what a wire may carry of them.

use grantway_netif::{Checksum, Gso, GsoKind, Offload};

/// Sequence number of the frames' first byte.
pub const SEQUENCE: u32 = 0xffff_f000;

/// TCP over IPv4 or IPv6, without options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tcp {
    pub v6: bool,
}

impl Tcp {
    pub const BOTH: [Self; 2] = [Self { v6: false }, Self { v6: true }];

    fn ip_header(self) -> usize {
        if self.v6 { 40 } else { 20 }
    }

    /// Bytes before the payload.
    pub fn headers(self) -> usize {
        14 + self.ip_header() + 20
    }

    /// Returns the work that is left to the receiver of the frame: the checksum, and segments
    /// with `size` bytes of payload.
    pub fn offload(self, size: u16) -> Offload {
        let kind = if self.v6 { GsoKind::Tcpv6 } else { GsoKind::Tcpv4 };
        Offload { checksum: Checksum::Partial, gso: Some(Gso { kind, size }) }
    }

    /// A frame whose checksum holds the pseudo-header's sum only.
    pub fn frame(self, to: [u8; 6], from: [u8; 6], payload: &[u8]) -> Vec<u8> {
        let length = 20 + payload.len();
        let mut frame = [to, from].concat();
        if self.v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((length as u16).to_be_bytes());
            frame.extend([6, 64]);
            frame.extend([0xfd; 16]);
            frame.extend([0xfe; 16]);
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + length as u16).to_be_bytes());
            frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            let sum = !sum(&frame[14..]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let ports = [4000u16, 5000].map(u16::to_be_bytes).concat();
        let at = frame.len();
        frame.extend(ports);
        frame.extend(SEQUENCE.to_be_bytes());
        // Acknowledged, header and flags (PSH, ACK), window, checksum, urgent.
        frame.extend([0, 0, 0, 9, 0x50, 0x18, 0x20, 0, 0, 0, 0, 0]);
        let pseudo = sum(&self.pseudo_header(&frame, length));
        frame[at + 16..at + 18].copy_from_slice(&pseudo.to_be_bytes());
        frame.extend(payload);
        frame
    }

    fn pseudo_header(self, frame: &[u8], length: usize) -> Vec<u8> {
        let addresses = if self.v6 { &frame[22..54] } else { &frame[26..34] };
        let mut header = addresses.to_vec();
        header.extend((length as u32).to_be_bytes());
        header.extend([0, 0, 0, 6]);
        header
    }

    /// Demands that a frame is one in this state: lengths, the IP header's
    /// checksum and TCP's. Its sequence number and payload.
    #[track_caller]
    pub fn check(self, frame: &[u8], checksum: Checksum) -> (u32, &[u8]) {
        let (ip, tcp) = (&frame[14..], &frame[14 + self.ip_header()..]);
        let said = if self.v6 {
            40 + usize::from(u16::from_be_bytes([ip[4], ip[5]]))
        } else {
            assert_eq!(sum(&ip[..20]), 0xffff, "the IP header's checksum");
            usize::from(u16::from_be_bytes([ip[2], ip[3]]))
        };
        assert_eq!(said, ip.len(), "the length in the IP header");
        let pseudo = self.pseudo_header(frame, tcp.len());
        match checksum {
            Checksum::Partial => {
                let left = u16::from_be_bytes([tcp[16], tcp[17]]);
                assert_eq!(left, sum(&pseudo), "{self:?}: the sum that is left to finish");
            }
            _ => assert_eq!(sum(&[&pseudo, tcp].concat()), 0xffff, "{self:?}: the checksum"),
        }
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        (sequence, &frame[self.headers()..])
    }
}

/// The one's complement sum of 16-bit words.
pub fn sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    let mut sum: u64 = words.map(u64::from).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

//! Frames laid out by hand, so that a test knows the place of everything without asking the code
//! that it tests.

use proptest::prelude::*;

/// A TCP or UDP frame. Its transport checksum is unfinished, as a sender leaves it.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) tags: usize,
    pub(crate) v6: bool,
    pub(crate) tcp: bool,
    /// IPv6 extension headers: number and bytes. The first byte is replaced.
    pub(crate) extensions: Vec<(u8, Vec<u8>)>,
    /// Number of words of IPv4 options.
    pub(crate) ip_options: usize,
    /// Number of words of TCP options.
    pub(crate) tcp_options: usize,
    /// TCP flags, the byte of CWR to FIN.
    pub(crate) flags: u8,
    pub(crate) sequence: u32,
    pub(crate) port: u16,
    /// IPv4 identification, flags and fragment offset.
    pub(crate) id: u16,
    pub(crate) fragment: u16,
    /// Last destination, if it is not the one in the IP header.
    pub(crate) last: Option<[u8; 16]>,
}

pub(crate) const DONT_FRAGMENT: u16 = 0x4000;

impl Default for Shape {
    fn default() -> Self {
        Self {
            tags: 0,
            v6: false,
            tcp: true,
            extensions: Vec::new(),
            ip_options: 0,
            tcp_options: 3,
            flags: 0x18,
            sequence: 1000,
            port: 4000,
            id: 7,
            fragment: DONT_FRAGMENT,
            last: None,
        }
    }
}

impl Shape {
    /// Returns the start of the IP header.
    pub(crate) fn ip(&self) -> usize {
        14 + 4 * self.tags
    }

    /// Returns the start of the transport header.
    pub(crate) fn transport(&self) -> usize {
        let extensions = self.extensions.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        self.ip() + if self.v6 { 40 + extensions } else { 20 + 4 * self.ip_options }
    }

    pub(crate) fn payload(&self) -> usize {
        self.transport() + if self.tcp { 20 + 4 * self.tcp_options } else { 8 }
    }

    pub(crate) fn checksum_at(&self) -> usize {
        self.transport() + if self.tcp { 16 } else { 6 }
    }

    fn protocol(&self) -> u8 {
        if self.tcp { 6 } else { 17 }
    }

    /// Returns the frame of this shape, with an unfinished transport checksum.
    pub(crate) fn frame(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for tag in 0..self.tags {
            out.extend(if self.tags - tag == 2 { [0x88, 0xa8] } else { [0x81, 0] });
            out.extend([0x20, 5 + tag as u8]);
        }
        let length = self.payload() - self.transport() + payload.len();
        if self.v6 {
            let behind = (self.transport() - self.ip() - 40 + length) as u16;
            let first = self.extensions.first().map_or(self.protocol(), |(number, _)| *number);
            out.extend([0x86, 0xdd, 0x60, 0x12, 0x34, 0x56]);
            out.extend(behind.to_be_bytes());
            out.extend([first, 64]);
            out.extend([0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            out.extend([0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            for (n, (_, bytes)) in self.extensions.iter().enumerate() {
                let next = self.extensions.get(n + 1).map_or(self.protocol(), |(next, _)| *next);
                out.push(next);
                out.extend(&bytes[1..]);
            }
        } else {
            let total = (self.transport() - self.ip() + length) as u16;
            out.extend([8, 0, 0x45 + self.ip_options as u8, 0x02]);
            out.extend(total.to_be_bytes());
            out.extend(self.id.to_be_bytes());
            out.extend(self.fragment.to_be_bytes());
            out.extend([64, self.protocol(), 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
            // The option 1 does nothing.
            out.resize(self.transport(), 1);
            let at = self.ip() + 10;
            let sum = !plain_sum(&out[self.ip()..]);
            out[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        out.extend(self.port.to_be_bytes());
        out.extend(5000u16.to_be_bytes());
        if self.tcp {
            out.extend(self.sequence.to_be_bytes());
            out.extend(99u32.to_be_bytes());
            out.extend([(5 + self.tcp_options as u8) << 4, self.flags, 0x20, 0, 0, 0, 0, 9]);
            // The option 1 does nothing.
            out.resize(self.payload(), 1);
        } else {
            out.extend((length as u16).to_be_bytes());
            out.extend([0, 0]);
        }
        let at = self.checksum_at();
        let sum = plain_sum(&self.pseudo_header(&out, length));
        out[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        out.extend(payload);
        out
    }

    /// Returns the pseudo-header of RFC 9293 and RFC 8200.
    pub(crate) fn pseudo_header(&self, frame: &[u8], length: usize) -> Vec<u8> {
        let ip = &frame[self.ip()..];
        let mut out = if self.v6 { ip[8..40].to_vec() } else { ip[12..20].to_vec() };
        if let Some(last) = self.last {
            let half = out.len() / 2;
            out[half..].copy_from_slice(&last[..half]);
        }
        out.extend((length as u32).to_be_bytes());
        out.extend([0, 0, 0, self.protocol()]);
        out
    }

    /// Asserts that a frame of this shape has a right transport checksum.
    pub(crate) fn check_sum(&self, frame: &[u8]) {
        let segment = &frame[self.transport()..];
        let summed = [self.pseudo_header(frame, segment.len()), segment.to_vec()].concat();
        assert_eq!(plain_sum(&summed), 0xffff, "{self:?}, {} bytes", frame.len());
    }
}

/// Returns the one's complement sum of 16-bit words, byte by byte.
pub(crate) fn plain_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for (n, &byte) in bytes.iter().enumerate() {
        sum += u32::from(byte) << if n % 2 == 0 { 8 } else { 0 };
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns extension headers that GSO frames may have.
fn extensions() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    let one = (prop_oneof![Just(0u8), Just(60), Just(43)], 0u8..3).prop_map(|(number, words)| {
        let mut bytes = vec![0; 8 + 8 * usize::from(words)];
        // The zeros behind it are options of padding, or a route at its end.
        bytes[1] = words;
        (number, bytes)
    });
    proptest::collection::vec(one, 0..4)
}

/// Returns TCP frames of every kind.
pub(crate) fn shapes() -> impl Strategy<Value = Shape> {
    let ip = (0usize..3, any::<bool>(), extensions(), 0usize..=10, any::<u16>(), any::<bool>());
    let tcp = (0usize..=10, any::<u8>(), any::<u32>());
    (ip, tcp).prop_map(|((tags, v6, extensions, ip_options, id, dont_fragment), tcp)| Shape {
        tags,
        v6,
        tcp: true,
        extensions: if v6 { extensions } else { Vec::new() },
        ip_options: if v6 { 0 } else { ip_options },
        tcp_options: tcp.0,
        flags: tcp.1,
        sequence: tcp.2,
        id,
        fragment: if dont_fragment { DONT_FRAGMENT } else { 0 },
        ..Shape::default()
    })
}

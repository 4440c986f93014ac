//! Headers of iperf 2 in the layout of version 2.1.8. Numbers are big-endian.
//!
//! | offset | UDP datagram | its report, from the server |
//! |---|---|---|
//! | 0 | id, lower half; negative in the last | zeroes |
//! | 4, 8 | time: seconds, microseconds | zeroes |
//! | 12 | id, upper half | zeroes |
//! | 16 | the test: [`Test`] | flags |
//! | 20, 24 | | bytes: upper, lower half |
//! | 28, 32 | | length: seconds, microseconds |
//! | 36, 40, 44 | | lost, out of order, all datagrams |
//! | 48, 52 | | jitter: seconds, microseconds |
//!
//! Over TCP, the client sends the test first. The bytes after it have no meaning.

use core::time::Duration;

/// Bytes of a [`Test`].
pub const TEST_LEN: usize = 60;
/// Bytes of a [`Datagram`] header, which begins each datagram.
pub const DATAGRAM_LEN: usize = 16;
/// Bytes of the server's report. 2.1.8 sends it with more fields, which are all zero here.
pub const REPORT_LEN: usize = 128;

const HAS_FIRST: u32 = 0x8000_0000;
const HAS_EXTENSION: u32 = 0x4000_0000;
const LONG_IDS: u32 = 0x0800_0000;
const HAS_LENGTH: u32 = 0x0001_0000;
/// The version that has this protocol.
const VERSION: [u32; 2] = [0x0002_0001, 0x0008_0003];

/// The amount that a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// Everything that the client can send in this time. The wire has units of 10 ms.
    Time(Duration),
    /// A number of bytes, at most `i32::MAX` on the wire.
    Bytes(u64),
}

/// A client's description of its test.
#[derive(Debug, Clone, Copy)]
pub struct Test {
    /// True for a test over UDP, false for one over TCP.
    pub udp: bool,
    /// The server's port.
    pub port: u16,
    /// Bytes per datagram or per write.
    pub len: u32,
    /// Amount after which the test ends.
    pub amount: Amount,
    /// Rate in bits per second. Used for UDP only.
    pub rate: u64,
}

impl Test {
    /// Returns the description in wire format. Over UDP it follows the header of each datagram.
    #[must_use]
    pub fn bytes(&self) -> [u8; TEST_LEN] {
        let before = if self.udp { DATAGRAM_LEN } else { 0 };
        let ids = if self.udp { LONG_IDS } else { 0 };
        // At most 76, so it fits.
        let length = ((before + TEST_LEN) as u32) << 1;
        let rate = if self.udp { self.rate } else { 0 };
        let amount = match self.amount {
            // A negative number is a time in units of 10 ms. It is at most a day, so it fits.
            Amount::Time(time) => (-(time.as_millis() as i64 / 10)) as i32 as u32,
            Amount::Bytes(bytes) => bytes.min(i32::MAX as u64) as u32,
        };
        let words = [
            HAS_EXTENSION | ids | HAS_LENGTH | length,
            1,
            self.port.into(),
            self.len,
            0,
            amount,
            0,
            0,
            VERSION[0],
            VERSION[1],
            0,
            rate as u32,
            (rate >> 32) as u32,
            0,
            0,
        ];
        let mut bytes = [0; TEST_LEN];
        put(&mut bytes, &words);
        bytes
    }
}

/// The header that begins a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// Number of the datagram, from 1 on. The number of the last datagram is negative.
    pub id: i64,
    /// Time of day at which the datagram was sent, on the sender's clock.
    pub sent: Duration,
}

impl Datagram {
    /// Returns the header in wire format.
    #[must_use]
    pub fn bytes(self) -> [u8; DATAGRAM_LEN] {
        let id = self.id as u64;
        let mut bytes = [0; DATAGRAM_LEN];
        // Seconds of this century fit 32 bits.
        let seconds = self.sent.as_secs() as u32;
        put(&mut bytes, &[id as u32, seconds, self.sent.subsec_micros(), (id >> 32) as u32]);
        bytes
    }

    /// Reads a header. Returns `None` if the datagram is shorter than [`DATAGRAM_LEN`]. A sender of
    /// an older version, or a sender that does not describe its test, has ids of 32 bits.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [low, seconds, micros, high] = words(bytes, 0)?;
        let flags = words::<1>(bytes, DATAGRAM_LEN).map_or(0, |[flags]| flags);
        let id = match flags & LONG_IDS {
            0 => i64::from(low as i32),
            _ => (u64::from(high) << 32 | u64::from(low)) as i64,
        };
        let sent = Duration::from_secs(seconds.into()) + Duration::from_micros(micros.into());
        Some(Self { id, sent })
    }
}

/// A server's report of a test by UDP.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Report {
    /// Bytes that arrived.
    pub bytes: u64,
    /// Time from the first datagram to the last.
    pub length: Duration,
    /// Datagrams that did not arrive.
    pub lost: u32,
    /// Datagrams that arrived after a later datagram.
    pub out_of_order: u32,
    /// Datagrams sent, by the highest number that arrived.
    pub datagrams: u32,
    /// Variation of the transit time, smoothed as in RFC 1889.
    pub jitter: Duration,
}

impl Report {
    /// Returns the server's answer to the last datagram in wire format.
    #[must_use]
    pub fn bytes(&self) -> [u8; REPORT_LEN] {
        let mut bytes = [0; REPORT_LEN];
        let words = [
            HAS_FIRST,
            (self.bytes >> 32) as u32,
            self.bytes as u32,
            // The seconds of a test fit 32 bits.
            self.length.as_secs() as u32,
            self.length.subsec_micros(),
            self.lost,
            self.out_of_order,
            self.datagrams,
            self.jitter.as_secs() as u32,
            self.jitter.subsec_micros(),
        ];
        put(&mut bytes[DATAGRAM_LEN..], &words);
        bytes
    }

    /// Reads a report. Returns `None` if the datagram is too short, or if its flags show no report.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let words: [u32; 10] = words(bytes, DATAGRAM_LEN)?;
        let [flags, high, low, seconds, micros, lost, out_of_order, datagrams, ..] = words;
        let time = |seconds: u32, micros: u32| {
            Duration::from_secs(seconds.into()) + Duration::from_micros(micros.into())
        };
        (flags & HAS_FIRST != 0).then(|| Self {
            bytes: u64::from(high) << 32 | u64::from(low),
            length: time(seconds, micros),
            lost,
            out_of_order,
            datagrams,
            jitter: time(words[8], words[9]),
        })
    }
}

fn put(bytes: &mut [u8], words: &[u32]) {
    for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
}

fn words<const N: usize>(bytes: &[u8], at: usize) -> Option<[u32; N]> {
    let bytes = bytes.get(at..at + 4 * N)?;
    let mut words = [0; N];
    for (word, four) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_be_bytes(*four.first_chunk()?);
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::String;
    use std::vec;

    /// Compares with the bytes that iperf 2.1.8 sent, by `-t 1 -l 8192 -p 5601`.
    #[test]
    fn a_test_has_the_bytes_of_iperf() {
        let amount = Amount::Time(Duration::from_secs(1));
        let test = Test { udp: false, port: 5601, len: 8192, amount, rate: 1 };
        let hex: String = test.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let words =
            "4001007800000001000015e10000200000000000ffffff9c00000000000000000002000100080003";
        assert_eq!(hex, format!("{words:0<120}"));
        let amount = Amount::Time(Duration::from_millis(300));
        let test = Test { udp: true, port: 5602, len: 0, amount, rate: 0x20_0000 };
        assert!(test.bytes().starts_with(&[0x48, 1, 0, 0x98, 0, 0, 0, 1, 0, 0, 0x15, 0xe2]));
        assert_eq!(test.bytes()[20..24], [0xff, 0xff, 0xff, 0xe2]);
        assert_eq!(test.bytes()[44..48], [0, 0x20, 0, 0]);
        for (bytes, told) in [(0x10_0000, [0, 0x10, 0, 0]), (u64::MAX, [0x7f, 0xff, 0xff, 0xff])] {
            let test = Test { amount: Amount::Bytes(bytes), ..test };
            assert_eq!(test.bytes()[20..24], told);
        }
    }

    #[test]
    fn ids_have_64_bits_if_the_test_says_so() {
        let sent = Duration::new(0x6b02_c391, 330_640_000);
        let last = Datagram { id: -57, sent };
        let mut bytes = last.bytes().to_vec();
        assert_eq!(bytes[..4], [0xff, 0xff, 0xff, 0xc7]);
        assert_eq!(Datagram::parse(&bytes), Some(last));
        bytes[12..16].fill(0);
        assert_eq!(Datagram::parse(&bytes), Some(last), "from an older iperf");
        bytes.extend([0x48, 1, 0, 0x98]);
        assert_eq!(Datagram::parse(&bytes).map(|d| d.id), Some(0xffff_ffc7));
        for len in 0..DATAGRAM_LEN {
            assert_eq!(Datagram::parse(&bytes[..len]), None);
        }
    }

    /// Reads an answer of iperf 2.1.8, about 50 datagrams that came of 51.
    #[test]
    fn a_report_is_read_as_iperf_sends_it() {
        let mut bytes = vec![0; 16];
        let words = [0xc800_0000, 0, 73_500, 0, 111_402, 1, 0, 51, 0, 4];
        bytes.extend(words.iter().flat_map(|word: &u32| word.to_be_bytes()));
        let report = Report::parse(&bytes).expect("a report");
        assert_eq!((report.bytes, report.lost, report.datagrams), (73_500, 1, 51));
        assert_eq!(report.length, Duration::from_micros(111_402));
        assert_eq!(report.jitter, Duration::from_micros(4));
        assert_eq!(Report::parse(&report.bytes()), Some(report));
        assert_eq!(Report::parse(&bytes[..55]), None);
        bytes[16] = 0;
        assert_eq!(Report::parse(&bytes), None);
    }
}

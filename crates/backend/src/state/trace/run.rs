//! Runs: segments of one flow that follow on each other in a burst, and share one record.
//!
//! The record of a run is what a receiver that merges segments would have got (GRO): the headers of
//! the first segment, and the length of all of them together. The record also has the number of
//! segments and their size. As all of them have one time, it tells as much as a record for each.
//!
//! The first bytes of each further segment are compared with those of the first one, in words and
//! under a mask. So a segment costs no parsing, and no further record is written.

use super::{TRACE_HEAD, TraceRecord};
use grantway_netif::headers::tcp_flags::{ACK, PSH};
use grantway_netif::headers::{self, Family, Headers, Ipv6, Protocol};

/// Bytes of a word that is compared.
const WORD: usize = size_of::<u64>();
/// Words of a record's head.
const WORDS: usize = TRACE_HEAD / WORD;
/// Fewest bytes of payload. A segment of one byte may be a probe of a window that is shut, which an
/// analysis has to see by itself.
const PAYLOAD_MIN: u32 = 2;

/// Offset of the flags in a TCP header.
const TCP_FLAGS: usize = 13;

/// A run, which the next packet may continue.
#[derive(Debug)]
pub(super) struct Run {
    headers: Headers,
    /// The first segment's headers in words, with the bits that all further segments share.
    shared: [u64; WORDS],
    /// The shared bits.
    mask: [u64; WORDS],
    /// Number of words that are compared.
    words: usize,
    /// Sequence number of the segment that would follow.
    next: u32,
    /// Payload of each segment but the last.
    size: u32,
    /// Payload of the last segment. A run ends with a segment that is shorter than the others.
    last: u32,
    segments: u32,
    /// Bytes of the run as one packet.
    len: u32,
    /// Set if a segment had the flag.
    push: u8,
}

impl Run {
    /// Begins a run with the packet of a record. Returns none if no segment can continue it.
    pub fn begin(record: &TraceRecord) -> Option<Self> {
        let (head, len) = (record.head(), record.len);
        let headers = headers::read(head, len as usize).ok()?;
        if headers.protocol != Protocol::Tcp {
            return None;
        }
        let words = headers.header_end.div_ceil(WORD);
        let tcp = headers.start;
        let flags = *head.get(tcp + TCP_FLAGS)?;
        let size = len.checked_sub(u32::try_from(headers.header_end).ok()?)?;
        let is_plain = flags & !PSH == ACK && size >= PAYLOAD_MIN;
        if !is_plain || !has_length(&headers, head, len) {
            return None;
        }
        let mut mask = [0xff; TRACE_HEAD];
        let mut differs = |from: usize, bytes: usize| {
            mask.get_mut(from..from + bytes).into_iter().for_each(|bytes| bytes.fill(0));
        };
        differs(headers.header_end, TRACE_HEAD - headers.header_end);
        match headers.family {
            // Length and identification, and the checksum over them.
            Family::V4 => {
                differs(headers.ip + 2, 4);
                differs(headers.ip + 10, 2);
            }
            Family::V6 => differs(headers.ip + 4, 2),
        }
        // Sequence number and checksum.
        differs(tcp + 4, 4);
        differs(tcp + 16, 2);
        if let Some(flags) = mask.get_mut(tcp + TCP_FLAGS) {
            *flags = !PSH;
        }
        let mask = words_of(&mask);
        let mut shared = words_of(head);
        shared.iter_mut().zip(&mask).for_each(|(word, mask)| *word &= mask);
        let next = sequence(&headers, head)?.wrapping_add(size);
        let push = flags & PSH;
        Some(Self { headers, shared, mask, words, next, size, last: size, segments: 1, len, push })
    }

    /// Takes a packet of `len` bytes that begins with `head`. Returns true if it continues the run.
    /// Otherwise nothing changes.
    pub fn takes(&mut self, head: &[u8], len: usize) -> bool {
        let Some(payload) = len.checked_sub(self.headers.header_end) else { return false };
        let payload = u32::try_from(payload).unwrap_or(u32::MAX);
        let fits = (PAYLOAD_MIN..=self.size).contains(&payload) && self.last == self.size;
        let Some(total) = self.len.checked_add(payload).filter(|_| fits) else { return false };
        let (words, _) = head.as_chunks();
        let (Some(words), Some(shared), Some(mask)) =
            (words.get(..self.words), self.shared.get(..self.words), self.mask.get(..self.words))
        else {
            return false;
        };
        let mut differ = 0;
        for ((word, shared), mask) in words.iter().zip(shared).zip(mask) {
            differ |= (u64::from_ne_bytes(*word) & mask) ^ shared;
        }
        if differ != 0
            || sequence(&self.headers, head) != Some(self.next)
            || !has_length(&self.headers, head, len as u32)
        {
            return false;
        }
        let flags = head.get(self.headers.start + TCP_FLAGS).copied().unwrap_or(0);
        self.push |= flags & PSH;
        self.next = self.next.wrapping_add(payload);
        (self.last, self.len) = (payload, total);
        self.segments += 1;
        true
    }

    /// Writes the run to the record of its first segment.
    pub fn end(self, record: &mut TraceRecord) {
        if self.segments == 1 {
            return;
        }
        (record.len, record.segments, record.segment_bytes) = (self.len, self.segments, self.size);
        let Headers { ip, start, family, .. } = self.headers;
        if let Some(flags) = record.head.get_mut(start + TCP_FLAGS) {
            *flags |= self.push;
        }
        let total = claimed(&self.headers, self.len);
        // A length of 0 stands for all of the frame, as in frames that a sender leaves to others to
        // segment.
        let total = u16::try_from(total).unwrap_or(0);
        let at = ip + if family == Family::V4 { 2 } else { 4 };
        let before = half(&record.head, at).unwrap_or(0);
        put(&mut record.head, at, total);
        if let Some(sum) = half(&record.head, ip + 10).filter(|_| family == Family::V4) {
            // The checksum, updated (RFC 1624).
            let sum = u32::from(!sum) + u32::from(!before) + u32::from(total);
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = (sum & 0xffff) + (sum >> 16);
            put(&mut record.head, ip + 10, !(sum as u16));
        }
    }
}

/// Returns the length that the IP header of a frame of `len` bytes is to have.
fn claimed(headers: &Headers, len: u32) -> u32 {
    let header = match headers.family {
        Family::V4 => headers.ip,
        Family::V6 => headers.ip + Ipv6::BYTES,
    };
    // An IP header lies within the first 128 bytes.
    len.saturating_sub(header as u32)
}

/// Returns true if the IP header has the length of the frame, which is not padded then.
fn has_length(headers: &Headers, head: &[u8], len: u32) -> bool {
    let at = headers.ip + if headers.family == Family::V4 { 2 } else { 4 };
    half(head, at).is_some_and(|length| u32::from(length) == claimed(headers, len))
}

fn sequence(headers: &Headers, head: &[u8]) -> Option<u32> {
    let at = headers.start + 4;
    head.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

fn half(head: &[u8], at: usize) -> Option<u16> {
    head.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

fn put(head: &mut [u8], at: usize, value: u16) {
    if let Some(field) = head.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

/// Returns bytes as words, with zeros behind them.
fn words_of(bytes: &[u8]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    let (chunks, _) = bytes.as_chunks();
    words.iter_mut().zip(chunks).for_each(|(word, bytes)| *word = u64::from_ne_bytes(*bytes));
    words
}

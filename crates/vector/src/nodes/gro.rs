//! Merging of a TCP flow's segments and a UDP flow's datagrams, for receivers that accept large
//! frames.
//!
//! Datagrams are merged as Linux's UDP GRO does it (`udp_gro_receive`). All have the same length,
//! but the last may be shorter, and none is empty. A datagram that has no checksum is not merged.
//! IPv4's identifications count up by one, or all are the same and the packets must not be
//! fragmented: Linux numbers the datagrams of a connected socket, and gives all others 0. A
//! receiver that cuts the frame again numbers the datagrams in both cases, as Linux does. If a
//! packet must not be fragmented, its identification has no meaning (RFC 6864).

use crate::batch::{Link, Verdict};
use crate::headers::{Fragment, Headers, Network, Transport};
use crate::node::{Context, Node, Out};
use crate::nodes::ipv4::finish_header;
use crate::nodes::transport::pseudo_sum;
use crate::report::Report;
use crate::set::Set;
use crate::wire::{put, u8_at, u16_at, u32_at};
use arrayvec::ArrayVec;
use grantway_netif::headers::tcp_flags::{ACK, PSH};
use grantway_netif::headers::{Ipv4, Ipv6, Protocol, Udp};
use grantway_netif::{Checksum, Gso, GsoKind, Offload};

/// Most flows that are merged at a time. One more replaces the oldest.
const FLOWS: usize = 8;
/// Bytes of the longest frame, which is the most that netif's fields of 16 bits can hold.
const FRAME_MAX: u32 = 65_535;
/// Most datagrams of a frame: Linux before 6.9 accepts no more (`UDP_MAX_SEGMENTS`).
const DATAGRAMS_MAX: u32 = 64;
/// IPv4's flag that a packet must not be fragmented, in the byte of the flags.
const DONT_FRAGMENT: u8 = 0x40;

/// A frame that further segments may follow. A datagram is a segment of UDP, without sequence
/// number and push.
#[derive(Debug, Clone, Copy)]
struct Open {
    head: u8,
    last: u8,
    /// Sequence number of the segment that would follow.
    next: u32,
    /// Payload bytes of each segment but the last.
    size: u32,
    /// Bytes of the IP packet so far.
    total: u32,
    /// IPv4's identification of the last segment.
    id: u16,
    /// Difference of its identification to the one before; 1 if there is none before.
    id_step: u16,
    segments: u32,
    push: u8,
    kind: GsoKind,
}

/// Merges segments that follow each other in one list, as links: no payload is moved. A segment is
/// merged only if its sender vouches for its checksum, and if a segmenter would cut the large frame
/// into the same segments again.
#[derive(Debug, Default)]
pub struct Gro {
    open: ArrayVec<Open, FLOWS>,
    merged: u64,
}

/// Fields of a segment that are compared.
#[derive(Clone, Copy)]
struct Segment<'a> {
    bytes: &'a [u8],
    headers: &'a Headers,
    checksum: Checksum,
    verdict: Verdict,
    queue: Option<u16>,
    protocol: Protocol,
    sequence: u32,
    payload: u32,
}

impl<'a> Segment<'a> {
    fn read(number: u8, context: &'a Context<'_>) -> Option<Self> {
        let batch = &context.batch;
        let (frame, headers) = (batch.frame(number), batch.headers(number));
        let bytes = frame.bytes(context.arena);
        let (protocol, sequence) = match headers.transport {
            Transport::Udp => (Protocol::Udp, 0),
            _ => (Protocol::Tcp, u32_at(bytes, usize::from(headers.transport_at) + 4)?),
        };
        let payload = headers.end.checked_sub(headers.payload_at.into())?;
        let (checksum, verdict) = (frame.offload.checksum, batch.verdict(number));
        let queue = batch.queue(number);
        Some(Self { bytes, headers, checksum, verdict, queue, protocol, sequence, payload })
    }

    /// Returns true if the segment may be merged at all.
    fn may_begin(&self, number: u8, context: &Context<'_>) -> bool {
        let headers = self.headers;
        let plain = match headers.network {
            Network::V4 => Ipv4::BYTES,
            _ => Ipv6::BYTES,
        };
        let gso = Gso { kind: self.kind(), size: 1 };
        let takes = match self.verdict {
            Verdict::To(port) => context.receivers.of(port).gso(gso),
            _ => false,
        };
        takes
            && context.batch.frame(number).offload.gso.is_none()
            && self.checksum != Checksum::Unknown
            && usize::from(headers.transport_at - headers.network_at) == plain
            && self.payload > 0
            && self.bytes.len() >= usize::from(headers.payload_at)
            && match self.protocol {
                Protocol::Tcp => headers.tcp_flags & !PSH == ACK,
                Protocol::Udp => self.is_whole_datagram(),
            }
    }

    /// Returns true if a datagram has a checksum, and ends where its packet does.
    fn is_whole_datagram(&self) -> bool {
        let at = usize::from(self.headers.transport_at);
        let length = self.payload + Udp::BYTES as u32;
        u16_at(self.bytes, at + 4).map(u32::from) == Some(length)
            && u16_at(self.bytes, at + 6).is_some_and(|checksum| checksum != 0)
    }

    fn kind(&self) -> GsoKind {
        match (self.protocol, self.headers.network) {
            (Protocol::Udp, _) => GsoKind::Udp,
            (Protocol::Tcp, Network::V4) => GsoKind::Tcpv4,
            (Protocol::Tcp, _) => GsoKind::Tcpv6,
        }
    }

    fn id(&self) -> u16 {
        u16_at(self.bytes, usize::from(self.headers.network_at) + 4).unwrap_or(0)
    }

    /// Returns true if the segment continues an open frame, by its identification over IPv4.
    fn has_next_id(&self, open: &Open) -> bool {
        if self.headers.network != Network::V4 {
            return true;
        }
        let flags = u8_at(self.bytes, usize::from(self.headers.network_at) + 6).unwrap_or(0);
        match (self.protocol, self.id().wrapping_sub(open.id)) {
            (_, 1) => open.id_step == 1,
            (Protocol::Udp, 0) => {
                flags & DONT_FRAGMENT != 0 && (open.segments == 1 || open.id_step == 0)
            }
            _ => false,
        }
    }

    /// Returns true if the segment continues an open frame, by its numbers and its length.
    fn follows(&self, open: &Open) -> bool {
        let next = match self.protocol {
            Protocol::Tcp => self.sequence == open.next && open.push == 0,
            Protocol::Udp => open.segments < DATAGRAMS_MAX,
        };
        let end = u32::from(self.headers.network_at) + open.total + self.payload;
        next && self.payload <= open.size && end <= FRAME_MAX && self.has_next_id(open)
    }

    /// Returns true if both segments agree in everything that a segmenter would give both of them.
    fn is_alike(&self, other: &Self) -> bool {
        let (a, b) = (self.headers, other.headers);
        let same = |from: usize, to: usize| self.bytes.get(from..to) == other.bytes.get(from..to);
        let (ip, tcp) = (usize::from(a.network_at), usize::from(a.transport_at));
        let transport = || match self.protocol {
            // Acknowledgement and header length; window; urgent pointer and options.
            Protocol::Tcp => {
                same(tcp + 8, tcp + 13)
                    && same(tcp + 14, tcp + 16)
                    && same(tcp + 18, usize::from(a.payload_at))
            }
            Protocol::Udp => true,
        };
        let network = match a.network {
            // Version, header length and type of service; flags, fragment offset and time to live.
            Network::V4 => same(ip, ip + 2) && same(ip + 6, ip + 9),
            // Version, class and label; next header and hop limit.
            _ => same(ip, ip + 4) && same(ip + 6, ip + 8),
        };
        a.network_at == b.network_at
            && a.transport_at == b.transport_at
            && a.payload_at == b.payload_at
            && self.checksum == other.checksum
            && self.verdict == other.verdict
            && self.queue == other.queue
            && same(0, ip)
            && network
            && transport()
    }
}

fn is_same_flow(a: &Headers, b: &Headers) -> bool {
    a.source == b.source
        && a.target == b.target
        && a.ports == b.ports
        && a.network == b.network
        && a.transport == b.transport
}

impl Gro {
    fn take(&mut self, number: u8, context: &mut Context<'_>) {
        let headers = context.batch.headers(number);
        if headers.fragment != Fragment::Whole {
            // A fragment may be of any flow between those hosts, so nothing is merged past it.
            return self.close_all(context);
        }
        let looks = match headers.transport {
            Transport::Tcp => true,
            Transport::Udp => context.receivers.takes_udp(context.batch.verdict(number)),
            _ => false,
        };
        if !looks {
            return;
        }
        // A flow has at most one open frame.
        let of_flow = |open: &Open| is_same_flow(context.batch.headers(open.head), headers);
        let at = self.open.iter().position(of_flow);
        let segment = Segment::read(number, context);
        let segment = segment.filter(|segment| segment.may_begin(number, context));
        // A segment that may not be merged ends the open frame of its flow.
        let (Some(segment), Some(open)) = (&segment, at.and_then(|at| self.open.get_mut(at)))
        else {
            let fresh = segment.map(|segment| Open::new(number, &segment));
            at.into_iter().for_each(|at| self.close(at, context));
            return fresh.into_iter().for_each(|open| self.begin(open, context));
        };
        // A segment that does not follow ends the open frame, and begins one of its own.
        let head = Segment::read(open.head, context);
        let fits = segment.follows(open) && head.is_some_and(|head| head.is_alike(segment));
        if !fits {
            let fresh = Open::new(number, segment);
            at.into_iter().for_each(|at| self.close(at, context));
            return self.begin(fresh, context);
        }
        // The segment becomes the last of the open frame.
        let (payload, skip) = (segment.payload, u32::from(segment.headers.payload_at));
        let last = open.last;
        open.last = number;
        open.next = open.next.wrapping_add(payload);
        open.total += payload;
        open.id_step = segment.id().wrapping_sub(open.id);
        open.id = segment.id();
        open.segments += 1;
        open.push = segment.headers.tcp_flags & PSH;
        let short = payload < open.size;
        let end = segment.headers.end;
        cut(context, number, end);
        context.batch.set_link(last, Link { frame: number, skip });
        context.batch.decide(number, Verdict::Merged);
        self.merged += 1;
        // A segmenter gives only the last segment less payload, so nothing may follow.
        if short {
            at.into_iter().for_each(|at| self.close(at, context));
        }
    }

    fn begin(&mut self, open: Open, context: &mut Context<'_>) {
        if self.open.is_full() {
            self.close(0, context);
        }
        self.open.push(open);
    }

    fn close_all(&mut self, context: &mut Context<'_>) {
        while !self.open.is_empty() {
            self.close(0, context);
        }
    }

    /// Ends an open frame: the headers of its first segment are made those of all of it.
    fn close(&mut self, at: usize, context: &mut Context<'_>) {
        let Some(open) = self.open.pop_at(at).filter(|open| open.segments > 1) else { return };
        let headers = *context.batch.headers(open.head);
        cut(context, open.head, headers.end);
        let (ip, start) = (usize::from(headers.network_at), usize::from(headers.transport_at));
        let length = open.total - (start - ip) as u32;
        let frame = context.batch.frame_mut(open.head);
        // A segment's payload is no longer than a packet, so its size fits.
        let gso = Gso { kind: open.kind, size: open.size as u16 };
        frame.offload = Offload { checksum: Checksum::Partial, gso: Some(gso) };
        let bytes = frame.bytes_mut(context.arena);
        match headers.network {
            Network::V4 => {
                put(bytes, ip + 2, &(open.total as u16).to_be_bytes());
                bytes.get_mut(ip..).into_iter().for_each(finish_header);
            }
            _ => {
                put(bytes, ip + 4, &(length as u16).to_be_bytes());
            }
        }
        let protocol = match open.kind {
            GsoKind::Udp => {
                put(bytes, start + 4, &(length as u16).to_be_bytes());
                Protocol::Udp
            }
            GsoKind::Tcpv4 | GsoKind::Tcpv6 => {
                if let Some(flags) = bytes.get_mut(start + 13) {
                    *flags |= open.push;
                }
                Protocol::Tcp
            }
        };
        // The receiver sums the rest of the checksum onto this.
        let unfinished = !pseudo_sum(&headers, length).ones_complement();
        put(bytes, start + protocol.checksum_offset(), &unfinished.to_ne_bytes());
    }
}

impl Open {
    fn new(head: u8, segment: &Segment<'_>) -> Self {
        let headers = segment.headers;
        Self {
            head,
            last: head,
            next: segment.sequence.wrapping_add(segment.payload),
            size: segment.payload,
            total: headers.end - u32::from(headers.network_at),
            id: segment.id(),
            id_step: 1,
            segments: 1,
            push: headers.tcp_flags & PSH,
            kind: segment.kind(),
        }
    }
}

/// Leaves out the bytes behind the IP packet.
fn cut(context: &mut Context<'_>, number: u8, end: u32) {
    let frame = context.batch.frame_mut(number);
    frame.len = frame.len.min(end);
    frame.head = frame.head.min(frame.len);
}

impl Node for Gro {
    fn name(&self) -> &'static str {
        "gro"
    }

    fn process(&mut self, list: &Set, context: &mut Context<'_>, _: &mut Out) {
        if list.len() < 2 {
            return;
        }
        for number in list {
            self.take(number, context);
        }
        self.close_all(context);
    }

    fn report(&self, report: &mut Report) {
        report.merged = self.merged;
    }
}

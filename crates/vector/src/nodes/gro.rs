//! Segments of one TCP flow, merged for receivers that take large frames.

use crate::batch::{Link, Verdict};
use crate::headers::{Fragment, Headers, Network, Transport};
use crate::node::{Context, Node, Out};
use crate::nodes::ipv4::finish_header;
use crate::nodes::transport::pseudo_sum;
use crate::report::Report;
use crate::set::Set;
use crate::wire::{put, u16_at, u32_at};
use arrayvec::ArrayVec;
use grantway_netif::headers::tcp_flags::{ACK, PSH};
use grantway_netif::{Checksum, Gso, GsoKind, Offload};

/// Most flows that are merged at a time; the oldest makes room.
const FLOWS: usize = 8;
/// Bytes of the longest frame: what netif's fields of 16 bits tell of.
const FRAME_MAX: u32 = 65_535;

/// A segment that others may follow.
#[derive(Debug, Clone, Copy)]
struct Open {
    head: u8,
    last: u8,
    /// The byte of the stream that would follow.
    next: u32,
    /// Payload of each segment but the last.
    size: u32,
    /// Bytes of the IP packet so far.
    total: u32,
    /// IPv4's identification of the last.
    id: u16,
    segments: u32,
    push: u8,
}

/// Merges segments that follow each other in one list, as links: no payload is
/// moved. Only what vouches for its checksum is merged, and what a segmenter would
/// cut again into the same segments.
#[derive(Debug, Default)]
pub struct Gro {
    open: ArrayVec<Open, FLOWS>,
    merged: u64,
}

/// What is compared of a segment.
struct Segment<'a> {
    bytes: &'a [u8],
    headers: &'a Headers,
    checksum: Checksum,
    verdict: Verdict,
    queue: Option<u16>,
    sequence: u32,
    payload: u32,
}

impl<'a> Segment<'a> {
    fn read(number: u8, context: &'a Context<'_>) -> Option<Self> {
        let batch = &context.batch;
        let (frame, headers) = (batch.frame(number), batch.headers(number));
        let bytes = frame.bytes(context.arena);
        let sequence = u32_at(bytes, usize::from(headers.transport_at) + 4)?;
        let payload = headers.end.checked_sub(headers.payload_at.into())?;
        let (checksum, verdict) = (frame.offload.checksum, batch.verdict(number));
        let queue = batch.queue(number);
        Some(Self { bytes, headers, checksum, verdict, queue, sequence, payload })
    }

    /// Whether it may be merged at all.
    fn may_begin(&self, number: u8, context: &Context<'_>) -> bool {
        let headers = self.headers;
        let (kind, plain) = match headers.network {
            Network::V4 => (GsoKind::Tcpv4, 20),
            _ => (GsoKind::Tcpv6, 40),
        };
        let takes = match self.verdict {
            Verdict::To(port) => context.receivers.of(port).gso(Gso { kind, size: 1 }),
            _ => false,
        };
        takes
            && context.batch.frame(number).offload.gso.is_none()
            && self.checksum != Checksum::Unknown
            && headers.transport_at - headers.network_at == plain
            && headers.tcp_flags & !PSH == ACK
            && self.payload > 0
            && self.bytes.len() >= usize::from(headers.payload_at)
    }

    fn id(&self) -> u16 {
        u16_at(self.bytes, usize::from(self.headers.network_at) + 4).unwrap_or(0)
    }

    /// Whether all but what differs from segment to segment is the same.
    fn is_alike(&self, other: &Self) -> bool {
        let (a, b) = (self.headers, other.headers);
        let same = |from: usize, to: usize| self.bytes.get(from..to) == other.bytes.get(from..to);
        let (ip, tcp) = (usize::from(a.network_at), usize::from(a.transport_at));
        let network = match a.network {
            // Type of service; flags and time to live.
            Network::V4 => same(ip, ip + 2) && same(ip + 6, ip + 9),
            // Class and label; next header and hop limit.
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
            // Acknowledgement; window; urgent pointer and options.
            && same(tcp + 8, tcp + 13)
            && same(tcp + 14, tcp + 16)
            && same(tcp + 18, usize::from(a.payload_at))
    }
}

fn is_same_flow(a: &Headers, b: &Headers) -> bool {
    a.source == b.source && a.target == b.target && a.ports == b.ports && a.network == b.network
}

impl Gro {
    fn take(&mut self, number: u8, context: &mut Context<'_>) {
        let headers = context.batch.headers(number);
        if headers.fragment != Fragment::Whole {
            // It may be of any flow between those hosts.
            return self.close_all(context);
        }
        if headers.transport != Transport::Tcp {
            return;
        }
        let of_flow = |open: &Open| is_same_flow(context.batch.headers(open.head), headers);
        let at = self.open.iter().position(of_flow);
        let segment = Segment::read(number, context);
        let segment = segment.filter(|segment| segment.may_begin(number, context));
        let (Some(segment), Some(open)) = (&segment, at.and_then(|at| self.open.get_mut(at)))
        else {
            let fresh = segment.map(|segment| Open::new(number, &segment));
            at.into_iter().for_each(|at| self.close(at, context));
            return fresh.into_iter().for_each(|open| self.begin(open, context));
        };
        let head = Segment::read(open.head, context);
        let fits = segment.sequence == open.next
            && open.push == 0
            && segment.payload <= open.size
            && u32::from(headers.network_at) + open.total + segment.payload <= FRAME_MAX
            && (segment.headers.network != Network::V4 || segment.id() == open.id.wrapping_add(1))
            && head.is_some_and(|head| head.is_alike(segment));
        if !fits {
            let fresh = Open::new(number, segment);
            at.into_iter().for_each(|at| self.close(at, context));
            return self.begin(fresh, context);
        }
        let (payload, skip) = (segment.payload, u32::from(segment.headers.payload_at));
        let last = open.last;
        open.last = number;
        open.next = open.next.wrapping_add(payload);
        open.total += payload;
        open.id = segment.id();
        open.segments += 1;
        open.push = segment.headers.tcp_flags & PSH;
        let short = payload < open.size;
        let end = segment.headers.end;
        cut(context, number, end);
        context.batch.set_link(last, Link { frame: number, skip });
        context.batch.decide(number, Verdict::Merged);
        self.merged += 1;
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

    /// Nothing follows any more: the first segment's headers are made those of all.
    fn close(&mut self, at: usize, context: &mut Context<'_>) {
        let Some(open) = self.open.pop_at(at).filter(|open| open.segments > 1) else { return };
        let headers = *context.batch.headers(open.head);
        cut(context, open.head, headers.end);
        let (ip, tcp) = (usize::from(headers.network_at), usize::from(headers.transport_at));
        let length = open.total - (tcp - ip) as u32;
        let frame = context.batch.frame_mut(open.head);
        let kind = if headers.network == Network::V4 { GsoKind::Tcpv4 } else { GsoKind::Tcpv6 };
        // A segment's payload is no longer than a packet.
        let gso = Gso { kind, size: open.size as u16 };
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
        if let Some(flags) = bytes.get_mut(tcp + 13) {
            *flags |= open.push;
        }
        // What is left to be done is summed onto this.
        let unfinished = !pseudo_sum(&headers, length).ones_complement();
        put(bytes, tcp + 16, &unfinished.to_ne_bytes());
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
            segments: 1,
            push: headers.tcp_flags & PSH,
        }
    }
}

/// Leaves out what is behind the IP packet.
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

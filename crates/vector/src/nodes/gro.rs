//! Merging of a TCP flow's segments, for receivers that accept large frames.

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

/// Most flows that are merged at a time. One more replaces the oldest.
const FLOWS: usize = 8;
/// Bytes of the longest frame, which is the most that netif's fields of 16 bits can hold.
const FRAME_MAX: u32 = 65_535;

/// A frame that further segments may follow.
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
    segments: u32,
    push: u8,
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

    /// Returns true if the segment may be merged at all.
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

    /// Returns true if both segments agree in everything that a segmenter would give both of them.
    fn is_alike(&self, other: &Self) -> bool {
        let (a, b) = (self.headers, other.headers);
        let same = |from: usize, to: usize| self.bytes.get(from..to) == other.bytes.get(from..to);
        let (ip, tcp) = (usize::from(a.network_at), usize::from(a.transport_at));
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
            // Acknowledgement and header length; window; urgent pointer and options.
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
            // A fragment may be of any flow between those hosts, so nothing is merged past it.
            return self.close_all(context);
        }
        if headers.transport != Transport::Tcp {
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
        // The segment becomes the last of the open frame.
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
        let (ip, tcp) = (usize::from(headers.network_at), usize::from(headers.transport_at));
        let length = open.total - (tcp - ip) as u32;
        let frame = context.batch.frame_mut(open.head);
        let kind = if headers.network == Network::V4 { GsoKind::Tcpv4 } else { GsoKind::Tcpv6 };
        // A segment's payload is no longer than a packet, so its size fits.
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
        // The receiver sums the rest of the checksum onto this.
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

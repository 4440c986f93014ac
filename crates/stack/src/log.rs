//! The state of each flow of TCP, for a log.
//!
//! smoltcp keeps its windows and timers to itself. What is here is derived from the segments that
//! pass the device, both ways, and from a socket's queue.

use crate::flows::Flows;
use crate::recovery::DUPLICATES;
use crate::segment::{Ends, Segment, before};
use alloc::collections::VecDeque;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::IpEndpoint;

/// Most flows whose state is kept. If one more begins, the flow that was quiet for longest is
/// forgotten.
const FLOWS: usize = 256;
/// Connections that peers asked for, of which the shift of the window is kept until the answer.
const ASKED: usize = 64;
/// Least time after which smoltcp sends a segment again for want of an answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// State of a flow, as the sender of this end has it. Bytes are of payload, and counts are from the
/// flow's begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowState {
    /// Address and port of this end.
    pub local: IpEndpoint,
    /// Address and port of the other end.
    pub remote: IpEndpoint,
    /// Bytes that were sent, each counted once.
    pub sent: u64,
    /// Bytes that were acknowledged.
    pub acked: u64,
    /// Bytes under way.
    pub in_flight: u32,
    /// Bytes that the other end has room for, from the last one that it acknowledged.
    pub window: u32,
    /// Bytes that the socket has and has not sent; none if no socket has the flow any more.
    pub unsent: Option<usize>,
    /// The congestion window: bytes under way when more was there to be sent, and the other end's
    /// window had room. None if nothing was held back.
    pub congestion: Option<u32>,
    /// The last measured round trip.
    pub rtt: Option<Duration>,
    /// Time after which the last segment was sent again for want of an answer.
    pub rto: Option<Duration>,
    /// Segments, as smoltcp makes them, that were sent again.
    pub again: u64,
    /// Bytes that were sent again.
    pub again_bytes: u64,
    /// Times that the first byte under way was sent again for want of an answer.
    pub timeouts: u64,
    /// Times that it was sent again after acknowledgements that repeat an earlier one.
    pub fast: u64,
    /// Acknowledgements that repeat an earlier one.
    pub duplicate_acks: u64,
}

impl FlowState {
    /// Returns the state of a flow of which nothing is known but its ends.
    #[must_use]
    pub fn new(local: IpEndpoint, remote: IpEndpoint) -> Self {
        Self {
            local,
            remote,
            sent: 0,
            acked: 0,
            in_flight: 0,
            window: 0,
            unsent: None,
            congestion: None,
            rtt: None,
            rto: None,
            again: 0,
            again_bytes: 0,
            timeouts: 0,
            fast: 0,
            duplicate_acks: 0,
        }
    }
}

/// A flow.
#[derive(Debug)]
struct Flow {
    state: FlowState,
    /// True if a segment passed since the state was last read.
    moved: bool,
    /// The first number that is not acknowledged.
    first: u32,
    /// The number behind the last one that was sent.
    next: u32,
    /// Shift of the windows that the other end tells.
    shift: u8,
    /// The number whose acknowledgement ends a round trip, and the time at which it was sent.
    trip: Option<(u32, Instant)>,
    /// Time from which the answer to the first number is waited for.
    waits: Instant,
    /// Acknowledgements in a row that repeat an earlier one.
    duplicates: u32,
    /// True if the first number is to be sent again for want of an answer, sooner than smoltcp's
    /// timer says.
    wanting: bool,
}

/// The states of flows.
#[derive(Debug, Default)]
pub(crate) struct FlowLog {
    flows: Flows<Flow, FLOWS>,
    /// The last connections that peers asked for, the newest first: their ends, and the shift of the
    /// peer's window.
    asked: VecDeque<(Ends, u8)>,
}

impl FlowLog {
    /// Takes a segment that smoltcp sends.
    pub fn sent(&mut self, segment: &Segment<'_>, now: Instant) {
        let (local, remote) = (segment.from, segment.to);
        if segment.header.syn() {
            // A SYN that is sent again goes on with the flow.
            let known = self.flows.get_mut(&(local, remote));
            if known.is_none_or(|flow| flow.first != segment.number) {
                self.begin(local, remote, segment.number, now);
            }
        }
        let Some(flow) = self.flows.get_mut(&(local, remote)) else { return };
        flow.moved = true;
        flow.send(segment, now);
        self.flows.touch(now);
    }

    /// Takes a segment that smoltcp is given. Only if the segment is `taken` for one of a flow, by its
    /// numbers, it changes the flow's state: a stranger can make others, and a path can delay them.
    pub fn received(&mut self, segment: &Segment<'_>, taken: bool, now: Instant) {
        let ends = (segment.to, segment.from);
        if segment.header.syn() && !segment.header.ack() {
            // A flow begins with our own SYN, which answers this one.
            self.asked.truncate(ASKED - 1);
            self.asked.push_front((ends, segment.shift()));
        }
        let Some(flow) = self.flows.get_mut(&ends).filter(|_| taken) else { return };
        flow.moved = true;
        flow.receive(segment, now);
        self.flows.touch(now);
    }

    /// Notes that a segment of a flow is to be sent again since acknowledgements were repeated here:
    /// for want of one, or for one that named the segment.
    pub fn repeated(&mut self, ends: &Ends, for_want: bool) {
        if let Some(flow) = self.flows.get_mut(ends) {
            flow.wanting = for_want;
            flow.duplicates = DUPLICATES;
        }
    }

    fn begin(&mut self, local: IpEndpoint, remote: IpEndpoint, number: u32, now: Instant) {
        let asked = self.asked.iter().find(|(ends, _)| *ends == (local, remote));
        let shift = asked.map_or(0, |(_, shift)| *shift);
        let state = FlowState::new(local, remote);
        let flow = Flow {
            state,
            moved: true,
            first: number,
            next: number,
            shift,
            trip: None,
            waits: now,
            duplicates: 0,
            wanting: false,
        };
        self.flows.insert((local, remote), flow, now);
    }

    /// Gives `each` the state of each flow that had a segment since the last call. `queued` returns
    /// the bytes that the flow's socket has to send or has under way. `free` is true if the device
    /// had room for more.
    pub fn states(
        &mut self,
        queued: impl Fn(&FlowState) -> Option<usize>,
        free: bool,
        each: &mut dyn FnMut(&FlowState),
    ) {
        for (_, flow) in self.flows.iter_mut().filter(|(_, flow)| flow.moved) {
            flow.moved = false;
            let state = &mut flow.state;
            state.unsent =
                queued(state).map(|bytes| bytes.saturating_sub(state.in_flight as usize));
            let held = state.unsent.is_some_and(|unsent| unsent > 0);
            let room = state.window > state.in_flight && state.in_flight > 0;
            state.congestion = (held && room && free).then_some(state.in_flight);
            each(state);
        }
    }
}

impl Flow {
    fn send(&mut self, segment: &Segment<'_>, now: Instant) {
        let end = segment.number.wrapping_add(segment.takes);
        // What keeps a connection alive, and an acknowledgement, is not data that is waited for.
        if segment.takes == 0 || !before(self.first, end) {
            return;
        }
        let state = &mut self.state;
        if before(segment.number, self.next) {
            let known = self.next.wrapping_sub(segment.number).min(segment.payload);
            state.again += 1;
            state.again_bytes += u64::from(known);
            // Round trips of what was sent twice cannot be told apart (Karn).
            self.trip = None;
            if segment.number == self.first {
                let waited = now - self.waits;
                if waited >= TIMEOUT || self.wanting {
                    state.timeouts += 1;
                    state.rto = Some(waited);
                } else if self.duplicates >= DUPLICATES {
                    state.fast += 1;
                }
                (self.duplicates, self.wanting) = (0, false);
                self.waits = now;
            }
        }
        if before(self.next, end) {
            if self.first == self.next {
                self.waits = now;
            }
            self.trip.get_or_insert((end, now));
            // Numbers of SYN and FIN are no bytes.
            let added = end.wrapping_sub(self.next).min(segment.payload);
            state.sent += u64::from(added);
            self.next = end;
        }
        state.in_flight = self.next.wrapping_sub(self.first);
    }

    fn receive(&mut self, segment: &Segment<'_>, now: Instant) {
        let header = &segment.header;
        if header.syn() {
            self.shift = segment.shift();
        }
        if !header.ack() {
            return;
        }
        let state = &mut self.state;
        let window = match header.syn() {
            true => u32::from(header.window_len()),
            false => u32::from(header.window_len()) << self.shift,
        };
        let acknowledged = header.ack_number().0 as u32;
        let same = acknowledged == self.first
            && segment.takes == 0
            && (window == state.window || segment.ranges().is_selective());
        if before(self.first, acknowledged) && !before(self.next, acknowledged) {
            // Numbers of SYN and FIN are no bytes.
            let more = u64::from(acknowledged.wrapping_sub(self.first));
            state.acked = (state.acked + more).min(state.sent);
            self.first = acknowledged;
            (self.waits, self.duplicates, self.wanting) = (now, 0, false);
            if let Some((_, began)) = self.trip.take_if(|(end, _)| !before(acknowledged, *end)) {
                state.rtt = Some(now - began);
            }
        } else if same && self.first != self.next {
            self.duplicates += 1;
            state.duplicate_acks += 1;
        }
        if !before(acknowledged, self.first) {
            state.window = window;
        }
        // Numbers of SYN and FIN are counted while they are under way.
        state.in_flight = self.next.wrapping_sub(self.first);
    }
}

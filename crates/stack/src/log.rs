//! The state of each TCP flow, for a log.
//!
//! smoltcp does not show its windows and timers. The values here are derived from the segments that
//! pass the device in both directions, and from the queue of the socket.

use crate::flows::Flows;
use crate::recovery::DUPLICATES;
use crate::segment::{Ends, Segment, before};
use alloc::collections::VecDeque;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::IpEndpoint;

/// Most flows whose state is kept. If one more begins, the flow that was quiet for longest is
/// forgotten.
const FLOWS: usize = 256;
/// Most connections of peers whose window scale is kept until they are answered.
const ASKED: usize = 64;
/// Shortest time after which smoltcp sends a segment again because no answer came.
const TIMEOUT: Duration = Duration::from_secs(1);

/// State of a flow, as this end sends. Bytes are payload, and counts begin with the flow.
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
    /// Bytes that were sent and are not acknowledged.
    pub in_flight: u32,
    /// Bytes that the other end has room for, counted from the last acknowledged byte.
    pub window: u32,
    /// Bytes that the socket has not sent yet, or `None` if no socket has the flow.
    pub unsent: Option<usize>,
    /// The congestion window: bytes in flight at a moment when more could be sent and the other
    /// end's window had room. `None` if nothing was held back.
    pub congestion: Option<u32>,
    /// The last measured round trip.
    pub rtt: Option<Duration>,
    /// Time after which the last segment was sent again because no answer came.
    pub rto: Option<Duration>,
    /// Segments that were sent again, as smoltcp makes segments.
    pub again: u64,
    /// Bytes that were sent again.
    pub again_bytes: u64,
    /// Times that the first unacknowledged byte was sent again because no answer came.
    pub timeouts: u64,
    /// Times that the first unacknowledged byte was sent again after repeated acknowledgements.
    pub fast: u64,
    /// Acknowledgements that repeat an earlier one.
    pub duplicate_acks: u64,
}

impl FlowState {
    /// Returns the state of a flow of which only the ends are known.
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
    /// True if there was a segment since the state was last read.
    moved: bool,
    /// First number that is not acknowledged.
    first: u32,
    /// Number behind the last one that was sent.
    next: u32,
    /// Window scale of the other end.
    shift: u8,
    /// Number whose acknowledgement ends a round trip, and the time at which it was sent.
    trip: Option<(u32, Instant)>,
    /// Time since which the first number waits for an answer.
    waits: Instant,
    /// Acknowledgements in a row that repeat an earlier one.
    duplicates: u32,
    /// True if the first number must be sent again because no answer came, before smoltcp's timer.
    wanting: bool,
}

/// The states of flows.
#[derive(Debug, Default)]
pub(crate) struct FlowLog {
    flows: Flows<Flow, FLOWS>,
    /// The last connections of peers, the newest first: their ends, and the window scale of the
    /// peer.
    asked: VecDeque<(Ends, u8)>,
}

impl FlowLog {
    /// Notes a segment that smoltcp sends.
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

    /// Notes a segment for smoltcp. It changes the state of its flow only if it is `taken`, which
    /// its numbers decide: a stranger can make other segments, and a path can delay them.
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

    /// Notes that a segment of a flow must be sent again because acknowledgements were repeated to
    /// smoltcp. `for_want` is true if none came, and false if one named the segment.
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

    /// Calls `each` with the state of each flow that had a segment since the last call. `queued`
    /// returns the bytes that the flow's socket has to send or has sent without an acknowledgement.
    /// `free` is true if the device had room for more.
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

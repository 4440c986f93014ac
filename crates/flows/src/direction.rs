//! One direction of a flow: data of its sender, and the receiver's answers to it.

use crate::holes::Holes;
use crate::rings::Spent;
use crate::segment::{Flags, Segment};
use crate::series::{Bins, Budget, Series};
use crate::stall::{Gap, Stall, State};
use crate::unacked::Unacked;

/// Number of the first sequence number, large enough that numbers may also go back.
const ORIGIN: u64 = 1 << 40;
/// Distance beyond which a number cannot belong to the flow.
const FAR: i64 = 1 << 30;
/// Largest segment of a receiver that names none.
const LARGEST: u32 = 1460;
/// Delay in nanoseconds below which a segment was overtaken on its way, and not sent again.
const OVERTAKEN: u64 = 3_000_000;

/// Kind of data that a segment has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// No data, or a probe that only asks for an answer.
    None,
    /// Data that was not sent before.
    New,
    /// Data that was sent before.
    Again,
    /// Data that was overtaken by other segments.
    Late,
}

/// Round trips, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trips {
    pub count: u64,
    pub sum: u64,
    pub min: u64,
    pub max: u64,
    smooth: u64,
}

impl Trips {
    fn add(&mut self, trip: u64) {
        self.min = if self.count == 0 { trip } else { self.min.min(trip) };
        self.max = self.max.max(trip);
        self.smooth = if self.count == 0 { trip } else { self.smooth - self.smooth / 8 + trip / 8 };
        self.count += 1;
        self.sum = self.sum.saturating_add(trip);
    }

    /// Returns the round trip as TCP smooths it.
    pub fn smooth(&self) -> Option<u64> {
        (self.count > 0).then_some(self.smooth)
    }
}

/// The receiver's window.
#[derive(Debug, Clone, Copy)]
struct Window {
    raw: u16,
    /// Number up to which data may be sent; `None` if the scale is not known.
    edge: Option<u64>,
}

/// Series of the plots.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines {
    pub sent: Series,
    pub acked: Series,
    pub again: Series,
    pub trips: Series,
    pub flight: Series,
    pub window: Series,
}

impl Lines {
    pub fn taken(&self) -> usize {
        let all = [&self.sent, &self.acked, &self.again, &self.trips, &self.flight, &self.window];
        all.into_iter().map(Series::taken).sum()
    }
}

/// One direction of a flow.
#[derive(Debug, Clone)]
pub(crate) struct Direction {
    /// The first number of all, and the one after the last.
    first: Option<u64>,
    next: u64,
    /// Sequence number of the SYN.
    pub syn: Option<u32>,
    /// Scale of windows that the SYN named.
    scale: Option<u8>,
    /// Largest segment that the receiver accepts, and largest payload that was sent.
    takes: u32,
    largest: u32,
    pub fin: bool,
    acked: Option<u64>,
    window: Option<Window>,
    unacked: Unacked,
    holes: Holes,
    pub state: State,
    pub gap: Gap,
    /// Time spent idle, waiting and blocked.
    pub limited: [u64; 3],
    /// The last stall, which goes on if nothing is acknowledged, and the number that was
    /// acknowledged then.
    pub stalled: Option<(Stall, Option<u64>)>,
    pub packets: u64,
    pub wire: u64,
    pub bytes: u64,
    pub resent: u64,
    pub resent_bytes: u64,
    pub late: u64,
    pub duplicates: u64,
    pub zero_windows: u64,
    pub missed: u64,
    pub odd: u64,
    pub flight_max: u64,
    pub window_max: u64,
    pub trips: Trips,
    pub lines: Lines,
    pub bins: Bins,
}

impl Direction {
    pub fn new(now: u64) -> Self {
        Self {
            first: None,
            next: 0,
            syn: None,
            scale: None,
            takes: LARGEST,
            largest: 0,
            fin: false,
            acked: None,
            window: None,
            unacked: Unacked::default(),
            holes: Holes::default(),
            state: State::Silent,
            gap: Gap::begin(now, Spent::default()),
            limited: [0; 3],
            stalled: None,
            packets: 0,
            wire: 0,
            bytes: 0,
            resent: 0,
            resent_bytes: 0,
            late: 0,
            duplicates: 0,
            zero_windows: 0,
            missed: 0,
            odd: 0,
            flight_max: 0,
            window_max: 0,
            trips: Trips::default(),
            lines: Lines::default(),
            bins: Bins::new(now),
        }
    }

    /// Adds time that passed to the current state.
    pub fn spend(&mut self, time: u64) {
        self.gap.spend(self.state, time);
        match self.state {
            State::Silent => {}
            State::Idle => self.limited[0] += time,
            State::Waiting => self.limited[1] += time,
            State::Blocked => self.limited[2] += time,
        }
    }

    /// Returns the number up to which data is acknowledged; `None` if no acknowledgement was seen.
    pub fn acked(&self) -> Option<u64> {
        self.acked
    }

    /// Returns the bytes under way; `None` if no acknowledgement was seen.
    pub fn flight(&self) -> Option<u64> {
        self.acked.map(|acked| self.next.saturating_sub(acked))
    }

    /// Returns false if the window is zero, or too full for a segment while data is under way.
    /// Returns `None` if there is no window yet, or if it is not zero and its scale is not known.
    fn is_open(&self) -> Option<bool> {
        let window = self.window?;
        if window.raw == 0 {
            return Some(false);
        }
        let left = window.edge?.saturating_sub(self.next);
        let wanted = u64::from(self.largest.min(self.takes));
        Some(self.flight().unwrap_or(0) == 0 || left >= wanted)
    }

    /// Determines the state from all that is known.
    pub fn update(&mut self, closed: bool) {
        self.state = match (self.first, self.acked) {
            _ if closed => State::Silent,
            (None, _) => State::Silent,
            // With one direction captured, the state is not known. A SYN is answered, or is not.
            (Some(_), None) if self.syn.is_none() => State::Silent,
            _ if self.is_open() == Some(false) => State::Blocked,
            (Some(_), Some(acked)) if acked >= self.next => match self.fin {
                true => State::Silent,
                false => State::Idle,
            },
            _ => State::Waiting,
        };
    }

    /// Converts a sequence number to the count of this direction. Returns `None` if it is too far
    /// off to belong to the flow.
    fn number(&mut self, raw: u32) -> Option<u64> {
        if self.first.is_none() {
            let first = ORIGIN + u64::from(raw);
            (self.first, self.next) = (Some(first), first);
            return Some(first);
        }
        let off = i64::from(raw.wrapping_sub(self.next as u32) as i32);
        if !(-FAR..=FAR).contains(&off) {
            self.odd += 1;
            return None;
        }
        self.next.checked_add_signed(off)
    }

    /// Returns the bytes since the first number, as plots have them.
    fn since(&self, number: u64) -> u64 {
        number.saturating_sub(self.first.unwrap_or(number))
    }

    /// Takes a segment of the sender. Returns the kind of data that it has, or that the first of its
    /// merged segments has.
    pub fn sent(&mut self, segment: &Segment, now: u64, budget: &mut Budget) -> Data {
        if segment.segments == 1 {
            return self.sent_one(segment, now, budget);
        }
        if let Some(start) = self.follows(segment) {
            self.sent_run(segment, start, now, budget);
            return Data::New;
        }
        let pieces = segment.pieces().map(|piece| self.sent_one(&piece, now, budget));
        pieces.fold(Data::None, |first, data| if first == Data::None { data } else { first })
    }

    /// Returns the number of a merged segment's first byte if all of it is data that was not sent
    /// before, and its last segment cannot be a probe.
    fn follows(&self, segment: &Segment) -> Option<u64> {
        self.first?;
        let off = i64::from(segment.seq.wrapping_sub(self.next as u32) as i32);
        let is_new = (0..=FAR - i64::from(segment.payload)).contains(&off);
        self.next.checked_add_signed(off).filter(|_| is_new && segment.last() > 1)
    }

    /// Takes merged segments of data that was not sent before.
    fn sent_run(&mut self, segment: &Segment, start: u64, now: u64, budget: &mut Budget) {
        let stamp = segment.timestamps.map(|(own, _)| own);
        let payload = u64::from(segment.payload);
        self.largest = self.largest.max(segment.size);
        if start > self.next {
            self.holes.add(self.next..start, now, stamp);
        }
        self.next = start + payload;
        self.unacked.sent_each(start..self.next, segment.size, now, stamp);
        self.bytes += payload;
        self.bins.add(now, payload);
        self.lines.sent.push(now, self.since(self.next), budget);
        self.flew(now, budget);
    }

    /// Takes a segment that is not merged.
    fn sent_one(&mut self, segment: &Segment, now: u64, budget: &mut Budget) -> Data {
        if segment.flags.has(Flags::SYN) {
            self.syn = Some(segment.seq);
            self.scale = segment.scale;
        }
        let span = segment.span();
        if span == 0 {
            return Data::None;
        }
        let Some(start) = self.number(segment.seq) else { return Data::None };
        // A probe of one byte, old or behind a shut window, is no data that moves.
        let is_probe = segment.payload == 1 && span == 1;
        let shut = self.window.is_some_and(|window| window.raw == 0);
        if is_probe && (start + 1 == self.next || (shut && start == self.next)) {
            return Data::None;
        }
        let end = start + span;
        self.fin |= segment.flags.has(Flags::FIN);
        self.largest = self.largest.max(segment.payload);
        // A segment behind the end may leave a hole. One before the end fills a hole, or repeats
        // data.
        let stamp = segment.timestamps.map(|(own, _)| own);
        let (data, filled) = if start >= self.next {
            if start > self.next {
                self.holes.add(self.next..start, now, stamp);
            }
            self.unacked.sent(start, end, now, stamp);
            (Data::New, 0)
        } else {
            self.older(start, end, now, stamp)
        };
        // New payload counts, and payload that was missing.
        let new = end.saturating_sub(self.next.max(start));
        self.next = self.next.max(end);
        let payload = u64::from(segment.payload);
        self.bytes += (filled + new).min(payload);
        if data == Data::Again {
            self.resent += 1;
            // What lies behind the end is new.
            self.resent_bytes += payload.saturating_sub(new);
            self.lines.again.push(now, self.since(end), budget);
        }
        self.bins.add(now, payload);
        self.lines.sent.push(now, self.since(self.next), budget);
        self.flew(now, budget);
        data
    }

    /// Handles a segment that begins before the end of the sent data. Returns its kind of data, and
    /// the number of bytes that were missing.
    fn older(&mut self, start: u64, end: u64, now: u64, stamp: Option<u32>) -> (Data, u64) {
        let hole = self.holes.fill(&(start..end));
        let filled = hole.as_ref().map_or(0, |&(_, filled)| filled);
        let late = hole.is_some_and(|(hole, _)| {
            let trip = self.trips.smooth().unwrap_or(0).max(OVERTAKEN);
            let older = match (stamp, hole.stamp) {
                (Some(own), Some(behind)) => own.wrapping_sub(behind) as i32 <= 0,
                _ => true,
            };
            older && now.saturating_sub(hole.at) < trip
        });
        if late {
            self.late += 1;
            return (Data::Late, filled);
        }
        self.unacked.sent_again(start, end, now, stamp);
        (Data::Again, filled)
    }

    fn flew(&mut self, now: u64, budget: &mut Budget) {
        if let Some(flight) = self.flight() {
            self.flight_max = self.flight_max.max(flight);
            self.lines.flight.push(now, flight, budget);
        }
    }

    /// Takes a segment of the receiver. `sender` is the direction of the receiver's own data.
    pub fn answered(&mut self, segment: &Segment, sender: &Self, now: u64, budget: &mut Budget) {
        if segment.flags.has(Flags::SYN)
            && let Some(largest) = segment.largest
        {
            self.takes = u32::from(largest);
        }
        let Some(raw) = segment.ack else { return };
        let Some(ack) = self.number(raw) else { return };
        if ack > self.next {
            // Acknowledged data was sent, whether it was captured or not.
            if self.acked.is_some() {
                self.missed += ack - self.next;
            }
            self.next = ack;
        }
        // A duplicate repeats the number without data, with an equal window or with blocks.
        let answers = segment.timestamps.map(|(_, answers)| answers);
        let before = self.acked;
        let again = before == Some(ack) && segment.span() == 0 && ack < self.next;
        let same = self.window.is_some_and(|window| window.raw == segment.window);
        if again && (same || segment.selective) {
            self.duplicates += 1;
            self.gap.answered();
        }
        // A higher number ends round trips and holes.
        if before.is_none_or(|acked| acked < ack) {
            self.acked = Some(ack);
            self.gap.answered();
            if let Some(trip) = self.unacked.acked(ack, now, answers) {
                self.trips.add(trip);
                self.lines.trips.push(now, trip, budget);
            }
            self.holes.forget(ack);
            self.lines.acked.push(now, self.since(ack), budget);
            self.flew(now, budget);
        }
        // An older segment than the last one says nothing about the window.
        if before.is_none_or(|acked| acked <= ack) {
            self.opened(segment, sender, ack, now, budget);
        }
    }

    /// Takes the window that the receiver gives.
    fn opened(
        &mut self,
        segment: &Segment,
        sender: &Self,
        ack: u64,
        now: u64,
        budget: &mut Budget,
    ) {
        let raw = segment.window;
        if raw == 0 && self.window.is_none_or(|window| window.raw != 0) {
            self.zero_windows += 1;
        }
        // A scale is used only if both sides name one, and never for a SYN's own window.
        let shift = match (segment.flags.has(Flags::SYN), self.syn, sender.syn) {
            (true, ..) => Some(0),
            (_, Some(_), Some(_)) => Some(self.scale.and(sender.scale).unwrap_or(0)),
            _ => None,
        };
        let window = shift.map(|shift| u64::from(raw) << shift);
        if let Some(window) = window {
            self.window_max = self.window_max.max(window);
            self.lines.window.push(now, window, budget);
        }
        self.window = Some(Window { raw, edge: window.map(|window| ack + window) });
    }
}

//! One direction of a flow: data of its sender, and what its receiver says of it.

use crate::holes::Holes;
use crate::rings::Spent;
use crate::segment::{Flags, Segment};
use crate::series::{Bins, Budget, Series};
use crate::stall::{Gap, Stall, State};
use crate::unacked::Unacked;

/// Sequence numbers are counted on from here, so that they may also go back.
const ORIGIN: u64 = 1 << 40;
/// Numbers further off than this belong to no flow that there could be.
const FAR: i64 = 1 << 30;
/// Largest segment of a receiver that names none.
const LARGEST: u32 = 1460;
/// What comes late by less was overtaken on its way, and not sent again.
const OVERTAKEN: u64 = 3_000_000;

/// What a segment brings of its sender's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// Nothing, or a probe of whether somebody is there.
    None,
    /// What was not sent before.
    New,
    /// What was sent before.
    Again,
    /// What others overtook.
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

    /// As TCP smooths it.
    pub fn smooth(&self) -> Option<u64> {
        (self.count > 0).then_some(self.smooth)
    }
}

/// The receiver's window.
#[derive(Debug, Clone, Copy)]
struct Window {
    raw: u16,
    /// The number up to which data may be sent; none where the scale is not known.
    edge: Option<u64>,
}

/// What a direction is drawn by.
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
    /// The number that its SYN had.
    pub syn: Option<u32>,
    /// The scale of windows that its SYN named.
    scale: Option<u8>,
    /// The largest segment that the receiver takes, and that was sent.
    takes: u32,
    largest: u32,
    pub fin: bool,
    acked: Option<u64>,
    window: Option<Window>,
    unacked: Unacked,
    holes: Holes,
    pub state: State,
    pub gap: Gap,
    /// Spent idle, waiting and blocked.
    pub limited: [u64; 3],
    /// The last stall, which goes on if nothing is acknowledged, and what was.
    pub stalled: Option<(Stall, Option<u64>)>,
    pub packets: u64,
    pub wire: u64,
    pub bytes: u64,
    pub resent: u64,
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

    /// Time passed.
    pub fn spend(&mut self, time: u64) {
        self.gap.spend(self.state, time);
        match self.state {
            State::Silent => {}
            State::Idle => self.limited[0] += time,
            State::Waiting => self.limited[1] += time,
            State::Blocked => self.limited[2] += time,
        }
    }

    /// What is acknowledged; none where nothing is known of it.
    pub fn acked(&self) -> Option<u64> {
        self.acked
    }

    /// Bytes under way.
    pub fn flight(&self) -> Option<u64> {
        self.acked.map(|acked| self.next.saturating_sub(acked))
    }

    /// Whether the window is known, not only that it is zero.
    fn is_open(&self) -> Option<bool> {
        let window = self.window?;
        if window.raw == 0 {
            return Some(false);
        }
        let left = window.edge?.saturating_sub(self.next);
        let wanted = u64::from(self.largest.min(self.takes));
        Some(self.flight().unwrap_or(0) == 0 || left >= wanted)
    }

    /// Finds out what it waits for now.
    pub fn update(&mut self, closed: bool) {
        self.state = match (self.first, self.acked) {
            _ if closed => State::Silent,
            (None, _) => State::Silent,
            // Of one direction only, nobody can tell; a SYN is answered, or is not.
            (Some(_), None) if self.syn.is_none() => State::Silent,
            _ if self.is_open() == Some(false) => State::Blocked,
            (Some(_), Some(acked)) if acked >= self.next => match self.fin {
                true => State::Silent,
                false => State::Idle,
            },
            _ => State::Waiting,
        };
    }

    /// The number as it is counted here; none where it belongs to no such flow.
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

    /// Bytes from the first number on, as plots have it.
    fn since(&self, number: u64) -> u64 {
        number.saturating_sub(self.first.unwrap_or(number))
    }

    /// Its sender sent a segment.
    pub fn sent(&mut self, segment: &Segment, now: u64, budget: &mut Budget) -> Data {
        if segment.flags.has(Flags::SYN) {
            self.syn = Some(segment.seq);
            self.scale = segment.scale;
        }
        let span = segment.span();
        if span == 0 {
            return Data::None;
        }
        let Some(start) = self.number(segment.seq) else { return Data::None };
        let is_probe = segment.payload == 1 && span == 1;
        let shut = self.window.is_some_and(|window| window.raw == 0);
        if is_probe && (start + 1 == self.next || (shut && start == self.next)) {
            return Data::None;
        }
        let end = start + span;
        self.fin |= segment.flags.has(Flags::FIN);
        self.largest = self.largest.max(segment.payload);
        let stamp = segment.timestamps.map(|(own, _)| own);
        let (data, is_missed) = if start >= self.next {
            if start > self.next {
                self.holes.add(self.next..start, now, stamp);
            }
            self.unacked.sent(start, end, now, stamp);
            (Data::New, true)
        } else {
            self.older(start, end, now, stamp)
        };
        let new = end.saturating_sub(self.next.max(start));
        self.next = self.next.max(end);
        let payload = u64::from(segment.payload);
        self.bytes += if is_missed { payload } else { new.min(payload) };
        if data == Data::Again {
            self.resent += 1;
            self.lines.again.push(now, self.since(end), budget);
        }
        self.bins.add(now, payload);
        self.lines.sent.push(now, self.since(self.next), budget);
        self.flew(now, budget);
        data
    }

    /// A segment that begins before the end of what was sent, and whether some of it
    /// was missing.
    fn older(&mut self, start: u64, end: u64, now: u64, stamp: Option<u32>) -> (Data, bool) {
        let hole = self.holes.fill(&(start..end));
        let is_missed = hole.is_some();
        let late = hole.is_some_and(|hole| {
            let trip = self.trips.smooth().unwrap_or(0).max(OVERTAKEN);
            let older = match (stamp, hole.stamp) {
                (Some(own), Some(behind)) => own.wrapping_sub(behind) as i32 <= 0,
                _ => true,
            };
            older && now.saturating_sub(hole.at) < trip
        });
        if late {
            self.late += 1;
            return (Data::Late, true);
        }
        self.unacked.sent_again(start, end, now, stamp);
        (Data::Again, is_missed)
    }

    fn flew(&mut self, now: u64, budget: &mut Budget) {
        if let Some(flight) = self.flight() {
            self.flight_max = self.flight_max.max(flight);
            self.lines.flight.push(now, flight, budget);
        }
    }

    /// Its receiver sent a segment; `sender` is the direction of that one's own data.
    pub fn answered(&mut self, segment: &Segment, sender: &Self, now: u64, budget: &mut Budget) {
        if segment.flags.has(Flags::SYN)
            && let Some(largest) = segment.largest
        {
            self.takes = u32::from(largest);
        }
        let Some(raw) = segment.ack else { return };
        let Some(ack) = self.number(raw) else { return };
        if ack > self.next {
            // What is acknowledged was sent, whether it was captured or not.
            if self.acked.is_some() {
                self.missed += ack - self.next;
            }
            self.next = ack;
        }
        let answers = segment.timestamps.map(|(_, answers)| answers);
        let before = self.acked;
        let again = before == Some(ack) && segment.span() == 0 && ack < self.next;
        let same = self.window.is_some_and(|window| window.raw == segment.window);
        if again && (same || segment.selective) {
            self.duplicates += 1;
            self.gap.answered();
        }
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
        if before.is_none_or(|acked| acked <= ack) {
            self.opened(segment, sender, ack, now, budget);
        }
    }

    /// Its receiver says how much may be under way.
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
        // Both sides name a scale, or none is used; and a SYN's own has none.
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

//! Recovery from losses for which smoltcp (0.14) would wait for its timer, at least a second.
//!
//! smoltcp sends a segment again after three acknowledgements that repeat an earlier one, and only
//! that segment. It does not read selective acknowledgements. It counts no acknowledgement whose
//! window differs from the last one. And it takes the next acknowledgement of more data for the end
//! of the loss. So it waits for its timer in these cases:
//!
//! - The receiver's window grows meanwhile, or one acknowledgement answers several segments. Linux
//!   does both.
//! - A further segment of the same window was lost.
//! - The segment was lost again.
//! - Fewer than three segments came behind the lost one.
//!
//! The device sees the segments of both ends. It repeats an acknowledgement to smoltcp when TCP
//! should send a segment again:
//!
//! - The third acknowledgement came that repeats an earlier one. Those with another window count,
//!   too, if they name data behind the lost segment (RFC 2018). One that names more than two
//!   segments is enough, as from a Linux that merged what it received (RFC 6675). So is one that
//!   names all data in flight behind the segment.
//! - An acknowledgement of a part of the data that was in flight when a loss was found names the
//!   next lost segment (RFC 6582, NewReno).
//! - A segment was sent again, and an acknowledgement names data that was first sent after that,
//!   but not the segment: it was lost again (RFC 8985, RACK).
//! - Nothing was acknowledged for a round trip and its variation, although data is in flight. This
//!   waits for at least 200 ms, as Linux's timer does.
//!
//! If segments overtake others, a segment that may still come is waited for (RFC 8985, RACK).
//! Meanwhile smoltcp must not count, so it sees a window that differs. That segments overtake
//! others is known from a segment that came late and was sent once. It is also known if the first
//! copy of a segment that was sent twice came: the timestamp in its acknowledgement shows this (RFC
//! 3522, Eifel). If the other end has no timestamps, it is known from data that came twice. Once a
//! segment was sent again, the window that smoltcp sees does not grow until the segment is
//! acknowledged. Otherwise smoltcp would count anew, and send it once more.
//!
//! The other direction is here, too, since a flow is searched only once: the ranges and timestamps
//! that this end sends about segments of the other end (`blocks`, `options`).
//!
//! smoltcp's congestion control counts each segment that is sent again as a loss, and halves its
//! window.

use crate::blocks::{Blocks, Named};
use crate::clock::Clock;
use crate::flows::Flows;
use crate::options::{Additions, TIMES_LEN, Times, first_range, permits_ranges, times};
use crate::segment::{Ends, Segment, before, later};
use crate::sizes::Said;
use alloc::vec::Vec;
use smoltcp::time::{Duration, Instant};

/// Most flows that are followed. Segments of further ones say no times, which some hosts then drop.
const FLOWS: usize = 1024;
/// Acknowledgements that repeat an earlier one, after which smoltcp sends a segment again.
pub(crate) const DUPLICATES: u32 = 3;
/// Repetitions of an acknowledgement: one with another window, one with its own again, and those that
/// smoltcp counts.
const TIMES: u32 = DUPLICATES + 2;
/// Least time without an acknowledgement after which a segment is sent again: Linux's.
const WAIT_MIN: Duration = Duration::from_millis(200);
/// Most lost segments of a window that are named. If there are more, smoltcp's timer and its slow start
/// suit the path better than one segment per round trip, while new ones go on filling its queue.
const NAMED: u32 = 32;
/// Most quarters of a round trip for which a segment is waited for that others may have overtaken.
const PATIENCE: u32 = 4;
/// Times in a row that a segment is sent again for want of an acknowledgement, each after twice the
/// time. Then smoltcp's timer is left to it.
const PROBES: u32 = 2;
/// Longest frame of an acknowledgement that is kept: Ethernet, and IPv4 and TCP with all their options.
const KEPT: usize = 14 + 60 + 60;

/// A flow, as its sender of this end has it.
#[derive(Debug)]
struct Flow {
    /// The first number that is not acknowledged, and the one behind the last that was sent.
    first: u32,
    next: u32,
    /// Bytes that the other end accepts in a segment, without options; 0 before any were sent.
    accepts: u16,
    /// Bytes of a segment; 0 before there is any.
    size: u16,
    /// Offset of the field of the last window in its frame, and the field.
    window: (usize, u16),
    /// The window's field that smoltcp was told last.
    told: u16,
    /// Factor of the time for which a segment is waited for that others may have overtaken.
    patience: u32,
    /// Acknowledgements in a row that repeat an earlier one, and how many of them smoltcp counts.
    duplicates: u32,
    counted: u32,
    /// True if the last number is that of a FIN, and if the other end sent one.
    fin: bool,
    ended: bool,
    /// The number behind all that was under way when a loss was found.
    recover: Option<u32>,
    /// Lost segments that were named since then.
    named: u32,
    /// True if a segment was overtaken by others once, and was not lost.
    overtaken: bool,
    /// If the first segment under way was sent again, the number behind all that was sent until then.
    again: Option<u32>,
    /// The number behind all that was sent again.
    repeated: u32,
    /// Time at which the first segment under way is taken for lost, if it is not acknowledged before.
    lost: Option<Instant>,
    /// Time from which an acknowledgement is waited for.
    waits: Instant,
    /// Segments that were sent again in a row for want of one.
    probes: u32,
    /// The number whose acknowledgement ends a round trip, and the time at which it was sent.
    trip: Option<(u32, Instant)>,
    /// The round trip and its variation, smoothed as in RFC 6298.
    smooth: Option<(Duration, Duration)>,
    /// The number that this end expects of the other one, as it told last; none before it knows any.
    expects: Option<u32>,
    /// Numbers from there on that this end has room for, and the shift of its windows.
    room: u32,
    shift: u8,
    /// True if both ends understand ranges in acknowledgements, and what this end names in them.
    selective: bool,
    blocks: Blocks,
    /// The other end's clock, whose time segments answer; none if one end says no times.
    clock: Option<Clock>,
    /// Segments that were sent again, less those of which the other end said that they came twice.
    resent: u32,
    /// The last segment of the other end, if it was an acknowledgement and nothing else.
    acknowledgement: Vec<u8>,
}

/// Flows whose losses are looked for.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    flows: Flows<Flow, FLOWS>,
    /// Time before which no flow has waited for long enough.
    due: Option<Instant>,
}

/// An acknowledgement that is repeated to smoltcp, some times.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// The flow.
    ends: Option<Ends>,
    frame: Vec<u8>,
    /// Offset of the window's field, and what it is.
    window: (usize, u16),
    left: u32,
}

impl Repeats {
    /// Has an acknowledgement repeated, whose window's field is there and says that. The first time it
    /// has another window. smoltcp takes that for news and counts anew, however many it has counted.
    fn begin(&mut self, ends: Ends, frame: &[u8], window: (usize, u16)) {
        self.ends = Some(ends);
        self.frame.clear();
        self.frame.extend_from_slice(frame);
        (self.window, self.left) = (window, TIMES);
    }

    /// Ends the repetitions.
    pub fn clear(&mut self) {
        self.left = 0;
    }

    /// Prepares the next repetition. Returns false if there is none, or if the flow is over. smoltcp
    /// answers each acknowledgement of a flow that it has no socket for by a reset, and one is enough.
    pub fn next(&mut self, recovery: &Recovery) -> bool {
        if self.left == 0 {
            return false;
        }
        if self.ends.is_none_or(|ends| !recovery.flows.contains(&ends)) {
            self.clear();
            return false;
        }
        let (at, window) = self.window;
        let told = if self.left == TIMES { window.wrapping_sub(1) } else { window };
        if let Some(field) = self.frame.get_mut(at..at + 2) {
            field.copy_from_slice(&told.to_be_bytes());
        }
        self.left -= 1;
        true
    }

    /// Returns the frame of the repetition.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }
}

impl Flow {
    fn new(number: u32, now: Instant) -> Self {
        Self {
            first: number,
            next: number,
            accepts: 0,
            size: 0,
            window: (0, 0),
            told: 0,
            patience: 1,
            duplicates: 0,
            counted: 0,
            fin: false,
            ended: false,
            recover: None,
            named: 0,
            overtaken: false,
            again: None,
            repeated: number,
            lost: None,
            waits: now,
            probes: 0,
            trip: None,
            smooth: None,
            expects: None,
            room: 0,
            shift: 0,
            selective: false,
            blocks: Blocks::default(),
            clock: None,
            resent: 0,
            acknowledgement: Vec::new(),
        }
    }

    /// Notes the number and the window that this end tells the other one. Returns what the segment is to
    /// name, if it is an acknowledgement and nothing else.
    fn told_other(&mut self, segment: &Segment<'_>, answers: bool) -> Option<Named> {
        let header = &segment.header;
        if header.syn() {
            self.shift = segment.shift();
            self.selective = permits_ranges(header.options());
        }
        self.room = u32::from(header.window_len()) << self.shift;
        if !header.ack() {
            return None;
        }
        let number = header.ack_number().0 as u32;
        self.expects = Some(number);
        if segment.takes > 0 || !self.selective {
            self.blocks.acknowledged(number);
            return None;
        }
        let named = self.blocks.name(number, first_range(header.options()), answers);
        (!named.ranges().is_empty()).then_some(named)
    }

    /// Notes what a SYN permits, and the time of a segment of the other end that may be taken, whose times
    /// these are. Returns the time of this end that the segment answers.
    fn says(&mut self, segment: &Segment<'_>, times: Option<Times>, now: Instant) -> Option<u32> {
        if segment.header.syn() {
            self.selective &= permits_ranges(segment.header.options());
            self.clock = times.map(|times| Clock::new(times.own, now));
        }
        let Times { own, answered } = times?;
        // The first segment that is not acknowledged is answered (RFC 7323, 4.3).
        if let Some(clock) = &mut self.clock
            && self.expects.is_some_and(|expects| !before(expects, segment.number))
        {
            clock.note(own, now);
        }
        Some(answered)
    }

    /// Returns true if smoltcp may take a segment of the other end for one of this flow. It takes no SYN
    /// once it knows the other end's number, and none whose numbers are beside its window, or that acknowledges what was never sent, or less than an
    /// earlier one (RFC 9293, 3.10.7.4). A stranger can make such ones, and a path can delay them.
    fn may_take(&self, segment: &Segment<'_>) -> bool {
        let header = &segment.header;
        let acknowledged = (header.ack_number().0 as u32).wrapping_sub(self.first);
        let under_way = self.next.wrapping_sub(self.first);
        let Some(expects) = self.expects else {
            // Our SYN is under way, and its answer acknowledges it.
            return (header.syn() || header.rst()) && header.ack() && acknowledged == under_way;
        };
        let start = segment.number.wrapping_sub(expects);
        let end = start.wrapping_add(segment.takes);
        !header.syn()
            && (start <= self.room || (1..=self.room).contains(&end))
            && (header.rst() || (header.ack() && acknowledged <= under_way))
    }

    /// Returns a number that has smoltcp acknowledge a segment and not take it, if the segment is one of
    /// long ago, by its times (RFC 7323, PAWS). It is the last one below the window.
    fn answer_to_old(
        &self,
        segment: &Segment<'_>,
        times: Option<Times>,
        now: Instant,
    ) -> Option<u32> {
        let (times, clock, expects) = (times?, self.clock?, self.expects?);
        clock.is_old(times.own, now).then(|| expects.wrapping_sub(segment.payload + 1))
    }

    /// Returns true if data is under way. smoltcp forgets a FIN that it is to send again after
    /// acknowledgements that repeat an earlier one, so a FIN alone is left to its timer.
    fn owes(&self) -> bool {
        self.next.wrapping_sub(self.first) > u32::from(self.fin)
    }

    /// Returns the time at which a segment is to be sent again: since it is taken for lost, or for want
    /// of an acknowledgement. A window of 1 has none below it that is open.
    fn due(&self) -> Option<Instant> {
        if !self.owes() || self.window.1 <= 1 || self.acknowledgement.is_empty() || self.is_left() {
            return None;
        }
        let wait = self.smooth.map_or(WAIT_MIN, |(trip, varies)| (trip + varies * 4).max(WAIT_MIN));
        let wanted = (self.probes < PROBES).then(|| self.waits + wait * (1 << self.probes));
        self.lost.into_iter().chain(wanted).min()
    }

    /// Returns true if so many segments were lost that the rest is left to smoltcp's timer.
    fn is_left(&self) -> bool {
        self.recover.is_some() && self.named >= NAMED
    }

    /// Returns the time at which a segment is taken for lost that an acknowledgement names now: at once,
    /// or a part of a round trip later if segments overtake others on this path (RFC 8985, RACK).
    fn judged(&self, now: Instant) -> Instant {
        if self.overtaken { now + self.reordering() } else { now }
    }

    /// Returns the time for which a segment is waited for that others may have overtaken: a quarter of a
    /// round trip, and up to a whole one if segments were sent again in vain (RFC 8985).
    fn reordering(&self) -> Duration {
        self.smooth.map_or(WAIT_MIN, |(trip, _)| trip * self.patience / 4)
    }

    /// Returns the window's field that smoltcp is told by an acknowledgement that repeats an earlier one.
    /// Where segments overtake others it differs from the last one while it is open here whether the
    /// segment is lost, and smoltcp does not count.
    fn told_for_duplicate(&self) -> u16 {
        let window = self.window.1;
        // smoltcp would count anew, and send the segment once more.
        if self.again.is_some() && (1..window).contains(&self.told) {
            return self.told;
        }
        let open = self.overtaken && self.again.is_none() && self.recover.is_none();
        if open && self.told == window && window > 1 { window - 1 } else { window }
    }

    /// Notes an acknowledgement that repeats an earlier one, while the other end has so many bytes behind
    /// the first segment under way.
    fn missed(&mut self, behind: u32, now: Instant) {
        let size = u32::from(self.size);
        let many = self.duplicates >= DUPLICATES || behind > (DUPLICATES - 1) * size;
        if !many && (behind == 0 || !self.is_last(behind + size)) {
            return;
        }
        if self.counted >= DUPLICATES {
            // smoltcp found out itself.
            self.lost = None;
            self.recovers(false);
            return;
        }
        // Others may only have overtaken it.
        let at = now + self.reordering();
        self.lost = Some(self.lost.map_or(at, |lost| lost.min(at)));
    }

    /// Notes that the other end has what was sent later than the first segment under way was sent again.
    fn missed_again(&mut self, now: Instant) {
        let at = self.judged(now);
        self.lost = Some(self.lost.map_or(at, |lost| lost.min(at)));
    }

    /// Notes that a segment of what is under way is sent again since it is lost. What is under way now
    /// is what recovery is over with, if it is not under way already, or begins `anew`.
    fn recovers(&mut self, anew: bool) {
        if anew || self.recover.is_none() {
            (self.recover, self.named) = (Some(self.next), 0);
        }
    }

    /// Returns true if no more than so many bytes are under way.
    fn is_last(&self, bytes: u32) -> bool {
        self.next.wrapping_sub(self.first) <= bytes
    }

    fn measured(&mut self, trip: Duration) {
        self.smooth = Some(match self.smooth {
            None => (trip, trip / 2),
            Some((smooth, varies)) => {
                let off = if trip > smooth { trip - smooth } else { smooth - trip };
                ((smooth * 7 + trip) / 8, (varies * 3 + off) / 4)
            }
        });
    }
}

/// Returns a time as segments say it, in milliseconds.
fn stamp(time: Instant) -> u32 {
    time.total_millis() as u32
}

/// Result of the look at a segment that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// smoltcp is given it as it is. No flow takes it, by its numbers, or it ends one.
    Passed,
    /// A flow takes it, and the field of its window is to say this.
    Taken(u16),
    /// The segment is too old for its flow, and is to have this number.
    Old(u32),
}

/// Facts about a segment that is sent.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// Bytes that the other end accepts in a segment, without options, if the flow is known and the
    /// segment has payload.
    pub accepts: Option<u16>,
    /// Options that the segment is to have.
    pub additions: Additions,
}

impl Recovery {
    /// Takes a segment that smoltcp sends. `said` returns what the other end said in its SYN. `answers` is true if the segment answers the one that smoltcp was given last.
    pub fn sent(
        &mut self,
        segment: &Segment<'_>,
        said: impl Fn() -> Said,
        answers: bool,
        now: Instant,
    ) -> Sent {
        let ends = (segment.from, segment.to);
        let flow = self.flows.get_mut(&ends);
        if segment.header.rst() {
            // A reset that answers a stranger has a number of his, and the flow goes on.
            let ends_flow = |flow: &mut Flow| {
                segment.number.wrapping_sub(flow.first) <= flow.next.wrapping_sub(flow.first)
            };
            if flow.is_some_and(ends_flow) {
                self.flows.remove(&ends);
            }
            return Sent::default();
        }
        // A SYN that is sent again goes on with the flow.
        if segment.header.syn() && flow.is_none_or(|flow| flow.first != segment.number) {
            let mut flow = Flow::new(segment.number, now);
            // A SYN that answers another one says a time if that one did.
            let time = if segment.header.ack() { said().time } else { Some(0) };
            flow.clock = time.map(|time| Clock::new(time, now));
            self.flows.insert(ends, flow, now);
        }
        let Some(flow) = self.flows.get_mut(&ends) else { return Sent::default() };
        let named = flow.told_other(segment, answers);
        let times = flow.clock.map(|clock| Times { own: stamp(now), answered: clock.answered() });
        let additions = Additions { times, named };
        if segment.takes == 0 {
            return Sent { accepts: None, additions };
        }
        let end = segment.number.wrapping_add(segment.takes);
        if segment.payload > 0 && flow.accepts == 0 {
            flow.accepts = said().size;
            let options = if times.is_some() { TIMES_LEN as u16 } else { 0 };
            flow.size = flow.accepts.saturating_sub(options).max(1);
        }
        if before(segment.number, flow.next) {
            // Round trips of what was sent twice cannot be told apart (Karn).
            flow.trip = None;
            // What keeps a connection alive is not sent again.
            flow.resent += u32::from(!before(segment.number, flow.first));
            flow.repeated = later(flow.repeated, end);
            if segment.number == flow.first {
                (flow.waits, flow.again, flow.lost) = (now, Some(flow.next), None);
            }
        }
        if before(flow.next, end) {
            if flow.first == flow.next {
                flow.waits = now;
            }
            flow.trip.get_or_insert((end, now));
            flow.next = end;
            flow.fin = segment.header.fin();
        }
        self.due = self.due.into_iter().chain(flow.due()).min();
        let accepts = (segment.payload > 0).then_some(flow.accepts);
        self.flows.touch(now);
        Sent { accepts, additions }
    }

    /// Takes a segment that smoltcp is given, its frame up to the end of the segment, and where its
    /// window's field is in that.
    pub fn received(
        &mut self,
        segment: &Segment<'_>,
        frame: &[u8],
        window_at: usize,
        now: Instant,
    ) -> Verdict {
        let ends = (segment.to, segment.from);
        let header = &segment.header;
        let Some(flow) = self.flows.get_mut(&ends) else { return Verdict::Passed };
        let taken = flow.may_take(segment);
        if taken && header.rst() {
            self.flows.remove(&ends);
            return Verdict::Passed;
        }
        let times = flow.clock.filter(|_| taken).and_then(|_| times(header.options()));
        if let Some(number) = flow.answer_to_old(segment, times, now) {
            flow.blocks.came(number, 0, false);
            return Verdict::Old(number);
        }
        flow.blocks.came(segment.number, segment.payload, taken);
        if !taken {
            return Verdict::Passed;
        }
        flow.expects.get_or_insert(segment.number.wrapping_add(segment.takes));
        let answers = flow.says(segment, times, now);
        let acknowledged = header.ack_number().0 as u32;
        let window = (window_at, header.window_len());
        let repeats_last = acknowledged == flow.first && segment.takes == 0 && flow.owes();
        let same = window.1 == flow.window.1;
        flow.window = window;
        flow.acknowledgement.clear();
        if segment.takes == 0 && frame.len() <= KEPT {
            flow.acknowledgement.extend_from_slice(frame);
        }
        let mut told = window.1;
        let ranges = segment.ranges();
        if flow.resent > 0 && ranges.is_in_vain(acknowledged) {
            flow.resent -= 1;
            // Times say better whether others have overtaken it.
            flow.overtaken |= answers.is_none();
            if flow.overtaken {
                flow.patience = (flow.patience + 1).min(PATIENCE);
            }
        }
        if before(flow.first, acknowledged) && !before(flow.next, acknowledged) {
            // What came after others, and was sent once, was not lost. Nor was it if the first one came
            // (RFC 3522, Eifel).
            let first_came = answers.is_some_and(|time| before(time, stamp(flow.waits)));
            flow.overtaken |=
                flow.duplicates > 0 && (!before(flow.first, flow.repeated) || first_came);
            flow.first = acknowledged;
            flow.repeated = later(flow.repeated, acknowledged);
            (flow.waits, flow.probes) = (now, 0);
            (flow.duplicates, flow.counted) = (0, 0);
            (flow.again, flow.lost) = (None, None);
            if let Some((_, began)) = flow.trip.take_if(|(end, _)| !before(acknowledged, *end)) {
                flow.measured(now - began);
            }
            let recovered =
                flow.recover.take_if(|recover| !before(acknowledged, *recover)).is_some();
            if segment.takes == 0 && flow.owes() {
                if flow.recover.is_some() {
                    flow.lost = Some(flow.judged(now));
                } else if recovered {
                    // What came behind the next loss is not named again, if nothing else is under way.
                    flow.missed(ranges.selected(flow.first, flow.next), now);
                }
            }
        } else if repeats_last && (same || ranges.is_selective()) {
            flow.duplicates += 1;
            told = flow.told_for_duplicate();
            flow.counted = if told == flow.told { flow.counted + 1 } else { 0 };
            match flow.again {
                None => flow.missed(ranges.selected(flow.first, flow.next), now),
                Some(until) if ranges.reach(until, flow.next) => flow.missed_again(now),
                Some(_) => {}
            }
        } else {
            // smoltcp takes it for news, and counts anew.
            flow.counted = 0;
        }
        flow.told = told;
        flow.ended |= header.fin();
        let over = flow.ended && flow.fin && flow.first == flow.next;
        self.due = self.due.into_iter().chain(flow.due()).min();
        self.flows.touch(now);
        if over {
            self.flows.end();
        }
        Verdict::Taken(told)
    }

    /// Has the last acknowledgement of a flow repeated, if there is one whose first segment under way is
    /// to be sent again. Returns the flow, and true if that is for want of an acknowledgement.
    pub fn find(&mut self, now: Instant, repeats: &mut Repeats) -> Option<(Ends, bool)> {
        if self.due.is_none_or(|due| now < due) {
            return None;
        }
        let found =
            self.flows.iter_mut().find(|(_, flow)| flow.due().is_some_and(|due| due <= now));
        let found = found.map(|(ends, flow)| {
            let wanting = flow.lost.take_if(|lost| *lost <= now).is_none();
            flow.probes += u32::from(wanting);
            flow.recovers(wanting);
            flow.named += 1;
            (flow.waits, flow.trip) = (now, None);
            flow.told = flow.window.1;
            repeats.begin(*ends, &flow.acknowledgement, flow.window);
            (*ends, wanting)
        });
        self.due = self.flows.values().filter_map(Flow::due).min();
        found
    }

    /// Returns the time before which [`Recovery::find`] finds nothing.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests;

//! A flow: both directions, and the times in which neither moved.

use crate::direction::{Data, Direction};
use crate::limits::Limits;
use crate::rings::{Ring, Rings, Spent};
use crate::segment::{Endpoint, Flags, Segment};
use crate::series::Budget;
use crate::stall::{Gap, Stall, Stalls, State};

/// The surroundings of a segment that a flow takes.
pub(crate) struct Context<'a> {
    pub limits: &'a Limits,
    pub budget: &'a mut Budget,
    pub rings: &'a Rings,
    pub now: u64,
}

/// A flow.
#[derive(Debug)]
pub(crate) struct Flow {
    pub number: u64,
    /// End that began the flow or, if that was not seen, sent the first segment; and the other end.
    pub ends: [Endpoint; 2],
    pub point: u32,
    pub vlan: u16,
    pub first: u64,
    pub last: u64,
    /// Bytes of whole frames.
    pub wire: u64,
    pub packets: u64,
    /// Data from either end.
    pub directions: [Direction; 2],
    pub closed: bool,
    pub stalls: Stalls,
    rings: [Option<Ring>; 2],
}

impl Flow {
    /// Makes a flow that begins with this segment.
    pub fn new(number: u64, segment: &Segment, point: u32, now: u64) -> Self {
        let ends = match segment.flags.has(Flags::SYN) && segment.ack.is_some() {
            true => [segment.to, segment.from],
            false => [segment.from, segment.to],
        };
        Self {
            number,
            ends,
            point,
            vlan: segment.vlan,
            first: now,
            last: now,
            wire: 0,
            packets: 0,
            directions: [Direction::new(now), Direction::new(now)],
            closed: false,
            stalls: Stalls::default(),
            rings: [None; 2],
        }
    }

    /// Returns the direction to which a segment's data belongs.
    fn side(&self, segment: &Segment) -> usize {
        usize::from(segment.from != self.ends[0])
    }

    /// Returns true if this segment begins another flow between these ends.
    pub fn is_over(&self, segment: &Segment) -> bool {
        let begins = segment.flags.has(Flags::SYN) && segment.ack.is_none();
        let direction = &self.directions[self.side(segment)];
        begins && (self.closed || direction.syn != Some(segment.seq))
    }

    /// Takes a segment of the flow, of `length` bytes with all its headers. If it was merged, these
    /// are the bytes of all its segments.
    pub fn take(&mut self, segment: &Segment, ring: Ring, length: u64, context: &mut Context<'_>) {
        let now = context.now;
        let passed = now.saturating_sub(self.last);
        self.last = now;
        self.packets += u64::from(segment.segments);
        self.wire += length;
        let side = self.side(segment);
        self.rings[side] = Some(ring);
        let [client, server] = &mut self.directions;
        client.spend(passed);
        server.spend(passed);
        let (own, other) = if side == 0 { (client, server) } else { (server, client) };
        own.packets += u64::from(segment.segments);
        own.wire += length;
        if segment.flags.has(Flags::RST) {
            self.closed = true;
            return self.update();
        }
        let data = own.sent(segment, now, context.budget);
        other.answered(segment, own, now, context.budget);
        // The second of merged segments finds the state that the first one left. Further ones change
        // nothing.
        for _ in 0..segment.segments.min(2) {
            if data != Data::None {
                let pays = segment.payload > 0 || segment.flags.has(Flags::SYN);
                self.moved(side, (self.directions[side].gap, data), pays, context);
            }
            self.update();
        }
    }

    /// Handles data of a side. The time before it may have been a stall.
    fn moved(&mut self, side: usize, (gap, data): (Gap, Data), pays: bool, context: &Context<'_>) {
        let now = context.now;
        let spent = context.rings.spent(self.both_rings(side), now);
        // A sender that only had its end left to send was not held up.
        if pays || self.directions[side].state != State::Idle {
            self.judge(side, gap, data == Data::Again, spent, context);
        }
        self.directions[side].gap = Gap::begin(now, spent);
        // An answer is not late before its question arrived.
        if self.directions[1 - side].state == State::Idle {
            let spent = context.rings.spent(self.both_rings(1 - side), now);
            self.directions[1 - side].gap = Gap::begin(now, spent);
        }
    }

    fn judge(&mut self, side: usize, gap: Gap, resent: bool, spent: Spent, context: &Context<'_>) {
        let stall = self.stall(side, gap, resent, (context.now, spent), context.limits.stall);
        let Some(stall) = stall else { return };
        let own = &mut self.directions[side];
        let acked = own.acked();
        match &mut own.stalled {
            // Two stalls in a row are one if nothing was acknowledged in between.
            Some((before, still))
                if before.until == gap.from && before.cause == stall.cause && *still == acked =>
            {
                before.until = stall.until;
            }
            stalled => {
                if let Some((before, _)) = stalled.replace((stall, acked)) {
                    self.stalls.add(before, context.limits.stalls);
                }
            }
        }
    }

    fn stall(
        &self,
        side: usize,
        gap: Gap,
        resent: bool,
        (now, spent): (u64, Spent),
        least: u64,
    ) -> Option<Stall> {
        if now.saturating_sub(gap.from) < least {
            return None;
        }
        let trip = self.directions[side].trips.smooth();
        let cause = gap.cause(now, spent, resent, trip)?;
        Some(Stall { from: gap.from, until: now, cause, direction: side, ended: true })
    }

    fn update(&mut self) {
        let [client, server] = &mut self.directions;
        let done = |direction: &Direction| direction.fin && direction.flight() == Some(0);
        self.closed |= done(client) && done(server);
        client.update(self.closed);
        server.update(self.closed);
    }

    /// Returns the rings that data and acknowledgements of a direction cross.
    fn both_rings(&self, side: usize) -> [Option<Ring>; 2] {
        [self.rings[side], self.rings[1 - side]]
    }

    /// Returns all stalls of the flow: those that are kept, and sums. A stall that goes on at `now`
    /// has its length so far.
    pub fn stalls(&self, now: u64, rings: &Rings, limits: &Limits) -> Stalls {
        let mut all = self.stalls.clone();
        for (side, direction) in self.directions.iter().enumerate() {
            let mut last = direction.stalled;
            if matches!(direction.state, State::Waiting | State::Blocked) {
                let mut gap = direction.gap;
                gap.spend(direction.state, now.saturating_sub(self.last));
                let spent = rings.spent(self.both_rings(side), now);
                let going = self.stall(side, gap, false, (now, spent), limits.stall);
                match (&mut last, going) {
                    (Some((before, still)), Some(going))
                        if before.until == going.from && *still == direction.acked() =>
                    {
                        (before.until, before.ended) = (going.until, false);
                    }
                    (_, Some(going)) => all.add(Stall { ended: false, ..going }, limits.stalls),
                    (_, None) => {}
                }
            }
            if let Some((stall, _)) = last {
                all.add(stall, limits.stalls);
            }
        }
        all
    }

    /// Returns the number of points that the flow's series took from the budget.
    pub fn taken(&self) -> usize {
        self.directions.iter().map(|direction| direction.lines.taken()).sum()
    }
}

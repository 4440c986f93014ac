//! States of rings, which a backend knows and a capture does not show.

use std::collections::BTreeMap;

/// Most rings that are followed. Events of further rings are ignored.
const RINGS_MAX: usize = 1024;
/// Start of a comment that a backend writes.
pub(crate) const PREFIX: &[u8] = b"grantway:";

/// Direction of a packet, as the guest names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// From the guest.
    Transmit,
    /// To the guest.
    Receive,
}

/// The ring that a packet crosses. Only equality matters: a capture numbers its interfaces, a live
/// node its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ring {
    /// Number of the interface.
    pub interface: u32,
    /// Number of the interface's queue, if it has several.
    pub queue: u32,
    /// Direction of the ring, if it is known.
    pub way: Option<Way>,
}

/// Events of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// The ring is full, and its writer waits.
    RingFull,
    /// The ring has room again, and its writer was signalled.
    RingDrained,
    /// The writer runs again.
    Woken,
}

impl Event {
    /// All events.
    pub const ALL: [Self; 3] = [Self::RingFull, Self::RingDrained, Self::Woken];

    /// Returns the name of the event, as in a capture's comment: `ring-full` in
    /// `grantway:ring-full`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RingFull => "ring-full",
            Self::RingDrained => "ring-drained",
            Self::Woken => "woken",
        }
    }

    /// Returns the comment that stands for the event.
    #[must_use]
    pub fn comment(self) -> String {
        format!("grantway:{}", self.name())
    }

    /// Returns the event that a comment stands for: `grantway:` and the event's name.
    #[must_use]
    pub fn read(comment: &[u8]) -> Option<Self> {
        let name = comment.strip_prefix(PREFIX)?.trim_ascii();
        Self::ALL.into_iter().find(|event| event.name().as_bytes() == name)
    }
}

/// Nanoseconds for which a ring was full, and for which its writer was still asleep afterwards.
pub(crate) type Spent = [u64; 2];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Open,
    Full,
    Drained,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    phase: Phase,
    since: u64,
    spent: Spent,
}

impl State {
    fn spent(&self, now: u64) -> Spent {
        let more = now.saturating_sub(self.since);
        let [full, asleep] = self.spent;
        match self.phase {
            Phase::Open => [full, asleep],
            Phase::Full => [full + more, asleep],
            Phase::Drained => [full, asleep + more],
        }
    }

    fn enter(&mut self, phase: Phase, now: u64) {
        *self = Self { phase, since: now, spent: self.spent(now) };
    }
}

/// The rings that had events.
#[derive(Debug, Default)]
pub(crate) struct Rings(BTreeMap<Ring, State>);

impl Rings {
    /// Handles an event of a ring. An event that cannot follow the ring's state changes nothing.
    pub fn happened(&mut self, ring: Ring, event: Event, now: u64) {
        if self.0.len() >= RINGS_MAX && !self.0.contains_key(&ring) {
            return;
        }
        let state = self.0.entry(ring).or_default();
        match (event, state.phase) {
            (Event::RingFull, Phase::Open | Phase::Drained) => state.enter(Phase::Full, now),
            (Event::RingDrained, Phase::Full) => state.enter(Phase::Drained, now),
            (Event::Woken, Phase::Full | Phase::Drained) => state.enter(Phase::Open, now),
            _ => {}
        }
    }

    /// Handles a packet that crossed a ring. If the ring had room again before, its writer is
    /// awake. If the direction of the ring is not known, only packets with data show that.
    pub fn passed(&mut self, ring: Ring, carries: bool, now: u64) {
        if self.0.is_empty() || (ring.way.is_none() && !carries) {
            return;
        }
        let state = self.0.get_mut(&ring);
        let asleep = |state: &&mut State| state.phase == Phase::Drained && state.since < now;
        if let Some(state) = state.filter(asleep) {
            state.enter(Phase::Open, now);
        }
    }

    /// Returns the sum of the times that were spent on these rings. A ring that is named twice
    /// counts once.
    pub fn spent(&self, rings: [Option<Ring>; 2], now: u64) -> Spent {
        if self.0.is_empty() {
            return [0; 2];
        }
        let [one, other] = rings;
        let other = other.filter(|_| other != one);
        let spent = [one, other].into_iter().flatten().filter_map(|ring| self.0.get(&ring));
        spent.map(|state| state.spent(now)).fold([0; 2], |[a, b], [c, d]| [a + c, b + d])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_events() {
        for event in Event::ALL {
            let comment = format!("grantway:{}\n", event.name());
            assert_eq!(Event::read(comment.as_bytes()), Some(event));
        }
        for other in [&b""[..], b"ring-full", b"grantway:", b"grantway:ring", b"\xff"] {
            assert_eq!(Event::read(other), None);
        }
    }

    #[test]
    fn full_and_asleep_are_told_apart() {
        let (mut rings, ring) = (Rings::default(), Ring::default());
        let both = [Some(ring); 2];
        rings.happened(ring, Event::Woken, 5);
        rings.happened(ring, Event::RingFull, 10);
        rings.happened(ring, Event::RingFull, 15);
        assert_eq!(rings.spent(both, 20), [10, 0]);
        rings.happened(ring, Event::RingDrained, 30);
        assert_eq!(rings.spent(both, 70), [20, 40]);
        rings.passed(ring, false, 75);
        rings.passed(ring, true, 30);
        rings.passed(ring, true, 80);
        rings.happened(ring, Event::RingDrained, 90);
        assert_eq!(rings.spent(both, 100), [20, 50]);
        let other = Ring { interface: 1, ..Ring::default() };
        assert_eq!(rings.spent([Some(other), None], 100), [0, 0]);
        for interface in 0..2 * RINGS_MAX as u32 {
            rings.happened(Ring { interface, ..Ring::default() }, Event::RingFull, 0);
        }
        assert_eq!(rings.0.len(), RINGS_MAX);
    }
}

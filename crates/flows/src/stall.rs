//! Times for which nothing came, and why.

use crate::rings::Spent;
use serde::Serialize;

/// Why nothing came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The sender had nothing to send: all that it sent was acknowledged, and there
    /// was a window.
    Sender,
    /// The receiver's window was zero, or full.
    Window,
    /// A ring was full. Only a backend can tell.
    Ring,
    /// A ring had room again, and who waited for it was still asleep. Only a backend
    /// can tell.
    WakeUp,
    /// Data was under way, and what was awaited came late or not at all.
    Network,
    /// Data was under way, and nothing that was captured let the sender go on.
    Unknown,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Sender, Self::Window, Self::Ring, Self::WakeUp, Self::Network, Self::Unknown];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Window => "window",
            Self::Ring => "ring",
            Self::WakeUp => "wake-up",
            Self::Network => "network",
            Self::Unknown => "unknown",
        }
    }
}

/// A time for which nothing came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// Since when, in nanoseconds: the last data before.
    pub from: u64,
    /// Until when: the next data, or the last packet of all.
    pub until: u64,
    /// Why.
    pub cause: Cause,
    /// Of which direction: 0 from the client, 1 from the server.
    pub direction: usize,
    /// Whether data came again.
    pub ended: bool,
}

impl Stall {
    /// For how long, in nanoseconds.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.until.saturating_sub(self.from)
    }
}

/// What a direction waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// Nobody can tell, or nothing will come.
    #[default]
    Silent,
    /// All that was sent is acknowledged, and there is a window.
    Idle,
    /// Something is under way.
    Waiting,
    /// There is no window.
    Blocked,
}

/// The time since the last data of a direction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gap {
    pub from: u64,
    /// Spent idle, waiting and blocked.
    spent: [u64; 3],
    /// What had been spent on the rings when it began.
    rings: Spent,
    /// Whether an acknowledgement came.
    answered: bool,
}

impl Gap {
    pub fn begin(from: u64, rings: Spent) -> Self {
        Self { from, rings, ..Self::default() }
    }

    pub fn spend(&mut self, state: State, time: u64) {
        match state {
            State::Silent => {}
            State::Idle => self.spent[0] += time,
            State::Waiting => self.spent[1] += time,
            State::Blocked => self.spent[2] += time,
        }
    }

    pub fn answered(&mut self) {
        self.answered = true;
    }

    /// What it was spent on for the most part; none where that is as it has to be:
    /// on what is under way for a round trip and a half, and no segment sent again.
    pub fn cause(
        &self,
        until: u64,
        rings: Spent,
        resent: bool,
        trip: Option<u64>,
    ) -> Option<Cause> {
        let whole = until.saturating_sub(self.from);
        let full = rings[0].saturating_sub(self.rings[0]);
        let asleep = rings[1].saturating_sub(self.rings[1]);
        if full.saturating_add(asleep) >= whole.div_ceil(2) {
            return Some(if full >= asleep { Cause::Ring } else { Cause::WakeUp });
        }
        let [idle, waiting, blocked] = self.spent;
        if blocked > 0 && blocked >= waiting && blocked >= idle {
            return Some(Cause::Window);
        }
        if idle >= waiting {
            return (idle > 0).then_some(Cause::Sender);
        }
        if resent {
            return Some(Cause::Network);
        }
        let usual = trip.is_some_and(|trip| waiting < trip.saturating_add(trip / 2));
        match (usual, self.answered) {
            (true, _) => None,
            (false, true) => Some(Cause::Network),
            (false, false) => Some(Cause::Unknown),
        }
    }
}

/// The stalls of a flow: so many, of more the longest, and sums of all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stalls {
    kept: Vec<Stall>,
    /// How many, and how long together, by cause.
    sums: [(u64, u64); Cause::ALL.len()],
}

impl Stalls {
    /// Adds one, if it is among the `most` longest.
    pub fn add(&mut self, stall: Stall, most: usize) {
        let (count, time) = &mut self.sums[stall.cause as usize];
        *count += 1;
        *time = time.saturating_add(stall.length());
        if self.kept.len() < most {
            return self.kept.push(stall);
        }
        let shortest = self.kept.iter_mut().min_by_key(|stall| stall.length());
        if let Some(shortest) = shortest.filter(|shortest| shortest.length() < stall.length()) {
            *shortest = stall;
        }
    }

    pub fn kept(&self) -> &[Stall] {
        &self.kept
    }

    pub fn sums(&self) -> impl Iterator<Item = (Cause, u64, u64)> {
        let sums = Cause::ALL.into_iter().zip(self.sums);
        sums.filter(|(_, (count, _))| *count > 0).map(|(cause, (count, time))| (cause, count, time))
    }
}

//! Times without data, and their causes.

use crate::rings::Spent;
use serde::Serialize;

/// Cause of a stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The sender had nothing to send. All that it sent was acknowledged, and there was a window.
    Sender,
    /// The receiver's window was zero, or full.
    Window,
    /// A ring was full. Only a backend knows that.
    Ring,
    /// A ring had room again, and the writer that waited for it was still asleep. Only a backend
    /// knows that.
    WakeUp,
    /// Data was under way, and the expected packets came late or not at all.
    Network,
    /// Data was under way, and no captured packet let the sender go on.
    Unknown,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 6] =
        [Self::Sender, Self::Window, Self::Ring, Self::WakeUp, Self::Network, Self::Unknown];

    /// Returns the name of the cause.
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

/// A time without data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// Start in nanoseconds: the last data before.
    pub from: u64,
    /// End in nanoseconds: the next data, or the last packet of all.
    pub until: u64,
    /// Cause of the stall.
    pub cause: Cause,
    /// Direction that stalled: 0 from the client, 1 from the server.
    pub direction: usize,
    /// True if data came again.
    pub ended: bool,
}

impl Stall {
    /// Returns the length in nanoseconds.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.until.saturating_sub(self.from)
    }
}

/// State of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// The state is not known, or no data will come.
    #[default]
    Silent,
    /// All that was sent is acknowledged, and there is a window.
    Idle,
    /// Data is under way.
    Waiting,
    /// There is no window.
    Blocked,
}

/// The time since the last data of a direction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gap {
    pub from: u64,
    /// Time spent idle, waiting and blocked.
    spent: [u64; 3],
    /// Times that had been spent on the rings when the gap began.
    rings: Spent,
    /// True if an acknowledgement came.
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

    /// Returns the state in which most of the gap was spent. Returns `None` for a usual gap: less
    /// than a round trip and a half with data under way, and no segment sent again.
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

/// The stalls of a flow: a bounded number of the longest, and sums of all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stalls {
    kept: Vec<Stall>,
    /// Number of stalls and nanoseconds of all together, by cause.
    sums: [(u64, u64); Cause::ALL.len()],
}

impl Stalls {
    /// Adds a stall to the sums, and keeps it if it is among the `most` longest.
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

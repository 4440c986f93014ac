//! The ways in which a worker waits.

use std::time::Duration;

/// The way in which a worker waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMode {
    /// The worker never sleeps.
    Busy,
    /// The worker spins, then sleeps. It spins for this time at first, and later for as long as a
    /// wake-up takes by its measurements, from an eighth of this time to four times as long. A
    /// worker without a thread measures nothing.
    Adaptive(Duration),
    /// The worker sleeps as soon as it has nothing to do.
    Interrupt,
}

impl WaitMode {
    /// Returns the mode that fits this machine: adaptive with 50 us at first, about the cost of one
    /// wake-up. With only one processor online, the mode is interrupt, since spinning would only
    /// keep the peer from running.
    #[must_use]
    pub fn fitting() -> Self {
        match std::thread::available_parallelism() {
            Ok(n) if n.get() > 1 => Self::Adaptive(Duration::from_micros(50)),
            _ => Self::Interrupt,
        }
    }

    /// Returns the time for which a thread without work spins at first, or `None` if it spins for
    /// ever.
    #[must_use]
    pub fn budget(self) -> Option<Duration> {
        match self {
            Self::Busy => None,
            Self::Adaptive(first) => Some(first),
            Self::Interrupt => Some(Duration::ZERO),
        }
    }

    /// Returns the mode's name in options, tables and figures.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Adaptive(_) => "adaptive",
            Self::Interrupt => "interrupt",
        }
    }
}

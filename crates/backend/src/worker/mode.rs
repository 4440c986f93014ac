//! The ways in which a worker waits.

use std::time::Duration;

/// The way in which a worker waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMode {
    /// Never sleeps.
    Busy,
    /// Looks again, then sleeps. The worker looks for this long at first, and then for as long as
    /// it finds that a wake-up takes. The bounds are an eighth of this and four times as long. A
    /// worker without a thread measures nothing.
    Adaptive(Duration),
    /// Sleeps as soon as there is nothing to do.
    Interrupt,
}

impl WaitMode {
    /// Returns the mode that fits this machine. It is adaptive with 50 us at first, about the cost
    /// of one blocked wake-up. If only one processor is online it is interrupt, since spinning
    /// there only keeps the peer from running.
    #[must_use]
    pub fn fitting() -> Self {
        match std::thread::available_parallelism() {
            Ok(n) if n.get() > 1 => Self::Adaptive(Duration::from_micros(50)),
            _ => Self::Interrupt,
        }
    }

    /// Returns the time for which a thread that found nothing looks again, at first; `None` for
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

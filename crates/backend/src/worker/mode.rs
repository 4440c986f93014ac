//! How a worker waits.

use std::time::Duration;

/// How a worker waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMode {
    /// Never sleeps.
    Busy,
    /// Looks again, then sleeps: for this long at first, and then for as long as it
    /// finds that a wake-up takes, from an eighth of this to four times as long. A
    /// worker without a thread measures nothing.
    Adaptive(Duration),
    /// Sleeps as soon as there is nothing to do.
    Interrupt,
}

impl WaitMode {
    /// Adaptive, at first by 50 us, about the cost of one blocked wake-up;
    /// interrupt where only one processor is online, since spinning there only
    /// keeps the peer from running.
    #[must_use]
    pub fn fitting() -> Self {
        match std::thread::available_parallelism() {
            Ok(n) if n.get() > 1 => Self::Adaptive(Duration::from_micros(50)),
            _ => Self::Interrupt,
        }
    }

    /// Its name in options, tables and figures.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Adaptive(_) => "adaptive",
            Self::Interrupt => "interrupt",
        }
    }
}

//! Options: the interfaces of Xen that the guest uses.

use crate::Boot;
use alloc::format;
use alloc::string::String;
use core::fmt;

/// Way in which Xen ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wake {
    /// Xen raises an interrupt (an upcall) for a signal at any port.
    Upcall,
    /// Each wait passes the ports to Xen (`SCHEDOP_poll`), at most 128. This is the default.
    #[default]
    Poll,
}

/// Memory in which Xen shows the ports that were signalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// Queues of ports (FIFO), for at most 131,072 ports. This is the default. If Xen lacks it, the
    /// guest uses [`Layout::TwoLevel`].
    #[default]
    Fifo,
    /// Bits in one page, for at most 4,096 ports.
    TwoLevel,
}

/// Interfaces of Xen that the guest uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Way in which Xen ends a wait.
    pub wake: Wake,
    /// Memory of the event channels.
    pub layout: Layout,
}

impl Options {
    /// Reads the options from the guest's arguments. They are `events=poll` (the default) or
    /// `events=upcall`, and `channels=fifo` (the default) or `channels=2-level`.
    ///
    /// # Errors
    ///
    /// Returns a message for any other value of these arguments. It has the found and the expected
    /// values.
    pub fn of(boot: &Boot) -> Result<Self, String> {
        let wake = match boot.argument("events") {
            None | Some("poll") => Wake::Poll,
            Some("upcall") => Wake::Upcall,
            Some(other) => return Err(format!("events={other}: expected poll or upcall")),
        };
        let layout = match boot.argument("channels") {
            None | Some("fifo") => Layout::Fifo,
            Some("2-level") => Layout::TwoLevel,
            Some(other) => return Err(format!("channels={other}: expected fifo or 2-level")),
        };
        Ok(Self { wake, layout })
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wake = match self.wake {
            Wake::Upcall => "upcall",
            Wake::Poll => "poll",
        };
        let layout = match self.layout {
            Layout::Fifo => "fifo",
            Layout::TwoLevel => "2-level",
        };
        write!(f, "events={wake} channels={layout}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn arguments_are_read_as_they_are_shown() {
        let options = |text: &str| Options::of(&Boot::new(text.into(), 0));
        assert_eq!(options(""), Ok(Options::default()));
        for wake in [Wake::Upcall, Wake::Poll] {
            for layout in [Layout::Fifo, Layout::TwoLevel] {
                let both = Options { wake, layout };
                assert_eq!(options(&both.to_string()), Ok(both));
            }
        }
        for other in ["events=x", "events=", "channels=4096"] {
            assert!(options(other).unwrap_err().contains(other), "{other}");
        }
    }
}

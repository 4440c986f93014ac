//! Choices between ways of the hypervisor's.

use crate::Boot;
use alloc::format;
use alloc::string::String;
use core::fmt;

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wake {
    /// Xen makes an upcall, an interrupt, for whichever port is signalled.
    Upcall,
    /// Xen is told the ports with each wait (`SCHEDOP_poll`): 128 at most.
    #[default]
    Poll,
}

/// Memory in which Xen shows the ports that were signalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// Queues of ports, 131,072 of them at most. [`Layout::TwoLevel`] if Xen has none.
    #[default]
    Fifo,
    /// Bits of one page, 4,096 ports.
    TwoLevel,
}

/// Choices between ways of the hypervisor's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// The end of a wait.
    pub wake: Wake,
    /// The memory of event channels.
    pub layout: Layout,
}

impl Options {
    /// Reads the guest's arguments: `events=poll` or `upcall`, and `channels=fifo` or `2-level`.
    /// The first of each is the default.
    ///
    /// # Errors
    ///
    /// A text that names the argument, and what is expected, if it is another one.
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

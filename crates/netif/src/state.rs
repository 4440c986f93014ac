//! State of each end of a device, in its `state` node.

use core::fmt;
use thiserror::Error;

/// State of one end, as in `xenbus.h`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum XenbusState {
    /// The state is unknown. Stock drivers use it for a missing node.
    #[default]
    Unknown = 0,
    /// The end is set up. A frontend in this state requests a new connection.
    Initialising = 1,
    /// Backend: its features are in the store. It waits for the frontend.
    InitWait = 2,
    /// Frontend of other protocols: its keys are in the store. It waits for the backend.
    Initialised = 3,
    /// The device is in use.
    Connected = 4,
    /// The end closes.
    Closing = 5,
    /// The end is closed, and holds no resource of the peer.
    Closed = 6,
    /// Frontend: it is connected, and changes its `xdp-headroom`.
    Reconfiguring = 7,
    /// Backend: it is connected, and ready for the new headroom.
    Reconfigured = 8,
}

/// Error for a `state` node whose content is not a number from 0 to 8.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
#[error("xenbus state: found {length} bytes that are no state, expected a number from 0 to 8")]
pub struct StateError {
    /// Bytes found in the node.
    pub length: usize,
}

impl XenbusState {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Unknown,
        Self::Initialising,
        Self::InitWait,
        Self::Initialised,
        Self::Connected,
        Self::Closing,
        Self::Closed,
        Self::Reconfiguring,
        Self::Reconfigured,
    ];

    /// Returns true if a frontend in this state has published its rings and uses them.
    pub const fn has_rings(self) -> bool {
        matches!(self, Self::Connected | Self::Reconfiguring)
    }

    /// Reads the content of a `state` node: a decimal number. White space around it and a NUL at
    /// its end are ignored, since some writers leave them.
    pub fn from_store(text: &[u8]) -> Result<Self, StateError> {
        let error = StateError { length: text.len() };
        let text = text.strip_suffix(b"\0").unwrap_or(text).trim_ascii();
        let mut number = 0usize;
        if text.is_empty() {
            return Err(error);
        }
        for byte in text {
            if !byte.is_ascii_digit() {
                return Err(error);
            }
            number = number * 10 + usize::from(byte - b'0');
            // Also keeps the product above from running over.
            if number >= Self::ALL.len() {
                return Err(error);
            }
        }
        Self::ALL.get(number).copied().ok_or(error)
    }

    /// Returns the text that a `state` node holds for this state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "0",
            Self::Initialising => "1",
            Self::InitWait => "2",
            Self::Initialised => "3",
            Self::Connected => "4",
            Self::Closing => "5",
            Self::Closed => "6",
            Self::Reconfiguring => "7",
            Self::Reconfigured => "8",
        }
    }

    /// Returns the name of the state for display.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Initialising => "Initialising",
            Self::InitWait => "InitWait",
            Self::Initialised => "Initialised",
            Self::Connected => "Connected",
            Self::Closing => "Closing",
            Self::Closed => "Closed",
            Self::Reconfiguring => "Reconfiguring",
            Self::Reconfigured => "Reconfigured",
        }
    }
}

impl fmt::Display for XenbusState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

//! Settings of numbered test frames, and their bounds.

use crate::frame::ETHERNET_HEADER;
use crate::testframe::{TAG_LEN, TIME_LEN, UDP_HEADERS};

/// Largest frame in bytes, Ethernet header included.
const MAX_SIZE: usize = 65_535;
/// Most flows: the tag's number of a flow has 16 bits.
pub(crate) const MAX_FLOWS: u32 = 65_536;
/// Length of the smallest frame that can carry a time behind its tag.
const TIMED_SIZE: usize = UDP_HEADERS + TAG_LEN + TIME_LEN;

/// Settings of a generator.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GeneratorConfig {
    /// Length of each frame in bytes, 14 to 65,535: with the Ethernet header, without FCS.
    pub size: usize,
    /// Frames that are made together, at least 1. With a rate, they are due at one time. Without a
    /// rate, `Port::recv` returns once after each burst that there is no frame.
    pub burst: u32,
    /// Frames per second from each queue; 0 for as many as are asked for. The schedule does not
    /// wait for a slow reader: a late frame is due at once.
    pub rate: u64,
    /// Flows of each queue, taken in turn; 1 to 65,536 over all queues. Each flow has its own
    /// UDP source port and its own sequence from 0.
    pub flows: u32,
    /// Frames to make in each queue; `None` for no end.
    pub count: Option<u64>,
    /// Most frames of a queue that are on their way: a frame must come back before the next is
    /// made. 0 for no bound. A window replaces rate and burst.
    pub window: u32,
    /// Interval at which frames of a queue carry the time at which they were due: every n-th frame,
    /// from the first one on; 0 for none. Frames that come back are checked and timed. The size
    /// must be at least 64 bytes.
    pub timed: u32,
    /// Destination MAC address.
    pub destination: [u8; 6],
    /// Source MAC address.
    pub source: [u8; 6],
}

impl GeneratorConfig {
    /// Checks the bounds of every value.
    ///
    /// # Errors
    /// A value is out of bounds.
    pub fn check(&self) -> Result<(), GeneratorError> {
        if !(ETHERNET_HEADER..=MAX_SIZE).contains(&self.size) {
            return Err(GeneratorError::Size(self.size));
        }
        if self.burst == 0 {
            return Err(GeneratorError::Burst);
        }
        if !(1..=MAX_FLOWS).contains(&self.flows) {
            return Err(GeneratorError::Flows(self.flows));
        }
        if self.window > 0 && self.rate > 0 {
            return Err(GeneratorError::Window { window: self.window, rate: self.rate });
        }
        if self.timed > 0 && self.size < TIMED_SIZE {
            return Err(GeneratorError::Timed(self.size));
        }
        Ok(())
    }
}

impl Default for GeneratorConfig {
    fn default() -> Self {
        GeneratorConfig {
            size: 64,
            burst: 64,
            rate: 0,
            flows: 1,
            count: None,
            window: 0,
            timed: 0,
            destination: [0x02, 0x47, 0x57, 0, 0, 2],
            source: [0x02, 0x47, 0x57, 0, 0, 1],
        }
    }
}

/// Reason why a generator cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GeneratorError {
    /// The size is out of bounds.
    #[error("generator: size {0}, expected 14 to 65535 bytes (64 is usual)")]
    Size(usize),
    /// The burst is 0.
    #[error("generator: burst 0, expected at least 1 frame (64 is usual)")]
    Burst,
    /// The number of flows is out of bounds.
    #[error("generator: {0} flows, expected 1 to 65536")]
    Flows(u32),
    /// A window and a rate are both given.
    #[error("generator: window {window} with rate {rate}, expected one of them; leave one out")]
    Window {
        /// The window.
        window: u32,
        /// The rate.
        rate: u64,
    },
    /// The frames are too short for a time.
    #[error("generator: size {0} with timed, expected at least 64 bytes, to hold a time")]
    Timed(usize),
}

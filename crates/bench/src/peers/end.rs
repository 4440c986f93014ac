//! One of the two programs of a link: what is asked of it, and what it answers.

use crate::tools::Watch;
use grantway_command::error::CommandError;
use rustix::process::Signal;
use std::path::Path;
use std::time::Duration;

/// Largest frame that fits into a buffer of every peer, and through an MTU of 1500.
pub const SIZE_MAX: u64 = 1514;

/// Work of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends new packets of this many bytes.
    Send(usize),
    /// Counts packets and drops them.
    Take,
    /// Sends packets back.
    Echo,
    /// Sends packets back, and first sends one of this many bytes.
    Bounce(usize),
}

/// Options of a program.
#[derive(Debug)]
pub struct Plan<'a> {
    /// Name of the process.
    pub name: &'static str,
    /// Device of the process.
    pub device: &'a str,
    /// Work of the process.
    pub role: Role,
    /// Number of packets that it moves at a time.
    pub burst: u32,
    /// Processor that it runs on.
    pub cpu: usize,
    /// Folder for the files that it makes.
    pub folder: &'a Path,
}

/// Statistics of what an end received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// Number of packets in all.
    pub packets: u64,
    /// Packets per second since the last question, by the clock of the program.
    pub rate: u64,
}

/// One of the two programs of a link.
pub trait End {
    /// Waits until its end of the link is connected.
    ///
    /// # Errors
    ///
    /// The end was not connected in time, or the program ended.
    fn wait_link(&mut self, watch: &Watch) -> Result<(), CommandError>;

    /// Starts the work.
    ///
    /// # Errors
    ///
    /// The program ended.
    fn go(&mut self) -> Result<(), CommandError>;

    /// Sets the number of packets that are moved at a time.
    ///
    /// # Errors
    ///
    /// The program ended.
    fn set_burst(&mut self, burst: u32) -> Result<(), CommandError>;

    /// Asks for the statistics of received packets. Their rate is that since the last question.
    ///
    /// # Errors
    ///
    /// The program ended, or did not answer in time.
    fn show(&mut self, watch: &Watch) -> Result<Shown, CommandError>;

    /// Returns the processor time that the program had.
    fn time(&self) -> Duration;

    /// Sends the program a signal, to hold it still or to let it go on.
    fn signal(&self, signal: Signal);
}

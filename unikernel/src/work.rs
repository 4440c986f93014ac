//! The seam between a guest's loop and its work.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use grantway_frontend::{Runner, VifError};

/// Work that a guest does with its vif. Times are by the guest's own clock.
pub trait Work: Runner {
    /// Sets the vif's Ethernet address, and its MTU in bytes of an IP packet. Returns false if the
    /// address is a group's.
    fn set_station(&mut self, mac: [u8; 6], mtu: usize) -> bool;

    /// Notes that the vif is connected now.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol, or the platform is gone.
    fn connected(&mut self, now: Duration) -> Result<(), VifError>;

    /// Notes the number of pages that the backend has staged.
    fn staged(&mut self, pages: usize);

    /// Does what there is to do. Returns true if anything moved.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol, or the platform is gone.
    fn turn(&mut self, now: Duration) -> Result<bool, VifError>;

    /// Looks a last time before sleeping. Returns true if something is there already.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol, or the platform is gone.
    fn arm(&mut self) -> Result<bool, VifError>;

    /// Returns the most time for which nothing happens by itself. Returns none if nothing ever
    /// does.
    fn delay(&self, now: Duration) -> Option<Duration>;

    /// Returns lines for the console, once. `last` is true where the guest ends, or where the
    /// connection of its vif did.
    fn lines(&mut self, now: Duration, last: bool) -> Vec<String>;
}

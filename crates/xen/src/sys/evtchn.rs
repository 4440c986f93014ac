//! `/dev/xen/evtchn`: event channels.

use super::request::{open, request};
use crate::uapi::{
    BIND_INTERDOMAIN, BIND_UNBOUND_PORT, BindInterdomain, BindUnboundPort, NOTIFY, PortOf, RESET,
    UNBIND,
};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::{Errno, Result};
use std::path::Path;

/// Most bytes that the driver gives or takes in one call: 1,024 ports.
pub const FIRED_BYTES: usize = 4096;

/// An open evtchn: ports that fire into one descriptor.
#[derive(Debug)]
pub struct Evtchn(OwnedFd);

impl Evtchn {
    /// Opens the device, so that reading never blocks.
    pub fn open(path: &Path) -> Result<Self> {
        open(path, OFlags::NONBLOCK).map(Self)
    }

    /// Makes an evtchn of any descriptor that fires like one.
    #[cfg(test)]
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Makes a port for `remote` to bind to. Returns the port.
    pub fn bind_unbound(&self, remote: u16) -> Result<u32> {
        let mut argument = BindUnboundPort { remote_domain: remote.into() };
        // SAFETY: the driver reads the argument.
        let port = unsafe { request(&self.0, BIND_UNBOUND_PORT, &raw mut argument)? };
        u32::try_from(port).map_err(|_| Errno::INVAL)
    }

    /// Binds a new port to the port that `remote` made. Returns the new port.
    pub fn bind_interdomain(&self, remote: u16, port: u32) -> Result<u32> {
        let mut argument = BindInterdomain { remote_domain: remote.into(), remote_port: port };
        // SAFETY: the driver reads the argument.
        let port = unsafe { request(&self.0, BIND_INTERDOMAIN, &raw mut argument)? };
        u32::try_from(port).map_err(|_| Errno::INVAL)
    }

    /// Closes a port.
    pub fn unbind(&self, port: u32) -> Result<()> {
        let mut argument = PortOf { port };
        // SAFETY: the driver reads the argument.
        unsafe { request(&self.0, UNBIND, &raw mut argument) }.map(drop)
    }

    /// Signals the peer of a port.
    #[inline]
    pub fn notify(&self, port: u32) -> Result<()> {
        let mut argument = PortOf { port };
        // SAFETY: the driver reads the argument.
        unsafe { request(&self.0, NOTIFY, &raw mut argument) }.map(drop)
    }

    /// Forgets signals that were not read, and the overflow of their buffer.
    pub fn reset(&self) -> Result<()> {
        // SAFETY: this request has no argument.
        unsafe { request(&self.0, RESET, std::ptr::null_mut::<u8>()) }.map(drop)
    }

    /// Takes ports that fired, 4 bytes each, and returns the number of bytes. Each port stays
    /// masked until it is given back. Fails with `AGAIN` if no port fired, and with `FBIG` if the
    /// buffer overflowed.
    pub fn fired(&self, ports: &mut [u8]) -> Result<usize> {
        rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut *ports))
    }

    /// Unmasks ports, 4 bytes each, at most [`FIRED_BYTES`]. Returns the number of bytes taken.
    pub fn unmask(&self, ports: &[u8]) -> Result<usize> {
        rustix::io::retry_on_intr(|| rustix::io::write(&self.0, ports))
    }
}

impl AsFd for Evtchn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

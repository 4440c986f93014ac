//! A connection of a process to the simulation's store.

use super::{Xen, drain};
use grantway_embedded::store::ConnId;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io::{Read, Write};
use std::sync::Arc;

/// A connection to the store.
pub struct Wire {
    pub xen: Xen,
    pub process: u64,
    pub connection: ConnId,
    pub bell: Arc<OwnedFd>,
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let broken = |_| std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let mut inner = self.xen.call(self.process).map_err(broken)?;
        inner.store.input(self.connection, bytes).expect("a sound client");
        inner.ring_readers();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Read for Wire {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let mut inner = self.xen.lock();
        drain(&self.bell);
        let waiting = inner.store.output(self.connection);
        let count = waiting.len().min(bytes.len());
        bytes[..count].copy_from_slice(&waiting[..count]);
        if count == 0 {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        inner.store.written(self.connection, count).expect("a sound client");
        inner.ring_readers();
        Ok(count)
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let mut inner = self.xen.lock();
        inner.store.disconnect(self.connection);
        inner.readers.remove(&self.connection);
        inner.ring_readers();
    }
}

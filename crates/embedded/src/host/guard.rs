//! A host on a thread of this process, for tests and demonstrations.

use super::{Host, HostConfig, HostError};
use crate::sys::Wake;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A host's thread, which goes on until this is dropped.
#[derive(Debug)]
pub struct HostGuard {
    dir: PathBuf,
    stop: Arc<Wake>,
    thread: Option<JoinHandle<Result<(), HostError>>>,
}

impl Host {
    /// Runs a host with the usual tables on a thread. The host listens when this returns.
    ///
    /// # Errors
    ///
    /// The errors of [`Host::bind`].
    pub fn spawn(dir: &Path) -> Result<HostGuard, HostError> {
        Self::spawn_with(dir, HostConfig::default())
    }

    /// Runs a host on a thread. The host listens when this returns.
    ///
    /// # Errors
    ///
    /// The errors of [`Host::bind`].
    pub fn spawn_with(dir: &Path, config: HostConfig) -> Result<HostGuard, HostError> {
        let mut host = Self::bind(dir, config)?;
        let stop = Arc::new(Wake::new().map_err(HostError::os("eventfd"))?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("grantway-host".to_owned())
            .spawn(move || host.run(&*stopped))
            .map_err(|_| HostError::Os { call: "clone", reason: rustix::io::Errno::AGAIN })?;
        Ok(HostGuard { dir: dir.to_owned(), stop, thread: Some(thread) })
    }
}

impl HostGuard {
    /// Returns the folder that the host serves.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Stops the host, and returns the error that it ended with, if any.
    ///
    /// # Errors
    ///
    /// The errors of [`Host::run`].
    pub fn stop(mut self) -> Result<(), HostError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), HostError> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        let _ = self.stop.ring();
        match thread.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for HostGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.stop.ring();
            return;
        }
        let _ = self.end();
    }
}

//! Lines behind the vifs: one for each guest. A line counts the frames from its guest, and has
//! numbered frames for it. Like a persistent interface, a line outlives the processes of the
//! backend and of the guest.

use super::guest::{checker, generator};
use super::xen::Domain;
use grantway_backend::VifId;
use grantway_netif::Offload;
use grantway_ports::{
    Checker, Counters, FrameMeta, Generator, Port, PortCaps, PortControl, PortError, PortReport,
    Probe, Readiness, SendError, TapOffloads,
};
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub struct Line {
    pub from_guest: Checker,
    pub to_guest: Generator,
    /// Frames that it still has for the guest.
    pub credits: u64,
    /// Handles of it, and whether the interface is there.
    pub handles: u32,
    pub there: bool,
}

struct Behind {
    bell: OwnedFd,
    line: Mutex<Line>,
}

impl Behind {
    fn look(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lines of all guests, and which vif has which.
#[derive(Default)]
pub struct Lines {
    all: Vec<Arc<Behind>>,
    vifs: Mutex<BTreeMap<VifId, usize>>,
}

impl Lines {
    /// A line for one more guest, with frames of this size for it.
    pub fn add(&mut self, size: usize) {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let number = self.all.len();
        let to_guest = generator(size, number, number);
        let line = Line { from_guest: checker(), to_guest, credits: 0, handles: 0, there: false };
        let bell = rustix::event::eventfd(0, flags).unwrap();
        self.all.push(Arc::new(Behind { bell, line: Mutex::new(line) }));
    }

    /// A guest's vif is called so from now on.
    pub fn name(&self, number: usize, vif: VifId) {
        self.vifs.lock().unwrap_or_else(PoisonError::into_inner).insert(vif, number);
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    pub fn look(&self, number: usize) -> MutexGuard<'_, Line> {
        self.all[number].look()
    }

    /// Lets `frames` more numbered frames go to the guest.
    pub fn credit(&self, number: usize, frames: u64) {
        self.look(number).credits += frames;
        let _ = rustix::io::write(&self.all[number].bell, &1u64.to_ne_bytes());
    }

    pub fn open(&self, vif: VifId, process: Arc<Domain>) -> Box<dyn Port> {
        let number = self.vifs.lock().unwrap_or_else(PoisonError::into_inner)[&vif];
        self.all[number].look().there = true;
        Box::new(Handle::new(Arc::clone(&self.all[number]), process))
    }
}

/// A process's handle of a line; the process may be killed at each use.
struct Handle {
    behind: Arc<Behind>,
    process: Arc<Domain>,
    /// A descriptor of its own, as each queue of a TAP has: one worker may watch
    /// several.
    bell: OwnedFd,
    counters: Counters,
}

impl Handle {
    fn new(behind: Arc<Behind>, process: Arc<Domain>) -> Self {
        behind.look().handles += 1;
        let bell = rustix::io::dup(&behind.bell).unwrap();
        Self { behind, process, bell, counters: Counters::default() }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.behind.look().handles -= 1;
    }
}

impl Port for Handle {
    fn send(&mut self, frame: &[u8], _: Offload) -> Result<(), SendError> {
        self.process.acts();
        self.behind.look().from_guest.check(frame);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.process.acts();
        Ok(())
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        self.process.acts();
        let mut line = self.behind.look();
        if line.credits == 0 {
            let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
            return Ok(None);
        }
        line.credits -= 1;
        let len = line.to_guest.next_into(buf);
        Ok(Some(FrameMeta { len, offload: Offload::default() }))
    }

    fn readiness(&self) -> Readiness<'_> {
        Readiness::Readable(self.bell.as_fd())
    }

    fn caps(&self) -> PortCaps {
        PortCaps { max_queues: u32::MAX, ..PortCaps::default() }
    }
}

impl PortControl for Handle {
    fn another_queue(&mut self) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(Self::new(Arc::clone(&self.behind), Arc::clone(&self.process))))
    }

    fn set_offloads(&mut self, _: TapOffloads) -> Result<(), PortError> {
        self.process.acts();
        Ok(())
    }

    fn set_link(&mut self, _: bool) -> Result<(), PortError> {
        self.process.acts();
        Ok(())
    }

    fn remove(&mut self) -> Result<(), PortError> {
        self.process.acts();
        self.behind.look().there = false;
        Ok(())
    }
}

impl Probe for Handle {
    fn name(&self) -> &str {
        "line"
    }

    fn report(&self) -> PortReport {
        PortReport::new(self.name(), &self.counters)
    }
}

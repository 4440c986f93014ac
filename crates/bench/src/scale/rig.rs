//! A host, a backend with many vifs, and a process that has all guests.

use super::guests;
use crate::probe::time_of;
use crate::rig::{PATIENCE, Part};
use grantway_command::args::{BufferPolicy, WaitModeArg};
use grantway_command::control::{backend_socket, fetch_within};
use grantway_command::error::CommandError;
use grantway_command::footprint::Footprint;
use grantway_command::limits;
use grantway_command::process::Memory;
use grantway_embedded::PortTable;
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time that a set-up that was held still runs before a slice.
const STRIDE: Duration = Duration::from_millis(20);
/// Time without work before the cost of that is measured.
const SETTLE: Duration = Duration::from_millis(300);

/// A set-up that is to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Number of guests, each with a vif.
    pub vifs: u16,
    /// Number of vifs that send.
    pub active: u16,
    /// Number of queues of each vif.
    pub queues: u16,
    /// Policy by which the buffers cross.
    pub policy: BufferPolicy,
    /// Processors: the first is for the backend, the second for the guests. With fewer than two, no
    /// process is pinned.
    pub cpus: Vec<usize>,
}

impl Plan {
    /// Returns the number of event channels of the backend's domain.
    pub fn ports(&self) -> u64 {
        let kind = self.policy.kind();
        let vif = Footprint::new(kind, self.queues.into(), u64::MAX);
        u64::from(self.vifs) * vif.ports()
    }

    fn host(&self, dir: &str) -> Vec<String> {
        let table = match self.ports() <= limits::ports(PortTable::TwoLevel) {
            true => PortTable::TwoLevel,
            false => PortTable::Fifo,
        };
        let ports = table.ports().to_string();
        ["host", "--dir", dir, "--ports", &ports].map(str::to_owned).into()
    }

    fn backend(&self, dir: &str) -> Vec<String> {
        let (queues, policy) = (self.queues.to_string(), self.policy.kind().as_str());
        let mut args = vec!["backend", "--host", dir, "--port", "null", "--queues", &queues];
        args.extend(["--policy", policy, "--workers", "1"]);
        args.extend(["--mode", WaitModeArg::Adaptive.name()]);
        self.pinned(args, 0)
    }

    fn guests(&self, dir: &str) -> Vec<String> {
        let (vifs, active) = (self.vifs.to_string(), self.active.to_string());
        let (queues, policy) = (self.queues.to_string(), self.policy.kind().as_str());
        let mut args = vec!["bench", "guests", "--host", dir, "--vifs", &vifs];
        args.extend(["--active", &active, "--queues", &queues, "--policy", policy]);
        self.pinned(args, 1)
    }

    /// Returns the arguments, with an option for the processor of this place if there are two.
    fn pinned(&self, args: Vec<&str>, place: usize) -> Vec<String> {
        let mut args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        if let [first, second, ..] = self.cpus[..] {
            args.extend(["--cpu".to_owned(), [first, second][place].to_string()]);
        }
        args
    }
}

/// The running set-up.
pub struct Rig {
    // Fields are in the order in which they are to end.
    guests: Part,
    backend: Part,
    _host: Part,
    dir: TempDir,
    /// Memory of the backend before the first vif.
    before: Memory,
}

impl Rig {
    /// Starts all parts, waits until packets flow, and then holds the parts still.
    ///
    /// # Errors
    ///
    /// A part did not get ready; the error has its own words.
    pub fn start(plan: &Plan) -> Result<Self, CommandError> {
        let dir = tempfile::Builder::new().prefix("grantway-").tempdir().map_err(|e| {
            CommandError::Failed(format!(
                "cannot create the directory of the host: \
                                                       {e}"
            ))
        })?;
        let path = dir.path().to_string_lossy().into_owned();
        let host = Part::start("host", &plan.host(&path))?;
        let backend = Part::start("backend", &plan.backend(&path))?;
        let before = Memory::of(backend.id());
        let guests = Part::start("guests", &plan.guests(&path))?;
        let rig = Self { guests, backend, _host: host, dir, before };
        std::thread::sleep(SETTLE);
        rig.pause();
        Ok(rig)
    }

    /// Returns the reports of the guests and of the backend.
    ///
    /// # Errors
    ///
    /// One of them does not answer.
    pub fn reports(&self) -> Result<(Value, Value), CommandError> {
        self.resume();
        let both = (self.guests()?, ask(&backend_socket(self.dir.path(), 0))?);
        self.pause();
        Ok(both)
    }

    fn guests(&self) -> Result<Value, CommandError> {
        ask(&guests::socket(self.dir.path()))
    }

    /// Returns the backend's memory beyond that which it had without a vif.
    pub fn memory(&self) -> Memory {
        Memory::of(self.backend.id()).since(self.before)
    }

    /// Returns the share of a processor that the backend uses during `span` while all guests are
    /// held still, from 0 to 1.
    pub fn idle(&self, span: Duration) -> f64 {
        self.backend.signal(Signal::CONT);
        std::thread::sleep(SETTLE);
        let (start, had) = (Instant::now(), time_of(self.backend.id()));
        std::thread::sleep(span);
        let took = time_of(self.backend.id()).saturating_sub(had);
        let share = took.as_secs_f64() / start.elapsed().as_secs_f64();
        self.backend.signal(Signal::STOP);
        share
    }

    /// Lets the set-up run for a slice, which is extended until a frame was answered. Returns the
    /// frames that were answered per second. All is held still before and after.
    pub fn slice(&self, span: Duration) -> Result<f64, CommandError> {
        self.resume();
        std::thread::sleep(STRIDE);
        let (since, before) = (Instant::now(), self.guests()?);
        loop {
            std::thread::sleep(span);
            let after = self.guests()?;
            let grew = |key: &str| count(&after[key]).saturating_sub(count(&before[key])) as f64;
            if grew("answered") > 0.0 || since.elapsed() > PATIENCE {
                self.pause();
                return Ok(grew("answered") * 1e9 / grew("at_ns"));
            }
        }
    }

    fn resume(&self) {
        self.backend.signal(Signal::CONT);
        self.guests.signal(Signal::CONT);
    }

    /// Holds all but the host still.
    fn pause(&self) {
        self.guests.signal(Signal::STOP);
        self.backend.signal(Signal::STOP);
    }
}

impl Drop for Rig {
    /// Kills the guests, since closing many vifs would take long, and lets the backend go on, since
    /// a process that is held still cannot end.
    fn drop(&mut self) {
        self.guests.signal(Signal::KILL);
        self.backend.signal(Signal::CONT);
    }
}

fn ask(socket: &Path) -> Result<Value, CommandError> {
    fetch_within(socket, PATIENCE)
        .map_err(|e| CommandError::Failed(format!("{}: {e}", socket.display())))
}

/// Returns a number of a report; 0 if it is missing.
pub fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

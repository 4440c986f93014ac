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

/// What runs before a slice of a set-up that was held still.
const STRIDE: Duration = Duration::from_millis(20);
/// How long nothing is done before it is looked at what that costs.
const SETTLE: Duration = Duration::from_millis(300);

/// What is to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Guests, each with a vif.
    pub vifs: u16,
    /// How many of them send.
    pub active: u16,
    /// Queues of each vif.
    pub queues: u16,
    /// How the buffers cross.
    pub policy: BufferPolicy,
    /// Processors: the first is the backend's, the second the guests'. With fewer
    /// nobody is pinned.
    pub cpus: Vec<usize>,
}

impl Plan {
    /// Event channels of the backend's domain.
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

    /// To the processor of this place, where there are two.
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
    // In the order in which they are to end.
    guests: Part,
    backend: Part,
    _host: Part,
    dir: TempDir,
    /// What the backend had in memory before the first vif.
    before: Memory,
}

impl Rig {
    /// Starts everything and waits until packets flow; then holds it still.
    ///
    /// # Errors
    ///
    /// A part did not get ready; its own words say why.
    pub fn start(plan: &Plan) -> Result<Self, CommandError> {
        let dir = tempfile::Builder::new()
            .prefix("grantway-")
            .tempdir()
            .map_err(|e| CommandError::Failed(format!("a folder for the host: {e}")))?;
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

    /// What the guests and the backend tell of themselves.
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

    /// What the backend has in memory by now, beyond what it had without a vif.
    pub fn memory(&self) -> Memory {
        Memory::of(self.backend.id()).since(self.before)
    }

    /// What the backend takes of a processor while all guests are held still, from 0 to
    /// 1, over so long.
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

    /// Frames a second that were answered in a slice, which lasts until one was; it is held
    /// still before and after.
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
    /// Who is held still cannot close; and that many would take long to.
    fn drop(&mut self) {
        self.guests.signal(Signal::KILL);
        self.backend.signal(Signal::CONT);
    }
}

fn ask(socket: &Path) -> Result<Value, CommandError> {
    fetch_within(socket, PATIENCE)
        .map_err(|e| CommandError::Failed(format!("{}: {e}", socket.display())))
}

/// A number of a report; 0 where there is none.
pub fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

//! A whole embedded set-up of child processes: host, backend and guest, joined
//! by one vif, with a generator at one end and a checker at the other.

use crate::control::{backend_socket, fetch, frontend_socket};
use crate::error::CommandError;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a part may take to get ready.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which way the packets go, as seen from the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Guest transmit: generator in the guest, checker behind the backend.
    Tx,
    /// Guest receive: generator behind the backend, checker in the guest.
    Rx,
}

impl Direction {
    /// In words, as tables have it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Tx => "guest transmit",
            Self::Rx => "guest receive",
        }
    }
}

/// One part of the rig; ends with it.
struct Part {
    name: &'static str,
    child: Child,
}

impl Part {
    /// Starts a part of this same program and waits for its `ready`.
    fn start(name: &'static str, args: &[&str]) -> Result<Self, CommandError> {
        let failed = |what: String| CommandError::Failed(format!("{name}: {what}"));
        let exe = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
        let child = Command::new(exe)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env("RUST_LOG", "warn")
            .spawn()
            .map_err(|e| failed(e.to_string()))?;
        let mut part = Self { name, child };
        let mut line = String::new();
        if let Some(out) = part.child.stdout.take() {
            let _ = BufReader::new(out).read_line(&mut line);
        }
        if line.trim() == "ready" { Ok(part) } else { Err(part.obituary()) }
    }

    /// Why it ended, in its own words.
    fn obituary(&mut self) -> CommandError {
        let _ = self.child.kill();
        let mut words = String::new();
        if let Some(mut err) = self.child.stderr.take() {
            let _ = err.read_to_string(&mut words);
        }
        let last = words.lines().last().unwrap_or("it ended without a word").to_string();
        CommandError::Failed(format!("{}: {last}", self.name))
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        let since = Instant::now();
        while self.is_alive() && since.elapsed() < Duration::from_secs(4) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is to run.
pub struct Plan<'a> {
    /// Which way.
    pub direction: Direction,
    /// The generator, as a port spec.
    pub generator: &'a str,
    /// Queues of the vif.
    pub queues: u16,
    /// Processors for backend and guest.
    pub cpus: Option<[usize; 2]>,
}

/// Both ends' reports at about one moment.
pub struct Sample {
    /// When, by this process's clock.
    pub at: Instant,
    /// The backend's.
    pub backend: Value,
    /// The frontend's.
    pub frontend: Value,
}

/// The running set-up.
pub struct Rig {
    // In the order in which they are to end.
    frontend: Part,
    backend: Part,
    _host: Part,
    dir: TempDir,
}

impl Rig {
    /// Starts everything and waits until packets may flow.
    ///
    /// # Errors
    ///
    /// A part did not get ready; its own words say why.
    pub fn start(plan: &Plan<'_>) -> Result<Self, CommandError> {
        let dir = tempfile::Builder::new()
            .prefix("grantway-")
            .tempdir()
            .map_err(|e| CommandError::Failed(format!("a folder for the host: {e}")))?;
        let path = dir.path().to_string_lossy().into_owned();
        let host = Part::start("host", &["host", "--dir", &path])?;
        attach(&path)?;
        let (behind, guest) = match plan.direction {
            Direction::Tx => ("check", plan.generator),
            Direction::Rx => (plan.generator, "check"),
        };
        let [backend_cpu, guest_cpu] =
            plan.cpus.map(|c| c.map(|n| n.to_string())).unwrap_or_default();
        let queues = plan.queues.to_string();
        let mut args =
            vec!["backend", "--host", &path, "--port", behind, "--queues", queues.as_str()];
        if plan.cpus.is_some() {
            args.extend(["--cpu", &backend_cpu]);
        }
        let backend = Part::start("backend", &args)?;
        let mut args =
            vec!["frontend", "--host", &path, "--domain", "1", "--devid", "0", "--port", guest];
        args.extend(["--queues", queues.as_str()]);
        if plan.cpus.is_some() {
            args.extend(["--cpu", &guest_cpu]);
        }
        let frontend = Part::start("frontend", &args)?;
        let mut rig = Self { frontend, backend, _host: host, dir };
        rig.wait_connected()?;
        Ok(rig)
    }

    fn wait_connected(&mut self) -> Result<(), CommandError> {
        let since = Instant::now();
        loop {
            for part in [&mut self.frontend, &mut self.backend] {
                if !part.is_alive() {
                    return Err(part.obituary());
                }
            }
            if self.sample().is_ok_and(|s| s.frontend["connected"] == true) {
                return Ok(());
            }
            if since.elapsed() > PATIENCE {
                return Err(CommandError::Failed(format!(
                    "the vif did not connect within {} s",
                    PATIENCE.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Reads both ends.
    ///
    /// # Errors
    ///
    /// One of them no longer answers.
    pub fn sample(&self) -> Result<Sample, CommandError> {
        let read = |path: &Path| {
            fetch(path).map_err(|e| CommandError::Failed(format!("{}: {e}", path.display())))
        };
        Ok(Sample {
            at: Instant::now(),
            backend: read(&backend_socket(self.dir.path(), 0))?,
            frontend: read(&frontend_socket(self.dir.path(), 1, 0))?,
        })
    }

    /// Holds both ends still, for a probe of the machine without them.
    pub fn pause(&self) {
        self.frontend.signal(Signal::STOP);
        self.backend.signal(Signal::STOP);
    }

    /// Lets them go on.
    pub fn resume(&self) {
        self.backend.signal(Signal::CONT);
        self.frontend.signal(Signal::CONT);
    }
}

fn attach(path: &str) -> Result<(), CommandError> {
    let failed = |what: String| CommandError::Failed(format!("attach: {what}"));
    let exe = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
    let done = Command::new(exe)
        .args(["attach", "--host", path, "--domain", "1", "mac=00:16:3e:00:00:01"])
        .stdin(Stdio::null())
        .output()
        .map_err(|e| failed(e.to_string()))?;
    if done.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&done.stderr).trim().to_string()))
}

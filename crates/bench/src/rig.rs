//! A whole embedded set-up of child processes: host, backend, and a guest or
//! two, with a generator at one end and a checker at the other.

use super::probe::time_of;
use clap::ValueEnum;
use grantway_backend::policy::Policy;
use grantway_command::args::{Api, WaitModeArg};
use grantway_command::control::{backend_socket, fetch_within, frontend_socket};
use grantway_command::error::CommandError;
use grantway_command::program::find;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a part may take to get ready, to answer, or to move a packet: a guard on a
/// machine that has no time for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Which way the packets go, as seen from the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Guest transmit: generator in the guest, checker behind the backend.
    Tx,
    /// Guest receive: generator behind the backend, checker in the guest.
    Rx,
    /// Generator in one guest, checker in another, by the backend's own bridge.
    GuestToGuest,
    /// Generator in the guest, and an echo behind the backend.
    RoundTrip,
}

impl Direction {
    /// Those in which a packet crosses once.
    pub const ONE_WAY: [Self; 3] = [Self::Tx, Self::Rx, Self::GuestToGuest];

    /// As on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// In words, as tables have it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Tx => "guest transmit",
            Self::Rx => "guest receive",
            Self::GuestToGuest => "guest to guest",
            Self::RoundTrip => "round trip",
        }
    }

    /// Whether the backend receives what is measured; else the first guest does.
    pub fn ends_at_backend(self) -> bool {
        self == Self::Tx
    }

    /// What counts the packets that a guest handles, in its report.
    pub fn handled_by(self, guest: usize) -> &'static str {
        match (self, guest) {
            (Self::Rx, _) | (Self::GuestToGuest, 0) => "rx_packets",
            _ => "tx_packets",
        }
    }

    /// Guests that take part.
    pub fn guests(self) -> usize {
        if self == Self::GuestToGuest { 2 } else { 1 }
    }

    /// The backend's port, and those of the guests; `sink` is where one way ends. The
    /// first guest is the one that is measured where two are: it receives, and starts
    /// first. Between guests a checker is the sink: the bridge learns its address.
    pub fn ports(self, generator: &str, sink: &str) -> (String, Vec<String>) {
        match self {
            Self::Tx => (sink.into(), vec![generator.into()]),
            Self::Rx => (generator.into(), vec![sink.into()]),
            Self::RoundTrip => ("echo".into(), vec![generator.into()]),
            Self::GuestToGuest => {
                let [receiver, sender] = [mac(0), mac(1)];
                let checker = format!("check:from={receiver}");
                let generator = format!("{generator},to={receiver},from={sender}");
                ("bridge".into(), vec![checker, generator])
            }
        }
    }
}

/// The address of a guest's vif.
fn mac(guest: usize) -> String {
    format!("00:16:3e:00:00:{:02x}", guest + 1)
}

/// The number of a guest's domain.
fn domain(guest: usize) -> String {
    (guest + 1).to_string()
}

/// One part of the rig; ends with it.
pub struct Part {
    name: &'static str,
    child: Child,
}

impl Part {
    /// Starts a part, a command of `grantway`, and waits for its `ready`.
    pub fn start(name: &'static str, args: &[String]) -> Result<Self, CommandError> {
        let failed = |what: String| CommandError::Failed(format!("{name}: {what}"));
        let exe = find("grantway")?;
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
    pub fn obituary(&mut self) -> CommandError {
        let _ = self.child.kill();
        let mut words = String::new();
        if let Some(mut err) = self.child.stderr.take() {
            let _ = err.read_to_string(&mut words);
        }
        let last = words.lines().last().unwrap_or("it ended without a word").to_string();
        CommandError::Failed(format!("{}: {last}", self.name))
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    pub fn is_alive(&mut self) -> bool {
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
#[derive(Debug, Clone)]
pub struct Plan {
    /// Which way.
    pub direction: Direction,
    /// How the buffers cross.
    pub policy: Policy,
    /// How the ends wait.
    pub mode: WaitModeArg,
    /// How frames cross from and to a frontend's buffers.
    pub api: Api,
    /// The generator, as a port spec.
    pub generator: String,
    /// Where packets end, as a port spec: a checker, or who only counts them.
    pub sink: &'static str,
    /// Queues of each vif.
    pub queues: u16,
    /// Processors: the first is the backend's, the others are the guests'. With
    /// less than two nobody is pinned.
    pub cpus: Vec<usize>,
}

impl Plan {
    /// What a frontend is to wish for: what is not for it to agree to, it calls
    /// copy.
    pub fn wish(&self) -> &'static str {
        match self.policy {
            Policy::Persistent | Policy::Staging => self.policy.as_str(),
            _ => Policy::Copy.as_str(),
        }
    }

    /// The processors, where there are enough of them, as options have them.
    fn pins(&self) -> Vec<String> {
        match &self.cpus[..] {
            [] | [_] => Vec::new(),
            cpus => cpus.iter().map(ToString::to_string).collect(),
        }
    }

    /// The command lines of backend and guest, with DIR for the host's folder.
    pub fn commands(&self) -> [String; 2] {
        let (behind, guests) = self.direction.ports(&self.generator, self.sink);
        let guest = guests.first().map(|port| self.frontend("DIR", 0, port));
        [self.backend("DIR", &behind), guest.unwrap_or_default()]
            .map(|args| format!("grantway {}", args.join(" ")))
    }

    /// How the backend is started.
    fn backend(&self, path: &str, port: &str) -> Vec<String> {
        let (queues, policy) = (self.queues.to_string(), self.policy.as_str());
        let mut args = vec!["backend", "--host", path, "--port", port, "--queues", &queues];
        args.extend(["--policy", policy, "--mode", self.mode.name()]);
        let pins = self.pins();
        if let Some(cpu) = pins.first() {
            args.extend(["--cpu", cpu]);
        }
        args.into_iter().map(str::to_owned).collect()
    }

    /// How a guest's frontend is started.
    fn frontend(&self, path: &str, guest: usize, port: &str) -> Vec<String> {
        let (queues, number) = (self.queues.to_string(), domain(guest));
        let mut args = vec!["frontend", "--host", path, "--domain", &number, "--devid", "0"];
        args.extend(["--port", port, "--queues", &queues]);
        args.extend(["--policy", self.wish(), "--mode", self.mode.name()]);
        args.extend(["--api", self.api.name()]);
        let pins = self.pins();
        if let Some(others) = pins.get(1..).filter(|others| !others.is_empty()) {
            args.extend(["--cpu", &others[guest % others.len()]]);
        }
        args.into_iter().map(str::to_owned).collect()
    }
}

/// All ends' reports at about one moment, each with its own time.
pub struct Sample {
    /// The backend's.
    pub backend: Value,
    /// The guests', the measured one first.
    pub guests: Vec<Value>,
}

impl Sample {
    /// Whether a guest is connected, by the policy that is to be measured, and is
    /// found by the others where it has to be: what went to an address that the
    /// bridge has not learnt would be flooded.
    fn is_ready(&self, plan: &Plan, guest: usize) -> bool {
        let (own, vif) = (&self.guests[guest], &self.backend["vifs"][guest]);
        let silent = vif["stats"]["tx_packets"] == 0;
        let found = plan.direction != Direction::GuestToGuest || !silent;
        // That of staged pages is told once there are some.
        let agreed = vif["policy"] == plan.policy.as_str();
        own["connected"] == true && vif["connected"] == true && agreed && found
    }
}

/// Why it takes so long.
fn late(plan: &Plan, guest: usize, sample: Option<&Sample>) -> CommandError {
    let vif = sample.map(|sample| &sample.backend["vifs"][guest]);
    let (guest, seconds) = (domain(guest), PATIENCE.as_secs());
    CommandError::Failed(match vif {
        Some(vif) if vif["connected"] == true => format!(
            "domain {guest} and the backend agreed on {} within {seconds} s, expected {}; leave \
             that policy out",
            vif["policy"], plan.policy
        ),
        _ => format!("the vif of domain {guest} did not connect within {seconds} s"),
    })
}

/// The running set-up.
pub struct Rig {
    // In the order in which they are to end.
    guests: Vec<Part>,
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
    pub fn start(plan: &Plan) -> Result<Self, CommandError> {
        let dir = tempfile::Builder::new()
            .prefix("grantway-")
            .tempdir()
            .map_err(|e| CommandError::Failed(format!("a folder for the host: {e}")))?;
        let path = dir.path().to_string_lossy().into_owned();
        let host = Part::start("host", &["host", "--dir", &path].map(str::to_owned))?;
        let (behind, ports) = plan.direction.ports(&plan.generator, plan.sink);
        for guest in 0..ports.len() {
            attach(&path, guest)?;
        }
        let backend = Part::start("backend", &plan.backend(&path, &behind))?;
        let mut rig = Self { guests: Vec::new(), backend, _host: host, dir };
        for (guest, port) in ports.iter().enumerate() {
            rig.guests.push(Part::start("frontend", &plan.frontend(&path, guest, port))?);
            rig.wait_ready(plan, guest)?;
        }
        Ok(rig)
    }

    /// Waits until a guest is connected as planned.
    fn wait_ready(&mut self, plan: &Plan, guest: usize) -> Result<(), CommandError> {
        let since = Instant::now();
        loop {
            for part in self.guests.iter_mut().chain([&mut self.backend]) {
                if !part.is_alive() {
                    return Err(part.obituary());
                }
            }
            let sample = self.sample();
            if sample.as_ref().is_ok_and(|sample| sample.is_ready(plan, guest)) {
                return Ok(());
            }
            if since.elapsed() > PATIENCE {
                return Err(late(plan, guest, sample.ok().as_ref()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Reads all ends.
    ///
    /// # Errors
    ///
    /// One of them no longer answers.
    pub fn sample(&self) -> Result<Sample, CommandError> {
        let read = |path: &Path| {
            fetch_within(path, PATIENCE)
                .map_err(|e| CommandError::Failed(format!("{}: {e}", path.display())))
        };
        let dir = self.dir.path();
        // As `domain` numbers them.
        let sockets = (1..).map(|domain| frontend_socket(dir, Some(domain), 0));
        Ok(Sample {
            backend: read(&backend_socket(dir, 0))?,
            guests: sockets
                .take(self.guests.len())
                .map(|socket| read(&socket))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Processor time that the ends had.
    pub fn time(&self) -> Duration {
        let ends = self.guests.iter().chain([&self.backend]);
        ends.map(|end| time_of(end.id())).sum()
    }

    /// Holds all ends still, for a probe of the machine without them.
    pub fn pause(&self) {
        for guest in self.guests.iter().rev() {
            guest.signal(Signal::STOP);
        }
        self.backend.signal(Signal::STOP);
    }

    /// Lets them go on.
    pub fn resume(&self) {
        self.backend.signal(Signal::CONT);
        for guest in &self.guests {
            guest.signal(Signal::CONT);
        }
    }
}

impl Drop for Rig {
    /// Who is held still cannot close.
    fn drop(&mut self) {
        self.resume();
    }
}

/// Attaches a guest's vif.
fn attach(path: &str, guest: usize) -> Result<(), CommandError> {
    let failed = |what: String| CommandError::Failed(format!("attach: {what}"));
    let exe = find("grantway")?;
    let vif = format!("mac={}", mac(guest));
    let done = Command::new(exe)
        .args(["attach", "--host", path, "--domain", &domain(guest), &vif])
        .stdin(Stdio::null())
        .output()
        .map_err(|e| failed(e.to_string()))?;
    if done.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&done.stderr).trim().to_string()))
}

//! An embedded set-up of child processes: host, backend, and one or two guests. A generator is at
//! one end, and a checker at the other.

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

/// Time limit for a part to get ready, to answer, or to move a packet. It only guards against a
/// machine that has no time for the part.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Direction of the packets, as seen from the guest.
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
    /// The directions in which a packet crosses once.
    pub const ONE_WAY: [Self; 3] = [Self::Tx, Self::Rx, Self::GuestToGuest];

    /// Returns the direction as on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns the direction in words, as tables print it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Tx => "guest transmit",
            Self::Rx => "guest receive",
            Self::GuestToGuest => "guest to guest",
            Self::RoundTrip => "round trip",
        }
    }

    /// Returns true if the backend receives the measured packets; otherwise the first guest
    /// receives them.
    pub fn ends_at_backend(self) -> bool {
        self == Self::Tx
    }

    /// Returns the name of the counter, in a guest's report, of the packets that the guest handles.
    pub fn handled_by(self, guest: usize) -> &'static str {
        match (self, guest) {
            (Self::Rx, _) | (Self::GuestToGuest, 0) => "rx_packets",
            _ => "tx_packets",
        }
    }

    /// Returns the number of guests that take part.
    pub fn guests(self) -> usize {
        if self == Self::GuestToGuest { 2 } else { 1 }
    }

    /// Returns the backend's port, and the ports of the guests. `sink` is the port at which one-way
    /// packets end. If there are two guests, the first is measured: it receives, and starts first.
    /// Between guests a checker is the sink, since its frames let the bridge learn its address.
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

/// Returns the address of a guest's vif.
fn mac(guest: usize) -> String {
    format!("00:16:3e:00:00:{:02x}", guest + 1)
}

/// Returns the number of a guest's domain.
fn domain(guest: usize) -> String {
    (guest + 1).to_string()
}

/// One process of the rig, which ends when this is dropped.
pub struct Part {
    name: &'static str,
    child: Child,
}

impl Part {
    /// Starts a part, which is a command of `grantway`, and waits until it prints `ready`.
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

    /// Kills the part. Returns an error with the last line that the part printed.
    pub fn obituary(&mut self) -> CommandError {
        let _ = self.child.kill();
        let mut words = String::new();
        if let Some(mut err) = self.child.stderr.take() {
            let _ = err.read_to_string(&mut words);
        }
        let last = words.lines().last().unwrap_or("it ended without a message").to_string();
        CommandError::Failed(format!("{}: {last}", self.name))
    }

    /// Returns the number of the part's process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends the part a signal.
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

/// A set-up that is to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Direction of the packets.
    pub direction: Direction,
    /// Policy by which the buffers cross.
    pub policy: Policy,
    /// Wait mode of the ends.
    pub mode: WaitModeArg,
    /// Way of frames from and to a frontend's buffers.
    pub api: Api,
    /// The generator, as a port spec.
    pub generator: String,
    /// The port at which packets end, as a port spec: a checker, or a port that only counts them.
    pub sink: &'static str,
    /// Number of queues of each vif.
    pub queues: u16,
    /// Processors: the first is for the backend, the others are for the guests. With less than two,
    /// no process is pinned.
    pub cpus: Vec<usize>,
}

impl Plan {
    /// Returns the policy that a frontend is to ask for. For a policy that needs no agreement of
    /// the frontend, this is copy.
    pub fn wish(&self) -> &'static str {
        match self.policy {
            Policy::Persistent | Policy::Staging => self.policy.as_str(),
            _ => Policy::Copy.as_str(),
        }
    }

    /// Returns the processors as options have them; none if there are less than two.
    fn pins(&self) -> Vec<String> {
        match &self.cpus[..] {
            [] | [_] => Vec::new(),
            cpus => cpus.iter().map(ToString::to_string).collect(),
        }
    }

    /// Returns the command lines of backend and guest, with DIR for the host's folder.
    pub fn commands(&self) -> [String; 2] {
        let (behind, guests) = self.direction.ports(&self.generator, self.sink);
        let guest = guests.first().map(|port| self.frontend("DIR", 0, port));
        [self.backend("DIR", &behind), guest.unwrap_or_default()]
            .map(|args| format!("grantway {}", args.join(" ")))
    }

    /// Returns the arguments of the backend's command.
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

    /// Returns the arguments of the command of a guest's frontend.
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

/// Reports of all ends at about one moment, each with its own time.
pub struct Sample {
    /// The backend's report.
    pub backend: Value,
    /// The guests' reports, the measured guest first.
    pub guests: Vec<Value>,
}

impl Sample {
    /// Returns true if a guest is connected by the policy that is to be measured. Between guests it
    /// must also have sent a packet, so that the bridge has learnt its address. Frames to an
    /// unknown address would be flooded.
    fn is_ready(&self, plan: &Plan, guest: usize) -> bool {
        let (own, vif) = (&self.guests[guest], &self.backend["vifs"][guest]);
        let silent = vif["stats"]["tx_packets"] == 0;
        let found = plan.direction != Direction::GuestToGuest || !silent;
        // The backend reports staging only once there are staged pages.
        let agreed = vif["policy"] == plan.policy.as_str();
        own["connected"] == true && vif["connected"] == true && agreed && found
    }
}

/// Returns the error that says why a guest's vif was not ready in time.
fn late(plan: &Plan, guest: usize, sample: Option<&Sample>) -> CommandError {
    let vif = sample.map(|sample| &sample.backend["vifs"][guest]);
    let (guest, seconds) = (domain(guest), PATIENCE.as_secs());
    CommandError::Failed(match vif {
        Some(vif) if vif["connected"] == true => format!(
            "domain {guest} and the backend agreed on {} within {seconds} s, expected {}; remove \
             that policy",
            vif["policy"], plan.policy
        ),
        _ => format!("the vif of domain {guest} did not connect within {seconds} s"),
    })
}

/// The running set-up.
pub struct Rig {
    // Fields are in the order in which they are to end.
    guests: Vec<Part>,
    backend: Part,
    _host: Part,
    dir: TempDir,
}

impl Rig {
    /// Starts all parts, and waits until packets may flow.
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

    /// Reads the reports of all ends.
    ///
    /// # Errors
    ///
    /// An end no longer answers.
    pub fn sample(&self) -> Result<Sample, CommandError> {
        let read = |path: &Path| {
            fetch_within(path, PATIENCE)
                .map_err(|e| CommandError::Failed(format!("{}: {e}", path.display())))
        };
        let dir = self.dir.path();
        // Guests have the numbers that `domain` gives them.
        let sockets = (1..).map(|domain| frontend_socket(dir, Some(domain), 0));
        Ok(Sample {
            backend: read(&backend_socket(dir, 0))?,
            guests: sockets
                .take(self.guests.len())
                .map(|socket| read(&socket))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Returns the processor time that the ends had.
    pub fn time(&self) -> Duration {
        let ends = self.guests.iter().chain([&self.backend]);
        ends.map(|end| time_of(end.id())).sum()
    }

    /// Holds all ends still, so that the machine can be probed without them.
    pub fn pause(&self) {
        for guest in self.guests.iter().rev() {
            guest.signal(Signal::STOP);
        }
        self.backend.signal(Signal::STOP);
    }

    /// Lets the ends go on.
    pub fn resume(&self) {
        self.backend.signal(Signal::CONT);
        for guest in &self.guests {
            guest.signal(Signal::CONT);
        }
    }
}

impl Drop for Rig {
    /// Lets the ends go on, since a process that is held still cannot end.
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

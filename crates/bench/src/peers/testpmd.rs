//! One testpmd of DPDK: how it is started, what it is told, and what it says.

use crate::namespace::Namespace;
use crate::tools::{Process, Watch};
use grantway_command::error::CommandError;
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The programs that it takes, and the packages they are in.
pub const PROGRAMS: [(&str, &str); 2] = [("dpdk-testpmd", "dpdk-dev"), ("stdbuf", "coreutils")];

/// How long it may take to start, or its link to come up.
const START: Duration = Duration::from_secs(60);
/// How long it may take to answer.
const ANSWER: Duration = Duration::from_secs(60);
/// How long a link is given before it is asked for again.
const AGAIN: Duration = Duration::from_millis(100);

/// What it does with packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends new ones of so many bytes.
    Send(usize),
    /// Counts and forgets them.
    Take,
    /// Sends them back.
    Echo,
    /// Sends them back, and the first one of so many bytes.
    Bounce(usize),
}

impl Role {
    fn options(self) -> Vec<String> {
        let (forward, size) = match self {
            Self::Send(size) => ("txonly", Some(size)),
            Self::Take => ("rxonly", None),
            Self::Echo => ("io", None),
            Self::Bounce(size) => ("io", Some(size)),
        };
        let size = size.map(|size| format!("--txpkts={size}"));
        [format!("--forward-mode={forward}")].into_iter().chain(size).collect()
    }

    fn start(self) -> &'static str {
        match self {
            Self::Bounce(_) => "start tx_first 1",
            _ => "start",
        }
    }
}

/// How one is started.
#[derive(Debug)]
pub struct Plan<'a> {
    /// Its name.
    pub name: &'static str,
    /// Its device.
    pub device: &'a str,
    /// What it does with packets.
    pub role: Role,
    /// How many at a time.
    pub burst: u32,
    /// Its processor.
    pub cpu: usize,
    /// A folder for what it leaves.
    pub folder: &'a Path,
}

impl Plan<'_> {
    /// The command line. Its main thread waits for commands, on the processor of
    /// the one that moves packets: the other is another's.
    pub fn args(&self) -> Vec<String> {
        let Self { name, device, burst, cpu, .. } = self;
        let eal = [
            "dpdk-testpmd".to_owned(),
            format!("--lcores=0@{cpu},1@{cpu}"),
            format!("--file-prefix={name}"),
            format!("--vdev={device}"),
        ];
        let common = ["--no-pci", "--no-telemetry", "--no-huge", "-m", "128"];
        let own = ["--", "-i", "--total-num-mbufs=16384"];
        let mut args = Vec::from(eal);
        args.extend(common.iter().chain(&own).map(|&word| word.to_owned()));
        args.push(format!("--burst={burst}"));
        args.extend(self.role.options());
        args
    }
}

/// One that runs.
pub struct Testpmd {
    process: Process,
    role: Role,
}

impl Testpmd {
    /// Starts it, in a namespace where there is one, and waits for its prompt.
    ///
    /// # Errors
    ///
    /// It ended or was not ready in time, with its last words.
    pub fn start(
        plan: &Plan<'_>,
        namespace: Option<&Namespace>,
        watch: &Watch,
    ) -> Result<Self, CommandError> {
        let folder = plan.folder.join(plan.name);
        std::fs::create_dir(&folder).map_err(CommandError::failed)?;
        let mut command = match namespace {
            Some(namespace) => namespace.command("stdbuf"),
            None => Command::new("stdbuf"),
        };
        // Answers are to come by the line.
        command.arg("-oL").args(plan.args()).env("RUNTIME_DIRECTORY", &folder);
        let name = format!("dpdk-testpmd, {}, {}", plan.name, plan.device);
        let mut process = Process::start_with_prompt(&name, &mut command)?;
        watch.wait(&name, START, || {
            process.check()?;
            Ok(process.said().contains("testpmd> ").then_some(()))
        })?;
        Ok(Self { process, role: plan.role })
    }

    /// Waits until its port is connected.
    ///
    /// # Errors
    ///
    /// It was not in time.
    pub fn wait_link(&mut self, watch: &Watch) -> Result<(), CommandError> {
        let mut asked: Option<Instant> = None;
        watch.wait("dpdk-testpmd: its link", START, || {
            self.process.check()?;
            if asked.is_none_or(|asked| asked.elapsed() > AGAIN) {
                self.process.tell("show port summary 0")?;
                asked = Some(Instant::now());
            }
            Ok(is_up(&self.process.said()).then_some(()))
        })
    }

    /// Has it move packets.
    ///
    /// # Errors
    ///
    /// It ended.
    pub fn go(&mut self) -> Result<(), CommandError> {
        self.process.tell(self.role.start())
    }

    /// How many packets it is to move at a time from now on. It stops for that: a
    /// sender that runs on would send what it has not made.
    ///
    /// # Errors
    ///
    /// It ended.
    pub fn set_burst(&mut self, burst: u32) -> Result<(), CommandError> {
        ["stop", &format!("set burst {burst}"), "start"]
            .iter()
            .try_for_each(|line| self.process.tell(line))
    }

    /// What it says of its port; its rate is that since the last time.
    ///
    /// # Errors
    ///
    /// It ended, or did not answer in time.
    pub fn show(&mut self, watch: &Watch) -> Result<Shown, CommandError> {
        let before = Shown::all(&self.process.said()).len();
        self.process.tell("show port stats 0")?;
        watch.wait("dpdk-testpmd: its answer", ANSWER, || {
            self.process.check()?;
            Ok(Shown::all(&self.process.said()).get(before).copied())
        })
    }

    /// Processor time that it had.
    pub fn time(&self) -> Duration {
        self.process.time()
    }

    /// Holds it still, or lets it go on.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }
}

/// What testpmd says of a port that receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// Packets in all.
    pub packets: u64,
    /// Packets a second, by its own clock, since it was last asked.
    pub rate: u64,
}

impl Shown {
    /// Every answer in what it said, but for one of which the end is missing.
    pub fn all(text: &str) -> Vec<Self> {
        let mut found = Vec::new();
        let (mut open, mut packets, mut rate) = (false, None, None);
        for line in text.lines().map(str::trim) {
            if line.contains(" NIC statistics for port ") {
                (open, packets, rate) = (true, None, None);
            } else if open && !line.is_empty() && line.chars().all(|c| c == '#') {
                found.extend(packets.zip(rate).map(|(packets, rate)| Self { packets, rate }));
                open = false;
            } else if open {
                packets = packets.or(number(line, "RX-packets:"));
                rate = rate.or(number(line, "Rx-pps:"));
            }
        }
        found
    }
}

/// The number behind a word at the beginning of a line.
fn number(line: &str, word: &str) -> Option<u64> {
    line.strip_prefix(word)?.split_whitespace().next()?.parse().ok()
}

/// Whether the last summary of port 0 in what it said has its link up.
fn is_up(text: &str) -> bool {
    let mut rows = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (number, mac) = (words.next()?, words.next()?);
        (number == "0" && mac.split(':').count() == 6).then(|| words.nth(2))?
    });
    rows.next_back() == Some("up")
}

#[cfg(test)]
mod tests;

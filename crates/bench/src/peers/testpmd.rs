//! One testpmd of DPDK: its start, its commands, and its answers.

use super::end::{End, Plan, Role, Shown};
use crate::namespace::Namespace;
use crate::tools::{Process, Watch};
use grantway_command::error::CommandError;
use rustix::process::Signal;
use std::process::Command;
use std::time::{Duration, Instant};

/// The programs that testpmd needs, and their packages.
pub const PROGRAMS: [(&str, &str); 2] = [("dpdk-testpmd", "dpdk-dev"), ("stdbuf", "coreutils")];

/// Time limit for testpmd to start, or for its link to come up.
const START: Duration = Duration::from_secs(60);
/// Time limit for an answer.
const ANSWER: Duration = Duration::from_secs(60);
/// Time after which testpmd is asked again for the state of its link.
const AGAIN: Duration = Duration::from_millis(100);

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

impl Plan<'_> {
    /// Returns the command line. The main thread, which waits for commands, shares the processor of
    /// the thread that moves packets: the other processor belongs to the other testpmd.
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

/// A running testpmd.
pub struct Testpmd {
    process: Process,
    role: Role,
}

impl Testpmd {
    /// Starts testpmd, in a namespace if one is given, and waits for its prompt.
    ///
    /// # Errors
    ///
    /// The process ended, or was not ready in time; the error has its last words.
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
        // Output is flushed after each line, so that answers come at once.
        command.arg("-oL").args(plan.args()).env("RUNTIME_DIRECTORY", &folder);
        let name = format!("dpdk-testpmd, {}, {}", plan.name, plan.device);
        let mut process = Process::start_with_prompt(&name, &mut command)?;
        watch.wait(&name, START, || {
            process.check()?;
            Ok(process.said().contains("testpmd> ").then_some(()))
        })?;
        Ok(Self { process, role: plan.role })
    }
}

impl End for Testpmd {
    fn wait_link(&mut self, watch: &Watch) -> Result<(), CommandError> {
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

    fn go(&mut self) -> Result<(), CommandError> {
        self.process.tell(self.role.start())
    }

    /// Stops the work for that, since a sender that runs on would send packets that it has not
    /// made.
    fn set_burst(&mut self, burst: u32) -> Result<(), CommandError> {
        ["stop", &format!("set burst {burst}"), "start"]
            .iter()
            .try_for_each(|line| self.process.tell(line))
    }

    fn show(&mut self, watch: &Watch) -> Result<Shown, CommandError> {
        let before = Shown::all(&self.process.said()).len();
        self.process.tell("show port stats 0")?;
        watch.wait("dpdk-testpmd: its answer", ANSWER, || {
            self.process.check()?;
            Ok(Shown::all(&self.process.said()).get(before).copied())
        })
    }

    fn time(&self) -> Duration {
        self.process.time()
    }

    fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }
}

impl Shown {
    /// Returns all answers in an output. An answer without its end is left out.
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

/// Returns the number behind a word at the beginning of a line.
fn number(line: &str, word: &str) -> Option<u64> {
    line.strip_prefix(word)?.split_whitespace().next()?.parse().ok()
}

/// Returns true if the last summary of port 0 in an output says that the link is up.
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

//! One program of our own that reads and writes a TAP ([`super::tap_end`]): its start, its commands,
//! and its answers.

use super::end::{End, Plan, Role, Shown};
use super::tap_end::Work;
use crate::namespace::Namespace;
use crate::tools::{PROMPT, Process, Watch};
use clap::ValueEnum;
use grantway_command::error::CommandError;
use grantway_command::program::find;
use rustix::process::Signal;
use std::time::Duration;

/// A running program, and its last answer.
pub struct Plain {
    process: Process,
    answered: Answer,
}

/// Number of frames that were received up to a time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Answer {
    frames: u64,
    at_ns: u64,
}

/// Returns the command line of a program on the interface that the plan's device names.
pub fn args(plan: &Plan<'_>) -> Vec<String> {
    let (work, size) = match plan.role {
        Role::Send(size) => (Work::Send, size),
        Role::Take => (Work::Take, 64),
        Role::Echo => (Work::Echo, 64),
        Role::Bounce(size) => (Work::Bounce, size),
    };
    let work = work.to_possible_value().map(|value| value.get_name().to_owned());
    let words = ["bench", "tap-end", "--interface", plan.device, "--work"].map(str::to_owned);
    let numbers = [format!("--size={size}"), format!("--cpu={}", plan.cpu)];
    words.into_iter().chain(work).chain(numbers).collect()
}

impl Plain {
    /// Starts the program in a namespace, and waits until its TAP is open.
    ///
    /// # Errors
    ///
    /// The program ended, or was not ready in time; the error has its last words.
    pub fn start(
        plan: &Plan<'_>,
        namespace: &Namespace,
        watch: &Watch,
    ) -> Result<Self, CommandError> {
        let mut command = namespace.command(find("grantway-bench")?);
        let name = format!("grantway-bench, {}, {}", plan.name, plan.device);
        let mut process = Process::start_with_prompt(&name, command.args(args(plan)))?;
        process.wait_words("ready", watch)?;
        Ok(Self { process, answered: Answer::default() })
    }
}

impl End for Plain {
    /// A TAP is up when it is open.
    fn wait_link(&mut self, _: &Watch) -> Result<(), CommandError> {
        self.process.check()
    }

    fn go(&mut self) -> Result<(), CommandError> {
        self.process.tell("start")
    }

    /// One frame crosses per system call, and there is no other burst.
    fn set_burst(&mut self, _: u32) -> Result<(), CommandError> {
        self.process.check()
    }

    fn show(&mut self, watch: &Watch) -> Result<Shown, CommandError> {
        let before = answers(&self.process.said()).len();
        self.process.tell("show")?;
        let answer = watch.wait("grantway-bench: its answer", PROMPT, || {
            self.process.check()?;
            Ok(answers(&self.process.said()).get(before).copied())
        })?;
        let rate = answer.rate_since(std::mem::replace(&mut self.answered, answer));
        Ok(Shown { packets: answer.frames, rate })
    }

    fn time(&self) -> Duration {
        self.process.time()
    }

    fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }
}

impl Answer {
    /// Returns the frames per second since an earlier answer.
    fn rate_since(self, before: Self) -> u64 {
        let frames = u128::from(self.frames.saturating_sub(before.frames));
        let nanos = u128::from(self.at_ns.saturating_sub(before.at_ns)).max(1);
        u64::try_from(frames * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
    }
}

/// Returns all answers in an output. A line without its end is left out.
fn answers(text: &str) -> Vec<Answer> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let answer = |line: &str| {
        let (frames, at_ns) = line.strip_prefix("received ")?.split_once(" at ")?;
        Some(Answer { frames: frames.parse().ok()?, at_ns: at_ns.parse().ok()? })
    };
    whole.lines().filter_map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn an_answer_without_its_end_is_left_out() {
        let text = "ready\nreceived 7 at 100\nreceived 12 at 30";
        let first = Answer { frames: 7, at_ns: 100 };
        assert_eq!(answers(text), [first]);
        let both = [first, Answer { frames: 12, at_ns: 300 }];
        assert_eq!(answers(&format!("{text}0\n")), both);
        assert!(answers("received").is_empty());
    }

    #[test]
    fn a_rate_is_that_since_the_last_answer() {
        let before = Answer { frames: 1000, at_ns: 5_000_000_000 };
        let after = Answer { frames: 51_000, at_ns: 5_100_000_000 };
        assert_eq!(after.rate_since(before), 500_000);
        assert_eq!(before.rate_since(before), 0);
    }

    #[test]
    fn the_end_that_sends_has_the_size() {
        let plan = |role| Plan {
            name: "guest",
            device: "gwf1",
            role,
            burst: 1,
            cpu: 1,
            folder: Path::new("/"),
        };
        let line = |role| args(&plan(role)).join(" ");
        assert_eq!(
            line(Role::Bounce(256)),
            "bench tap-end --interface gwf1 --work bounce --size=256 --cpu=1"
        );
        assert!(line(Role::Take).contains("--work take"));
    }
}

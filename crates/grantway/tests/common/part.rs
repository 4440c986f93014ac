//! One running process of a set-up.

use super::{PROMPT, try_wait_for, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A process, its outputs read as they come. Killed when dropped; while a
/// test panics, it shows what it had said.
pub struct Part {
    name: String,
    child: Child,
    lines: Receiver<String>,
    said: Arc<Mutex<String>>,
    listener: JoinHandle<()>,
    ended: Option<ExitStatus>,
}

impl Part {
    /// Starts a process.
    pub fn spawn(name: &str, mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{name}: {command:?}: {e}"));
        let (sender, lines) = channel();
        let out = child.stdout.take().expect("a pipe");
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // Nobody reads on once what was waited for came.
                let _ = sender.send(line);
            }
        });
        let said = Arc::<Mutex<String>>::default();
        let mut err = child.stderr.take().expect("a pipe");
        let heard = Arc::clone(&said);
        let listener = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = err.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
                heard.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        Self { name: name.to_owned(), child, lines, said, listener, ended: None }
    }

    /// Starts a process and waits until it says `ready`.
    pub fn start(name: &str, command: Command) -> Self {
        let mut part = Self::spawn(name, command);
        part.wait_line("ready", |line| line == "ready");
        part
    }

    /// Waits for a line on its standard output, and gives it.
    pub fn wait_line(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PROMPT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if wanted(line.trim()) => return line,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{}: not {what} within {PROMPT:?}", self.name)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.wait_end(PROMPT);
                    panic!("{}: ended ({status}) before it was {what}", self.name)
                }
            }
        }
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the process's standard error so far.
    pub fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets what it said so far.
    pub fn hush(&self) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Checks how its last line begins, and what it names.
    pub fn check_last_line(&self, start: &str, words: &str) {
        let said = self.said();
        let last = said.lines().last().unwrap_or_default();
        assert!(last.starts_with(start) && last.contains(words), "{}: {said}", self.name);
    }

    /// Waits until its standard error holds some words.
    pub fn wait_said(&self, words: &str, within: Duration) {
        wait_for(&format!("{} to say {words:?}", self.name), within, || {
            self.said().contains(words).then_some(())
        });
    }

    /// Returns true if the process runs.
    pub fn is_alive(&mut self) -> bool {
        self.try_ended().is_none()
    }

    fn try_ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("a child to wait for");
        }
        self.ended
    }

    /// Waits for its end, which must come within the bound.
    pub fn wait_end(&mut self, within: Duration) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        let status = wait_for(&what, within, || self.try_ended());
        // Its last words are read by a thread. (A child of its own may hold the
        // pipe open; then they are not waited for.)
        let _ = try_wait_for(PROMPT, || self.listener.is_finished().then_some(()));
        status
    }

    /// Ends it without a warning, and waits for that.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait_end(PROMPT);
    }

    /// Asks it to end, as a service manager does, and waits until it has, in
    /// order.
    pub fn terminate(&mut self) {
        self.end_by(Signal::TERM);
    }

    /// Asks it to end, as a person at a terminal does, and waits until it has.
    pub fn interrupt(&mut self) {
        self.end_by(Signal::INT);
    }

    fn end_by(&mut self, signal: Signal) {
        self.signal(signal);
        let status = self.wait_end(PROMPT);
        assert!(status.success(), "{}: asked to end by {signal:?}: {status}", self.name);
    }

    /// Sends a signal.
    pub fn signal(&mut self, signal: Signal) {
        if self.try_ended().is_none() {
            kill_process(Pid::from_child(&self.child), signal).expect("a signal to a child");
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.try_ended().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            let how = self.ended.map_or("was running".to_owned(), |status| status.to_string());
            eprintln!("--- {} ({how}) had said:\n{}", self.name, self.said().trim_end());
        }
    }
}

//! Programs that are run beside the ends or in their place, and how all of it ends
//! early.

use super::probe::time_of;
use grantway_command::error::CommandError;
use grantway_command::wait::Signals;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// How long something may take that has nothing to wait for.
pub const PROMPT: Duration = Duration::from_secs(60);
/// How often something that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// How long a process may take to end when it is asked to.
const FAREWELL: Duration = Duration::from_secs(4);

/// Whether somebody asked us to end.
pub struct Watch {
    signals: Signals,
    came: Cell<bool>,
}

impl Watch {
    /// From now on signals do not end the process: what it made is to be taken
    /// away first.
    ///
    /// # Errors
    ///
    /// The system refused.
    pub fn start() -> Result<Self, CommandError> {
        Ok(Self { signals: Signals::take()?, came: Cell::new(false) })
    }

    /// Goes on unless somebody asked.
    ///
    /// # Errors
    ///
    /// Somebody did.
    pub fn check(&self) -> Result<(), CommandError> {
        if self.signals.came().is_some() {
            self.came.set(true);
        }
        match self.came.get() {
            true => Err(CommandError::Failed("interrupted; nothing of it is left".into())),
            false => Ok(()),
        }
    }

    /// Waits until `look` has something.
    ///
    /// # Errors
    ///
    /// It took too long, failed, or somebody asked us to end.
    pub fn wait<T>(
        &self,
        what: &str,
        within: Duration,
        mut look: impl FnMut() -> Result<Option<T>, CommandError>,
    ) -> Result<T, CommandError> {
        let since = Instant::now();
        loop {
            self.check()?;
            if let Some(found) = look()? {
                return Ok(found);
            }
            if since.elapsed() > within {
                return Err(CommandError::Failed(format!(
                    "{what} took longer than {} s",
                    within.as_secs()
                )));
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Checks that namespaces and TAPs can be made here.
///
/// # Errors
///
/// Something is missing; the line says what to do.
pub fn check_rights() -> Result<(), CommandError> {
    let missing = |what: &str| Err(CommandError::Failed(what.to_owned()));
    if !geteuid().is_root() {
        return missing("it makes network namespaces and TAPs; run it as root (sudo)");
    }
    if !Path::new("/dev/net/tun").exists() {
        return missing("/dev/net/tun is not there; modprobe tun");
    }
    Ok(())
}

/// Checks that programs are there, each named with its package.
///
/// # Errors
///
/// One is missing; the line says what to install.
pub fn check_programs(programs: &[(&str, &str)]) -> Result<(), CommandError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |name: &str| std::env::split_paths(&path).any(|at| at.join(name).is_file());
    match programs.iter().find(|(program, _)| !there(program)) {
        None => Ok(()),
        Some((program, package)) => Err(CommandError::Failed(format!(
            "the program {program} is not there; apt install {package}"
        ))),
    }
}

/// A process; ends with this. What it says is in files.
pub struct Process {
    name: String,
    child: Child,
    prompt: Option<ChildStdin>,
    out: File,
    err: File,
}

impl Process {
    /// Starts it, in a group of its own: Ctrl-C is ours to act upon.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(name: &str, command: &mut Command) -> Result<Self, CommandError> {
        Self::spawn(name, command.stdin(Stdio::null()))
    }

    /// The same with a prompt, to which it can be told something. It has nothing to
    /// put in order when it ends.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start_with_prompt(name: &str, command: &mut Command) -> Result<Self, CommandError> {
        Self::spawn(name, command.stdin(Stdio::piped()))
    }

    fn spawn(name: &str, command: &mut Command) -> Result<Self, CommandError> {
        let failed = |e: std::io::Error| CommandError::Failed(format!("{name}: {e}"));
        let (out, its_out) = file().map_err(failed)?;
        let (err, its_err) = file().map_err(failed)?;
        let mut child = command
            .process_group(0)
            .stdout(its_out)
            .stderr(its_err)
            .env("RUST_LOG", "warn")
            .spawn()
            .map_err(failed)?;
        Ok(Self { name: name.to_owned(), prompt: child.stdin.take(), child, out, err })
    }

    /// Writes a line to its prompt.
    ///
    /// # Errors
    ///
    /// It ended, or has no prompt.
    pub fn tell(&mut self, line: &str) -> Result<(), CommandError> {
        let told = self.prompt.as_mut().map(|prompt| writeln!(prompt, "{line}"));
        match told {
            Some(Ok(())) => Ok(()),
            _ => Err(self.obituary()),
        }
    }

    /// Processor time that it had.
    pub fn time(&self) -> Duration {
        time_of(self.child.id())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        // Who has ended misses nothing.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Waits for words on its standard output.
    ///
    /// # Errors
    ///
    /// It ended, or they did not come in time.
    pub fn wait_words(&mut self, words: &str, watch: &Watch) -> Result<(), CommandError> {
        let name = self.name.clone();
        watch.wait(&name, PROMPT, || {
            if self.said().contains(words) {
                return Ok(Some(()));
            }
            self.check()?;
            Ok(None)
        })
    }

    /// Goes on where it runs.
    ///
    /// # Errors
    ///
    /// It ended, with its last words.
    pub fn check(&mut self) -> Result<(), CommandError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(self.obituary()),
        }
    }

    /// Waits until it ends by itself, and gives what it said.
    ///
    /// # Errors
    ///
    /// It did not end well, or not in time.
    pub fn finish(&mut self, within: Duration, watch: &Watch) -> Result<String, CommandError> {
        let name = self.name.clone();
        let status = watch.wait(&name, within, || {
            self.child.try_wait().map_err(|e| CommandError::Failed(format!("{name}: {e}")))
        })?;
        match status.success() {
            true => Ok(self.said()),
            false => Err(self.obituary()),
        }
    }

    /// All that it said on its standard output.
    pub fn said(&mut self) -> String {
        text_of(&mut self.out)
    }

    fn obituary(&mut self) -> CommandError {
        let (err, out) = (text_of(&mut self.err), self.said());
        let words = if err.trim().is_empty() { out } else { err };
        let words: Vec<&str> = words.split_whitespace().collect();
        let words = match words.is_empty() {
            true => "it ended without a word".to_owned(),
            false => words.join(" "),
        };
        // Of a long text the end says why.
        let skipped = words.chars().count().saturating_sub(300);
        let last: String = words.chars().skip(skipped).collect();
        let signal = self.child.try_wait().ok().flatten().and_then(|status| status.signal());
        let signal = signal.map(|signal| format!("ended by signal {signal}: "));
        CommandError::Failed(format!("{}: {}{last}", self.name, signal.unwrap_or_default()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let patient = self.prompt.is_none();
        if patient {
            self.signal(Signal::TERM);
        }
        let since = Instant::now();
        while patient && matches!(self.child.try_wait(), Ok(None)) && since.elapsed() < FAREWELL {
            std::thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file without a name, to read and to write, each with a place of its own.
fn file() -> std::io::Result<(File, File)> {
    let named = tempfile::NamedTempFile::new()?;
    let other = named.reopen()?;
    Ok((named.into_file(), other))
}

fn text_of(file: &mut File) -> String {
    let mut bytes = Vec::new();
    // What cannot be read is nothing that was said.
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs a program that ends by itself, and gives what it said.
///
/// # Errors
///
/// It did not end well, or not in time.
pub fn run(
    program: &str,
    args: &[&str],
    within: Duration,
    watch: &Watch,
) -> Result<String, CommandError> {
    let mut command = Command::new(program);
    command.args(args);
    let words = std::iter::once(program).chain(args.iter().take(4).copied());
    let name = words.collect::<Vec<_>>().join(" ");
    Process::start(&name, &mut command)?.finish(within, watch)
}

//! Programs that are run beside the ends or instead of them, and signals that end a bench early.

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

/// Time limit for a step that has nothing to wait for.
pub const PROMPT: Duration = Duration::from_secs(60);
/// Time between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(10);
/// Time that a process has to end when it is asked to.
const FAREWELL: Duration = Duration::from_secs(4);

/// Signals that ask this process to end.
pub struct Watch {
    signals: Signals,
    came: Cell<bool>,
}

impl Watch {
    /// Takes the signals. From now on signals do not end the process, so that it can first remove
    /// what it made.
    ///
    /// # Errors
    ///
    /// The system refused to give the signals.
    pub fn start() -> Result<Self, CommandError> {
        Ok(Self { signals: Signals::take()?, came: Cell::new(false) })
    }

    /// Returns an error if a signal asked this process to end.
    ///
    /// # Errors
    ///
    /// A signal came, now or before.
    pub fn check(&self) -> Result<(), CommandError> {
        if self.signals.came().is_some() {
            self.came.set(true);
        }
        match self.came.get() {
            true => Err(CommandError::Failed("interrupted; everything was removed".into())),
            false => Ok(()),
        }
    }

    /// Waits until `look` returns something, and returns that.
    ///
    /// # Errors
    ///
    /// The time limit `within` passed, `look` failed, or a signal asked this process to end.
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
/// This process is not root, or `/dev/net/tun` is missing; the error says what to do.
pub fn check_rights() -> Result<(), CommandError> {
    let missing = |what: &str| Err(CommandError::Failed(what.to_owned()));
    if !geteuid().is_root() {
        return missing("this bench creates network namespaces and TAPs; run it as root (sudo)");
    }
    if !Path::new("/dev/net/tun").exists() {
        return missing("/dev/net/tun is missing; modprobe tun");
    }
    Ok(())
}

/// Checks that programs are installed. Each is given with its package.
///
/// # Errors
///
/// A program is missing; the error says what to install.
pub fn check_programs(programs: &[(&str, &str)]) -> Result<(), CommandError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |name: &str| std::env::split_paths(&path).any(|at| at.join(name).is_file());
    match programs.iter().find(|(program, _)| !there(program)) {
        None => Ok(()),
        Some((program, package)) => Err(CommandError::Failed(format!(
            "the program {program} is missing; apt install {package}"
        ))),
    }
}

/// A process, which ends when this is dropped. Its output is in files.
pub struct Process {
    name: String,
    child: Child,
    prompt: Option<ChildStdin>,
    out: File,
    err: File,
}

impl Process {
    /// Starts the process in a group of its own, so that Ctrl-C reaches only us.
    ///
    /// # Errors
    ///
    /// The process cannot be started.
    pub fn start(name: &str, command: &mut Command) -> Result<Self, CommandError> {
        Self::spawn(name, command.stdin(Stdio::null()))
    }

    /// Starts the process as [`Process::start`] does, with a prompt for [`Process::tell`]. When
    /// dropped, such a process is killed at once: it has nothing to clean up.
    ///
    /// # Errors
    ///
    /// The process cannot be started.
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

    /// Writes a line to the prompt of the process.
    ///
    /// # Errors
    ///
    /// The process ended, or has no prompt.
    pub fn tell(&mut self, line: &str) -> Result<(), CommandError> {
        let told = self.prompt.as_mut().map(|prompt| writeln!(prompt, "{line}"));
        match told {
            Some(Ok(())) => Ok(()),
            _ => Err(self.obituary()),
        }
    }

    /// Returns the processor time that the process had.
    pub fn time(&self) -> Duration {
        time_of(self.child.id())
    }

    /// Sends the process a signal.
    pub fn signal(&self, signal: Signal) {
        // A process that has ended needs no signal.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Waits until the process prints `words` on its standard output.
    ///
    /// # Errors
    ///
    /// The process ended, or the words did not come in time.
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

    /// Checks that the process still runs.
    ///
    /// # Errors
    ///
    /// The process ended; the error has its last words.
    pub fn check(&mut self) -> Result<(), CommandError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(self.obituary()),
        }
    }

    /// Waits until the process ends by itself. Returns its standard output.
    ///
    /// # Errors
    ///
    /// The process failed, or did not end in time.
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

    /// Returns all that the process printed on its standard output so far.
    pub fn said(&mut self) -> String {
        text_of(&mut self.out)
    }

    fn obituary(&mut self) -> CommandError {
        let (err, out) = (text_of(&mut self.err), self.said());
        let words = if err.trim().is_empty() { out } else { err };
        let words: Vec<&str> = words.split_whitespace().collect();
        let words = match words.is_empty() {
            true => "it ended without a message".to_owned(),
            false => words.join(" "),
        };
        // A long text says at its end why the process ended.
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

/// Makes a file without a name. Returns it twice, for reading and writing, each with its own
/// position.
fn file() -> std::io::Result<(File, File)> {
    let named = tempfile::NamedTempFile::new()?;
    let other = named.reopen()?;
    Ok((named.into_file(), other))
}

fn text_of(file: &mut File) -> String {
    let mut bytes = Vec::new();
    // Bytes that cannot be read count as no output.
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs a program that ends by itself. Returns its standard output.
///
/// # Errors
///
/// The program failed, or did not end in time.
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

//! Shared parts of the integration tests: parts of a set-up as processes of their own, each with a
//! guard that ends it.
//!
//! - `part`: one running process; `site`: a host with its backend and
//!   frontends; `network`: namespaces and what runs in them; `link`: a vif between
//!   two of them.
//! - `capture`: capture files, written and read without the code under test.
//!
//! No wait is without a bound. When a test fails, every part shows what it had
//! to say on its standard error.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod capture;
pub mod datagrams;
pub mod link;
pub mod network;
pub mod part;
pub mod site;
pub mod stream;

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Nobody: the user that has no rights.
pub const NOBODY: u32 = 65_534;

/// Guards against hanging, and decides nothing else: far longer than anything takes, on
/// any machine.
pub const PROMPT: Duration = Duration::from_secs(600);

/// Variable that makes the command under test wait for others for as long as the tests do.
pub const PATIENCE: (&str, &str) = ("GRANTWAY_PATIENCE", "120");

/// One test at a time: they share two processors, and some measure.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a line past the capture of the test harness, so that figures and
/// skipped tests are seen.
pub fn say(text: impl AsRef<str>) {
    // The line is a courtesy; the test's outcome is what counts.
    let _ = writeln!(std::io::stderr(), "    {}", text.as_ref());
}

/// Returns true if this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A program of this build. Cargo builds those of one package with its tests, and `make test`
/// builds all of them.
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("the path of this test");
    // A test program is in a folder beside it.
    let folder = own.ancestors().nth(2).expect("a folder of programs");
    let path = folder.join(name);
    let built = path.is_file();
    assert!(built, "{} is missing; build it first: cargo build -p {name}", path.display());
    path
}

/// The command under test.
pub fn grantway() -> Command {
    let mut command = Command::new(program("grantway"));
    command.env(PATIENCE.0, PATIENCE.1);
    command
}

/// The command under test with arguments.
pub fn grantway_with<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Command {
    let mut command = grantway();
    command.args(args);
    command
}

/// Waits until `look` has something, and says what was waited for when that
/// takes too long.
pub fn wait_for<T>(what: &str, within: Duration, look: impl FnMut() -> Option<T>) -> T {
    try_wait_for(within, look)
        .unwrap_or_else(|| panic!("waited {within:?} for {what}, and it did not come"))
}

/// Waits until `look` has something, or the time is over.
pub fn try_wait_for<T>(within: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let since = Instant::now();
    loop {
        let found = look();
        if found.is_some() || since.elapsed() > within {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a command to its end, which must come within the bound.
pub fn finish(mut command: Command, within: Duration) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let told = format!("{command:?}");
    let child = command.spawn().unwrap_or_else(|e| panic!("{told}: {e}"));
    let pid = rustix::process::Pid::from_child(&child);
    let (sender, output) = std::sync::mpsc::channel();
    // Reads both pipes at once, so that neither fills and holds the child up.
    let reader = std::thread::spawn(move || {
        let _ = sender.send(child.wait_with_output());
    });
    let came = output.recv_timeout(within);
    if came.is_err() {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let ended = match came {
        Ok(output) => output.unwrap_or_else(|e| panic!("{told}: {e}")),
        Err(_) => {
            let last = output.recv_timeout(PROMPT).ok().and_then(Result::ok);
            let last = last.map(|output| words(&output)).unwrap_or_default();
            panic!("{told}: still running after {within:?}; it had said:\n{last}");
        }
    };
    reader.join().expect("the reader of the pipes");
    ended
}

/// Runs a command that must succeed, and gives its standard output.
pub fn succeed(command: Command, within: Duration) -> String {
    let told = format!("{command:?}");
    let output = finish(command, within);
    assert!(output.status.success(), "{told}: {}\n{}", output.status, words(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs `grantway` with arguments, which must succeed.
pub fn done<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> String {
    succeed(grantway_with(args), PROMPT)
}

/// Runs a command line that cannot be: status 2, and one line that holds `parts`.
pub fn misused(args: &[&str], parts: &[&str]) {
    let output = finish(grantway_with(args), PROMPT);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", words(&output));
    assert!(output.stdout.is_empty(), "{args:?}: {}", words(&output));
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(said.lines().count(), 1, "{args:?}: expected one line: {said}");
    for part in parts {
        assert!(said.contains(part), "{args:?}: no {part:?} in: {said}");
    }
}

/// Both outputs, for a failure's text.
pub fn words(output: &Output) -> String {
    format!(
        "stdout: {}\nstderr: {}",
        String::from_utf8_lossy(&output.stdout).trim_end(),
        String::from_utf8_lossy(&output.stderr).trim_end()
    )
}

/// A copy of the command, and of the programs that it runs, that a user without rights can
/// reach, wherever the build lies, and a folder that is that user's.
pub struct Unprivileged {
    folder: tempfile::TempDir,
}

impl Unprivileged {
    /// Makes both, with these programs beside the command; they go with the value.
    pub fn with(programs: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("gw-nobody-").tempdir().expect("a folder");
        for name in [&["grantway"], programs].concat() {
            grantway_testkit::copy_program(program(name).as_ref(), &folder.path().join(name));
        }
        if is_root() {
            std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("chown");
        }
        Self { folder }
    }

    /// The folder, which the user may write.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// The command, run by a user without rights.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(self.folder.path().join("grantway"));
        command.args(args).current_dir(self.folder.path()).env("TMPDIR", self.folder.path());
        command.env(PATIENCE.0, PATIENCE.1);
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }
}

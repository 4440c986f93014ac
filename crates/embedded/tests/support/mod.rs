//! A host in a folder of its own, and processes to be killed.
#![allow(dead_code)] // Each test file uses a part.

pub mod guard;

use grantway_embedded::{Domain, Host, HostConfig, HostGuard, Role, Tables};
use grantway_hypervisor::DomId;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

#[allow(unused_imports, reason = "each test file uses a part")]
pub use guard::{GUARD, eventually};

pub const BACK: DomId = DomId(0);
pub const FRONT: DomId = DomId(7);

/// A host on a thread, with domain 7 made.
pub struct Fixture {
    pub tools: Arc<Domain>,
    pub guard: HostGuard,
    dir: tempfile::TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        Self::with(HostConfig::default())
    }

    pub fn with(config: HostConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let guard = Host::spawn_with(dir.path(), config).unwrap();
        let tools = Domain::connect(dir.path(), BACK, Role::Service).unwrap();
        assert!(tools.create_domain(FRONT, "front").unwrap());
        Self { tools, guard, dir }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn guest(&self, id: DomId) -> Arc<Domain> {
        if id != BACK {
            self.tools.create_domain(id, if id == FRONT { "front" } else { "another" }).unwrap();
        }
        Domain::connect(self.dir(), id, Role::Guest).unwrap()
    }

    pub fn service(&self) -> Arc<Domain> {
        Domain::connect(self.dir(), BACK, Role::Service).unwrap()
    }

    pub fn tables(&self) -> Tables {
        self.tools.host_tables().unwrap()
    }

    /// Waits until the host's tables are as `good` wants them, and returns them.
    pub fn settles(&self, what: &str, good: impl Fn(&Tables) -> bool) -> Tables {
        let start = Instant::now();
        loop {
            let tables = self.tables();
            if good(&tables) {
                return tables;
            }
            assert!(start.elapsed() < GUARD, "not within {GUARD:?}: {what}: {tables:#?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A process that runs one test function of this very binary, which looks at these variables.
pub struct Process(Child);

impl Process {
    /// Starts `test` and waits until it says `READY`. Returns the words behind.
    pub fn start(test: &str, part: &str, dir: &Path, words: &str) -> (Self, String) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env("GRANTWAY_PART", part)
            .env("GRANTWAY_DIR", dir)
            .env("GRANTWAY_WORDS", words)
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let process = Self(child);
        let (sender, said) = mpsc::channel();
        std::thread::spawn(move || {
            let ready = lines
                .find_map(|line| Some(line.ok()?.split_once("READY")?.1.trim().to_owned()))
                .expect("the process ended before it was ready");
            let _ = sender.send(ready);
            // The thread keeps on reading, so that the process never waits for us.
            lines.for_each(drop);
        });
        let said = said.recv_timeout(GUARD);
        let said = said.unwrap_or_else(|e| panic!("{test}, {part}: no READY: {e}"));
        (process, said)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Kills the process with SIGKILL, and reaps it.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the part, folder and words of a started process; `None` in the test run itself.
pub fn part() -> Option<(String, PathBuf, String)> {
    Some((
        std::env::var("GRANTWAY_PART").ok()?,
        std::env::var_os("GRANTWAY_DIR")?.into(),
        std::env::var("GRANTWAY_WORDS").ok()?,
    ))
}

pub fn ready(words: impl std::fmt::Display) {
    println!("READY {words}");
}

pub fn until_killed() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

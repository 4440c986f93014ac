//! The sandbox of one process.

use crate::capabilities;
use crate::error::SandboxError;
use crate::files::Files;
use crate::filter;
use crate::offer::Landlock;
use libc::c_long;
use rustix::thread::CapabilitySet;
use seccompiler::{BpfProgram, apply_filter, apply_filter_all_threads};
use std::fmt;
use std::sync::Arc;

/// The platform that the backend runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// Real Xen: a copy is a request to a device.
    Xen,
    /// The embedded host: a copy reaches into another process.
    Embedded,
    /// No platform: a helper beside a backend.
    None,
}

impl Host {
    fn reaches(self) -> bool {
        self == Self::Embedded
    }

    /// Returns the capabilities that the process keeps.
    fn process_keeps(self) -> CapabilitySet {
        let makes_taps = CapabilitySet::NET_ADMIN;
        match self {
            Self::Xen => makes_taps,
            Self::Embedded => makes_taps | self.worker_keeps() | CapabilitySet::DAC_OVERRIDE,
            Self::None => CapabilitySet::empty(),
        }
    }

    /// Returns the capabilities that a worker keeps.
    fn worker_keeps(self) -> CapabilitySet {
        match self {
            Self::Xen | Self::None => CapabilitySet::empty(),
            // A process that has fewer capabilities than another may not copy from it
            // without this one.
            Self::Embedded => CapabilitySet::SYS_PTRACE,
        }
    }
}

/// A part of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// No program that is run can get more rights.
    Privileges,
    /// The threads keep only the needed capabilities.
    Capabilities,
    /// No thread runs a program.
    Programs,
    /// Workers open, run and connect nothing.
    Workers,
    /// The control thread opens listed files only.
    Files,
}

impl Part {
    /// Describes the protection while the part holds.
    #[must_use]
    pub fn held(self) -> &'static str {
        match self {
            Self::Privileges => "no new privileges",
            Self::Capabilities => "capabilities given up",
            Self::Programs => "no thread runs programs",
            Self::Workers => "workers open, run and connect nothing",
            Self::Files => "the control thread opens listed files only",
        }
    }

    /// Describes the risk if the part is missing.
    #[must_use]
    pub fn lost(self) -> &'static str {
        match self {
            Self::Privileges => "a program that a thread runs may gain rights",
            Self::Capabilities => "threads keep the capabilities that they were started with",
            Self::Programs => "threads may run programs",
            Self::Workers => "workers may open files and make connections",
            Self::Files => "the control thread may open every file that its user may open",
        }
    }
}

/// A missing part of the sandbox, with the reason.
#[derive(Debug)]
pub struct Missing {
    /// The part.
    pub part: Part,
    /// Reason why the part is missing.
    pub why: SandboxError,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why, self.part.lost())
    }
}

/// The sandbox of a process: the parts in force, and the missing parts.
#[derive(Debug)]
pub struct Sandbox {
    worker: Worker,
    held: Vec<Part>,
    missing: Vec<Missing>,
    landlock: Option<Landlock>,
}

impl Sandbox {
    /// Confines the process: no new privileges, only the needed capabilities, no programs. Call it
    /// before the process starts other threads, since capabilities belong to threads. A part that
    /// the kernel lacks is in [`Sandbox::missing`].
    #[must_use]
    pub fn enter(host: Host) -> Self {
        Self::enter_with(host, &[])
    }

    /// Confines the process as [`Sandbox::enter`] does. Its workers may also make the system calls
    /// of `more`.
    #[must_use]
    pub fn enter_with(host: Host, more: &[c_long]) -> Self {
        settle();
        let worker = Worker { host, filters: Arc::default() };
        let (held, missing) = (Vec::new(), Vec::new());
        let mut sandbox = Self { worker, held, missing, landlock: None };
        let privileges = rustix::thread::set_no_new_privs(true);
        let privileges = privileges.map_err(|errno| SandboxError::Privileges(errno.into()));
        sandbox.note(Part::Privileges, privileges);
        sandbox.note(Part::Capabilities, capabilities::keep(host.process_keeps()));
        let installed = filter::process(host.reaches())
            .and_then(|program| Ok(apply_filter_all_threads(&program)?));
        // What the kernel does for the process it does for a thread.
        let filters = match installed.is_ok() {
            true => filter::worker(host.reaches(), more, std::process::id()),
            false => Err(SandboxError::NoFilters),
        };
        sandbox.note(Part::Programs, installed);
        let filters = filters.map(|filters| sandbox.worker.filters = filters.into());
        sandbox.note(Part::Workers, filters);
        sandbox
    }

    /// Returns a handle that confines worker threads.
    #[must_use]
    pub fn worker(&self) -> Worker {
        self.worker.clone()
    }

    /// Confines the calling thread, and the threads that it starts later, to these files.
    /// [`Sandbox::landlock`] returns the result.
    pub fn close(&mut self, files: &Files) {
        match files.enforce() {
            Ok(version) => {
                self.landlock = Some(version);
                self.held.push(Part::Files);
            }
            Err(why) => self.missing.push(Missing { part: Part::Files, why }),
        }
    }

    /// Returns the parts that are in force.
    #[must_use]
    pub fn held(&self) -> &[Part] {
        &self.held
    }

    /// Returns the parts that are missing, with the reasons.
    #[must_use]
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Returns the version of landlock that lists the files of the thread that called
    /// [`Sandbox::close`].
    #[must_use]
    pub fn landlock(&self) -> Option<Landlock> {
        self.landlock
    }

    fn note(&mut self, part: Part, outcome: Result<(), SandboxError>) {
        match outcome {
            Ok(()) => self.held.push(part),
            Err(why) => self.missing.push(Missing { part, why }),
        }
    }
}

/// Confinement of a worker of a confined process.
#[derive(Debug, Clone)]
pub struct Worker {
    host: Host,
    /// None where the kernel takes no filter.
    filters: Arc<[BpfProgram]>,
}

impl Worker {
    /// Confines the calling thread.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses a filter that it accepted for the process, or the
    /// capabilities cannot be dropped. The thread must not serve guests then.
    pub fn confine(&self) -> Result<(), SandboxError> {
        capabilities::keep(self.host.worker_keeps())?;
        for filter in self.filters.iter() {
            apply_filter(filter)?;
        }
        Ok(())
    }
}

/// Has libraries look up what they look up once, as they open files for it.
fn settle() {
    // The auxiliary vector, and by it the vDSO: before Linux 6.4 it is a file of /proc.
    let _ = rustix::param::page_size();
    let _ = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
}

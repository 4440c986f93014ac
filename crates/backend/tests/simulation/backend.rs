//! The backend's process: without threads, stepped, stopped and killed.

use super::guest::{readable, survived};
use super::port::Lines;
use super::xen::{Domain, Xen};
use grantway_backend::policy::PolicyLimits;
use grantway_backend::{
    Backend, BackendConfig, Meter, OpenPort, Settings, VifId, VifReport, WaitMode,
};
use grantway_hypervisor::DomId;
use grantway_ports::Member;
use grantway_vector::Secret;
use grantway_vector::path::{self, Nodes};
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

thread_local! {
    /// The time of this thread's conversation.
    static NOW: Cell<Instant> = Cell::new(Instant::now());
}

/// The time passes.
pub fn passes(time: Duration) {
    NOW.set(NOW.get() + time);
}

const SECRET: Secret = Secret(1, 2);

/// Rules that look at connections and let all pass that is in order.
const RULES: &str = "
    flows = true
    [firewall]
    default = \"accept\"
    [[rule]]
    action = \"drop\"
    network = \"ipv4\"
    protocol = \"tcp\"
    state = \"invalid\"
";

fn nodes(by_rules: bool) -> Nodes {
    let (secret, clock) = (SECRET, || 0);
    if !by_rules {
        return Nodes::Bridge { secret, clock };
    }
    Nodes::All(path::Settings { clock, ..path::Settings::new(secret) })
}

/// Settings with which the backend is started each time.
pub struct Setup {
    pub run_folder: PathBuf,
    pub queues: u32,
    pub bridged: bool,
    /// Workers, which take turns.
    pub workers: usize,
    /// True if rules judge the packets.
    pub by_rules: bool,
    pub policy: PolicyLimits,
    pub lines: Arc<Lines>,
}

pub struct Server {
    setup: Setup,
    process: Option<(Arc<Domain>, Backend)>,
    ending: bool,
    /// True if the backend acted on the store outside of a step. An event may have come with
    /// the answer, and then no descriptor shows it.
    due: bool,
    /// Times that it was killed, and ended in order.
    pub killed: u64,
    pub ended: u64,
}

impl Server {
    pub fn new(setup: Setup) -> Self {
        Self { setup, process: None, ending: false, due: false, killed: 0, ended: 0 }
    }

    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Starts a process. If `dies_after` is given, the process dies after this number of calls.
    pub fn start(&mut self, xen: &Xen, dies_after: Option<u64>) {
        let domain = xen.spawn(DomId(0));
        let (lines, process) = (Arc::clone(&self.setup.lines), Arc::clone(&domain));
        let bridged = self.setup.bridged;
        let open: OpenPort = Box::new(move |request| {
            Ok(match bridged {
                true => Box::new(Member::new()),
                false => lines.open(request.vif, Arc::clone(&process)),
            })
        });
        let config = BackendConfig {
            settings: Settings {
                mode: WaitMode::Interrupt,
                queues: self.setup.queues,
                clock: || NOW.get(),
                meter: Meter::counted(|| std::time::Duration::ZERO),
                policy: self.setup.policy,
                ..Settings::default()
            },
            workers: self.setup.workers,
            threads: false,
            nodes: nodes(self.setup.by_rules),
            ..BackendConfig::new(&self.setup.run_folder, SECRET)
        };
        if let Some(calls) = dies_after {
            domain.dies_after(calls);
        }
        let platform = Arc::clone(&domain);
        (self.ending, self.due) = (false, true);
        let by_rules = self.setup.by_rules;
        let start = || {
            let mut backend = Backend::start(platform, config, open).unwrap();
            if by_rules {
                backend.load(RULES, SECRET).unwrap();
            }
            backend
        };
        match survived(start) {
            Some(backend) => self.process = Some((domain, backend)),
            None => self.killed += 1,
        }
    }

    pub fn dies_after(&mut self, calls: u64) {
        if let Some((domain, _)) = &self.process {
            domain.dies_after(calls);
        }
    }

    pub fn dies_at_signal(&mut self) {
        if let Some((domain, _)) = &self.process {
            domain.dies_at_signal();
        }
    }

    pub fn lives(&mut self) {
        if let Some((domain, _)) = &self.process {
            domain.lives();
        }
    }

    /// Begins to end in order.
    pub fn ends(&mut self) {
        (self.ending, self.due) = (true, true);
        self.acts(|backend| backend.shutdown().unwrap());
    }

    /// Ends although some vifs have not closed yet, like the command, which waits a few
    /// seconds.
    pub fn waits_no_longer(&mut self) {
        if self.ending && self.process.take().is_some() {
            self.ended += 1;
        }
    }

    fn acts<T>(&mut self, act: impl FnOnce(&mut Backend) -> T) -> Option<T> {
        let (_, backend) = self.process.as_mut()?;
        let done = survived(|| act(backend));
        if done.is_none() {
            self.process = None;
            self.killed += 1;
        }
        done
    }

    /// Runs a step of the control thread. Returns false if there was nothing to do.
    pub fn step(&mut self) -> bool {
        let Some((_, backend)) = &self.process else { return false };
        if !std::mem::take(&mut self.due) && !readable(backend.descriptors().into_iter()) {
            return false;
        }
        let empty = self.acts(|backend| {
            backend.step().unwrap();
            backend.is_empty()
        });
        if self.ending && empty == Some(true) {
            self.process = None;
            self.ended += 1;
        }
        true
    }

    /// Runs a round of the worker. Returns true if there is more to do.
    pub fn serve(&mut self) -> bool {
        self.acts(|backend| backend.serve().unwrap()).unwrap_or(false)
    }

    pub fn report_of(&self, vif: VifId) -> Option<VifReport> {
        let (_, backend) = self.process.as_ref()?;
        backend.report().find(|report| report.vif == vif)
    }

    pub fn vifs(&self) -> usize {
        self.process.as_ref().map_or(0, |(_, backend)| backend.report().count())
    }
}

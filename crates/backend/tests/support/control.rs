//! The real backend on its control thread, driven as the `grantway backend`
//! command drives it: it sleeps on its descriptors and on nothing else.

use super::faulty::{Faults, Faulty};
use super::log::{Collector, Log};
use super::port::Ports;
use super::{PROMPT, eventually};
use grantway_backend::policy::PolicyLimits;
use grantway_backend::{
    Backend, BackendConfig, Checksums, Meter, OpenPort, Patience, PlugEvent, Settings, VifId,
    VifReport, WaitMode,
};
use grantway_embedded::{Domain, Role};
use grantway_hypervisor::{CounterSnapshot, DomId, Platform};
use grantway_ports::Member;
use grantway_vector::Secret;
use grantway_vector::path::{MakeGraph, Nodes, Settings as NodeSettings};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

type Job = Box<dyn FnOnce(&mut Backend) + Send>;

/// Settings with which a backend is started.
#[derive(Clone)]
pub struct Setup {
    pub dir: PathBuf,
    pub run_folder: PathBuf,
    pub domain: DomId,
    pub mode: WaitMode,
    pub workers: usize,
    /// Planned failures of its platform.
    pub faults: Arc<Faults>,
    pub queues: u32,
    /// True if the vifs are on the backend's own bridge.
    pub bridged: bool,
    /// True if rules judge the packets.
    pub by_rules: bool,
    /// Graphs of the test's own, in place of the backend's.
    pub own: Option<MakeGraph>,
    /// Checksums of vifs without a mark.
    pub checksums: Checksums,
    pub patience: Patience,
    pub policy: PolicyLimits,
    pub hotplug: bool,
    /// The events that the backend raised.
    pub plugged: Arc<Mutex<Vec<(VifId, PlugEvent)>>>,
    pub ports: Arc<Ports>,
    pub time: Time,
}

/// Thread and clock of the backend's workers.
#[derive(Debug, Clone, Copy)]
pub enum Time {
    /// Threads, and the machine's clocks.
    Passes,
    /// No thread: the control thread serves all the while. Time stands still but for
    /// [`Control::passes`].
    Stands,
    /// No thread, and nothing is served but for [`Control::rounds`]. A worker's time is what
    /// this meter says.
    Counted(Meter),
}

thread_local! {
    /// Present time of a control thread, if time stands still.
    static NOW: Cell<Instant> = Cell::new(Instant::now());
}

/// Secret that nobody outside may guess. Tests use a fixed one.
pub const SECRET: Secret = Secret(1, 2);

fn nodes(Setup { by_rules, own, .. }: &Setup) -> Nodes {
    if let Some(make) = own.clone() {
        return Nodes::Own { make, by_rules: *by_rules };
    }
    let (secret, clock) = (SECRET, || 0);
    if !by_rules {
        return Nodes::Bridge { secret, clock };
    }
    Nodes::All(NodeSettings { clock, ..NodeSettings::new(secret) })
}

pub struct Control {
    jobs: Option<Sender<Job>>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<Result<(), String>>>,
    platform: Weak<Domain>,
    pub log: Arc<Log>,
}

impl Control {
    pub fn start(setup: &Setup) -> Self {
        let (jobs, inbox) = channel();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags).unwrap());
        let log = Arc::new(Log::default());
        let platform = connect(&setup.dir, setup.domain);
        let weak = Arc::downgrade(&platform);
        let (collector, bell, setup) =
            (Collector(Arc::clone(&log)), Arc::clone(&wake), setup.clone());
        let (started, ready) = channel();
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                tracing::subscriber::with_default(collector, || {
                    let ports = Arc::clone(&setup.ports);
                    let (bridged, guests) = (setup.bridged, Arc::clone(&ports));
                    let open: OpenPort =
                        Box::new(move |request| match bridged && !guests.is_apart(request.vif) {
                            true => Ok(Box::new(Member::new())),
                            false => guests.open(request),
                        });
                    let plugged = Arc::clone(&setup.plugged);
                    let config = BackendConfig {
                        settings: Settings {
                            mode: setup.mode,
                            queues: setup.queues,
                            patience: setup.patience,
                            policy: setup.policy,
                            checksums: setup.checksums,
                            hotplug: setup.hotplug,
                            on_plug: Arc::new(move |vif, event| {
                                plugged.lock().unwrap().push((vif, event));
                            }),
                            clock: match setup.time {
                                Time::Passes => Instant::now,
                                _ => || NOW.get(),
                            },
                            meter: match setup.time {
                                Time::Passes => Meter::PROCESSOR,
                                Time::Stands => Meter::counted(|| Duration::ZERO),
                                Time::Counted(meter) => meter,
                            },
                            ..Settings::default()
                        },
                        workers: setup.workers,
                        threads: matches!(setup.time, Time::Passes),
                        uplink: setup.bridged.then(|| ports.open_uplink()),
                        nodes: nodes(&setup),
                        ..BackendConfig::new(&setup.run_folder, SECRET)
                    };
                    let platform = Faulty::over(platform, Arc::clone(&setup.faults));
                    let backend = Backend::start(Arc::new(platform), config, open);
                    let backend = backend.map_err(|e| e.to_string())?;
                    let _ = started.send(());
                    run(backend, &inbox, &bell, setup.time)
                })
            })
            .unwrap();
        ready.recv_timeout(PROMPT).expect("the backend did not start");
        Self { jobs: Some(jobs), wake, thread: Some(thread), platform: weak, log }
    }

    /// Does something between two steps, and waits for it.
    #[track_caller]
    pub fn with<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Backend) -> T + Send + 'static,
    ) -> T {
        let (reply, answer) = channel();
        let job: Job = Box::new(move |backend| {
            let _ = reply.send(job(backend));
        });
        let jobs = self.jobs.as_ref().unwrap();
        assert!(jobs.send(job).is_ok(), "the backend has ended");
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        answer.recv_timeout(PROMPT).expect("the backend hangs, or has ended")
    }

    /// Lets time pass, which otherwise stands still, and all work be done that is due then.
    #[track_caller]
    pub fn passes(&self, time: Duration) {
        self.with(move |backend| {
            NOW.set(NOW.get() + time);
            while backend.serve().unwrap() {}
        });
    }

    /// Rounds of the worker that has no thread.
    #[track_caller]
    pub fn rounds(&self, rounds: usize) {
        self.with(move |backend| {
            for _ in 0..rounds {
                let _ = backend.serve().unwrap();
            }
        });
    }

    pub fn report(&self) -> Vec<VifReport> {
        self.with(|backend| backend.report().collect())
    }

    pub fn report_of(&self, vif: VifId) -> Option<VifReport> {
        self.report().into_iter().find(|report| report.vif == vif)
    }

    /// The backend's domain. Nothing of it may be kept when the backend ends.
    pub fn platform(&self) -> Arc<Domain> {
        self.platform.upgrade().expect("the backend has ended")
    }

    /// Returns the backend's counters of hypervisor operations so far.
    pub fn counters(&self) -> CounterSnapshot {
        self.platform().counters()
    }

    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Drops the backend, as a kill between two turns would, and waits until
    /// nothing of its process is left.
    pub fn kill(mut self) -> Result<(), String> {
        let ended = self.end();
        eventually("the end of the backend's domain", || {
            (self.platform.strong_count() == 0).then_some(())
        });
        ended
    }

    /// Waits until the backend has ended by itself, and nothing of its process is left; why.
    #[track_caller]
    pub fn falls(mut self) -> String {
        eventually("the end of the backend", || (!self.is_alive()).then_some(()));
        let ended = self.end();
        eventually("the end of the backend's domain", || {
            (self.platform.strong_count() == 0).then_some(())
        });
        ended.expect_err("the backend went on")
    }

    fn end(&mut self) -> Result<(), String> {
        self.jobs = None;
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Err("the control thread panicked".into()),
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn connect(dir: &Path, domain: DomId) -> Arc<Domain> {
    Domain::connect(dir, domain, Role::Service).unwrap()
}

fn run(
    mut backend: Backend,
    inbox: &Receiver<Job>,
    wake: &OwnedFd,
    time: Time,
) -> Result<(), String> {
    loop {
        backend.step().map_err(|e| e.to_string())?;
        // One job a step, so that a second one comes behind another look.
        match inbox.try_recv() {
            Ok(job) => {
                job(&mut backend);
                continue;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
        let serves = matches!(time, Time::Stands);
        if serves {
            while backend.serve().map_err(|e| e.to_string())? {}
        }
        let [store, bell] = backend.descriptors();
        let mut fds =
            [store, bell, wake.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // A guest's signal wakes a worker, which has no thread here.
        let pause = serves.then_some(Timespec { tv_sec: 0, tv_nsec: 500_000 });
        match poll(&mut fds, pause.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.to_string()),
        }
        let _ = rustix::io::read(wake, &mut [0u8; 8]);
    }
}

//! The backend as a whole. It finds the vifs that the toolstack attaches to its domain.

mod listing;

use self::listing::{Subject, VIFS_TOKEN};
use crate::bell::{drain, eventfd, os, ring};
use crate::control::ctrl::{BURST_WORK, REQUEST_WORK, Served};
use crate::control::refusals::Refusals;
use crate::control::succession::Journals;
use crate::control::surroundings::{OpenPort, Surroundings};
use crate::control::vif::{Vif, remove_remains, write_error};
use crate::error::{StartError, VifError};
use crate::ids::MAX_QUEUES;
use crate::ids::VifId;
use crate::policy::{Budget, Policy};
use crate::state::checksums::Checksums;
use crate::state::stats::VifStatsSnapshot;
use crate::state::trace::{Trace, TraceReader};
use crate::turn::lists::GraphReport;
use crate::turn::queue::QueueReport;
use crate::worker::{Beside, Notice, Service, Settings, Teller, WorkerReport, Workers};
use grantway_hypervisor::{
    CounterSnapshot, Error as PlatformError, EventChannels, Platform, Store,
};
use grantway_ports::{Port, PortReport, uptime};
use grantway_vector::Secret;
use grantway_vector::path::Nodes;
use grantway_vector::rules::TextFault;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tracing::warn;

/// Configuration of a backend.
pub struct BackendConfig {
    /// Settings that the control thread and the workers read.
    pub settings: Settings,
    /// Number of workers that move packets; 0 means 1.
    pub workers: usize,
    /// True if each worker has a thread. Otherwise the caller moves packets with
    /// [`Backend::serve`].
    pub threads: bool,
    /// Port beside the guests on the backend's own bridge, if there is one.
    pub uplink: Option<Box<dyn Port>>,
    /// Nodes for packets on the bridge. With [`Nodes::by_rules`], once rules are loaded
    /// ([`Backend::load`]), all packets go through the nodes.
    pub nodes: Nodes,
    /// Folder of the journals. A successor with the same folder takes over the connections.
    pub run_folder: PathBuf,
}

impl BackendConfig {
    /// Makes a configuration with one worker that has a thread, no uplink, and a bridge without rules
    /// for the vifs that [`Member`](grantway_ports::Member) connects. `run_folder` has the journals of
    /// this domain's backends; a successor must name the same one.
    ///
    /// ```
    /// use grantway_backend::{BackendConfig, Settings};
    /// use grantway_vector::Secret;
    ///
    /// let config = BackendConfig {
    ///     settings: Settings { queues: 4, ..Settings::default() },
    ///     workers: 2,
    ///     ..BackendConfig::new("/run/example", Secret::random()?)
    /// };
    /// assert!(config.threads && config.uplink.is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn new(run_folder: impl Into<PathBuf>, secret: Secret) -> Self {
        Self {
            settings: Settings::default(),
            workers: 1,
            threads: true,
            uplink: None,
            nodes: Nodes::bridge(secret),
            run_folder: run_folder.into(),
        }
    }
}

/// Report of one vif.
#[derive(Debug, Clone)]
pub struct VifReport {
    /// Name of the vif.
    pub vif: VifId,
    /// Report of the vif's port, with its counters.
    pub port: Option<PortReport>,
    /// Queues in service.
    pub queues: Vec<QueueReport>,
    /// True if packets may flow.
    pub connected: bool,
    /// Checksums of the vif's frames, as the toolstack's mark said when it was last read.
    pub checksums: Checksums,
    /// The buffer policy.
    pub policy: Policy,
    /// Number of the guest's pages that are mapped now under that policy, on all queues.
    pub mapped: usize,
    /// Counters of the vif.
    pub stats: VifStatsSnapshot,
}

/// Most store events that one step takes in. Guests may make events as fast as they are read
/// (XSA-349).
const EVENTS_A_STEP: usize = 1024;

/// Work of one step for control rings, in the unit of [`ctrl`](crate::control::ctrl). Vifs with
/// further requests wait for the next step. Meanwhile other vifs connect and leave.
const STEP_WORK: usize = 2 * BURST_WORK;

/// Most work of the control thread in one step: for control requests, and for lists that a killed
/// process had staged. The unit is one page that is mapped or unmapped. Other work counts as the
/// pages that take as long. A burst begins below the work of a step, and its last request begins
/// below the work of a burst.
pub const CONTROL_WORK_MAX: usize = (STEP_WORK - 1) + (BURST_WORK - 1) + REQUEST_WORK;

/// Counters at one moment between the turns of all workers. Either all work for a packet in its
/// turn is counted, or none. On a bridge, a frame may be on its way from one worker to another.
/// Such a frame counts as sent, but not as received.
#[derive(Debug, Clone)]
pub struct Account {
    /// Moment of the counts, as the machine's [`uptime`].
    pub at: Duration,
    /// The counters of every vif.
    pub vifs: BTreeMap<VifId, VifStatsSnapshot>,
    /// Counts of the backend's calls to the hypervisor.
    pub platform: CounterSnapshot,
}

/// The server of all vifs of one domain.
pub struct Backend {
    // The first field, so that workers end before what a vif keeps for packets is dropped.
    workers: Workers,
    platform: Arc<dyn Platform>,
    store: Box<dyn Store>,
    /// The event channels of the control rings.
    events: Box<dyn EventChannels>,
    /// Vifs whose control ring may have requests.
    asked: BTreeSet<VifId>,
    /// The vif that was served last on its control ring.
    last_asked: Option<VifId>,
    /// Most work for control rings that one step has done so far.
    most_work: usize,
    base: String,
    vifs: BTreeMap<VifId, Vif>,
    /// Vifs that could not be opened, or for which an action failed, with the reason.
    refused: Refusals,
    /// The error that ended the uplink.
    lost_uplink: Option<String>,
    /// True once the backend was asked to end. Then no vif is opened any more.
    ending: bool,
    open_port: OpenPort,
    settings: Settings,
    budget: Arc<Budget>,
    journals: Journals,
    trace: Arc<Trace>,
    notices: Receiver<Notice>,
    bell: Arc<OwnedFd>,
    /// Descriptor that is readable in three cases: the bell was rung, a control ring was signalled,
    /// or a refused vif is to be tried again.
    gate: OwnedFd,
}

impl Backend {
    /// Watches `backend/vif` of the platform's domain, opens all vifs found there, and returns the
    /// backend. A connection that a killed process had in service continues, by the journals in the
    /// run folder. No other program may serve the same domain.
    ///
    /// # Errors
    ///
    /// The platform or the store cannot be opened, or a worker cannot start. If a journal belongs
    /// to a newer build, nothing was touched.
    pub fn start(
        platform: Arc<dyn Platform>,
        config: BackendConfig,
        open_port: OpenPort,
    ) -> Result<Self, StartError> {
        // The journals first: one of a newer build must stop the start before anything is touched.
        let journals = Journals::open(&config.run_folder, platform.domain())?;
        let mut store = platform.store()?;
        let base = format!("/local/domain/{}/backend/vif", platform.domain());
        // Everything but the store that makes the control thread look again is behind one
        // descriptor, the gate.
        let (sender, notices) = channel();
        let bell = Arc::new(eventfd()?);
        let events = platform.events()?;
        let refused = Refusals::new(config.settings.clock)?;
        let gate = gate([bell.as_fd(), events.as_fd(), refused.descriptor()])?;
        // The workers start before any vif is taken up: a vif needs them to connect.
        let BackendConfig { mut settings, nodes, uplink, workers, threads, .. } = config;
        settings.queues = settings.queues.clamp(1, MAX_QUEUES);
        let service = Service {
            platform: Arc::clone(&platform),
            settings: settings.clone(),
            teller: Teller { notices: sender, bell: Arc::clone(&bell) },
        };
        let beside = Beside { nodes, uplink };
        let workers = Workers::start((workers, threads), &service, beside)?;
        // A new watch fires at once, which is the first look.
        store.watch(&base, VIFS_TOKEN)?;
        let mut backend = Self {
            budget: Budget::new(settings.policy.all),
            settings,
            journals,
            trace: Arc::default(),
            platform,
            store,
            events,
            asked: BTreeSet::new(),
            last_asked: None,
            most_work: 0,
            base,
            vifs: BTreeMap::new(),
            refused,
            ending: false,
            open_port,
            notices,
            bell,
            gate,
            workers,
            lost_uplink: None,
        };
        // A vif may have been removed while no backend ran. The watch tells nothing of it.
        backend.take_down_the_gone()?;
        Ok(backend)
    }

    /// Releases what the predecessor left of vifs that no longer exist.
    fn take_down_the_gone(&mut self) -> Result<(), PlatformError> {
        for id in self.journals.all() {
            if self.is_attached(id)? == Some(false) {
                self.take_down(id);
            }
        }
        Ok(())
    }

    /// Releases what is left of a vif that no longer exists. If this fails now, it is tried again
    /// later.
    fn take_down(&mut self, id: VifId) {
        match remove_remains(id, &mut self.surroundings()) {
            Ok(()) => self.refused.forget(id),
            Err(error) => self.look_later(id, &error),
        }
    }

    /// Plans another look at a vif, because an action for the vif failed.
    fn look_later(&mut self, id: VifId, error: &VifError) {
        if self.refused.add(id, error) {
            warn!("{id}: {error}; it is tried again");
        }
    }

    fn path(&self, id: VifId) -> String {
        format!("{}/{}/{}", self.base, id.domain, id.devid)
    }

    fn surroundings(&mut self) -> Surroundings<'_> {
        Surroundings {
            platform: &self.platform,
            store: self.store.as_mut(),
            events: self.events.as_mut(),
            workers: &self.workers,
            open_port: &mut self.open_port,
            journals: &self.journals,
            settings: &self.settings,
            budget: &self.budget,
            trace: &self.trace,
        }
    }

    /// Returns the budget: the memory that all vifs may have mapped together, and the memory that
    /// is mapped.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Begins a trace of all vifs, and returns its reader: the head of each packet, and the times
    /// at which rings were full. Returns `None` if another reader exists.
    #[must_use]
    pub fn listen(&self) -> Option<TraceReader> {
        TraceReader::new(&self.trace)
    }

    /// Returns the descriptors to wait for. If one is readable, call [`Backend::step`].
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.store.as_fd(), self.gate.as_fd()]
    }

    /// Takes in all changes since the last step, without waiting.
    ///
    /// # Errors
    ///
    /// The platform, the store or a worker is gone. An error of one vif ends only that vif, and is
    /// logged.
    pub fn step(&mut self) -> Result<(), PlatformError> {
        // The vifs to look at: those that are due for another try, and those that the store tells
        // of.
        let failed = self.take_notices()?;
        let (due, mut all) = self.refused.due();
        let mut changed: BTreeSet<_> = due.into_iter().collect();
        for _ in 0..EVENTS_A_STEP {
            let Some(event) = self.store.next_event()? else { break };
            match self.subject(&event.path, &event.token) {
                Subject::Vif(id) => {
                    changed.insert(id);
                }
                Subject::Guest(domain) => changed.extend(self.vifs_of(domain)?),
                Subject::Any => all = true,
            }
        }
        // An event that names no vif, or a list that the store could not give: every vif is looked
        // at.
        if all {
            changed.extend(self.attached()?);
            self.refused.listed();
            changed.extend(self.vifs.keys().copied().chain(self.refused.all()));
        }
        // Looks come before control rings: a vif connects before it serves requests.
        let mut asked = failed || all || !changed.is_empty();
        for id in changed {
            self.look(id)?;
            // A vif that has just connected serves the requests that its guest made by then.
            self.asked.insert(id);
        }
        asked |= self.serve_control_rings()?;
        if asked {
            // Some events make no descriptor readable: a watch that fired along with an answer of
            // the store, and an event that was left for the next step. A control ring with more
            // requests gets its next turn behind the others. So the step asks for another look.
            ring(self.bell.as_fd());
        }
        Ok(())
    }

    /// Gives a turn to each queue with work, without waiting, if workers have no threads. Returns
    /// true if more work is left. If workers have threads, the call does nothing.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    #[inline]
    pub fn serve(&mut self) -> Result<bool, PlatformError> {
        self.workers.serve(None)
    }

    /// Gives a turn to each queue with work of one worker, by the worker's number, as
    /// [`Backend::serve`] does for all workers.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    #[inline]
    pub fn serve_worker(&mut self, worker: usize) -> Result<bool, PlatformError> {
        self.workers.serve(Some(worker))
    }

    /// Serves a burst of each control ring that may have requests, until the step's work is used
    /// up. Returns true if there was such a ring.
    fn serve_control_rings(&mut self) -> Result<bool, PlatformError> {
        let mut fired = BTreeSet::new();
        self.events.poll(&mut |port| {
            fired.insert(port);
        })?;
        if !fired.is_empty() {
            let is_asked =
                |vif: &Vif| vif.control_event().is_some_and(|port| fired.contains(&port));
            self.asked.extend(self.vifs.iter().filter(|(_, vif)| is_asked(vif)).map(|(&id, _)| id));
        }
        let asked = self.asked.len();
        let mut work = 0;
        for _ in 0..asked {
            let Some(id) = self.next_asked().filter(|_| work < STEP_WORK) else { break };
            self.asked.remove(&id);
            self.last_asked = Some(id);
            let mut served = Served::default();
            self.with_vif(id, |vif, around| {
                served = vif.serve_control(around)?;
                Ok(())
            })?;
            work += served.work;
            if served.more {
                self.asked.insert(id);
            }
        }
        self.most_work = self.most_work.max(work);
        Ok(asked > 0)
    }

    /// Returns the next vif of `asked` in turn: the first one behind the vif that was served last.
    fn next_asked(&self) -> Option<VifId> {
        let behind = self.last_asked.map(|last| (Bound::Excluded(last), Bound::Unbounded));
        let next = behind.and_then(|behind| self.asked.range(behind).next());
        next.or_else(|| self.asked.first()).copied()
    }

    /// Returns the most work of a step so far, and the most work that a step may do. The unit is
    /// that of [`CONTROL_WORK_MAX`].
    #[must_use]
    pub fn control_work(&self) -> (usize, usize) {
        (self.most_work, CONTROL_WORK_MAX)
    }

    /// Takes in the notices of the workers. Returns true if there was any.
    fn take_notices(&mut self) -> Result<bool, PlatformError> {
        drain(self.bell.as_fd());
        let mut any = false;
        while let Ok(notice) = self.notices.try_recv() {
            any = true;
            match notice {
                Notice::Gone(error) => return Err(error),
                Notice::NoUplink(error) => {
                    self.workers.lose_uplink();
                    self.lost_uplink = Some(error.to_string());
                    warn!(
                        "the uplink: {error}; the bridge goes on without it; restart the backend \
                         to open it again"
                    );
                }
                // The platform is gone for all vifs.
                Notice::Failed {
                    error: VifError::Platform(e @ PlatformError::Gone { .. }),
                    ..
                } => return Err(e),
                Notice::Failed { vif, connection, error } => {
                    self.with_vif(vif, |vif, around| vif.failed(connection, &error, around))?;
                }
            }
        }
        Ok(any)
    }

    /// Closes all vifs. The caller calls [`Backend::step`] until [`Backend::is_empty`] returns
    /// true.
    ///
    /// # Errors
    ///
    /// The platform or the store is gone.
    pub fn shutdown(&mut self) -> Result<(), PlatformError> {
        self.ending = true;
        let ids: Vec<VifId> = self.vifs.keys().copied().collect();
        for id in ids {
            self.with_vif(id, Vif::shutdown)?;
        }
        Ok(())
    }

    /// Returns true if no vif is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.vifs.is_empty()
    }

    /// Loads rules, which judge packets from the next list on. No packet is lost. The nodes keep
    /// their stations, connections and rates.
    ///
    /// # Errors
    ///
    /// The fault of an invalid file, with its place. The previous rules stay loaded.
    pub fn load(&mut self, rules: &str, secret: Secret) -> Result<(), TextFault> {
        self.workers.load(rules, secret)
    }

    /// Returns the report of the graph, or `None` if all workers have ended.
    #[must_use]
    pub fn graph(&self) -> Option<GraphReport> {
        self.workers.graph()
    }

    /// Returns the report of each vif.
    pub fn report(&self) -> impl Iterator<Item = VifReport> + '_ {
        self.vifs.iter().map(|(&vif, state)| {
            let (queues, port) = state.inspect(&self.workers);
            VifReport {
                vif,
                port,
                queues,
                connected: state.is_connected(),
                checksums: state.checksums(),
                policy: state.policy(),
                mapped: state.mapped(),
                stats: state.stats(),
            }
        })
    }

    /// Returns all counters at one moment. No packet moves while they are read. This takes about as
    /// long as a turn.
    #[must_use]
    pub fn account(&self) -> Account {
        self.workers.between_turns(|| Account {
            at: uptime(),
            vifs: self.vifs.iter().map(|(&id, vif)| (id, vif.stats())).collect(),
            platform: self.platform.counters(),
        })
    }

    /// Returns the uplink's report, or the error that ended the uplink. Returns `None` if there was
    /// no uplink.
    #[must_use]
    pub fn uplink(&self) -> Option<Result<PortReport, &str>> {
        match &self.lost_uplink {
            Some(error) => Some(Err(error)),
            None => self.workers.uplink().map(Ok),
        }
    }

    /// Returns the report of each worker.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerReport> {
        self.workers.account()
    }

    /// Looks at one vif again: opens the vif, continues its handshake, or forgets it.
    fn look(&mut self, id: VifId) -> Result<(), PlatformError> {
        // A known vif acts on its nodes, and has no refusal left once all of that was done.
        if self.vifs.contains_key(&id) {
            let mut done = false;
            self.with_vif(id, |vif, around| {
                vif.look(around)?;
                done = true;
                Ok(())
            })?;
            if done {
                self.refused.forget(id);
            }
        }
        // A vif that is not known, or that went just now, is opened if it is attached.
        if self.ending || self.vifs.contains_key(&id) {
            return Ok(());
        }
        match self.is_attached(id)? {
            Some(true) => {}
            // The vif may have gone before our first look at it.
            Some(false) => {
                self.take_down(id);
                return Ok(());
            }
            None => return Ok(()),
        }
        let path = self.path(id);
        match Vif::open(id, path, &mut self.surroundings()) {
            Ok((vif, actions)) => {
                self.refused.forget(id);
                if vif.is_gone() {
                    return Ok(());
                }
                self.vifs.insert(id, vif);
                self.with_vif(id, |vif, around| vif.begin(actions, around))
            }
            // The refusal is told once: our own node `error` is a change, which would be looked at
            // again.
            Err(error) if self.refused.add(id, &error) => self.survive(id, error),
            Err(_) => Ok(()),
        }
    }

    /// Calls `act` for one vif, and forgets the vif when it is gone. If an error may pass by
    /// itself, another look is planned.
    fn with_vif(
        &mut self,
        id: VifId,
        act: impl FnOnce(&mut Vif, &mut Surroundings<'_>) -> Result<(), VifError>,
    ) -> Result<(), PlatformError> {
        let Some(mut vif) = self.vifs.remove(&id) else { return Ok(()) };
        let acted = act(&mut vif, &mut self.surroundings());
        let stays = !vif.is_gone();
        if stays {
            self.vifs.insert(id, vif);
        }
        match acted {
            Err(error) if stays && error.passing(true).is_some() => {
                self.look_later(id, &error);
                Ok(())
            }
            acted => acted.or_else(|error| self.survive(id, error)),
        }
    }

    /// Logs the error of one vif, and returns `Ok`. The error is returned only if the platform is
    /// gone.
    fn survive(&mut self, id: VifId, error: VifError) -> Result<(), PlatformError> {
        if let VifError::Platform(e @ PlatformError::Gone { .. }) = error {
            return Err(e);
        }
        warn!("{id}: {error}");
        let path = self.path(id);
        // The vif's folder may be gone, which may be the error itself.
        let _ = write_error(self.store.as_mut(), &path, &error.to_string());
        Ok(())
    }
}

/// Returns one descriptor that is readable when any of `all` is.
fn gate(all: [BorrowedFd<'_>; 3]) -> Result<OwnedFd, PlatformError> {
    let gate = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| os("epoll_create", e))?;
    for fd in all {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&gate, fd, data, epoll::EventFlags::IN).map_err(|e| os("epoll_ctl", e))?;
    }
    Ok(gate)
}

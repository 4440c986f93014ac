//! The backend as a whole: finds the vifs that the toolstack attaches to our
//! domain, and keeps them apart.

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
use crate::policy::{Budget, Policy, PolicyLimits};
use crate::state::guest::Patience;
use crate::state::shared::{Clock, Meter, OnWorker};
use crate::state::stats::VifStatsSnapshot;
use crate::state::trace::{Trace, TraceReader};
use crate::turn::lists::GraphReport;
use crate::turn::queue::QueueReport;
use crate::worker::{Beside, Notice, Service, Teller, WaitMode, WorkerReport, Workers};
use grantway_hypervisor::{
    CounterSnapshot, Error as PlatformError, EventChannels, Platform, Store,
};
use grantway_ports::{Port, PortReport, uptime};
use grantway_vector::rules::RulesError;
use grantway_vector::{Graph, Secret};
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tracing::warn;

/// How a backend serves.
pub struct BackendConfig {
    /// How workers wait.
    pub mode: WaitMode,
    /// How many threads move packets. With none, whoever has the backend does,
    /// by [`Backend::serve`].
    pub workers: usize,
    /// Most queues that a vif may have, 1 to [`MAX_QUEUES`](crate::MAX_QUEUES).
    pub queues: u32,
    /// What is borne of guests that post no pages.
    pub patience: Patience,
    /// Limits on how buffers cross.
    pub policy: PolicyLimits,
    /// A port beside the guests on the backend's own bridge.
    pub uplink: Option<Box<dyn Port>>,
    /// What packets on the bridge go through; by rules, all packets.
    pub graph: Graph,
    /// Whether packets go by rules, once any are loaded ([`Backend::load`]). All queues
    /// belong to one worker then: a rate or a connection is known in one place.
    pub by_rules: bool,
    /// True if TCP segments from guests are merged for receivers that accept large frames, and
    /// large frames from ports are cut for guests that do not.
    pub merge: bool,
    /// Where the journals lie, by which a successor takes over.
    pub run_folder: PathBuf,
    /// Whether hotplug scripts set interfaces up, as under a Xen toolstack.
    pub hotplug: bool,
    /// Tells the time.
    pub clock: Clock,
    /// Tells what a worker used of its processor, by which its queues share it:
    /// [`processor_time`](crate::processor_time), or a count of work.
    pub meter: Meter,
    /// What each worker thread does first, before it serves a queue: it may give up
    /// rights that no turn needs. An error ends the start.
    pub on_worker: OnWorker,
}

/// One vif, as operators see it.
#[derive(Debug, Clone)]
pub struct VifReport {
    /// Which.
    pub vif: VifId,
    /// What it bridges to, and what that has passed.
    pub port: Option<PortReport>,
    /// Its queues in service.
    pub queues: Vec<QueueReport>,
    /// Whether packets may flow.
    pub connected: bool,
    /// The buffer policy.
    pub policy: Policy,
    /// The guest's pages that are mapped now under that policy, on all queues.
    pub mapped: usize,
    /// Its counters.
    pub stats: VifStatsSnapshot,
}

/// Store events that one step takes in: guests may make them as fast as they
/// are read (XSA-349).
const EVENTS_A_STEP: usize = 1024;

/// Work of one step for control rings, as [`ctrl`](crate::control::ctrl) counts it, after which the
/// others wait for the next: meanwhile vifs connect, and go.
const STEP_WORK: usize = 2 * BURST_WORK;

/// Most that the control thread does in one step for control requests, and for lists that a
/// killed process had staged: in pages mapped or unmapped, and what comes to as much.
pub const CONTROL_WORK_MAX: usize = STEP_WORK + REQUEST_WORK;

/// What was counted until one moment between the turns of all workers: a packet is in
/// it with all that was done for it in that turn, or not at all.
#[derive(Debug, Clone)]
pub struct Account {
    /// That moment, as [`uptime`] tells it.
    pub at: Duration,
    /// The counters of every vif.
    pub vifs: BTreeMap<VifId, VifStatsSnapshot>,
    /// What the backend asked of the hypervisor.
    pub platform: CounterSnapshot,
}

/// Serves every vif of one domain.
pub struct Backend {
    // First, so that nobody moves packets any more when what a vif keeps for that goes.
    workers: Workers,
    platform: Arc<dyn Platform>,
    store: Box<dyn Store>,
    /// The event channels of the control rings.
    events: Box<dyn EventChannels>,
    /// Vifs on whose control ring there may be requests.
    asked: BTreeSet<VifId>,
    /// The one of them that was served last.
    last_asked: Option<VifId>,
    /// The most work for them in one step so far.
    most_work: usize,
    base: String,
    vifs: BTreeMap<VifId, Vif>,
    /// Vifs that could not be opened, or of which something could not be done, and why.
    refused: Refusals,
    /// Told to end: no vif is taken up any more.
    ending: bool,
    open_port: OpenPort,
    hotplug: bool,
    queues: u32,
    patience: Patience,
    clock: Clock,
    policy: PolicyLimits,
    budget: Arc<Budget>,
    merge: bool,
    journals: Journals,
    trace: Arc<Trace>,
    notices: Receiver<Notice>,
    bell: Arc<OwnedFd>,
    /// Readable when the bell was rung, a control ring's event channel was signalled, or a
    /// vif that was refused is to be tried again.
    gate: OwnedFd,
}

impl Backend {
    /// Watches `backend/vif` of the platform's domain and takes up every vif
    /// found there. What a killed process left in service goes on, by the
    /// journals in the run folder; nobody else may serve the same domain.
    ///
    /// # Errors
    ///
    /// The platform or the store is not to be had, or a worker cannot start. A journal is
    /// of a build that knows more than this one: nothing was touched then.
    pub fn start(
        platform: Arc<dyn Platform>,
        config: BackendConfig,
        open_port: OpenPort,
    ) -> Result<Self, StartError> {
        let journals = Journals::open(&config.run_folder, platform.domain())?;
        let mut store = platform.store()?;
        let base = format!("/local/domain/{}/backend/vif", platform.domain());
        let (sender, notices) = channel();
        let bell = Arc::new(eventfd()?);
        let events = platform.events()?;
        let refused = Refusals::new(config.clock)?;
        let gate = gate([bell.as_fd(), events.descriptor(), refused.descriptor()])?;
        let service = Service {
            platform: Arc::clone(&platform),
            mode: config.mode,
            clock: config.clock,
            meter: config.meter,
            teller: Teller { notices: sender, bell: Arc::clone(&bell) },
            merge: config.merge,
            on_worker: config.on_worker,
        };
        let BackendConfig { graph, by_rules, uplink, .. } = config;
        let beside = Beside { graph, by_rules, uplink };
        let workers = Workers::start(config.workers, &service, beside)?;
        // Fires at once, which is the first look.
        store.watch(&base, VIFS_TOKEN)?;
        let mut backend = Self {
            hotplug: config.hotplug,
            queues: config.queues.clamp(1, MAX_QUEUES),
            patience: config.patience,
            clock: config.clock,
            policy: config.policy,
            budget: Budget::new(config.policy.all),
            merge: config.merge,
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
        };
        backend.take_down_the_gone()?;
        Ok(backend)
    }

    /// Takes down what our predecessor left of vifs that are no more.
    fn take_down_the_gone(&mut self) -> Result<(), PlatformError> {
        for id in self.journals.all() {
            if self.is_attached(id)? == Some(false) {
                self.take_down(id);
            }
        }
        Ok(())
    }

    /// Takes down what is left of a vif that is no more; again in a moment, where that
    /// cannot be done now.
    fn take_down(&mut self, id: VifId) {
        match remove_remains(id, &mut self.surroundings()) {
            Ok(()) => self.refused.forget(id),
            Err(error) => self.look_later(id, &error),
        }
    }

    /// Has a vif looked at in a moment, as something of it cannot be done now.
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
            hotplug: self.hotplug,
            queues: self.queues,
            patience: self.patience,
            clock: self.clock,
            policy: self.policy,
            budget: &self.budget,
            merge: self.merge,
            trace: &self.trace,
        }
    }

    /// What all vifs may have mapped together, and have.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Listens to what passes on all vifs: the head of each packet, and when rings were
    /// full. None while somebody listens already.
    #[must_use]
    pub fn listen(&self) -> Option<TraceReader> {
        TraceReader::new(&self.trace)
    }

    /// The descriptors to wait on: readable when [`Backend::step`] has work.
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.store.descriptor(), self.gate.as_fd()]
    }

    /// Takes in what changed, without blocking.
    ///
    /// # Errors
    ///
    /// The platform or the store is gone. What one vif does or suffers is no
    /// error of the backend.
    pub fn step(&mut self) -> Result<(), PlatformError> {
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
        if all {
            changed.extend(self.attached()?);
            self.refused.listed();
            changed.extend(self.vifs.keys().copied().chain(self.refused.all()));
        }
        let mut asked = failed || all || !changed.is_empty();
        for id in changed {
            self.look(id)?;
            // A vif that has just connected serves what its guest asked by then.
            self.asked.insert(id);
        }
        asked |= self.serve_control_rings()?;
        if asked {
            // A watch that fired along with an answer of the store is taken in
            // with it, and makes no descriptor readable; and one that was left
            // for the next step does neither; a control ring that has more gets
            // its next turn behind the others: look once more.
            ring(self.bell.as_fd());
        }
        Ok(())
    }

    /// Moves packets where no worker has a thread: a turn for each queue that has
    /// something to do, without blocking; whether there is more to be done at
    /// once. Where workers have threads there is nothing for it to do.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn serve(&mut self) -> Result<bool, PlatformError> {
        self.workers.serve()
    }

    /// Serves a burst of each control ring on which there may be requests; whether
    /// there was any such.
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

    /// Whose turn it is of those that ask: the one behind the last.
    fn next_asked(&self) -> Option<VifId> {
        let behind = self.last_asked.map(|last| (Bound::Excluded(last), Bound::Unbounded));
        let next = behind.and_then(|behind| self.asked.range(behind).next());
        next.or_else(|| self.asked.first()).copied()
    }

    /// What the control thread did in the step that did most, as [`CONTROL_WORK_MAX`] counts
    /// it, which is the most that it may do.
    #[must_use]
    pub fn control_work(&self) -> (usize, usize) {
        (self.most_work, CONTROL_WORK_MAX)
    }

    /// Hears what the workers have to tell; whether that was anything.
    fn take_notices(&mut self) -> Result<bool, PlatformError> {
        drain(self.bell.as_fd());
        let mut any = false;
        while let Ok(notice) = self.notices.try_recv() {
            any = true;
            match notice {
                Notice::Gone(error) => return Err(error),
                Notice::NoUplink(error) => warn!(
                    "the uplink: {error}; the bridge goes on without it; restart the backend \
                     to open it again"
                ),
                // No one vif's affair.
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

    /// Gives every vif up in order; call [`Backend::step`] until
    /// [`Backend::is_empty`].
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

    /// Whether no vif is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.vifs.is_empty()
    }

    /// Loads rules, which judge packets from the next list on. No packet is lost, and nodes keep
    /// their stations, connections and rates.
    ///
    /// # Errors
    ///
    /// The fault of an invalid file, with its place. The previous rules stay loaded.
    pub fn load(&mut self, rules: &str, secret: Secret) -> Result<(), RulesError> {
        self.workers.load(rules, secret)
    }

    /// What went through the graph, where its worker is still there.
    #[must_use]
    pub fn graph(&self) -> Option<GraphReport> {
        self.workers.graph()
    }

    /// Every vif and its counters.
    pub fn report(&self) -> impl Iterator<Item = VifReport> + '_ {
        self.vifs.iter().map(|(&vif, state)| {
            let (queues, port) = state.inspect(&self.workers);
            VifReport {
                vif,
                port,
                queues,
                connected: state.is_connected(),
                policy: state.policy(),
                mapped: state.mapped(),
                stats: state.stats().snapshot(),
            }
        })
    }

    /// All counters at one moment. No packet moves while they are read, which takes
    /// about as long as a turn.
    #[must_use]
    pub fn account(&self) -> Account {
        self.workers.between_turns(|| Account {
            at: uptime(),
            vifs: self.vifs.iter().map(|(&id, vif)| (id, vif.stats().snapshot())).collect(),
            platform: self.platform.counters(),
        })
    }

    /// Every worker.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerReport> {
        self.workers.account()
    }

    /// Looks at one vif anew: opens it, lets it act, or forgets it.
    fn look(&mut self, id: VifId) -> Result<(), PlatformError> {
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
        if self.ending || self.vifs.contains_key(&id) {
            return Ok(());
        }
        match self.is_attached(id)? {
            Some(true) => {}
            // It may have gone before our first look at it.
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
            // Told once: our own telling is a change as well.
            Err(error) if self.refused.add(id, &error) => self.survive(id, error),
            Err(_) => Ok(()),
        }
    }

    /// Lets one vif act, and forgets it when it is gone. What could not be done, and may be
    /// in a moment, is tried again then.
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

    /// What happens to one vif is that vif's affair, unless the platform is
    /// gone.
    fn survive(&mut self, id: VifId, error: VifError) -> Result<(), PlatformError> {
        if let VifError::Platform(e @ PlatformError::Gone { .. }) = error {
            return Err(e);
        }
        warn!("{id}: {error}");
        let path = self.path(id);
        // Its folder may be what is gone.
        let _ = write_error(self.store.as_mut(), &path, &error.to_string());
        Ok(())
    }
}

/// One descriptor for all of them.
fn gate(all: [BorrowedFd<'_>; 3]) -> Result<OwnedFd, PlatformError> {
    let gate = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| os("epoll_create", e))?;
    for fd in all {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&gate, fd, data, epoll::EventFlags::IN).map_err(|e| os("epoll_ctl", e))?;
    }
    Ok(gate)
}

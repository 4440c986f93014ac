//! The backend as a whole. It finds the vifs that the toolstack attaches to its domain.

mod listing;

use self::listing::{Subject, VIFS_TOKEN};
use super::config::BackendConfig;
use super::ctrl::Served;
use super::engine::Engine;
use super::refusals::Refusals;
use super::report::{Account, VifReport};
use super::surroundings::{OpenPort, Surroundings};
use super::vif::{Vif, remove_remains, write_error};
use crate::error::{StartError, VifError};
use crate::ids::VifId;
use crate::policy::Budget;
use crate::state::trace::TraceReader;
use crate::turn::lists::GraphReport;
use crate::worker::WorkerReport;
use grantway_hypervisor::{Error as PlatformError, Platform, Store};
use grantway_ports::{PortReport, uptime};
use grantway_vector::Secret;
use grantway_vector::rules::TextFault;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tracing::warn;

/// Most store events that one step takes in. Guests may make events as fast as they are read
/// (XSA-349).
const EVENTS_A_STEP: usize = 1024;

/// The server of all vifs of one domain.
pub struct Backend {
    // The first field, so that workers end before what a vif keeps for packets is dropped.
    engine: Engine,
    platform: Arc<dyn Platform>,
    store: Box<dyn Store>,
    base: String,
    vifs: BTreeMap<VifId, Vif>,
    /// Vifs that could not be opened, or for which an action failed, with the reason.
    refused: Refusals,
    /// True once the backend was asked to end. Then no vif is opened any more.
    ending: bool,
    open_port: OpenPort,
    /// Descriptor that is readable in three cases: the engine asks for a step, a control ring was
    /// signalled, or a refused vif is to be tried again.
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
        let domain = platform.domain();
        // The workers start before any vif is taken up: a vif needs them to connect.
        let engine = Engine::start(Arc::clone(&platform) as _, domain, config)?;
        let mut store = platform.store()?;
        let base = format!("/local/domain/{domain}/backend/vif");
        // Everything but the store that makes the control thread look again is behind one
        // descriptor, the gate.
        let refused = Refusals::new(engine.settings.clock)?;
        let gate = engine.gate(Some(refused.descriptor()))?;
        // A new watch fires at once, which is the first look.
        store.watch(&base, VIFS_TOKEN)?;
        let vifs = BTreeMap::new();
        let mut backend =
            Self { engine, platform, store, base, vifs, refused, ending: false, open_port, gate };
        // A vif may have been removed while no backend ran. The watch tells nothing of it.
        backend.take_down_the_gone()?;
        Ok(backend)
    }

    /// Releases what the predecessor left of vifs that no longer exist.
    fn take_down_the_gone(&mut self) -> Result<(), PlatformError> {
        for id in self.engine.journals.all() {
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
            engine: &mut self.engine,
            store: self.store.as_mut(),
            open_port: &mut self.open_port,
        }
    }

    /// Returns the budget: the memory that all vifs may have mapped together, and the memory that
    /// is mapped.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.engine.budget
    }

    /// Begins a trace of all vifs, and returns its reader: the head of each packet, and the times
    /// at which rings were full. Returns `None` if another reader exists.
    #[must_use]
    pub fn listen(&self) -> Option<TraceReader> {
        self.engine.listen()
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
            self.engine.asked.add(id);
        }
        asked |= self.serve_control_rings()?;
        if asked {
            // Some events make no descriptor readable: a watch that fired along with an answer of
            // the store, and an event that was left for the next step. A control ring with more
            // requests gets its next turn behind the others. So the step asks for another look.
            self.engine.ring();
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
        self.engine.workers.serve(None)
    }

    /// Gives a turn to each queue with work of one worker, by the worker's number, as
    /// [`Backend::serve`] does for all workers.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    #[inline]
    pub fn serve_worker(&mut self, worker: usize) -> Result<bool, PlatformError> {
        self.engine.workers.serve(Some(worker))
    }

    /// Serves a burst of each control ring that may have requests, until the step's work is used
    /// up. Returns true if there was such a ring.
    fn serve_control_rings(&mut self) -> Result<bool, PlatformError> {
        let channels =
            self.vifs.iter().filter_map(|(&id, vif)| Some((id, vif.link().control_event()?)));
        self.engine.take_signals(channels)?;
        let Some(mut bursts) = self.engine.asked.begin() else { return Ok(false) };
        while let Some(id) = self.engine.asked.next(&mut bursts) {
            let mut served = Served::default();
            self.with_vif(id, |vif, around| {
                served = vif.serve_control(around)?;
                Ok(())
            })?;
            self.engine.asked.served(&mut bursts, id, served);
        }
        Ok(true)
    }

    /// Returns the most work of a step so far, and the most work that a step may do. The unit is
    /// that of [`CONTROL_WORK_MAX`](crate::CONTROL_WORK_MAX).
    #[must_use]
    pub fn control_work(&self) -> (usize, usize) {
        self.engine.control_work()
    }

    /// Takes in the notices of the workers. Returns true if there was any.
    fn take_notices(&mut self) -> Result<bool, PlatformError> {
        let mut failed = Vec::new();
        let any = self.engine.take_notices(&mut failed);
        for (id, connection, error) in failed {
            self.with_vif(id, |vif, around| vif.failed(connection, &error, around))?;
        }
        any
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
        self.engine.workers.load(rules, secret)
    }

    /// Returns the report of the graph, or `None` if all workers have ended.
    #[must_use]
    pub fn graph(&self) -> Option<GraphReport> {
        self.engine.workers.graph()
    }

    /// Returns the report of each vif.
    pub fn report(&self) -> impl Iterator<Item = VifReport> + '_ {
        self.vifs.iter().map(|(&vif, state)| {
            VifReport::of(
                vif,
                state.link(),
                &self.engine.workers,
                state.is_connected(),
                state.checksums(),
            )
        })
    }

    /// Returns all counters at one moment. No packet moves while they are read. This takes about as
    /// long as a turn.
    #[must_use]
    pub fn account(&self) -> Account {
        self.engine.workers.between_turns(|| Account {
            at: uptime(),
            vifs: self.vifs.iter().map(|(&id, vif)| (id, vif.link().stats())).collect(),
            platform: self.platform.counters(),
        })
    }

    /// Returns the uplink's report, or the error that ended the uplink. Returns `None` if there was
    /// no uplink.
    #[must_use]
    pub fn uplink(&self) -> Option<Result<PortReport, &str>> {
        self.engine.uplink()
    }

    /// Returns the report of each worker.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerReport> {
        self.engine.workers.account()
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

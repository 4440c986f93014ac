//! A vif: its place in the store, its state, and its connections.

use crate::VifError;
use crate::control::{Control, HashState, HashWish, StagingRefusal, StagingState};
use crate::negotiate::{BackendFeatures, Wishes, nodes_of, write_nodes};
use crate::nodes::{Change, Nodes};
use crate::queue::Queue;
use crate::refs::QueueRefs;
use crate::runner::{Here, Runner};
use crate::stats::QueueStats;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use grantway_hypervisor::{Error, FrontendPlatform, FrontendStore};
use grantway_netif::Policy;
use grantway_netif::xenbus::frontend::{
    FrontendAction, FrontendActions, FrontendEvent, FrontendMachine, Reopen,
};

/// Most changes of the store that one call takes in. Each change costs a question to the store.
/// Meanwhile the backend may have made the next change (XSA-349).
const CHANGES_A_LOOK: usize = 16;

/// State of a vif, for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VifStatus {
    /// The two ends are negotiating, or wait for each other.
    Waiting,
    /// Packets may flow.
    Connected,
    /// The vif was closed: by a failure, or by a backend that never connected it. Only
    /// [`Vif::restart`] tries again, so that two ends that cannot agree do not retry for ever. A
    /// caller waits before it restarts a vif, and longer after each failure.
    Held,
    /// The device was removed. If the device comes back, the vif is [`VifStatus::Replaced`].
    Gone,
    /// Another device is in the vif's place, perhaps with a backend in another domain: the
    /// toolstack attached the vif anew, or another frontend used it. The vif waits for
    /// [`Vif::renew`].
    Replaced,
    /// The domain was saved and restored. The grants and ports from before are void, and the vif
    /// waits for [`Vif::resume`].
    Restored,
}

/// One vif of this domain. The vif negotiates, and gives the queues of each connection to the
/// [`Runner`] that uses them.
pub struct Vif<R: Runner = Here> {
    platform: Arc<dyn FrontendPlatform>,
    devid: u32,
    nodes: Nodes,
    wishes: Wishes,
    machine: FrontendMachine,
    features: BackendFeatures,
    /// Queues that were published, until the backend has connected, too.
    made: Vec<Queue>,
    /// The control ring, if the backend has one.
    control: Option<Control>,
    /// The last wish for the hash.
    hash: Option<HashWish>,
    pub(crate) runner: R,
    running: bool,
    /// True if the backend reports that its link is up, or reports nothing.
    carrier: bool,
    /// True if the last look at the store ended before all changes were taken in.
    changes_left: bool,
    /// True if the domain was restored since the vif was opened or resumed.
    restored: bool,
    /// True if another device was found in the vif's place.
    replaced: bool,
    /// True if the vif is closed for good.
    ending: bool,
    /// Counters of the queues of ended connections.
    past: QueueStats,
    failure: Option<VifError>,
}

impl Vif {
    /// Opens vif `devid` of the platform's domain and begins to negotiate, whatever state the store
    /// shows. The calling thread runs the queues.
    ///
    /// # Errors
    ///
    /// The errors of [`Vif::open_with`].
    pub fn open(
        platform: Arc<dyn FrontendPlatform>,
        devid: u32,
        wishes: Wishes,
    ) -> Result<Self, VifError> {
        Self::open_with(platform, devid, wishes, Here::default())
    }
}

impl<R: Runner> Vif<R> {
    /// Opens vif `devid` like [`Vif::open`]; `runner` runs its queues.
    ///
    /// # Errors
    ///
    /// [`VifError::NoVif`] if the toolstack attached no such vif; [`VifError::Key`] if its nodes
    /// are not as a toolstack writes them; [`VifError::Platform`].
    pub fn open_with(
        platform: Arc<dyn FrontendPlatform>,
        devid: u32,
        wishes: Wishes,
        runner: R,
    ) -> Result<Self, VifError> {
        let mut nodes = Nodes::open(platform.as_ref(), devid)?;
        let (own, peer) = (nodes.own_state()?, nodes.peer_state()?);
        let (machine, actions) = FrontendMachine::start(own, peer, wishes.reopen);
        let mut vif = Self {
            platform,
            devid,
            nodes,
            wishes,
            machine,
            features: BackendFeatures::default(),
            made: Vec::new(),
            control: None,
            hash: None,
            runner,
            running: false,
            carrier: true,
            changes_left: false,
            restored: false,
            replaced: false,
            ending: false,
            past: QueueStats::default(),
            failure: None,
        };
        vif.carry_out(actions)?;
        Ok(vif)
    }

    /// Continues in a domain that was saved and restored. `platform` is the platform as it is now.
    /// The vif is looked up again, and negotiates with its present backend like a new vif.
    ///
    /// The grants and ports of the earlier connection are void, and their numbers may belong to
    /// others by now. So they are not touched. After each restore, some resources stay in use until
    /// this process ends: the event channels of each queue and of the control ring, and their pages
    /// if the platform cannot take them back ([`grantway_hypervisor::FrontendPlatform::abandon`]).
    ///
    /// # Errors
    ///
    /// The errors of [`Vif::open_with`]. The vif is then of no use until a later call succeeds.
    pub fn resume(&mut self, platform: Arc<dyn FrontendPlatform>) -> Result<(), VifError> {
        self.forget();
        self.platform = platform;
        self.begin()
    }

    /// Continues with the device that is in the vif's place now ([`VifStatus::Replaced`]). The
    /// device is looked up with its backend's domain, and negotiates like a new vif.
    ///
    /// # Errors
    ///
    /// The errors of [`Vif::open_with`]. After [`VifError::NoVif`] the vif is [`VifStatus::Gone`].
    pub fn renew(&mut self) -> Result<(), VifError> {
        drop(self.take_queues());
        self.control = None;
        self.replaced = false;
        self.begin()
    }

    /// Sets how later connections begin, in place of [`Wishes::reopen`]. The setting takes effect
    /// at the next [`Vif::resume`] or [`Vif::renew`].
    pub fn set_reopen(&mut self, reopen: Reopen) {
        self.wishes.reopen = reopen;
    }

    /// Begins with the states that the store has.
    fn begin(&mut self) -> Result<(), VifError> {
        self.nodes = Nodes::open(self.platform.as_ref(), self.devid)?;
        let (own, peer) = (self.nodes.own_state()?, self.nodes.peer_state()?);
        let (machine, actions) = FrontendMachine::start(own, peer, self.wishes.reopen);
        self.machine = machine;
        self.failure = None;
        self.restored = false;
        self.replaced = false;
        self.carrier = true;
        self.carry_out(actions)
    }

    /// Drops grants and event channels without touching them.
    fn forget(&mut self) {
        for queue in self.take_queues() {
            queue.forget();
        }
        if let Some(control) = self.control.take() {
            control.forget();
        }
    }

    /// Takes in changes of the store, 16 at most, and returns the state of the vif. Call this when
    /// the store's descriptor is readable, and again before a wait while [`Vif::has_changes`]
    /// returns true.
    ///
    /// # Errors
    ///
    /// The platform or the store is gone ([`VifError::Platform`]).
    pub fn store_changed(&mut self) -> Result<VifStatus, VifError> {
        self.changes_left = false;
        for _ in 0..CHANGES_A_LOOK {
            match self.nodes.next_change()? {
                Some(Change::Peer(state)) => self.feed(FrontendEvent::Peer(state))?,
                Some(Change::Own(state)) => {
                    let other = self.machine.is_gone() || state != self.machine.shown();
                    self.replaced |= state.is_some() && other && !self.ending;
                    self.feed(FrontendEvent::Own(state))?;
                }
                Some(Change::Replaced) => {
                    self.replaced = !self.ending;
                    self.feed(FrontendEvent::Own(None))?;
                }
                Some(Change::Carrier(up)) => self.carrier = up,
                Some(Change::Restored) => self.restored = true,
                None => return Ok(self.status()),
            }
        }
        self.changes_left = true;
        Ok(self.status())
    }

    /// Returns true if [`Vif::store_changed`] left changes for its next call. The backend may write
    /// faster than one call reads. The store's descriptor may not become readable for these
    /// changes.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.changes_left
    }

    /// Returns the state of the vif.
    #[must_use]
    pub fn status(&self) -> VifStatus {
        if self.restored {
            VifStatus::Restored
        } else if self.replaced {
            VifStatus::Replaced
        } else if self.machine.is_gone() {
            VifStatus::Gone
        } else if self.machine.is_held() {
            VifStatus::Held
        } else if self.running {
            VifStatus::Connected
        } else {
            VifStatus::Waiting
        }
    }

    /// Returns the reason why the vif is held. Each reason is returned once. Returns `None` also if
    /// the backend closed the vif before it connected it.
    pub fn take_failure(&mut self) -> Option<VifError> {
        self.failure.take()
    }

    /// Closes the vif because a queue found a fault of its backend, `error`. Then the vif is
    /// [`VifStatus::Held`], and [`Vif::take_failure`] returns the error.
    ///
    /// # Errors
    ///
    /// The platform or the store is gone. An `error` that is not a fault of the backend is
    /// returned.
    pub fn fail(&mut self, error: VifError) -> Result<(), VifError> {
        match error {
            VifError::Peer { .. } | VifError::Control { .. } => {
                self.failure = Some(error);
                self.feed(FrontendEvent::Fatal)
            }
            gone => Err(gone),
        }
    }

    /// Tries again after [`VifStatus::Held`].
    ///
    /// # Errors
    ///
    /// The platform or the store is gone.
    pub fn restart(&mut self) -> Result<(), VifError> {
        self.feed(FrontendEvent::Restart)
    }

    /// Closes the vif for ever. The backend answers through [`Vif::store_changed`], until the vif
    /// is [`VifStatus::Gone`]. Pages that the backend can still reach go to the platform's deferred
    /// reclaim.
    ///
    /// # Errors
    ///
    /// The platform or the store is gone.
    pub fn shutdown(&mut self) -> Result<(), VifError> {
        self.ending = true;
        self.feed(FrontendEvent::Shutdown)
    }

    /// Returns the store connection, to wait for its descriptor.
    #[must_use]
    pub fn store(&self) -> &dyn FrontendStore {
        self.nodes.store.as_ref()
    }

    /// Returns the runner of the queues.
    #[must_use]
    pub fn runner(&self) -> &R {
        &self.runner
    }

    /// Returns the runner of the queues.
    pub fn runner_mut(&mut self) -> &mut R {
        &mut self.runner
    }

    fn feed(&mut self, event: FrontendEvent) -> Result<(), VifError> {
        // A restored domain's grants and nodes are not ours any more, so no event may touch them.
        if self.restored {
            return Ok(());
        }
        let actions = self.machine.handle(event);
        self.carry_out(actions)
    }

    fn carry_out(&mut self, actions: FrontendActions) -> Result<(), VifError> {
        let mut answer = None;
        for action in actions {
            match action {
                FrontendAction::SetState(state) => self.nodes.show(state)?,
                FrontendAction::Connect => answer = Some(self.connect()?),
                FrontendAction::Ready => {
                    self.running = true;
                    self.runner.start(core::mem::take(&mut self.made));
                    if let (Some(control), Some(wish)) = (&mut self.control, &self.hash) {
                        control.set_hash(Some(wish.clone()))?;
                    }
                    self.stage_all()?;
                }
                // Grants are revoked if the backend let go, and deferred otherwise: the platform
                // looks again at every later release.
                FrontendAction::Disconnect => {
                    drop(self.take_queues());
                    self.control = None;
                }
                FrontendAction::Reclaim | FrontendAction::Stop => {}
            }
        }
        match answer {
            Some(event) => self.feed(event),
            None => Ok(()),
        }
    }

    /// Grants and publishes, and returns the outcome as an event.
    fn connect(&mut self) -> Result<FrontendEvent, VifError> {
        match self.try_connect() {
            Ok(()) => Ok(FrontendEvent::Published),
            Err(e @ VifError::Platform(Error::Gone { .. })) => Err(e),
            Err(e) => {
                self.failure = Some(e);
                Ok(FrontendEvent::ConnectFailed)
            }
        }
    }

    fn try_connect(&mut self) -> Result<(), VifError> {
        let nodes = &mut self.nodes;
        let trusted = nodes.trusted;
        let (store, backend) = (nodes.store.as_mut(), &nodes.backend_path);
        self.features = BackendFeatures::read(store, backend, self.wishes, trusted)?;
        for number in 0..self.features.queues {
            let mut queue = Queue::new(number, &self.platform, nodes.backend, self.features)?;
            // Pages are posted before the backend looks, so that it can start.
            queue.post()?;
            self.made.push(queue);
        }
        if self.features.control {
            let queues = self.features.queues;
            let staging = match self.features.policy {
                Policy::Staging => self.made.iter().map(|queue| queue.staging().clone()).collect(),
                _ => Vec::new(),
            };
            self.control = Some(Control::new(&self.platform, nodes.backend, queues, staging)?);
        }
        let ctrl = self.control.as_ref().map(Control::refs);
        let refs: Vec<QueueRefs> = self.made.iter().map(Queue::refs).collect();
        let policy = self.features.policy;
        let published = nodes_of(&refs, ctrl, self.wishes, policy);
        // With Connected, which the machine then has nothing to add to: a kernel that looks at the
        // nodes in between could take the device for a new one.
        Ok(nodes.publish(|store, path| write_nodes(store, path, &published))?)
    }

    /// Takes all queues back, published or running, and adds their counters to the past ones.
    fn take_queues(&mut self) -> Vec<Queue> {
        let mut queues = core::mem::take(&mut self.made);
        if core::mem::take(&mut self.running) {
            queues.extend(self.runner.stop());
        }
        for queue in &queues {
            self.past.add(queue.stats());
        }
        queues
    }

    /// Sets the hash for frames that the backend sends to this guest, and the queue for each hash.
    /// With `None`, the backend chooses both. The wish also holds for later connections. The call
    /// does not wait: [`Vif::hash`] shows the progress.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn set_hash(&mut self, wish: Option<HashWish>) -> Result<(), VifError> {
        self.hash = wish.clone();
        match self.control.as_mut().filter(|_| self.running) {
            Some(control) => control.set_hash(wish),
            None => Ok(()),
        }
    }

    /// Returns the last wish for the hash, and its state.
    #[must_use]
    pub fn hash(&self) -> (Option<&HashWish>, HashState) {
        let state = match (&self.control, &self.hash) {
            (Some(control), _) if self.running => control.hash(),
            (_, None) => HashState::Unset,
            (None, Some(_)) if self.running => HashState::NoRing,
            (_, Some(_)) => HashState::Waiting,
        };
        (self.hash.as_ref(), state)
    }

    /// Asks the backend to keep all pages of this connection mapped, if both ends agreed on
    /// staging. The backend may accept fewer.
    fn stage_all(&mut self) -> Result<(), VifError> {
        let all: Vec<StagingState> = self.staging();
        all.into_iter().try_for_each(|state| self.stage(state.queue, state.pages))
    }

    /// Stages the first `pages` pages of a queue, and takes the other pages back. The call does not
    /// wait, and packets flow meanwhile: [`Vif::staging`] shows the progress. Each connection
    /// begins with a wish for all pages.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn stage(&mut self, queue: u16, pages: usize) -> Result<(), VifError> {
        self.control_mut().map_or(Ok(()), |control| control.stage(queue, pages))
    }

    /// Returns the staging state of each queue of this connection, in the order of their numbers.
    /// The list is empty if the two ends did not agree on staging.
    #[must_use]
    pub fn staging(&self) -> Vec<StagingState> {
        self.control().map(|control| control.staging().collect()).unwrap_or_default()
    }

    /// Returns the buffer policy in force. This is the policy that both ends agreed on, with one
    /// exception: while no page is staged, buffers use grant copy. So it is before the backend
    /// answers the first list, and after it refuses to stage pages.
    #[must_use]
    pub fn policy_in_force(&self) -> Policy {
        match self.features.policy {
            Policy::Staging if self.staging().iter().all(|state| state.staged == 0) => Policy::Copy,
            agreed => agreed,
        }
    }

    /// Returns the first refusal of the backend about staging since the last call. The vif
    /// continues: pages that are not staged use grant copy.
    pub fn take_staging_refusal(&mut self) -> Option<StagingRefusal> {
        self.control_mut()?.take_staging_refusal()
    }

    /// Returns the control ring of this connection, if the backend has one.
    #[must_use]
    pub fn control(&self) -> Option<&Control> {
        self.control.as_ref().filter(|_| self.running)
    }

    /// Returns the control ring of this connection, for requests and answers.
    pub fn control_mut(&mut self) -> Option<&mut Control> {
        self.control.as_mut().filter(|_| self.running)
    }

    /// Takes in answers of the control ring, and continues the changes that depend on them. Call
    /// this when the control ring's descriptor is readable. If the backend breaks the protocol, the
    /// vif is closed and becomes [`VifStatus::Held`]. Before the vif is connected, only signals are
    /// taken in: on some platforms an untaken signal ends every wait.
    ///
    /// # Errors
    ///
    /// The platform or the store is gone.
    pub fn take_answers(&mut self) -> Result<(), VifError> {
        if !self.running {
            // Nobody else takes in what a backend signals before it is connected. Whoever runs the
            // queues looks at their rings first.
            let queues = self.made.iter_mut().try_for_each(|queue| queue.take_events().map(drop));
            return queues
                .and_then(|()| self.control.as_mut().map_or(Ok(()), Control::take_signals));
        }
        match self.control_mut().map(Control::poll) {
            Some(Err(error)) => self.fail(error),
            _ => Ok(()),
        }
    }

    /// Returns the features of this connection: those that the backend offers and the guest wishes
    /// for.
    #[must_use]
    pub fn features(&self) -> BackendFeatures {
        self.features
    }

    /// Returns true if the toolstack wrote that the backend is trusted, or wrote nothing. The node
    /// `trusted` is read when the vif is opened, resumed or renewed.
    ///
    /// The measures against an untrusted backend (XSA-403) are taken with every backend. Frames are
    /// copied into pages that hold nothing else. Received frames are copied out of such pages
    /// before they are read. Only [`Queue::recv_lent`] and [`Queue::recv_lent_burst`] differ: with
    /// a trusted backend they lend a frame in its pages.
    #[must_use]
    pub fn trusts_backend(&self) -> bool {
        self.nodes.trusted
    }

    /// Returns true if the backend reports that its link is up, or reports nothing (key `carrier`).
    #[must_use]
    pub fn carrier(&self) -> bool {
        self.carrier
    }

    /// Returns the sum of the counters of all connections that ended.
    #[must_use]
    pub fn past_stats(&self) -> QueueStats {
        self.past
    }

    /// Returns the Ethernet address that the toolstack gave the vif, as text.
    ///
    /// # Errors
    ///
    /// [`VifError::Key`] if the toolstack gave none.
    pub fn mac(&mut self) -> Result<String, VifError> {
        self.nodes.mac()
    }

    /// Returns the MTU that the toolstack gave the vif, in bytes; 1500 if there is none.
    ///
    /// # Errors
    ///
    /// [`VifError::Key`] if the MTU is no number.
    pub fn mtu(&mut self) -> Result<u32, VifError> {
        Ok(self.nodes.mtu()?.unwrap_or(1500))
    }

    /// Returns the text that the backend wrote because it could not serve this vif.
    ///
    /// # Errors
    ///
    /// The store is gone.
    pub fn backend_error(&mut self) -> Result<Option<String>, VifError> {
        Ok(self.nodes.backend_node("error")?)
    }
}

impl<R: Runner> Drop for Vif<R> {
    fn drop(&mut self) {
        if self.restored {
            self.forget();
        }
        drop(self.take_queues());
    }
}

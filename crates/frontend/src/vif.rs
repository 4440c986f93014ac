//! A vif: its place in the store, its state, and its connections.

use crate::VifError;
use crate::control::{Control, HashState, HashWish, StagingRefusal, StagingState};
use crate::negotiate::{BackendFeatures, Wishes, publish};
use crate::nodes::{Change, Nodes};
use crate::queue::Queue;
use crate::refs::QueueRefs;
use crate::runner::{Here, Runner};
use crate::stats::QueueStats;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use grantway_hypervisor::{Error, Platform, Store};
use grantway_netif::Policy;
use grantway_netif::xenbus::frontend::{
    FrontendAction, FrontendActions, FrontendEvent, FrontendMachine,
};

/// Changes in the store that one look takes in. Each costs a question of the
/// store, during which the backend may have made the next (XSA-349).
const CHANGES_A_LOOK: usize = 16;

/// Where a vif stands, for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VifStatus {
    /// The two ends are negotiating, or wait for each other.
    Waiting,
    /// Packets may flow.
    Connected,
    /// A failure or the backend closed it; [`Vif::restart`] tries again.
    Held,
    /// The device was taken away.
    Gone,
    /// The domain was saved and restored, as its store shows. Earlier grants and ports are void,
    /// and nothing goes on before [`Vif::resume`].
    Restored,
}

/// One vif of this domain: what negotiates, and hands the queues of each
/// connection to the [`Runner`] that uses them.
pub struct Vif<R: Runner = Here> {
    platform: Arc<dyn Platform>,
    devid: u32,
    nodes: Nodes,
    wishes: Wishes,
    machine: FrontendMachine,
    features: BackendFeatures,
    /// Queues that were published, until the backend is there, too.
    made: Vec<Queue>,
    /// The control ring, where the backend has one.
    control: Option<Control>,
    /// What was last wished of the hash.
    hash: Option<HashWish>,
    pub(crate) runner: R,
    running: bool,
    /// Whether the backend says that its link is up.
    carrier: bool,
    /// Whether a look at the store ended before all changes were taken in.
    changes_left: bool,
    /// Whether the domain was restored since all of this was found.
    restored: bool,
    /// Counters of queues that are no more.
    past: QueueStats,
    failure: Option<VifError>,
}

impl Vif {
    /// Opens vif `devid` of the platform's domain and begins to negotiate,
    /// whatever state the store shows. The calling thread runs its queues.
    ///
    /// # Errors
    ///
    /// As [`Vif::open_with`].
    pub fn open(platform: Arc<dyn Platform>, devid: u32, wishes: Wishes) -> Result<Self, VifError> {
        Self::open_with(platform, devid, wishes, Here::default())
    }
}

impl<R: Runner> Vif<R> {
    /// Opens vif `devid` as [`Vif::open`] does; `runner` runs its queues.
    ///
    /// # Errors
    ///
    /// [`VifError::NoVif`] when the toolstack attached no such vif;
    /// [`VifError::Key`] when its nodes are not as a toolstack writes them;
    /// [`VifError::Platform`].
    pub fn open_with(
        platform: Arc<dyn Platform>,
        devid: u32,
        wishes: Wishes,
        runner: R,
    ) -> Result<Self, VifError> {
        let mut nodes = Nodes::open(platform.as_ref(), devid)?;
        let (machine, actions) = FrontendMachine::start(nodes.own_state()?, nodes.peer_state()?);
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
            past: QueueStats::default(),
            failure: None,
        };
        vif.carry_out(actions)?;
        Ok(vif)
    }

    /// Goes on in a domain that was saved and restored, as `platform` finds it
    /// now: the vif is looked for anew, and negotiates with whatever backend it
    /// has by now, as one that was just opened.
    ///
    /// The grants and ports of the connection before are void, and what they
    /// were named by may be somebody else's by now. So they are not touched: for
    /// each restore a set of event channels a queue, and one for the control ring,
    /// stays open for as long as this process runs, and so do their pages where
    /// the platform cannot take them back ([`grantway_hypervisor::Granter::abandon`]).
    ///
    /// # Errors
    ///
    /// As [`Vif::open_with`]; the vif is then of no use until it is tried again
    /// with success.
    pub fn resume(&mut self, platform: Arc<dyn Platform>) -> Result<(), VifError> {
        self.forget();
        self.platform = platform;
        self.nodes = Nodes::open(self.platform.as_ref(), self.devid)?;
        let (own, peer) = (self.nodes.own_state()?, self.nodes.peer_state()?);
        let (machine, actions) = FrontendMachine::start(own, peer);
        self.machine = machine;
        self.failure = None;
        self.restored = false;
        self.carry_out(actions)
    }

    /// Forgets what was lent without touching it.
    fn forget(&mut self) {
        for queue in self.take_queues() {
            queue.forget();
        }
        if let Some(control) = self.control.take() {
            control.forget();
        }
    }

    /// Takes in what changed in the store, a bounded number of changes at a
    /// time. To be called when the store's descriptor is readable, and again
    /// before any waiting while [`Vif::has_changes`].
    ///
    /// # Errors
    ///
    /// The platform or the store is gone.
    pub fn store_changed(&mut self) -> Result<VifStatus, VifError> {
        self.changes_left = false;
        for _ in 0..CHANGES_A_LOOK {
            match self.nodes.next_change()? {
                Some(Change::Peer(state)) => self.feed(FrontendEvent::Peer(state))?,
                Some(Change::Own(state)) => self.feed(FrontendEvent::Own(state))?,
                Some(Change::Carrier(up)) => self.carrier = up,
                Some(Change::Restored) => self.restored = true,
                None => return Ok(self.status()),
            }
        }
        self.changes_left = true;
        Ok(self.status())
    }

    /// Whether [`Vif::store_changed`] left changes for its next call, of which
    /// the store's descriptor may tell nothing: the backend writes faster than
    /// they are read.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.changes_left
    }

    /// Where it stands.
    #[must_use]
    pub fn status(&self) -> VifStatus {
        if self.restored {
            VifStatus::Restored
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

    /// Why it is held, once.
    pub fn take_failure(&mut self) -> Option<VifError> {
        self.failure.take()
    }

    /// Closes the vif for what a queue found its backend doing; it is held
    /// then, and the reason is in [`Vif::take_failure`].
    ///
    /// # Errors
    ///
    /// The platform or the store is gone, also where `error` says so.
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

    /// Closes for good. The backend's answer is awaited through
    /// [`Vif::store_changed`], until [`VifStatus::Gone`]; pages that it still
    /// reaches are left to the platform's deferred reclaim.
    ///
    /// # Errors
    ///
    /// The platform or the store is gone.
    pub fn shutdown(&mut self) -> Result<(), VifError> {
        self.feed(FrontendEvent::Shutdown)
    }

    /// The store connection, for its descriptor.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        self.nodes.store.as_ref()
    }

    /// What runs its queues.
    #[must_use]
    pub fn runner(&self) -> &R {
        &self.runner
    }

    /// What runs its queues.
    pub fn runner_mut(&mut self) -> &mut R {
        &mut self.runner
    }

    fn feed(&mut self, event: FrontendEvent) -> Result<(), VifError> {
        // Whatever it would come to, it would touch what is not ours any more.
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
                // Revoked where the backend let go, deferred where it did not:
                // the platform looks again at every later release.
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

    /// Grants, publishes, and says how it went.
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
        Ok(publish(nodes.store.as_mut(), &nodes.path, &refs, ctrl, self.wishes, policy)?)
    }

    /// The queues, wherever they are; none are left.
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

    /// Says how the backend is to hash what it sends us, and which queue each frame
    /// is to come by; none leaves both to the backend. Holds for later connections
    /// too. How it goes is in [`Vif::hash`]: nothing here blocks.
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

    /// What was last wished of the hash, and how that stands.
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

    /// Has the backend keep all pages of this connection mapped, or as many as it
    /// takes, where that was agreed on.
    fn stage_all(&mut self) -> Result<(), VifError> {
        let all: Vec<StagingState> = self.staging();
        all.into_iter().try_for_each(|state| self.stage(state.queue, state.pages))
    }

    /// Has so many pages of a queue staged, from the first on; others are taken
    /// back. How it goes is in [`Vif::staging`]: nothing here blocks, and packets
    /// flow meanwhile. A connection begins with all of them wished for.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn stage(&mut self, queue: u16, pages: usize) -> Result<(), VifError> {
        self.control_mut().map_or(Ok(()), |control| control.stage(queue, pages))
    }

    /// What of each queue of this connection is staged, in order; nothing where
    /// staging was not agreed on.
    #[must_use]
    pub fn staging(&self) -> Vec<StagingState> {
        self.control().map(|control| control.staging().collect()).unwrap_or_default()
    }

    /// What the backend refused of staging since the last call, the first of it.
    /// The vif goes on: what is not staged takes grant copy.
    pub fn take_staging_refusal(&mut self) -> Option<StagingRefusal> {
        self.control_mut()?.take_staging_refusal()
    }

    /// The control ring of this connection, where the backend has one.
    #[must_use]
    pub fn control(&self) -> Option<&Control> {
        self.control.as_ref().filter(|_| self.running)
    }

    /// The control ring of this connection, for requests and answers.
    pub fn control_mut(&mut self) -> Option<&mut Control> {
        self.control.as_mut().filter(|_| self.running)
    }

    /// Takes answers of the control ring in, without blocking, and goes on with
    /// what depends on them. To be called when its descriptor is readable. A
    /// backend that breaks the protocol has the vif closed and held.
    ///
    /// # Errors
    ///
    /// The platform or the store is gone.
    pub fn take_answers(&mut self) -> Result<(), VifError> {
        match self.control_mut().map(Control::poll) {
            Some(Err(error)) => self.fail(error),
            _ => Ok(()),
        }
    }

    /// What the backend offers, as far as it is wished for.
    #[must_use]
    pub fn features(&self) -> BackendFeatures {
        self.features
    }

    /// Whether the toolstack has the backend trusted (its `trusted` node, read
    /// when the vif is opened or resumed; it has where there is none).
    ///
    /// What an untrusted backend calls for (XSA-403) is done for every one:
    /// frames are copied into pages that hold nothing else, and out of such
    /// before anybody looks at them. Only [`Queue::recv_lent`] differs, which lends a
    /// frame in its page where this is true, and copies it where it is not.
    #[must_use]
    pub fn trusts_backend(&self) -> bool {
        self.nodes.trusted
    }

    /// Whether the backend's link is up; it is where the backend says nothing.
    #[must_use]
    pub fn carrier(&self) -> bool {
        self.carrier
    }

    /// The counters of the connections that ended.
    #[must_use]
    pub fn past_stats(&self) -> QueueStats {
        self.past
    }

    /// The Ethernet address that the toolstack gave it, as text.
    ///
    /// # Errors
    ///
    /// [`VifError::Key`] when it gave none.
    pub fn mac(&mut self) -> Result<String, VifError> {
        self.nodes.mac()
    }

    /// The MTU that the toolstack gave it, 1500 where it gave none, in bytes.
    ///
    /// # Errors
    ///
    /// [`VifError::Key`] when it is no number.
    pub fn mtu(&mut self) -> Result<u32, VifError> {
        Ok(self.nodes.mtu()?.unwrap_or(1500))
    }

    /// What the backend wrote when it could not serve this vif.
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

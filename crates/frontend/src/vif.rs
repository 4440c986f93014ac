//! A vif: its place in the store, its state, and its queues.

use crate::negotiate::{BackendFeatures, Wishes, number, peek, publish};
use crate::queue::{Queue, QueueRefs};
use crate::receive::Received;
use crate::stats::QueueStats;
use crate::{PeerError, SendError, VifError};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use grantway_hypervisor::{DomId, Error, EventChannels, Platform, Released, Store, transaction};
use grantway_netif::keys;
use grantway_netif::xenbus::frontend::{
    FrontendAction, FrontendActions, FrontendEvent, FrontendMachine,
};
use grantway_netif::{Checksum, GsoKind, Offload, XenbusState};

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
}

const BACKEND_TOKEN: &str = "backend";
const OWN_TOKEN: &str = "own";
const CARRIER_TOKEN: &str = "carrier";

/// One vif of this domain.
pub struct Vif {
    platform: Arc<dyn Platform>,
    store: Box<dyn Store>,
    events: Box<dyn EventChannels>,
    path: String,
    backend_path: String,
    backend: DomId,
    wishes: Wishes,
    machine: FrontendMachine,
    features: BackendFeatures,
    queues: Vec<Queue>,
    /// Whether the backend says that its link is up.
    carrier: bool,
    /// Counters of queues that are no more.
    past: QueueStats,
    released: Released,
    failure: Option<VifError>,
}

impl Vif {
    /// Opens vif `devid` of the platform's domain and begins to negotiate,
    /// whatever state the store shows.
    ///
    /// # Errors
    ///
    /// [`VifError::NoVif`] when the toolstack attached no such vif;
    /// [`VifError::Key`] when its nodes are not as a toolstack writes them;
    /// [`VifError::Platform`].
    pub fn open(platform: Arc<dyn Platform>, devid: u32, wishes: Wishes) -> Result<Self, VifError> {
        let mut store = platform.store()?;
        let events = platform.events()?;
        let path = format!("/local/domain/{}/device/vif/{devid}", platform.domain());
        let backend_path = store.read_text(&format!("{path}/{}", keys::BACKEND))?;
        let backend_path =
            backend_path.ok_or_else(|| VifError::NoVif { path: path.clone(), devid })?;
        let backend_key = format!("{path}/{}", keys::BACKEND_ID);
        let backend = number(store.as_mut(), &backend_key, "the backend's domain")?;
        let backend = DomId(u16::try_from(backend).map_err(|_| VifError::Key {
            path: backend_key,
            found: backend.to_string(),
            expected: "a domain from 0 to 32751",
        })?);
        store.watch(&format!("{backend_path}/{}", keys::STATE), BACKEND_TOKEN)?;
        store.watch(&format!("{path}/{}", keys::STATE), OWN_TOKEN)?;
        store.watch(&format!("{backend_path}/{}", keys::CARRIER), CARRIER_TOKEN)?;
        let own = state(store.as_mut(), &path)?;
        let peer = state(store.as_mut(), &backend_path)?;
        let (machine, actions) = FrontendMachine::start(own, peer);
        let mut vif = Self {
            platform,
            store,
            events,
            path,
            backend_path,
            backend,
            wishes,
            machine,
            features: BackendFeatures::default(),
            queues: Vec::new(),
            carrier: true,
            past: QueueStats::default(),
            released: Released::default(),
            failure: None,
        };
        vif.carry_out(actions)?;
        Ok(vif)
    }

    /// Takes in what changed in the store. To be called when the store's
    /// descriptor is readable.
    ///
    /// # Errors
    ///
    /// The platform or the store is gone.
    pub fn store_changed(&mut self) -> Result<VifStatus, VifError> {
        while let Some(event) = self.store.next_event()? {
            let event = match event.token.as_str() {
                BACKEND_TOKEN => {
                    FrontendEvent::Peer(state(self.store.as_mut(), &self.backend_path)?)
                }
                OWN_TOKEN => FrontendEvent::Own(state(self.store.as_mut(), &self.path)?),
                CARRIER_TOKEN => {
                    let path = format!("{}/{}", self.backend_path, keys::CARRIER);
                    let carrier = peek(self.store.as_mut(), &path)?;
                    self.carrier = carrier.is_none_or(|text| text.trim() != "0");
                    continue;
                }
                _ => continue,
            };
            self.feed(event)?;
        }
        Ok(self.status())
    }

    /// Where it stands.
    #[must_use]
    pub fn status(&self) -> VifStatus {
        if self.machine.is_gone() {
            VifStatus::Gone
        } else if self.machine.is_held() {
            VifStatus::Held
        } else if self.machine.is_connected() && !self.queues.is_empty() {
            VifStatus::Connected
        } else {
            VifStatus::Waiting
        }
    }

    /// Why it is held, once.
    pub fn take_failure(&mut self) -> Option<VifError> {
        self.failure.take()
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

    /// Queue `number` and the event channels to use it with, while connected.
    pub fn queue(&mut self, number: usize) -> Option<(&mut Queue, &mut dyn EventChannels)> {
        if !self.machine.is_connected() {
            return None;
        }
        Some((self.queues.get_mut(number)?, self.events.as_mut()))
    }

    /// The event channels, for their descriptor and for waiting.
    pub fn events(&mut self) -> &mut dyn EventChannels {
        self.events.as_mut()
    }

    /// The descriptor of the event channels.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn event_descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        self.events.descriptor()
    }

    /// The store connection, for its descriptor.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// Takes signals in without blocking; true when one was a queue's.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn take_events(&mut self) -> Result<bool, VifError> {
        let mut ours = false;
        let queues = &mut self.queues;
        self.events.poll(&mut |port| {
            for queue in queues.iter_mut() {
                ours |= queue.take_event(port);
            }
        })?;
        Ok(ours)
    }

    /// Sends a frame on queue 0, if the backend takes what it asks.
    ///
    /// # Errors
    ///
    /// [`SendError`]; [`SendError::Full`] also while not connected.
    pub fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        let features = self.features;
        let offered = match offload.gso.map(|gso| gso.kind) {
            Some(GsoKind::Tcpv4) => features.gso_tcpv4,
            Some(GsoKind::Tcpv6) => features.gso_tcpv6,
            None => true,
        };
        if !offered {
            return Err(SendError::NotOffered { what: "segmentation left to do" });
        }
        if offload.checksum == Checksum::Partial && !features.checksum_ipv4 {
            return Err(SendError::NotOffered { what: "a blank checksum" });
        }
        match self.queue(0) {
            Some((queue, _)) => queue.send(frame, offload),
            None => Err(SendError::Full),
        }
    }

    /// Receives a frame from queue 0; none while not connected. A backend that
    /// breaks the protocol has the vif closed and held, and the reason is in
    /// [`Vif::take_failure`].
    ///
    /// # Errors
    ///
    /// The platform or the store is gone.
    pub fn recv(&mut self, buf: &mut [u8]) -> Result<Option<Received>, VifError> {
        let received = match self.queue(0) {
            Some((queue, _)) => queue.recv(buf),
            None => Ok(None),
        };
        self.judge(received).map(Option::flatten)
    }

    /// Runs a step on queue 0; a peer's fault closes the vif as in
    /// [`Vif::recv`]. `None` while not connected, and after a fault.
    ///
    /// # Errors
    ///
    /// The platform or the store is gone.
    pub fn with_queue<T>(
        &mut self,
        step: impl FnOnce(&mut Queue, &mut dyn EventChannels) -> Result<T, VifError>,
    ) -> Result<Option<T>, VifError> {
        let Some((queue, events)) = self.queue(0) else { return Ok(None) };
        let done = step(queue, events);
        self.judge(done)
    }

    fn judge<T>(&mut self, done: Result<T, VifError>) -> Result<Option<T>, VifError> {
        match done {
            Ok(value) => Ok(Some(value)),
            Err(VifError::Peer(fault)) => {
                self.fault(fault)?;
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Closes the vif for what the backend did.
    fn fault(&mut self, fault: PeerError) -> Result<(), VifError> {
        self.failure = Some(fault.into());
        self.feed(FrontendEvent::Fatal)
    }

    fn feed(&mut self, event: FrontendEvent) -> Result<(), VifError> {
        let actions = self.machine.handle(event);
        self.carry_out(actions)
    }

    fn carry_out(&mut self, actions: FrontendActions) -> Result<(), VifError> {
        let mut answer = None;
        for action in actions {
            match action {
                FrontendAction::SetState(state) => {
                    // Where there is one: a folder that the toolstack removed
                    // must not come back to life.
                    let path = format!("{}/{}", self.path, keys::STATE);
                    transaction(self.store.as_mut(), |store| match store.read_text(&path)? {
                        Some(_) => store.write(&path, state.as_str().as_bytes()),
                        None => Ok(()),
                    })?;
                }
                FrontendAction::Connect => answer = Some(self.connect()?),
                FrontendAction::Ready => {
                    self.with_queue(|queue, events| queue.post(events))?;
                }
                FrontendAction::Disconnect => self.disconnect(),
                // Revoked where the backend let go, deferred where it did not:
                // the platform looks again at every later release.
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
        self.features =
            BackendFeatures::read(self.store.as_mut(), &self.backend_path, self.wishes)?;
        let made = Queue::new(
            self.platform.as_ref(),
            self.events.as_mut(),
            self.backend,
            self.features.scatter_gather,
            self.features.split_events,
        );
        let mut queue = match made {
            Ok(queue) => queue,
            Err(e @ Error::Gone { .. }) => return Err(e.into()),
            Err(e) => {
                self.failure = Some(e.into());
                return Ok(FrontendEvent::ConnectFailed);
            }
        };
        // Pages are posted before the backend looks, so that it can start.
        queue.post(self.events.as_mut())?;
        let refs: Vec<QueueRefs> = queue.refs().into_iter().collect();
        self.queues.push(queue);
        match publish(self.store.as_mut(), &self.path, &refs, self.wishes) {
            Ok(()) => Ok(FrontendEvent::Published),
            Err(e @ Error::Gone { .. }) => Err(e.into()),
            Err(e) => {
                self.failure = Some(e.into());
                Ok(FrontendEvent::ConnectFailed)
            }
        }
    }

    fn disconnect(&mut self) {
        for queue in self.queues.drain(..) {
            self.past.add(queue.stats());
            let released = queue.close(self.platform.as_ref(), self.events.as_mut());
            self.released.revoked += released.revoked;
            self.released.deferred += released.deferred;
        }
    }

    /// What the backend offers, as far as it is wished for.
    #[must_use]
    pub fn features(&self) -> BackendFeatures {
        self.features
    }

    /// Whether the backend's link is up; it is where the backend says nothing.
    #[must_use]
    pub fn carrier(&self) -> bool {
        self.carrier
    }

    /// The vif's counters since it was opened, over all its connections.
    #[must_use]
    pub fn stats(&self) -> QueueStats {
        let mut sum = self.past;
        for queue in &self.queues {
            sum.add(queue.stats());
        }
        sum
    }

    /// The Ethernet address that the toolstack gave it, as text.
    ///
    /// # Errors
    ///
    /// [`VifError::Key`] when it gave none.
    pub fn mac(&mut self) -> Result<String, VifError> {
        let path = format!("{}/{}", self.path, keys::MAC);
        self.store.read_text(&path)?.ok_or(VifError::Key {
            path,
            found: "nothing".to_string(),
            expected: "six bytes in hexadecimal",
        })
    }

    /// The MTU that the toolstack gave it, 1500 where it gave none, in bytes.
    ///
    /// # Errors
    ///
    /// [`VifError::Key`] when it is no number.
    pub fn mtu(&mut self) -> Result<u32, VifError> {
        for base in [&self.path, &self.backend_path] {
            let path = format!("{base}/{}", keys::MTU);
            if peek(self.store.as_mut(), &path)?.is_some() {
                return number(self.store.as_mut(), &path, "an MTU in bytes");
            }
        }
        Ok(1500)
    }

    /// What the backend wrote when it could not serve this vif.
    ///
    /// # Errors
    ///
    /// The store is gone.
    pub fn backend_error(&mut self) -> Result<Option<String>, VifError> {
        Ok(peek(self.store.as_mut(), &format!("{}/error", self.backend_path))?)
    }
}

impl Drop for Vif {
    fn drop(&mut self) {
        self.disconnect();
    }
}

/// The state below a folder; a node that holds no state counts as unknown.
fn state(store: &mut dyn Store, path: &str) -> Result<Option<XenbusState>, Error> {
    let text = peek(store, &format!("{path}/{}", keys::STATE))?;
    Ok(text.map(|text| XenbusState::from_store(text.as_bytes()).unwrap_or_default()))
}

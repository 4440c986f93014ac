//! A backend that is handed its vifs and their rings, and looks at no store.

use super::config::BackendConfig;
use super::ctrl::Served;
use super::engine::Engine;
use super::link::{Link, Terms};
use super::negotiate::{FrontendKeys, Offer};
use super::report::VifReport;
use super::succession::Half;
use crate::error::{StartError, VifError};
use crate::ids::{MAX_QUEUES, VifId};
use crate::policy::Budget;
use crate::state::checksums::Checksums;
use crate::state::credit::Rate;
use crate::state::trace::TraceReader;
use crate::turn::lists::GraphReport;
use crate::turn::queue::Afterwards;
use crate::worker::WorkerReport;
use grantway_hypervisor::{BackendPlatform, DomId, Error as PlatformError};
use grantway_netif::keys;
use grantway_netif::slots::rx::XDP_HEADROOM_MAX;
use grantway_ports::{Port, PortReport};
use grantway_vector::Secret;
use grantway_vector::rules::TextFault;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tracing::warn;

/// Description of a vif whose rings are handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandedVif {
    /// Name of the vif.
    pub id: VifId,
    /// Rings and features that its frontend published.
    pub keys: FrontendKeys,
    /// Checksums of its frames.
    pub checksums: Checksums,
    /// Bytes to leave free in front of each frame for an XDP program, up to
    /// [`XDP_HEADROOM_MAX`].
    pub headroom: u16,
    /// Limit of what the guest may send.
    pub rate: Option<Rate>,
}

impl HandedVif {
    /// Describes a vif without limit and headroom, whose checksums are offloaded.
    #[must_use]
    pub fn new(id: VifId, keys: FrontendKeys) -> Self {
        Self { id, keys, checksums: Checksums::Offload, headroom: 0, rate: None }
    }
}

/// A vif that was not attached, with the reason. The port comes back, except if a worker that has
/// ended had it.
pub struct Refused {
    /// The reason.
    pub error: VifError,
    /// The port.
    pub port: Option<Box<dyn Port>>,
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}

/// A vif in service, or one that failed and was not detached yet.
struct Handed {
    link: Link,
    checksums: Checksums,
}

/// A backend that is handed its rings: for a program whose toolstack keeps vifs elsewhere than in a
/// xenstore. It has the workers, policies, ports, journals and reports of
/// [`Backend`](crate::Backend), and none of its handshake.
///
/// The caller agrees with each guest: it tells the guest what is offered ([`RingServer::offer`]),
/// learns what the guest published ([`FrontendKeys`]), and calls [`RingServer::attach`]. If the guest
/// comes anew with other rings, the caller calls [`RingServer::reconnect`], which keeps the vif's
/// counters and limits. `examples/handed.rs` is a whole program.
///
/// If the server is dropped, or its process is killed, the connections in service stay in the
/// journals, and a successor continues them by [`RingServer::resume`]. [`RingServer::detach`] ends a
/// connection for good.
pub struct RingServer {
    // The first field, so that workers end before what a vif keeps for packets is dropped.
    engine: Engine,
    vifs: BTreeMap<VifId, Handed>,
    /// Vifs that failed and of which the caller was not told yet.
    failed: Vec<(VifId, VifError)>,
    gate: OwnedFd,
}

impl RingServer {
    /// Starts the workers. `own` is the domain in which this process runs. The journals are in the
    /// folder `backend-<own>` of the run folder, which no other backend may use at the same time.
    ///
    /// # Errors
    ///
    /// The event channels cannot be had, or a worker cannot start. If a journal belongs to a newer
    /// build, nothing was touched.
    pub fn start(
        platform: Arc<dyn BackendPlatform>,
        own: DomId,
        config: BackendConfig,
    ) -> Result<Self, StartError> {
        let engine = Engine::start(platform, own, config)?;
        let gate = engine.gate(None)?;
        Ok(Self { engine, vifs: BTreeMap::new(), failed: Vec::new(), gate })
    }

    /// Returns what a guest is to be told before it publishes its rings, for a vif with this port.
    #[must_use]
    pub fn offer(&self, port: &dyn Port, checksums: Checksums) -> Offer {
        let settings = &self.engine.settings;
        let queues = port.caps().max_queues.min(settings.queues);
        Offer { queues, policy: settings.policy.most, checksums }
    }

    /// Puts the vif's queues into service. From the return on, packets flow between its rings and
    /// `port`. A connection that a killed process left of the vif is over.
    ///
    /// # Errors
    ///
    /// [`VifError::Attached`]; [`VifError::Key`] for an impossible number of queues or headroom; the
    /// reason why a ring, an event channel or the port could not be had. Nothing of the guest's
    /// stays mapped. If [`VifError::may_pass`], a later attempt may succeed.
    pub fn attach(&mut self, vif: HandedVif, port: Box<dyn Port>) -> Result<(), Refused> {
        self.begin(vif, port, false)
    }

    /// Continues a connection that a killed process left, as [`RingServer::attach`] begins one. No
    /// packet is lost or doubled but those that the killed process had in its hands.
    ///
    /// Call it only for a guest that has not come anew since. A guest that came anew may have the
    /// same references and event channels, by which nothing tells the two apart: attach it.
    ///
    /// # Errors
    ///
    /// [`VifError::NotLeft`] if the journal has another connection, or none, or one of which a queue
    /// had failed; the errors of [`RingServer::attach`]. The connection stays in the journal, and the
    /// port's link as it is.
    pub fn resume(&mut self, vif: HandedVif, port: Box<dyn Port>) -> Result<(), Refused> {
        self.begin(vif, port, true)
    }

    /// Returns the vifs of which a killed process left a journal, and that are not attached. Each is
    /// to be resumed, attached or forgotten.
    #[must_use]
    pub fn left(&self) -> Vec<VifId> {
        let all = self.engine.journals.all().into_iter();
        all.filter(|id| !self.vifs.contains_key(id)).collect()
    }

    /// Forgets the connection that a killed process left of a vif that is not attached.
    pub fn forget(&self, id: VifId) {
        if !self.vifs.contains_key(&id) {
            self.engine.journals.forget(id);
        }
    }

    /// Connects an attached vif anew, with other rings, and keeps its port, its counters, and what its
    /// guest has left of its limits for packets and for lines in the log. A connection in service
    /// ends first.
    ///
    /// # Errors
    ///
    /// [`VifError::NotAttached`], and the errors of [`RingServer::attach`]. The vif stays attached,
    /// without a connection.
    pub fn reconnect(&mut self, vif: HandedVif) -> Result<(), VifError> {
        let id = vif.id;
        let Some(mut handed) = self.vifs.remove(&id) else {
            return Err(VifError::NotAttached(id));
        };
        self.end(id, &mut handed.link);
        let checksums = vif.checksums;
        let done = self.put_into_service(&mut handed.link, vif, false);
        self.vifs.insert(id, Handed { checksums, ..handed });
        done
    }

    fn begin(&mut self, vif: HandedVif, port: Box<dyn Port>, resume: bool) -> Result<(), Refused> {
        let (id, checksums) = (vif.id, vif.checksums);
        if self.vifs.contains_key(&id) {
            return Err(Refused { error: VifError::Attached(id), port: Some(port) });
        }
        let mut link = Link::new(id, &self.engine);
        link.set_port(port);
        match self.put_into_service(&mut link, vif, resume) {
            Ok(()) => {
                self.vifs.insert(id, Handed { link, checksums });
                Ok(())
            }
            Err(error) => Err(Refused { error, port: link.take_port() }),
        }
    }

    /// Connects a vif. If that fails, nothing of the connection stays; of one that was to continue,
    /// the journal does.
    fn put_into_service(
        &mut self,
        link: &mut Link,
        vif: HandedVif,
        resume: bool,
    ) -> Result<(), VifError> {
        let id = vif.id;
        let done = self.connect(link, vif, resume);
        match &done {
            Ok(()) => {
                // Requests that the guest made before its ring was bound have no signal.
                self.engine.asked.add(id);
                self.engine.ring();
            }
            Err(_) if resume => {
                link.take_out_of_service(Afterwards::Resumed, &mut self.engine.machine());
            }
            Err(_) => self.end(id, link),
        }
        done
    }

    fn connect(&mut self, link: &mut Link, vif: HandedVif, resume: bool) -> Result<(), VifError> {
        let HandedVif { id, keys, checksums, headroom, rate } = vif;
        // A connection that continues keeps the queues that it has, if the port can have them.
        let most = if resume { MAX_QUEUES } else { self.engine.settings.queues };
        let keys = keys.checked(link.queues(most))?;
        let headroom = checked_headroom(headroom)?;
        let journals = &self.engine.journals;
        // A process that was killed while it attached the vif left the first queues only.
        let resumed = match resume {
            true => {
                let left = journals.left_off(id)?.filter(|left| left.is_of(&keys, Half(true)));
                Some(left.ok_or(VifError::NotLeft(id))?.connection.len())
            }
            false => None,
        };
        journals.opened(id, link.port().and_then(|port| port.interface()));
        let pages = if resume { journals.pages_left(id)? } else { journals.pages(id) };
        link.set_rate(rate, &self.engine.workers);
        let terms = Terms { keys, checksums, headroom, pages, resumed };
        link.connect(terms, &mut self.engine.machine())
    }

    /// Takes the vif's queues out of service, and returns its port. Nothing of the guest's stays
    /// mapped, and its event channels are closed. Requests that the guest published and no worker
    /// took stay on the rings. Returns `None` if there is no such vif, or if a worker that has ended
    /// had the port.
    pub fn detach(&mut self, id: VifId) -> Option<Box<dyn Port>> {
        let mut vif = self.vifs.remove(&id)?;
        self.end(id, &mut vif.link);
        vif.link.take_port()
    }

    /// Ends a connection. The journal goes first: a process that is killed in between leaves no
    /// half of a connection to a successor.
    fn end(&mut self, id: VifId, link: &mut Link) {
        self.engine.journals.forget(id);
        link.take_out_of_service(Afterwards::Over, &mut self.engine.machine());
    }

    /// Returns the descriptor to wait for. If it is readable, call [`RingServer::step`].
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.gate.as_fd()
    }

    /// Serves the control rings of all vifs, a burst of each, without waiting. Returns the vifs that
    /// failed since the last step, with the reasons. Such a vif is out of service, and stays attached
    /// until [`RingServer::detach`] or [`RingServer::reconnect`].
    ///
    /// # Errors
    ///
    /// The platform or a worker is gone.
    pub fn step(&mut self) -> Result<Vec<(VifId, VifError)>, PlatformError> {
        let mut failed = Vec::new();
        let told = self.engine.take_notices(&mut failed);
        for (id, connection, error) in failed {
            if self.vifs.get(&id).is_some_and(|vif| vif.link.serves(connection)) {
                self.fail(id, error);
            }
        }
        told?;
        self.serve_control_rings()?;
        Ok(std::mem::take(&mut self.failed))
    }

    fn serve_control_rings(&mut self) -> Result<(), PlatformError> {
        let vifs = self.vifs.iter();
        let channels = vifs.filter_map(|(&id, vif)| Some((id, vif.link.control_event()?)));
        self.engine.take_signals(channels)?;
        let Some(mut bursts) = self.engine.asked.begin() else { return Ok(()) };
        while let Some(id) = self.engine.asked.next(&mut bursts) {
            let Some(vif) = self.vifs.get_mut(&id) else { continue };
            let served = match vif.link.serve_control(&mut self.engine.machine()) {
                Ok(served) => served,
                Err(VifError::Platform(e @ PlatformError::Gone { .. })) => return Err(e),
                Err(error) => {
                    self.fail(id, error);
                    Served::default()
                }
            };
            self.engine.asked.served(&mut bursts, id, served);
        }
        if self.engine.asked.begin().is_some() {
            // A control ring with more requests gets its next turn in the next step.
            self.engine.ring();
        }
        Ok(())
    }

    /// Takes a vif out of service because of an error, which the next step tells.
    fn fail(&mut self, id: VifId, error: VifError) {
        let Some(mut vif) = self.vifs.remove(&id) else { return };
        vif.link.say(|held| warn!("{id}: {error}{held}"));
        self.end(id, &mut vif.link);
        self.vifs.insert(id, vif);
        self.failed.push((id, error));
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

    /// Limits what a guest may send from now on. Returns false if there is no such vif.
    pub fn set_rate(&mut self, id: VifId, rate: Option<Rate>) -> bool {
        let vif = self.vifs.get_mut(&id);
        vif.map(|vif| vif.link.set_rate(rate, &self.engine.workers)).is_some()
    }

    /// Leaves this many bytes free in front of each frame for a guest. After the call no frame is
    /// published without them. Returns false if there is no such vif.
    ///
    /// # Errors
    ///
    /// [`VifError::Key`] for more than [`XDP_HEADROOM_MAX`].
    pub fn set_headroom(&mut self, id: VifId, headroom: u16) -> Result<bool, VifError> {
        let headroom = checked_headroom(headroom)?;
        let vif = self.vifs.get_mut(&id);
        Ok(vif.map(|vif| vif.link.set_headroom(headroom, &self.engine.workers)).is_some())
    }

    /// Notes if a guest wants multicast frames only to addresses that it lists. Returns false if
    /// there is no such vif.
    pub fn set_multicast(&mut self, id: VifId, wanted: bool) -> bool {
        self.vifs.get(&id).map(|vif| vif.link.set_multicast(wanted)).is_some()
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

    /// Begins a trace of all vifs, and returns its reader: the head of each packet, and the times
    /// at which rings were full. Returns `None` if another reader exists.
    #[must_use]
    pub fn listen(&self) -> Option<TraceReader> {
        self.engine.listen()
    }

    /// Returns the report of each vif. A vif that failed is not connected.
    pub fn report(&self) -> impl Iterator<Item = VifReport> + '_ {
        self.vifs.iter().map(|(&id, vif)| {
            let connected = vif.link.served().is_some();
            VifReport::of(id, &vif.link, &self.engine.workers, connected, vif.checksums)
        })
    }

    /// Returns the report of each worker.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerReport> {
        self.engine.workers.account()
    }

    /// Returns the report of the graph, or `None` if all workers have ended.
    #[must_use]
    pub fn graph(&self) -> Option<GraphReport> {
        self.engine.workers.graph()
    }

    /// Returns the uplink's report, or the error that ended the uplink. Returns `None` if there was
    /// no uplink.
    #[must_use]
    pub fn uplink(&self) -> Option<Result<PortReport, &str>> {
        self.engine.uplink()
    }

    /// Returns the budget: the memory that all vifs may have mapped together, and the memory that
    /// is mapped.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.engine.budget
    }

    /// Returns the most work of a step so far, and the most work that a step may do. The unit is
    /// that of [`CONTROL_WORK_MAX`](crate::CONTROL_WORK_MAX).
    #[must_use]
    pub fn control_work(&self) -> (usize, usize) {
        self.engine.control_work()
    }
}

fn checked_headroom(headroom: u16) -> Result<u16, VifError> {
    if headroom <= XDP_HEADROOM_MAX {
        return Ok(headroom);
    }
    Err(VifError::Key {
        path: keys::XDP_HEADROOM.into(),
        found: headroom.to_string(),
        expected: "a number of bytes up to 2048",
    })
}

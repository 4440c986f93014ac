//! A backend that is handed its vifs and their rings, and looks at no store.

use super::config::BackendConfig;
use super::ctrl::Served;
use super::engine::Engine;
use super::link::{Link, Terms};
use super::negotiate::Offer;
use super::published::{FrontendKeys, headroom_of};
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
    /// Checksums of its frames: the same that were offered.
    pub checksums: Checksums,
    /// Bytes to leave free in front of each frame for an XDP program, up to [`XDP_HEADROOM_MAX`]: the
    /// guest's key `xdp-headroom`, also for a connection that continues. For a guest whose state is
    /// Reconfiguring, at least 256.
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

    /// Describes a vif by what `get` returns for each key that its frontend published, as
    /// [`FrontendKeys::parse`] does, and by `xdp-headroom`. It has no limit, and its checksums are
    /// offloaded.
    ///
    /// # Errors
    ///
    /// [`VifError::Key`], also for more queues than `most`; [`VifError::NoRxCopy`].
    pub fn parse(
        id: VifId,
        mut get: impl FnMut(&str) -> Option<String>,
        most: u32,
    ) -> Result<Self, VifError> {
        let headroom = get(keys::XDP_HEADROOM);
        let headroom = headroom_of(headroom.as_deref(), keys::XDP_HEADROOM)?;
        Ok(Self { headroom, ..Self::new(id, FrontendKeys::parse(get, most)?) })
    }
}

/// A vif that was not attached, with the reason and the port.
pub struct Refused {
    /// The reason.
    pub error: VifError,
    /// The port that was given. It is `None` if the worker that had it has ended.
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
/// The caller agrees with each guest in its own way:
///
/// 1. It tells the guest what is offered ([`RingServer::offer`]), and shows InitWait.
/// 2. It waits until the guest shows Connected, and reads the guest's keys ([`HandedVif::parse`]).
/// 3. It calls [`RingServer::attach`], and then shows Connected.
/// 4. If the guest shows Closing or Closed, it calls [`RingServer::disconnect`], and then shows
///    Closed. If the guest comes anew, the vif goes through 1 and 2 again, and then
///    [`RingServer::reconnect`], which keeps its counters and limits.
/// 5. If the guest or its vif goes, it calls [`RingServer::detach`].
///
/// The server does not notice by itself that a guest has gone. If the server is dropped, or its
/// process is killed, the connections in service stay in the journals, and a successor continues them
/// by [`RingServer::resume`]. `examples/handed.rs` is a program that serves one vif.
///
/// Ports are the caller's, and so are their names, MTUs, addresses and bridges. A port's link goes up
/// when its vif is connected. It goes down when the connection ends, and while the guest posts no
/// pages ([`Patience`](crate::Patience)). A TAP that is to outlive the process is opened with
/// `persist` of [`TapConfig`](grantway_ports::TapConfig).
///
/// The server may move to another thread, and belongs to one at a time. Calls about a vif, and
/// reports, wait for a worker for about a turn. Warnings are logged by `tracing`.
pub struct RingServer {
    // The first field, so that workers end before what a vif keeps for packets is dropped.
    engine: Engine,
    vifs: BTreeMap<VifId, Handed>,
    /// Vifs that failed and of which the caller was not told yet.
    failed: Vec<(VifId, VifError)>,
    gate: OwnedFd,
}

impl RingServer {
    /// Starts the workers. `own` is the domain in which this process runs, as the platform was told.
    /// The journals are in the folder `backend-<own>` of the run folder, which no other backend may use
    /// at the same time. Nothing locks it.
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
    /// `port`. A connection that a killed server left of the vif is over. The rings have to be new: if
    /// the guest is connected by rings that cannot be resumed, make it come anew first.
    ///
    /// # Errors
    ///
    /// [`VifError::Attached`]; [`VifError::Key`] for an impossible number of queues or headroom; the
    /// reason why a ring, an event channel or the port could not be had. Nothing of the guest's
    /// stays mapped. If [`VifError::may_pass`], a later attempt may succeed.
    pub fn attach(&mut self, vif: HandedVif, port: Box<dyn Port>) -> Result<(), Refused> {
        self.begin(vif, port, false)
    }

    /// Continues a connection that a killed or dropped server left, as [`RingServer::attach`] begins
    /// one. Packets that the server had just taken may be lost or doubled. No others are. The port
    /// needs as many queues as the connection has.
    ///
    /// Call it only for a guest that has not come anew since. A guest that came anew may show the same
    /// references and event channels, and nothing tells the two apart. Attach such a guest. If a
    /// connection cannot be resumed at last, make its guest come anew, and attach it.
    ///
    /// # Errors
    ///
    /// [`VifError::NotLeft`] if the journal has another connection, or none, or one of which a queue
    /// had failed; the errors of [`RingServer::attach`]. The connection stays in the journal. The
    /// port's link is not set down.
    pub fn resume(&mut self, vif: HandedVif, port: Box<dyn Port>) -> Result<(), Refused> {
        self.begin(vif, port, true)
    }

    /// Returns the vifs of which a killed or dropped server left a journal, and that are not attached,
    /// each with the index of its port's interface, if it had one: a script may have renamed the
    /// interface. Each vif is to be resumed, attached or forgotten. Journals of an earlier boot of the
    /// machine are forgotten.
    #[must_use]
    pub fn left(&self) -> Vec<(VifId, Option<u32>)> {
        let all = self.engine.journals.all().into_iter();
        let others = all.filter(|id| !self.vifs.contains_key(id));
        let left = others.filter_map(|id| match self.engine.journals.left_off(id) {
            Ok(left) => Some((id, left?.interface)),
            // Its pages cannot be had now.
            Err(_) => Some((id, None)),
        });
        left.collect()
    }

    /// Forgets the connection that a killed or dropped server left of a vif that is not attached.
    pub fn forget(&self, id: VifId) {
        if !self.vifs.contains_key(&id) {
            self.engine.journals.forget(id);
        }
    }

    /// Ends the connection of a vif, whose guest shows Closing or Closed, and keeps the vif. Nothing of
    /// the guest's stays mapped, and its event channels are closed. Returns false if there is no such
    /// vif.
    pub fn disconnect(&mut self, id: VifId) -> bool {
        let Some(mut vif) = self.vifs.remove(&id) else { return false };
        self.end(id, &mut vif.link);
        self.vifs.insert(id, vif);
        true
    }

    /// Connects an attached vif anew, with the rings that its guest shows now, and keeps its port, its
    /// counters, and what its guest has left of its limits for packets and for lines in the log. A
    /// connection in service ends first. A guest that was migrated has a new domain number, and so it
    /// is another vif: detach and attach.
    ///
    /// # Errors
    ///
    /// [`VifError::NotAttached`], and the errors of [`RingServer::attach`]. The vif stays attached,
    /// without a connection. If the worker with its port has ended, detach it and attach it with
    /// another port.
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
    /// mapped, and its event channels are closed. Requests that no worker took are not answered, and
    /// the connection cannot be resumed. If the port's interface is to go, call
    /// [`PortControl::remove`](grantway_ports::PortControl::remove). Returns `None` if there is no such
    /// vif, or if the worker that had the port has ended.
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
    /// failed since the last step, with the reasons. Such a vif is out of service: show its guest
    /// Closed. It stays attached until [`RingServer::detach`], or [`RingServer::reconnect`] if its
    /// guest comes anew. After [`VifError::Port`] it needs another port.
    ///
    /// # Errors
    ///
    /// The platform or a worker is gone. Nothing is served any more: drop the server, or end the
    /// process. A successor resumes all vifs.
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

    /// Gives a turn to each queue with work, without waiting, if workers have no threads. Call it again
    /// and again, as no descriptor tells of packets. Returns true if more work is left. If workers have
    /// threads, the call does nothing.
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
    /// published without them. Large frames are cut for the guest meanwhile. Returns false if there is
    /// no such vif.
    ///
    /// A guest that loads or unloads an XDP program writes Reconfiguring and `xdp-headroom`, in this
    /// order or the other. Set the largest of the headroom so far, the new one and 256 bytes, and then
    /// show Reconfigured. When the guest shows Connected, show Connected, and then set what
    /// `xdp-headroom` says.
    ///
    /// # Errors
    ///
    /// [`VifError::Key`] for more than [`XDP_HEADROOM_MAX`].
    pub fn set_headroom(&mut self, id: VifId, headroom: u16) -> Result<bool, VifError> {
        let headroom = checked_headroom(headroom)?;
        let vif = self.vifs.get_mut(&id);
        Ok(vif.map(|vif| vif.link.set_headroom(headroom, &self.engine.workers)).is_some())
    }

    /// Notes if a guest wants multicast frames only to addresses that it lists: its key
    /// `request-multicast-control`, which may change at any time. Returns false if there is no such
    /// vif.
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
        self.vifs.iter().map(|(&id, vif)| self.reported(id, vif))
    }

    /// Returns the report of one vif, or `None` if it is not attached.
    #[must_use]
    pub fn report_of(&self, id: VifId) -> Option<VifReport> {
        self.vifs.get(&id).map(|vif| self.reported(id, vif))
    }

    fn reported(&self, id: VifId, vif: &Handed) -> VifReport {
        let connected = vif.link.served().is_some();
        VifReport::of(id, &vif.link, &self.engine.workers, connected, vif.checksums)
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

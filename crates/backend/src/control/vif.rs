//! One vif by its nodes in the store. What it has on this machine is its [`Link`].

mod connection;
mod debts;
mod found;
mod headroom;
mod mark;
mod pending;

use self::found::{Found, online, state};
use self::pending::{Attempt, Debts};
use crate::VifError;
use crate::control::ctrl::Served;
use crate::control::link::Link;
use crate::control::published::{FrontendKeys, shown};
use crate::control::succession::{Half, Left};
use crate::control::surroundings::{PortRequest, Surroundings};
use crate::ids::MAX_QUEUES;
use crate::ids::VifId;
use crate::state::checksums::Checksums;
use crate::state::credit::Rate;
use crate::state::shared::PlugEvent;
use grantway_hypervisor::{Error as PlatformError, Store, transaction};
use grantway_netif::xenbus::backend::{
    BackendAction, BackendActions, BackendEvent, BackendMachine,
};
use grantway_netif::{XenbusState, keys};
use grantway_ports::{PortError, TapError};
use std::path::Path;
use tracing::{info, warn};

/// Keys of a frontend that are watched.
const WATCHED: [&str; 2] = [keys::STATE, keys::REQUEST_MULTICAST_CONTROL];

/// A vif under this backend.
pub(crate) struct Vif {
    id: VifId,
    path: String,
    frontend: String,
    machine: BackendMachine,
    /// State in the vif's `state` node, by what we read or wrote last.
    stored: Option<XenbusState>,
    /// Everything else that the store does not have yet.
    debts: Debts,
    /// The connection that is to be made and could not be made yet.
    attempt: Option<Attempt>,
    /// Most queues that a new connection can have: no more than its port has.
    queues: u32,
    /// Set if a killed process left a connection in service that is to be taken over. The value
    /// tells if that process had not written Connected yet.
    left: Option<Half>,
    /// Checksums of its frames, by the mark that was read last.
    checksums: Checksums,
    link: Link,
}

impl Vif {
    /// Takes up a vif that the toolstack attached, in any state that the store shows, and opens its
    /// port. Returns the vif, and the actions for [`Vif::begin`].
    pub fn open(
        id: VifId,
        path: String,
        around: &mut Surroundings<'_>,
    ) -> Result<(Self, BackendActions), VifError> {
        // The store and the journal say if there is a connection to take over.
        let found = Found::read(id, &path, around)?;
        let takeover = found.is_taken_over();
        let (machine, actions) =
            BackendMachine::start(found.own, found.peer, found.online, takeover);
        let mut vif = Self::new(id, path, &found, machine, around);
        vif.left = actions.contains(&BackendAction::TakeOver).then(|| found.half());
        // A vif on its way out needs no port.
        if vif.machine.is_gone() {
            vif.see_off(actions, around)?;
            return Ok((vif, BackendActions::new()));
        }
        if around.engine.settings.hotplug {
            kernel_keeps_off(id)?;
        }
        // The journal learns the interface at once, so that a successor can remove it.
        let mut request = vif.port_request(found.left.as_ref(), around)?;
        if let Some(keys) = found.published.filter(|_| takeover) {
            // A connection keeps the queues that it has, at most MAX_QUEUES; new ones may be
            // allowed fewer.
            request.queues = request.queues.max(keys.queues.len() as u32);
        }
        let port = (around.open_port)(&request)?;
        around.engine.journals.opened(id, port.interface());
        vif.link.set_port(port);
        vif.queues = vif.link.queues(around.engine.settings.queues);
        // From here on a failure must take back what was begun.
        match vif.prepare(takeover, around) {
            Ok(()) => {
                if vif.left.is_none() && found.left.is_some_and(|left| !left.connection.is_empty())
                {
                    // A connection that is not taken over now must not be taken over later.
                    around.engine.journals.pages(id).end();
                }
                Ok((vif, actions))
            }
            Err(e @ VifError::Platform(PlatformError::Gone { .. })) => Err(e),
            Err(e) => {
                // Nothing that was begun stays, and the first error is returned. The port and the
                // journal stay if the vif is tried again by itself.
                let _ = vif.unwatch(around);
                if e.passing(true).is_none() {
                    vif.destroy(around);
                }
                Err(e)
            }
        }
    }

    fn new(
        id: VifId,
        path: String,
        found: &Found,
        machine: BackendMachine,
        around: &Surroundings<'_>,
    ) -> Self {
        Self {
            id,
            path,
            frontend: found.frontend.clone(),
            machine,
            stored: found.own,
            debts: Debts::default(),
            attempt: None,
            queues: 1,
            left: None,
            checksums: around.engine.settings.checksums,
            link: Link::new(id, around.engine),
        }
    }

    /// Writes Closed for a vif that is on its way out. A toolstack waits for that, and then removes
    /// the folder.
    fn see_off(
        &mut self,
        actions: BackendActions,
        around: &mut Surroundings<'_>,
    ) -> Result<(), VifError> {
        for action in actions {
            if let BackendAction::SetState(state) = action {
                self.tell(state, around)?;
            }
        }
        remove_remains(self.id, around)?;
        if around.engine.settings.hotplug {
            // A process that was killed may not have come to this.
            self.clear_hotplug(around)?;
        }
        Ok(())
    }

    /// Sets the link down unless a connection is taken over, and watches the frontend. This comes
    /// once the port is there, and before the machine acts.
    fn prepare(&mut self, takeover: bool, around: &mut Surroundings<'_>) -> Result<(), VifError> {
        if let Some(port) = self.link.port().filter(|_| !takeover) {
            port.set_link(false)?;
        }
        self.watch(around)?;
        Ok(())
    }

    /// Carries out the actions that the machine asked for when the vif was opened.
    pub fn begin(
        &mut self,
        actions: BackendActions,
        around: &mut Surroundings<'_>,
    ) -> Result<(), VifError> {
        let done = self.carry_out(actions, around);
        // If the store cannot say it, a needless event does no harm.
        let plugged = matches!(self.is_plugged(around), Ok(true));
        if around.engine.settings.hotplug && !plugged && !self.machine.is_gone() {
            (around.engine.settings.on_plug)(self.id, PlugEvent::Online);
        }
        done.and(self.look_for_hotplug(around))
    }

    /// Returns true if the hotplug script says that it is done.
    fn is_plugged(&self, around: &mut Surroundings<'_>) -> Result<bool, VifError> {
        let path = format!("{}/{}", self.path, keys::HOTPLUG_STATUS);
        let status = around.store.read_text(&path)?;
        Ok(status.as_deref().map(str::trim) == Some("connected"))
    }

    /// Returns the request for the vif's port. With hotplug scripts, as on Xen, its name is always
    /// `vif<D>.<N>`; the script renames it, joins it to its bridge and sets it up. Without scripts,
    /// its name is the one that the toolstack asked for.
    fn port_request(
        &self,
        left: Option<&Left>,
        around: &mut Surroundings<'_>,
    ) -> Result<PortRequest, VifError> {
        let mut text = |key| around.store.read_text(&format!("{}/{key}", self.path));
        let vifname = text(keys::VIFNAME)?.filter(|name| !name.is_empty());
        let mtu = text(keys::MTU)?.and_then(|text| text.trim().parse().ok());
        let own_name = self.id.to_string();
        Ok(PortRequest {
            vif: self.id,
            name: if around.engine.settings.hotplug {
                own_name
            } else {
                vifname.unwrap_or(own_name)
            },
            mtu: mtu.unwrap_or(1500),
            interface: left.and_then(|left| left.interface),
            fresh: true,
            queues: around.engine.settings.queues,
            scripted: around.engine.settings.hotplug,
        })
    }

    /// Tells the machine that the hotplug script is done, or that no script is to be waited for.
    fn look_for_hotplug(&mut self, around: &mut Surroundings<'_>) -> Result<(), VifError> {
        let script = format!("{}/{}", self.path, keys::SCRIPT);
        let done = !around.engine.settings.hotplug
            || around.store.read_text(&script)?.is_none()
            || self.is_plugged(around)?;
        if done { self.feed(BackendEvent::HotplugDone, around) } else { Ok(()) }
    }

    /// Reads the vif's nodes again, acts on their values, and does what could not be done before.
    /// If it fails, the caller calls it again in a moment. A write that fails keeps nothing else
    /// from being done.
    pub fn look(&mut self, around: &mut Surroundings<'_>) -> Result<(), VifError> {
        // Both states are read before the machine acts on one of them.
        let own = state(around.store, &self.path)?;
        let own = own.filter(|&own| !self.is_anothers(own));
        let online = online(around.store, &self.path)?;
        let peer = state(around.store, &self.frontend)?;
        self.debts.folder_went |= own.is_none();
        // A state that we wrote ourselves, or found when we began, is no news.
        let is_news = own.is_none() || (own == Some(XenbusState::Closing) && own != self.stored);
        if own.is_some() && is_news {
            self.stored = own;
        }
        // Each event is handled though an earlier one failed; the first error is returned.
        let waits = self.attempt.is_some();
        let mut done = self.feed(BackendEvent::Online(online), around);
        if is_news {
            done = done.and(self.feed(BackendEvent::Own(own), around));
        }
        done = done.and(self.settle_debts(around).map_err(VifError::from));
        done = done.and(self.feed(BackendEvent::Peer(peer), around));
        done = done.and(self.look_for_hotplug(around));
        if waits {
            done = done.and(self.try_to_connect(around));
        }
        // A frontend may have gone through Closed to Connected between two looks.
        if peer.is_some_and(XenbusState::has_rings) && self.keys_changed(around)? {
            done = done.and(self.feed(BackendEvent::KeysChanged, around));
        }
        if self.link.served().is_some() {
            self.look_at_rate(around)?;
        }
        done
    }

    /// Returns true if the frontend shows other keys than those in service, as rings: it went
    /// through Closed to Connected between two looks at its state.
    fn keys_changed(&mut self, around: &mut Surroundings<'_>) -> Result<bool, VifError> {
        let Some(served) = self.link.served() else { return Ok(false) };
        // A connection that was taken over may have more queues than a new one is allowed.
        match FrontendKeys::read(around.store, &self.frontend, MAX_QUEUES) {
            Ok(keys) => {
                // This key may change at any time, without a new connection.
                self.link.set_multicast(keys.multicast);
                Ok(FrontendKeys { multicast: served.multicast, ..keys } != *served)
            }
            Err(VifError::Platform(e @ PlatformError::Gone { .. })) => Err(e.into()),
            Err(e) if e.passing(false).is_some() => Err(e),
            // The frontend is rewriting its keys. Its state will tell when it is done.
            Err(_) => Ok(false),
        }
    }

    /// Disables the vif, because a queue failed, unless that connection is over already.
    pub fn failed(
        &mut self,
        connection: u64,
        error: &VifError,
        around: &mut Surroundings<'_>,
    ) -> Result<(), VifError> {
        if !self.link.serves(connection) {
            return Ok(());
        }
        self.report(error, around);
        self.feed(BackendEvent::Fatal, around)
    }

    /// Serves a burst of the guest's control requests, and returns what was done. No request is
    /// served before both ends show Connected.
    pub fn serve_control(&mut self, around: &mut Surroundings<'_>) -> Result<Served, VifError> {
        let shown = matches!(self.stored, Some(XenbusState::Connected | XenbusState::Reconfigured));
        if !(self.machine.is_connected() && shown) {
            return Ok(Served::default());
        }
        let served = self.link.serve_control(&mut around.engine.machine());
        match served {
            Ok(served) => Ok(served),
            Err(VifError::Platform(e @ PlatformError::Gone { .. })) => Err(e.into()),
            Err(error) => {
                self.report(&error, around);
                self.feed(BackendEvent::Fatal, around).map(|()| Served::default())
            }
        }
    }

    /// Gives the vif up, so that its frontend may connect to another backend.
    pub fn shutdown(&mut self, around: &mut Surroundings<'_>) -> Result<(), VifError> {
        self.feed(BackendEvent::Shutdown, around)
    }

    fn feed(&mut self, event: BackendEvent, around: &mut Surroundings<'_>) -> Result<(), VifError> {
        let actions = self.machine.handle(event);
        self.carry_out(actions, around)
    }

    /// Carries out what the machine asked for. Everything of ours is done, though the store has
    /// trouble: a write that fails becomes a debt, and the error says so. If a connection cannot be
    /// had for a moment, the machine waits for its answer.
    fn carry_out(
        &mut self,
        actions: BackendActions,
        around: &mut Surroundings<'_>,
    ) -> Result<(), VifError> {
        if actions.is_empty() {
            return Ok(());
        }
        let mut connects = false;
        for action in actions {
            // A failure is told once all actions were carried out.
            match action {
                BackendAction::Advertise => {
                    self.debts.offer = true;
                    let _ = self.tell_offer(around);
                }
                BackendAction::SetState(state) => {
                    let _ = self.tell(state, around);
                }
                BackendAction::Connect | BackendAction::TakeOver => {
                    self.attempt = Some(Attempt::new(action == BackendAction::TakeOver));
                    connects = true;
                }
                BackendAction::Headroom => {
                    self.debts.headroom = true;
                    let _ = self.settle_headroom(around);
                }
                BackendAction::Disconnect => self.disconnect(around),
                BackendAction::Destroy => {
                    self.debts.of_the_gone(around.engine.settings.hotplug);
                    self.destroy(around);
                    info!("{}: gone", self.id);
                }
            }
        }
        let told = self.settle_debts(around).map_err(VifError::from);
        if connects { told.and(self.try_to_connect(around)) } else { told }
    }

    /// Removes everything of the vif from this machine. If its interface cannot be removed, the
    /// journal stays, by which that is tried again.
    fn destroy(&mut self, around: &mut Surroundings<'_>) {
        match self.link.port().map(|port| port.remove()) {
            Some(Err(e)) if !is_no_more(&e) => warn!("{}: {e}", self.id),
            _ => around.engine.journals.forget(self.id),
        }
    }

    /// Takes the rate limit that the toolstack set. A value that cannot be read sets no limit.
    fn look_at_rate(&mut self, around: &mut Surroundings<'_>) -> Result<(), VifError> {
        let path = format!("{}/{}", self.path, keys::RATE);
        let text = around.store.read_text(&path)?;
        let rate = match text.as_deref().map(Rate::parse) {
            None => None,
            Some(Ok(rate)) => rate,
            Some(Err(expected)) => {
                let found = text.unwrap_or_default();
                let error = VifError::Key { path, found: shown(&found), expected };
                self.report(&error, around);
                None
            }
        };
        self.link.set_rate(rate, &around.engine.workers);
        Ok(())
    }

    /// Writes one line for the operator, and a node for the toolstack and the guest.
    fn report(&mut self, error: &VifError, around: &mut Surroundings<'_>) {
        let id = self.id;
        self.link.say(|held| warn!("{id}: {error}{held}"));
        // The log has the error already, so a failure of the store costs nothing.
        let _ = write_error(around.store, &self.path, &error.to_string());
    }

    /// Returns true if the vif is to be forgotten: it is gone, and the store has its last state.
    pub fn is_gone(&self) -> bool {
        self.machine.is_gone() && !self.owes()
    }

    /// Returns true if packets may flow.
    pub fn is_connected(&self) -> bool {
        self.machine.is_connected() && self.link.served().is_some()
    }

    /// Returns what the vif has on this machine.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Returns how the checksums of its frames are, by the mark that was read last.
    pub fn checksums(&self) -> Checksums {
        self.checksums
    }
}

/// Releases what is left of a vif that no longer exists. No backend ran when its toolstack removed
/// it, or its interface could not be removed.
///
/// # Errors
///
/// The interface or the journal cannot be had now. The journal stays, so that this can be tried
/// again.
pub(crate) fn remove_remains(id: VifId, around: &mut Surroundings<'_>) -> Result<(), VifError> {
    let Some(left) = around.engine.journals.left_off(id)? else { return Ok(()) };
    if left.interface.is_some() {
        let request = PortRequest {
            vif: id,
            name: id.to_string(),
            mtu: 1500,
            interface: left.interface,
            fresh: false,
            queues: around.engine.settings.queues,
            scripted: true,
        };
        match (around.open_port)(&request).and_then(|mut port| port.remove()) {
            Err(e) if !is_no_more(&e) => return Err(e.into()),
            _ => {}
        }
    }
    around.engine.journals.forget(id);
    info!("{id}: what was left of it is taken down");
    Ok(())
}

/// Returns true if the interface does not exist, or is not ours because ours was deleted.
fn is_no_more(error: &PortError) -> bool {
    matches!(error, PortError::Gone { .. } | PortError::Tap(TapError::NotATap { .. }))
}

/// Fails for a vif that a driver of the kernel holds: both would answer its guest.
fn kernel_keeps_off(id: VifId) -> Result<(), VifError> {
    let name = format!("vif-{}-{}", id.domain, id.devid);
    let driver = Path::new("/sys/bus/xen-backend/devices").join(&name).join("driver");
    let Ok(target) = std::fs::read_link(driver) else { return Ok(()) };
    let driver = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Err(VifError::Claimed { name, driver })
}

/// Writes the reason why a vif is not served into the node `error`, which the toolstack reads.
/// Nothing is written if the toolstack has removed the folder.
pub(crate) fn write_error(
    store: &mut dyn Store,
    path: &str,
    error: &str,
) -> Result<(), PlatformError> {
    let state = format!("{path}/{}", keys::STATE);
    transaction(store, |store| match store.read_text(&state)? {
        Some(_) => store.write(&format!("{path}/error"), error.as_bytes()),
        None => Ok(()),
    })
}

/// Returns the token of a vif's watch on its frontend.
pub(crate) fn token(id: VifId) -> String {
    format!("frontend/{}/{}", id.domain, id.devid)
}

//! A host, a guest with the real frontend, and the backend by hand.

use super::server::{Rings, Server};
use super::{GUARD, frame};
use grantway_embedded::{Domain, DomainTable, Host, HostConfig, HostGuard, Role};
use grantway_frontend::{Policy, Vif, VifError, VifStatus, Wishes};
use grantway_hypervisor::{DomId, Permission, Platform, Rights, Store};
use grantway_netif::{Offload, XenbusState};
use std::sync::Arc;
use std::time::Instant;

pub const GUEST: DomId = DomId(7);
/// The backend's domain: a driver domain, which can do less than domain 0.
pub const BACK: DomId = DomId(3);
/// The driver domain that takes the place of one that crashed.
pub const NEXT: DomId = DomId(4);

pub struct World {
    pub vif: Vif,
    pub server: Server,
    pub guest: Arc<Domain>,
    pub tools: Arc<Domain>,
    pub toolstack: Box<dyn Store>,
    pub host: HostGuard,
    _folder: tempfile::TempDir,
}

impl World {
    /// Makes a world whose vif asks for grant copy.
    pub fn new() -> Self {
        Self::with(Wishes { policy: Policy::Copy, ..Wishes::default() })
    }

    pub fn with(wishes: Wishes) -> Self {
        Self::on(HostConfig::default(), wishes)
    }

    pub fn on(config: HostConfig, wishes: Wishes) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::spawn_with(folder.path(), config).unwrap();
        let tools = Domain::connect(folder.path(), DomId(0), Role::Service).unwrap();
        for (id, name) in [(GUEST, "guest"), (BACK, "back"), (NEXT, "next")] {
            tools.create_domain(id, name).unwrap();
        }
        let mut toolstack = tools.store().unwrap();
        let (front, back) = paths();
        attach(toolstack.as_mut(), 0, BACK);
        let guest = Domain::connect(folder.path(), GUEST, Role::Guest).unwrap();
        let domain = Domain::connect(folder.path(), BACK, Role::Service).unwrap();
        let server = Server::new(domain, GUEST, &front, &back);
        let platform: Arc<dyn Platform> = Arc::<Domain>::clone(&guest);
        let vif = Vif::open(platform, 0, wishes).unwrap();
        Self { vif, server, guest, tools, toolstack, host, _folder: folder }
    }

    /// Makes both folders as a toolstack makes them.
    pub fn attach(&mut self) {
        attach(self.toolstack.as_mut(), 0, BACK);
    }

    /// Makes the guest's folder anew with a backend in another domain, in place of one whose domain
    /// went, and puts that backend in place of the server.
    pub fn replace(&mut self) -> Server {
        let _ = self.toolstack.remove(&paths().1);
        attach(self.toolstack.as_mut(), 0, NEXT);
        let domain = Domain::connect(self.host.dir(), NEXT, Role::Service).unwrap();
        let (front, back) = paths_of(0, NEXT);
        std::mem::replace(&mut self.server, Server::new(domain, GUEST, &front, &back))
    }

    /// Makes another vif of the guest's, with a backend by hand in the same domain.
    pub fn another(&mut self, devid: u32) -> (Vif, Server) {
        attach(self.toolstack.as_mut(), devid, BACK);
        let (front, back) = paths_of(devid, BACK);
        let server = Server::new(Arc::clone(&self.server.domain), GUEST, &front, &back);
        let platform: Arc<dyn Platform> = Arc::<Domain>::clone(&self.guest);
        (Vif::open(platform, devid, Wishes::default()).unwrap(), server)
    }

    /// Returns a second handle of the backend's domain, for access to the guest's pages while its
    /// own end is in use.
    pub fn other_end(&self) -> Server {
        let (front, back) = paths();
        Server::new(Arc::clone(&self.server.domain), GUEST, &front, &back)
    }

    /// Returns another backend process, in place of one that died.
    pub fn other_server(&mut self) -> Server {
        let (front, back) = paths();
        let domain = Domain::connect(self.host.dir(), BACK, Role::Service).unwrap();
        Server::new(domain, GUEST, &front, &back)
    }

    /// Lets the frontend look at the store.
    #[track_caller]
    pub fn look(&mut self) -> VifStatus {
        // The host is one thread: with this answer all earlier events are out.
        let _ = self.toolstack.read("/local");
        loop {
            let status = self.vif.store_changed().unwrap();
            if !self.vif.has_changes() {
                return status;
            }
        }
    }

    /// Looks until the frontend has this status.
    #[track_caller]
    pub fn until(&mut self, status: VifStatus) {
        let start = Instant::now();
        loop {
            let found = self.look();
            if found == status {
                return;
            }
            let shown = self.server.front_state();
            assert!(
                start.elapsed() < GUARD,
                "{found:?} ({shown:?}), expected {status:?} within {GUARD:?}"
            );
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
    }

    /// Looks until the frontend shows this state.
    #[track_caller]
    pub fn until_shown(&mut self, state: XenbusState) {
        let start = Instant::now();
        loop {
            let status = self.look();
            let found = self.server.front_state();
            if found == Some(state) {
                return;
            }
            assert!(
                start.elapsed() < GUARD,
                "shows {found:?} ({status:?}), expected {state} within {GUARD:?}; it says {:?}",
                self.vif.take_failure(),
            );
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
    }

    /// Makes a world whose backend offers `queues` queues, and whose frontend wishes for as many.
    pub fn of_queues(queues: u16) -> Self {
        let mut world = Self::with(Wishes { queues, ..Wishes::default() });
        world.server.key("multi-queue-max-queues", queues.to_string().as_bytes());
        world
    }

    /// Does the handshake by the rules, from any state of both ends.
    #[track_caller]
    pub fn connect(&mut self) -> Rings {
        self.published();
        self.connect_as_offered()
    }

    /// Does the rest of the handshake, with the keys that the backend has written already.
    #[track_caller]
    pub fn connect_as_offered(&mut self) -> Rings {
        self.until_shown(XenbusState::Connected);
        let rings = self.server.attach();
        self.server.state(XenbusState::Connected);
        self.until(VifStatus::Connected);
        rings
    }

    /// Does the handshake of [`World::connect`] with several queues.
    #[track_caller]
    pub fn connect_all(&mut self) -> Vec<Rings> {
        self.published();
        let count = self.server.front_key("multi-queue-num-queues").unwrap().parse().unwrap();
        let rings = (0..count).map(|number| self.server.attach_queue(number)).collect();
        self.server.state(XenbusState::Connected);
        self.until(VifStatus::Connected);
        rings
    }

    /// Offers, and waits until the frontend has published its rings.
    #[track_caller]
    pub fn published(&mut self) {
        self.begins_anew();
        self.server.offer();
        self.until_shown(XenbusState::Connected);
    }

    /// Brings the frontend from any state to waiting for an offer.
    #[track_caller]
    pub fn begins_anew(&mut self) {
        if !matches!(self.server.front_state(), Some(XenbusState::Initialising)) {
            self.server.state(XenbusState::Closing);
            self.look();
            self.server.state(XenbusState::Closed);
            self.tries_again();
            self.until_shown(XenbusState::Initialising);
        }
    }

    /// Has the frontend go on where the backend closed what it had not connected.
    #[track_caller]
    pub fn tries_again(&mut self) {
        if self.look() == VifStatus::Held {
            self.vif.restart().unwrap();
        }
    }

    /// Carries a frame each way.
    #[track_caller]
    pub fn works(&mut self, rings: &mut Rings) {
        let bytes = frame(100, 3);
        self.vif.send(&bytes, Offload::default()).unwrap();
        self.vif.flush().unwrap();
        assert_eq!(rings.serve_tx().0, 1);
        let reaped = self.vif.reap().unwrap();
        assert_eq!(reaped, 1, "{:?}", self.vif.take_failure());
        rings.deliver(&self.server, &bytes);
        let mut buffer = vec![0; 65_536];
        let received = self.vif.recv(&mut buffer).unwrap();
        let received = received.unwrap_or_else(|| panic!("{:?}", self.vif.take_failure()));
        assert_eq!(buffer[..received.len], bytes);
        self.vif.arm().unwrap();
    }

    /// Checks that the frontend found the backend out: it closed, says why, and serves a backend
    /// that keeps to the rules afterwards.
    #[track_caller]
    pub fn closed_for(&mut self, rings: Rings, why: &str) {
        assert_eq!(self.vif.status(), VifStatus::Held, "it did not notice");
        let said = match self.vif.take_failure() {
            Some(said @ (VifError::Peer { .. } | VifError::Control { .. })) => said.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(said.contains(why), "{said:?} does not tell of {why:?}");
        assert_eq!(self.server.front_state(), Some(XenbusState::Closing));
        // Nothing moves any more.
        let refused = self.vif.send(&frame(60, 0), Offload::default());
        assert_eq!(refused, Err(grantway_frontend::SendError::Full));
        assert_eq!(self.vif.recv(&mut [0; 100]).unwrap(), None);
        self.comes_back(rings);
    }

    /// Begins anew after a failure: the backend lets go first.
    #[track_caller]
    pub fn comes_back(&mut self, rings: Rings) {
        self.server.detach(rings);
        self.vif.restart().unwrap();
        let mut rings = self.connect();
        self.works(&mut rings);
        self.ends(rings);
    }

    /// Closes in order, and checks that nothing of the guest's is left in force.
    #[track_caller]
    pub fn ends(&mut self, rings: Rings) {
        self.all_end([rings]);
    }

    /// Closes as [`World::ends`] does, with several queues.
    #[track_caller]
    pub fn all_end(&mut self, rings: impl IntoIterator<Item = Rings>) {
        rings.into_iter().for_each(|rings| self.server.detach(rings));
        self.vif.shutdown().unwrap();
        self.server.state(XenbusState::Closing);
        self.look();
        self.server.state(XenbusState::Closed);
        self.until(VifStatus::Gone);
        self.nothing_is_lent();
    }

    #[track_caller]
    pub fn nothing_is_lent(&self) {
        let counters = self.guest.counters();
        assert_eq!((counters.granted, counters.deferred), (0, 0), "{counters:?}");
        let table = self.table();
        let left = (table.grants, table.grants_held, table.ports_bound, table.ports_unbound);
        assert_eq!(left, (0, 0, 0, 0), "{table:?}");
    }

    pub fn table(&self) -> DomainTable {
        self.tools.host_tables().unwrap().domain(GUEST.0).cloned().unwrap()
    }
}

pub fn paths() -> (String, String) {
    paths_of(0, BACK)
}

fn paths_of(devid: u32, backend: DomId) -> (String, String) {
    (
        format!("/local/domain/{GUEST}/device/vif/{devid}"),
        format!("/local/domain/{backend}/backend/vif/{GUEST}/{devid}"),
    )
}

fn attach(store: &mut dyn Store, devid: u32, backend: DomId) {
    let (front, back) = paths_of(devid, backend);
    for (path, owner, reader) in [(&front, GUEST, backend), (&back, backend, GUEST)] {
        let _ = store.remove(path);
        store.write(path, b"").unwrap();
        let permissions = [
            Permission { domain: owner, rights: Rights::None },
            Permission { domain: reader, rights: Rights::Read },
        ];
        store.set_permissions(path, &permissions).unwrap();
    }
    write(store, &back, &[("frontend", &front), ("frontend-id", "7"), ("online", "1")]);
    write(store, &front, &[("backend", &back), ("backend-id", &backend.to_string())]);
    write(store, &front, &[("mac", "00:16:3e:00:00:01"), ("state", "1")]);
    write(store, &back, &[("state", "1")]);
}

fn write(store: &mut dyn Store, path: &str, keys: &[(&str, &str)]) {
    for (key, value) in keys {
        store.write(&format!("{path}/{key}"), value.as_bytes()).unwrap();
    }
}

//! The machine, and what must hold of it after every attack.

use super::control::{Control, Setup, Time};
use super::honest::Honest;
use super::hostile::Hostile;
use super::port::{Behind, Inner, Ports};
use super::toolstack::Toolstack;
use super::{eventually, panics};
use grantway_backend::policy::PolicyLimits;
use grantway_backend::{Checksums, Meter, Patience, VifId, WaitMode};
use grantway_embedded::{Domain, DomainTable, Host, HostGuard, Role};
use grantway_hypervisor::DomId;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Workers of a bridge: one, and as many as hand the frames of three guests to each other.
pub const CREWS: [usize; 2] = [1, 3];
pub const HONEST: VifId = VifId { domain: DomId(7), devid: 0 };
pub const GUEST: VifId = VifId { domain: DomId(9), devid: 0 };
/// No frame is dropped and no carrier goes because a machine ran a guest's thread too late.
/// What time does to waiting frames has tests of its own (`threats/patience.rs`).
const ENDLESS: Patience = Patience { drain: DAY, stall: Some(DAY) };
const DAY: Duration = Duration::from_secs(86_400);
const FRESH: VifId = VifId { domain: DomId(20), devid: 0 };

pub struct World {
    pub honest: Option<Honest>,
    pub control: Option<Control>,
    pub toolstack: Toolstack,
    pub ports: Arc<Ports>,
    pub setup: Setup,
    pub tools: Arc<Domain>,
    guests: Vec<VifId>,
    watches_before: u32,
    // Last: the host outlives what it hosts.
    _host: HostGuard,
    _folders: [tempfile::TempDir; 2],
}

impl World {
    pub fn new() -> Self {
        Self::with(DomId(0), WaitMode::Interrupt, false)
    }

    /// Starts a world with the backend's own bridge, one worker, and no honest vif.
    pub fn bridged() -> Self {
        Self::bridged_by(1)
    }

    /// Starts a world with the backend's own bridge, `workers` workers (see [`CREWS`]), and no
    /// honest vif.
    pub fn bridged_by(workers: usize) -> Self {
        Self::bare(DomId(0), WaitMode::Interrupt, false, true, workers)
    }

    /// Starts a world with or without the bridge, and with no honest vif, which would be one
    /// more neighbour.
    pub fn of_workers(workers: usize, mode: WaitMode, bridged: bool) -> Self {
        Self::bare(DomId(0), mode, false, bridged, workers)
    }

    pub fn with(backend: DomId, mode: WaitMode, hotplug: bool) -> Self {
        Self::bare(backend, mode, hotplug, false, 1).with_honest()
    }

    /// Starts a world whose backend has no threads. This meter counts the work of its worker.
    pub fn counted(bridged: bool, meter: Meter) -> Self {
        let mut world = Self::bare(DomId(0), WaitMode::Interrupt, false, bridged, 1);
        world.setup.time = Time::Counted(meter);
        world.restart();
        world
    }

    /// Starts a world whose backend has this patience with guests that post no pages. Time
    /// stands still, except for [`Control::passes`].
    pub fn patient(patience: Patience) -> Self {
        let mut world = Self::bare(DomId(0), WaitMode::Interrupt, false, false, 1);
        world.setup.patience = patience;
        world.setup.time = Time::Stands;
        world.restart();
        world.with_honest()
    }

    fn with_honest(mut self) -> Self {
        self.begins_beside();
        self
    }

    /// The honest vif begins.
    pub fn begins_beside(&mut self) {
        let domain = self.boot(HONEST.domain);
        self.attach(HONEST, &[]);
        self.honest = Some(Honest::start(domain, self.ports.of(HONEST)));
    }

    fn bare(backend: DomId, mode: WaitMode, hotplug: bool, bridged: bool, workers: usize) -> Self {
        panics::watch();
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let dir = folders[0].path().to_owned();
        let host = Host::spawn(&dir).unwrap();
        let tools = Domain::connect(&dir, DomId(0), Role::Service).unwrap();
        if backend != DomId(0) {
            tools.create_domain(backend, "driver").unwrap();
        }
        let ports = Arc::new(Ports::default());
        let run_folder = folders[1].path().to_owned();
        let queues = 4;
        let ports_too = Arc::clone(&ports);
        let setup = Setup {
            dir,
            run_folder,
            domain: backend,
            mode,
            workers,
            faults: Arc::default(),
            queues,
            bridged,
            by_rules: false,
            own: None,
            checksums: Checksums::Offload,
            patience: ENDLESS,
            // Nor is a list refused because a worker's turn was long.
            policy: PolicyLimits { lease: super::PROMPT, ..PolicyLimits::default() },
            hotplug,
            plugged: Arc::default(),
            ports: ports_too,
            time: Time::Passes,
        };
        let toolstack = Toolstack::new(&tools, backend);
        let mut world = Self {
            honest: None,
            control: Some(Control::start(&setup)),
            toolstack,
            ports,
            setup,
            tools,
            guests: Vec::new(),
            watches_before: 0,
            _host: host,
            _folders: folders,
        };
        world.watches_before = world.table(backend).store_watches;
        world
    }

    pub fn control(&self) -> &Control {
        self.control.as_ref().unwrap()
    }

    pub fn honest(&self) -> &Honest {
        self.honest.as_ref().unwrap()
    }

    /// Starts a process of the domain, and makes the domain before if it is missing.
    pub fn boot(&self, id: DomId) -> Arc<Domain> {
        self.tools.create_domain(id, &format!("guest-{id}")).unwrap();
        Domain::connect(&self.setup.dir, id, Role::Guest).unwrap()
    }

    pub fn attach(&mut self, vif: VifId, more: &[(&str, &str)]) {
        let hotplug = [("script", "vif-bridge"), ("hotplug-status", "connected")];
        let mut keys: Vec<_> = if self.setup.hotplug { hotplug.to_vec() } else { Vec::new() };
        keys.retain(|(key, _)| !more.iter().any(|(other, _)| other == key));
        keys.extend_from_slice(more);
        self.toolstack.attach(vif, &keys);
    }

    /// A guest by hand with a vif that is attached.
    pub fn guest(&mut self) -> Hostile {
        self.guest_of(GUEST)
    }

    pub fn guest_of(&mut self, vif: VifId) -> Hostile {
        let domain = self.boot(vif.domain);
        self.vif_of(domain, vif)
    }

    /// Attaches one more vif of a guest.
    pub fn vif_of(&mut self, domain: Arc<Domain>, vif: VifId) -> Hostile {
        self.vif_with(domain, vif, &[])
    }

    /// Attaches one more vif of a guest, with these nodes in the backend's folder.
    pub fn vif_with(&mut self, domain: Arc<Domain>, vif: VifId, nodes: &[(&str, &str)]) -> Hostile {
        self.attach(vif, nodes);
        self.guests.push(vif);
        Hostile::new(domain, vif, self.setup.domain)
    }

    /// Knows of a vif that a test attached itself.
    pub fn expects(&mut self, vif: VifId) {
        self.guests.push(vif);
    }

    pub fn behind(&self, vif: VifId) -> Arc<Behind> {
        self.ports.of(vif)
    }

    pub fn table(&self, domain: DomId) -> DomainTable {
        let tables = self.tools.host_tables().unwrap();
        tables.domain(domain.0).cloned().unwrap_or_default()
    }

    /// Waits until nobody holds a page or has a port of a guest's.
    #[track_caller]
    pub fn holds_nothing_of(&self, domain: DomId) {
        let what = format!("nothing of domain {domain} is held");
        let mut last = None;
        let start = Instant::now();
        loop {
            let table = self.table(domain);
            if (table.grants_held, table.ports_bound) == (0, 0) {
                return;
            }
            last.replace(table);
            assert!(start.elapsed() < super::PROMPT, "not so: {what}: {last:#?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Drops the backend between two turns and starts another.
    pub fn restart(&mut self) {
        self.stop();
        self.start();
    }

    /// Lets time pass, which otherwise stands still. The honest vif rests meanwhile: its frames
    /// on the way would be as old at once.
    #[track_caller]
    pub fn passes(&self, time: Duration) {
        match &self.honest {
            Some(honest) => honest.rests_while(|| self.control().passes(time)),
            None => self.control().passes(time),
        }
    }

    /// Waits until the backend has looked at everything that was written into
    /// the store before.
    #[track_caller]
    pub fn settle(&mut self) {
        // The host is one thread: with this answer all earlier events are out.
        let _ = self.toolstack.read("/local");
        // A job comes behind a step, which may have begun before.
        self.control().with(|_| ());
        self.control().with(|_| ());
    }

    /// Waits until the backend has ended by itself; why.
    #[track_caller]
    pub fn falls(&mut self) -> String {
        self.control.take().unwrap().falls()
    }

    pub fn stop(&mut self) {
        self.control.take().unwrap().kill().unwrap();
    }

    pub fn start(&mut self) {
        self.control = Some(Control::start(&self.setup));
    }

    /// Checks what must hold after every attack: the backend serves the honest vif, serves a
    /// new one, lets go of everything once the vifs are detached, and nobody panicked.
    #[track_caller]
    pub fn stands(self) {
        self.stands_and(|honest| honest.lost_nothing());
    }

    /// Checks the same as [`World::stands`], except that `judge` decides which frames the
    /// honest vif may have lost.
    #[track_caller]
    pub fn stands_and(mut self, judge: impl FnOnce(&Honest)) {
        assert!(self.control().is_alive(), "the backend ended");
        self.honest().carries(32);
        self.serves_a_new_vif();
        let guests = std::mem::take(&mut self.guests);
        for &vif in &guests {
            self.detaches(vif);
        }
        for vif in guests {
            self.holds_nothing_of(vif.domain);
        }
        judge(self.honest());
        self.toolstack.ask_to_close(HONEST);
        self.toolstack.await_closed(HONEST);
        self.detaches(HONEST);
        self.holds_nothing_of(HONEST.domain);
        self.honest.take().unwrap().leave();
        assert!(self.control().report().is_empty(), "{:?}", self.control().report());
        assert_eq!(self.control().counters().mapped, 0, "pages stayed mapped");
        let watches = self.table(self.setup.domain).store_watches;
        assert_eq!(watches, self.watches_before, "watches leaked");
        if let Ok(left) = std::fs::read_dir(self.journals()) {
            let left: Vec<_> = left.collect();
            assert!(left.is_empty(), "journals left: {left:?}");
        }
        self.control.take().unwrap().kill().unwrap();
        panics::none();
    }

    /// Every guest of a bridge goes, and leaves nothing.
    pub fn bridge_stands(mut self) {
        for vif in std::mem::take(&mut self.guests) {
            self.toolstack.ask_to_close(vif);
            self.toolstack.await_closed(vif);
            self.detaches(vif);
        }
        assert!(self.control().report().is_empty(), "{:?}", self.control().report());
        assert_eq!(self.control().counters().mapped, 0, "pages stayed mapped");
        self.control.take().unwrap().kill().unwrap();
        panics::none();
    }

    /// Returns the folder of the backend's journals.
    fn journals(&self) -> PathBuf {
        self.setup.run_folder.join(format!("backend-{}", self.setup.domain))
    }

    /// The journal of a vif.
    pub fn journal(&self, vif: VifId) -> PathBuf {
        self.journals().join(format!("{vif}.journal"))
    }

    #[track_caller]
    fn serves_a_new_vif(&mut self) {
        let domain = self.boot(FRESH.domain);
        self.attach(FRESH, &[]);
        let fresh = Honest::start(domain, self.ports.of(FRESH));
        fresh.carries(16);
        fresh.lost_nothing();
        self.toolstack.ask_to_close(FRESH);
        self.toolstack.await_closed(FRESH);
        self.detaches(FRESH);
        fresh.leave();
    }

    /// Takes a vif away, as `xl network-detach` does with a guest that does
    /// not help, and looks that nothing is left of it.
    #[track_caller]
    pub fn detaches(&mut self, vif: VifId) {
        self.toolstack.ask_to_close(vif);
        self.toolstack.remove_both(vif);
        eventually("the backend's forgetting of the vif", || {
            self.control().report_of(vif).is_none().then_some(())
        });
        // A worker's word of a failure may still be on its way with the port.
        eventually("the ports of the vif are given up for good", || {
            let ports = self.ports.ever(vif);
            let gone = |inner: &Inner| (inner.handles, inner.removed) == (0, inner.opened);
            ports.iter().all(|behind| gone(&behind.look())).then_some(())
        });
        let back = self.toolstack.back(vif);
        let said = self.toolstack.backend_key(vif, "error");
        assert_eq!(self.toolstack.read(&back), None, "{back} came back to life: {said:?}");
    }
}

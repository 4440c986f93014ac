//! A backend that is handed its rings. It has a platform without a store, and its guests have none
//! either: each shows its rings to the test, which hands them on.

mod support;

use grantway_backend::{
    BackendConfig, Checksums, CtrlRefs, FrontendKeys, HandedVif, MAX_QUEUES, QueueRefs, Rate,
    RingServer, Settings, VifError, VifId, policy::Policy,
};
use grantway_embedded::{Domain, Host, HostGuard, Role};
use grantway_hypervisor::{
    Access, Apart, Arena, BackendPlatform, CopyOp, DomId, Error, EventChannels, FrontendPlatform,
    GrantRef, Granted, Mapper, Platform, Port as EventPort,
};
use grantway_netif::Offload;
use grantway_netif::ctrl::{CtrlResponse, GrefEntry, GrefFlags, Message, Status};
use grantway_netif::rx::RxRequest;
use grantway_netif::tx::{TxFlags, TxRequest};
use grantway_ports::{
    Echo, FrameMeta, Port, PortCaps, PortControl, PortError, PortReport, Probe, Readiness,
    SendError,
};
use grantway_ring::{Front, Index, RingMemory, RingPage, SharedRun};
use grantway_vector::Secret;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;
use support::eventually;
use support::hostile::frame;
use support::rings::Rings;

const BACKEND: DomId = DomId(0);
/// Most queues of a vif.
const QUEUES: usize = 3;
/// Bytes of each frame.
const BYTES: usize = 300;

/// The devices of a domain, without its store.
struct Devices(Arc<Domain>);

impl Mapper for Devices {
    fn map(&self, peer: DomId, grefs: &[GrantRef], access: Access) -> Result<SharedRun, Error> {
        self.0.map(peer, grefs, access)
    }

    fn apart(&self, peer: DomId) -> Option<Apart> {
        self.0.apart(peer)
    }

    fn copy(&self, arena: &mut [u8], ops: &mut [CopyOp]) -> Result<(), Error> {
        self.0.copy(arena, ops)
    }

    fn arena(&self, bytes: usize) -> Option<Arena> {
        self.0.arena(bytes)
    }
}

impl BackendPlatform for Devices {
    fn events(&self) -> Result<Box<dyn EventChannels>, Error> {
        self.0.events()
    }
}

/// A machine with a server whose workers have no threads.
struct Machine {
    server: Option<RingServer>,
    domain: Arc<Domain>,
    // Last: the host outlives what it hosts.
    _host: HostGuard,
    folders: [tempfile::TempDir; 2],
}

impl Machine {
    fn new() -> Self {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let host = Host::spawn(folders[0].path()).unwrap();
        let domain = Domain::connect(folders[0].path(), BACKEND, Role::Service).unwrap();
        let mut machine = Self { server: None, domain, _host: host, folders };
        machine.start();
        machine
    }

    fn start(&mut self) {
        let config = BackendConfig {
            settings: Settings { queues: QUEUES as u32, ..Settings::default() },
            threads: false,
            ..BackendConfig::new(self.folders[1].path(), Secret::random().unwrap())
        };
        let devices = Arc::new(Devices(Arc::clone(&self.domain)));
        self.server = Some(RingServer::start(devices, BACKEND, config).unwrap());
    }

    /// Ends the server as a kill does: nothing is told to a guest, and the journals stay.
    fn kill(&mut self) {
        self.server = None;
    }

    fn server(&mut self) -> &mut RingServer {
        self.server.as_mut().unwrap()
    }

    /// Lets the server work until `look` gives something. No vif may fail meanwhile.
    #[track_caller]
    fn until<T>(&mut self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        eventually(what, || {
            let failed = self.server().step().unwrap();
            assert!(failed.is_empty(), "{failed:?}");
            while self.server().serve().unwrap() {}
            look()
        })
    }

    /// Lets the server work until a vif fails.
    #[track_caller]
    fn failed(&mut self) -> (VifId, VifError) {
        eventually("a failure", || {
            while self.server().serve().unwrap() {}
            self.server().step().unwrap().pop()
        })
    }

    fn mapped(&self) -> u64 {
        self.domain.counters().mapped
    }
}

/// A guest with its rings made by hand, and pages for one frame each.
struct Guest {
    id: VifId,
    domain: Arc<Domain>,
    events: Box<dyn EventChannels>,
    queues: Vec<Rings>,
    ctrl: Option<(Granted, Front<RingPage<4>, 4>, CtrlRefs)>,
    pages: Granted,
}

/// Pages of a guest: the first half is sent, the second half is posted.
const PAGES: usize = 64;

impl Guest {
    fn new(machine: &Machine, number: u16, queues: usize) -> Self {
        let id = VifId { domain: DomId(number), devid: 0 };
        machine.domain.create_domain(id.domain, "guest").unwrap();
        let dir = machine.folders[0].path();
        let domain = Domain::connect(dir, id.domain, Role::Guest).unwrap();
        let mut events = domain.events().unwrap();
        let mut rings = || Rings::new(domain.as_ref(), events.as_mut(), BACKEND);
        let queues = (0..queues).map(|_| rings()).collect();
        let pages = domain.grant(BACKEND, PAGES, Access::ReadWrite).unwrap();
        Self { id, domain, events, queues, ctrl: None, pages }
    }

    fn with_ctrl(mut self) -> Self {
        let page = self.domain.grant(BACKEND, 1, Access::ReadWrite).unwrap();
        let event = self.events.alloc_unbound(BACKEND).unwrap();
        let front = Front::init(RingPage::new(page.run.page(0).unwrap()));
        let refs = CtrlRefs { ring: page.grefs[0], event };
        self.ctrl = Some((page, front, refs));
        self
    }

    /// Describes the vif as the guest shows it.
    fn vif(&self) -> HandedVif {
        let refs = |rings: &Rings| QueueRefs {
            tx_ring: rings.tx_ring.grefs[0],
            rx_ring: rings.rx_ring.grefs[0],
            tx_event: rings.tx_event,
            rx_event: Some(rings.rx_event),
        };
        let mut keys = FrontendKeys::new(self.queues.iter().map(refs).collect());
        keys.ctrl = self.ctrl.as_ref().map(|(_, _, refs)| *refs);
        keys.scatter_gather = true;
        HandedVif::new(self.id, keys)
    }

    /// Posts pages on a queue, and sends as many frames.
    fn sends(&mut self, queue: usize, count: usize) {
        let rings = &mut self.queues[queue];
        let posted = (0..count).map(|n| {
            let gref = self.pages.grefs[PAGES / 2 + n].0;
            RxRequest { id: rings.rx_prod.wrapping_add(n as u32) as u16, gref }
        });
        rings.put_rx(&posted.collect::<Vec<_>>());
        let sent = (0..count).map(|n| {
            self.pages.run.page(n).unwrap().write(0, &numbered(n)).unwrap();
            let (gref, flags) = (self.pages.grefs[n].0, TxFlags::empty());
            TxRequest { gref, offset: 0, flags, id: n as u16, size: BYTES as u16 }.to_words()
        });
        rings.put_tx(&sent.collect::<Vec<_>>());
        for port in [rings.rx_event, rings.tx_event] {
            self.events.notify(port).unwrap();
        }
    }

    /// Checks that each frame that was sent has come back.
    #[track_caller]
    fn has_all_back(&mut self, machine: &mut Machine, queue: usize, count: usize) {
        let rings = &mut self.queues[queue];
        let (mut sent, mut back) = (Vec::new(), Vec::new());
        machine.until("the frames are back", || {
            sent.extend(rings.tx_answers());
            back.extend(rings.rx_answers());
            (sent.len() >= count && back.len() >= count).then_some(())
        });
        assert_eq!((sent.len(), back.len()), (count, count));
        assert!(sent.iter().all(|answer| answer.status == 0), "{sent:?}");
        for (n, answer) in back.iter().enumerate() {
            assert_eq!(i32::from(answer.status), BYTES as i32, "{answer:?}");
            let mut bytes = [0; BYTES];
            let page = self.pages.run.page(PAGES / 2 + n).unwrap();
            page.read(answer.offset.into(), &mut bytes).unwrap();
            assert!(bytes[..] == numbered(n), "frame {n} is another one");
        }
    }

    /// Sends frames, and checks that each comes back.
    #[track_caller]
    fn is_served(&mut self, machine: &mut Machine, queue: usize, count: usize) {
        self.sends(queue, count);
        self.has_all_back(machine, queue, count);
    }

    /// Shows an impossible index on a queue's transmit ring.
    fn breaks(&mut self, queue: usize) {
        let rings = &self.queues[queue];
        rings.tx.store(Index::ReqProd, rings.tx_prod.wrapping_add(5000));
        self.events.notify(rings.tx_event).unwrap();
    }

    /// Makes other rings and event channels in place of those that it had.
    fn comes_anew(&mut self) {
        for rings in &mut self.queues {
            *rings = Rings::new(self.domain.as_ref(), self.events.as_mut(), BACKEND);
        }
    }

    /// Asks by the control ring, and returns the answer.
    #[track_caller]
    fn asks(&mut self, machine: &mut Machine, message: Message) -> Result<u32, Status> {
        let (_, front, refs) = self.ctrl.as_mut().unwrap();
        front.push(message.request(1).to_words()).unwrap();
        let _ = front.publish();
        self.events.notify(refs.event).unwrap();
        machine.until("an answer", || {
            let (_, words) = front.pop().unwrap()?;
            let answer = CtrlResponse::from_words(words);
            Some(match answer.status().unwrap() {
                Status::Success => Ok(answer.data),
                status => Err(status),
            })
        })
    }
}

fn numbered(number: usize) -> Vec<u8> {
    let mut bytes = frame(BYTES);
    bytes[20] = number as u8;
    bytes
}

fn echo() -> Box<dyn Port> {
    Box::new(Echo::new())
}

#[test]
fn frames_cross_both_ways_on_each_queue() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 2);
    machine.server().attach(guest.vif(), echo()).unwrap();
    for queue in [0, 1, 0] {
        guest.is_served(&mut machine, queue, 20);
    }
    let report = machine.server().report().next().unwrap();
    assert_eq!((report.vif, report.connected, report.queues.len()), (guest.id, true, 2));
    assert_eq!((report.stats.tx_packets, report.stats.rx_packets), (60, 60));
    assert_eq!(report.policy, Policy::Copy);
    assert!(machine.server().detach(guest.id).is_some());
    assert_eq!((machine.server().report().count(), machine.mapped()), (0, 0));
    assert!(machine.server().left().is_empty(), "a vif that was detached leaves no journal");
    assert!(machine.server().detach(guest.id).is_none());
}

#[test]
fn a_guest_stages_its_pages_by_its_control_ring() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 1).with_ctrl();
    machine.server().attach(guest.vif(), echo()).unwrap();
    assert!(guest.asks(&mut machine, Message::GetGrefMappingSize { queue: 0 }).unwrap() > 0);
    let list = guest.domain.grant(BACKEND, 1, Access::ReadWrite).unwrap();
    let entry = |gref: &GrantRef| GrefEntry { gref: gref.0, flags: GrefFlags::empty(), status: 0 };
    let words = guest.pages.grefs.iter().map(entry).flat_map(|entry| entry.to_words());
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    list.run.page(0).unwrap().write(0, &bytes).unwrap();
    let (list, entries) = (list.grefs[0].0, PAGES as u32);
    let staged = guest.asks(&mut machine, Message::AddGrefMapping { queue: 0, list, entries });
    assert!(staged.is_ok(), "{staged:?}");
    let copied = machine.domain.counters().copies;
    guest.is_served(&mut machine, 0, 30);
    assert_eq!(machine.domain.counters().copies, copied, "no packet pays a grant operation");
    let report = machine.server().report().next().unwrap();
    assert_eq!((report.policy, report.mapped), (Policy::Staging, PAGES));
    machine.server().detach(guest.id).unwrap();
    assert_eq!(machine.mapped(), 0);
}

#[test]
fn what_cannot_be_attached_is_refused_with_the_reason_and_the_port_comes_back() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 1);
    let good = guest.vif();
    let with = |change: fn(&mut HandedVif)| {
        let mut vif = good.clone();
        change(&mut vif);
        vif
    };
    let cases = [
        (
            with(|vif| vif.keys.queues.clear()),
            "multi-queue-num-queues: found 0, expected a number of queues from 1 to \
             multi-queue-max-queues",
        ),
        (
            with(|vif| vif.keys.queues = vec![vif.keys.queues[0]; QUEUES + 1]),
            "multi-queue-num-queues: found 4, expected a number of queues from 1 to \
             multi-queue-max-queues",
        ),
        (
            with(|vif| vif.headroom = 2049),
            "xdp-headroom: found 2049, expected a number of bytes up to 2048",
        ),
        (with(|vif| vif.keys.queues[0].tx_ring = GrantRef(99_999)), "99999"),
        (with(|vif| vif.keys.queues[0].rx_ring = GrantRef(99_999)), "99999"),
        (with(|vif| vif.keys.queues[0].rx_event = Some(vif.keys.queues[0].tx_event)), "event"),
    ];
    for (vif, expected) in cases {
        let refused = machine.server().attach(vif, echo()).unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
        assert!(refused.port.is_some(), "{refused}");
        assert_eq!((machine.mapped(), machine.server().left()), (0, vec![]), "{refused}");
    }
    machine.server().attach(good.clone(), echo()).unwrap();
    let refused = machine.server().attach(good, echo()).unwrap_err();
    assert_eq!(refused.to_string(), "vif7.0 is attached already; detach it first");
    assert!(refused.port.is_some());
    guest.is_served(&mut machine, 0, 5);
}

#[test]
fn a_guest_that_breaks_a_ring_is_told_once_and_its_neighbour_goes_on() {
    let mut machine = Machine::new();
    let (mut bad, mut worse) = (Guest::new(&machine, 8, 1), Guest::new(&machine, 9, 1).with_ctrl());
    let mut good = Guest::new(&machine, 7, 1);
    for guest in [&bad, &worse, &good] {
        machine.server().attach(guest.vif(), echo()).unwrap();
    }
    good.is_served(&mut machine, 0, 5);
    bad.breaks(0);
    let (id, error) = machine.failed();
    assert!(id == bad.id && matches!(error, VifError::Ring { .. }), "{id}: {error}");
    let (_, front, refs) = worse.ctrl.as_ref().unwrap();
    front.memory().store(Index::ReqProd, 5000);
    worse.events.notify(refs.event).unwrap();
    let (id, error) = machine.failed();
    assert!(id == worse.id && matches!(error, VifError::Control(_)), "{id}: {error}");
    good.is_served(&mut machine, 0, 5);
    assert_eq!(machine.server().left(), [], "a vif that failed leaves nothing to a successor");
    let connected: Vec<bool> = machine.server().report().map(|vif| vif.connected).collect();
    assert_eq!(connected, [true, false, false]);
    // A vif that failed keeps its port until it is detached, and may come again with new rings.
    for id in [bad.id, worse.id] {
        assert!(machine.server().detach(id).is_some());
    }
    bad.queues[0].clear();
    machine.server().attach(bad.vif(), echo()).unwrap();
    bad.is_served(&mut machine, 0, 5);
    good.is_served(&mut machine, 0, 5);
}

#[test]
fn a_successor_continues_what_a_killed_server_left() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 2).with_ctrl();
    machine.server().attach(guest.vif(), echo()).unwrap();
    guest.is_served(&mut machine, 0, 10);
    machine.kill();
    // The guest goes on: its requests wait on the rings.
    guest.sends(1, 10);
    machine.start();
    assert_eq!(machine.server().left(), [(guest.id, None)]);
    let mut other = guest.vif();
    other.keys.queues.reverse();
    let refused = machine.server().resume(other, echo()).unwrap_err();
    assert!(matches!(refused.error, VifError::NotLeft(id) if id == guest.id), "{refused}");
    assert_eq!(machine.server().left(), [(guest.id, None)], "the connection stays in the journal");
    let (vif, mut port) = (guest.vif(), Some(echo()));
    machine_resumes(&mut machine, &vif, &mut port);
    guest.has_all_back(&mut machine, 1, 10);
    guest.is_served(&mut machine, 0, 10);
    assert!(guest.asks(&mut machine, Message::GetGrefMappingSize { queue: 0 }).is_ok());
    machine.server().detach(guest.id).unwrap();
    let refused = machine.server().resume(guest.vif(), echo()).unwrap_err();
    assert!(matches!(refused.error, VifError::NotLeft(_)), "a detached vif left nothing");
}

/// Resumes a vif, again and again as long as the error may pass: the event channels may still be
/// bound to the server that died.
#[track_caller]
fn machine_resumes(machine: &mut Machine, vif: &HandedVif, port: &mut Option<Box<dyn Port>>) {
    eventually("the takeover", || {
        match machine.server().resume(vif.clone(), port.take().unwrap()) {
            Ok(()) => Some(()),
            Err(refused) => {
                assert!(refused.error.may_pass(), "{refused}");
                *port = refused.port;
                None
            }
        }
    });
}

#[test]
fn a_server_that_was_killed_while_it_attached_a_vif_is_succeeded() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 2);
    // The first queue only, as of a server that did not come to the second.
    let mut half = guest.vif();
    half.keys.queues.truncate(1);
    machine.server().attach(half, echo()).unwrap();
    guest.is_served(&mut machine, 0, 10);
    machine.kill();
    machine.start();
    machine_resumes(&mut machine, &guest.vif(), &mut Some(echo()));
    for queue in [0, 1] {
        guest.is_served(&mut machine, queue, 10);
    }
}

#[test]
fn a_connection_of_which_a_queue_had_failed_is_not_continued() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, QUEUES);
    machine.server().attach(guest.vif(), echo()).unwrap();
    guest.is_served(&mut machine, 2, 10);
    guest.breaks(1);
    eventually("the worker's look", || {
        while machine.server().serve().unwrap() {}
        let queues = machine.server().report().next().unwrap().queues.len();
        (queues == QUEUES - 1).then_some(())
    });
    // The worker has told the server, which is killed before it hears of it.
    machine.kill();
    machine.start();
    let refused = machine.server().resume(guest.vif(), echo()).unwrap_err();
    assert!(matches!(refused.error, VifError::NotLeft(_)), "{refused}");
}

#[test]
fn a_guest_that_comes_anew_keeps_its_vif_and_has_no_new_limits() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 1);
    let day = Duration::from_secs(86_400);
    let rate = Rate::new(NonZeroU64::new(BYTES as u64 * 5).unwrap(), day);
    let vif = |guest: &Guest| {
        let mut vif = guest.vif();
        vif.rate = rate;
        vif
    };
    let refused = machine.server().reconnect(vif(&guest)).unwrap_err();
    assert_eq!(refused.to_string(), "vif7.0 is not attached; attach it first");
    machine.server().attach(vif(&guest), echo()).unwrap();
    guest.is_served(&mut machine, 0, 3);
    assert!(machine.server().disconnect(guest.id));
    let report = machine.server().report_of(guest.id).unwrap();
    assert_eq!((report.connected, machine.mapped(), machine.server().left()), (false, 0, vec![]));
    guest.comes_anew();
    machine.server().reconnect(vif(&guest)).unwrap();
    guest.is_served(&mut machine, 0, 2);
    let signals = |machine: &mut Machine| {
        machine.server().report().next().unwrap().queues[0].counts.interrupts
    };
    let before = signals(&mut machine);
    guest.sends(0, 1);
    eventually("the queue's turn", || {
        while machine.server().serve().unwrap() {}
        (signals(&mut machine) > before).then_some(())
    });
    assert_eq!(guest.queues[0].tx_answers(), [], "five frames are all that may leave");
    let report = machine.server().report().next().unwrap();
    assert_eq!((report.stats.tx_packets, report.connected), (5, true));
    // A vif whose guest shows what cannot be served stays, without a connection.
    guest.comes_anew();
    let mut bad = vif(&guest);
    bad.keys.queues[0].rx_ring = GrantRef(99_999);
    assert!(machine.server().reconnect(bad).is_err());
    assert_eq!((machine.mapped(), machine.server().left()), (0, vec![]));
    assert!(!machine.server().report().next().unwrap().connected);
    machine.server().reconnect(vif(&guest)).unwrap();
    assert!(machine.server().set_rate(guest.id, None));
    guest.is_served(&mut machine, 0, 5);
    // A vif that failed may come anew, too.
    guest.breaks(0);
    let (id, _) = machine.failed();
    assert_eq!((id, machine.mapped(), machine.server().left()), (guest.id, 0, vec![]));
    guest.comes_anew();
    machine.server().reconnect(vif(&guest)).unwrap();
    assert!(machine.server().detach(guest.id).is_some());
    assert!(
        !machine.server().disconnect(guest.id) && machine.server().report_of(guest.id).is_none()
    );
}

/// An echo with one further queue, which is no port that could have queues of its own.
struct Named {
    echo: Echo,
    name: &'static str,
}

impl Probe for Named {
    fn name(&self) -> &str {
        self.name
    }

    fn report(&self) -> PortReport {
        self.echo.report()
    }
}

impl Port for Named {
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        self.echo.send(frame, offload)
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        self.echo.recv(buf)
    }

    fn readiness(&self) -> Readiness<'_> {
        self.echo.readiness()
    }

    fn caps(&self) -> PortCaps {
        PortCaps { max_queues: if self.name == "first" { 2 } else { 1 }, ..self.echo.caps() }
    }
}

impl PortControl for Named {
    fn another_queue(&mut self) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(Named { echo: Echo::new(), name: "further" }))
    }
}

#[test]
fn the_port_that_was_given_is_the_one_that_comes_back() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 2);
    let mut bad = guest.vif();
    bad.keys.queues[1].tx_event = bad.keys.queues[0].tx_event;
    let port = Box::new(Named { echo: Echo::new(), name: "first" });
    let refused = machine.server().attach(bad, port).unwrap_err();
    let port = refused.port.unwrap();
    assert_eq!(port.name(), "first");
    machine.server().attach(guest.vif(), port).unwrap();
    guest.is_served(&mut machine, 1, 5);
    assert_eq!(machine.server().detach(guest.id).unwrap().name(), "first");
}

#[test]
fn a_limit_of_any_size_is_kept() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 1);
    let mut vif = guest.vif();
    // Each nanosecond earns more than can be saved up.
    vif.rate = Rate::new(NonZeroU64::MAX, Duration::from_nanos(1));
    machine.server().attach(vif, echo()).unwrap();
    for _ in 0..3 {
        guest.is_served(&mut machine, 0, 5);
    }
    assert_eq!(Rate::new(NonZeroU64::MIN, Duration::ZERO), None);
}

#[test]
fn what_a_killed_server_left_can_be_forgotten() {
    let mut machine = Machine::new();
    let guest = Guest::new(&machine, 7, 1);
    machine.server().attach(guest.vif(), echo()).unwrap();
    machine.server().forget(guest.id);
    machine.kill();
    machine.start();
    assert_eq!(machine.server().left(), [(guest.id, None)], "a vif in service is not forgotten");
    machine.server().forget(guest.id);
    assert!(machine.server().left().is_empty());
    let refused = machine.server().resume(guest.vif(), echo()).unwrap_err();
    assert!(matches!(refused.error, VifError::NotLeft(_)), "{refused}");
}

#[test]
fn settings_of_a_vif_change_while_it_is_served() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 1);
    let mut vif = guest.vif();
    // A period of a day: what was saved up at first is all that ever leaves.
    let day = Duration::from_secs(86_400);
    let rate = Rate::new(NonZeroU64::new(BYTES as u64 * 5).unwrap(), day);
    vif.rate = rate;
    machine.server().attach(vif, echo()).unwrap();
    guest.sends(0, 10);
    let rings = &mut guest.queues[0];
    let mut answered = 0;
    machine.until("five frames", || {
        answered += rings.tx_answers().len();
        (answered >= 5).then_some(())
    });
    while machine.server().serve().unwrap() {}
    assert_eq!(answered + rings.tx_answers().len(), 5);
    assert!(machine.server().set_rate(guest.id, None));
    machine.until("the rest", || {
        answered += rings.tx_answers().len();
        (answered >= 10).then_some(())
    });
    guest.queues[0].rx_answers();
    assert!(machine.server().set_headroom(guest.id, 256).unwrap());
    assert!(machine.server().set_headroom(guest.id, 2049).is_err());
    guest.sends(0, 1);
    let rings = &mut guest.queues[0];
    let offset = machine.until("a frame", || Some(rings.rx_answers().first()?.offset));
    assert_eq!(offset, 256);
    assert!(machine.server().set_multicast(guest.id, true));
    let nobody = VifId { domain: DomId(1), devid: 1 };
    assert!(!machine.server().set_rate(nobody, None));
    assert!(!machine.server().set_multicast(nobody, true));
    assert!(!machine.server().set_headroom(nobody, 0).unwrap());
}

#[test]
fn a_vif_is_described_by_the_words_of_its_guest() {
    let id = VifId { domain: DomId(7), devid: 1 };
    let parse = |words: &[(&str, &str)]| {
        let get = |key: &str| Some(words.iter().find(|(name, _)| *name == key)?.1.to_owned());
        HandedVif::parse(id, get, 2)
    };
    let two = [
        ("request-rx-copy", "1"),
        ("multi-queue-num-queues", "2"),
        ("queue-0/tx-ring-ref", "8"),
        ("queue-0/rx-ring-ref", "9"),
        ("queue-0/event-channel-tx", "15"),
        ("queue-0/event-channel-rx", "16"),
        ("queue-1/tx-ring-ref", "10"),
        ("queue-1/rx-ring-ref", "11"),
        ("queue-1/event-channel", "17"),
        ("ctrl-ring-ref", "12"),
        ("event-channel-ctrl", "18"),
        ("feature-gso-tcpv4", "1"),
        ("xdp-headroom", "256"),
    ];
    let vif = parse(&two).unwrap();
    let refs = |tx, rx, tx_event, rx_event: Option<u32>| QueueRefs {
        tx_ring: GrantRef(tx),
        rx_ring: GrantRef(rx),
        tx_event: EventPort(tx_event),
        rx_event: rx_event.map(EventPort),
    };
    assert_eq!(vif.keys.queues, [refs(8, 9, 15, Some(16)), refs(10, 11, 17, None)]);
    assert_eq!(vif.keys.ctrl, Some(CtrlRefs { ring: GrantRef(12), event: EventPort(18) }));
    // Large frames need scatter-gather.
    let offloads = vif.keys.offloads;
    assert_eq!((offloads.checksum, offloads.tso4, vif.headroom), (true, false, 256));
    for (change, said) in [
        (("request-rx-copy", "0"), "frontend/request-rx-copy is \"0\", expected 1"),
        (
            ("multi-queue-num-queues", "3"),
            "frontend/multi-queue-num-queues: found \"3\", expected a number of queues from 1 to",
        ),
        (
            ("queue-1/rx-ring-ref", "x"),
            "frontend/queue-1/rx-ring-ref: found \"x\", expected a grant reference",
        ),
        (("event-channel-ctrl", ""), "frontend/event-channel-ctrl: found \"\", expected an event"),
        (
            ("xdp-headroom", "4096"),
            "xdp-headroom: found \"4096\", expected a number of bytes up to",
        ),
    ] {
        let words = two.map(|word| if word.0 == change.0 { change } else { word });
        let error = parse(&words).unwrap_err().to_string();
        assert!(error.starts_with(said), "{error}");
    }
    assert_eq!(
        parse(&two[..2]).unwrap_err().to_string(),
        "frontend/queue-0/tx-ring-ref: found nothing, expected a grant reference"
    );
}

#[test]
fn the_offer_is_what_the_server_and_the_port_have() {
    let mut machine = Machine::new();
    let port = echo();
    let value = |keys: &[(&str, u32)], name: &str| {
        keys.iter().find(|(key, _)| *key == name).unwrap_or_else(|| panic!("no {name}")).1
    };
    let offer = machine.server().offer(port.as_ref(), Checksums::Offload).keys();
    assert_eq!(
        value(&offer, "multi-queue-max-queues"),
        QUEUES as u32,
        "fewer than the {MAX_QUEUES} of all"
    );
    assert_eq!(value(&offer, "feature-gso-tcpv4"), 1);
    let full = machine.server().offer(port.as_ref(), Checksums::Full).keys();
    assert_eq!(
        (value(&full, "feature-gso-tcpv4"), value(&full, "feature-no-csum-offload")),
        (0, 1)
    );
}

//! A machine whose server has no store, and guests that have none either.

use crate::support::eventually;
use crate::support::hostile::frame;
use crate::support::rings::Rings;
use grantway_backend::{
    BackendConfig, CtrlRefs, FrontendKeys, HandedVif, QueueRefs, RingServer, Settings, VifError,
    VifId,
};
use grantway_embedded::{Domain, Host, HostGuard, Role};
use grantway_hypervisor::{
    Access, Apart, Arena, BackendPlatform, CopyOp, DomId, Error, EventChannels, FrontendPlatform,
    GrantRef, Granted, Mapper, Platform,
};
use grantway_netif::ctrl::{CtrlResponse, Message, Status};
use grantway_netif::rx::RxRequest;
use grantway_netif::tx::{TxFlags, TxRequest};
use grantway_ports::{Echo, Port};
use grantway_ring::{Front, Index, RingMemory, RingPage, SharedRun};
use grantway_vector::Secret;
use std::sync::Arc;

pub const BACKEND: DomId = DomId(0);
/// Most queues of a vif.
pub const QUEUES: usize = 3;
/// Bytes of each frame.
pub const BYTES: usize = 300;

/// The devices of a domain, without its store.
pub struct Devices(Arc<Domain>);

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
pub struct Machine {
    server: Option<RingServer>,
    pub domain: Arc<Domain>,
    // Last: the host outlives what it hosts.
    _host: HostGuard,
    folders: [tempfile::TempDir; 2],
}

impl Machine {
    pub fn new() -> Self {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let host = Host::spawn(folders[0].path()).unwrap();
        let domain = Domain::connect(folders[0].path(), BACKEND, Role::Service).unwrap();
        let mut machine = Self { server: None, domain, _host: host, folders };
        machine.start();
        machine
    }

    pub fn start(&mut self) {
        let config = BackendConfig {
            settings: Settings { queues: QUEUES as u32, ..Settings::default() },
            threads: false,
            ..BackendConfig::new(self.folders[1].path(), Secret::random().unwrap())
        };
        let devices = Arc::new(Devices(Arc::clone(&self.domain)));
        self.server = Some(RingServer::start(devices, BACKEND, config).unwrap());
    }

    /// Ends the server as a kill does: nothing is told to a guest, and the journals stay.
    pub fn kill(&mut self) {
        self.server = None;
    }

    pub fn server(&mut self) -> &mut RingServer {
        self.server.as_mut().unwrap()
    }

    /// Lets the server work until `look` gives something. No vif may fail meanwhile.
    #[track_caller]
    pub fn until<T>(&mut self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        eventually(what, || {
            let failed = self.server().step().unwrap();
            assert!(failed.is_empty(), "{failed:?}");
            while self.server().serve().unwrap() {}
            look()
        })
    }

    /// Lets the server work until a vif fails.
    #[track_caller]
    pub fn failed(&mut self) -> (VifId, VifError) {
        eventually("a failure", || {
            while self.server().serve().unwrap() {}
            self.server().step().unwrap().pop()
        })
    }

    pub fn mapped(&self) -> u64 {
        self.domain.counters().mapped
    }
}

/// A guest with its rings made by hand, and pages for one frame each.
pub struct Guest {
    pub id: VifId,
    pub domain: Arc<Domain>,
    pub events: Box<dyn EventChannels>,
    pub queues: Vec<Rings>,
    pub ctrl: Option<(Granted, Front<RingPage<4>, 4>, CtrlRefs)>,
    pub pages: Granted,
}

/// Pages of a guest: the first half is sent, the second half is posted.
pub const PAGES: usize = 64;

impl Guest {
    pub fn new(machine: &Machine, number: u16, queues: usize) -> Self {
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

    pub fn with_ctrl(mut self) -> Self {
        let page = self.domain.grant(BACKEND, 1, Access::ReadWrite).unwrap();
        let event = self.events.alloc_unbound(BACKEND).unwrap();
        let front = Front::init(RingPage::new(page.run.page(0).unwrap()));
        let refs = CtrlRefs { ring: page.grefs[0], event };
        self.ctrl = Some((page, front, refs));
        self
    }

    /// Describes the vif as the guest shows it.
    pub fn vif(&self) -> HandedVif {
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
    pub fn sends(&mut self, queue: usize, count: usize) {
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
    pub fn has_all_back(&mut self, machine: &mut Machine, queue: usize, count: usize) {
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
    pub fn is_served(&mut self, machine: &mut Machine, queue: usize, count: usize) {
        self.sends(queue, count);
        self.has_all_back(machine, queue, count);
    }

    /// Shows an impossible index on a queue's transmit ring.
    pub fn breaks(&mut self, queue: usize) {
        let rings = &self.queues[queue];
        rings.tx.store(Index::ReqProd, rings.tx_prod.wrapping_add(5000));
        self.events.notify(rings.tx_event).unwrap();
    }

    /// Makes other rings and event channels in place of those that it had.
    pub fn comes_anew(&mut self) {
        for rings in &mut self.queues {
            *rings = Rings::new(self.domain.as_ref(), self.events.as_mut(), BACKEND);
        }
    }

    /// Asks by the control ring, and returns the answer.
    #[track_caller]
    pub fn asks(&mut self, machine: &mut Machine, message: Message) -> Result<u32, Status> {
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

pub fn numbered(number: usize) -> Vec<u8> {
    let mut bytes = frame(BYTES);
    bytes[20] = number as u8;
    bytes
}

pub fn echo() -> Box<dyn Port> {
    Box::new(Echo::new())
}

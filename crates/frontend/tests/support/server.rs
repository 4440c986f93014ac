//! A backend made by hand: its keys, states, answers and signals are the
//! test's own.

use grantway_embedded::Domain;
use grantway_hypervisor::{
    Access, BackendPlatform, CopyOp, CopySide, DomId, EventChannels, GrantRef, Mapper, Platform,
    Port, Store,
};
use grantway_netif::XenbusState;
use grantway_netif::rx::{RxFlags, RxRequest, RxResponse};
use grantway_netif::tx::{TxRequest, TxResponse, status};
use grantway_ring::{Index, RingMemory, RingPage, SharedPage, SharedRun};
use std::sync::Arc;
use std::sync::atomic::{Ordering::SeqCst, fence};

/// Pages that a queue at rest posts.
pub const RESTING: u32 = 128;

pub struct Server {
    pub domain: Arc<Domain>,
    pub store: Box<dyn Store>,
    pub events: Box<dyn EventChannels>,
    pub guest: DomId,
    pub front: String,
    pub back: String,
}

/// The rings that a frontend published, mapped.
pub struct Rings {
    pub tx: RingPage<3>,
    pub rx: RingPage<2>,
    pub runs: [SharedRun; 2],
    pub grefs: [GrantRef; 2],
    pub tx_event: Port,
    pub rx_event: Port,
    /// Requests taken, free-running.
    pub tx_cons: u32,
    pub rx_cons: u32,
}

impl Server {
    pub fn new(domain: Arc<Domain>, guest: DomId, front: &str, back: &str) -> Self {
        Self {
            store: domain.store().unwrap(),
            events: domain.events().unwrap(),
            domain,
            guest,
            front: front.into(),
            back: back.into(),
        }
    }

    pub fn key(&mut self, key: &str, value: &[u8]) {
        self.store.write(&format!("{}/{key}", self.back), value).unwrap();
    }

    pub fn state(&mut self, state: XenbusState) {
        self.key("state", state.as_str().as_bytes());
    }

    pub fn front_key(&mut self, key: &str) -> Option<String> {
        // The right to look goes with the folder.
        self.store.read_text(&format!("{}/{key}", self.front)).ok().flatten()
    }

    pub fn front_state(&mut self) -> Option<XenbusState> {
        let text = self.front_key("state")?;
        Some(XenbusState::from_store(text.as_bytes()).unwrap())
    }

    /// Offers the features of a stock backend, then shows InitWait.
    pub fn offer(&mut self) {
        for key in [
            "feature-sg",
            "feature-gso-tcpv4",
            "feature-gso-tcpv6",
            "feature-rx-copy",
            "feature-ipv6-csum-offload",
            "feature-split-event-channels",
        ] {
            self.key(key, b"1");
        }
        self.key("feature-no-csum-offload", b"0");
        self.state(XenbusState::InitWait);
    }

    fn number(&mut self, key: &str) -> u32 {
        let found = self.front_key(key);
        found.as_deref().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
            panic!("{key} is {found:?}");
        })
    }

    /// Maps the rings and binds the ports that the frontend published for its one queue.
    pub fn attach(&mut self) -> Rings {
        self.attach_below("")
    }

    /// Maps the rings and binds the ports of a queue among several.
    pub fn attach_queue(&mut self, number: usize) -> Rings {
        self.attach_below(&format!("queue-{number}/"))
    }

    fn attach_below(&mut self, folder: &str) -> Rings {
        let name = |key: &str| format!("{folder}{key}");
        let refs = ["tx-ring-ref", "rx-ring-ref"];
        let grefs = refs.map(|key| GrantRef(self.number(&name(key))));
        let runs = grefs.map(|gref| self.map(gref).unwrap());
        let split = self.front_key(&name("event-channel-tx")).is_some();
        let names = match split {
            true => ["event-channel-tx", "event-channel-rx"],
            false => ["event-channel", "event-channel"],
        };
        let names = names.map(name);
        let tx = Port(self.number(&names[0]));
        let tx_event = self.events.bind_interdomain(self.guest, tx).unwrap();
        let rx_event = match split {
            true => {
                let rx = Port(self.number(&names[1]));
                self.events.bind_interdomain(self.guest, rx).unwrap()
            }
            false => tx_event,
        };
        Rings {
            tx: RingPage::new(runs[0].page(0).unwrap()),
            rx: RingPage::new(runs[1].page(0).unwrap()),
            runs,
            grefs,
            tx_event,
            rx_event,
            tx_cons: 0,
            rx_cons: 0,
        }
    }

    pub fn map(&self, gref: GrantRef) -> Option<SharedRun> {
        let map = |access| self.domain.map(self.guest, &[gref], access).ok();
        map(Access::ReadWrite)
    }

    /// Maps a page of the guest's for reading, if we may.
    pub fn peek(&self, gref: GrantRef) -> Option<(SharedRun, SharedPage)> {
        let run = self.domain.map(self.guest, &[gref], Access::ReadOnly).ok()?;
        let page = run.page(0).unwrap();
        Some((run, page))
    }

    pub fn detach(&mut self, rings: Rings) {
        self.events.close(rings.tx_event);
        if rings.rx_event != rings.tx_event {
            self.events.close(rings.rx_event);
        }
    }

    pub fn kick(&mut self, port: Port) {
        self.events.notify(port).unwrap();
    }

    /// Returns bytes of a page of the guest's.
    pub fn bytes(&self, gref: u32, offset: u16, len: u16) -> Vec<u8> {
        let mut arena = vec![0; len.into()];
        let source = CopySide::Foreign { domain: self.guest, gref: GrantRef(gref), offset };
        let mut ops = [CopyOp::new(source, CopySide::Local { offset: 0 }, len)];
        self.domain.copy(&mut arena, &mut ops).unwrap();
        assert!(ops[0].status.is_okay(), "{}", ops[0].status);
        arena
    }

    /// Writes bytes into a page of the guest's.
    pub fn fill(&self, gref: u32, offset: u16, bytes: &[u8]) {
        let mut arena = bytes.to_vec();
        let dest = CopySide::Foreign { domain: self.guest, gref: GrantRef(gref), offset };
        let mut ops = [CopyOp::new(CopySide::Local { offset: 0 }, dest, bytes.len() as u16)];
        self.domain.copy(&mut arena, &mut ops).unwrap();
        assert!(ops[0].status.is_okay(), "{}", ops[0].status);
    }
}

impl Rings {
    /// Takes the transmit requests that were not taken yet.
    pub fn requests(&mut self) -> Vec<[u32; 3]> {
        self.sane_requests().unwrap_or_else(|found| panic!("{found} requests"))
    }

    /// Takes the transmit requests that were not taken yet. If the index claims more than a ring,
    /// returns the claimed number as an error. The index is read once: somebody else may write to
    /// it.
    pub fn sane_requests(&mut self) -> Result<Vec<[u32; 3]>, u32> {
        let end = self.tx.load(Index::ReqProd);
        fence(SeqCst);
        let found = end.wrapping_sub(self.tx_cons);
        if found > 256 {
            return Err(found);
        }
        let slots = (0..found).map(|n| self.tx.read_slot(self.tx_cons.wrapping_add(n))).collect();
        self.tx_cons = end;
        Ok(slots)
    }

    /// Writes a transmit answer at an index, unpublished.
    pub fn tx_put(&self, index: u32, id: u16, status: i16) {
        self.tx.write_slot(index, TxResponse { id, status }.to_words());
    }

    /// Publishes transmit answers up to this index. Returns true if a signal is asked for.
    pub fn tx_publish(&self, to: u32) -> bool {
        publish(&self.tx, to)
    }

    /// Answers all requests by the rules. Returns the number of slots, and true if a signal is
    /// asked for.
    pub fn serve_tx(&mut self) -> (usize, bool) {
        let first = self.tx_cons;
        let slots = self.requests();
        let mut extra = false;
        for (n, &words) in slots.iter().enumerate() {
            let index = first.wrapping_add(n as u32);
            let request = TxRequest::from_words(words);
            if extra {
                self.tx_put(index, 0, status::NULL);
                extra = grantway_netif::extra::has_more([words[0], words[1]]);
                continue;
            }
            self.tx_put(index, request.id, status::OKAY);
            extra = request.flags.contains(grantway_netif::tx::TxFlags::EXTRA_INFO);
        }
        (slots.len(), !slots.is_empty() && self.tx_publish(self.tx_cons))
    }

    /// Returns the number of pages posted and not taken yet.
    pub fn posted(&self) -> u32 {
        self.rx.load(Index::ReqProd).wrapping_sub(self.rx_cons)
    }

    /// Takes the next posted page.
    pub fn take(&mut self) -> RxRequest {
        assert!(self.posted() > 0, "nothing is posted");
        let words = self.rx.read_slot(self.rx_cons);
        self.rx_cons = self.rx_cons.wrapping_add(1);
        RxRequest::from_words(words)
    }

    /// Writes a receive answer at an index, unpublished.
    pub fn rx_put(&self, index: u32, id: u16, offset: u16, flags: RxFlags, status: i16) {
        self.rx.write_slot(index, RxResponse { id, offset, flags, status }.to_words());
    }

    pub fn rx_publish(&self, to: u32) -> bool {
        publish(&self.rx, to)
    }

    /// Delivers one frame by the rules. Returns true if a signal is asked for.
    pub fn deliver(&mut self, server: &Server, bytes: &[u8]) -> bool {
        let parts: Vec<_> = bytes.chunks(4096).collect();
        for (n, part) in parts.iter().enumerate() {
            let index = self.rx_cons;
            let request = self.take();
            server.fill(request.gref, 0, part);
            let mut flags = RxFlags::empty();
            flags.set(RxFlags::MORE_DATA, n + 1 < parts.len());
            self.rx_put(index, request.id, 0, flags, part.len() as i16);
        }
        self.rx_publish(self.rx_cons)
    }
}

fn publish<const W: usize>(ring: &RingPage<W>, to: u32) -> bool {
    let from = ring.load(Index::RspProd);
    fence(SeqCst);
    ring.store(Index::RspProd, to);
    fence(SeqCst);
    let event = ring.load(Index::RspEvent);
    to.wrapping_sub(event) < to.wrapping_sub(from)
}

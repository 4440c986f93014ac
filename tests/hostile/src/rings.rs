//! The rings of the vif's queue and its control ring, written by hand, and the pages that requests name.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::sync::atomic::{Ordering::SeqCst, fence};
use grantway_hypervisor::{
    Access, DomId, Error, FrontendEvents, FrontendPlatform, GrantRef, Granted, Port,
};
use grantway_netif::ctrl::{CtrlRequest, CtrlResponse};
use grantway_netif::keys;
use grantway_netif::rx::RxRequest;
use grantway_ring::{Index, RingMemory, RingPage, SharedPage};

/// Slots of a transmit or receive ring.
pub const SLOTS: u32 = 256;
/// Pages that requests name.
const POOL: usize = 64;

/// A connection's pages and ports.
pub struct Rings {
    pub tx: RingPage<3>,
    pub rx: RingPage<2>,
    pub ctrl: RingPage<4>,
    /// Requests written so far, free-running.
    pub tx_prod: u32,
    pub rx_prod: u32,
    ctrl_prod: u32,
    pub tx_event: Port,
    pub rx_event: Port,
    pub ctrl_event: Port,
    /// The three rings' own pages.
    own: Granted,
    /// Pages that the backend may write.
    pub pool: Granted,
    /// Pages that it may only read.
    pub readonly: Granted,
}

impl Rings {
    /// Grants what a connection needs.
    pub fn new(
        platform: &dyn FrontendPlatform,
        events: &mut dyn FrontendEvents,
        backend: DomId,
    ) -> Result<Self, Error> {
        let own = platform.grant(backend, 3, Access::ReadWrite)?;
        let page = |index| {
            let (page, _): (SharedPage, GrantRef) = own.page(index).expect("three pages");
            page
        };
        let rings = Self {
            tx: RingPage::new(page(0)),
            rx: RingPage::new(page(1)),
            ctrl: RingPage::new(page(2)),
            tx_prod: 0,
            rx_prod: 0,
            ctrl_prod: 0,
            tx_event: events.alloc_unbound(backend)?,
            rx_event: events.alloc_unbound(backend)?,
            ctrl_event: events.alloc_unbound(backend)?,
            pool: platform.grant(backend, POOL, Access::ReadWrite)?,
            readonly: platform.grant(backend, POOL, Access::ReadOnly)?,
            own,
        };
        for index in [Index::ReqEvent, Index::RspEvent] {
            rings.tx.store(index, 1);
            rings.rx.store(index, 1);
            rings.ctrl.store(index, 1);
        }
        Ok(rings)
    }

    /// Returns the keys by which the backend finds the rings.
    pub fn keys(&self) -> [(&'static str, String); 6] {
        let gref = |index: usize| self.own.grefs[index].to_string();
        [
            (keys::TX_RING_REF, gref(0)),
            (keys::RX_RING_REF, gref(1)),
            (keys::CTRL_RING_REF, gref(2)),
            (keys::EVENT_CHANNEL_TX, self.tx_event.to_string()),
            (keys::EVENT_CHANNEL_RX, self.rx_event.to_string()),
            (keys::EVENT_CHANNEL_CTRL, self.ctrl_event.to_string()),
        ]
    }

    /// Closes the ports, and takes the pages back.
    pub fn end(self, platform: &dyn FrontendPlatform, events: &mut dyn FrontendEvents) {
        for port in [self.tx_event, self.rx_event, self.ctrl_event] {
            events.close(port);
        }
        let Self { tx, rx, ctrl, own, pool, readonly, .. } = self;
        drop((tx, rx, ctrl));
        for granted in [own, pool, readonly] {
            platform.release(granted);
        }
    }

    /// The grants of the rings themselves.
    pub fn own(&self) -> &[GrantRef] {
        &self.own.grefs
    }

    /// Returns a page of the pool and its reference.
    pub fn page(&self, index: usize) -> (SharedPage, GrantRef) {
        self.pool.page(index % POOL).expect("a page of the pool")
    }

    /// Returns the free slots of the transmit ring: none if the answers make no sense.
    pub fn tx_room(&self) -> usize {
        SLOTS.saturating_sub(self.tx_prod.wrapping_sub(self.tx.load(Index::RspProd))) as usize
    }

    /// Returns the free slots of the receive ring, likewise.
    pub fn rx_room(&self) -> usize {
        SLOTS.saturating_sub(self.rx_prod.wrapping_sub(self.rx.load(Index::RspProd))) as usize
    }

    /// Writes transmit requests behind those that are there, and shows them.
    pub fn put_tx(&mut self, slots: &[[u32; 3]]) {
        for &words in slots {
            self.tx.write_slot(self.tx_prod, words);
            self.tx_prod = self.tx_prod.wrapping_add(1);
        }
        fence(SeqCst);
        self.tx.store(Index::ReqProd, self.tx_prod);
    }

    /// Posts pages, and shows them.
    pub fn put_rx(&mut self, requests: &[RxRequest]) {
        for request in requests {
            self.rx.write_slot(self.rx_prod, request.to_words());
            self.rx_prod = self.rx_prod.wrapping_add(1);
        }
        fence(SeqCst);
        self.rx.store(Index::ReqProd, self.rx_prod);
    }

    /// Asks something over the control ring, if it has room.
    pub fn put_ctrl(&mut self, request: CtrlRequest) -> bool {
        let room = self.ctrl_prod.wrapping_sub(self.ctrl.load(Index::RspProd)) < self.ctrl.slots();
        if room {
            self.ctrl.write_slot(self.ctrl_prod, request.to_words());
            self.ctrl_prod = self.ctrl_prod.wrapping_add(1);
            fence(SeqCst);
            self.ctrl.store(Index::ReqProd, self.ctrl_prod);
        }
        room
    }

    /// Returns the answer to the last control request, once it is there.
    pub fn last_answer(&self) -> Option<CtrlResponse> {
        let answered = self.ctrl.load(Index::RspProd) == self.ctrl_prod;
        fence(SeqCst);
        let words = || self.ctrl.read_slot(self.ctrl_prod.wrapping_sub(1));
        answered.then(words).map(CtrlResponse::from_words)
    }

    /// Returns the references of both kinds of pages.
    pub fn all_grefs(&self) -> Vec<GrantRef> {
        [&self.pool.grefs[..], &self.readonly.grefs].concat()
    }
}

//! The two rings of a queue, written by hand: no rule is kept but those that a
//! test keeps itself.

use grantway_hypervisor::{
    Access, DomId, EventChannels, FrontendPlatform, GrantRef, Granted, Port,
};
use grantway_netif::ETH_HEADER_BYTES;
use grantway_netif::rx::{RxRequest, RxResponse};
use grantway_netif::slots::rx::{RxOutcome, RxRefusal, parse_rx};
use grantway_netif::tx::{TxFlags, TxRequest, TxResponse};
use grantway_ring::{Index, RingMemory, RingPage, SharedPage};

pub const SLOTS: u32 = 256;

pub struct Rings {
    pub tx_ring: Granted,
    pub rx_ring: Granted,
    pub tx: RingPage<3>,
    pub rx: RingPage<2>,
    pub tx_event: Port,
    pub rx_event: Port,
    /// Requests written, and answers taken, free-running.
    pub tx_prod: u32,
    pub tx_cons: u32,
    pub rx_prod: u32,
    pub rx_cons: u32,
}

impl Rings {
    pub fn new(
        granter: &dyn FrontendPlatform,
        events: &mut dyn EventChannels,
        backend: DomId,
    ) -> Self {
        let tx_ring = granter.grant(backend, 1, Access::ReadWrite).unwrap();
        let rx_ring = granter.grant(backend, 1, Access::ReadWrite).unwrap();
        let tx = RingPage::new(tx_ring.run.page(0).unwrap());
        let rx = RingPage::new(rx_ring.run.page(0).unwrap());
        let rings = Self {
            tx_event: events.alloc_unbound(backend).unwrap(),
            rx_event: events.alloc_unbound(backend).unwrap(),
            tx_ring,
            rx_ring,
            tx,
            rx,
            tx_prod: 0,
            tx_cons: 0,
            rx_prod: 0,
            rx_cons: 0,
        };
        for index in [Index::ReqEvent, Index::RspEvent] {
            rings.tx.store(index, 1);
            rings.rx.store(index, 1);
        }
        rings
    }

    /// Empties both rings, like a guest that starts anew.
    pub fn clear(&mut self) {
        self.tx.clear();
        self.rx.clear();
        for ring in [&self.tx as &dyn Indices, &self.rx] {
            ring.set(Index::ReqEvent, 1);
            ring.set(Index::RspEvent, 1);
        }
        (self.tx_prod, self.tx_cons, self.rx_prod, self.rx_cons) = (0, 0, 0, 0);
    }

    /// Writes requests behind those that are there, and shows them.
    pub fn put_tx(&mut self, slots: &[[u32; 3]]) {
        for &words in slots {
            self.tx.write_slot(self.tx_prod, words);
            self.tx_prod = self.tx_prod.wrapping_add(1);
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.tx.store(Index::ReqProd, self.tx_prod);
    }

    pub fn put_rx(&mut self, requests: &[RxRequest]) {
        for request in requests {
            self.rx.write_slot(self.rx_prod, request.to_words());
            self.rx_prod = self.rx_prod.wrapping_add(1);
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.rx.store(Index::ReqProd, self.rx_prod);
    }

    /// The answers that are new, whole slots.
    pub fn tx_words(&mut self) -> Vec<[u32; 3]> {
        let end = self.tx.load(Index::RspProd);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let owed = self.tx_prod.wrapping_sub(self.tx_cons);
        let found = end.wrapping_sub(self.tx_cons);
        assert!(found <= owed, "{found} answers to {owed} transmit requests");
        let slots = (0..found).map(|n| self.tx.read_slot(self.tx_cons.wrapping_add(n))).collect();
        self.tx_cons = end;
        slots
    }

    pub fn tx_answers(&mut self) -> Vec<TxResponse> {
        self.tx_words().into_iter().map(TxResponse::from_words).collect()
    }

    /// The answers that are new, whole slots. No frame of them may be one that stops
    /// a stock guest.
    #[track_caller]
    pub fn rx_words(&mut self) -> Vec<[u32; 2]> {
        let end = self.rx.load(Index::RspProd);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let owed = self.rx_prod.wrapping_sub(self.rx_cons);
        let found = end.wrapping_sub(self.rx_cons);
        assert!(found <= owed, "{found} answers to {owed} receive requests");
        let read = |n| self.rx.read_slot(self.rx_cons.wrapping_add(n));
        let slots: Vec<_> = (0..found).map(read).collect();
        self.rx_cons = end;
        begin_with_a_header(&slots);
        slots
    }

    #[track_caller]
    pub fn rx_answers(&mut self) -> Vec<RxResponse> {
        self.rx_words().into_iter().map(RxResponse::from_words).collect()
    }
}

/// Checks that no frame of these answers is shorter than an Ethernet header, and that the first
/// slot of each holds one (XSA-522). A frame with an error is dropped by every guest.
#[track_caller]
fn begin_with_a_header(mut slots: &[[u32; 2]]) {
    // Frames are published whole.
    while let Ok(Some(frame)) = parse_rx(slots) {
        match &frame.outcome {
            RxOutcome::Packet(packet) => {
                let first = packet.fragments().next().map_or(0, |part| part.len);
                assert!(first >= ETH_HEADER_BYTES, "a first slot of {first} bytes: {packet:?}");
            }
            RxOutcome::Refused(reason) => {
                let short = matches!(reason, RxRefusal::TooShort { .. });
                assert!(!short, "{reason}");
            }
        }
        slots = &slots[frame.slots..];
    }
}

/// The indices of a ring of any width.
trait Indices {
    fn set(&self, index: Index, value: u32);
}

impl<const W: usize> Indices for RingPage<W> {
    fn set(&self, index: Index, value: u32) {
        self.store(index, value);
    }
}

/// A transmit slot.
pub fn slot(gref: GrantRef, offset: u16, size: u16, id: u16, flags: TxFlags) -> [u32; 3] {
    TxRequest { gref: gref.0, offset, flags, id, size }.to_words()
}

/// A page and its reference.
pub fn page(granted: &Granted, index: usize) -> (SharedPage, GrantRef) {
    granted.page(index).unwrap()
}

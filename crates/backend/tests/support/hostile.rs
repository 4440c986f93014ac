//! A guest made by hand: every key, state, slot and signal is the test's own.

use super::rings::{Rings, page, slot};
use super::toolstack::{backend_path, frontend_path};
use super::{PROMPT, eventually};
use grantway_backend::VifId;
use grantway_embedded::Domain;
use grantway_hypervisor::{
    Access, BackendPlatform, DomId, EventChannels, FrontendPlatform, GrantRef, Granted, Platform,
    Port, Store,
};
use grantway_netif::XenbusState;
use grantway_netif::rx::{RxRequest, RxResponse};
use grantway_netif::tx::{TxFlags, TxResponse, status};
use grantway_ring::SharedPage;
use std::sync::Arc;
use std::time::Instant;

pub struct Hostile {
    pub vif: VifId,
    pub backend: DomId,
    pub domain: Arc<Domain>,
    pub store: Box<dyn Store>,
    pub events: Box<dyn EventChannels>,
}

impl Hostile {
    pub fn new(domain: Arc<Domain>, vif: VifId, backend: DomId) -> Self {
        Self {
            vif,
            backend,
            store: domain.store().unwrap(),
            events: domain.events().unwrap(),
            domain,
        }
    }

    pub fn front(&self) -> String {
        frontend_path(self.vif)
    }

    pub fn key(&mut self, key: &str, value: &str) {
        self.raw_key(key, value.as_bytes());
    }

    pub fn raw_key(&mut self, key: &str, value: &[u8]) {
        let path = format!("{}/{key}", self.front());
        self.store.write(&path, value).unwrap();
    }

    pub fn unkey(&mut self, key: &str) {
        let path = format!("{}/{key}", self.front());
        if self.store.read_text(&path).unwrap().is_some() {
            self.store.remove(&path).unwrap();
        }
    }

    pub fn state(&mut self, state: XenbusState) {
        self.key("state", state.as_str());
    }

    pub fn backend_key(&mut self, key: &str) -> Option<String> {
        let path = format!("{}/{key}", backend_path(self.backend, self.vif));
        self.store.read_text(&path).ok().flatten()
    }

    pub fn backend_state(&mut self) -> Option<XenbusState> {
        let text = self.backend_key("state")?;
        Some(XenbusState::from_store(text.as_bytes()).unwrap_or_default())
    }

    #[track_caller]
    pub fn await_backend(&mut self, state: XenbusState) {
        let start = Instant::now();
        loop {
            let found = self.backend_state();
            if found == Some(state) {
                return;
            }
            assert!(start.elapsed() < PROMPT, "the backend is in {found:?}, expected {state}");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Waits until the backend closes this vif for an error, and returns the reason that the
    /// backend wrote. It must have written one.
    #[track_caller]
    pub fn await_disabled(&mut self) -> String {
        self.await_backend(XenbusState::Closing);
        self.backend_key("error").expect("the backend closed the vif and did not say why")
    }

    pub fn rings(&mut self) -> Rings {
        Rings::new(self.domain.as_ref(), self.events.as_mut(), self.backend)
    }

    /// The keys of a stock frontend.
    pub fn publish(&mut self, rings: &Rings) {
        self.key("tx-ring-ref", &rings.tx_ring.grefs[0].to_string());
        self.key("rx-ring-ref", &rings.rx_ring.grefs[0].to_string());
        self.key("event-channel-tx", &rings.tx_event.to_string());
        self.key("event-channel-rx", &rings.rx_event.to_string());
        for key in ["request-rx-copy", "feature-rx-notify", "feature-sg", "feature-gso-tcpv4"] {
            self.key(key, "1");
        }
    }

    /// The keys of a stock frontend with several queues: no flat ones.
    pub fn publish_all(&mut self, queues: &[Rings]) {
        for (number, rings) in queues.iter().enumerate() {
            let folder = format!("queue-{number}");
            self.key(&format!("{folder}/tx-ring-ref"), &rings.tx_ring.grefs[0].to_string());
            self.key(&format!("{folder}/rx-ring-ref"), &rings.rx_ring.grefs[0].to_string());
            self.key(&format!("{folder}/event-channel-tx"), &rings.tx_event.to_string());
            self.key(&format!("{folder}/event-channel-rx"), &rings.rx_event.to_string());
        }
        self.key("multi-queue-num-queues", &queues.len().to_string());
        for key in ["request-rx-copy", "feature-rx-notify", "feature-sg"] {
            self.key(key, "1");
        }
    }

    /// Connects by the rules, from any state of both ends.
    #[track_caller]
    pub fn connect(&mut self) -> Rings {
        let rings = self.rings();
        self.connect_with(&rings);
        rings
    }

    #[track_caller]
    pub fn connect_with(&mut self, rings: &Rings) {
        self.start_anew();
        self.publish(rings);
        self.state(XenbusState::Connected);
        self.await_backend(XenbusState::Connected);
    }

    /// Connects by the rules, with these keys in addition to a stock frontend's or in place of
    /// some of them.
    #[track_caller]
    pub fn connect_as(&mut self, keys: &[(&str, &str)]) -> Rings {
        let rings = self.rings();
        self.start_anew();
        self.publish(&rings);
        for (key, value) in keys {
            self.key(key, value);
        }
        self.state(XenbusState::Connected);
        self.await_backend(XenbusState::Connected);
        rings
    }

    /// Closing, Closed, Initialising, each once the backend has seen the one
    /// before, until the backend waits.
    #[track_caller]
    pub fn start_anew(&mut self) {
        use XenbusState as S;
        let taken_up = |guest: &mut Self| {
            let found = guest.backend_state().filter(|found| *found != S::Initialising);
            found.is_some().then_some(())
        };
        eventually("the backend takes the vif up", || taken_up(self));
        if self.backend_state() != Some(S::InitWait) {
            self.state(S::Closing);
            eventually("the backend's Closing", || {
                let found = self.backend_state();
                matches!(found, Some(S::Closing | S::Closed)).then_some(())
            });
            self.state(S::Closed);
            self.await_backend(S::Closed);
        }
        self.state(S::Initialising);
        self.await_backend(S::InitWait);
    }

    /// Loads an XDP program as stock netfront does, or takes one off by a headroom of "0".
    #[track_caller]
    pub fn reconfigure(&mut self, headroom: &str) {
        self.state(XenbusState::Reconfiguring);
        self.key("xdp-headroom", headroom);
        self.await_backend(XenbusState::Reconfigured);
        self.state(XenbusState::Connected);
        self.await_backend(XenbusState::Connected);
    }

    /// Pages that the backend may reach.
    pub fn pages(&self, count: usize, access: Access) -> Granted {
        self.domain.grant(self.backend, count, access).unwrap()
    }

    pub fn page(&self, bytes: &[u8]) -> (SharedPage, GrantRef) {
        let granted = self.pages(1, Access::ReadWrite);
        let (memory, gref) = page(&granted, 0);
        memory.write(0, bytes).unwrap();
        (memory, gref)
    }

    pub fn kick(&mut self, port: Port) {
        self.events.notify(port).unwrap();
    }

    /// Sends slots and waits for the answer to each.
    #[track_caller]
    pub fn transmit(&mut self, rings: &mut Rings, slots: &[[u32; 3]]) -> Vec<TxResponse> {
        rings.put_tx(slots);
        self.kick(rings.tx_event);
        self.tx_answers(rings, slots.len())
    }

    #[track_caller]
    pub fn tx_answers(&mut self, rings: &mut Rings, count: usize) -> Vec<TxResponse> {
        let mut answers = Vec::new();
        let start = Instant::now();
        while answers.len() < count {
            answers.extend(rings.tx_answers());
            assert!(
                start.elapsed() < PROMPT,
                "{} answers, expected {count}; the backend is in {:?} and says {:?}",
                answers.len(),
                self.backend_state(),
                self.backend_key("error"),
            );
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        answers
    }

    #[track_caller]
    pub fn rx_answers(&mut self, rings: &mut Rings, count: usize) -> Vec<RxResponse> {
        let mut answers = Vec::new();
        let start = Instant::now();
        while answers.len() < count {
            answers.extend(rings.rx_answers());
            assert!(start.elapsed() < PROMPT, "{} answers, expected {count}", answers.len());
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        answers
    }

    /// Posts pages for receiving, ids counting from 0 by ring index.
    pub fn post(&mut self, rings: &mut Rings, grefs: &[GrantRef]) {
        let first = rings.rx_prod;
        let requests: Vec<RxRequest> = grefs
            .iter()
            .enumerate()
            .map(|(n, gref)| RxRequest { id: first.wrapping_add(n as u32) as u16, gref: gref.0 })
            .collect();
        rings.put_rx(&requests);
        self.kick(rings.rx_event);
    }

    /// An ordinary frame goes through.
    #[track_caller]
    pub fn is_served(&mut self, rings: &mut Rings) {
        let (_memory, gref) = self.page(&frame(60));
        let answers = self.transmit(rings, &[slot(gref, 0, 60, 77, TxFlags::empty())]);
        assert_eq!(answers, [TxResponse { id: 77, status: status::OKAY }]);
    }
}

/// Returns a frame of an unknown type, each byte of which is its index.
pub fn frame(len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|n| n as u8).collect();
    if len >= 14 {
        frame[12..14].copy_from_slice(&0x88b6_u16.to_be_bytes());
    }
    frame
}

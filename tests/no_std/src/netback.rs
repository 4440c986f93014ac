//! The other end, by hand: a toolstack's nodes, a backend's rings.

use crate::mock::Mock;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use grantway_netif::rx::{RxFlags, RxRequest, RxResponse};
use grantway_netif::slots::tx::{Outcome, parse_tx};
use grantway_netif::tx::{TxResponse, status};
use grantway_netif::{XenbusState, keys};
use grantway_ring::{Back, RingPage};

/// The guest's folder.
pub const FRONT: &str = "/local/domain/1/device/vif/0";
/// The backend's folder.
pub const BACK: &str = "/local/domain/0/backend/vif/1/0";
/// The vif's address.
pub const MAC: &str = "00:16:3e:00:00:01";

/// A backend of one queue.
pub struct Netback {
    mock: Mock,
    tx: Back<RingPage<3>, 3>,
    rx: Back<RingPage<2>, 2>,
    tx_port: u32,
    rx_port: u32,
}

/// Writes what a toolstack writes.
pub fn attach(mock: &Mock) {
    let mut world = mock.world();
    for (key, value) in
        [(keys::BACKEND, BACK), (keys::BACKEND_ID, "0"), (keys::STATE, "1"), (keys::MAC, MAC)]
    {
        world.write(&format!("{FRONT}/{key}"), value);
    }
    world.write(&format!("{BACK}/{}", keys::STATE), "1");
}

/// Offers what this backend can, and waits for the guest.
pub fn offer(mock: &Mock) {
    for key in [keys::FEATURE_SG, keys::FEATURE_RX_COPY, keys::FEATURE_SPLIT_EVENT_CHANNELS] {
        mock.world().write(&format!("{BACK}/{key}"), "1");
    }
    mock.world().write(&format!("{BACK}/{}", keys::MULTI_QUEUE_MAX_QUEUES), "2");
    show(mock, XenbusState::InitWait);
}

/// Writes the backend's state.
pub fn show(mock: &Mock, state: XenbusState) {
    mock.world().write(&format!("{BACK}/{}", keys::STATE), state.as_str());
}

/// The guest's state.
pub fn guest_state(mock: &Mock) -> Option<XenbusState> {
    let text = mock.world().read(&format!("{FRONT}/{}", keys::STATE))?;
    XenbusState::from_store(text.as_bytes()).ok()
}

impl Netback {
    /// Takes up the rings of a queue that the guest published in this folder
    /// below its own; `None` when a key is missing or names no grant.
    pub fn connect(mock: &Mock, folder: &str) -> Option<Self> {
        let number = |key: &str| mock.world().read(&format!("{FRONT}{folder}/{key}"))?.parse().ok();
        let page = |key: &str| {
            let gref = number(key)?;
            mock.world().page(gref)
        };
        Some(Self {
            mock: mock.clone(),
            tx: Back::new(RingPage::new(page(keys::TX_RING_REF)?)),
            rx: Back::new(RingPage::new(page(keys::RX_RING_REF)?)),
            tx_port: number(keys::EVENT_CHANNEL_TX)?,
            rx_port: number(keys::EVENT_CHANNEL_RX)?,
        })
    }

    /// Returns the number of signals that the guest sent for its packets.
    pub fn signals(&self) -> u64 {
        self.mock.world().signals_to_backend(self.tx_port)
    }

    /// Asks for a signal at the next packet; true when one is there already.
    pub fn arm(&mut self) -> Result<bool, String> {
        self.tx.arm().map_err(|e| format!("{e}"))
    }

    /// The guest's next packet, answered.
    pub fn take(&mut self) -> Result<Vec<u8>, String> {
        let mut slots = [[0; 3]; 32];
        let seen = self.tx.peek_batch(&mut slots).map_err(|e| format!("{e}"))?;
        let parsed = parse_tx(&slots[..seen]).map_err(|e| format!("{e}"))?;
        let parsed = parsed.ok_or("no whole packet is on the ring")?;
        let Outcome::Packet(packet) = &parsed.outcome else {
            return Err("the packet is not one to be taken".into());
        };
        let mut frame = Vec::new();
        for fragment in packet.fragments() {
            let page = self.mock.world().page(fragment.gref).ok_or("not a grant")?;
            let mut bytes = vec![0; usize::from(fragment.size)];
            page.read(fragment.offset.into(), &mut bytes).map_err(|e| format!("{e}"))?;
            frame.extend(bytes);
        }
        // At most 32.
        self.tx.consume(packet.slots() as u32).map_err(|e| format!("{e}"))?;
        for response in packet.responses(status::OKAY) {
            self.tx.push_response(response.to_words()).map_err(|e| format!("{e}"))?;
        }
        if self.tx.publish() {
            self.mock.world().signal_guest(self.tx_port);
        }
        Ok(frame)
    }

    /// Answers the guest's next packet by an id that it never sent.
    pub fn lie(&mut self) -> Result<(), String> {
        self.tx.pop().map_err(|e| format!("{e}"))?.ok_or("nothing was sent")?;
        let lie = TxResponse { id: 0xbeef, status: status::OKAY };
        self.tx.push_response(lie.to_words()).map_err(|e| format!("{e}"))?;
        let _ = self.tx.publish();
        Ok(())
    }

    /// Gives the guest a packet of one slot, at `offset` of the page that it
    /// posted.
    pub fn give(&mut self, frame: &[u8], offset: u16) -> Result<(), String> {
        let posted = self.rx.pop().map_err(|e| format!("{e}"))?;
        let (_, words) = posted.ok_or("no page is posted")?;
        let request = RxRequest::from_words(words);
        let page = self.mock.world().page(request.gref).ok_or("not a grant")?;
        page.write(offset.into(), frame).map_err(|e| format!("{e}"))?;
        let status = i16::try_from(frame.len()).map_err(|e| format!("{e}"))?;
        let response = RxResponse { id: request.id, offset, flags: RxFlags::empty(), status };
        self.rx.push_response(response.to_words()).map_err(|e| format!("{e}"))?;
        if self.rx.publish() {
            self.mock.world().signal_guest(self.rx_port);
        }
        Ok(())
    }
}

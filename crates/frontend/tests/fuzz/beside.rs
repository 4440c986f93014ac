//! Another vif of the same guest, whose backend keeps to the rules: each of its
//! frames must arrive, whole and in order.

use super::support::frame;
use super::support::server::{Rings, Server};
use super::support::world::World;
use grantway_frontend::{Vif, VifStatus};
use grantway_hypervisor::GrantRef;
use grantway_netif::tx::{TxRequest, status};
use grantway_netif::{Offload, XenbusState};

pub struct Beside {
    vif: Vif,
    server: Server,
    rings: Rings,
    buffer: Vec<u8>,
    pub carried: u64,
}

/// Returns frame `number` of a direction; the frames' lengths take one to three slots.
fn numbered(number: u64, seed: u8) -> Vec<u8> {
    let mut bytes = frame(60 + (number * 613 % 9000) as usize, seed);
    bytes[14..22].copy_from_slice(&number.to_be_bytes());
    bytes
}

impl Beside {
    pub fn start(world: &mut World) -> Self {
        let (mut vif, mut server) = world.another(1);
        server.offer();
        let mut look = |server: &mut Server, done: &dyn Fn(&mut Server, VifStatus) -> bool| {
            super::support::eventually("the vif beside it", || {
                let status = vif.store_changed().unwrap();
                done(server, status).then_some(())
            });
        };
        let shown = Some(XenbusState::Connected);
        look(&mut server, &|server, _| server.front_state() == shown);
        let rings = server.attach();
        server.state(XenbusState::Connected);
        look(&mut server, &|_, status| status == VifStatus::Connected);
        let mut beside = Self { vif, server, rings, buffer: vec![0; 65_536], carried: 0 };
        beside.carry();
        beside
    }

    /// Carries a frame each way.
    pub fn carry(&mut self) {
        assert_eq!(self.vif.store_changed().unwrap(), VifStatus::Connected);
        let out = numbered(self.carried, 5);
        self.vif.send(&out, Offload::default()).unwrap();
        self.vif.flush().unwrap();
        assert_eq!(self.take(), out, "frame {} to the backend", self.carried);
        self.vif.reap().unwrap();
        let back = numbered(self.carried, 77);
        self.rings.deliver(&self.server, &back);
        let received = self.vif.recv(&mut self.buffer).unwrap().expect("a frame");
        assert_eq!(self.buffer[..received.len], back, "frame {} to the guest", self.carried);
        self.vif.repost().unwrap();
        self.vif.take_events().unwrap();
        self.vif.arm().unwrap();
        assert_eq!(self.vif.take_failure(), None);
        self.carried += 1;
    }

    /// Takes the frame that was sent, as a backend reads it.
    fn take(&mut self) -> Vec<u8> {
        let first = self.rings.tx_cons;
        let slots: Vec<_> = self.rings.requests().into_iter().map(TxRequest::from_words).collect();
        let later: usize = slots[1..].iter().map(|slot| usize::from(slot.size)).sum();
        let mut bytes = Vec::new();
        for (n, slot) in slots.iter().enumerate() {
            let size = usize::from(slot.size) - if n == 0 { later } else { 0 };
            let (_run, page) = self.server.peek(GrantRef(slot.gref)).unwrap();
            let mut part = vec![0; size];
            page.read(slot.offset.into(), &mut part).unwrap();
            bytes.extend(part);
            self.rings.tx_put(first.wrapping_add(n as u32), slot.id, status::OKAY);
        }
        self.rings.tx_publish(self.rings.tx_cons);
        bytes
    }
}

//! Hostile guest: a process without a frontend, which connects by the rules and then writes
//! what it likes into its rings and its folder. Two of them help each other.

use super::guest::mac;
use super::support::rings::{Rings, page, slot};
use super::support::toolstack::{backend_path, frontend_path};
use super::xen::{Domain, Xen};
use grantway_backend::VifId;
use grantway_hypervisor::{
    Access, BackendPlatform, DomId, EventChannels, FrontendPlatform, GrantRef, Granted, Platform,
    Store,
};
use grantway_netif::XenbusState as State;
use grantway_netif::rx::RxRequest;
use grantway_netif::tx::TxFlags;
use grantway_ring::{Index, RingMemory};
use grantway_testkit::Numbers;
use std::sync::Arc;

/// Pages. The guest sends from the first and the last, and receives into the others, so that it
/// never sends on what somebody else sent.
const PAGES: usize = 8;
/// Frames of one conversation to honest guests and to all guests. With this number, they and
/// the frames between honest guests always have room.
const FRAMES: usize = 16;
const BYTES: u16 = 60;

/// Act of a hostile guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Nothing,
    Connects,
    Sends,
    Betrays,
    Scribbles,
    Leaves,
}

struct Process {
    domain: Arc<Domain>,
    store: Box<dyn Store>,
    events: Box<dyn EventChannels>,
    pages: Granted,
    rings: Option<Rings>,
}

pub struct Enemy {
    pub id: VifId,
    number: usize,
    process: Option<Process>,
    /// Frames that it may send to others yet.
    left: usize,
}

impl Enemy {
    pub fn new(id: VifId, number: usize) -> Self {
        Self { id, number, process: None, left: FRAMES }
    }

    pub fn address(&self) -> [u8; 6] {
        [2, 0x66, 0, 0, 0, self.number as u8]
    }

    /// Its process dies: what it granted stays.
    pub fn dies(&mut self) {
        self.process = None;
    }

    fn process(&mut self, xen: &Xen) -> &mut Process {
        let id = self.id.domain;
        self.process.get_or_insert_with(|| {
            let domain = xen.spawn(id);
            let (store, events) = (domain.store().unwrap(), domain.events().unwrap());
            let pages = domain.grant(DomId(0), PAGES, Access::ReadWrite).unwrap();
            Process { domain, store, events, pages, rings: None }
        })
    }

    /// The next step of a handshake, or something that no rule allows.
    pub fn acts(
        &mut self,
        xen: &Xen,
        other: &mut Self,
        guests: usize,
        numbers: &mut Numbers,
    ) -> Act {
        match self.negotiates(xen) {
            Some(act) => return act,
            None if numbers.once_in(3) => return self.betrays(xen, other),
            None => {}
        }
        let kind = numbers.below(16);
        let frames = 1 + numbers.below(20);
        let to = match numbers.below(3) {
            0 => mac(numbers.below(guests)),
            1 => [0xff; 6],
            _ => other.address(),
        };
        match kind {
            0..6 => self.sends(xen, to, frames.min(self.left)),
            6..9 => self.crowds(xen, numbers),
            9..12 => self.posts(xen, numbers),
            12..14 => self.scribbles(xen, numbers),
            14 => self.writes_junk(xen, numbers),
            _ => self.leaves(xen, numbers),
        }
    }

    /// Takes the next step towards a connection. Returns none if the guest is connected.
    fn negotiates(&mut self, xen: &Xen) -> Option<Act> {
        let (front, back) = (frontend_path(self.id), backend_path(DomId(0), self.id));
        let process = self.process(xen);
        let mut state = |path: &str| {
            let text = process.store.read_text(&format!("{path}/state")).ok().flatten();
            text.and_then(|text| State::from_store(text.as_bytes()).ok())
        };
        let (own, theirs) = (state(&front), state(&back));
        let next = match (own?, theirs?) {
            (State::Connected, State::Connected) => return None,
            (State::Connected, State::InitWait) if process.rings.is_some() => {
                return Some(Act::Nothing);
            }
            (_, State::InitWait) => {
                process.connects(&front);
                return Some(Act::Connects);
            }
            (_, State::Closing) => State::Closed,
            (own, State::Closed) if own != State::Initialising => {
                process.lets_go();
                State::Initialising
            }
            _ => return Some(Act::Nothing),
        };
        let _ = process.store.write(&format!("{front}/state"), next.as_str().as_bytes());
        Some(Act::Nothing)
    }

    fn sends(&mut self, xen: &Xen, to: [u8; 6], frames: usize) -> Act {
        self.left -= frames;
        let own = self.address();
        let process = self.process(xen);
        let slots: Vec<_> = (0..frames).map(|n| process.frame(0, to, own, n as u16)).collect();
        process.puts(&slots)
    }

    /// Frames to itself from stations that are not there, as many as a turn takes.
    fn crowds(&mut self, xen: &Xen, numbers: &mut Numbers) -> Act {
        let own = self.address();
        let process = self.process(xen);
        let mut slots = vec![process.frame(0, own, own, 0)];
        for n in 0..62 {
            let from = [2, 0x67, own[5], numbers.word() as u8, n, 1];
            slots.push(process.frame(1 + usize::from(n), own, from, 0));
        }
        process.puts(&slots)
    }

    /// The other one's ring breaks where only who sends to it sees it; and this one sends to
    /// it, and breaks in the same turn.
    fn betrays(&mut self, xen: &Xen, other: &mut Self) -> Act {
        if self.left == 0 || other.left == 0 || other.negotiates(xen).is_some() {
            return Act::Nothing;
        }
        let (own, its) = (self.address(), other.address());
        other.sends(xen, own, 1);
        if let Some(rings) = &mut other.process(xen).rings {
            rings.rx.store(Index::ReqProd, rings.rx_prod.wrapping_add(10_000));
        }
        self.left -= 1;
        let process = self.process(xen);
        let good = process.frame(0, its, own, 0);
        let mut broken = good;
        broken[1] |= u32::from(TxFlags::MORE_DATA.bits()) << 16;
        process.puts(&[good, broken]);
        Act::Betrays
    }

    fn posts(&mut self, xen: &Xen, numbers: &mut Numbers) -> Act {
        let process = self.process(xen);
        let Some(rings) = &mut process.rings else { return Act::Nothing };
        let gref = |numbers: &mut Numbers| match numbers.below(4) {
            0 => numbers.word(),
            _ => process.pages.grefs[1 + numbers.below(PAGES - 2)].0,
        };
        let request = |numbers: &mut Numbers| RxRequest { id: numbers.half(), gref: gref(numbers) };
        let requests: Vec<_> = (0..numbers.below(64)).map(|_| request(numbers)).collect();
        rings.put_rx(&requests);
        process.events.notify(rings.rx_event).unwrap();
        Act::Scribbles
    }

    /// An index that no rule allows, or any words at all, at either ring.
    fn scribbles(&mut self, xen: &Xen, numbers: &mut Numbers) -> Act {
        let process = self.process(xen);
        let Some(rings) = &mut process.rings else { return Act::Nothing };
        let all = [Index::ReqProd, Index::ReqEvent, Index::RspProd, Index::RspEvent];
        let (index, value) = (numbers.one_of(&all), numbers.word() >> numbers.below(32));
        match numbers.below(3) {
            0 => rings.tx.store(index, rings.tx_prod.wrapping_add(value)),
            1 => rings.rx.store(index, rings.rx_prod.wrapping_add(value)),
            _ => {
                for _ in 0..8 {
                    rings.tx.write_slot(numbers.word(), [0; 3].map(|_| numbers.word()));
                    rings.rx.write_slot(numbers.word(), [0; 2].map(|_| numbers.word()));
                }
            }
        }
        process.events.notify(rings.tx_event).unwrap();
        Act::Scribbles
    }

    /// Writes slots of any kind. They name its own pages only, so that nobody gets what it
    /// means for others.
    fn writes_junk(&mut self, xen: &Xen, numbers: &mut Numbers) -> Act {
        let process = self.process(xen);
        let mut slot = |_| {
            let gref = process.pages.grefs[PAGES - 1];
            let flags = TxFlags::from_bits_retain(numbers.half() & 0xf);
            slot(gref, numbers.half() % 5000, numbers.half() % 3000, numbers.half(), flags)
        };
        let slots: Vec<_> = (0..20).map(&mut slot).collect();
        process.puts(&slots)
    }

    /// Says in the store that it goes, or anything; and at times is gone.
    fn leaves(&mut self, xen: &Xen, numbers: &mut Numbers) -> Act {
        let front = frontend_path(self.id);
        let state = numbers.one_of(&["1", "3", "5", "6", "9", "x"]);
        let process = self.process(xen);
        let _ = process.store.write(&format!("{front}/state"), state.as_bytes());
        if numbers.once_in(4) {
            self.dies();
        }
        Act::Leaves
    }
}

impl Process {
    fn connects(&mut self, front: &str) {
        self.lets_go();
        let rings = Rings::new(self.domain.as_ref(), self.events.as_mut(), DomId(0));
        let keys = [
            ("tx-ring-ref", rings.tx_ring.grefs[0].to_string()),
            ("rx-ring-ref", rings.rx_ring.grefs[0].to_string()),
            ("event-channel-tx", rings.tx_event.to_string()),
            ("event-channel-rx", rings.rx_event.to_string()),
            ("request-rx-copy", "1".into()),
            ("feature-rx-notify", "1".into()),
            ("feature-sg", "1".into()),
            ("state", State::Connected.as_str().into()),
        ];
        for (key, value) in keys {
            // Its folder may have gone.
            let _ = self.store.write(&format!("{front}/{key}"), value.as_bytes());
        }
        self.rings = Some(rings);
    }

    fn lets_go(&mut self) {
        let Some(rings) = self.rings.take() else { return };
        self.events.close(rings.tx_event);
        self.events.close(rings.rx_event);
        for granted in [rings.tx_ring, rings.rx_ring] {
            let _ = self.domain.release(granted);
        }
    }

    /// The slot of a frame at the place of this number, of 64.
    fn frame(&self, number: usize, to: [u8; 6], from: [u8; 6], id: u16) -> [u32; 3] {
        let (memory, gref): (_, GrantRef) = page(&self.pages, 0);
        let at = number % 64 * 64;
        let mut bytes = [&to[..], &from, &[0x88, 0xb6]].concat();
        bytes.resize(BYTES.into(), 0);
        memory.write(at, &bytes).unwrap();
        slot(gref, at as u16, BYTES, id, TxFlags::empty())
    }

    /// Sends slots, as far as there is room for them.
    fn puts(&mut self, slots: &[[u32; 3]]) -> Act {
        let Some(rings) = &mut self.rings else { return Act::Nothing };
        let used = rings.tx_prod.wrapping_sub(rings.tx.load(Index::RspProd));
        if used as usize + slots.len() > 256 {
            return Act::Nothing;
        }
        rings.put_tx(slots);
        self.events.notify(rings.tx_event).unwrap();
        Act::Sends
    }
}

//! Pages that a guest by hand receives into, and the frames that it finds there.

use super::eventually;
use super::hostile::Hostile;
use super::rings::{Rings, SLOTS, page};
use grantway_hypervisor::{Access, GrantRef, Granted};
use grantway_netif::Offload;
use grantway_netif::slots::rx::{RxOutcome, parse_rx};

/// A page for each slot of the ring, and the answers that are not looked at yet.
pub struct Inbox {
    pub into: Granted,
    /// Start of the last frame in its first page.
    pub offset: u16,
    words: Vec<[u32; 2]>,
    /// The ring's index of the first of them.
    first: u32,
}

impl Inbox {
    /// Makes an inbox with no page posted yet.
    pub fn new(guest: &Hostile, rings: &Rings) -> Self {
        let into = guest.pages(SLOTS as usize, Access::ReadWrite);
        Self { into, offset: 0, words: Vec::new(), first: rings.rx_cons }
    }

    /// Makes an inbox with all pages posted.
    pub fn posted(guest: &mut Hostile, rings: &mut Rings) -> Self {
        let inbox = Self::new(guest, rings);
        inbox.post(guest, rings, SLOTS);
        inbox
    }

    /// Posts up to `most` of the pages that are free.
    pub fn post(&self, guest: &mut Hostile, rings: &mut Rings, most: u32) {
        let free = SLOTS - rings.rx_prod.wrapping_sub(self.first);
        let gref = |n| self.into.grefs[(rings.rx_prod.wrapping_add(n) % SLOTS) as usize];
        let grefs: Vec<GrantRef> = (0..most.min(free)).map(gref).collect();
        guest.post(rings, &grefs);
    }

    /// The next frame that the guest is given, and its state.
    #[track_caller]
    pub fn next(&mut self, rings: &mut Rings) -> (Vec<u8>, Offload) {
        let words = eventually("a frame", || {
            self.words.extend(rings.rx_words());
            let slots = parse_rx(&self.words).ok().flatten()?.slots;
            Some(self.words.drain(..slots).collect::<Vec<_>>())
        });
        let parsed = parse_rx(&words).unwrap().unwrap();
        let RxOutcome::Packet(packet) = &parsed.outcome else { panic!("{parsed:?}") };
        self.offset = packet.fragments().next().unwrap().offset;
        let mut frame = Vec::new();
        for fragment in packet.fragments() {
            let mut part = vec![0; fragment.len.into()];
            let at = self.first.wrapping_add(fragment.slot as u32) % SLOTS;
            let (memory, _) = page(&self.into, at as usize);
            memory.read(fragment.offset.into(), &mut part).unwrap();
            frame.extend(part);
        }
        self.first = self.first.wrapping_add(parsed.slots as u32);
        (frame, packet.offload)
    }
}

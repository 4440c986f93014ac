//! Guests on the bridge, made by hand.

use crate::support::ctrl::Lists;
use crate::support::eventually;
use crate::support::hostile::Hostile;
use crate::support::port::Behind;
use crate::support::rings::{Rings, SLOTS, page, slot};
use crate::support::tcp::Tcp;
use crate::support::world::World;
use grantway_backend::VifId;
use grantway_hypervisor::{Access, DomId, GrantRef, Granted};
use grantway_netif::ctrl::{GrefEntry, GrefFlags};
use grantway_netif::extra::Extra;
use grantway_netif::rx::{RxFlags, RxResponse};
use grantway_netif::slots::rx::{RxOutcome, parse_rx};
use grantway_netif::tx::{TxFlags, TxRequest, TxResponse, status};
use grantway_netif::{Checksum, Gso, Offload};
use grantway_ring::{Index, RingMemory};
use std::collections::VecDeque;

pub type Address = [u8; 6];
pub const BROADCAST: Address = [0xff; 6];
pub const NOBODY: Address = [2, 9, 9, 9, 9, 9];

/// A guest with pages to send from and to receive into.
pub struct Guest {
    pub hostile: Hostile,
    pub rings: Rings,
    pub address: Address,
    pub out: Granted,
    pub into: Granted,
    /// Start of the last frame of [`Guest::gets`] in its first page.
    pub offset: u16,
    /// Answers that were taken off the ring and not looked at, by their index.
    answers: VecDeque<(u32, RxResponse)>,
}

impl Guest {
    pub fn boot_as(world: &mut World, number: u16, keys: &[(&str, &str)]) -> Self {
        Self::boot_with(world, number, &[], keys)
    }

    /// Starts a guest with these nodes in the backend's folder, and with these keys of its own.
    pub fn boot_with(
        world: &mut World,
        number: u16,
        nodes: &[(&str, &str)],
        keys: &[(&str, &str)],
    ) -> Self {
        let vif = VifId { domain: DomId(20 + number), devid: 0 };
        let domain = world.boot(vif.domain);
        let mut hostile = world.vif_with(domain, vif, nodes);
        let rings = hostile.connect_as(keys);
        let out = hostile.pages(24, Access::ReadOnly);
        let into = hostile.pages(SLOTS as usize, Access::ReadWrite);
        let address = [2, 0, 0, 0, 0, number as u8];
        Self { hostile, rings, address, out, into, offset: 0, answers: VecDeque::new() }
    }

    /// Starts a guest with all its pages staged.
    pub fn boot_staged(world: &mut World, number: u16, keys: &[(&str, &str)]) -> Self {
        let mut hostile = world.guest_of(VifId { domain: DomId(20 + number), devid: 0 });
        let (mut lists, rings) = Lists::connect_as(&mut hostile, keys);
        let out = hostile.pages(24, Access::ReadOnly);
        let into = hostile.pages(SLOTS as usize, Access::ReadWrite);
        for (pages, flags) in [(&out, GrefFlags::READONLY), (&into, GrefFlags::empty())] {
            let entry = |gref: &GrantRef| GrefEntry { gref: gref.0, flags, status: 0 };
            let list: Vec<_> = pages.grefs.iter().map(entry).collect();
            assert_eq!(lists.add(&mut hostile, &list), Ok(0));
        }
        let address = [2, 0, 0, 0, 0, number as u8];
        Self { hostile, rings, address, out, into, offset: 0, answers: VecDeque::new() }
    }

    /// Posts this many pages.
    pub fn posts(&mut self, pages: usize) {
        let first = self.rings.rx_prod as usize;
        let gref = |n| self.into.grefs[(first + n) % SLOTS as usize];
        let grefs: Vec<GrantRef> = (0..pages).map(gref).collect();
        self.hostile.post(&mut self.rings, &grefs);
    }

    /// Lays a frame out in its pages, cut as `cuts` says (bytes a fragment), and
    /// gives its slots.
    pub fn slots(&self, frame: &[u8], cuts: &mut dyn FnMut() -> usize, id: u16) -> Vec<[u32; 3]> {
        let mut parts = Vec::new();
        let mut at = 0;
        while at < frame.len() {
            let left = self.out.grefs.len() - parts.len();
            assert!(left > 0);
            let size = cuts().clamp(1, 4096).min(frame.len() - at);
            let offset = (4096 - size) / 2;
            let (memory, gref) = page(&self.out, parts.len());
            memory.write(offset, &frame[at..at + size]).unwrap();
            parts.push((gref, offset as u16, size as u16));
            at += size;
        }
        let count = parts.len();
        let slot_of = |(n, (gref, offset, size)): (usize, (GrantRef, u16, u16))| {
            let size = if n == 0 { frame.len() as u16 } else { size };
            let more = if n + 1 < count { TxFlags::MORE_DATA } else { TxFlags::empty() };
            slot(gref, offset, size, id, more)
        };
        parts.into_iter().enumerate().map(slot_of).collect()
    }

    /// The slots of a frame that is left to be finished.
    pub fn unfinished(
        &self,
        frame: &[u8],
        cuts: &mut dyn FnMut() -> usize,
        gso: Gso,
    ) -> Vec<[u32; 3]> {
        let mut slots = self.slots(frame, cuts, 7);
        let mut first = TxRequest::from_words(slots[0]);
        first.flags |= TxFlags::EXTRA_INFO | TxFlags::CSUM_BLANK;
        slots[0] = first.to_words();
        slots.insert(1, Extra::Gso(gso.try_into().unwrap(), 0).to_tx_words(false));
        slots
    }

    /// Sends a frame in whole pages; all of it is answered okay.
    #[track_caller]
    pub fn sends(&mut self, frame: &[u8]) {
        let slots = self.slots(frame, &mut || 4096, 7);
        self.sends_slots(&slots);
    }

    #[track_caller]
    pub fn sends_slots(&mut self, slots: &[[u32; 3]]) {
        for answer in self.hostile.transmit(&mut self.rings, slots) {
            assert_eq!(answer, TxResponse { id: 7, status: status::OKAY });
        }
    }

    /// The next frame that it is given.
    #[track_caller]
    pub fn gets(&mut self) -> Vec<u8> {
        let mut frame = Vec::new();
        loop {
            if self.answers.is_empty() {
                let first = self.rings.rx_cons;
                let came = self.hostile.rx_answers(&mut self.rings, 1);
                self.answers.extend((first..).zip(came));
            }
            let (index, answer) = self.answers.pop_front().unwrap();
            assert!(answer.status >= 0, "{answer:?}");
            if frame.is_empty() {
                self.offset = answer.offset;
            }
            self.read(index, answer, &mut frame);
            if !answer.flags.contains(RxFlags::MORE_DATA) {
                return frame;
            }
        }
    }

    /// The next frame that it is given, and its state.
    #[track_caller]
    pub fn gets_unfinished(&mut self) -> (Vec<u8>, Offload) {
        assert!(self.answers.is_empty(), "frames that were not looked at");
        let first = self.rings.rx_cons;
        let mut words = Vec::new();
        let slots = eventually("a frame", || {
            words.extend(self.rings.rx_words());
            Some(parse_rx(&words).ok().flatten()?.slots)
        });
        assert_eq!(slots, words.len(), "one frame");
        let parsed = parse_rx(&words).unwrap().unwrap();
        let RxOutcome::Packet(packet) = &parsed.outcome else { panic!("{parsed:?}") };
        let mut frame = Vec::new();
        for fragment in packet.fragments() {
            let mut part = vec![0; fragment.len.into()];
            let (memory, _) = page(&self.into, (first as usize + fragment.slot) % SLOTS as usize);
            memory.read(fragment.offset.into(), &mut part).unwrap();
            frame.extend(part);
        }
        (frame, packet.offload)
    }

    pub fn read(&self, index: u32, answer: RxResponse, frame: &mut Vec<u8>) {
        let (memory, _) = page(&self.into, (index % SLOTS) as usize);
        let mut bytes = vec![0; answer.status as usize];
        memory.read(answer.offset.into(), &mut bytes).unwrap();
        frame.extend(bytes);
    }

    /// Takes the frames that arrived, and returns their number. Each must be for this guest,
    /// and finished if `finished` is set.
    #[track_caller]
    pub fn takes_what_is_its_own(&mut self, finished: bool) -> u32 {
        let mut count = 0;
        while self.rings.rx.load(Index::RspProd) != self.rings.rx_cons || !self.answers.is_empty() {
            let bytes = self.gets();
            count += 1;
            assert_eq!(bytes[..6], self.address, "another one's frame");
            let tcp = match &bytes[12..14] {
                [8, 0] => Tcp { v6: false },
                [0x86, 0xdd] => Tcp { v6: true },
                other => panic!("type {other:x?}"),
            };
            if finished {
                tcp.check(&bytes, Checksum::Complete);
            }
        }
        count
    }

    /// Checks that nothing waits for the guest. All senders have been answered; since then its
    /// own queue had a whole turn, between the answers to two frames that are too short.
    #[track_caller]
    pub fn gets_nothing(&mut self) {
        let short = slot(self.out.grefs[0], 0, 3, 8, TxFlags::empty());
        for _ in 0..2 {
            let answers = self.hostile.transmit(&mut self.rings, &[short]);
            assert_eq!(answers, [TxResponse { id: 8, status: status::ERROR }]);
        }
        assert_eq!(self.rings.rx.load(Index::RspProd), self.rings.rx_cons, "nothing for it");
    }
}

/// Three that know each other; `plain` is whether the others take nothing that is
/// unfinished, `staged` whether all have their pages staged.
pub fn three_as(world: &mut World, plain: bool, staged: bool) -> [Guest; 3] {
    let keys = [("feature-no-csum-offload", "1"), ("feature-sg", "0")];
    let mut guests = [1, 2, 3].map(|number| {
        let keys = if plain && number > 1 { &keys[..] } else { &[] };
        match staged {
            true => Guest::boot_staged(world, number, keys),
            false => Guest::boot_as(world, number, keys),
        }
    });
    know_each_other(&mut guests);
    guests
}

pub fn frame(to: Address, from: Address, len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|n| (n ^ (n >> 8)) as u8).collect();
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&0x88b6_u16.to_be_bytes());
    frame
}

/// Three guests that know each other.
pub fn three(world: &mut World) -> [Guest; 3] {
    three_as(world, false, false)
}

/// Waits for `frames` frames at the uplink, behind those by which guests know each other. The
/// uplink may belong to another worker than their sender, which is answered before.
#[track_caller]
pub fn uplink_takes(uplink: &Behind, frames: usize) -> Vec<(Vec<u8>, Offload)> {
    eventually("frames for the uplink", || {
        let taken = &mut uplink.look().taken;
        taken.retain(|(bytes, _)| bytes[..6] != NOBODY);
        (taken.len() >= frames).then(|| taken.split_off(0))
    })
}

pub fn know_each_other(guests: &mut [Guest; 3]) {
    for sender in 0..3 {
        let bytes = frame(NOBODY, guests[sender].address, 60);
        for (n, guest) in guests.iter_mut().enumerate() {
            if n != sender {
                guest.posts(1);
            }
        }
        guests[sender].sends(&bytes);
        for (n, guest) in guests.iter_mut().enumerate() {
            if n != sender {
                assert_eq!(guest.gets(), bytes, "flooded to all others");
            }
        }
    }
}

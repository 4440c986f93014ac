//! Packets that are not as a frontend should make them.

use crate::support::hostile::{Hostile, frame};
use crate::support::rings::{Rings, SLOTS, page, slot};
use crate::support::world::World;
use grantway_hypervisor::{Access, GrantRef, Granted};
use grantway_netif::extra::Extra;
use grantway_netif::tx::{TxFlags, TxResponse, status};
use grantway_netif::{Checksum, Gso, GsoKind, Hash, Offload};

const NONE: TxFlags = TxFlags::empty();
const MORE: TxFlags = TxFlags::MORE_DATA;
const EXTRA: TxFlags = TxFlags::EXTRA_INFO;
/// A reference that nobody granted.
const NOWHERE: GrantRef = GrantRef(30_000);

/// A world, a guest that is connected, and a page of it.
struct Attack {
    world: World,
    guest: Hostile,
    rings: Rings,
    pool: Granted,
}

impl Attack {
    fn new() -> Self {
        let mut world = World::new();
        let mut guest = world.guest();
        let rings = guest.connect();
        let pool = guest.pages(24, Access::ReadOnly);
        for index in 0..24 {
            page(&pool, index).0.write(0, &frame(4096)).unwrap();
        }
        Self { world, guest, rings, pool }
    }

    fn gref(&self) -> GrantRef {
        self.pool.grefs[0]
    }

    /// Returns a chain of `count` slots of these sizes. The size of the first is that of the
    /// whole packet. The ids count up from 100.
    fn chain(&self, count: usize, first: u16, later: u16) -> Vec<[u32; 3]> {
        (0..count)
            .map(|n| {
                let flags = if n + 1 < count { MORE } else { NONE };
                let size = if n == 0 { first } else { later };
                slot(self.pool.grefs[n % 24], 0, size, 100 + n as u16, flags)
            })
            .collect()
    }

    /// Every slot is answered so, and the vif goes on.
    #[track_caller]
    fn answered(&mut self, slots: &[[u32; 3]], status: i16) {
        let answers = self.guest.transmit(&mut self.rings, slots);
        let expected: Vec<TxResponse> =
            slots.iter().map(|words| TxResponse { id: words[2] as u16, status }).collect();
        assert_eq!(answers, expected);
        self.guest.is_served(&mut self.rings);
    }

    fn taken(&self) -> Vec<(Vec<u8>, Offload)> {
        std::mem::take(&mut self.world.behind(self.guest.vif).look().taken)
    }

    /// A good packet before it is answered; the chain itself is not, and the
    /// vif is disabled for this reason, lets go of all, and may come back.
    #[track_caller]
    fn fatal(&mut self, chain: &[[u32; 3]], why: &str) {
        let before = slot(self.gref(), 0, 60, 5, NONE);
        let mut slots = vec![before];
        slots.extend_from_slice(chain);
        self.rings.put_tx(&slots);
        self.guest.kick(self.rings.tx_event);
        let said = self.guest.await_disabled();
        assert!(said.contains(why), "{said:?} does not tell of {why:?}");
        let answers = self.rings.tx_answers();
        assert_eq!(answers, [TxResponse { id: 5, status: status::OKAY }]);
        self.world.holds_nothing_of(self.guest.vif.domain);
        self.rings = self.guest.connect();
        self.guest.is_served(&mut self.rings);
    }
}

#[test]
fn xsa_423_headers_split_over_one_byte_fragments() {
    let mut attack = Attack::new();
    let whole = frame(19);
    let pages: Vec<_> = whole.iter().map(|&byte| attack.guest.page(&[byte])).collect();
    let slots: Vec<_> = pages
        .iter()
        .enumerate()
        .map(|(n, (_, gref))| {
            let flags = if n < 18 { MORE } else { NONE };
            slot(*gref, 0, if n == 0 { 19 } else { 1 }, 100 + n as u16, flags)
        })
        .collect();
    attack.answered(&slots, status::OKAY);
    let taken = attack.taken();
    assert_eq!(taken[0].0, whole);
    attack.world.stands();
}

#[test]
fn xsa_432_header_and_eighteen_slots_and_more() {
    let mut attack = Attack::new();
    // 19 is what stock netback takes, beside the longest frame there is.
    let full = 3640;
    let longest = attack.chain(19, 65_535, full);
    attack.answered(&longest, status::OKAY);
    assert_eq!(attack.taken()[0].0.len(), 65_535);
    // Many of them in one burst: 13 fill the ring.
    let mut burst = Vec::new();
    for _ in 0..13 {
        burst.extend(attack.chain(19, 65_535, full));
    }
    attack.answered(&burst, status::OKAY);
    for count in [20, 21] {
        let slots = attack.chain(count, 2000, 10);
        attack.answered(&slots, status::ERROR);
    }
    for count in [22, 23, 255] {
        let slots = attack.chain(count, 2000, 10);
        attack.fatal(&slots, "slots or more");
    }
    attack.world.stands();
}

#[test]
fn xsa_448_zero_length_fragments_make_no_operation() {
    let mut attack = Attack::new();
    let good = attack.gref();
    // An operation on such a fragment would fail, and the packet with it.
    let empty = |id, flags| slot(NOWHERE, 4096, 0, id, flags);
    // Empty ones behind, between, and the first one of all.
    attack.answered(
        &[slot(good, 0, 60, 1, MORE), empty(2, MORE), empty(3, MORE), empty(4, NONE)],
        status::OKAY,
    );
    attack.answered(&[slot(good, 0, 60, 1, MORE), empty(2, MORE), slot(good, 40, 20, 3, NONE)], 0);
    attack.answered(&[slot(NOWHERE, 0, 60, 1, MORE), slot(good, 0, 60, 2, NONE)], status::OKAY);
    let mut all: Vec<_> = (0..18).map(|n| empty(n, MORE)).collect();
    all.insert(0, slot(good, 0, 60, 200, MORE));
    all[18] = empty(201, NONE);
    attack.answered(&all, status::OKAY);
    let expected = [60, 60, 60, 60, 60, 60, 60, 60];
    let taken = attack.taken();
    assert_eq!(taken.iter().map(|(bytes, _)| bytes.len()).collect::<Vec<_>>(), expected);
    let bytes = frame(60);
    assert_eq!(taken[2].0, [&bytes[..40], &bytes[40..]].concat());
    // No operation at all for a packet that is empty as a whole: too short.
    attack.answered(&[empty(9, MORE), empty(10, NONE)], status::ERROR);
    attack.answered(&[empty(9, NONE)], status::ERROR);
    attack.world.stands();
}

#[test]
fn chains_of_slots_that_never_end() {
    let mut attack = Attack::new();
    for published in [1, 2, 21, 255] {
        let endless: Vec<_> = (0..published)
            .map(|n| slot(attack.gref(), 0, if n == 0 { 1000 } else { 1 }, n, MORE))
            .collect();
        let why = if published < 22 { "goes on past" } else { "slots or more" };
        attack.fatal(&endless, why);
    }
    attack.world.stands();
}

#[test]
fn chains_of_extras_without_an_end_are_fatal() {
    let mut attack = Attack::new();
    let more = Extra::Hash(Hash { kind: 0, algorithm: 1, value: 7 }).to_tx_words(true);
    for published in [0, 1, 17, 254] {
        let mut slots = vec![slot(attack.gref(), 0, 60, 1, EXTRA)];
        slots.extend(std::iter::repeat_n(more, published));
        attack.fatal(&slots, "goes on past");
    }
    // Many that do end are odd, and each is answered.
    let mut slots = vec![slot(attack.gref(), 0, 60, 1, EXTRA)];
    slots.extend(std::iter::repeat_n(more, 100));
    slots.push(Extra::Xdp { headroom: 9 }.to_tx_words(false));
    let answers = attack.guest.transmit(&mut attack.rings, &slots);
    assert_eq!(answers[0], TxResponse { id: 1, status: status::OKAY });
    assert!(answers[1..].iter().all(|answer| *answer == TxResponse::NULL));
    attack.guest.is_served(&mut attack.rings);
    attack.world.stands();
}

#[test]
fn invalid_extras_are_fatal() {
    let mut attack = Attack::new();
    let first = slot(attack.gref(), 0, 60, 1, EXTRA);
    let gso = |size: u32, kind: u32| [1 | size << 16, kind, 0];
    for (extra, why) in [
        (gso(0, 1), "segment size 0"),
        (gso(1448, 0), "unknown type 0"),
        (gso(1448, 3), "unknown type 3"),
        ([0, 0, 0], "unknown type 0"),
        ([6, 0, 0], "unknown type 6"),
        ([0xff, 0, 0], "unknown type 255"),
    ] {
        attack.fatal(&[first, extra], why);
    }
    attack.world.stands();
}

#[test]
fn multicast_changes_without_end_and_of_no_group() {
    let mut attack = Attack::new();
    let mut change = |extra: Extra| {
        let slots = [slot(NOWHERE, 0xffff, 0xffff, 9, EXTRA), extra.to_tx_words(false)];
        let answers = attack.guest.transmit(&mut attack.rings, &slots);
        assert_eq!((answers.len(), answers[0].id, answers[1]), (2, 9, TxResponse::NULL));
        answers[0].status
    };
    assert_eq!(change(Extra::McastDel([0xff; 6])), status::OKAY);
    assert_eq!(change(Extra::McastAdd([2, 0, 0, 0, 0, 1])), status::ERROR);
    for n in 0..100 {
        let listed = if n < 64 { status::OKAY } else { status::ERROR };
        assert_eq!(change(Extra::McastAdd([1, 0, 0x5e, 0, 0, n])), listed, "address {n}");
    }
    assert_eq!(change(Extra::McastDel([1, 0, 0x5e, 0, 0, 3])), status::OKAY);
    assert_eq!(change(Extra::McastAdd([1, 0, 0x5e, 0, 0, 99])), status::OKAY);
    attack.guest.is_served(&mut attack.rings);
    attack.world.stands();
}

#[test]
fn offsets_that_cross_the_page() {
    let mut attack = Attack::new();
    let gref = attack.gref();
    for (offset, size) in [(4096, 60), (4095, 14), (0, 4097), (0xffff, 0xffff), (4037, 60)] {
        attack.fatal(&[slot(gref, offset, size, 1, NONE)], "slot 0");
        // The same in a later fragment, whose packet is as long as it says.
        let total = 60u16.saturating_add(size);
        let later = slot(gref, offset, size, 2, NONE);
        attack.fatal(&[slot(gref, 0, total, 1, MORE), later], "slot 1");
    }
    // The last byte of a page is as good as the first.
    attack.answered(&[slot(gref, 4036, 60, 1, NONE)], status::OKAY);
    attack.answered(&[slot(gref, 0, 4096, 1, NONE)], status::OKAY);
    attack.world.stands();
}

#[test]
fn sizes_that_contradict_each_other() {
    let mut attack = Attack::new();
    for (first, later, count) in [(59, 60, 2), (0, 1, 2), (60, 4096, 18), (100, 4096, 19)] {
        let slots = attack.chain(count, first, later);
        attack.answered(&slots, status::ERROR);
    }
    for size in [0, 1, 13] {
        let slots = [slot(attack.gref(), 0, size, 1, NONE)];
        attack.answered(&slots, status::ERROR);
    }
    assert_eq!(attack.taken().len(), 7, "only the good ones in between");
    attack.world.stands();
}

#[test]
fn requests_with_equal_ids_are_each_answered() {
    let mut attack = Attack::new();
    let gref = attack.gref();
    for id in [0, 0xffff] {
        let slots = vec![slot(gref, 0, 60, id, NONE); SLOTS as usize];
        attack.answered(&slots, status::OKAY);
        let chain =
            [slot(gref, 0, 90, id, MORE), slot(gref, 0, 10, id, MORE), slot(gref, 0, 10, id, NONE)];
        attack.answered(&chain, status::OKAY);
    }
    attack.world.stands();
}

#[test]
fn unknown_flags_are_ignored() {
    let mut attack = Attack::new();
    let flags = TxFlags::from_bits_retain(0xfff0);
    let slots = [slot(attack.gref(), 0, 60, 1, flags)];
    attack.answered(&slots, status::OKAY);
    assert_eq!(attack.taken()[0], (frame(60), Offload::default()));
    attack.world.stands();
}

#[test]
fn mirage_net_xen_122_checksum_states_are_not_mixed_up() {
    let mut attack = Attack::new();
    let gref = attack.gref();
    let (blank, valid) = (TxFlags::CSUM_BLANK, TxFlags::DATA_VALIDATED);
    for (flags, expected) in [
        (NONE, Checksum::Unknown),
        (valid, Checksum::Complete),
        (blank, Checksum::Partial),
        (blank | valid, Checksum::Partial),
    ] {
        attack.answered(&[slot(gref, 0, 60, 1, flags)], status::OKAY);
        let taken = attack.taken();
        assert_eq!(taken[0].1, Offload { checksum: expected, gso: None }, "{flags:?}");
    }
    // Segmentation implies a blank checksum even where it was not said.
    let gso = Gso { kind: GsoKind::Tcpv6, size: 1 };
    let slots =
        [slot(gref, 0, 60, 1, EXTRA), Extra::Gso(gso.try_into().unwrap(), 0).to_tx_words(false)];
    attack.guest.transmit(&mut attack.rings, &slots);
    let taken = attack.taken();
    assert_eq!(taken[0].1, Offload { checksum: Checksum::Partial, gso: Some(gso) });
    // And towards the guest: its bits are swapped.
    let buffers = attack.guest.pages(3, Access::ReadWrite);
    attack.guest.post(&mut attack.rings, &buffers.grefs);
    let states = [Checksum::Unknown, Checksum::Complete, Checksum::Partial];
    for checksum in states {
        let offload = Offload { checksum, gso: None };
        attack.world.behind(attack.guest.vif).give(frame(60), offload);
    }
    let answers = attack.guest.rx_answers(&mut attack.rings, 3);
    assert_eq!(answers.iter().map(|a| a.flags.bits()).collect::<Vec<_>>(), [0, 1, 1 | 2]);
    attack.world.stands();
}

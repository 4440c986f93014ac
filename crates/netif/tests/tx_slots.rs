//! Chains of transmit requests: both ends, what is refused and what is fatal.

use arrayvec::ArrayVec;
use grantway_netif::extra::{Extra, ExtraError};
use grantway_netif::slots::tx::{SLOTS_SENT, SLOTS_WRITTEN};
use grantway_netif::slots::{
    Multicast, Outcome, Parsed, TxFatal, TxFragment, TxRefusal, TxWriteError, parse_tx, write_tx,
};
use grantway_netif::tx::{TxFlags, TxRequest, TxResponse, status};
use grantway_netif::{Checksum, Gso, GsoKind, Hash, NotTcp, Offload};
use proptest::prelude::*;

fn slot(id: u16, offset: u16, size: u16, flags: TxFlags) -> [u32; 3] {
    TxRequest { gref: 100 + u32::from(id), offset, flags, id, size }.to_words()
}

/// A packet of `count` data slots with 100 bytes each.
fn chain(count: u16) -> Vec<[u32; 3]> {
    (0..count)
        .map(|id| {
            let mut flags = TxFlags::empty();
            flags.set(TxFlags::MORE_DATA, id + 1 < count);
            slot(id, 0, if id == 0 { count * 100 } else { 100 }, flags)
        })
        .collect()
}

fn parsed(slots: &[[u32; 3]]) -> Parsed<'_> {
    parse_tx(slots).unwrap().unwrap()
}

fn refusal(slots: &[[u32; 3]]) -> TxRefusal {
    match parsed(slots).outcome {
        Outcome::Refused(refused) => refused.reason,
        Outcome::Packet(packet) => panic!("taken: {packet:?}"),
    }
}

fn answers(parsed: &Parsed, status: i16) -> Vec<(u16, i16)> {
    let answers = parsed.responses(status);
    assert_eq!(answers.len(), parsed.slots);
    answers.map(|answer| (answer.id, answer.status)).collect()
}

#[test]
fn nothing_published_is_no_packet() {
    assert_eq!(parse_tx(&[]), Ok(None));
}

#[test]
fn first_fragment_is_the_total_less_the_others() {
    let slots = [
        slot(7, 10, 1514, TxFlags::MORE_DATA),
        slot(8, 0, 1000, TxFlags::MORE_DATA),
        slot(9, 4000, 96, TxFlags::empty()),
        slot(1, 0, 60, TxFlags::empty()),
    ];
    let parsed = parsed(&slots);
    assert_eq!(parsed.slots, 3);
    let Outcome::Packet(packet) = &parsed.outcome else { panic!("refused") };
    let sizes: Vec<_> = packet.fragments().map(|f| (f.id, f.size)).collect();
    assert_eq!(sizes, [(7, 418), (8, 1000), (9, 96)]);
    assert_eq!((packet.len, packet.extras), (1514, 0));
    assert_eq!(packet.slots(), 3);
    assert_eq!(answers(&parsed, status::OKAY), [(7, 0), (8, 0), (9, 0)]);
}

#[test]
fn slot_limits_are_stock_netbacks() {
    for count in 1..=19 {
        assert!(matches!(parsed(&chain(count)).outcome, Outcome::Packet(_)));
    }
    for count in 20..=21 {
        let slots = chain(count);
        let parsed = parsed(&slots);
        assert_eq!(parsed.slots, usize::from(count));
        let ids: Vec<_> = answers(&parsed, status::ERROR);
        let expected: Vec<_> = (0..count).map(|id| (id, status::ERROR)).collect();
        assert_eq!(ids, expected, "each slot is answered once, in order");
        let found = usize::from(count);
        assert_eq!(refusal(&chain(count)), TxRefusal::TooManySlots { found });
    }
    for count in 22..=256 {
        let fatal = Err(TxFatal::TooManySlots { found: 22 });
        assert_eq!(parse_tx(&chain(count)), fatal);
    }
}

#[test]
fn truncated_chains_are_fatal() {
    for count in 2..=21 {
        let slots = chain(count);
        for published in 1..slots.len() {
            let fatal = Err(TxFatal::Truncated { published });
            assert_eq!(parse_tx(&slots[..published]), fatal);
        }
    }
    let lone = [slot(1, 0, 60, TxFlags::EXTRA_INFO)];
    let fatal = Err(TxFatal::Truncated { published: 1 });
    assert_eq!(parse_tx(&lone), fatal);
    let more = [lone[0], Extra::Xdp { headroom: 0 }.to_tx_words(true)];
    let fatal = Err(TxFatal::Truncated { published: 2 });
    assert_eq!(parse_tx(&more), fatal);
}

#[test]
fn fragments_longer_than_the_packet_are_refused() {
    // A frame of 64 KiB and more, whose size has run over.
    let slots = [
        slot(1, 0, 100, TxFlags::MORE_DATA),
        slot(2, 0, 4096, TxFlags::MORE_DATA),
        slot(3, 0, 4096, TxFlags::empty()),
    ];
    let reason = TxRefusal::FragmentsExceedPacket { total: 100, fragments: 8192 };
    assert_eq!(refusal(&slots), reason);
    let answers = answers(&parsed(&slots), status::ERROR);
    assert_eq!(answers, [(1, -1), (2, -1), (3, -1)]);
}

#[test]
fn fragments_that_cross_a_page_are_fatal() {
    for (offset, size) in [(1, 4096), (4096, 1), (4083, 14), (u16::MAX, u16::MAX)] {
        let first = [slot(1, offset, size, TxFlags::empty())];
        if size >= 14 {
            let slot = 0;
            let fatal = Err(TxFatal::CrossesPage { slot, offset, size });
            assert_eq!(parse_tx(&first), fatal);
        }
        let later =
            [slot(1, 0, u16::MAX, TxFlags::MORE_DATA), slot(2, offset, size, TxFlags::empty())];
        let slot = 1;
        let fatal = Err(TxFatal::CrossesPage { slot, offset, size });
        assert_eq!(parse_tx(&later), fatal);
    }
    assert!(matches!(parsed(&[slot(1, 0, 4096, TxFlags::empty())]).outcome, Outcome::Packet(_)));
}

#[test]
fn short_packets_are_refused() {
    for found in 0..14 {
        let slots = [slot(1, 4095, found, TxFlags::empty())];
        assert_eq!(refusal(&slots), TxRefusal::TooShort { found });
    }
}

#[test]
fn bad_extras_are_fatal() {
    let first = slot(1, 0, 60, TxFlags::EXTRA_INFO);
    for found in [0, 6, 7, 255] {
        let reason = ExtraError::UnknownType { found };
        let fatal = Err(TxFatal::BadExtra { slot: 1, reason });
        assert_eq!(parse_tx(&[first, [u32::from(found), 0, 0]]), fatal);
    }
    let reason = ExtraError::ZeroGsoSize;
    let fatal = Err(TxFatal::BadExtra { slot: 1, reason });
    assert_eq!(parse_tx(&[first, [1, 1, 0]]), fatal);
    for found in [0, 3, 255] {
        let reason = ExtraError::UnknownGsoKind { found };
        let fatal = Err(TxFatal::BadExtra { slot: 1, reason });
        let extra = [1 | 1448 << 16, u32::from(found), 0];
        assert_eq!(parse_tx(&[first, extra]), fatal);
    }
}

#[test]
fn endless_extras_are_fatal() {
    let mut slots = vec![slot(1, 0, 60, TxFlags::EXTRA_INFO)];
    slots.resize(4000, Extra::Xdp { headroom: 0 }.to_tx_words(true));
    let fatal = Err(TxFatal::TooManyExtras { found: 256 });
    assert_eq!(parse_tx(&slots), fatal);
    // The ring holds 256 slots: that many end as truncated.
    let fatal = Err(TxFatal::Truncated { published: 256 });
    assert_eq!(parse_tx(&slots[..256]), fatal);
}

#[test]
fn a_chain_of_many_extras_is_odd_but_legal() {
    let hash = |value| Extra::Hash(Hash { kind: 1, algorithm: 1, value });
    let mut slots = vec![slot(5, 0, 60, TxFlags::EXTRA_INFO | TxFlags::MORE_DATA)];
    for value in 0..200 {
        slots.push(hash(value).to_tx_words(value < 199));
    }
    slots.push(slot(6, 0, 10, TxFlags::empty()));
    let parsed = parsed(&slots);
    assert_eq!(parsed.slots, 202);
    let Outcome::Packet(packet) = &parsed.outcome else { panic!("refused") };
    assert_eq!(packet.extras, 200);
    assert_eq!(packet.hash.map(|hash| hash.value), Some(199), "the last counts");
    let answers = answers(&parsed, status::OKAY);
    assert_eq!(answers[0], (5, status::OKAY));
    assert!(answers[1..201].iter().all(|answer| *answer == (0, status::NULL)));
    assert_eq!(answers[201], (6, status::OKAY));
}

#[test]
fn multicast_changes_are_answered_and_carry_nothing() {
    let address = [1, 0, 0x5e, 1, 2, 3];
    for (extra, change) in [
        (Extra::McastAdd(address), Multicast::Add(address)),
        (Extra::McastDel(address), Multicast::Remove(address)),
    ] {
        // Size and MORE_DATA of the request are not looked at.
        let flags = TxFlags::EXTRA_INFO | TxFlags::MORE_DATA;
        let slots =
            [slot(3, 9, 5000, flags), extra.to_tx_words(false), slot(4, 0, 60, TxFlags::empty())];
        let parsed = parsed(&slots);
        let Outcome::Packet(packet) = &parsed.outcome else { panic!("refused") };
        assert_eq!(packet.multicast, Some(change));
        assert_eq!(packet.len, 0);
        assert!(packet.fragments().all(|fragment| fragment.is_empty()));
        assert_eq!(answers(&parsed, status::OKAY), [(3, 0), (0, status::NULL)]);
    }
    let both = [
        slot(3, 0, 0, TxFlags::EXTRA_INFO),
        Extra::McastDel([2; 6]).to_tx_words(true),
        Extra::McastAdd(address).to_tx_words(false),
    ];
    let Outcome::Packet(packet) = parsed(&both).outcome else { panic!("refused") };
    assert_eq!(packet.multicast, Some(Multicast::Add(address)));
}

#[test]
fn segmentation_implies_a_partial_checksum() {
    let gso = Gso { kind: GsoKind::Tcpv6, size: 1428 };
    let slots = [
        slot(1, 0, 4000, TxFlags::EXTRA_INFO),
        Extra::Gso(gso.try_into().unwrap(), 7).to_tx_words(false),
    ];
    let Outcome::Packet(packet) = parsed(&slots).outcome else { panic!("refused") };
    assert_eq!(packet.offload.gso, Some(gso));
    assert_eq!(packet.offload.checksum, Checksum::Partial);
}

#[test]
fn three_checksum_states() {
    for (flags, checksum) in [
        (TxFlags::empty(), Checksum::Unknown),
        (TxFlags::DATA_VALIDATED, Checksum::Complete),
        (TxFlags::CSUM_BLANK, Checksum::Partial),
        (TxFlags::CSUM_BLANK | TxFlags::DATA_VALIDATED, Checksum::Partial),
    ] {
        let slots = [slot(1, 0, 60, flags)];
        let Outcome::Packet(packet) = parsed(&slots).outcome else { panic!("refused") };
        assert_eq!(packet.offload.checksum, checksum);
    }
}

#[test]
fn unknown_flags_mean_nothing() {
    let flags = TxFlags::from_bits_retain(0xfff0);
    let slots = [slot(1, 0, 60, flags)];
    let parsed = parsed(&slots);
    assert_eq!(parsed.slots, 1);
    assert!(matches!(parsed.outcome, Outcome::Packet(_)));
}

fn fragment(size: u16) -> TxFragment {
    TxFragment { gref: 9, offset: 0, size, id: 1 }
}

#[test]
fn the_writer_refuses_what_stock_netback_would_not_like() {
    let plain = Offload::default();
    let mut out = ArrayVec::new();
    let mut write = |fragments: &[TxFragment], len| {
        let result = write_tx(fragments, len, plain, None, None, &mut out);
        assert!(result.is_ok() || out.is_empty(), "untouched on error");
        result
    };
    let found = SLOTS_SENT + 1;
    assert_eq!(write(&[], 0), Err(TxWriteError::FragmentCount { found: 0 }));
    assert_eq!(
        write(&[fragment(100); SLOTS_SENT + 1], 1900),
        Err(TxWriteError::FragmentCount { found })
    );
    assert_eq!(write(&[fragment(60)], 61), Err(TxWriteError::LengthMismatch { len: 61, sum: 60 }));
    // 18 whole pages are more than a packet can be.
    let sum = 18 * 4096;
    assert_eq!(
        write(&[fragment(4096); 18], sum as u16),
        Err(TxWriteError::LengthMismatch { len: sum as u16, sum })
    );
    assert_eq!(
        write(&[fragment(60), fragment(0)], 60),
        Err(TxWriteError::EmptyFragment { fragment: 1 })
    );
    assert_eq!(
        write(&[fragment(13), fragment(60)], 73),
        Err(TxWriteError::ShortFirstFragment { found: 13 })
    );
    let crossing = TxFragment { offset: 4000, ..fragment(97) };
    assert_eq!(
        write(&[crossing], 97),
        Err(TxWriteError::CrossesPage { fragment: 0, offset: 4000, size: 97 })
    );
    let gso = Some(Gso { kind: GsoKind::Tcpv4, size: 0 });
    let offload = Offload { gso, ..plain };
    assert_eq!(
        write_tx(&[fragment(60)], 60, offload, None, None, &mut out),
        Err(TxWriteError::ZeroGsoSize)
    );
    let gso = Some(Gso { kind: GsoKind::Udp, size: 100 });
    assert_eq!(
        write_tx(&[fragment(60)], 60, Offload { gso, ..plain }, None, None, &mut out),
        Err(TxWriteError::NotTcp(NotTcp))
    );
    let add = Some(Multicast::Add([1; 6]));
    assert_eq!(
        write_tx(&[fragment(60)], 60, plain, None, add, &mut out),
        Err(TxWriteError::MulticastWithData { fragments: 1, len: 60 })
    );
    let full = [fragment(100); SLOTS_SENT];
    write_tx(&full, 1800, plain, None, None, &mut out).unwrap();
    assert_eq!(
        write_tx(&full, 1800, plain, None, None, &mut out),
        Err(TxWriteError::NoRoom { needed: 18, room: 6 })
    );
    assert_eq!(out.len(), 18);
}

fn offloads() -> impl Strategy<Value = Offload> {
    let gso = (any::<bool>(), 1..=u16::MAX).prop_map(|(v6, size)| Gso {
        kind: if v6 { GsoKind::Tcpv6 } else { GsoKind::Tcpv4 },
        size,
    });
    let checksum =
        prop_oneof![Just(Checksum::Unknown), Just(Checksum::Partial), Just(Checksum::Complete)];
    (checksum, proptest::option::of(gso)).prop_map(|(checksum, gso)| Offload {
        checksum: if gso.is_some() { Checksum::Partial } else { checksum },
        gso,
    })
}

fn hashes() -> impl Strategy<Value = Option<Hash>> {
    let hash =
        any::<(u8, u8, u32)>().prop_map(|(kind, algorithm, value)| Hash { kind, algorithm, value });
    proptest::option::of(hash)
}

fn fragments() -> impl Strategy<Value = Vec<TxFragment>> {
    let one = (any::<u32>(), 14u16..=3640, any::<u16>(), 0.0..=1.0f64);
    proptest::collection::vec(one, 1..=SLOTS_SENT).prop_map(|list| {
        list.into_iter()
            .map(|(gref, size, id, place)| TxFragment {
                gref,
                offset: (f64::from(4096 - size) * place) as u16,
                size,
                id,
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        fragments in fragments(),
        offload in offloads(),
        hash in hashes(),
        tail in proptest::collection::vec(any::<[u32; 3]>(), 0..3),
    ) {
        let len: u16 = fragments.iter().map(|fragment| fragment.size).sum();
        let mut out: ArrayVec<_, SLOTS_WRITTEN> = ArrayVec::new();
        write_tx(&fragments, len, offload, hash, None, &mut out).unwrap();
        let written = out.len();
        let mut slots = out.to_vec();
        slots.extend(tail);
        let parsed = parse_tx(&slots).unwrap().unwrap();
        prop_assert_eq!(parsed.slots, written);
        prop_assert_eq!(parsed.responses(status::OKAY).count(), written);
        let Outcome::Packet(packet) = parsed.outcome else { panic!("refused") };
        prop_assert_eq!(packet.fragments().collect::<Vec<_>>(), fragments.as_slice());
        prop_assert_eq!(packet.len, len);
        prop_assert_eq!(packet.offload, offload);
        prop_assert_eq!(packet.hash, hash);
        prop_assert_eq!(packet.multicast, None);
    }

    #[test]
    fn multicast_is_read_back(
        gref in any::<u32>(), id in any::<u16>(), address in any::<[u8; 6]>(),
        remove in any::<bool>(), hash in hashes(), offload in offloads(),
    ) {
        let change = if remove { Multicast::Remove(address) } else { Multicast::Add(address) };
        let one = [TxFragment { gref, offset: 0, size: 0, id }];
        let mut out = ArrayVec::new();
        write_tx(&one, 0, offload, hash, Some(change), &mut out).unwrap();
        let parsed = parse_tx(&out).unwrap().unwrap();
        prop_assert_eq!(parsed.slots, out.len());
        let Outcome::Packet(packet) = parsed.outcome else { panic!("refused") };
        prop_assert_eq!(packet.multicast, Some(change));
        prop_assert_eq!(packet.fragments().collect::<Vec<_>>(), &one[..]);
        prop_assert_eq!(packet.hash, hash);
        prop_assert_eq!(packet.offload, offload);
    }

    /// Checks any slots: no panic, and each consumed slot is answered exactly once, extras with
    /// NULL.
    #[test]
    fn any_slots_are_answered_once(
        // Small numbers, so that chains and extras happen.
        slots in proptest::collection::vec(
            (0u32..6, 0u16..5000, 0u16..16, any::<u16>(), 0u16..5000), 0..40),
    ) {
        let slots: Vec<_> = slots
            .into_iter()
            .map(|(gref, offset, flags, id, size)| {
                let flags = TxFlags::from_bits_retain(flags);
                TxRequest { gref, offset, flags, id, size }.to_words()
            })
            .collect();
        let mut left = slots.as_slice();
        while let Ok(Some(parsed)) = parse_tx(left) {
            prop_assert!(parsed.slots >= 1 && parsed.slots <= left.len());
            let answers: Vec<TxResponse> = parsed.responses(status::ERROR).collect();
            prop_assert_eq!(answers.len(), parsed.slots);
            let extras = answers.iter().filter(|answer| answer.status == status::NULL).count();
            for (index, answer) in answers.iter().enumerate() {
                if index == 0 || index > extras {
                    prop_assert_eq!(answer.id, TxRequest::from_words(left[index]).id);
                } else {
                    prop_assert_eq!(*answer, TxResponse::NULL);
                }
            }
            if let Outcome::Packet(packet) = &parsed.outcome {
                let sum: u32 = packet.fragments().map(|f| u32::from(f.size)).sum();
                prop_assert_eq!(sum, u32::from(packet.len));
                for fragment in packet.fragments() {
                    prop_assert!(u32::from(fragment.offset) + u32::from(fragment.size) <= 4096
                        || fragment.is_empty());
                }
            }
            left = &left[parsed.slots..];
        }
    }

    #[test]
    fn any_words_do_no_harm(slots in proptest::collection::vec(any::<[u32; 3]>(), 0..300)) {
        if let Ok(Some(parsed)) = parse_tx(&slots) {
            prop_assert_eq!(parsed.responses(0).count(), parsed.slots);
        }
    }
}

//! Chains of receive responses: both ends, what is refused and what is fatal.

use grantway_netif::extra::{Extra, ExtraError};
use grantway_netif::rx::{RxFlags, RxResponse};
use grantway_netif::slots::rx::{SLOTS_ACCEPTED, SLOTS_WRITTEN, XDP_HEADROOM, XDP_HEADROOM_MAX};
use grantway_netif::slots::{
    RxFatal, RxLayout, RxOutcome, RxPacket, RxParsed, RxRefusal, RxSlot, RxWriteError, parse_rx,
    rx_slots_needed,
};
use grantway_netif::tx::status;
use grantway_netif::{Checksum, Gso, GsoKind, Hash, NotTcp, Offload};
use proptest::prelude::*;

const HASH: Hash = Hash { kind: 1, algorithm: 1, value: 0xdead_beef };

const SEGMENTED: Offload =
    Offload { checksum: Checksum::Partial, gso: Some(Gso { kind: GsoKind::Tcpv4, size: 1448 }) };

fn slot(id: u16, offset: u16, status: i16, flags: RxFlags) -> [u32; 2] {
    RxResponse { id, offset, flags, status }.to_words()
}

fn parsed(slots: &[[u32; 2]]) -> RxParsed<'_> {
    parse_rx(slots).unwrap().unwrap()
}

fn packet(slots: &[[u32; 2]]) -> RxPacket<'_> {
    match parsed(slots).outcome {
        RxOutcome::Packet(packet) => packet,
        RxOutcome::Refused(reason) => panic!("refused: {reason}"),
    }
}

fn refusal(slots: &[[u32; 2]]) -> RxRefusal {
    let parsed = parsed(slots);
    assert_eq!(parsed.slots, slots.len(), "every page is accounted for");
    match parsed.outcome {
        RxOutcome::Refused(reason) => reason,
        RxOutcome::Packet(packet) => panic!("taken: {packet:?}"),
    }
}

/// A frame of `count` data slots with 100 bytes each.
fn chain(count: usize) -> Vec<[u32; 2]> {
    (0..count)
        .map(|index| {
            let mut flags = RxFlags::empty();
            flags.set(RxFlags::MORE_DATA, index + 1 < count);
            slot(index as u16, 0, 100, flags)
        })
        .collect()
}

/// The backend's slots for a frame, and a check of the parts on the way.
fn write(len: usize, offset: u16, offload: Offload, hash: Option<Hash>) -> Vec<[u32; 2]> {
    let layout = RxLayout::new(len, offset, offload, hash).unwrap();
    let mut at = 0;
    let words = (0..layout.slots())
        .map(|index| {
            if let Some(RxSlot::Data { offset: begin, start, len, .. }) = layout.slot(index) {
                assert_eq!((start, begin), (at, if at == 0 { offset } else { 0 }));
                assert!(len > 0 && usize::from(len) + usize::from(begin) <= 4096);
                at += usize::from(len);
            }
            layout.words(index, index as u16).unwrap()
        })
        .collect();
    assert_eq!(at, len);
    assert_eq!(layout.slot(layout.slots()), None);
    assert_eq!(layout.words(usize::MAX, 0), None);
    words
}

fn check(len: usize, offset: u16, offload: Offload, hash: Option<Hash>) {
    let words = write(len, offset, offload, hash);
    let room = 4096 - usize::from(offset);
    let needed = rx_slots_needed(len, room, offload, hash.is_some());
    assert_eq!(words.len(), needed);
    let parsed = parsed(&words);
    assert_eq!(parsed.slots, needed);
    let RxOutcome::Packet(packet) = parsed.outcome else { panic!("refused: {:?}", parsed.outcome) };
    assert_eq!(packet.len, len);
    assert_eq!(packet.offload, offload);
    assert_eq!(packet.hash, hash);
    let mut sum = 0;
    for fragment in packet.fragments() {
        assert_eq!(fragment.offset, if sum == 0 { offset } else { 0 });
        assert_eq!(usize::from(fragment.id), fragment.slot);
        sum += usize::from(fragment.len);
    }
    assert_eq!(sum, len);
}

#[test]
fn every_length_comes_back() {
    let plain = Offload::default();
    for len in 14..=65535 {
        for offset in [0, 2, 256] {
            check(len, offset, plain, None);
        }
        check(len, 0, SEGMENTED, Some(HASH));
    }
}

#[test]
fn every_offset_comes_back() {
    let plain = Offload::default();
    // As far as leaves room for an Ethernet header (XSA-522).
    for offset in 0..=4082u16 {
        let room = 4096 - usize::from(offset);
        let longest = (room + (SLOTS_WRITTEN - 1) * 4096).min(65535);
        for len in [14, 60, room, room + 1, 1514, longest] {
            if len < 14 || len > longest {
                continue;
            }
            check(len, offset, plain, Some(HASH));
            check(len, offset, SEGMENTED, None);
        }
    }
}

#[test]
fn layout_at_another_offset_is_as_if_made_there() {
    for offload in [Offload::default(), SEGMENTED] {
        for len in [14, 60, 3840, 3841, 4096, 4097, 65_535] {
            let first = RxLayout::new(len, 64, offload, Some(HASH)).unwrap();
            for offset in [0, 64, XDP_HEADROOM, XDP_HEADROOM_MAX, 4082] {
                let there = RxLayout::new(len, offset, offload, Some(HASH));
                assert_eq!(first.at_offset(offset), there, "{len} bytes at {offset}");
            }
            // XSA-522 holds for it, too.
            for offset in 4083..4096 {
                let refused = first.at_offset(offset).unwrap_err();
                assert!(matches!(refused, RxWriteError::FirstTooShort { .. }), "{refused}");
            }
            assert!(first.at_offset(4096).is_err() && first.at_offset(u16::MAX).is_err());
        }
    }
    // Any frame has room behind the largest headroom.
    assert!(RxLayout::new(65_535, XDP_HEADROOM_MAX, SEGMENTED, Some(HASH)).is_ok());
}

#[test]
fn slots_needed_for_odd_arguments() {
    let plain = Offload::default();
    assert_eq!(rx_slots_needed(0, 4096, plain, false), 1);
    assert_eq!(rx_slots_needed(1, 0, plain, false), 1);
    assert_eq!(rx_slots_needed(4097, usize::MAX, plain, false), 2);
    assert_eq!(rx_slots_needed(65535, 4096, SEGMENTED, true), 18);
    assert!(rx_slots_needed(usize::MAX, 1, plain, false) > 1 << 30);
}

#[test]
fn the_writer_refuses_what_stock_netfront_would_not_like() {
    let new = |len, offset| RxLayout::new(len, offset, Offload::default(), None);
    for found in 0..14 {
        assert_eq!(new(found, 0), Err(RxWriteError::TooShort { found }));
    }
    for found in [4096, 4097, u16::MAX] {
        assert_eq!(new(60, found), Err(RxWriteError::OffsetOutOfPage { found }));
    }
    let len = 18 * 4096 + 1;
    assert_eq!(new(len, 0), Err(RxWriteError::TooManySlots { len, slots: 19 }));
    assert!(new(usize::MAX, 4095).is_err());
    let gso = Some(Gso { kind: GsoKind::Tcpv4, size: 0 });
    let offload = Offload { gso, ..SEGMENTED };
    let result = RxLayout::new(60, 0, offload, None);
    assert_eq!(result, Err(RxWriteError::ZeroGsoSize));
    let gso = Some(Gso { kind: GsoKind::Udp, size: 100 });
    let result = RxLayout::new(60, 0, Offload { gso, ..SEGMENTED }, None);
    assert_eq!(result, Err(RxWriteError::NotTcp(NotTcp)));
}

#[test]
fn extras_come_after_the_first_part_and_consume_requests() {
    let layout = RxLayout::new(5000, 0, SEGMENTED, Some(HASH)).unwrap();
    let kinds: Vec<_> = (0..layout.slots())
        .map(|index| matches!(layout.slot(index), Some(RxSlot::Extra(_))))
        .collect();
    assert_eq!(kinds, [false, true, true, false]);
    let words: Vec<_> = (0..4).map(|k| layout.words(k, k as u16).unwrap()).collect();
    assert_eq!(Extra::from_words(words[2]), Ok((Extra::Hash(HASH), false)));
    let first = RxResponse::from_words(words[0]);
    assert_eq!(first.flags, RxFlags::all() - RxFlags::GSO_PREFIX);
    let packet = packet(&words);
    let at: Vec<_> = packet.fragments().map(|f| f.slot).collect();
    assert_eq!((at.as_slice(), packet.extras), (&[0, 3][..], 2));
}

#[test]
fn nothing_published_is_no_frame() {
    assert_eq!(parse_rx(&[]), Ok(None));
}

#[test]
fn three_checksum_states() {
    for (flags, checksum) in [
        (RxFlags::empty(), Checksum::Unknown),
        (RxFlags::DATA_VALIDATED, Checksum::Complete),
        (RxFlags::CSUM_BLANK, Checksum::Partial),
        (RxFlags::CSUM_BLANK | RxFlags::DATA_VALIDATED, Checksum::Partial),
    ] {
        assert_eq!(packet(&[slot(0, 0, 60, flags)]).offload.checksum, checksum);
    }
    let bare = [
        slot(0, 0, 60, RxFlags::EXTRA_INFO),
        Extra::Gso(SEGMENTED.gso.unwrap().try_into().unwrap(), 0).to_rx_words(false),
    ];
    assert_eq!(packet(&bare).offload, SEGMENTED);
}

#[test]
fn an_error_drops_the_frame_and_gives_every_page_back() {
    for status in [status::ERROR, status::DROPPED, i16::MIN] {
        assert_eq!(
            refusal(&[slot(0, 0, status, RxFlags::empty())]),
            RxRefusal::Status { slot: 0, status }
        );
        let mut slots = chain(3);
        slots[1] = slot(1, 0, status, RxFlags::MORE_DATA);
        assert_eq!(refusal(&slots), RxRefusal::Status { slot: 1, status });
    }
}

#[test]
fn parts_that_cross_a_page_are_refused() {
    for (offset, len) in [(1, 4096), (4096, 1), (u16::MAX, 1), (0, i16::MAX)] {
        let slots = [slot(0, offset, len, RxFlags::empty())];
        let len = len as u16;
        assert_eq!(refusal(&slots), RxRefusal::CrossesPage { slot: 0, offset, len });
    }
    assert_eq!(packet(&[slot(0, 0, 4096, RxFlags::empty())]).len, 4096);
}

#[test]
fn bad_extras_are_refused() {
    let first = slot(0, 0, 60, RxFlags::EXTRA_INFO);
    for (words, reason) in [
        ([0, 0], ExtraError::UnknownType { found: 0 }),
        ([9, 0], ExtraError::UnknownType { found: 9 }),
        ([1, 1], ExtraError::ZeroGsoSize),
        ([1 | 9 << 16, 4], ExtraError::UnknownGsoKind { found: 4 }),
    ] {
        assert_eq!(refusal(&[first, words]), RxRefusal::BadExtra { slot: 1, reason });
        // Its MORE flag is followed all the same.
        let more = [words[0] | 1 << 8, words[1]];
        let good = Extra::Hash(HASH).to_rx_words(false);
        assert_eq!(refusal(&[first, more, good]), RxRefusal::BadExtra { slot: 1, reason });
    }
}

#[test]
fn headroom_that_nobody_asked_for_leaves_the_frame_where_its_offset_says() {
    let extra = Extra::Xdp { headroom: XDP_HEADROOM }.to_rx_words(false);
    let first = slot(0, XDP_HEADROOM, 3840, RxFlags::EXTRA_INFO | RxFlags::MORE_DATA);
    let slots = [first, extra, slot(2, 0, 100, RxFlags::empty())];
    let packet = packet(&slots);
    assert_eq!((packet.len, packet.extras), (3940, 1));
    let parts: Vec<_> = packet.fragments().map(|part| (part.offset, part.len)).collect();
    assert_eq!(parts, [(XDP_HEADROOM, 3840), (0, 100)]);
    // Nor is a page left because an extra says so.
    let beyond = Extra::Xdp { headroom: u16::MAX }.to_rx_words(false);
    let slots = [slot(0, 0, 60, RxFlags::EXTRA_INFO), beyond];
    assert_eq!(self::packet(&slots).fragments().next().map(|part| part.offset), Some(0));
}

#[test]
fn short_frames_and_prefixes_are_refused() {
    for found in 0..14 {
        let slots = [slot(0, 0, found as i16, RxFlags::empty())];
        assert_eq!(refusal(&slots), RxRefusal::TooShort { found });
    }
    let slots = [
        slot(0, 1448, 0, RxFlags::GSO_PREFIX | RxFlags::MORE_DATA),
        slot(1, 0, 60, RxFlags::empty()),
    ];
    assert_eq!(refusal(&slots), RxRefusal::GsoPrefix { slot: 0 });
}

#[test]
fn slot_limits() {
    for count in 1..=SLOTS_ACCEPTED {
        let slots = chain(count);
        let packet = packet(&slots);
        assert_eq!((packet.len, packet.fragments().len()), (count * 100, count));
    }
    for found in [20, 21, 100, 256] {
        assert_eq!(refusal(&chain(found)), RxRefusal::TooManySlots { found });
    }
    for length in [257, 300, 5000] {
        let endless = Err(RxFatal::Endless { found: 256 });
        assert_eq!(parse_rx(&chain(length)), endless);
    }
}

#[test]
fn unfinished_frames_are_told_from_endless_ones() {
    for published in 1..10 {
        let incomplete = Err(RxFatal::Incomplete { published });
        assert_eq!(parse_rx(&chain(10)[..published]), incomplete);
    }
    let lone = [slot(0, 0, 60, RxFlags::EXTRA_INFO)];
    let incomplete = Err(RxFatal::Incomplete { published: 1 });
    assert_eq!(parse_rx(&lone), incomplete);
    let mut extras = vec![lone[0]];
    extras.resize(255, Extra::Xdp { headroom: 8 }.to_rx_words(true));
    let incomplete = Err(RxFatal::Incomplete { published: 255 });
    assert_eq!(parse_rx(&extras), incomplete);
    extras.push(Extra::Xdp { headroom: 8 }.to_rx_words(true));
    assert_eq!(parse_rx(&extras), Err(RxFatal::Endless { found: 256 }));
    extras[255] = Extra::McastAdd([0; 6]).to_rx_words(false);
    assert_eq!(packet(&extras).extras, 255);
}

proptest! {
    #[test]
    fn any_words_do_no_harm(slots in proptest::collection::vec(any::<[u32; 2]>(), 0..300)) {
        if let Ok(Some(parsed)) = parse_rx(&slots) {
            prop_assert!(parsed.slots >= 1 && parsed.slots <= slots.len());
        }
    }

    #[test]
    fn any_chain_accounts_for_its_slots(
        slots in proptest::collection::vec(
            (0u16..6, 0u16..4200, 0u16..32, -3i16..4200), 0..60),
    ) {
        let slots: Vec<_> = slots
            .into_iter()
            .map(|(id, offset, flags, status)| {
                slot(id, offset, status, RxFlags::from_bits_retain(flags))
            })
            .collect();
        let mut left = slots.as_slice();
        while let Ok(Some(parsed)) = parse_rx(left) {
            prop_assert!(parsed.slots >= 1 && parsed.slots <= left.len());
            if let RxOutcome::Packet(packet) = &parsed.outcome {
                prop_assert_eq!(
                    packet.fragments().len() + usize::from(packet.extras), parsed.slots);
                for fragment in packet.fragments() {
                    prop_assert!(fragment.slot < parsed.slots);
                    prop_assert!(u32::from(fragment.offset) + u32::from(fragment.len) <= 4096);
                }
            }
            left = &left[parsed.slots..];
        }
    }
}

//! Threats that the wire alone can answer, one test each.

use grantway_netif::ctrl::{Status, gref_list_entries, mapping_range};
use grantway_netif::rx::{RxFlags, RxResponse};
use grantway_netif::slots::tx::{SLOTS_ACCEPTED, SLOTS_SENT};
use grantway_netif::slots::{
    Outcome, Parsed, RxLayout, RxOutcome, RxRefusal, RxSlot, RxWriteError, TxFatal, parse_rx,
    parse_tx,
};
use grantway_netif::tx::{TxFlags, TxRequest, TxResponse, status};
use grantway_netif::{Hash, Offload, colour};

#[test]
fn xsa_155_the_parsers_take_private_copies_only() {
    // The compiler's proof: slots are plain arrays behind a shared reference, which
    // no shared memory is ever given, and what was parsed keeps them from being
    // written (see the failing example at `parse_tx`).
    fn same<'a>(slots: &'a [[u32; 3]]) -> Result<Option<Parsed<'a>>, TxFatal> {
        parse_tx(slots)
    }
    let request = TxRequest { size: 60, id: 7, ..TxRequest::default() };
    let copies = [request.to_words()];
    let shared = std::cell::Cell::new(copies);
    let parsed = same(&copies).unwrap().unwrap();
    shared.set([[0xffff_ffff; 3]]);
    let Outcome::Packet(packet) = parsed.outcome else { panic!("refused") };
    assert_eq!(packet.fragments().map(|f| (f.id, f.size)).collect::<Vec<_>>(), [(7, 60)]);
}

#[test]
fn xsa_216_responses_fill_their_slot_with_zeroes() {
    for response in [TxResponse::NULL, TxResponse { id: 7, status: -1 }] {
        assert_eq!(response.to_words()[1..], [0, 0]);
    }
}

#[test]
fn xsa_270_mapping_bounds_are_checked_in_64_bits() {
    let invalid = Err(Status::InvalidParameter);
    // The two sums that ran over: both look small in 32 bits.
    assert_eq!(mapping_range(2, u32::MAX, 128), invalid);
    assert_eq!(mapping_range(u32::MAX, 1, 128), invalid);
    assert_eq!(mapping_range(u32::MAX, u32::MAX, u32::MAX), invalid);
    assert_eq!(mapping_range(0, 0, 128), invalid);
    assert_eq!(mapping_range(1, 128, 128), invalid);
    assert_eq!(mapping_range(129, 0, 128), invalid);
    assert_eq!(mapping_range(1, 127, 128), Ok(127..128));
    assert_eq!(mapping_range(128, 0, 128), Ok(0..128));
    // A grant is one page of 1024 entries.
    assert_eq!(mapping_range(1024, 0, 4096), Ok(0..1024));
    assert_eq!(mapping_range(1025, 0, 4096), Err(Status::BufferOverflow));
}

#[test]
fn xsa_376_the_slot_is_known_by_its_place_not_by_its_id() {
    let words = [[0xffff, 60 << 16], [0xffff, 60 << 16]];
    let parsed = parse_rx(&words).unwrap().unwrap();
    let RxOutcome::Packet(packet) = parsed.outcome else { panic!("refused") };
    assert_eq!((packet.fragments().next().unwrap().slot, parsed.slots), (0, 1));
}

#[test]
fn xsa_432_a_packet_never_has_more_fragments_than_its_array() {
    let request = |count: usize, index: usize| {
        let mut flags = TxFlags::empty();
        flags.set(TxFlags::MORE_DATA, index + 1 < count);
        let size = if index == 0 { 60000 } else { 3000 };
        TxRequest { flags, size, ..TxRequest::default() }.to_words()
    };
    for count in 1..=SLOTS_ACCEPTED {
        let slots: Vec<_> = (0..count).map(|index| request(count, index)).collect();
        if let Ok(Some(parsed)) = parse_tx(&slots)
            && let Outcome::Packet(packet) = parsed.outcome
        {
            assert_eq!(packet.fragments().len(), count);
            assert!(packet.fragments().len() <= SLOTS_SENT + 1);
        }
    }
}

#[test]
fn xsa_448_empty_fragments_are_kept_told_apart_and_answered() {
    let slots: Vec<_> = (0..4u16)
        .map(|id| {
            let mut flags = TxFlags::empty();
            flags.set(TxFlags::MORE_DATA, id < 3);
            let size = [60, 0, 20, 0][usize::from(id)];
            TxRequest {
                gref: 1,
                // An empty fragment at the page's very end is legal, too.
                offset: if size == 0 { 4096 } else { 0 },
                flags,
                id,
                size,
            }
            .to_words()
        })
        .collect();
    let parsed = parse_tx(&slots).unwrap().unwrap();
    let Outcome::Packet(packet) = &parsed.outcome else { panic!("refused") };
    let empty: Vec<_> = packet.fragments().map(|fragment| fragment.is_empty()).collect();
    assert_eq!(empty, [false, true, false, true]);
    assert_eq!(parsed.responses(status::OKAY).count(), 4);
    // The first one may be empty, its bytes being all in the second.
    let slots = [
        TxRequest { size: 60, flags: TxFlags::MORE_DATA, ..TxRequest::default() },
        TxRequest { size: 60, ..TxRequest::default() },
    ];
    let slots = slots.map(TxRequest::to_words);
    let parsed = parse_tx(&slots).unwrap().unwrap();
    let Outcome::Packet(packet) = &parsed.outcome else { panic!("refused") };
    assert!(packet.fragments().next().unwrap().is_empty());
    assert_eq!(packet.fragments().nth(1).unwrap().size, 60);
}

#[test]
fn xsa_522_no_layout_has_a_first_slot_shorter_than_an_ethernet_header() {
    // Stock netfront stops the whole guest at such a frame.
    let hash = Hash { kind: 1, algorithm: 1, value: 7 };
    for offset in 0..4096 {
        for len in [14, 15, 60, 4095, 4096, 4097, 9000, 65_535] {
            for hash in [None, Some(hash)] {
                let layout = match RxLayout::new(len, offset, Offload::default(), hash) {
                    Ok(layout) => layout,
                    Err(error) => {
                        let room = 4096 - offset;
                        let expected = RxWriteError::FirstTooShort { offset, room };
                        assert!(room < 14 && error == expected, "{len} at {offset}: {error}");
                        continue;
                    }
                };
                let Some(RxSlot::Data { len: first, .. }) = layout.slot(0) else { panic!() };
                assert!((14..=4096).contains(&first), "{first} of {len} bytes at {offset}");
            }
        }
    }
    for found in 0..14 {
        let layout = RxLayout::new(found, 0, Offload::default(), None);
        assert_eq!(layout, Err(RxWriteError::TooShort { found }));
    }
    // The offsets that are chosen for short frames leave room for all of a frame.
    for number in 0..128 {
        for len in 14..=4200 {
            let layout = RxLayout::new(len, colour(number, len), Offload::default(), None).unwrap();
            let Some(RxSlot::Data { len: first, .. }) = layout.slot(0) else { panic!() };
            assert_eq!(usize::from(first), len.min(4096), "buffer {number}");
        }
    }
}

#[test]
fn xsa_522_a_first_slot_shorter_than_an_ethernet_header_is_read_as_it_is() {
    // A backend may write it; the length of the whole frame is what counts.
    let chain = |parts: &[i16]| -> Vec<[u32; 2]> {
        let last = parts.len() - 1;
        let slot = |(n, &status): (usize, &i16)| {
            let mut flags = RxFlags::empty();
            flags.set(RxFlags::MORE_DATA, n < last);
            RxResponse { id: n as u16, offset: 0, flags, status }.to_words()
        };
        parts.iter().enumerate().map(slot).collect()
    };
    for first in 0..14 {
        for rest in 0..40 {
            let words = chain(&[first, rest]);
            let parsed = parse_rx(&words).unwrap().unwrap();
            let found = (first + rest) as usize;
            match parsed.outcome {
                RxOutcome::Packet(packet) => {
                    assert!(found >= 14 && packet.len == found);
                    let lengths: Vec<_> = packet.fragments().map(|part| part.len).collect();
                    assert_eq!(lengths, [first as u16, rest as u16]);
                }
                RxOutcome::Refused(reason) => {
                    assert!(found < 14 && reason == RxRefusal::TooShort { found });
                }
            }
            assert_eq!(parsed.slots, 2);
        }
    }
}

#[test]
fn a_response_error_is_no_length() {
    // XSA-376's kin: -1 taken as a length is 65535 bytes.
    let parsed = parse_rx(&[[0, 0xffff_0000]]).unwrap().unwrap();
    let reason = RxRefusal::Status { slot: 0, status: -1 };
    assert_eq!(parsed.outcome, RxOutcome::Refused(reason));
}

#[test]
fn staging_lists_are_bounded() {
    let invalid = Err(Status::InvalidParameter);
    assert_eq!(gref_list_entries(0, 1, 1), Ok(1));
    assert_eq!(gref_list_entries(3, 4, 512), Ok(512));
    assert_eq!(gref_list_entries(0, 1, 0), invalid);
    assert_eq!(gref_list_entries(0, 1, 513), invalid);
    assert_eq!(gref_list_entries(0, 1, u32::MAX), invalid);
    assert_eq!(gref_list_entries(1, 1, 1), invalid);
    assert_eq!(gref_list_entries(u32::MAX, 1, 1), invalid);
    assert_eq!(gref_list_entries(0, 0, 1), invalid);
}

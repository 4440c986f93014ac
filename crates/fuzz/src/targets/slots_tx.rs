//! Target: slots that a guest writes into the transmit ring, and their answers.

use super::slots;
use arrayvec::ArrayVec;
use grantway_netif::Checksum;
use grantway_netif::extra::{Extra, has_more};
use grantway_netif::slots::tx::{SLOTS_ACCEPTED, SLOTS_FATAL};
use grantway_netif::slots::{
    Outcome, Parsed, Refused, TxFatal, TxPacket, TxRefusal, parse_tx, write_tx,
};
use grantway_netif::tx::{TxFlags, TxRequest, TxResponse, status};

type Slot = [u32; 3];

pub(super) fn run(data: &[u8]) {
    let slots = slots::<3>(data);
    let mut left = slots.as_slice();
    loop {
        match parse_tx(left) {
            Ok(None) => return assert!(left.is_empty()),
            Ok(Some(parsed)) => {
                check(left, &parsed);
                left = &left[parsed.slots..];
            }
            Err(fatal) => return check_fatal(left, fatal),
        }
    }
}

fn request(slot: Slot) -> TxRequest {
    TxRequest::from_words(slot)
}

/// Checks a chain of slots that was parsed.
fn check(left: &[Slot], parsed: &Parsed) {
    assert!(parsed.slots >= 1 && parsed.slots <= left.len());
    let (slots, _) = left.split_at(parsed.slots);
    // The parser read only these slots, and needed all of them.
    assert_eq!(parse_tx(slots).as_ref(), Ok(&Some(*parsed)));
    for published in 1..slots.len() {
        assert_eq!(parse_tx(&slots[..published]), Err(TxFatal::Truncated { published }));
    }
    // The slots are the first one, its extras, and the other fragments.
    let extras = match &parsed.outcome {
        Outcome::Packet(packet) => packet.extras,
        Outcome::Refused(refused) => refused.extras,
    };
    let extras = usize::from(extras);
    check_answers(slots, parsed, extras);
    let first = request(slots[0]);
    assert_eq!(first.flags.contains(TxFlags::EXTRA_INFO), extras > 0);
    let (chain, later) = slots[1..].split_at(extras);
    for (n, slot) in chain.iter().enumerate() {
        assert_eq!(has_more([slot[0], slot[1]]), n + 1 < extras);
    }
    let later: Vec<_> = later.iter().copied().map(request).collect();
    // A multicast message has no bytes. All others chain their fragments.
    match &parsed.outcome {
        Outcome::Packet(packet) if packet.multicast.is_some() => {
            assert!(later.is_empty() && packet.len == 0);
            assert!(packet.fragments().len() == 1 && packet.fragments().next().unwrap().is_empty());
        }
        outcome => {
            for (n, one) in std::iter::once(&first).chain(&later).enumerate() {
                assert_eq!(one.flags.contains(TxFlags::MORE_DATA), n < later.len());
            }
            match outcome {
                Outcome::Packet(packet) => check_packet(&first, &later, packet),
                Outcome::Refused(refused) => check_refusal(&first, &later, refused),
            }
        }
    }
    if let Outcome::Packet(packet) = &parsed.outcome {
        assert_eq!(packet.slots(), parsed.slots);
        check_offload(packet);
        write_again(packet);
    }
}

/// Checks that each slot is answered once: by its own id, or as an extra.
fn check_answers(slots: &[Slot], parsed: &Parsed<'_>, extras: usize) {
    for with in [status::OKAY, status::ERROR, status::DROPPED] {
        let mut answers = parsed.responses(with);
        for (n, &slot) in slots.iter().enumerate() {
            assert_eq!(answers.len(), slots.len() - n);
            let expected = match (1..=extras).contains(&n) {
                true => TxResponse::NULL,
                false => TxResponse { id: request(slot).id, status: with },
            };
            assert_eq!(answers.next(), Some(expected));
        }
        assert_eq!((answers.len(), answers.next()), (0, None));
    }
}

fn check_packet(first: &TxRequest, later: &[TxRequest], packet: &TxPacket<'_>) {
    assert!(packet.fragments().len() <= SLOTS_ACCEPTED);
    assert_eq!(packet.fragments().len(), 1 + later.len());
    assert!(packet.len >= 14 && packet.len == first.size);
    let sum: u32 = packet.fragments().map(|fragment| u32::from(fragment.size)).sum();
    assert_eq!(sum, u32::from(packet.len));
    for (n, fragment) in packet.fragments().enumerate() {
        let slot = if n == 0 { first } else { &later[n - 1] };
        assert_eq!((fragment.gref, fragment.id), (slot.gref, slot.id));
        assert_eq!(fragment.offset, slot.offset);
        assert!(u32::from(fragment.offset) + u32::from(fragment.size) <= 4096);
        assert!(n == 0 || fragment.size == slot.size);
        assert_eq!(fragment.is_empty(), fragment.size == 0);
    }
}

fn check_offload(packet: &TxPacket<'_>) {
    if let Some(gso) = packet.offload.gso {
        assert!(gso.size > 0);
        assert_eq!(packet.offload.checksum, Checksum::Partial);
    }
}

fn check_refusal(first: &TxRequest, later: &[TxRequest], refused: &Refused<'_>) {
    let ids: Vec<_> = std::iter::once(first).chain(later).map(|one| one.id).collect();
    let answered = refused.responses(status::ERROR).filter(|answer| answer.status != status::NULL);
    assert_eq!(answered.map(|answer| answer.id).collect::<Vec<_>>(), ids);
    let sum: u32 = later.iter().map(|one| u32::from(one.size)).sum();
    let (many, more) = (ids.len() > SLOTS_ACCEPTED, sum > u32::from(first.size));
    assert!(ids.len() < SLOTS_FATAL);
    match refused.reason {
        TxRefusal::TooManySlots { found } => assert!(many && found == ids.len()),
        TxRefusal::FragmentsExceedPacket { total, fragments } => {
            assert!(!many && more && total == first.size && fragments == sum);
        }
        TxRefusal::TooShort { found } => {
            assert!(!many && !more && found == first.size && found < 14);
        }
    }
}

/// Checks that a packet that is written again is parsed as the same packet, if stock netback would
/// accept it.
fn write_again(packet: &TxPacket<'_>) {
    let mut slots = ArrayVec::new();
    let &TxPacket { len, offload, hash, multicast, .. } = packet;
    let fragments: Vec<_> = packet.fragments().collect();
    if write_tx(&fragments, len, offload, hash, multicast, &mut slots).is_err() {
        assert!(slots.is_empty());
        return;
    }
    let again = parse_tx(&slots).expect("written by us").expect("of one slot at least");
    assert_eq!(again.slots, slots.len());
    let Outcome::Packet(again) = again.outcome else { panic!("refused: {again:?}") };
    assert_eq!(again.fragments().collect::<Vec<_>>(), fragments);
    let said = (again.len, again.offload, again.hash, again.multicast);
    assert_eq!(said, (len, offload, hash, multicast));
}

/// Returns true if the chain of slots continues behind the last one.
fn goes_on(slots: &[Slot]) -> bool {
    let first = request(slots[0]);
    let mut at = 1;
    let mut more = first.flags.contains(TxFlags::EXTRA_INFO);
    while more {
        let Some(slot) = slots.get(at) else { return true };
        more = has_more([slot[0], slot[1]]);
        at += 1;
    }
    let mut more = first.flags.contains(TxFlags::MORE_DATA);
    while more {
        let Some(slot) = slots.get(at) else { return true };
        more = request(*slot).flags.contains(TxFlags::MORE_DATA);
        at += 1;
    }
    false
}

fn check_fatal(left: &[Slot], fatal: TxFatal) {
    match fatal {
        TxFatal::Truncated { published } => assert!(published == left.len() && goes_on(left)),
        TxFatal::TooManySlots { found } => assert!(found == SLOTS_FATAL && found <= left.len()),
        TxFatal::TooManyExtras { found } => assert!(found == 256 && found < left.len()),
        TxFatal::CrossesPage { slot, offset, size } => {
            assert!(u32::from(offset) + u32::from(size) > 4096);
            let found = request(left[slot]);
            assert!(found.offset == offset && (slot == 0 || found.size == size));
        }
        TxFatal::BadExtra { slot, reason } => {
            assert_eq!(Extra::from_tx_words(left[slot]), Err(reason));
        }
    }
}

//! Target: slots that a backend writes into the receive ring.

use super::slots;
use grantway_netif::Checksum;
use grantway_netif::extra::{Extra, has_more};
use grantway_netif::rx::{RX_RING_ENTRIES, RxFlags, RxResponse};
use grantway_netif::slots::rx::SLOTS_ACCEPTED;
use grantway_netif::slots::{RxFatal, RxOutcome, RxPacket, RxParsed, RxRefusal, parse_rx};

type Slot = [u32; 2];

pub(super) fn run(data: &[u8]) {
    let slots = slots::<2>(data);
    let mut left = slots.as_slice();
    loop {
        match parse_rx(left) {
            Ok(None) => return assert!(left.is_empty()),
            Ok(Some(parsed)) => {
                check(left, &parsed);
                left = &left[parsed.slots..];
            }
            Err(RxFatal::Incomplete { published }) => {
                return assert!(published == left.len() && published < RX_RING_ENTRIES);
            }
            Err(RxFatal::Endless { found }) => {
                return assert!(found == RX_RING_ENTRIES && found <= left.len());
            }
        }
    }
}

fn response(slot: Slot) -> RxResponse {
    RxResponse::from_words(slot)
}

fn check(left: &[Slot], parsed: &RxParsed) {
    assert!(parsed.slots >= 1 && parsed.slots <= left.len().min(RX_RING_ENTRIES));
    let (slots, _) = left.split_at(parsed.slots);
    assert_eq!(parse_rx(slots).as_ref(), Ok(&Some(*parsed)));
    for published in 1..slots.len() {
        assert_eq!(parse_rx(&slots[..published]), Err(RxFatal::Incomplete { published }));
    }
    // The chain is followed once more: the first part, its extras, the other parts.
    let mut extras = 0;
    if response(slots[0]).flags.contains(RxFlags::EXTRA_INFO) {
        extras = 1 + slots[1..].iter().take_while(|slot| has_more(**slot)).count();
    }
    let parts: Vec<_> = std::iter::once(0).chain(1 + extras..slots.len()).collect();
    for (n, &slot) in parts.iter().enumerate() {
        let more = response(slots[slot]).flags.contains(RxFlags::MORE_DATA);
        assert_eq!(more, n + 1 < parts.len());
    }
    match &parsed.outcome {
        RxOutcome::Packet(packet) => check_packet(slots, &parts, extras, packet),
        RxOutcome::Refused(refusal) => check_refusal(slots, &parts, *refusal),
    }
}

fn check_packet(slots: &[Slot], parts: &[usize], extras: usize, packet: &RxPacket) {
    assert_eq!(usize::from(packet.extras), extras);
    assert_eq!(packet.fragments().len(), parts.len());
    assert!(packet.fragments().len() <= SLOTS_ACCEPTED);
    for (fragment, &slot) in packet.fragments().zip(parts) {
        let RxResponse { id, offset, flags, status } = response(slots[slot]);
        assert_eq!((fragment.slot, fragment.id, fragment.offset), (slot, id, offset));
        assert_eq!(i32::from(fragment.len), i32::from(status));
        assert!(u32::from(fragment.offset) + u32::from(fragment.len) <= 4096);
        assert!(!flags.contains(RxFlags::GSO_PREFIX));
    }
    let sum: usize = packet.fragments().map(|fragment| usize::from(fragment.len)).sum();
    assert!(packet.len == sum && sum >= 14);
    for &slot in &slots[1..=extras] {
        assert!(Extra::from_words(slot).is_ok());
    }
    if let Some(gso) = packet.offload.gso {
        assert!(gso.size > 0);
        assert_eq!(packet.offload.checksum, Checksum::Partial);
    }
}

fn check_refusal(slots: &[Slot], parts: &[usize], refusal: RxRefusal) {
    match refusal {
        RxRefusal::Status { slot, status } => {
            assert!(status < 0 && response(slots[slot]).status == status);
        }
        RxRefusal::CrossesPage { slot, offset, len } => {
            assert!(u32::from(offset) + u32::from(len) > 4096);
            let found = response(slots[slot]);
            assert!(found.offset == offset && i32::from(found.status) == i32::from(len));
        }
        RxRefusal::BadExtra { slot, reason } => {
            assert_eq!(Extra::from_words(slots[slot]), Err(reason));
        }
        RxRefusal::GsoPrefix { slot } => {
            assert!(response(slots[slot]).flags.contains(RxFlags::GSO_PREFIX));
        }
        RxRefusal::TooManySlots { found } => {
            assert!(found == parts.len() && found > SLOTS_ACCEPTED);
        }
        RxRefusal::TooShort { found } => {
            let sum: i32 = parts.iter().map(|&slot| i32::from(response(slots[slot]).status)).sum();
            assert!(found < 14 && found as i32 == sum);
        }
    }
}

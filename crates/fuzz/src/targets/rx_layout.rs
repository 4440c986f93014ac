//! Target: frames of any length, laid over posted pages and read back.

use super::Bytes;
use grantway_netif::slots::rx::SLOTS_WRITTEN;
use grantway_netif::slots::{RxLayout, RxOutcome, RxSlot, RxWriteError, parse_rx, rx_slots_needed};
use grantway_netif::{Checksum, Gso, GsoKind, Hash, Offload};

pub(super) fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let len = bytes.u32() as usize % (20 * 4096);
    let offset = bytes.u16();
    let what = bytes.u8();
    let checksum = [Checksum::Unknown, Checksum::Partial, Checksum::Complete];
    let kind = match what & 0x24 {
        0 => GsoKind::Tcpv4,
        4 => GsoKind::Tcpv6,
        _ => GsoKind::Udp,
    };
    let gso = (what & 8 != 0).then(|| Gso { kind, size: bytes.u16() });
    let hash = (what & 16 != 0).then(|| Hash {
        kind: bytes.u8(),
        algorithm: bytes.u8(),
        value: bytes.u32(),
    });
    // Segmentation needs an unfinished checksum, whatever else was said.
    let said = Offload { checksum: checksum[usize::from(what & 3) % 3], gso };
    let offload = match gso {
        Some(_) => Offload { checksum: Checksum::Partial, gso },
        None => said,
    };
    // A refusal has to be right.
    let room = 4096usize.saturating_sub(usize::from(offset));
    let data = 1 + len.saturating_sub(room).div_ceil(4096);
    let layout = match RxLayout::new(len, offset, said, hash) {
        Ok(layout) => layout,
        Err(error) => {
            return match error {
                RxWriteError::TooShort { found } => assert!(found == len && len < 14),
                RxWriteError::OffsetOutOfPage { found } => {
                    assert!(found == offset && offset >= 4096);
                }
                // The first slot is too short for a header (XSA-522).
                RxWriteError::FirstTooShort { offset: found, room: left } => {
                    assert!(found == offset && usize::from(left) == room && room < 14);
                }
                RxWriteError::TooManySlots { len: found, slots } => {
                    assert!(found == len && slots > SLOTS_WRITTEN && slots == data);
                }
                RxWriteError::ZeroGsoSize => assert!(gso.is_some_and(|gso| gso.size == 0)),
                RxWriteError::NotTcp(_) => {
                    assert!(gso.is_some_and(|gso| gso.kind == GsoKind::Udp && gso.size > 0));
                }
            };
        }
    };
    // The slots cover the whole frame, in order, and each lies within a page.
    assert!(len >= 14 && room >= 14 && data <= SLOTS_WRITTEN);
    assert!(gso.is_none_or(|gso| gso.size > 0));
    let slots = layout.slots();
    assert_eq!(slots, rx_slots_needed(len, room, said, hash.is_some()));
    let mut at = 0;
    for slot in 0..slots {
        if let Some(RxSlot::Data { offset: begin, start, len, .. }) = layout.slot(slot) {
            assert!(start == at && begin == if at == 0 { offset } else { 0 });
            assert!(len > 0 && usize::from(len) + usize::from(begin) <= 4096);
            at += usize::from(len);
        }
    }
    assert!(at == len && layout.slot(slots).is_none() && layout.words(slots, 0).is_none());
    // The slots are read back as the frame that was laid out.
    let words: Vec<_> = (0..slots).filter_map(|slot| layout.words(slot, slot as u16)).collect();
    let parsed = parse_rx(&words).expect("written by us").expect("of one slot at least");
    let RxOutcome::Packet(packet) = parsed.outcome else { panic!("refused: {parsed:?}") };
    assert_eq!((parsed.slots, packet.len), (slots, len));
    assert_eq!((packet.offload, packet.hash), (offload, hash));
    for (part, fragment) in packet.fragments().enumerate() {
        assert_eq!(fragment.offset, if part == 0 { offset } else { 0 });
        assert_eq!(usize::from(fragment.id), fragment.slot);
    }
}

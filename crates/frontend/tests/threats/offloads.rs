//! Frames whose checksum or segmentation is left to the backend, and answers at
//! an offset of their page.

use crate::support::frame;
use crate::support::server::{RESTING, Rings};
use crate::support::world::World;
use grantway_frontend::SendError;
use grantway_netif::rx::RxFlags;
use grantway_netif::tx::{TxFlags, TxRequest};
use grantway_netif::{Checksum, Gso, GsoKind, Offload};
use grantway_ring::RingMemory;

const BLANK: Offload = Offload { checksum: Checksum::Partial, gso: None };

/// Returns a frame of this type, behind `tags` tags.
fn of_type(kind: u16, tags: usize) -> Vec<u8> {
    let mut frame = frame(100, 7);
    for tag in 0..tags {
        let outer = if tag == 0 && tags == 2 { 0x88a8_u16 } else { 0x8100 };
        frame[12 + 4 * tag..14 + 4 * tag].copy_from_slice(&outer.to_be_bytes());
    }
    frame[12 + 4 * tags..14 + 4 * tags].copy_from_slice(&kind.to_be_bytes());
    frame
}

#[test]
fn blank_checksums_are_sent_only_if_offered_for_their_ip_version() {
    for (over_ipv4, over_ipv6) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut world = World::new();
        world.server.offer();
        let flag = |on: bool| if on { b"1" } else { b"0" };
        // The keys are written before the frontend looks.
        world.server.key("feature-no-csum-offload", flag(!over_ipv4));
        world.server.key("feature-ipv6-csum-offload", flag(over_ipv6));
        let mut rings = world.connect_as_offered();
        for tags in 0..=2 {
            for (kind, offered) in [(0x0800, over_ipv4), (0x86dd, over_ipv6), (0x88b5, over_ipv4)] {
                let sent = world.vif.send(&of_type(kind, tags), BLANK);
                let what = format!("{kind:x} behind {tags} tags: {sent:?}");
                match offered {
                    true => assert_eq!(sent, Ok(()), "{what}"),
                    false => assert!(matches!(sent, Err(SendError::NotOffered { .. })), "{what}"),
                }
                // A frame with a whole checksum may always go.
                let whole = world.vif.send(&of_type(kind, tags), Offload::default());
                assert_eq!(whole, Ok(()), "{what}");
            }
        }
        // A third tag hides what is behind it.
        let sent = world.vif.send(&of_type(0x86dd, 3), BLANK);
        assert_eq!(sent.is_ok(), over_ipv4);
        world.vif.flush().unwrap();
        rings.serve_tx();
        world.vif.reap().unwrap();
        world.works(&mut rings);
        world.ends(rings);
    }
}

#[test]
fn mirage_net_xen_122_checksum_states_are_not_mixed_up() {
    // The bits of one direction are those of the other, swapped; a frame's bits hold for that frame
    // only.
    use Checksum::{Complete, Partial, Unknown};
    let mut world = World::new();
    let mut rings = world.connect();
    let (tx_valid, tx_blank) = (TxFlags::DATA_VALIDATED, TxFlags::CSUM_BLANK);
    let (rx_valid, rx_blank) = (RxFlags::DATA_VALIDATED, RxFlags::CSUM_BLANK);
    let segments = Some(Gso { kind: GsoKind::Tcpv4, size: 500 });
    let sent = [
        (Offload { checksum: Unknown, gso: None }, TxFlags::empty()),
        (Offload { checksum: Complete, gso: None }, tx_valid),
        (Offload { checksum: Partial, gso: None }, tx_valid | tx_blank),
        (Offload { checksum: Partial, gso: segments }, tx_valid | tx_blank | TxFlags::EXTRA_INFO),
    ];
    let received = [
        (RxFlags::empty(), Unknown),
        (rx_valid, Complete),
        (rx_blank, Partial),
        (rx_valid | rx_blank, Partial),
    ];
    // netif has no segmentation of UDP, whatever a backend offers.
    let datagrams = Some(Gso { kind: GsoKind::Udp, size: 500 });
    let refused =
        world.vif.send(&of_type(0x0800, 0), Offload { checksum: Partial, gso: datagrams });
    assert!(matches!(refused, Err(SendError::NotOffered { .. })), "{refused:?}");
    let mut buffer = [0; 200];
    for round in 0..16 {
        let (offload, flags) = sent[round % 4];
        world.vif.send(&of_type(0x0800, 0), offload).unwrap();
        world.vif.flush().unwrap();
        let first = rings.tx.read_slot(rings.tx_cons);
        assert_eq!(TxRequest::from_words(first).flags, flags, "{offload:?}");
        rings.serve_tx();
        world.vif.reap().unwrap();
        // The frames are read in another order.
        let (flags, checksum) = received[(round + round / 4) % 4];
        let index = rings.rx_cons;
        let request = rings.take();
        world.server.fill(request.gref, 0, &frame(60, round as u8));
        rings.rx_put(index, request.id, 0, flags, 60);
        rings.rx_publish(rings.rx_cons);
        let found = world.vif.recv(&mut buffer).unwrap().unwrap().offload;
        assert_eq!(found, Offload { checksum, gso: None }, "{flags:?}");
        world.vif.arm().unwrap();
    }
    world.ends(rings);
}

/// Delivers a frame of parts, each at its offset of a page of its own.
fn deliver_at(world: &World, rings: &mut Rings, bytes: &[u8], parts: &[(u16, usize)]) {
    let mut at = 0;
    for (n, &(offset, len)) in parts.iter().enumerate() {
        let index = rings.rx_cons;
        let request = rings.take();
        world.server.fill(request.gref, offset, &bytes[at..at + len]);
        let mut flags = RxFlags::empty();
        flags.set(RxFlags::MORE_DATA, n + 1 < parts.len());
        rings.rx_put(index, request.id, offset, flags, len as i16);
        at += len;
    }
    rings.rx_publish(rings.rx_cons);
    assert_eq!(at, bytes.len());
}

#[test]
fn qemu_answers_at_offset_2() {
    let mut world = World::new();
    let mut rings = world.connect();
    let mut buffer = vec![0; 65_536];
    let cases: [&[(u16, usize)]; 8] = [
        // One slot: QEMU's own, and up to the page's very end.
        &[(2, 60)],
        &[(2, 1514)],
        &[(2, 4094)],
        &[(4082, 14)],
        // Several, each at its own offset.
        &[(2, 4094), (2, 4094), (2, 812)],
        &[(2, 4094), (0, 4096)],
        &[(256, 3840), (1, 4095), (4095, 1)],
        &[(2, 14), (2, 1), (4000, 96)],
    ];
    for (n, parts) in cases.iter().enumerate() {
        let bytes = frame(parts.iter().map(|(_, len)| len).sum(), n as u8);
        deliver_at(&world, &mut rings, &bytes, parts);
        let received = world.vif.recv(&mut buffer).unwrap();
        let received = received.unwrap_or_else(|| panic!("{parts:?}: nothing came"));
        assert_eq!(buffer[..received.len], bytes, "{parts:?}");
    }
    assert_eq!(world.vif.stats().rx_errors, 0);
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn an_offset_that_leads_out_of_the_page_is_the_backends_fault() {
    // In the only part, the first, one between and the last: the frame is
    // refused and counted, and each of its pages is posted again.
    let bad = [(2, 4095), (4095, 2), (4096, 1), (0xffff, 14), (1, i16::MAX), (0, 4097)];
    let mut world = World::new();
    let mut rings = world.connect();
    let mut buffer = vec![0; 65_536];
    let mut refused = 0;
    for (parts, at) in [(1, 0), (3, 0), (3, 1), (3, 2)] {
        for (offset, status) in bad {
            for n in 0..parts {
                let index = rings.rx_cons;
                let request = rings.take();
                let (offset, status) = if n == at { (offset, status) } else { (2, 100) };
                let mut flags = RxFlags::empty();
                flags.set(RxFlags::MORE_DATA, n + 1 < parts);
                rings.rx_put(index, request.id, offset, flags, status);
            }
            rings.rx_publish(rings.rx_cons);
            let what = format!("({offset}, {status}) in part {at} of {parts}");
            assert_eq!(world.vif.recv(&mut buffer).unwrap(), None, "{what}");
            refused += 1;
            assert_eq!(world.vif.stats().rx_errors, refused, "{what}");
            world.works(&mut rings);
            assert_eq!(rings.posted(), RESTING, "{what}");
        }
    }
    world.ends(rings);
}

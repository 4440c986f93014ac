//! A vif that its operator marked for complete checksums: no blank checksum goes to its guest
//! or comes from it, whatever the guest offers and whatever the port gives.

use crate::support::hostile::{Hostile, frame};
use crate::support::inbox::Inbox;
use crate::support::rings::{Rings, slot};
use crate::support::sums::{is_whole, udp};
use crate::support::tcp::{SEQUENCE, Tcp};
use crate::support::world::{GUEST, World};
use grantway_backend::Checksums;
use grantway_backend::policy::Policy;
use grantway_hypervisor::Store;
use grantway_netif::extra::Extra;
use grantway_netif::tx::{TxFlags, status};
use grantway_netif::{Checksum, Gso, Offload, XenbusState};
use grantway_ports::TapOffloads;

const TO: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SEGMENT: u16 = 1448;
const FULL: [(&str, &str); 1] = [("checksum", "full")];
/// Keys of a guest that accepts everything unfinished.
const ALL: [(&str, &str); 2] = [("feature-gso-tcpv6", "1"), ("feature-ipv6-csum-offload", "1")];
const BLANK: Offload = Offload { checksum: Checksum::Partial, gso: None };
const COMPLETE: Offload = Offload { checksum: Checksum::Complete, gso: None };

fn marked(world: &mut World, nodes: &[(&str, &str)]) -> Hostile {
    let domain = world.boot(GUEST.domain);
    world.vif_with(domain, GUEST, nodes)
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|n| ((n * 7) >> 3) as u8).collect()
}

/// Sends a frame in pages of its own, and waits for its answers.
#[track_caller]
fn send(guest: &mut Hostile, rings: &mut Rings, frame: &[u8], offload: Offload) {
    let parts: Vec<_> = frame.chunks(4096).map(|part| (guest.page(part), part.len())).collect();
    let mut slots = Vec::new();
    for (n, ((_, gref), len)) in parts.iter().enumerate() {
        let mut flags = TxFlags::empty();
        flags.set(TxFlags::MORE_DATA, n + 1 < parts.len());
        flags.set(TxFlags::CSUM_BLANK, n == 0 && offload.checksum == Checksum::Partial);
        flags.set(TxFlags::EXTRA_INFO, n == 0 && offload.gso.is_some());
        let size = if n == 0 { frame.len() } else { *len };
        slots.push(slot(*gref, 0, size as u16, 7, flags));
        if let Some(gso) = offload.gso.filter(|_| n == 0) {
            slots.push(Extra::Gso(gso.try_into().unwrap(), 0).to_tx_words(false));
        }
    }
    let answers = guest.transmit(rings, &slots);
    assert!(answers.iter().all(|answer| answer.status != status::ERROR), "{answers:?}");
}

/// The frames that came to the port since the last call.
fn taken(world: &World) -> Vec<(Vec<u8>, Offload)> {
    std::mem::take(&mut world.behind(GUEST).look().taken)
}

/// Demands that blank and large frames of the guest reach its port complete.
#[track_caller]
fn sends_complete(world: &World, guest: &mut Hostile, rings: &mut Rings) {
    taken(world);
    for len in [0, 1, 64, 1448, 9000] {
        for v6 in [false, true] {
            for sent in
                [udp(v6, TO, FROM, &payload(len)), Tcp { v6 }.frame(TO, FROM, &payload(len))]
            {
                send(guest, rings, &sent, BLANK);
                let [(found, offload)] = &taken(world)[..] else { panic!("one frame") };
                assert!(is_whole(found) && *offload == COMPLETE, "{len} bytes, {offload:?}");
                let differ = found.iter().zip(&sent).filter(|(a, b)| a != b).count();
                assert!(found.len() == sent.len() && differ <= 2);
                // A complete one is left as it is, whoever vouches for it.
                let found = found.clone();
                send(guest, rings, &found, Offload::default());
                assert!(taken(world) == [(found, Offload::default())]);
            }
        }
    }
    for tcp in Tcp::BOTH {
        let large = tcp.frame(TO, FROM, &payload(60_000));
        send(guest, rings, &large, tcp.offload(SEGMENT));
        let mut got = Vec::new();
        for (segment, offload) in taken(world) {
            assert_eq!(offload, COMPLETE);
            let (sequence, part) = tcp.check(&segment, Checksum::Complete);
            assert_eq!(sequence, SEQUENCE.wrapping_add(got.len() as u32));
            got.extend_from_slice(part);
        }
        assert!(got == payload(60_000), "{tcp:?}");
    }
}

/// Demands that what the port leaves undone reaches the guest complete.
#[track_caller]
fn gets_complete(world: &World, guest: &mut Hostile, rings: &mut Rings, inbox: &mut Inbox) {
    for len in [0, 1, 64, 1448, 9000] {
        for v6 in [false, true] {
            for sent in
                [udp(v6, TO, FROM, &payload(len)), Tcp { v6 }.frame(TO, FROM, &payload(len))]
            {
                world.behind(GUEST).give(sent.clone(), BLANK);
                let (found, offload) = inbox.next(rings);
                assert!(is_whole(&found) && offload == COMPLETE, "{len} bytes, {offload:?}");
                assert_eq!(found.len(), sent.len());
                inbox.post(guest, rings, 16);
            }
        }
    }
    for tcp in Tcp::BOTH {
        world.behind(GUEST).give(tcp.frame(TO, FROM, &payload(40_000)), tcp.offload(SEGMENT));
        let mut got = Vec::new();
        while got.len() < 40_000 {
            let (segment, offload) = inbox.next(rings);
            assert_eq!(offload, COMPLETE);
            got.extend_from_slice(tcp.check(&segment, Checksum::Complete).1);
        }
        assert!(got == payload(40_000), "{tcp:?}");
        inbox.post(guest, rings, 64);
    }
}

#[test]
fn no_blank_checksum_crosses_a_marked_vif_whatever_else_is_set() {
    for (policy, rules) in [
        (Policy::Staging, false),
        (Policy::Persistent, false),
        (Policy::Map, false),
        (Policy::Staging, true),
    ] {
        let mut world = World::of_workers(1, grantway_backend::WaitMode::Interrupt, false);
        world.setup.policy.most = policy;
        world.setup.by_rules = rules;
        world.restart();
        if rules {
            let load = |backend: &mut grantway_backend::Backend| {
                let secret = crate::support::control::SECRET;
                backend.load("[firewall]\ndefault = \"accept\"\n", secret).unwrap();
            };
            world.control().with(load);
        }
        world.begins_beside();
        let mut guest = marked(&mut world, &FULL);
        // The port would have segments merged, for which no checksum is complete.
        world.behind(GUEST).look().merges = true;
        let mut keys = ALL.to_vec();
        keys.push(("feature-persistent", "1"));
        let mut rings = guest.connect_as(&keys);
        assert_eq!(world.behind(GUEST).look().offloads, TapOffloads::NONE);
        let mut inbox = Inbox::posted(&mut guest, &mut rings);
        sends_complete(&world, &mut guest, &mut rings);
        gets_complete(&world, &mut guest, &mut rings, &mut inbox);
        let report = world.control().report_of(GUEST).unwrap();
        assert_eq!(report.checksums, Checksums::Full);
        assert_eq!((report.stats.tx_completed, report.stats.tx_merged), (20, 0));
        assert_eq!(report.stats.tx_dropped_offload, 0);
        world.stands();
    }
}

#[test]
fn a_marked_vif_offers_no_offload_and_another_one_does() {
    let offers = [
        ("feature-sg", ["1", "1"]),
        ("feature-gso-tcpv4", ["1", "0"]),
        ("feature-gso-tcpv6", ["1", "0"]),
        ("feature-ipv6-csum-offload", ["1", "0"]),
        ("feature-no-csum-offload", ["0", "1"]),
    ];
    for (mark, default, full) in [
        (None, Checksums::Offload, 0),
        (Some("full"), Checksums::Offload, 1),
        (None, Checksums::Full, 1),
        // The mark decides where both speak.
        (Some("offload"), Checksums::Full, 0),
    ] {
        let mut world = World::of_workers(1, grantway_backend::WaitMode::Interrupt, false);
        world.setup.checksums = default;
        world.restart();
        world.begins_beside();
        let nodes: Vec<_> = mark.iter().map(|&mark| ("checksum", mark)).collect();
        let mut guest = marked(&mut world, &nodes);
        let mut rings = guest.connect_as(&ALL);
        for (key, values) in offers {
            let found = guest.backend_key(key);
            assert_eq!(found.as_deref(), Some(values[full]), "{mark:?}, {default:?}: {key}");
        }
        let sent = udp(false, TO, FROM, b"payload");
        send(&mut guest, &mut rings, &sent, BLANK);
        assert_eq!(is_whole(&taken(&world)[0].0), full == 1, "{mark:?}, {default:?}");
        world.stands();
    }
}

#[test]
fn an_invalid_mark_is_refused_and_the_vif_is_served() {
    for mark in ["", "Full", "1", "full,offload", "\u{665}\n", &"full".repeat(500)] {
        let mut world = World::new();
        let mut guest = marked(&mut world, &[("checksum", mark)]);
        let mut rings = guest.connect_as(&ALL);
        let said = guest.backend_key("error").unwrap();
        let path = format!("backend/vif/{}/0/checksum", GUEST.domain);
        for part in [path.as_str(), "expected full or offload", "remove the node"] {
            assert!(said.contains(part), "{said:?} lacks {part}");
        }
        assert!(said.len() < 400, "{} bytes", said.len());
        let sent = udp(false, TO, FROM, b"payload");
        send(&mut guest, &mut rings, &sent, BLANK);
        assert!(taken(&world) == [(sent, BLANK)]);
        world.stands();
    }
}

#[test]
fn a_mark_holds_from_the_next_connection_or_successor_on() {
    let mut world = World::new();
    let mut guest = marked(&mut world, &[]);
    let mut rings = guest.connect_as(&ALL);
    let mark = format!("{}/checksum", world.toolstack.back(GUEST));
    let is_completed = |world: &World, guest: &mut Hostile, rings: &mut Rings| {
        send(guest, rings, &udp(true, TO, FROM, b"payload"), BLANK);
        is_whole(&taken(world)[0].0)
    };
    let tells = |world: &World| world.control().report_of(GUEST).unwrap().checksums;
    world.toolstack.store.write(&mark, b"full").unwrap();
    world.settle();
    assert!(!is_completed(&world, &mut guest, &mut rings), "the connection goes on");
    assert_eq!(tells(&world), Checksums::Offload);
    rings = guest.connect_as(&[]);
    assert!(is_completed(&world, &mut guest, &mut rings));
    // A successor reads the mark again, though the connection is the same one.
    for (value, full) in [("full", true), ("offload", false), ("full", true)] {
        world.toolstack.store.write(&mark, value.as_bytes()).unwrap();
        world.restart();
        assert_eq!(guest.backend_state(), Some(XenbusState::Connected));
        assert_eq!(is_completed(&world, &mut guest, &mut rings), full, "{value}");
        assert_eq!(tells(&world) == Checksums::Full, full);
    }
    // The guest was offered large frames, and was not told otherwise.
    sends_complete(&world, &mut guest, &mut rings);
    let mut inbox = Inbox::posted(&mut guest, &mut rings);
    gets_complete(&world, &mut guest, &mut rings, &mut inbox);
    world.stands_and(|_| ());
}

#[test]
fn xapi_marks_a_vif_by_its_other_config() {
    let uuid = "0f3c4d2e-1111-2222-3333-0123456789ab";
    let vm = format!("/vm/{uuid}");
    for (vm, own, full) in [
        (vm.as_str(), None, true),
        // The folder of the vif itself decides where both speak.
        (vm.as_str(), Some("offload"), false),
        ("/vm/elsewhere", None, false),
        ("/vm/../../0f3c4d2e-1111-2222-3333-01234", None, false),
        ("", None, false),
    ] {
        let mut world = World::new();
        let domain = world.boot(GUEST.domain);
        let store: &mut dyn Store = world.toolstack.store.as_mut();
        store.write(&format!("/local/domain/{}/vm", GUEST.domain), vm.as_bytes()).unwrap();
        let node = format!("/xapi/{uuid}/private/vif/0/other-config/checksum");
        store.write(&node, b"full").unwrap();
        let nodes: Vec<_> = own.iter().map(|&own| ("checksum", own)).collect();
        let mut guest = world.vif_with(domain, GUEST, &nodes);
        let mut rings = guest.connect_as(&ALL);
        send(&mut guest, &mut rings, &udp(false, TO, FROM, b"payload"), BLANK);
        assert_eq!(is_whole(&taken(&world)[0].0), full, "{vm} {own:?}");
        world.stands();
    }
}

#[test]
fn frames_that_cannot_be_completed_are_dropped_and_counted() {
    let mut world = World::new();
    let mut guest = marked(&mut world, &FULL);
    let mut rings = guest.connect_as(&ALL);
    let tcp = Tcp { v6: false };
    send(&mut guest, &mut rings, &frame(200), BLANK);
    send(&mut guest, &mut rings, &tcp.frame(TO, FROM, b"")[..50], BLANK);
    // More segments than a turn's work; TCP over IPv4 that is said to be over IPv6; no payload of
    // a segment at all is refused by its slots.
    let large = tcp.frame(TO, FROM, &payload(40_000));
    send(&mut guest, &mut rings, &large, tcp.offload(79));
    let other = Tcp { v6: true }.offload(SEGMENT).gso;
    send(&mut guest, &mut rings, &large, Offload { gso: other, ..BLANK });
    assert!(taken(&world).is_empty());
    let stats = world.control().report_of(GUEST).unwrap().stats;
    assert_eq!((stats.tx_dropped_offload, stats.tx_cut, stats.tx_completed), (4, 0, 0));
    // As many as a turn's work allows, and in the turn of others.
    let gso = Some(Gso { size: 80, ..tcp.offload(80).gso.unwrap() });
    send(&mut guest, &mut rings, &large, Offload { gso, ..BLANK });
    assert_eq!(taken(&world).len(), 500);
    sends_complete(&world, &mut guest, &mut rings);
    world.stands();
}

//! The toolstack's node that says if the backend is to be trusted.

use crate::support::frame;
use crate::support::world::{World, paths};
use grantway_embedded::Domain;
use grantway_frontend::{Vif, VifError, Wishes};
use grantway_hypervisor::{GrantRef, Platform};
use grantway_netif::Offload;
use grantway_netif::tx::TxRequest;
use std::sync::Arc;

fn platform(world: &World) -> Arc<dyn Platform> {
    Arc::<Domain>::clone(&world.guest)
}

/// Sets the node's value from now on; none removes it.
fn say(world: &mut World, trusted: Option<&[u8]>) {
    let node = format!("{}/trusted", paths().0);
    match trusted {
        Some(value) => world.toolstack.write(&node, value).unwrap(),
        None => world.toolstack.remove(&node).unwrap(),
    }
}

#[test]
fn trusted_is_read_and_judged() {
    let mut world = World::new();
    assert!(world.vif.trusts_backend(), "where the toolstack says nothing");
    for (value, expected) in [("0", false), ("1", true), (" 0\n", false)] {
        say(&mut world, Some(value.as_bytes()));
        let vif = Vif::open(platform(&world), 0, Wishes::default()).unwrap();
        assert_eq!(vif.trusts_backend(), expected, "{value:?}");
    }
    let long = [b'1'; 2000];
    for garbage in [b"".as_slice(), b"2", b"-1", b"yes", b"false", b"\xff", b"0\n1", &long] {
        say(&mut world, Some(garbage));
        let error = Vif::open(platform(&world), 0, Wishes::default()).map(drop).unwrap_err();
        assert!(matches!(error, VifError::Key { .. }), "{garbage:?}: {error:?}");
        let said = error.to_string();
        assert!(said.contains("/trusted: found") && said.contains("expected 0 or 1"), "{said}");
        assert!(said.len() < 300 && !said.contains(['\n', '\u{1b}']), "{said:?}");
    }
    say(&mut world, None);
    assert_eq!(Vif::open(platform(&world), 0, Wishes::default()).map(drop), Ok(()));
}

#[test]
fn trusted_is_read_again_after_a_restore() {
    let mut world = World::new();
    let rings = world.connect();
    say(&mut world, Some(b"0"));
    assert!(world.vif.trusts_backend(), "it is the toolstack's word when the vif is opened");
    world.vif.resume(platform(&world)).unwrap();
    assert!(!world.vif.trusts_backend());
    world.server.detach(rings);
    let mut rings = world.connect();
    world.works(&mut rings);
    world.server.detach(rings);
}

#[test]
fn xsa_403_an_untrusted_backend_gets_linear_copies_as_every_other_does() {
    // Each slot lies in a page of its own and holds bytes of the frame only. Later changes of the
    // caller's buffer are not seen.
    for trusted in ["0", "1"] {
        let mut world = World::new();
        say(&mut world, Some(trusted.as_bytes()));
        world.vif = Vif::open(platform(&world), 0, Wishes::default()).unwrap();
        let mut rings = world.connect();
        for len in [14, 60, 1514, 4096, 4097, 65_535] {
            let mut bytes = frame(len, 7);
            world.vif.send(&bytes, Offload::default()).unwrap();
            world.vif.flush().unwrap();
            bytes.fill(0xee);
            let first = rings.tx_cons;
            let slots = rings.requests();
            let mut seen = Vec::new();
            for (n, &words) in slots.iter().enumerate() {
                let request = TxRequest::from_words(words);
                let (_run, page) = world.server.peek(GrantRef(request.gref)).unwrap();
                let mut part = vec![0; (len - seen.len()).min(4096)];
                page.read(request.offset.into(), &mut part).unwrap();
                seen.extend(part);
                rings.tx_put(first.wrapping_add(n as u32), request.id, 0);
            }
            assert!(seen == frame(len, 7), "trusted={trusted}: {len} bytes");
            rings.tx_publish(rings.tx_cons);
            world.vif.reap().unwrap();
        }
        world.works(&mut rings);
        world.ends(rings);
    }
}

//! Guests that send nonsense, flood, or do not read.

mod store_support;

use grantway_embedded::store::{ConnId, Quotas, Server};
use grantway_hypervisor::{DomId, Rights, StoreOps};
use grantway_xenstore::wire::{MessageType as M, encode};
use proptest::prelude::*;
use store_support::Talk;

/// More bytes than a connection may ever hold: 64 KiB of answers, one more answer, and its events.
const MOST: usize = 8 << 20;

fn world() -> (Server, ConnId, ConnId) {
    let mut server = Server::new(Quotas::default());
    server.write("/local/domain/1/a/b", b"1").unwrap();
    let mine = grantway_hypervisor::Permission { domain: DomId(1), rights: Rights::None };
    for path in ["/local/domain/1", "/local/domain/1/a", "/local/domain/1/a/b"] {
        server.set_permissions(path, &[mine]).unwrap();
    }
    let dom0 = server.connect(DomId::ZERO);
    let guest = server.connect(DomId(1));
    (server, dom0, guest)
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("a"),
        Just("a/b"),
        Just("/"),
        Just("/local/domain/1/c"),
        Just("@releaseDomain"),
        Just("n1"),
        Just("b0"),
        Just("T"),
        Just("F"),
        Just("0"),
        Just("1"),
        Just("check"),
        Just("99999999999999999999999"),
        Just(""),
        Just("//"),
        Just("\u{e9}"),
    ];
    let strings = prop::collection::vec(word, 0..4).prop_map(|w| {
        let mut bytes = w.join("\0").into_bytes();
        bytes.push(0);
        bytes
    });
    prop_oneof![4 => strings, 1 => prop::collection::vec(any::<u8>(), 0..64)]
}

proptest! {
    #[test]
    fn random_bytes(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..30)) {
        let (mut server, dom0, guest) = world();
        for chunk in chunks {
            if server.input(guest, &chunk).is_err() {
                server.disconnect(guest);
                break;
            }
            prop_assert!(server.backlog(guest).input < 4112);
            prop_assert!(server.backlog(guest).output < MOST);
        }
        prop_assert_eq!(server.read("/local/domain/1/a/b").unwrap(), b"1");
        prop_assert!(server.wants_input(dom0));
    }

    #[test]
    fn random_requests(
        requests in prop::collection::vec((0_u32..24, 0_u32..6, payload(), any::<bool>(), any::<bool>()), 0..200),
    ) {
        let (mut server, dom0, guest) = world();
        for (n, (kind, tx, payload, as_dom0, read)) in requests.into_iter().enumerate() {
            let c = if as_dom0 { dom0 } else { guest };
            let bytes = encode(kind, u32::try_from(n).unwrap(), tx, &[&payload]).unwrap();
            server.input(c, &bytes).unwrap();
            if read {
                let len = server.output(c).len();
                server.written(c, len).unwrap();
            }
        }
        for (c, domain) in [(guest, DomId(1)), (dom0, DomId::ZERO)] {
            prop_assert!(server.backlog(c).output < MOST);
            server.disconnect(c);
            let usage = server.usage(domain);
            prop_assert_eq!((usage.watches, usage.transactions), (0, 0));
        }
        // The books agree with the tree.
        let mut all = vec!["/".to_owned()];
        let mut count = [0_usize; 2];
        while let Some(path) = all.pop() {
            let owner = server.permissions(&path).unwrap()[0].domain;
            if owner.0 < 2 {
                count[usize::from(owner.0)] += 1;
            }
            for name in server.list(&path).unwrap() {
                all.push(format!("{}/{name}", path.trim_end_matches('/')));
            }
        }
        prop_assert_eq!(server.usage(DomId::ZERO).nodes, count[0]);
        prop_assert_eq!(server.usage(DomId(1)).nodes, count[1]);
    }
}

#[test]
fn xsa_349_watch_flood() {
    let (mut server, dom0, guest) = world();
    let send = |server: &mut Server, c, kind: M, payload: &[u8]| {
        server.input(c, &encode(kind.number(), 1, 0, &[payload]).unwrap()).unwrap();
    };
    send(&mut server, dom0, M::Watch, b"/local/domain/1\0t\0");
    let quiet = server.backlog(dom0).output;
    // Events of one path are told once.
    for _ in 0..100_000 {
        send(&mut server, guest, M::Write, b"a/b\0x");
        let len = server.output(guest).len();
        server.written(guest, len).unwrap();
    }
    assert!(server.backlog(dom0).output < quiet + 100);
    // Events of different paths are told as one of the watched path, past a bound.
    for n in 0..50_000 {
        let path = format!("a/flood-{n}\0");
        send(&mut server, guest, M::Write, path.as_bytes());
        send(&mut server, guest, M::Rm, path.as_bytes());
        let len = server.output(guest).len();
        server.written(guest, len).unwrap();
    }
    let most = server.backlog(dom0).output;
    assert!(most < 1 << 20, "{most}");
    // Domain 0 reads, and is told of new things again.
    while !server.output(dom0).is_empty() {
        let len = server.output(dom0).len();
        server.written(dom0, len).unwrap();
    }
    send(&mut server, guest, M::Write, b"a/b\0y");
    assert!(server.output(dom0).ends_with(b"/local/domain/1/a/b\0t\0"));
}

#[test]
fn a_guest_that_does_not_read_is_not_heard_and_holds_nobody_up() {
    let mut t = Talk::new();
    let [dom0, guest] = [t.connect(0), t.connect(1)];
    t.write(dom0, 0, "/big", &"x".repeat(4000)).unwrap();
    t.chmod(dom0, 0, "/big", "r0").unwrap();
    let mut sent = 0;
    while t.server.wants_input(guest) {
        sent += 1;
        let request = encode(M::Read.number(), sent, 0, &[b"/big\0"]).unwrap();
        t.server.input(guest, &request).unwrap();
        assert!(sent < 100, "never paused");
    }
    // One more request stays where it is, and is answered in its turn.
    sent += 1;
    let request = encode(M::Read.number(), sent, 0, &[b"/big\0"]).unwrap();
    t.server.input(guest, &request).unwrap();
    assert_eq!(t.server.backlog(guest).input, request.len());
    assert!(t.server.backlog(guest).output < 64 * 1024 + 4112);
    assert_eq!(t.read(dom0, 0, "/big").unwrap().len(), 4000);
    let answers = t.listen(guest);
    let order: Vec<u32> = answers.iter().map(|(_, req, _)| *req).collect();
    assert_eq!(order, (1..=sent).collect::<Vec<_>>());
    assert!(answers.iter().all(|(.., a)| a.is_ok()));
    assert!(t.server.wants_input(guest));

    // A client that goes on all the same is cut off.
    let request = request.repeat(1000);
    let cut = (0..100).any(|_| t.server.input(guest, &request).is_err());
    assert!(cut);
    t.server.disconnect(guest);
    assert_eq!(t.server.connections_with_output().count(), 0);
}

#[test]
fn an_event_that_is_too_long_is_told_as_the_watched_path() {
    let mut t = Talk::new();
    let c = t.connect(0);
    let token = "t".repeat(3000);
    t.watch(c, "/w", &token).unwrap();
    t.events(c);
    let path = format!("/w/{}", "p".repeat(2000));
    t.write(c, 0, &path, "").unwrap();
    assert_eq!(t.events(c), [("/w".to_owned(), token)]);
}

//! Bugs of a xenstored, played against the embedded host's store: one test for each advisory that
//! no other test of the store replays (`docs/advisories.md`).

mod store_support;

use grantway_embedded::store::{Quotas, Usage};
use grantway_hypervisor::{DomId, StoreErrno as E};
use grantway_xenstore::path::{ABSOLUTE_MAX, RELATIVE_MAX};
use grantway_xenstore::wire::{Header, MessageType as M};
use store_support::{three, three_with};

#[test]
fn xsa_323_what_a_guest_may_name_everybody_can_read() {
    // A relative path of the greatest length, which is longer as an absolute one.
    let (mut t, [dom0, one, two]) = three();
    let path = "p".repeat(RELATIVE_MAX);
    let absolute = format!("/local/domain/1/{path}");
    assert!(absolute.len() <= ABSOLUTE_MAX);
    t.watch(dom0, "/local/domain/1", "w").unwrap();
    t.events(dom0);
    t.write(one, 0, &path, "v").unwrap();
    assert_eq!(t.events(dom0), [(absolute.clone(), "w".to_owned())]);
    assert_eq!(t.read(dom0, 0, &absolute).unwrap(), "v");
    assert_eq!(t.list(dom0, 0, "/local/domain/1").unwrap(), [path.as_str()]);
    t.chmod(one, 0, &path, "n1,r2").unwrap();
    assert_eq!(t.read(two, 0, &absolute).unwrap(), "v");
    // With one byte more it is no path, neither for its maker nor for a reader.
    let longer = format!("{path}p");
    assert_eq!(t.write(one, 0, &longer, ""), Err(E::Einval));
    t.rm(dom0, 0, &absolute).unwrap();
    assert!(t.list(dom0, 0, "/local/domain/1").unwrap().is_empty());
}

#[test]
fn xsa_325_a_guest_that_was_cut_off_is_known_until_it_dies() {
    let (mut t, [dom0, one, _]) = three();
    t.write(one, 0, "device/vif/0/state", "4").unwrap();
    t.watch(dom0, "@releaseDomain", "r").unwrap();
    t.events(dom0);
    let header = Header { kind: M::Write.number(), req_id: 1, tx_id: 0, len: u32::MAX };
    assert!(t.server.input(one, &header.to_bytes()).is_err(), "what is no message");
    t.server.disconnect(one);
    // A domain's peers keep what they share with it, and are told when it ends.
    assert!(t.fired(dom0).is_empty(), "it lives");
    assert_eq!(t.ask(dom0, M::IsDomainIntroduced, b"1\0").unwrap(), b"T\0");
    assert_eq!(t.read(dom0, 0, "/local/domain/1/device/vif/0/state").unwrap(), "4");
    t.server.release(DomId(1));
    assert_eq!(t.fired(dom0), ["@releaseDomain=r"]);
    assert_eq!(t.ask(dom0, M::IsDomainIntroduced, b"1\0").unwrap(), b"F\0");
}

#[test]
fn xsa_330_512_watches_that_were_reset_are_gone() {
    let (mut t, [dom0, one, _]) = three();
    let most = Quotas::default().watches;
    for round in 0..50 {
        for n in 0..most {
            t.watch(one, &format!("w/{round}/{n}"), "t").unwrap();
        }
        assert_eq!(t.watch(one, "w", "t"), Err(E::E2big));
        assert_eq!(t.events(one).len(), most);
        t.ask(one, M::ResetWatches, b"\0").unwrap();
        assert_eq!(t.server.usage(DomId(1)).watches, 0);
    }
    for round in 0..50 {
        for n in [0, most - 1] {
            t.write(dom0, 0, &format!("/local/domain/1/w/{round}/{n}"), "").unwrap();
        }
    }
    assert!(t.fired(one).is_empty(), "a watch outlived its reset");
}

#[test]
fn xsa_353_the_root_is_judged_as_every_node() {
    let (mut t, [dom0, one, _]) = three();
    assert_eq!(t.read(one, 0, "/"), Err(E::Eacces));
    assert_eq!(t.list(one, 0, "/"), Err(E::Eacces));
    assert_eq!(t.perms(one, 0, "/"), Err(E::Eacces));
    assert_eq!(t.ask(one, M::DirectoryPart, b"/\x000\0"), Err(E::Eacces));
    assert_eq!(t.chmod(one, 0, "/", "b1"), Err(E::Eacces));
    assert_eq!(t.write(one, 0, "/", "x"), Err(E::Eacces));
    assert_eq!(t.write(one, 0, "/new", "x"), Err(E::Eacces));
    assert_eq!(t.mkdir(one, 0, "/new"), Err(E::Eacces));
    assert!(t.rm(one, 0, "/").is_err());
    assert_eq!(t.perms(dom0, 0, "/").unwrap(), "n0");
    assert_eq!(t.list(dom0, 0, "/").unwrap(), ["local"]);
}

#[test]
fn xsa_415_421_a_node_that_cannot_be_made_leaves_nothing_of_its_transaction() {
    let (mut t, [dom0, one, _]) = three_with(Quotas { nodes: 4, ..Quotas::default() });
    let tx = t.begin(one).unwrap();
    t.write(one, tx, "a", "1").unwrap();
    // The first two names fit, and the third does not.
    assert_eq!(t.write(one, tx, "b/c/d", "1"), Err(E::Enospc));
    for path in ["b", "b/c", "b/c/d"] {
        assert_eq!(t.read(one, tx, path), Err(E::Enoent), "{path}");
    }
    t.end(one, tx, true).unwrap();
    assert_eq!(t.list(dom0, 0, "/local/domain/1").unwrap(), ["a"]);
    assert_eq!(t.server.usage(DomId(1)), Usage { nodes: 2, ..Usage::default() });
    // Each transaction fits by itself, and both together do not.
    let (first, second) = (t.begin(one).unwrap(), t.connect(1));
    let other = t.begin(second).unwrap();
    t.write(one, first, "x/y", "").unwrap();
    t.write(second, other, "a", "2").unwrap();
    t.write(second, other, "z/z", "").unwrap();
    t.end(one, first, true).unwrap();
    assert_eq!(t.end(second, other, true), Err(E::Enospc));
    assert_eq!(t.read(one, 0, "a").unwrap(), "1", "a part of a transaction that failed");
    assert_eq!(t.list(dom0, 0, "/local/domain/1").unwrap(), ["a", "x"]);
    assert_eq!(t.server.usage(DomId(1)), Usage { nodes: 4, ..Usage::default() });
}

#[test]
fn xsa_418_the_deepest_tree_is_made_and_removed() {
    let (mut t, [dom0, one, _]) = three_with(Quotas { depth: usize::MAX, ..Quotas::default() });
    let deepest = vec!["n"; Quotas::MAX_DEPTH - 3].join("/");
    for _ in 0..3 {
        t.write(one, 0, &deepest, "").unwrap();
        assert_eq!(t.write(one, 0, &format!("{deepest}/n"), ""), Err(E::Einval));
        t.rm(one, 0, "n").unwrap();
    }
    t.write(one, 0, &deepest, "").unwrap();
    t.server.release(DomId(1));
    assert_eq!(t.server.usage(DomId(1)), Usage::default());
    assert!(t.list(dom0, 0, "/local/domain").unwrap().iter().all(|name| name != "1"));
}

#[test]
fn xsa_419_nodes_of_a_dead_guest_in_anothers_folder_are_nobodys() {
    // Two guests work together: a node that one makes in the other's folder goes with that folder.
    let (mut t, [_, one, mut two]) = three();
    t.mkdir(one, 0, "open").unwrap();
    t.chmod(one, 0, "open", "n1,b2").unwrap();
    let before = [0, 1].map(|domain| t.server.usage(DomId(domain)).nodes);
    for round in 0..5 {
        for n in 0..900 {
            t.write(two, 0, &format!("/local/domain/1/open/{round}-{n}"), "").unwrap();
        }
        t.server.disconnect(two);
        t.server.release(DomId(2));
        assert_eq!([0, 1].map(|domain| t.server.usage(DomId(domain)).nodes), before);
        assert_eq!(t.server.usage(DomId(2)), Usage::default());
        assert!(t.list(one, 0, "open").unwrap().is_empty());
        t.server.introduce(DomId(2));
        two = t.connect(2);
        // The domain's name went from the permissions of others, too.
        assert_eq!(t.write(two, 0, "/local/domain/1/open/x", ""), Err(E::Eacces));
        t.chmod(one, 0, "open", "n1,b2").unwrap();
    }
}

#[test]
fn xsa_481_484_requests_that_no_state_was_made_for() {
    let (mut t, [_, one, _]) = three();
    for path in ["/local/domain/", "/local/domain", "/local/domain/x/", "local/domain/"] {
        let payload = format!("{path}\0");
        for kind in [M::Read, M::Directory, M::GetPerms, M::Rm, M::Mkdir] {
            let answer = t.ask(one, kind, payload.as_bytes());
            assert!(matches!(answer, Err(E::Einval | E::Eacces)), "{kind:?} {path}: {answer:?}");
        }
    }
    // Watches are reset, and the connection ends, within a transaction.
    t.watch(one, "w", "t").unwrap();
    let tx = t.begin(one).unwrap();
    t.write(one, tx, "made", "").unwrap();
    t.ask_in(one, tx, M::ResetWatches, b"\0").unwrap();
    assert_eq!(t.end(one, tx, true), Err(E::Enoent));
    let again = t.begin(one).unwrap();
    t.write(one, again, "made", "").unwrap();
    t.server.disconnect(one);
    let left = t.server.usage(DomId(1));
    assert_eq!((left.watches, left.transactions), (0, 0));
    assert!(!t.server.exists("/local/domain/1/made"));
}

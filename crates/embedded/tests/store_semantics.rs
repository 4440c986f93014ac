//! Promises of the store: access, transactions, watches, quotas.

mod store_support;

use grantway_embedded::store::{Quotas, Usage};
use grantway_hypervisor::{DomId, StoreErrno as E, StoreOps};
use grantway_xenstore::wire::{Header, MessageType as M, encode};
use store_support::{Talk, three};

#[test]
fn access_is_judged_by_node() {
    let (mut t, [dom0, one, two]) = three();
    t.write(one, 0, "data/a", "1").unwrap();
    assert_eq!(t.perms(dom0, 0, "/local/domain/1/data/a").unwrap(), "n1");
    assert_eq!(t.read(two, 0, "/local/domain/1/data/a"), Err(E::Eacces));
    assert_eq!(t.write(two, 0, "/local/domain/1/data/a", ""), Err(E::Eacces));
    assert_eq!(t.rm(two, 0, "/local/domain/1/data/a"), Err(E::Eacces));
    assert_eq!(t.list(two, 0, "/local/domain"), Err(E::Eacces));

    t.chmod(one, 0, "data/a", "n1,r2").unwrap();
    assert_eq!(t.read(two, 0, "/local/domain/1/data/a").unwrap(), "1");
    assert_eq!(t.write(two, 0, "/local/domain/1/data/a", ""), Err(E::Eacces));
    assert_eq!(t.chmod(two, 0, "/local/domain/1/data/a", "n2"), Err(E::Eacces));
    t.chmod(one, 0, "data/a", "n1,b2").unwrap();
    t.write(two, 0, "/local/domain/1/data/a", "2").unwrap();
    // A node belongs to its maker, with the rights of the node above.
    t.write(two, 0, "/local/domain/1/data/a/b", "3").unwrap();
    assert_eq!(t.perms(dom0, 0, "/local/domain/1/data/a/b").unwrap(), "n2,b2");
    // Domain 0's new nodes keep the owner of the node above.
    t.write(dom0, 0, "/local/domain/1/data/new", "").unwrap();
    assert_eq!(t.read(one, 0, "data/new").unwrap(), "");

    assert_eq!(t.chmod(one, 0, "data/a", "n2"), Err(E::Eperm));
    assert_eq!(t.chmod(one, 0, "data/a", "x1"), Err(E::Einval));
    assert_eq!(t.ask(one, M::SetPerms, b"data/a\0"), Err(E::Einval));
}

#[test]
fn what_is_missing_is_told_to_those_who_may_know() {
    let (mut t, [dom0, one, two]) = three();
    assert_eq!(t.read(dom0, 0, "/nothing/here"), Err(E::Enoent));
    assert_eq!(t.read(one, 0, "nothing/here"), Err(E::Enoent));
    assert_eq!(t.read(two, 0, "/local/domain/1/nothing"), Err(E::Eacces));
    assert_eq!(t.read(two, 0, "/nothing"), Err(E::Eacces));
    assert_eq!(t.write(two, 0, "/nothing", ""), Err(E::Eacces));
    // A domain that may read but not write learns it by reading.
    t.chmod(one, 0, "/local/domain/1", "r1").unwrap();
    assert_eq!(t.read(two, 0, "/local/domain/1/nothing"), Err(E::Enoent));
    assert_eq!(t.mkdir(two, 0, "/local/domain/1/nothing"), Err(E::Eacces));
}

#[test]
fn making_and_removing() {
    let (mut t, [dom0, ..]) = three();
    t.write(dom0, 0, "/a/b/c", "x").unwrap();
    assert_eq!(t.read(dom0, 0, "/a/b").unwrap(), "");
    t.mkdir(dom0, 0, "/a/b/c").unwrap();
    assert_eq!(t.read(dom0, 0, "/a/b/c").unwrap(), "x");
    assert_eq!(t.list(dom0, 0, "/a").unwrap(), ["b"]);
    assert_eq!(t.rm(dom0, 0, "/"), Err(E::Einval));
    assert_eq!(t.rm(dom0, 0, "/a/none"), Ok(()));
    assert_eq!(t.rm(dom0, 0, "/a/none/none"), Err(E::Enoent));
    t.rm(dom0, 0, "/a").unwrap();
    assert!(!t.server.exists("/a/b/c"));
}

#[test]
fn malformed_requests() {
    let (mut t, [dom0, one, _]) = three();
    let wrong: &[(M, &[u8])] = &[
        (M::Read, b""),
        (M::Read, b"/a"),
        (M::Read, b"/a\0b\0"),
        (M::Read, b"\0"),
        (M::Read, b"//\0"),
        (M::Read, b"/a/\0"),
        (M::Read, b"/a b\0"),
        (M::Read, b"@releaseDomain\0"),
        (M::Write, b"/a"),
        (M::Watch, b"/a\0"),
        (M::Watch, b"/a\0token"),
        (M::Unwatch, b"/a\0"),
        (M::GetDomainPath, b"x\0"),
        (M::GetDomainPath, b"\0"),
        (M::GetDomainPath, b"70000\0"),
        (M::DirectoryPart, b"/\0x\0"),
        (M::DirectoryPart, b"/\0"),
        (M::Control, b"explode\0"),
        (M::Introduce, b"1"),
    ];
    for (kind, payload) in wrong {
        assert_eq!(t.ask(dom0, *kind, payload), Err(E::Einval), "{kind:?} {payload:?}");
    }
    for kind in [M::WatchEvent, M::Error, M::SetTarget] {
        assert_eq!(t.ask(dom0, kind, b"\0"), Err(E::Enosys));
    }
    for kind in [20, 23, 0xffff, u32::MAX] {
        t.server.input(dom0, &encode(kind, 7, 0, &[]).unwrap()).unwrap();
        let error = (M::Error.number(), 7, Err(E::Enosys));
        assert_eq!(t.listen(dom0), [error]);
    }
    for kind in [M::Control, M::Introduce, M::Release, M::Resume] {
        assert_eq!(t.ask(one, kind, b"1\0"), Err(E::Eacces));
    }
    // A transaction that is not there, and one inside another.
    assert_eq!(t.read(one, 99, "x"), Err(E::Enoent));
    assert_eq!(t.end(one, 0, true), Err(E::Enoent));
    let tx = t.begin(one).unwrap();
    assert_eq!(t.ask_in(one, tx, M::TransactionStart, b"\0"), Err(E::Ebusy));
    assert_eq!(t.read(dom0, tx, "/"), Err(E::Enoent));
    assert_eq!(t.ask_in(one, tx, M::TransactionEnd, b"X\0"), Err(E::Einval));
    t.end(one, tx, true).unwrap();
}

#[test]
fn a_long_payload_ends_the_connection() {
    let mut t = Talk::new();
    let c = t.connect(0);
    let header = Header { kind: 2, req_id: 1, tx_id: 0, len: 4097 };
    assert!(t.server.input(c, &header.to_bytes()).is_err());
    assert!(t.server.input(c, b"").is_err());
    t.server.disconnect(c);
    assert!(t.server.input(c, b"").is_err());
    assert!(t.server.output(c).is_empty());
    assert!(!t.server.wants_input(c));
}

#[test]
fn domains_and_control() {
    let (mut t, [dom0, one, _]) = three();
    let known = |t: &mut Talk, d: &str| t.ask(one, M::IsDomainIntroduced, d.as_bytes()).unwrap();
    assert_eq!(known(&mut t, "0\0"), b"T\0");
    assert_eq!(known(&mut t, "1\0"), b"T\0");
    assert_eq!(known(&mut t, "9\0"), b"F\0");
    t.ask(dom0, M::Introduce, b"9\x001\x002\0").unwrap();
    assert_eq!(known(&mut t, "9\0"), b"T\0");
    t.ask(dom0, M::Resume, b"9\0").unwrap();
    t.ask(dom0, M::Release, b"9\0").unwrap();
    assert_eq!(known(&mut t, "9\0"), b"F\0");
    assert_eq!(t.ask(dom0, M::Release, b"9\0"), Err(E::Enoent));
    assert_eq!(t.ask(dom0, M::Release, b"0\0"), Err(E::Einval));
    let path = t.ask(one, M::GetDomainPath, b"7\0").unwrap();
    assert_eq!(path, b"/local/domain/7\0");
    assert_eq!(t.ask(dom0, M::Control, b"print\0hello\0").unwrap(), b"OK\0");
    assert_eq!(t.ask(dom0, M::Control, b"check\0").unwrap(), b"OK\0");
    assert!(t.ask(dom0, M::Control, b"help\0").unwrap().ends_with(b"\0"));
}

#[test]
fn a_transaction_is_alone_until_its_end() {
    let (mut t, [dom0, one, _]) = three();
    t.write(one, 0, "x", "old").unwrap();
    let tx = t.begin(one).unwrap();
    t.write(one, tx, "x", "new").unwrap();
    t.write(one, tx, "y/z", "made").unwrap();
    assert_eq!(t.read(one, tx, "x").unwrap(), "new");
    assert_eq!(t.read(one, 0, "x").unwrap(), "old");
    assert_eq!(t.read(one, 0, "y"), Err(E::Enoent));
    // Somebody else's change elsewhere is neither seen nor in the way.
    t.write(dom0, 0, "/local/domain/1/other", "1").unwrap();
    assert_eq!(t.read(one, tx, "other"), Err(E::Enoent));
    // The read is one of the transaction's now, so drop it and try again.
    assert_eq!(t.end(one, tx, true), Err(E::Eagain));
    assert_eq!(t.read(one, 0, "x").unwrap(), "old");

    let tx = t.begin(one).unwrap();
    t.write(one, tx, "x", "new").unwrap();
    t.write(one, tx, "y/z", "made").unwrap();
    t.write(dom0, 0, "/local/domain/1/other2", "1").unwrap();
    t.end(one, tx, true).unwrap();
    assert_eq!(t.read(one, 0, "x").unwrap(), "new");
    assert_eq!(t.read(one, 0, "y/z").unwrap(), "made");
    assert_eq!(t.read(one, 0, "other2").unwrap(), "1");
    assert_eq!(t.server.usage(DomId(1)).transactions, 0);

    let tx = t.begin(one).unwrap();
    t.rm(one, tx, "y").unwrap();
    t.end(one, tx, false).unwrap();
    assert_eq!(t.read(one, 0, "y/z").unwrap(), "made");
}

#[test]
fn conflicts() {
    type Step = fn(&mut Talk, grantway_embedded::store::ConnId, u32);
    let read: Step = |t, c, tx| drop(t.read(c, tx, "/t/a").unwrap());
    let read_none: Step = |t, c, tx| assert!(t.read(c, tx, "/t/none").is_err());
    let list: Step = |t, c, tx| drop(t.list(c, tx, "/t").unwrap());
    let write: Step = |t, c, tx| t.write(c, tx, "/t/a", "w").unwrap();
    let write_b: Step = |t, c, tx| t.write(c, tx, "/t/b", "w").unwrap();
    let make: Step = |t, c, tx| t.mkdir(c, tx, "/t/none").unwrap();
    let make_two: Step = |t, c, tx| t.mkdir(c, tx, "/t/two").unwrap();
    let make_deep: Step = |t, c, tx| t.write(c, tx, "/t/a/x/y", "w").unwrap();
    let remove: Step = |t, c, tx| t.rm(c, tx, "/t/a").unwrap();
    let chmod: Step = |t, c, tx| t.chmod(c, tx, "/t/a", "r0").unwrap();
    // The transaction's step (each also writes /mine), somebody else's step meanwhile, and true if
    // that is in the way.
    let table: &[(&str, Step, Step, bool)] = &[
        ("read, write", read, write, true),
        ("read, write another", read, write_b, false),
        ("read, make below", read, make_deep, false),
        ("read, remove", read, remove, true),
        ("read, chmod", read, chmod, true),
        ("read nothing, make it", read_none, make, true),
        ("read nothing, make another", read_none, make_two, false),
        ("list, make", list, make, true),
        ("list, write a child", list, write, false),
        ("list, remove", list, remove, true),
        ("write, write", write, write, true),
        ("write, write another", write, write_b, false),
        ("write, remove", write, remove, true),
        ("make, make the same", make, make, true),
        ("make, make another", make, make_two, false),
        ("make deep, remove above", make_deep, remove, true),
        ("make deep, chmod above", make_deep, chmod, true),
        ("remove, make below", remove, make_deep, true),
        ("remove, write", remove, write, true),
        ("remove, write another", remove, write_b, false),
        ("remove, remove", remove, remove, true),
    ];
    for (name, mine, theirs, conflict) in table {
        let mut t = Talk::new();
        let [me, other] = [t.connect(0), t.connect(0)];
        t.write(me, 0, "/t/a", "0").unwrap();
        t.write(me, 0, "/t/b", "0").unwrap();
        let before = t.server.usage(DomId::ZERO).nodes;
        let tx = t.begin(me).unwrap();
        t.write(me, tx, "/mine", "1").unwrap();
        mine(&mut t, me, tx);
        theirs(&mut t, other, 0);
        let expected = if *conflict { Err(E::Eagain) } else { Ok(()) };
        assert_eq!(t.end(me, tx, true), expected, "{name}");
        assert_eq!(t.server.exists("/mine"), !conflict, "{name}");
        // The books are right after either end.
        t.rm(me, 0, "/t").unwrap();
        t.rm(me, 0, "/mine").unwrap();
        assert_eq!(t.server.usage(DomId::ZERO).nodes, before - 3, "{name}");
    }
}

#[test]
fn one_that_changed_nothing_wins() {
    let (mut t, [dom0, ..]) = three();
    t.write(dom0, 0, "/a", "1").unwrap();
    let tx = t.begin(dom0).unwrap();
    t.write(dom0, 0, "/a", "2").unwrap();
    assert_eq!(t.read(dom0, tx, "/a").unwrap(), "1");
    assert_eq!(t.end(dom0, tx, true), Ok(()));
    assert_eq!(t.read(dom0, 0, "/a").unwrap(), "2");
}

#[test]
fn watches_fire_for_the_path_below_and_a_removal_above() {
    let (mut t, [dom0, ..]) = three();
    t.watch(dom0, "/w/x", "t").unwrap();
    assert_eq!(t.fired(dom0), ["/w/x=t"]);
    assert_eq!(t.watch(dom0, "/w/x", "t"), Err(E::Eexist));
    t.watch(dom0, "/w/x", "u").unwrap();
    t.unwatch(dom0, "/w/x", "u").unwrap();
    assert_eq!(t.unwatch(dom0, "/w/x", "u"), Err(E::Enoent));
    t.events(dom0);

    t.write(dom0, 0, "/w/x", "1").unwrap();
    assert_eq!(t.fired(dom0), ["/w/x=t"]);
    t.write(dom0, 0, "/w/x/y/z", "1").unwrap();
    assert_eq!(t.fired(dom0), ["/w/x/y/z=t"]);
    t.chmod(dom0, 0, "/w/x/y", "r0").unwrap();
    assert_eq!(t.fired(dom0), ["/w/x/y=t"]);
    t.mkdir(dom0, 0, "/w/x/y").unwrap();
    t.write(dom0, 0, "/w/xx", "1").unwrap();
    t.write(dom0, 0, "/w", "1").unwrap();
    assert!(t.fired(dom0).is_empty());
    t.rm(dom0, 0, "/w/x/y").unwrap();
    assert_eq!(t.fired(dom0), ["/w/x/y=t"]);
    t.rm(dom0, 0, "/w/x/none").unwrap();
    assert!(t.fired(dom0).is_empty());
    t.rm(dom0, 0, "/w").unwrap();
    assert_eq!(t.fired(dom0), ["/w/x=t"]);
}

#[test]
fn relative_watches_tell_relative_paths() {
    let (mut t, [dom0, one, _]) = three();
    t.watch(one, "device/vif", "rel").unwrap();
    t.watch(one, "/local/domain/1/device/vif", "abs").unwrap();
    // One path may be watched once, however it is written.
    assert_eq!(t.watch(one, "device/vif", "abs"), Err(E::Eexist));
    assert_eq!(t.fired(one), ["device/vif=rel", "/local/domain/1/device/vif=abs"]);
    t.write(dom0, 0, "/local/domain/1/device/vif/0/state", "1").unwrap();
    assert_eq!(t.fired(one), ["device/vif/0/state=rel", "/local/domain/1/device/vif/0/state=abs"]);
    t.watch(dom0, "/", "all").unwrap();
    t.events(dom0);
    t.write(one, 0, "a", "1").unwrap();
    assert_eq!(t.fired(dom0), ["/local/domain/1/a=all"]);
}

#[test]
fn watches_tell_only_what_may_be_read() {
    let (mut t, [dom0, one, two]) = three();
    t.watch(two, "/", "all").unwrap();
    t.watch(two, "/local/domain/1/s", "s").unwrap();
    // The first event tells nothing but that the watch is set.
    assert_eq!(t.fired(two), ["/=all", "/local/domain/1/s=s"]);
    t.write(one, 0, "s", "secret").unwrap();
    t.rm(one, 0, "s").unwrap();
    assert!(t.fired(two).is_empty());
    t.write(one, 0, "s", "").unwrap();
    t.chmod(one, 0, "s", "n1,r2").unwrap();
    let both = ["/local/domain/1/s=s", "/local/domain/1/s=all"];
    assert_eq!(t.fired(two), both);
    t.write(one, 0, "s", "told").unwrap();
    assert_eq!(t.fired(two), both);
    // A watcher is told when it loses sight of a node, and when the node ends.
    t.chmod(one, 0, "s", "n1").unwrap();
    assert_eq!(t.fired(two), both);
    t.write(one, 0, "s", "secret").unwrap();
    assert!(t.fired(two).is_empty());
    t.chmod(one, 0, "s", "r1").unwrap();
    t.events(two);
    t.rm(dom0, 0, "/local/domain/1/s").unwrap();
    assert_eq!(t.fired(two), both);
}

#[test]
fn watches_of_a_transaction_fire_at_its_end() {
    let (mut t, [dom0, one, _]) = three();
    t.write(one, 0, "gone/deep", "").unwrap();
    t.write(one, 0, "again/deep", "").unwrap();
    t.watch(dom0, "/local/domain/1", "h").unwrap();
    t.watch(dom0, "/local/domain/1/gone/deep", "d").unwrap();
    t.watch(dom0, "/local/domain/1/again/deep", "e").unwrap();
    t.events(dom0);
    let tx = t.begin(one).unwrap();
    t.write(one, tx, "a/b", "1").unwrap();
    t.write(one, tx, "a/b", "2").unwrap();
    t.rm(one, tx, "gone").unwrap();
    t.rm(one, tx, "again").unwrap();
    t.write(one, tx, "again/other", "").unwrap();
    t.write(one, tx, "brief", "").unwrap();
    t.rm(one, tx, "brief").unwrap();
    assert!(t.fired(dom0).is_empty());
    let aborted = t.begin(one).unwrap();
    t.write(one, aborted, "c", "").unwrap();
    t.end(one, aborted, false).unwrap();
    t.end(one, tx, true).unwrap();
    let home = |s: &str| format!("/local/domain/1/{s}");
    let expected = ["a/b=h", "again=h", "again/deep=e", "again/other=h", "gone=h", "gone/deep=d"];
    assert_eq!(t.fired(dom0), expected.map(home));
    assert_eq!(t.list(one, 0, "again").unwrap(), ["other"]);
}

#[test]
fn an_answer_comes_before_its_events() {
    let mut t = Talk::new();
    let c = t.connect(0);
    let mut kinds = |kind: M, payload: &[u8]| {
        t.server.input(c, &encode(kind.number(), 1, 0, &[payload]).unwrap()).unwrap();
        let mut decoder = grantway_xenstore::wire::Decoder::new();
        let bytes = t.server.output(c).to_vec();
        t.server.written(c, bytes.len()).unwrap();
        decoder.push(&bytes);
        std::iter::from_fn(|| decoder.next_message().unwrap())
            .map(|m| m.header.kind)
            .collect::<Vec<_>>()
    };
    let event = M::WatchEvent.number();
    assert_eq!(kinds(M::Watch, b"/a\0t\0"), [M::Watch.number(), event]);
    assert_eq!(kinds(M::Write, b"/a\0"), [M::Write.number(), event]);
}

#[test]
fn special_watches() {
    let (mut t, [dom0, one, _]) = three();
    for c in [dom0, one] {
        t.watch(c, "@introduceDomain", "i").unwrap();
        t.watch(c, "@releaseDomain", "r").unwrap();
        assert_eq!(t.fired(c), ["@introduceDomain=i", "@releaseDomain=r"]);
    }
    t.server.introduce(DomId(5));
    t.server.introduce(DomId(5));
    assert_eq!(t.fired(dom0), ["@introduceDomain=i"]);
    t.server.release(DomId(5));
    t.server.release(DomId(5));
    assert_eq!(t.fired(dom0), ["@releaseDomain=r"]);
    assert!(t.fired(one).is_empty());
    assert_eq!(t.chmod(one, 0, "@releaseDomain", "n1"), Err(E::Eacces));
    assert_eq!(t.perms(one, 0, "@releaseDomain"), Err(E::Eacces));
    t.chmod(dom0, 0, "@releaseDomain", "n0,r1").unwrap();
    assert_eq!(t.perms(one, 0, "@releaseDomain").unwrap(), "n0,r1");
    t.ask(dom0, M::Introduce, b"5\x000\x000\0").unwrap();
    t.ask(dom0, M::Release, b"5\0").unwrap();
    assert_eq!(t.fired(one), ["@releaseDomain=r"]);
}

#[test]
fn a_released_domain_leaves_nothing() {
    let (mut t, [dom0, one, two]) = three();
    t.write(one, 0, "device/vif/0/state", "4").unwrap();
    t.chmod(one, 0, "device/vif/0/state", "n1,r2").unwrap();
    t.write(dom0, 0, "/backend/vif/1", "").unwrap();
    t.chmod(dom0, 0, "/backend/vif/1", "n0,r1,r2").unwrap();
    t.write(two, 0, "x", "").unwrap();
    t.chmod(two, 0, "x", "n2,b1").unwrap();
    t.watch(two, "/local/domain/1/device/vif/0/state", "peer").unwrap();
    t.events(two);
    t.server.disconnect(one);
    t.server.release(DomId(1));
    assert_eq!(t.server.usage(DomId(1)), Usage::default());
    assert!(!t.server.exists("/local/domain/1"));
    assert_eq!(t.perms(dom0, 0, "/backend/vif/1").unwrap(), "n0,r2");
    assert_eq!(t.perms(two, 0, "x").unwrap(), "n2");
    // The peer's death is learnt.
    assert_eq!(t.fired(two), ["/local/domain/1/device/vif/0/state=peer"]);
}

#[test]
fn quotas() {
    let mut t = Talk::with(Quotas {
        nodes: 5,
        node_size: 10,
        watches: 2,
        transactions: 2,
        transaction_nodes: 4,
        permissions: 2,
        depth: 6,
    });
    let [dom0, one, again] = [0, 1, 1].map(|d| t.connect(d));
    t.mkdir(dom0, 0, "/local/domain/1").unwrap();
    t.chmod(dom0, 0, "/local/domain/1", "n1").unwrap();
    // Nodes; the folder is one of them.
    t.write(one, 0, "a/b", "1").unwrap();
    assert_eq!(t.write(one, 0, "c/d/e", "1"), Err(E::Enospc));
    t.write(one, 0, "c/d", "1").unwrap();
    assert_eq!(t.mkdir(one, 0, "x"), Err(E::Enospc));
    assert_eq!(t.server.usage(DomId(1)).nodes, 5);
    t.write(dom0, 0, "/local/domain/1/more/more", "").unwrap();
    t.rm(dom0, 0, "/local/domain/1/more").unwrap();
    t.rm(one, 0, "c").unwrap();
    assert_eq!(t.server.usage(DomId(1)).nodes, 3);
    // Two transactions that are each within, but not together.
    let tx = [one, again].map(|c| t.begin(c).unwrap());
    t.write(one, tx[0], "p/p", "").unwrap();
    t.write(again, tx[1], "q/q", "").unwrap();
    assert_eq!(t.write(one, tx[0], "r", ""), Err(E::Enospc));
    assert_eq!(t.begin(one), Err(E::Enospc));
    t.end(one, tx[0], true).unwrap();
    assert_eq!(t.end(again, tx[1], true), Err(E::Enospc));
    t.rm(one, 0, "p").unwrap();
    // Sizes.
    assert_eq!(t.write(one, 0, "a", "0123456789X"), Err(E::Enospc));
    t.write(one, 0, "a", "0123456789").unwrap();
    t.write(dom0, 0, "/big", &"x".repeat(4000)).unwrap();
    assert_eq!(t.chmod(one, 0, "a", "n1,r2,r3"), Err(E::Enospc));
    assert_eq!(t.read(one, 0, "1/2/3/4"), Err(E::Einval));
    assert_eq!(t.read(dom0, 0, "/1/2/3/4/5/6/7"), Err(E::Einval));
    // Watches, over all connections.
    t.watch(one, "a", "").unwrap();
    t.watch(again, "a", "").unwrap();
    assert_eq!(t.watch(one, "b", ""), Err(E::E2big));
    assert_eq!(t.watch(one, "a", ""), Err(E::Eexist));
    t.server.disconnect(again);
    t.watch(one, "b", "").unwrap();
    // Nodes that one transaction looks at.
    let tx = t.begin(one).unwrap();
    t.read(one, tx, "a").unwrap();
    t.read(one, tx, "a/b").unwrap();
    for name in ["1", "2"] {
        let missing = t.read(one, tx, name);
        assert_eq!(missing, Err(if name == "1" { E::Enoent } else { E::Enospc }));
    }
    t.ask(one, M::ResetWatches, b"\0").unwrap();
    let left = Usage { nodes: 3, watches: 0, transactions: 0 };
    assert_eq!(t.server.usage(DomId(1)), left);
    assert_eq!(t.read(one, tx, "a"), Err(E::Enoent));
}

#[test]
fn lists_in_parts() {
    let (mut t, [dom0, ..]) = three();
    let names: Vec<String> = (0..400).map(|n| format!("name-{n:04}-with-some-length")).collect();
    for name in &names {
        t.server.write(&format!("/l/{name}"), b"").unwrap();
    }
    assert_eq!(t.list(dom0, 0, "/l"), Err(E::E2big));
    let mut found: Vec<String> = Vec::new();
    let mut generation = None;
    let mut offset = 0;
    'all: loop {
        let payload = format!("/l\0{offset}\0");
        let part = t.ask(dom0, M::DirectoryPart, payload.as_bytes()).unwrap();
        let text = String::from_utf8(part).unwrap();
        let mut strings = text.strip_suffix('\0').unwrap().split('\0');
        let now = strings.next().unwrap().to_owned();
        assert_eq!(*generation.get_or_insert_with(|| now.clone()), now);
        for name in strings {
            if name.is_empty() {
                break 'all;
            }
            offset += name.len() + 1;
            found.push(name.to_owned());
        }
    }
    assert_eq!(found, names);
    let part = |t: &mut Talk| t.ask(dom0, M::DirectoryPart, b"/l\x009999999\0").unwrap();
    let before = part(&mut t);
    assert!(before.ends_with(b"\0\0"));
    t.server.write(&format!("/l/{}", names[0]), b"x").unwrap();
    assert_eq!(part(&mut t), before);
    t.server.remove(&format!("/l/{}", names[0])).unwrap();
    assert_ne!(part(&mut t), before);
}

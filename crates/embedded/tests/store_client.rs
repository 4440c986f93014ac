//! Grantway's own client against the embedded host's store, over a socket.

mod store_support;

use grantway_hypervisor::{
    DomId, Error, FrontendStore, Permission, Rights, Store, StoreErrno, StoreOps, WatchEvent,
    transaction,
};
use grantway_xenstore::Client;
use grantway_xenstore::wire::{MessageType as M, encode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Write;
use std::os::unix::net::UnixStream;
use store_support::{GUARD, Served};

fn errno<T: std::fmt::Debug>(result: Result<T, Error>) -> StoreErrno {
    match result {
        Err(Error::Store { errno, .. }) => errno,
        other => panic!("{other:?}"),
    }
}

/// Waits for the next event as a worker would, and returns it.
fn event(store: &mut dyn Store) -> WatchEvent {
    loop {
        if let Some(event) = store.next_event().unwrap() {
            return event;
        }
        let timeout = Timespec { tv_sec: GUARD.as_secs() as i64, tv_nsec: 0 };
        let mut fds = [PollFd::new(&store, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&timeout)), Ok(1), "no event came within {GUARD:?}");
    }
}

fn told(store: &mut dyn Store) -> String {
    let event = event(store);
    format!("{}={}", event.path, event.token)
}

fn served() -> (Served, Client<UnixStream>, Client<UnixStream>) {
    let served = Served::start(&[0, 1]);
    let mut dom0 = Client::connect(served.socket(0)).unwrap();
    let guest = Client::connect(served.socket(1)).unwrap();
    let mine = Permission { domain: DomId(1), rights: Rights::None };
    dom0.make_directory("/local/domain/1").unwrap();
    dom0.set_permissions("/local/domain/1", &[mine]).unwrap();
    (served, dom0, guest)
}

#[test]
fn reads_and_writes() {
    let (_served, mut dom0, mut guest) = served();
    guest.write("data/x", b"1\0\xff").unwrap();
    assert_eq!(dom0.read("/local/domain/1/data/x").unwrap(), b"1\0\xff");
    assert_eq!(guest.list("data").unwrap(), ["x"]);
    assert_eq!(guest.read_text("data/none").unwrap(), None);
    assert_eq!(errno(guest.read("/secret")), StoreErrno::Eacces);
    assert_eq!(errno(guest.read("a\0b")), StoreErrno::Einval);
    assert_eq!(errno(guest.write("x", &[0; 4096])), StoreErrno::E2big);
    assert_eq!(guest.list("data/x").unwrap(), [""; 0]);
    guest.remove("data").unwrap();
    assert_eq!(errno(guest.remove("data/x")), StoreErrno::Enoent);
    let found = guest.permissions("/local/domain/1").unwrap();
    assert_eq!(found[0].domain, DomId(1));
    assert_eq!(dom0.domain_path(DomId(3)).unwrap(), "/local/domain/3");
    assert!(dom0.is_introduced(DomId(0)).unwrap());
    assert!(!dom0.is_introduced(DomId(1)).unwrap());
}

#[test]
fn a_long_list() {
    let (served, mut dom0, _) = served();
    let names: Vec<String> = (0..2000).map(|n| format!("n{n:05}")).collect();
    for name in &names {
        let path = format!("/l/{name}");
        served.server.lock().unwrap().write(&path, b"").unwrap();
    }
    assert_eq!(dom0.list("/l").unwrap(), names);
    dom0.begin().unwrap();
    dom0.remove("/l/n00000").unwrap();
    assert_eq!(dom0.list("/l").unwrap(), names[1..]);
    dom0.end(true).unwrap();
}

#[test]
fn transactions_try_again() {
    let (served, mut dom0, mut guest) = served();
    guest.write("n", b"0").unwrap();
    let mut tries = 0;
    transaction(&mut guest, |store| {
        tries += 1;
        let n: u32 = store.read_text("n")?.unwrap().parse().unwrap();
        if tries < 3 {
            dom0.write("/local/domain/1/n", (n + 10).to_string().as_bytes())?;
        }
        store.write("n", (n + 1).to_string().as_bytes())
    })
    .unwrap();
    assert_eq!(tries, 3);
    assert_eq!(guest.read("n").unwrap(), b"21");
    guest.begin().unwrap();
    assert_eq!(errno(guest.begin()), StoreErrno::Ebusy);
    guest.end(false).unwrap();
    assert_eq!(errno(guest.end(false)), StoreErrno::Enoent);
    let usage = served.server.lock().unwrap().usage(DomId(1));
    assert_eq!(usage.transactions, 0);
}

#[test]
fn xsa_206_who_conflicts_without_end_cannot_hold_a_transaction_up() {
    let (served, mut dom0, mut guest) = served();
    let mut tries = 0;
    let ended = transaction(&mut dom0, |store| {
        tries += 1;
        let _ = store.read_text("/local/domain/1/n")?;
        guest.write("n", format!("{tries}").as_bytes())?;
        store.write("/local/domain/1/n", b"mine")
    });
    assert_eq!(errno(ended), StoreErrno::Eagain);
    assert_eq!(tries, 101);
    assert_eq!(guest.read("n").unwrap(), b"101");
    let usage = served.server.lock().unwrap().usage(DomId(0));
    assert_eq!(usage.transactions, 0);
}

#[test]
fn watches_and_a_flood() {
    let (_served, mut dom0, mut guest) = served();
    guest.watch("w", "t").unwrap();
    assert_eq!(told(&mut guest), "w=t");
    assert_eq!(guest.next_event().unwrap(), None);
    assert_eq!(errno(guest.watch("w", "t")), StoreErrno::Eexist);
    dom0.write("/local/domain/1/w/x", b"1").unwrap();
    assert_eq!(told(&mut guest), "w/x=t");
    // Events that come while an answer is awaited are kept, and merged.
    for n in 0..5000 {
        guest.write(&format!("w/{}", n % 10), b"").unwrap();
    }
    let mut found = Vec::new();
    while found.len() < 10 {
        found.push(told(&mut guest));
    }
    found.sort();
    let expected: Vec<String> = (0..10).map(|n| format!("w/{n}=t")).collect();
    assert_eq!(found, expected);
    guest.unwatch("w", "t").unwrap();
    assert_eq!(errno(guest.unwatch("w", "t")), StoreErrno::Enoent);
    // The event of the last write came after its answer.
    while guest.next_event().unwrap().is_some() {}
    guest.watch("w", "u").unwrap();
    guest.reset_watches().unwrap();
    dom0.write("/local/domain/1/w/x", b"1").unwrap();
    assert_eq!(told(&mut guest), "w=u");
    assert_eq!(guest.next_event().unwrap(), None);
}

#[test]
fn two_writers_and_a_watcher() {
    let (served, _dom0, mut guest) = served();
    guest.watch("c", "t").unwrap();
    let writers: Vec<_> = (0..2)
        .map(|_| {
            let socket = served.socket(1);
            std::thread::spawn(move || {
                let mut store = Client::connect(socket).unwrap();
                for _ in 0..100 {
                    loop {
                        let done = transaction(&mut store, |s| {
                            let n: u32 = s.read_text("c")?.map_or(0, |t| t.parse().unwrap());
                            s.write("c", (n + 1).to_string().as_bytes())
                        });
                        match done {
                            Ok(()) => break,
                            other => assert_eq!(errno(other), StoreErrno::Eagain),
                        }
                    }
                }
            })
        })
        .collect();
    while guest.read_text("c").unwrap().as_deref() != Some("200") {
        event(&mut guest);
    }
    writers.into_iter().for_each(|w| w.join().unwrap());
}

#[test]
fn nobody_listens() {
    let folder = tempfile::tempdir().unwrap();
    let error = Client::connect(folder.path().join("none")).unwrap_err();
    assert!(error.to_string().contains("start `grantway host`"), "{error}");
}

#[test]
fn a_store_that_goes_or_lies() {
    let gone = |result: Result<_, Error>| matches!(result, Err(Error::Gone { .. }));
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut client = Client::over(ours);
    assert_eq!(client.next_event().unwrap(), None);
    drop(theirs);
    assert!(gone(client.next_event().map(drop)));
    assert!(gone(client.read("x").map(drop)));

    let lies: [Vec<u8>; 5] = [
        encode(M::Read.number(), 77, 0, &[b"x"]).unwrap(),
        encode(M::Write.number(), 1, 0, &[b"x"]).unwrap(),
        encode(M::WatchEvent.number(), 0, 0, &[b"no nul"]).unwrap(),
        encode(M::WatchEvent.number(), 0, 0, &[b"only-a-path\0"]).unwrap(),
        [[2, 0, 0, 0].as_slice(), &[1; 12]].concat(),
    ];
    for lie in lies {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut client = Client::over(ours);
        theirs.write_all(&lie).unwrap();
        let found = client.read("x");
        assert!(matches!(found, Err(Error::Protocol { .. })), "{found:?}");
        assert!(gone(client.read("x").map(drop)));
    }
}

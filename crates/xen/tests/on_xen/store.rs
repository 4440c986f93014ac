//! Tests of the store, by the socket and by the kernel's device.

use crate::check::{Checks, GUARD, Outcome, get, is, same};
use grantway_hypervisor::{
    DomId, Error, FrontendPlatform, Permission, Platform, Rights, Store, StoreErrno, WatchEvent,
    transaction,
};
use grantway_xen::Xen;
use grantway_xenstore::Client;
use std::fs::File;
use std::time::{Duration, Instant};

pub fn all(checks: &mut Checks, xen: &Xen) {
    type Connect = fn(&Xen) -> Result<Box<dyn Store>, String>;
    // In domain 0 the platform uses the socket. The device is tested as well, without the
    // platform's handling of its refusals.
    let ways: [(&str, Connect); 2] =
        [("the platform's", |xen| get(xen.store())), ("bare /dev/xen/xenbus", |_| device())];
    for (name, connect) in ways {
        let mut check = |what: &str, body: fn(&Xen, Connect) -> Outcome| {
            checks.check(&format!("store ({name}): {what}"), || body(xen, connect));
        };
        check("says which domain we are", |xen, connect| {
            let domid = get(connect(xen)?.read_text("domid"))?;
            same("domid", domid, Some(xen.domain().to_string()))
        });
        check("read, write, list, remove, permissions", |xen, connect| {
            nodes(xen, connect(xen)?.as_mut())
        });
        check("a watch fires", |xen, connect| watches(connect(xen)?.as_mut()));
        check("a transaction is tried again", |xen, connect| {
            transactions(connect(xen)?.as_mut(), connect(xen)?.as_mut())
        });
        check("a flood of events from elsewhere", |xen, connect| {
            many(connect(xen)?.as_mut(), connect(xen)?.as_mut())
        });
        if name.starts_with("bare") {
            continue;
        }
        check("what it refuses ends no connection", |xen, connect| {
            refusals(connect(xen)?.as_mut())
        });
    }
}

/// A refusal of the store is an error of its request, and of no other.
fn refusals(store: &mut dyn Store) -> Outcome {
    same("watch", errno(store.watch("/a b", "t")), Some(StoreErrno::Einval))?;
    let long = errno(store.write(&format!("{FOLDER}/long"), &[b'x'; 4_070]));
    println!("        a value of 4070 bytes gives: {long:?}");
    let longer = errno(store.write(&format!("{FOLDER}/long"), &[b'x'; 5_000]));
    same("longer than the wire has", longer, Some(StoreErrno::E2big))?;
    let mut refused = None;
    for n in 0..1_000 {
        if let Err(error) = store.watch(&format!("{FOLDER}/{n}"), "t") {
            println!("        {n} watches, then: {error}");
            refused = Some(error);
            break;
        }
    }
    is("gone", !matches!(refused, Some(Error::Gone { .. } | Error::Os { .. })))?;
    same("domid", get(store.read_text("domid"))?.is_some(), true)
}

fn device() -> Result<Box<dyn Store>, String> {
    let file = get(File::options().read(true).write(true).open("/dev/xen/xenbus"))?;
    Ok(Box::new(Client::over(file)))
}

/// Folder to which a guest may write as well.
const FOLDER: &str = "data/grantway-test";

/// Length of a value that xenstored accepts from a guest: a node may have 2,048 bytes with its
/// names and permissions.
const LONG: usize = 1900;

fn errno<T>(result: Result<T, Error>) -> Option<StoreErrno> {
    match result {
        Err(Error::Store { errno, .. }) => Some(errno),
        _ => None,
    }
}

fn nodes(xen: &Xen, store: &mut dyn Store) -> Outcome {
    let path = |name: &str| format!("{FOLDER}/{name}");
    let _ = store.remove(FOLDER);
    same("before", get(store.read_text(&path("a")))?, None)?;
    get(store.write(&path("a"), b"one"))?;
    get(store.write(&path("b/c"), b""))?;
    get(store.write(&path("d"), &[b'x'; LONG]))?;
    same("a", get(store.read(&path("a")))?, b"one".to_vec())?;
    same("d", get(store.read(&path("d")))?.len(), LONG)?;
    let mut names = get(store.list(FOLDER))?;
    names.sort();
    same("names", names, ["a", "b", "d"].map(String::from).to_vec())?;
    same("no such", errno(store.list(&path("z"))), Some(StoreErrno::Enoent))?;
    same("malformed", errno(store.read("/a b")), Some(StoreErrno::Einval))?;
    let rights = [
        Permission { domain: xen.domain(), rights: Rights::None },
        Permission { domain: DomId(5), rights: Rights::Read },
    ];
    get(store.set_permissions(&path("a"), &rights))?;
    get(store.remove(&path("b")))?;
    same("removed", get(store.read_text(&path("b/c")))?, None)?;
    get(store.remove(FOLDER))
}

fn next(store: &mut dyn Store) -> Result<WatchEvent, String> {
    let end = Instant::now() + GUARD;
    while Instant::now() < end {
        if let Some(event) = get(store.next_event())? {
            return Ok(event);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Err(format!("no event within {GUARD:?}"))
}

fn watches(store: &mut dyn Store) -> Outcome {
    let _ = store.remove(FOLDER);
    get(store.watch(FOLDER, "token"))?;
    let event = |path: &str| WatchEvent { path: path.to_owned(), token: "token".to_owned() };
    same("at once", next(store)?, event(FOLDER))?;
    let below = format!("{FOLDER}/state");
    get(store.write(&below, b"4"))?;
    same("below", next(store)?, event(&below))?;
    let second = store.watch(FOLDER, "token");
    println!("        the same watch again gives: {:?}", second.as_ref().err().map(text));
    get(store.unwatch(FOLDER, "token"))?;
    let third = store.unwatch(FOLDER, "never");
    println!("        no such watch gives: {:?}", third.as_ref().err().map(text));
    let _ = store.unwatch(FOLDER, "token");
    while get(store.next_event())?.is_some() {}
    get(store.remove(FOLDER))?;
    std::thread::sleep(Duration::from_millis(50));
    same("afterwards", get(store.next_event())?, None)
}

fn text(error: &Error) -> String {
    error.to_string()
}

fn transactions(one: &mut dyn Store, two: &mut dyn Store) -> Outcome {
    let path = format!("{FOLDER}/n");
    get(one.write(&path, b"1"))?;
    let mut tries = 0;
    get(transaction(one, |store| {
        let now = store.read_text(&path)?.unwrap_or_default();
        if tries == 0 {
            two.write(&path, b"5")?;
        }
        tries += 1;
        store.write(&path, format!("{now}0").as_bytes())
    }))?;
    same("tries", tries, 2)?;
    same("written", get(one.read_text(&path))?, Some("50".to_owned()))?;
    get(one.begin())?;
    get(one.write(&path, b"gone"))?;
    same("within", get(one.read_text(&path))?, Some("gone".to_owned()))?;
    same("without", get(two.read_text(&path))?, Some("50".to_owned()))?;
    get(one.end(false))?;
    same("after", get(one.read_text(&path))?, Some("50".to_owned()))?;
    get(one.remove(FOLDER))
}

fn many(one: &mut dyn Store, two: &mut dyn Store) -> Outcome {
    get(one.watch(FOLDER, "t"))?;
    for n in 0..300 {
        get(two.write(&format!("{FOLDER}/{}", n % 7), n.to_string().as_bytes()))?;
    }
    get(two.write(&format!("{FOLDER}/last"), b"x"))?;
    let last = format!("{FOLDER}/last");
    while next(one)?.path != last {}
    same("still answers", get(one.read_text(&last))?, Some("x".to_owned()))?;
    is("gone", one.next_event().is_ok())?;
    get(two.remove(FOLDER))
}

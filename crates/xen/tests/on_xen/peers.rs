//! Tests across two domains: `serve` grants and waits, `peer` maps and copies.
//!
//! The serving end writes into its own `data/grantway-peer`: three references (two for writing, one
//! for reading), a port, and `state`. Page 0 is a question, page 1 its answer in reverse, and page
//! 2 is for reading.

use crate::check::{Checks, GUARD, Outcome, get, is, same};
use crate::grants::{page, read};
use grantway_hypervisor::{
    Access, BackendPlatform, CopyOp, CopySide, DomId, Error, EventChannels, FrontendPlatform,
    GrantRef, GrantStatus, Granted, Mapper, Permission, Platform, Port, Rights, Store,
};
use grantway_xen::Xen;
use std::time::{Duration, Instant};

const FOLDER: &str = "data/grantway-peer";
const LEN: usize = 64;

/// Runs the granting end. It answers until it is told to end, then gives up its pages while the
/// peer still has them.
pub fn serve(checks: &mut Checks, xen: &Xen, peer: DomId) {
    checks.check("served a peer", || {
        let mut store = get(xen.store())?;
        let mut events = get(xen.events())?;
        let writable = get(xen.grant(peer, 2, Access::ReadWrite))?;
        let readable = get(xen.grant(peer, 1, Access::ReadOnly))?;
        get(page(&readable, 0)?.0.write(0, b"for reading"))?;
        let port = get(events.alloc_unbound(peer))?;
        let numbers = [writable.grefs[0].0, writable.grefs[1].0, readable.grefs[0].0, port.0];
        for (name, number) in ["0", "1", "2", "port"].iter().zip(numbers) {
            tell(xen, store.as_mut(), peer, name, &number.to_string())?;
        }
        tell(xen, store.as_mut(), peer, "state", "ready")?;
        println!("        granted {:?} {:?}, port {port}", writable.grefs, readable.grefs);
        answer(events.as_mut(), port, &writable)?;
        // The peer has all three pages mapped.
        xen.release(writable);
        xen.release(readable);
        let others = get(xen.grant(peer, 300, Access::ReadWrite))?;
        for index in 0..300 {
            let page = page(&others, index)?.0;
            is("a page was used again", read(&page)?.iter().all(|&byte| byte == 0))?;
            get(page.write(0, &[0xcc; 4096]))?;
        }
        // The counter is read before `released` is written. Otherwise the peer's answer could be
        // among the signals already seen.
        let seen = events.count(port);
        tell(xen, store.as_mut(), peer, "state", "released")?;
        is("nobody let go", get(events.wait(port, seen, Some(GUARD)))? > seen)?;
        tell(xen, store.as_mut(), peer, "state", "ended")
    });
}

/// Writes a node that the peer may read.
fn tell(xen: &Xen, store: &mut dyn Store, peer: DomId, name: &str, value: &str) -> Outcome {
    let path = format!("{FOLDER}/{name}");
    let rights = [
        Permission { domain: xen.domain(), rights: Rights::None },
        Permission { domain: peer, rights: Rights::Read },
    ];
    get(store.write(&path, value.as_bytes()))?;
    get(store.set_permissions(&path, &rights))
}

fn answer(events: &mut dyn EventChannels, port: Port, pages: &Granted) -> Outcome {
    let (question, reply) = (page(pages, 0)?.0, page(pages, 1)?.0);
    let mut seen = 0;
    loop {
        let now = get(events.wait(port, seen, Some(GUARD)))?;
        is("nobody asked", now > seen)?;
        seen = now;
        let mut bytes = [0; LEN];
        get(question.read(0, &mut bytes))?;
        if bytes.starts_with(b"end") {
            return Ok(());
        }
        bytes.reverse();
        get(reply.write(0, &bytes))?;
        get(events.notify(port))?;
    }
}

/// Runs the end that maps and copies.
pub fn peer(checks: &mut Checks, xen: &Xen, guest: DomId) {
    let mut found = None;
    checks.check("peer: found what the other end granted", || {
        let mut store = get(xen.store())?;
        until(store.as_mut(), guest, "ready")?;
        let mut number = |name: &str| {
            let path = format!("/local/domain/{guest}/{FOLDER}/{name}");
            get(store.read_text(&path))?
                .and_then(|text| text.parse::<u32>().ok())
                .ok_or_else(|| format!("no {path}"))
        };
        let grefs = [number("0")?, number("1")?, number("2")?].map(GrantRef);
        found = Some((grefs, Port(number("port")?)));
        Ok(())
    });
    let Some((grefs, port)) = found else {
        return;
    };
    checks.check("peer: a bad list is refused, and its first bad reference named", || {
        let error = xen.map(guest, &grefs, Access::ReadWrite).err();
        println!("        {}", error.as_ref().map(ToString::to_string).unwrap_or_default());
        let status = GrantStatus::PERMISSION_DENIED;
        same("error", error, Some(Error::Grant { domain: guest, gref: grefs[2], status }))
    });
    checks.check("peer: a backend that starts three times on one port", || {
        for _ in 0..2 {
            let mut events = get(xen.events())?;
            let ours = get(events.bind_interdomain(guest, port))?;
            ask(xen, events.as_mut(), ours, guest, grefs)?;
        }
        Ok(())
    });
    checks.check("peer: pages stay what they are while we have them", || {
        let mut events = get(xen.events())?;
        let ours = get(events.bind_interdomain(guest, port))?;
        ask(xen, events.as_mut(), ours, guest, grefs)?;
        let run = get(xen.map(guest, &grefs[..2], Access::ReadWrite))?;
        let readable = get(xen.map(guest, &grefs[2..], Access::ReadOnly))?;
        get(run.page(0).ok_or("no page")?.write(0, b"end"))?;
        get(run.page(1).ok_or("no page")?.write(0, b"kept"))?;
        get(events.notify(ours))?;
        let mut store = get(xen.store())?;
        until(store.as_mut(), guest, "released")?;
        same("kept", &read(&run.page(1).ok_or("no page")?)?[..4], b"kept")?;
        same("kept", &read(&readable.page(0).ok_or("no page")?)?[..11], b"for reading")?;
        drop((run, readable));
        get(events.notify(ours))?;
        until(store.as_mut(), guest, "ended")?;
        // The peer's ports ended with its process, so this signal is swallowed.
        std::thread::sleep(Duration::from_millis(500));
        get(events.notify(ours))
    });
    checks.check("peer: what was given back is out of reach", || {
        // The guest's kernel retries from time to time to end grants that it could not end.
        let start = Instant::now();
        while xen.map(guest, &grefs, Access::ReadOnly).is_ok() {
            is("still mapped within the guard", start.elapsed() < GUARD)?;
            std::thread::sleep(Duration::from_millis(100));
        }
        println!("        out of reach after {:?}", start.elapsed());
        let source = CopySide::Foreign { domain: guest, gref: grefs[0], offset: 0 };
        let mut ops = [CopyOp::new(source, CopySide::Local { offset: 0 }, 1)];
        get(xen.copy(&mut [0], &mut ops))?;
        is("copied", !ops[0].status.is_okay())
    });
}

/// Asks questions by mapping and by copying, and checks the answers.
fn ask(
    xen: &Xen,
    events: &mut dyn EventChannels,
    port: Port,
    guest: DomId,
    grefs: [GrantRef; 3],
) -> Outcome {
    let run = get(xen.map(guest, &grefs[..2], Access::ReadWrite))?;
    let (question, reply) = (run.page(0).ok_or("no page")?, run.page(1).ok_or("no page")?);
    let far = |gref, offset| CopySide::Foreign { domain: guest, gref, offset };
    let near = |offset| CopySide::Local { offset };
    for round in 0..20_u8 {
        // Questions are written by mapping and by copying in turns.
        let mut asked = [round; LEN];
        asked[0] = round ^ 0xff;
        let mut arena = [0; 2 * LEN];
        arena[..LEN].copy_from_slice(&asked);
        if round % 2 == 0 {
            get(question.write(0, &asked))?;
        } else {
            let mut ops = [CopyOp::new(near(0), far(grefs[0], 0), LEN as u16)];
            get(xen.copy(&mut arena, &mut ops))?;
            same("out", ops[0].status, GrantStatus::OKAY)?;
        }
        get(events.notify(port))?;
        asked.reverse();
        let end = Instant::now() + GUARD;
        // A signal may be that of the binding, so the page is read until it has the answer.
        loop {
            let seen = events.count(port);
            let mut answer = [0; LEN];
            get(reply.read(0, &mut answer))?;
            if answer == asked {
                break;
            }
            is("no answer", Instant::now() < end)?;
            get(events.wait(port, seen, Some(Duration::from_secs(5))))?;
        }
        let mut ops = [
            CopyOp::new(far(grefs[1], 0), near(LEN as u32), LEN as u16),
            // Both sides of the second copy are the guest's. The third copy is not allowed.
            CopyOp::new(far(grefs[1], 0), far(grefs[0], 1024), LEN as u16),
            CopyOp::new(near(0), far(grefs[2], 0), 1),
        ];
        get(xen.copy(&mut arena, &mut ops))?;
        same("in", (ops[0].status, &arena[LEN..]), (GrantStatus::OKAY, &asked[..]))?;
        same("within", ops[1].status, GrantStatus::OKAY)?;
        is("wrote what is for reading", !ops[2].status.is_okay())?;
        let mut within = [0; LEN];
        get(question.read(1024, &mut within))?;
        same("within", within, asked)?;
    }
    Ok(())
}

fn until(store: &mut dyn Store, guest: DomId, wanted: &str) -> Outcome {
    let path = format!("/local/domain/{guest}/{FOLDER}/state");
    let end = Instant::now() + GUARD;
    while Instant::now() < end {
        // The node cannot be read until its permissions are set.
        if store.read_text(&path).is_ok_and(|state| state.as_deref() == Some(wanted)) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("{path} did not become {wanted:?} in {GUARD:?}"))
}

//! The guest's side of a vif in a program without std: it starts by itself,
//! allocates from an arena, and holds a whole conversation with a backend that
//! is written out by hand in [`netback`], over the platform of [`mock`].
//!
//! It prints `no_std: N checks passed` and ends with 0, or says which check
//! failed and ends with 1.
#![no_std]
#![no_main]

extern crate alloc;

mod mock;
mod netback;
mod sys;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::{Display, Write};
use grantway_frontend::{PeerError, SendError, Vif, VifError, VifStatus, Wishes};
use grantway_netif::{Offload, XenbusState};
use mock::Mock;
use netback::{BACK, FRONT, MAC, Netback, attach, guest_state, offer, show};

/// Runs the checks and ends the program, which begins here: `sys` calls this function.
extern "C" fn start() -> ! {
    let mut checks = Checks::default();
    match conversation(&mut checks) {
        Ok(()) => {
            let _ = writeln!(sys::Console, "no_std: {} checks passed", checks.passed);
            sys::exit(0)
        }
        Err(why) => {
            let _ = writeln!(sys::Console, "no_std: after {} checks: {why}", checks.passed);
            sys::exit(1)
        }
    }
}

const NO_RINGS: &str = "the guest's keys do not name rings and ports";

#[derive(Default)]
struct Checks {
    passed: u32,
}

impl Checks {
    fn that(&mut self, what: &str, holds: bool) -> Result<(), String> {
        if !holds {
            return Err(format!("it does not hold that {what}"));
        }
        self.passed += 1;
        Ok(())
    }
}

fn words(error: impl Display) -> String {
    format!("{error}")
}

/// Runs from nothing to Connected, with packets both ways, a lie, and the end.
fn conversation(checks: &mut Checks) -> Result<(), String> {
    let mock = Mock::default();
    attach(&mock);
    let mut vif = Vif::open(Arc::new(mock.clone()), 0, Wishes::default()).map_err(words)?;
    checks.that("a vif waits for its backend", vif.status() == VifStatus::Waiting)?;
    checks.that("the address is the toolstack's", vif.mac().map_err(words)? == MAC)?;
    let mut netback = connect(checks, &mock, &mut vif)?;
    transmit(checks, &mut vif, &mut netback)?;
    receive(checks, &mut vif, &mut netback)?;
    judge(checks, &mock, &mut vif, &mut netback)?;
    let mut netback = again(checks, &mock, &mut vif)?;
    transmit(checks, &mut vif, &mut netback)?;
    let restored = resume(checks, &mock, &mut vif)?;
    leave(checks, &restored, vif)?;
    two_queues(checks)
}

fn connect(checks: &mut Checks, mock: &Mock, vif: &mut Vif) -> Result<Netback, String> {
    offer(mock);
    vif.store_changed().map_err(words)?;
    checks.that("the guest published", guest_state(mock) == Some(XenbusState::Connected))?;
    checks.that("and waits for the backend", vif.status() == VifStatus::Waiting)?;
    checks.that(
        "sending waits, too",
        vif.send(&[0; 60], Offload::default()) == Err(SendError::Full),
    )?;
    let netback = Netback::connect(mock, "").ok_or(NO_RINGS)?;
    show(mock, XenbusState::Connected);
    let status = vif.store_changed().map_err(words)?;
    checks.that("the vif is connected", status == VifStatus::Connected)?;
    Ok(netback)
}

fn transmit(checks: &mut Checks, vif: &mut Vif, netback: &mut Netback) -> Result<(), String> {
    for length in [14, 60, 1514, 4096, 4097, 65_535] {
        let frame = frame(length);
        let before = netback.signals();
        checks.that("nothing is on the ring", !netback.arm()?)?;
        vif.send(&frame, Offload::default()).map_err(words)?;
        vif.flush().map_err(words)?;
        checks.that("the backend is signalled, as it asked", netback.signals() == before + 1)?;
        checks.that("the frame arrives as it was sent", netback.take()? == frame)?;
        let freed = vif.reap().map_err(words)?;
        checks.that("its pages come back", freed == length.div_ceil(4096))?;
    }
    let before = netback.signals();
    vif.send(&frame(60), Offload::default()).map_err(words)?;
    vif.flush().map_err(words)?;
    checks.that("a backend that looks by itself is left alone", netback.signals() == before)?;
    netback.take()?;
    vif.reap().map_err(words)?;
    let length = |length| SendError::Length { found: length, longest: 65_535 };
    for short_or_long in [13, 65_536] {
        let sent = vif.send(&frame(short_or_long), Offload::default());
        checks.that("a frame has bounds", sent == Err(length(short_or_long)))?;
    }
    Ok(())
}

fn receive(checks: &mut Checks, vif: &mut Vif, netback: &mut Netback) -> Result<(), String> {
    let mut buffer = vec![0; 65_535];
    let nothing = vif.recv(&mut buffer).map_err(words)?;
    checks.that("nothing comes of itself", nothing.is_none())?;
    let armed = vif.arm().map_err(words)?;
    checks.that("the guest may sleep", !armed)?;
    for (length, offset) in [(60, 0), (1514, 2), (4096, 0)] {
        let frame = frame(length);
        netback.give(&frame, offset)?;
        let received = vif.recv(&mut buffer).map_err(words)?.ok_or("no frame came")?;
        checks.that("the frame is as it was given", buffer[..received.len] == frame[..])?;
    }
    checks.that("the guest was woken", vif.take_events().map_err(words)?)?;
    // Far more than the ring is long, so that every page is posted again.
    for number in 0..1000 {
        let frame = frame(60 + number);
        netback.give(&frame, 0)?;
        let received = vif.recv(&mut buffer).map_err(words)?.ok_or("no frame came")?;
        if buffer[..received.len] != frame[..] {
            return Err(format!("frame {number} came changed"));
        }
        vif.repost().map_err(words)?;
    }
    checks.that("every one is counted", vif.stats().rx_packets == 1003)
}

fn judge(
    checks: &mut Checks,
    mock: &Mock,
    vif: &mut Vif,
    netback: &mut Netback,
) -> Result<(), String> {
    vif.send(&frame(60), Offload::default()).map_err(words)?;
    vif.flush().map_err(words)?;
    netback.lie()?;
    let reaped = vif.reap().map_err(words)?;
    checks.that("a lie is not counted", reaped == 0)?;
    checks.that("the vif is held", vif.status() == VifStatus::Held)?;
    let failure = vif.take_failure();
    let lie = matches!(
        failure,
        Some(VifError::Peer { queue: 0, source: PeerError::UnknownId { found: 0xbeef, .. } })
    );
    checks.that("the failure names the lie", lie)?;
    checks.that("the guest closes", guest_state(mock) == Some(XenbusState::Closing))
}

fn again(checks: &mut Checks, mock: &Mock, vif: &mut Vif) -> Result<Netback, String> {
    show(mock, XenbusState::Closing);
    vif.store_changed().map_err(words)?;
    show(mock, XenbusState::Closed);
    vif.store_changed().map_err(words)?;
    checks.that("the guest is closed", guest_state(mock) == Some(XenbusState::Closed))?;
    checks.that("and holds no grant", mock.world().granted() == 0)?;
    vif.restart().map_err(words)?;
    checks.that("it asks anew", guest_state(mock) == Some(XenbusState::Initialising))?;
    connect(checks, mock, vif)
}

/// The domain is saved, and restored elsewhere: another grant table, other
/// ports, another store.
fn resume(checks: &mut Checks, mock: &Mock, vif: &mut Vif) -> Result<Mock, String> {
    let before = lent(mock);
    let restored = Mock::default();
    attach(&restored);
    vif.resume(Arc::new(restored.clone())).map_err(words)?;
    checks.that("a restored vif waits", vif.status() == VifStatus::Waiting)?;
    let mut netback = connect(checks, &restored, vif)?;
    transmit(checks, vif, &mut netback)?;
    checks.that("what is void is not touched", before.0 > 0 && before == lent(mock))?;
    Ok(restored)
}

/// Grants and ports of the guest.
fn lent(mock: &Mock) -> (usize, usize) {
    let world = mock.world();
    (world.granted(), world.ports())
}

/// Checks that each flow keeps to its queue, and that frames from both queues are received.
fn two_queues(checks: &mut Checks) -> Result<(), String> {
    let mock = Mock::default();
    attach(&mock);
    let wishes = Wishes { queues: 4, ..Wishes::default() };
    let mut vif = Vif::open(Arc::new(mock.clone()), 0, wishes).map_err(words)?;
    offer(&mock);
    vif.store_changed().map_err(words)?;
    let told = mock.world().read(&format!("{FRONT}/multi-queue-num-queues"));
    checks.that("it takes what is offered", told.as_deref() == Some("2"))?;
    checks.that("and writes no flat keys", Netback::connect(&mock, "").is_none())?;
    let mut queues = Vec::new();
    for folder in ["/queue-0", "/queue-1"] {
        queues.push(Netback::connect(&mock, folder).ok_or(NO_RINGS)?);
    }
    show(&mock, XenbusState::Connected);
    vif.store_changed().map_err(words)?;
    let mut buffer = vec![0; 2000];
    let mut used = [0; 2];
    for station in 0..16 {
        let mut frame = frame(100);
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, station, 8, 6]);
        let mut seen = Vec::new();
        for _ in 0..2 {
            vif.send(&frame, Offload::default()).map_err(words)?;
            vif.flush().map_err(words)?;
            let at = queues.iter_mut().position(|queue| queue.take().as_ref() == Ok(&frame));
            seen.push(at.ok_or("the frame is on neither queue")?);
            vif.reap().map_err(words)?;
        }
        checks.that("a flow keeps to its queue", seen[0] == seen[1])?;
        used[seen[0]] += 1;
        for queue in &mut queues {
            queue.give(&frame, 0)?;
        }
        for _ in 0..2 {
            let received = vif.recv(&mut buffer).map_err(words)?.ok_or("no frame came")?;
            checks.that("it comes as it was given", buffer[..received.len] == frame[..])?;
        }
    }
    checks.that("both queues are used", used[0] > 0 && used[1] > 0)?;
    leave(checks, &mock, vif)
}

fn leave(checks: &mut Checks, mock: &Mock, mut vif: Vif) -> Result<(), String> {
    vif.shutdown().map_err(words)?;
    show(mock, XenbusState::Closing);
    vif.store_changed().map_err(words)?;
    show(mock, XenbusState::Closed);
    let status = vif.store_changed().map_err(words)?;
    checks.that("a vif that was shut down is gone", status == VifStatus::Gone)?;
    drop(vif);
    checks.that("no grant is left", mock.world().granted() == 0)?;
    let there = |path: &str| mock.world().read(path).is_some();
    // Directories are the toolstack's.
    checks.that(
        "the guest removed nothing",
        there(&format!("{FRONT}/mac")) && there(&format!("{BACK}/state")),
    )
}

/// A frame of `length` bytes, no two of them alike by chance.
fn frame(length: usize) -> Vec<u8> {
    let mut seed = 0x9e37_79b9_u32 ^ length as u32;
    let next = |_| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    };
    (0..length).map(next).collect()
}

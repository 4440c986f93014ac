//! Both sides at once, each asleep until the other wakes it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io;

use super::device::Kernel;
use crate::vhost::device::Rings;

/// Time that a side waits to be woken: a guard against hanging.
const GUARD: Duration = Duration::from_secs(120);
/// Frames each way.
const FRAMES: u64 = 30_000;

fn sleep(on: &[BorrowedFd<'_>]) {
    let mut fds: Vec<_> =
        on.iter().map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let guard = Timespec::try_from(GUARD).unwrap();
    assert!(poll(&mut fds, Some(&guard)).unwrap() > 0, "not woken for {GUARD:?}");
}

fn wake(event: &OwnedFd) {
    io::write(event, &1u64.to_ne_bytes()).unwrap();
}

/// Takes all frames, and gives as many.
fn kernel(mut kernel: Kernel, call: &OwnedFd) {
    let (mut taken, mut given, mut calls) = (0, 0, 0);
    while taken < FRAMES || given < FRAMES {
        for frame in kernel.take(64) {
            assert_eq!(frame, taken.to_le_bytes());
            taken += 1;
        }
        let before = given;
        while given < FRAMES && given < before + 64 && kernel.give(&given.to_le_bytes()) {
            given += 1;
        }
        let now = kernel.transmit.calls + kernel.receive.calls;
        if now > calls {
            calls = now;
            wake(call);
        }
        // Each side asked to be woken before it stopped.
        let works = kernel.transmit.is_awake() || given < FRAMES && kernel.receive.is_awake();
        if !works && (taken < FRAMES || given < FRAMES) {
            sleep(&[kernel.transmit.kick().as_fd(), kernel.receive.kick().as_fd()]);
        }
    }
}

#[test]
fn two_threads_lose_no_wake_up() {
    let mut rings = Rings::new().unwrap();
    let flags = EventfdFlags::NONBLOCK;
    let call = Arc::new(eventfd(0, flags).unwrap());
    let far = Kernel::new(&rings);
    let side = {
        let call = Arc::clone(&call);
        std::thread::spawn(move || kernel(far, &call))
    };
    let (mut sent, mut received, mut buf) = (0u64, 0u64, [0; 64]);
    while sent < FRAMES || received < FRAMES {
        let mut worked = false;
        if !rings.transmit.is_full().unwrap() {
            for _ in 0..64.min(FRAMES - sent) {
                assert!(rings.transmit.send([0; 10], &sent.to_le_bytes()).unwrap());
                sent += 1;
                worked = true;
            }
            rings.transmit.show().unwrap();
        }
        for _ in 0..64 {
            let Some(found) = rings.receive.recv(&mut buf).unwrap() else { break };
            assert_eq!(buf[..found.len], received.to_le_bytes());
            received += 1;
            worked = true;
        }
        rings.receive.show().unwrap();
        if worked {
            continue;
        }
        let _ = io::read(&call, &mut [0; 8]);
        rings.transmit.arm();
        rings.receive.arm();
        let is_full = rings.transmit.is_full().unwrap();
        let may_send = sent < FRAMES && !is_full;
        if !may_send && !rings.receive.has_frame().unwrap() && (sent < FRAMES || received < FRAMES)
        {
            sleep(&[call.as_fd()]);
        }
    }
    side.join().unwrap();
}

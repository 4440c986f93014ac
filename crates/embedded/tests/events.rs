//! Event channels: bound, signalled, never lost.

mod support;

use grantway_embedded::{HostConfig, PortTable};
use grantway_hypervisor::{BackendPlatform, DomId, Error, EventChannels, Platform, Port};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{BACK, FRONT, Fixture, GUARD, eventually};

const LONG: Option<Duration> = Some(GUARD);
/// Looks of a worker that spins before it sleeps.
const LOOKS: u32 = 100;

type Set = Box<dyn EventChannels>;

/// Binds a pair of ports, and takes the spurious first event.
fn pair(front: &mut Set, back: &mut Set) -> (Port, Port) {
    let theirs = front.alloc_unbound(BACK).unwrap();
    let ours = back.bind_interdomain(FRONT, theirs).unwrap();
    assert_eq!(back.wait(ours, 0, LONG).unwrap(), 1, "a fresh binding starts pending");
    (theirs, ours)
}

fn readable(set: &Set) -> bool {
    let mut fds = [PollFd::new(set, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
}

#[test]
fn signals_are_counted_and_merge_while_pending() {
    let fixture = Fixture::new();
    let (front, back) = (fixture.guest(FRONT), fixture.service());
    let (mut f, mut b) = (front.events().unwrap(), back.events().unwrap());
    let (theirs, ours) = pair(&mut f, &mut b);
    assert!(!readable(&b));
    for _ in 0..3 {
        f.notify(theirs).unwrap();
    }
    assert!(readable(&b));
    let mut fired = Vec::new();
    b.poll(&mut |port| fired.push(port)).unwrap();
    assert_eq!(fired, [ours]);
    assert!(!readable(&b), "one poll drains it");
    assert_eq!(b.count(ours), 2);
    f.notify(theirs).unwrap();
    assert_eq!(b.count(ours), 3);
    assert_eq!(b.wait(ours, 2, None).unwrap(), 3, "past what was seen: no waiting");
    let start = Instant::now();
    assert_eq!(b.wait(ours, 3, Some(Duration::from_millis(30))).unwrap(), 3);
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert_eq!(front.counters().notifies, 4);
    assert_eq!(b.count(Port(99)), 0);
    b.notify(ours).unwrap();
    assert_eq!(f.wait(theirs, 0, LONG).unwrap(), 1);
}

#[test]
fn ports_that_are_not_ours_are_refused() {
    let fixture = Fixture::new();
    let (front, back) = (fixture.guest(FRONT), fixture.service());
    let (mut f, mut b) = (front.events().unwrap(), back.events().unwrap());
    let mut other = back.events().unwrap();
    let (theirs, ours) = pair(&mut f, &mut b);
    for port in [Port(0), Port(4095), Port(4096), Port(u32::MAX)] {
        assert!(matches!(b.notify(port), Err(Error::Event { .. })), "{port}");
        b.close(port);
    }
    assert!(matches!(other.notify(ours), Err(Error::Event { .. })));
    assert!(matches!(b.bind_interdomain(FRONT, theirs), Err(Error::Event { .. })));
    assert!(matches!(b.bind_interdomain(DomId(50), Port(1)), Err(Error::Event { .. })));
    let not_for_us = f.alloc_unbound(DomId(3)).unwrap();
    assert!(matches!(b.bind_interdomain(FRONT, not_for_us), Err(Error::Event { .. })));
    f.notify(not_for_us).unwrap();
}

#[test]
fn a_port_that_lost_its_peer_may_be_bound_anew() {
    let fixture = Fixture::new();
    let (front, back) = (fixture.guest(FRONT), fixture.service());
    let (mut f, mut b) = (front.events().unwrap(), back.events().unwrap());
    let (theirs, ours) = pair(&mut f, &mut b);
    f.notify(theirs).unwrap();
    b.close(ours);
    f.notify(theirs).unwrap();
    let again = b.bind_interdomain(FRONT, theirs).unwrap();
    b.wait(again, 0, LONG).unwrap();
    f.notify(theirs).unwrap();
    assert_eq!(b.wait(again, 1, LONG).unwrap(), 2);
    drop((b, back));
    fixture.settles("the ports are back", |t| t.domain(0).unwrap().ports_bound == 0);
    f.notify(theirs).unwrap();
    let back = fixture.service();
    let mut b = back.events().unwrap();
    let third = b.bind_interdomain(FRONT, theirs).unwrap();
    let seen = b.wait(third, 0, LONG).unwrap();
    f.notify(theirs).unwrap();
    assert_eq!(b.wait(third, seen, LONG).unwrap(), seen + 1);
    let table = fixture.tables();
    let ports = |domid| {
        (table.domain(domid).unwrap().ports_unbound, table.domain(domid).unwrap().ports_bound)
    };
    assert_eq!((ports(0), ports(7)), ((0, 1), (0, 1)));
}

#[test]
fn two_threads_never_lose_an_event() {
    const ROUNDS: u64 = 100_000;
    let fixture = Fixture::new();
    let (front, back) = (fixture.guest(FRONT), fixture.service());
    let (mut f, mut b) = (front.events().unwrap(), back.events().unwrap());
    let (theirs, ours) = pair(&mut f, &mut b);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                assert!(b.wait(ours, round, LONG).unwrap() > round, "lost at {round}");
                b.notify(ours).unwrap();
            }
        });
        for round in 0..ROUNDS {
            f.notify(theirs).unwrap();
            // Now and then the test polls by hand, as a worker that spins first would.
            if round % 3 == 0 {
                let mut looks = 0;
                while f.count(theirs) <= round && looks < LOOKS {
                    std::hint::spin_loop();
                    looks += 1;
                }
            }
            assert!(f.wait(theirs, round, LONG).unwrap() > round, "lost at {round}");
        }
    });
    let wakeups = front.counters().wakeups;
    println!("{ROUNDS} rounds, {wakeups} wake-ups in front");
}

/// A worker has many ports, and sleeps on the descriptor, not in `wait`.
#[test]
fn a_worker_on_the_descriptor_never_loses_an_event() {
    const PORTS: usize = 70;
    const ROUNDS: usize = 20_000;
    let fixture = Fixture::new();
    let (front, back) = (fixture.guest(FRONT), fixture.service());
    let (mut f, mut b) = (front.events().unwrap(), back.events().unwrap());
    let pairs: Vec<_> = (0..PORTS).map(|_| pair(&mut f, &mut b)).collect();
    std::thread::scope(|scope| {
        let pairs = &pairs;
        scope.spawn(move || {
            let mut left = ROUNDS;
            let mut fired = Vec::new();
            while left > 0 {
                let mut fds = [PollFd::new(&b, PollFlags::IN)];
                let patience = Timespec { tv_sec: GUARD.as_secs() as i64, tv_nsec: 0 };
                assert!(poll(&mut fds, Some(&patience)).unwrap() > 0, "lost, {left} left");
                fired.clear();
                b.poll(&mut |port| fired.push(port)).unwrap();
                for port in &fired {
                    b.notify(*port).unwrap();
                }
                left -= fired.len();
            }
        });
        let mut seen = vec![0; PORTS];
        // Several signals are under way at once.
        for round in 0..ROUNDS {
            let which = round % PORTS;
            let (theirs, _) = pairs[which];
            if round >= PORTS {
                seen[which] = f.wait(theirs, seen[which], LONG).unwrap();
            }
            f.notify(theirs).unwrap();
        }
    });
}

/// The narrowest place is a signal between the look and the drain, whose ring of the descriptor the
/// drain swallows.
#[test]
fn a_signal_during_a_poll_is_seen_or_keeps_the_descriptor_readable() {
    let fixture = Fixture::new();
    let (front, back) = (fixture.guest(FRONT), fixture.service());
    let (mut f, mut b) = (front.events().unwrap(), back.events().unwrap());
    let (first, first_back) = pair(&mut f, &mut b);
    let (second, second_back) = pair(&mut f, &mut b);
    for _ in 0..3 {
        f.notify(first).unwrap();
        let mut fired = Vec::new();
        b.poll(&mut |port| {
            fired.push(port);
            if port == first_back {
                f.notify(second).unwrap();
            }
        })
        .unwrap();
        assert!(fired.contains(&second_back) || readable(&b), "{fired:?}");
        b.poll(&mut |_| {}).unwrap();
    }
}

#[test]
fn a_storm_on_one_port_does_not_keep_a_waiter_on_another() {
    let fixture = Fixture::new();
    let (front, back) = (fixture.guest(FRONT), fixture.service());
    let (mut f, mut b) = (front.events().unwrap(), back.events().unwrap());
    let (storm, stormy) = pair(&mut f, &mut b);
    let (_, quiet) = pair(&mut f, &mut b);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        // The storm ends by itself only if the waiter never comes back.
        let storms = scope.spawn(move || {
            let start = Instant::now();
            while !over.load(Ordering::Relaxed) && start.elapsed() < GUARD {
                f.notify(storm).unwrap();
            }
            over.load(Ordering::Relaxed)
        });
        eventually("the storm", || (b.count(stormy) > 100).then_some(()));
        let waited = b.wait(quiet, 1, Some(Duration::from_millis(50)));
        over.store(true, Ordering::Relaxed);
        let in_time = storms.join().unwrap();
        assert_eq!(waited.unwrap(), 1);
        assert!(in_time, "the wait did not end within {GUARD:?}");
    });
}

#[test]
fn a_domain_has_4095_ports_or_131071() {
    for (ports, limit) in [(PortTable::TwoLevel, 4096), (PortTable::Fifo, 131_072)] {
        let fixture = Fixture::with(HostConfig { ports, ..HostConfig::default() });
        let front = fixture.guest(FRONT);
        let mut f = front.events().unwrap();
        if ports == PortTable::TwoLevel {
            for port in 1..limit {
                assert_eq!(f.alloc_unbound(BACK).unwrap(), Port(port));
            }
            let full = f.alloc_unbound(BACK).unwrap_err();
            assert!(matches!(full, Error::Exhausted { limit: 4096, .. }), "{full}");
            assert_eq!(fixture.tables().domain(7).unwrap().ports_unbound, limit - 1);
            f.close(Port(100));
            assert_eq!(f.alloc_unbound(BACK).unwrap(), Port(100));
        } else {
            for port in 1..6000 {
                assert_eq!(f.alloc_unbound(BACK).unwrap(), Port(port));
            }
            let back = fixture.service();
            let mut b = back.events().unwrap();
            let ours = b.bind_interdomain(FRONT, Port(5999)).unwrap();
            b.notify(ours).unwrap();
            assert_eq!(f.wait(Port(5999), 0, LONG).unwrap(), 1);
        }
        drop(f);
        fixture.settles("no ports are left", |t| t.domain(7).unwrap().ports_unbound == 0);
    }
}

//! The Xen of tests (`sys/hypercall/fake.rs`) is the other end here.

use super::*;
use crate::sys::hypercall::fake;
use alloc::sync::Arc;
use grantway_ring::SharedRun;

const PEER: DomId = DomId(5);

const EACH: [Options; 4] = [
    Options { wake: Wake::Upcall, layout: Layout::Fifo },
    Options { wake: Wake::Upcall, layout: Layout::TwoLevel },
    Options { wake: Wake::Poll, layout: Layout::Fifo },
    Options { wake: Wake::Poll, layout: Layout::TwoLevel },
];
const UPCALL: Options = EACH[0];
const POLL: Options = EACH[2];

fn events(options: Options) -> Arc<Events> {
    let shared = SharedInfo::over(SharedRun::private(1).page(0).unwrap());
    fake::renew(shared.clone(), true);
    Arc::new(Events::new(shared, options).unwrap())
}

fn taken(events: &Events, set: Set) -> Vec<u32> {
    let mut fired = alloc::vec![99];
    events.take(set, &mut fired);
    fired.sort_unstable();
    fired
}

/// Makes so many ports.
fn ports(events: &Events, set: Set, count: usize) -> Vec<u32> {
    (0..count).map(|_| events.alloc_unbound(set, PEER).unwrap().0).collect()
}

#[test]
fn each_owner_gets_the_signals_of_its_own_ports_once() {
    for options in EACH {
        let events = events(options);
        assert_eq!(events.options(), options);
        let sets = [events.set(), events.set()];
        let ports = sets.map(|set| ports(&events, set, 3));
        for port in [ports[0][0], ports[0][2], ports[1][1], ports[0][0]] {
            fake::signal(port);
        }
        assert_eq!(taken(&events, sets[0]), [ports[0][0], ports[0][2]], "{options}");
        assert_eq!(taken(&events, sets[1]), [ports[1][1]], "{options}");
        assert!(sets.iter().all(|&set| taken(&events, set).is_empty()), "{options}");
        // A signal that comes later is not the one that was taken.
        fake::signal(ports[0][0]);
        assert_eq!(taken(&events, sets[0]), [ports[0][0]], "{options}");
    }
}

#[test]
fn a_wait_for_an_upcall_ends_by_a_signal_and_does_not_begin_while_one_waits() {
    for layout in [Layout::Fifo, Layout::TwoLevel] {
        let events = events(Options { wake: Wake::Upcall, layout });
        let set = events.set();
        let port = ports(&events, set, 1)[0];
        fake::with(|xen| xen.on_halt = Some(alloc::boxed::Box::new(move || fake::signal(port))));
        events.wait(None);
        assert_eq!(fake::with(|xen| xen.halts), 1);
        for _ in 0..2 {
            events.wait(None);
            events.wait_for(set);
            assert_eq!(fake::with(|xen| xen.halts), 1, "a signal waits for its owner");
        }
        assert_eq!(taken(&events, set), [port]);
        // For one owner, signals of others are no reason to go on.
        let other = events.set();
        events.wait_for(other);
        events.wait_for(other);
        assert_eq!((fake::with(|xen| xen.halts), taken(&events, set)), (3, [port].into()));
    }
}

#[test]
fn more_than_4096_ports_fit_into_queues_and_not_into_bits() {
    let events = events(UPCALL);
    let set = events.set();
    let all = ports(&events, set, 5000);
    for port in all.iter().rev() {
        fake::signal(*port);
    }
    // At most 4,096 words at a time, and the rest at the next look.
    let mut got = taken(&events, set);
    assert_eq!(got.len(), 4096);
    events.wait(None);
    got.extend(taken(&events, set));
    got.sort_unstable();
    assert_eq!((got, fake::with(|xen| xen.halts)), (all, 0));

    let events = super::tests::events(EACH[1]);
    let set = events.set();
    let (mut made, mut refusal) = (0, None);
    while refusal.is_none() {
        match events.alloc_unbound(set, PEER) {
            Ok(_) => made += 1,
            Err(why) => refusal = Some(why),
        }
    }
    // Port 0 is Xen's, and one is the timer's.
    assert_eq!((made, refusal), (4094, Some(NoPort::Full(4094))));
    assert_eq!(fake::with(|xen| xen.closed.clone()), [4096], "what there is no bit for");
}

#[test]
fn a_poll_is_for_128_ports_at_most() {
    let events = events(POLL);
    let (one, other) = (events.set(), events.set());
    let first = ports(&events, one, 1);
    let rest = ports(&events, other, 127);
    assert_eq!(events.alloc_unbound(one, PEER), Err(NoPort::Full(128)));
    events.wait(None);
    events.wait_for(one);
    let polls = fake::with(|xen| core::mem::take(&mut xen.polls));
    assert_eq!(polls, [[&first[..], &rest[..]].concat(), first]);
    events.close(other, Port(rest[5]));
    assert!(events.alloc_unbound(one, PEER).is_ok());
}

#[test]
fn bits_are_used_where_xen_has_no_queues() {
    let shared = SharedInfo::over(SharedRun::private(1).page(0).unwrap());
    fake::renew(shared.clone(), false);
    let events = Events::new(shared, UPCALL).unwrap();
    assert_eq!(events.options(), Options { layout: Layout::TwoLevel, ..UPCALL });
    let set = events.set();
    let port = ports(&events, set, 1)[0];
    fake::signal(port);
    assert_eq!(taken(&events, set), [port]);
}

#[test]
fn the_timer_is_set_for_the_soonest_time_and_again_once_it_was_due() {
    let events = events(UPCALL);
    let timer = 1;
    let ring = move || fake::signal(timer);
    fake::with(|xen| xen.on_halt = Some(alloc::boxed::Box::new(ring)));
    let at = |n: u64| Some(Duration::from_millis(100 * n));
    // No time is over: the clock of this Xen stands at 0.
    let wait = |until: Option<Duration>| {
        events.wait(until);
        fake::with(|xen| core::mem::take(&mut xen.timers))
    };
    assert_eq!(wait(at(0)), [], "that time is over");
    assert_eq!(fake::with(|xen| xen.halts), 0);
    assert_eq!(wait(at(9)), [900_000_000]);
    // The signal of the last wait is taken in before.
    assert_eq!(wait(at(9)), [900_000_000]);
    fake::with(|xen| xen.on_halt = Some(alloc::boxed::Box::new(|| ())));
    assert_eq!(wait(at(8)), [800_000_000]);
    assert_eq!(wait(at(10)), [], "it is set for a sooner time");
    assert_eq!(wait(at(7)), [700_000_000]);
    assert_eq!(wait(None), []);
    // No wait is longer than a second.
    for until in [at(10), at(11), None] {
        events.forget_timer();
        assert_eq!(wait(until), [1_000_000_000]);
    }
}

#[test]
fn a_closed_port_leaves_nothing_to_the_next_one_of_its_number() {
    for options in EACH {
        let events = events(options);
        let sets = [events.set(), events.set()];
        let port = Port(ports(&events, sets[0], 1)[0]);
        fake::signal(port.0);
        events.close(sets[1], port);
        assert!(events.owns(sets[0], port), "another set closes nothing");
        events.close(sets[0], port);
        events.close(sets[0], port);
        fake::signal(port.0);
        fake::with(|xen| {
            assert_eq!(core::mem::take(&mut xen.closed), [port.0], "{options}");
            xen.made = port.0 - 1;
        });
        assert_eq!(events.alloc_unbound(sets[1], PEER), Ok(port));
        let _ = taken(&events, sets[1]);
        assert!(taken(&events, sets[0]).is_empty());
        fake::signal(port.0);
        assert_eq!(taken(&events, sets[1]), [port.0], "{options}");
    }
}

#[test]
fn a_set_from_before_a_restore_closes_no_port_and_gets_no_signal() {
    for options in EACH {
        let events = events(options);
        let old = events.set();
        let port = Port(ports(&events, old, 1)[0]);
        fake::signal(port.0);
        fake::renew(events.shared.clone(), true);
        assert!(events.renew());
        let new = events.set();
        assert_ne!(old, new);
        assert_eq!(ports(&events, new, 1), [port.0], "the number is given out again");
        events.close(old, port);
        events.end(old);
        assert_eq!(events.alloc_unbound(old, PEER), Err(NoPort::Stale));
        assert!(!events.owns(old, port) && taken(&events, old).is_empty());
        assert!(fake::with(|xen| xen.closed.is_empty()), "{options}");
        fake::signal(port.0);
        assert_eq!(taken(&events, new), [port.0], "{options}");
    }
}

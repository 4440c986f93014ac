//! Event channels, within one domain.

use crate::check::{Checks, GUARD, Outcome, get, is, same};
use grantway_hypervisor::{
    BackendPlatform, DomId, Error, EventChannels, FrontendPlatform, Platform, Port,
};
use grantway_xen::Xen;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::time::{Duration, Instant};

pub fn all(checks: &mut Checks, xen: &Xen) {
    let mut check = |name, body: fn(&Xen) -> Outcome| checks.check(name, || body(xen));
    check("events: signals are counted at the other end", counted);
    check("events: two sets, each told of its own", two_sets);
    check("events: a signal while nobody waits is not lost", level);
    check("events: 10,000 signals from another thread, none lost at the end", storm);
    check("events: the descriptor is readable exactly while something is pending", descriptor);
    check("events: a port without a peer swallows signals", swallowed);
    check("events: ports that are not ours, not free, not there", refused);
    check("events: a closed end can be bound anew at the same port", bound_anew);
    check("events: what a dropped set had is closed", dropped);
    check("events: 1,500 ports fire before anybody looks", flood);
    check("events: when the driver's buffer ran over, every port was signalled", overflow);
    check("events: a wait ends in time", in_time);
}

const SHORT: Option<Duration> = Some(Duration::from_secs(2));
const LONG: Option<Duration> = Some(GUARD);

fn pair(xen: &Xen, ours: &mut dyn EventChannels) -> Result<(Port, Port), String> {
    let unbound = get(ours.alloc_unbound(xen.domain()))?;
    let bound = get(ours.bind_interdomain(xen.domain(), unbound))?;
    Ok((unbound, bound))
}

fn counted(xen: &Xen) -> Outcome {
    let mut events = get(xen.events())?;
    let (unbound, bound) = pair(xen, events.as_mut())?;
    is("one port for both", unbound != bound)?;
    let first = get(events.wait(bound, 0, SHORT))?;
    println!("        a fresh binding is signalled {first} times");
    let before = xen.counters();
    for (from, to) in [(unbound, bound), (bound, unbound)] {
        let seen = events.count(to);
        let other = events.count(from);
        get(events.notify(from))?;
        same("count", get(events.wait(to, seen, LONG))?, seen + 1)?;
        same("the sender's count", events.count(from), other)?;
    }
    same("notifies", xen.counters().since(&before).notifies, 2)
}

fn two_sets(xen: &Xen) -> Outcome {
    let (mut one, mut two) = (get(xen.events())?, get(xen.events())?);
    let a = get(one.alloc_unbound(xen.domain()))?;
    let b = get(two.bind_interdomain(xen.domain(), a))?;
    get(two.wait(b, 0, SHORT))?;
    let (seen_a, seen_b) = (one.count(a), two.count(b));
    get(two.notify(b))?;
    get(one.notify(a))?;
    same("one", get(one.wait(a, seen_a, LONG))?, seen_a + 1)?;
    same("two", get(two.wait(b, seen_b, LONG))?, seen_b + 1)?;
    same("not ours", (one.count(b), two.count(a)), (0, 0))?;
    is("another set's port was signalled", one.notify(b).is_err())
}

fn level(xen: &Xen) -> Outcome {
    let mut events = get(xen.events())?;
    let (a, b) = pair(xen, events.as_mut())?;
    let (c, d) = pair(xen, events.as_mut())?;
    get(events.wait(b, 0, SHORT))?;
    get(events.wait(d, 0, SHORT))?;
    let seen = events.count(b);
    get(events.notify(a))?;
    std::thread::sleep(Duration::from_millis(50));
    // A look at another port counts the signal, and the wait must still see it.
    let other = events.count(d);
    get(events.notify(c))?;
    same("elsewhere", get(events.wait(d, other, LONG))?, other + 1)?;
    let before = xen.counters();
    same("kept", get(events.wait(b, seen, Some(Duration::ZERO)))?, seen + 1)?;
    same("slept", xen.counters().since(&before).wakeups, 0)
}

fn storm(xen: &Xen) -> Outcome {
    let (mut one, mut two) = (get(xen.events())?, get(xen.events())?);
    let a = get(one.alloc_unbound(xen.domain()))?;
    let b = get(two.bind_interdomain(xen.domain(), a))?;
    // The sender publishes a number, then signals. The receiver looks again after each signal, and
    // may not sleep for ever.
    let published = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            for n in 1..=10_000 {
                published.store(n, std::sync::atomic::Ordering::SeqCst);
                get(two.notify(b))?;
            }
            Ok::<(), String>(())
        });
        let mut signals = 0;
        loop {
            let seen = one.count(a);
            if published.load(std::sync::atomic::Ordering::SeqCst) == 10_000 {
                break;
            }
            signals = get(one.wait(a, seen, LONG))?;
            is("a lost wake-up", signals > seen)?;
        }
        println!("        10000 sends, {signals} signals");
        sender.join().map_err(|_| "the sender panicked".to_owned())?
    })
}

fn readable(events: &dyn EventChannels, patience: Duration) -> bool {
    let left =
        Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    let mut fds = [PollFd::new(&events, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&left)).is_ok_and(|ready| ready == 1)
}

fn descriptor(xen: &Xen) -> Outcome {
    let mut events = get(xen.events())?;
    let (a, b) = pair(xen, events.as_mut())?;
    get(events.wait(b, 0, SHORT))?;
    for _ in 0..3 {
        is("readable for nothing", !readable(events.as_ref(), Duration::from_millis(20)))?;
        get(events.notify(a))?;
        is("not readable", readable(events.as_ref(), GUARD))?;
        is("no longer readable", readable(events.as_ref(), Duration::ZERO))?;
        let mut fired = Vec::new();
        get(events.poll(&mut |port| fired.push(port)))?;
        same("fired", fired, vec![b])?;
    }
    Ok(())
}

fn swallowed(xen: &Xen) -> Outcome {
    let (mut one, mut two) = (get(xen.events())?, get(xen.events())?);
    let a = get(one.alloc_unbound(xen.domain()))?;
    get(one.notify(a))?;
    let b = get(two.bind_interdomain(xen.domain(), a))?;
    two.close(b);
    get(one.notify(a))?;
    drop(two);
    get(one.notify(a))
}

fn refused(xen: &Xen) -> Outcome {
    let mut events = get(xen.events())?;
    let (a, b) = pair(xen, events.as_mut())?;
    for (peer, port) in [(xen.domain(), a), (xen.domain(), b), (xen.domain(), Port(4_000_000))] {
        let error = events.bind_interdomain(peer, port).err();
        let Some(Error::Event { domain, port: named, .. }) = error else {
            return Err(format!("port {port}: {error:?}"));
        };
        same("named", (domain, named), (peer, port))?;
    }
    let error = events.bind_interdomain(DomId(32_000), Port(1)).err();
    println!("        {}", error.as_ref().map(ToString::to_string).unwrap_or_default());
    is("no domain", matches!(error, Some(Error::NoDomain { .. })))?;
    for port in [Port(3_000), Port(4_000_000)] {
        is("notify", matches!(events.notify(port), Err(Error::Event { .. })))?;
        events.close(port);
    }
    events.close(a);
    is("notify", matches!(events.notify(a), Err(Error::Event { .. })))?;
    same("count", events.count(a), 0)
}

fn bound_anew(xen: &Xen) -> Outcome {
    let mut guest = get(xen.events())?;
    let a = get(guest.alloc_unbound(xen.domain()))?;
    for round in 0..3 {
        // The set stands for a backend that is killed and starts again.
        let mut backend = get(xen.events())?;
        let b = get(backend.bind_interdomain(xen.domain(), a))?;
        let seen = guest.count(a);
        get(backend.notify(b))?;
        let count = get(guest.wait(a, seen, LONG))?;
        is(&format!("round {round}"), count > seen)?;
    }
    Ok(())
}

fn dropped(xen: &Xen) -> Outcome {
    let mut one = get(xen.events())?;
    let a = get(one.alloc_unbound(xen.domain()))?;
    drop(one);
    let mut two = get(xen.events())?;
    let error = two.bind_interdomain(xen.domain(), a);
    is("still there", matches!(error, Err(Error::Event { .. })))
}

fn flood(xen: &Xen) -> Outcome {
    let (mut one, mut two) = (get(xen.events())?, get(xen.events())?);
    let mut ports = Vec::new();
    // A table that is full earlier makes fewer pairs.
    for _ in 0..1500 {
        let a = match one.alloc_unbound(xen.domain()) {
            Ok(a) => a,
            Err(error @ Error::Exhausted { .. }) => {
                println!("        {} pairs, then: {error}", ports.len());
                break;
            }
            Err(error) => return Err(error.to_string()),
        };
        match two.bind_interdomain(xen.domain(), a) {
            Ok(b) => ports.push((a, b)),
            Err(error @ Error::Exhausted { .. }) => {
                println!("        {} pairs, then: {error}", ports.len());
                one.close(a);
                break;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    // Signals of the bindings are taken first, so that each port fires anew.
    get(two.poll(&mut |_| {}))?;
    for (a, _) in &ports {
        get(one.notify(*a))?;
    }
    // Every port has fired once, in however many batches.
    let mut fired = std::collections::HashSet::new();
    let end = Instant::now() + GUARD;
    while fired.len() < ports.len() && Instant::now() < end {
        get(two.poll(&mut |port| _ = fired.insert(port)))?;
    }
    same("fired", fired.len(), ports.len())
}

fn overflow(xen: &Xen) -> Outcome {
    let mut events = get(xen.events())?;
    let (a, b) = pair(xen, events.as_mut())?;
    let (c, d) = pair(xen, events.as_mut())?;
    for port in [b, d] {
        get(events.wait(port, 0, SHORT))?;
    }
    let seen = [a, b, c, d].map(|port| events.count(port));
    // A port that is unmasked without being read fires into the buffer again. With so few ports the
    // buffer has room for 64.
    for _ in 0..200 {
        get(events.notify(a))?;
        std::thread::sleep(Duration::from_micros(200));
        get(rustix::io::write(events.as_fd(), &b.0.to_ne_bytes()))?;
    }
    let mut fired = Vec::new();
    get(events.poll(&mut |port| fired.push(port)))?;
    fired.sort();
    let mut all = vec![a, b, c, d];
    all.sort();
    same("fired", fired, all)?;
    for (port, seen) in [a, b, c, d].into_iter().zip(seen) {
        is("not counted", events.count(port) > seen)?;
    }
    for (from, to) in [(a, b), (b, a), (c, d), (d, c)] {
        let seen = events.count(to);
        get(events.notify(from))?;
        is("masked for ever", get(events.wait(to, seen, LONG))? > seen)?;
    }
    Ok(())
}

fn in_time(xen: &Xen) -> Outcome {
    let mut events = get(xen.events())?;
    let (_, b) = pair(xen, events.as_mut())?;
    get(events.wait(b, 0, SHORT))?;
    let seen = events.count(b);
    let start = Instant::now();
    same("count", get(events.wait(b, seen, Some(Duration::from_millis(100))))?, seen)?;
    let took = start.elapsed();
    is(&format!("{took:?}"), took >= Duration::from_millis(100) && took < GUARD)
}

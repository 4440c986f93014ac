//! Tests of a set over a socket that keeps the bounds of messages. The test is the driver.

use super::*;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::time::Instant;

/// Time limit of a test for an event that must happen. It only guards against hanging.
const GUARD: Duration = Duration::from_secs(120);

fn set(ports: &[u32]) -> (EventSet, OwnedFd) {
    let (ours, driver) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let counters = Arc::new(Counters::default());
    let mut set = EventSet::new(DomId(3), Evtchn::from_fd(ours), &counters);
    for &port in ports {
        set.counts.open(Port(port));
    }
    (set, driver)
}

fn fire(driver: &OwnedFd, ports: &[u32]) {
    let bytes: Vec<u8> = ports.iter().flat_map(|port| port.to_ne_bytes()).collect();
    assert_eq!(rustix::io::write(driver, &bytes), Ok(bytes.len()));
}

/// Returns the ports that were unmasked, by one call.
fn unmasked(driver: &OwnedFd) -> Vec<u32> {
    let mut bytes = vec![0; 2 * FIRED_BYTES];
    let taken = rustix::io::read(driver, &mut bytes).unwrap_or(0);
    bytes[..taken].as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

#[test]
fn signals_are_counted_and_unmasked_at_once() {
    let (mut set, driver) = set(&[4, 6]);
    fire(&driver, &[6, 4]);
    let mut told = Vec::new();
    set.poll(&mut |port| told.push(port.0)).unwrap();
    assert_eq!(told, [6, 4]);
    assert_eq!(unmasked(&driver), [6, 4]);
    fire(&driver, &[6]);
    assert_eq!((set.count(Port(6)), set.count(Port(4)), set.count(Port(5))), (2, 1, 0));
    assert_eq!(unmasked(&driver), [6]);
    // Nothing more is pending, and nothing blocks.
    set.poll(&mut |_| panic!("nothing fired")).unwrap();
    assert_eq!(unmasked(&driver), []);
}

#[test]
fn seed_003_a_signal_before_the_wait_is_not_lost() {
    let (mut set, driver) = set(&[4, 6]);
    let seen = set.count(Port(4));
    fire(&driver, &[4]);
    // The signal is counted by a look at another port.
    assert_eq!(set.count(Port(6)), 0);
    assert_eq!(set.wait(Port(4), seen, None), Ok(seen + 1));
    assert_eq!(set.counters.snapshot().wakeups, 0);
    // No more signals come, and the wait ends by itself.
    assert_eq!(set.wait(Port(4), seen + 1, Some(Duration::from_millis(5))), Ok(seen + 1));
}

#[test]
fn a_sleeper_wakes_for_its_own_port() {
    let (mut set, driver) = set(&[4, 6]);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| set.wait(Port(4), 0, Some(GUARD)));
        // The second signal is sent after the first is unmasked, so the waiter slept, for 6 or for
        // 4.
        fire(&driver, &[6]);
        let start = Instant::now();
        while unmasked(&driver) != [6] {
            assert!(start.elapsed() < GUARD, "port 6 was not unmasked within {GUARD:?}");
            std::thread::sleep(Duration::from_micros(100));
        }
        fire(&driver, &[4]);
        assert_eq!(waiter.join().unwrap(), Ok(1));
    });
    assert_eq!((set.count(Port(6)), set.counters.snapshot().wakeups), (1, 1));
}

#[test]
fn more_ports_than_one_call_takes() {
    let (mut set, driver) = set(&[4]);
    fire(&driver, &[4; FIRED_BYTES / 4]);
    fire(&driver, &[4]);
    assert_eq!(set.count(Port(4)), FIRED_BYTES as u64 / 4 + 1);
    assert_eq!(unmasked(&driver).len(), FIRED_BYTES / 4);
    assert_eq!(unmasked(&driver), [4]);
    unmask(&set.evtchn, &vec![0; 2 * FIRED_BYTES + 4]).unwrap();
    let calls = [(); 3].map(|()| unmasked(&driver).len());
    assert_eq!(calls, [FIRED_BYTES / 4, FIRED_BYTES / 4, 1]);
}

#[test]
fn errors_are_one_line_with_a_remedy() {
    let (mut set, _driver) = set(&[4]);
    // A socket does not know these requests.
    let notify = set.notify(Port(4)).unwrap_err().to_string();
    assert!(notify.starts_with("notify of evtchn: ") && notify.contains("too old"), "{notify}");
    assert!(
        set.alloc_unbound(DomId(1)).is_err() && set.bind_interdomain(DomId(1), Port(2)).is_err()
    );
    let full = set.full().to_string();
    assert!(full.contains("is full at 1;") && full.contains("max_event_channels=N"), "{full}");
    assert!(
        no_domain(DomId(7))
            .to_string()
            .contains("domain 7: found no running domain, expected one;")
    );
    set.close(Port(4));
    set.close(Port(4));
    assert_eq!(set.counts.len(), 0);
}

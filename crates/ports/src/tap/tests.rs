//! Tests of real TAPs. Each test runs itself again in a network namespace of its own, so that
//! nothing of the machine is touched. Without root it is skipped.

mod conversation;
mod datagrams;
mod lengths;
mod segments;

use std::{
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use grantway_needs::{Need, met};
use grantway_netif::{Checksum, Offload};

use super::io::{Unsent, unsent};
use super::*;
use crate::port::RECV_BUFFER;

/// Time that a test waits for an event: a guard against hanging.
const GUARD: Duration = Duration::from_secs(120);

const INSIDE: &str = "GRANTWAY_TEST_NAMESPACE";

/// Runs `body` in a new network namespace, under the name of its test.
fn in_namespace(test: &str, body: impl FnOnce()) {
    as_user(test, &["unshare", "--net"], &[Need::Program("ip", "iproute2")], body);
}

/// Runs the test again behind the command `wrapper`, a program of util-linux.
fn as_user(test: &str, wrapper: &[&str], needs: &[Need<'_>], body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let usual = [
        Need::Root,
        Need::File("/dev/net/tun", "modprobe tun"),
        Need::Program(wrapper[0], "util-linux"),
    ];
    if !met(&usual) || !met(needs) {
        return;
    }
    let this = std::env::current_exe().unwrap();
    let output = Command::new(wrapper[0])
        .args(&wrapper[1..])
        .arg(this)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .process_group(0)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("1 passed"), "{test} is not its own name: {text}");
}

/// A test that runs in a namespace under its own name.
macro_rules! tap_test {
    ($(#[$meta:meta])* fn $name:ident() $body:block) => {
        $(#[$meta])*
        #[test]
        fn $name() {
            let module = module_path!().split_once("::").unwrap().1;
            let test = format!("{module}::{}", stringify!($name));
            crate::tap::tests::in_namespace(&test, || $body);
        }
    };
}
use tap_test;

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {errors}");
}

/// Waits until something holds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + GUARD;
    while !holds() {
        assert!(Instant::now() < end, "waited {GUARD:?} for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn exists(name: &str) -> bool {
    let output = Command::new("ip").args(["link", "show", name]).output();
    output.unwrap().status.success()
}

/// Receives frames until `pick` accepts one, and returns its value.
fn receive<T>(tap: &mut Tap, pick: impl FnMut(&[u8], Offload) -> Option<T>) -> T {
    receive_into(tap, &mut vec![0; RECV_BUFFER], pick)
}

/// Receives like [`receive`], into the caller's buffer.
fn receive_into<T>(
    tap: &mut Tap,
    buf: &mut [u8],
    mut pick: impl FnMut(&[u8], Offload) -> Option<T>,
) -> T {
    let end = Instant::now() + GUARD;
    while Instant::now() < end {
        while let Some(meta) = tap.recv(buf).unwrap() {
            if let Some(found) = pick(&buf[..meta.len], meta.offload) {
                return found;
            }
        }
        let event = rustix::event::PollFlags::IN;
        let mut fds =
            [rustix::event::PollFd::from_borrowed_fd(tap.readiness().descriptor().unwrap(), event)];
        let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        rustix::event::poll(&mut fds, Some(&wait)).unwrap();
    }
    panic!("no such frame within {GUARD:?}; {:?}", tap.report().counters);
}

fn open(name: &str) -> Tap {
    let config = TapConfig { offloads: TapOffloads::ALL, up: true, ..TapConfig::named(name) };
    Tap::open(&config).unwrap()
}

#[test]
fn names_are_checked_before_the_kernel_sees_them() {
    for good in ["a", "vif1.0", "tap-x_y", "0123456789abcde", "...", "a@b"] {
        assert!(check_name(good).is_ok(), "{good}");
    }
    for (bad, found) in [
        ("", "nothing"),
        (".", "directory"),
        ("..", "directory"),
        ("a/b", "'/'"),
        ("a:b", "':'"),
        ("tap%d", "'%'"),
        ("a b", "white space"),
        ("a\n", "white space"),
        ("a\0", "control"),
        ("ä", "ASCII"),
        ("0123456789abcdef", "16 bytes"),
    ] {
        let message = Tap::open(&TapConfig::named(bad)).unwrap_err().to_string();
        assert!(message.contains(found), "{bad:?}: {message}");
    }
}

tap_test! {
    fn the_kernel_takes_every_name_that_is_let_through() {
        for name in ["a", "vif1.0", "tap-x_y", "0123456789abcde", "...", "a@b", "~!", "-"] {
            let mut tap = Tap::open(&TapConfig::named(name)).unwrap();
            assert_eq!(tap.current_name().unwrap(), name);
        }
        let mut tap = Tap::open(&TapConfig::default()).unwrap();
        assert_eq!(tap.current_name().unwrap(), "tap0");
    }
}

tap_test! {
    fn link_settings_are_set_and_read() {
        let config = TapConfig {
            mtu: Some(9000),
            mac: Some([2, 1, 2, 3, 4, 5]),
            ..TapConfig::named("gw0")
        };
        let mut tap = Tap::open(&config).unwrap();
        assert_eq!(tap.mtu().unwrap(), 9000);
        assert_eq!(tap.mac().unwrap(), [2, 1, 2, 3, 4, 5]);
        assert!(!tap.is_up().unwrap());
        tap.set_up(true).unwrap();
        assert!(tap.is_up().unwrap());
        tap.set_mtu(1500).unwrap();
        assert_eq!(tap.mtu().unwrap(), 1500);
        for mtu in [0, 67, 65_536, u32::MAX] {
            let message = tap.set_mtu(mtu).unwrap_err().to_string();
            assert!(message.contains("gw0: setting the MTU failed"), "{message}");
        }
        assert!(tap.set_mac([1, 0, 0, 0, 0, 0]).is_err());
        let carrier = || std::process::Command::new("ip")
            .args(["-o", "link", "show", "gw0"])
            .output()
            .map(|o| !String::from_utf8_lossy(&o.stdout).contains("NO-CARRIER"))
            .unwrap();
        assert!(carrier());
        tap.set_carrier(false).unwrap();
        assert!(!carrier());
        tap.set_carrier(true).unwrap();
        assert!(carrier());
        tap.set_up(false).unwrap();
        assert!(!tap.is_up().unwrap());
    }
}

tap_test! {
    fn a_persistent_tap_outlives_its_process_and_is_found_by_its_new_name() {
        let config = TapConfig { persist: Some(true), ..TapConfig::named("gw0") };
        let mut tap = Tap::open(&config).unwrap();
        ip("link set gw0 name other");
        assert_eq!(tap.name(), "gw0");
        assert_eq!(tap.current_name().unwrap(), "other");
        tap.set_mtu(1400).unwrap();
        drop(tap);
        assert!(exists("other"));
        let mut tap = Tap::open(&TapConfig::named("other")).unwrap();
        assert_eq!(tap.mtu().unwrap(), 1400);
        tap.set_persist(false).unwrap();
        drop(tap);
        assert!(!exists("other"));
    }
}

tap_test! {
    fn a_tap_made_by_hand_is_taken_as_it_is() {
        // Older instructions create the TAP without vnet_hdr.
        ip("tuntap add dev hand mode tap");
        let mut tap = open("hand");
        tap.send(&[0xff; 60], Offload::default()).unwrap();
        drop(tap);
        assert!(exists("hand"));
    }
}

tap_test! {
    fn errors_say_what_to_do() {
        let _tap = open("gw0");
        let message = |name| Tap::open(&TapConfig::named(name)).unwrap_err().to_string();
        assert!(message("gw0").contains("held by another program"), "{}", message("gw0"));
        assert!(message("lo").contains("not a TAP"), "{}", message("lo"));
        ip("tuntap add dev tun7 mode tun");
        assert!(message("tun7").contains("ip link del tun7"), "{}", message("tun7"));
    }
}

tap_test! {
    fn several_queues_have_one_owner_and_one_name() {
        let config = TapConfig { multi_queue: true, up: true, ..TapConfig::named("gw0") };
        let mut first = Tap::open(&config).unwrap();
        assert!(first.caps().max_queues > 1);
        let mut second = first.another_queue().unwrap();
        for multi_queue in [true, false] {
            let error = Tap::open(&TapConfig { multi_queue, ..config.clone() }).unwrap_err();
            assert!(matches!(error, TapError::InUse { .. }), "{error}");
        }
        let mut buf = vec![0; RECV_BUFFER];
        // The answers to frames of one queue come back to that queue: flows keep to their queues.
        second.send(&[0xff; 60], Offload::default()).unwrap();
        first.send(&[0xff; 60], Offload::default()).unwrap();
        while first.recv(&mut buf).unwrap().is_some() || second.recv(&mut buf).unwrap().is_some() {}
        ip("link set gw0 down");
        ip("link set gw0 name gw1");
        let third = first.another_queue().unwrap();
        assert_eq!(third.name(), "gw1");
        drop((second, third, first));
        assert!(!exists("gw1"));
        drop(Tap::open(&config).unwrap());
    }
}

tap_test! {
    fn what_another_user_can_hold_is_no_claim() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixListener};
        let config = TapConfig {
            multi_queue: true,
            persist: Some(true),
            ..TapConfig::named("gw0")
        };
        let index = Tap::open(&config).unwrap().interface().unwrap();
        // Every user may bind a name, and see the next index.
        let name = format!("grantway/tap/{index}");
        let name = SocketAddr::from_abstract_name(name).unwrap();
        let _squatter = UnixListener::bind_addr(&name).unwrap();
        let tap = Tap::open(&config).unwrap();
        // The claim is held nevertheless.
        assert!(matches!(Tap::open(&config), Err(TapError::InUse { .. })));
        drop(tap);
        drop(Tap::open(&config).unwrap());
    }
}

tap_test! {
    fn an_interface_that_exists_decides_how_many_queues() {
        ip("tuntap add dev many mode tap multi_queue");
        ip("tuntap add dev one mode tap");
        for multi_queue in [false, true] {
            let open = |name| Tap::open(&TapConfig { multi_queue, ..TapConfig::named(name) });
            assert!(open("many").unwrap().another_queue().is_ok());
            let mut one = open("one").unwrap();
            let error = one.another_queue().err().unwrap().to_string();
            assert_eq!(error, "one: one more queue was asked for, and this port has no more; use fewer queues");
        }
    }
}

#[test]
fn no_permission_names_the_ways_to_get_it() {
    let test = "tap::tests::no_permission_names_the_ways_to_get_it";
    let without = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"];
    as_user(test, &without, &[], || {
        let error = Tap::open(&TapConfig::named("gwdenied")).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, TapError::NoPermission { .. }), "{message}");
        assert!(message.contains("CAP_NET_ADMIN"), "{message}");
        assert!(message.contains("ip tuntap add dev gwdenied mode tap"), "{message}");
    });
}

#[test]
fn the_device_may_be_missing_or_shut() {
    let says = |errno| error::opening("gw0", errno).to_string();
    assert!(says(Errno::NOENT).contains("modprobe tun"));
    assert!(says(Errno::NODEV).contains("modprobe tun"));
    assert!(says(Errno::ACCESS).contains("CAP_NET_ADMIN"));
    assert!(says(Errno::NFILE).contains("opening /dev/net/tun failed"));
}

tap_test! {
    fn a_link_that_is_down_drops_and_one_that_is_gone_fails() {
        let mut tap = Tap::open(&TapConfig::named("gw0")).unwrap();
        let sent = tap.send(&[0xff; 60], Offload::default());
        let down = DropReason::InterfaceDown;
        assert!(matches!(sent, Err(SendError::Dropped(r)) if r == down));
        assert_eq!(tap.report().counters.dropped(down), 1);
        tap.set_up(true).unwrap();
        tap.send(&[0xff; 60], Offload::default()).unwrap();
        ip("link del gw0");
        let sent = tap.send(&[0xff; 60], Offload::default());
        assert!(matches!(sent, Err(SendError::Failed(PortError::Gone { .. }))), "{sent:?}");
        let received = tap.recv(&mut [0; 2000]);
        assert!(matches!(received, Err(PortError::Gone { .. })), "{received:?}");
        assert!(tap.current_name().is_err());
    }
}

#[test]
fn one_frame_that_the_kernel_refuses_does_not_end_the_port() {
    let ends = [Errno::BADF, Errno::BADFD, Errno::NODEV];
    for raw in 1..134 {
        let errno = Errno::from_raw_os_error(raw);
        let lost = unsent(errno);
        assert_eq!(lost == Unsent::Failed, ends.contains(&errno), "{errno:?}: {lost:?}");
        let known = errno == Errno::AGAIN || ends.contains(&errno);
        assert!(known || matches!(lost, Unsent::Dropped(_)), "{errno:?}: {lost:?}");
    }
    assert_eq!(unsent(Errno::INVAL), Unsent::Dropped(DropReason::Rejected));
    assert_eq!(unsent(Errno::from_raw_os_error(95)), Unsent::Dropped(DropReason::Rejected));
}

tap_test! {
    fn frames_that_cannot_be_sent_are_counted_by_reason() {
        let mut tap = open("gw0");
        let partial = Offload { checksum: Checksum::Partial, gso: None };
        for (frame, offload, reason) in [
            (vec![0; 13], Offload::default(), DropReason::TooShort),
            (vec![0; RECV_BUFFER + 1], Offload::default(), DropReason::TooLong),
            (vec![0; 60], partial, DropReason::NotIp),
        ] {
            let sent = tap.send(&frame, offload);
            assert!(matches!(sent, Err(SendError::Dropped(r)) if r == reason), "{sent:?}");
            assert_eq!(tap.report().counters.dropped(reason), 1);
        }
        assert_eq!(tap.report().counters.dropped_total(), 3);
        assert_eq!(tap.report().counters.drops().count(), 3);
        assert_eq!(tap.report().counters.sent, 0);
    }
}

tap_test! {
    fn a_frame_longer_than_the_buffer_is_dropped_and_the_next_one_comes() {
        let mut tap = open("gw0");
        ip("addr add 10.9.0.1/24 dev gw0");
        ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev gw0");
        let socket = std::net::UdpSocket::bind("10.9.0.1:0").unwrap();
        for length in [500, 501, 100] {
            socket.send_to(&vec![1; length], "10.9.0.2:9").unwrap();
        }
        let mut lengths = Vec::new();
        receive_into(&mut tap, &mut [0; 542], |frame, _| {
            if frame[12..14] == [8, 0] && frame[23] == 17 {
                lengths.push(frame.len());
            }
            (lengths.last() == Some(&142)).then_some(())
        });
        assert_eq!(lengths, [542, 142]);
        assert_eq!(tap.report().counters.dropped(DropReason::TooLong), 1);
    }
}

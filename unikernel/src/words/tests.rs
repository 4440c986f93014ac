//! Command lines, and what is refused of them.

use super::*;
use alloc::vec;

fn wanted_of(text: &str) -> Option<Wanted> {
    match Words::parse(text).unwrap().task {
        Task::Serve(wanted) => wanted,
        Task::Frames(_) => None,
    }
}

#[test]
fn a_guest_without_words_serves() {
    let words = Words::parse(" ").unwrap();
    assert_eq!((words.policy, words.polls), (Policy::Staging, false));
    assert_eq!(Words::parse("policy=auto").unwrap().policy, Policy::Staging);
    assert_eq!(Words::parse("policy=copy").unwrap().policy, Policy::Copy);
    assert_eq!((words.addresses.len(), words.task), (0, Task::Serve(None)));
    assert!(!words.stack_log && Words::parse("stack-log").unwrap().stack_log);
}

#[test]
fn words_are_read_in_any_order() {
    let line = "policy=staging address=10.0.0.2/24 wait=poll address=fd00::2/64 gateway=10.0.0.1 \
                quiet polcy=copy";
    let words = Words::parse(line).unwrap();
    assert_eq!((words.policy, words.polls), (Policy::Staging, true));
    let addresses = ["10.0.0.2/24", "fd00::2/64"].map(|text| text.parse().unwrap());
    assert_eq!(words.addresses, addresses);
    assert_eq!(words.gateways, ["10.0.0.1".parse::<IpAddress>().unwrap()]);
    assert_eq!(words.unknown, ["quiet", "polcy=copy"]);
}

#[test]
fn an_address_may_come_by_dhcp_and_congestion_control_may_be_none() {
    let words = Words::parse("address=dhcp address=10.0.0.2/24 congestion=none").unwrap();
    assert_eq!((words.dhcp, words.addresses.len()), (true, 1));
    assert_eq!(words.congestion, CongestionControl::None);
    let words = Words::parse("congestion=reno").unwrap();
    assert_eq!((words.dhcp, words.congestion), (false, CongestionControl::Reno));
    assert_eq!(Words::parse("congestion=bic"), Err("congestion=bic: expected reno or none".into()));
}

#[test]
fn iperf_is_a_server_or_a_client() {
    assert_eq!(wanted_of("iperf=server"), Some(Wanted::Server));
    for (text, server, bytes, udp) in [
        ("client:10.0.0.1", "10.0.0.1:5001", 64 << 20, None),
        ("client:10.0.0.1:bytes=1500", "10.0.0.1:5001", 1500, None),
        ("client:10.0.0.1:bytes=3K:port=7", "10.0.0.1:7", 3072, None),
        ("client:[fd00::1]:bytes=2G", "[fd00::1]:5001", 2 << 30, None),
        ("client:10.0.0.1:udp", "10.0.0.1:5001", 64 << 20, Some(1 << 20)),
        ("client:10.0.0.1:udp:rate=8M:bytes=1M", "10.0.0.1:5001", 1 << 20, Some(8 << 20)),
    ] {
        let server = match server.strip_prefix('[') {
            Some(_) => IpEndpoint::new("fd00::1".parse().unwrap(), 5001),
            None => server.parse().unwrap(),
        };
        let expected = Some(Wanted::Client { server, bytes, udp });
        assert_eq!(wanted_of(&format!("iperf={text}")), expected, "{text}");
    }
}

#[test]
fn words_choose_frames_to_make_and_to_check() {
    let line = "generate=1496 burst=8 count=100 to=00:16:3e:00:00:01 from=00:16:3e:00:00:02 check";
    let Task::Frames(frames) = Words::parse(line).unwrap().task else { panic!("no frames") };
    assert_eq!((frames.check, frames.from), (true, Some([0, 0x16, 0x3e, 0, 0, 2])));
    let made = frames.generate.unwrap();
    assert_eq!((made.size, made.burst, made.count), (1496, 8, Some(100)));
    assert_eq!(made.destination, [0, 0x16, 0x3e, 0, 0, 1]);
    let only = FramesConfig { generate: None, from: None, check: true };
    assert_eq!(Words::parse("check").unwrap().task, Task::Frames(only));
}

#[test]
fn values_out_of_bounds_are_refused_by_name() {
    let lines = vec![
        "address=10.0.0.2",
        "address=224.0.0.1/24",
        "address=255.255.255.255/32",
        "address=0.0.0.0/0",
        "address=ff02::1/64",
        "gateway=224.0.0.1",
        "gateway=10.0.0.1/24",
        "policy=map",
        "wait=long",
        "generate=13",
        "generate=65536",
        "generate=x",
        "generate=64 burst=0",
        "generate=64 to=1:2",
        "iperf",
        "iperf=client",
        "iperf=client:",
        "iperf=client:10.0.0.1:bytes=0",
        "iperf=client:10.0.0.1:bytes=64T",
        "iperf=client:10.0.0.1:bytes=99999999999G",
        "iperf=client:10.0.0.1:port=0",
        "iperf=client:10.0.0.1:time=10",
        "iperf=client:[fd00::1",
        "iperf=client:[fd00::1]bytes=7",
        "iperf=server check",
    ];
    for line in lines.into_iter().filter(|&line| line != "iperf") {
        let why = Words::parse(line).expect_err(line);
        assert!(why.contains("expected"), "{line}: {why}");
    }
    assert_eq!(Words::parse("iperf").unwrap().unknown, ["iperf"]);
}

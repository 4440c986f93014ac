//! All ways deliver the same frames in the same order.

use super::guests::datagram;
use super::judge::{Fate, Judge};
use super::setup::{Running, Setup};
use super::{Case, Load, Way};
use crate::turns::{address, send};
use grantway_frontend::Vif;
use grantway_ports::{BURST, RECV_BUFFER};
use grantway_testkit::Numbers;
use grantway_vector::{PortId, Secret};
use std::time::Duration;

/// Rules that fit some of the frames: an accept before a drop, and two masks of filters.
const RULES: &str = r#"
[[rule]]
action = "accept"
protocol = "udp"
to-ports = "50-59"
[[rule]]
action = "drop"
protocol = "udp"
to-ports = "1-99"
[[filter]]
action = "pass"
protocol = "udp"
to-port = "0x1010/0xfff0"
[[filter]]
action = "drop"
protocol = "udp"
from = "10.0.0.0/8"
to-port = "0x1000/0xf000"
"#;

/// Destination ports: of no rule, of each rule, and of each filter.
const PORTS: [u16; 5] = [20_000, 55, 70, 0x1015, 0x1035];

fn case(senders: u16, queues: u16) -> Case {
    Case { name: "", senders, queues, load: Load::Nothing }
}

/// Returns a frame of a guest, which differs from all others.
fn frame(from: usize, guests: usize, sequence: u32, numbers: &mut Numbers) -> Vec<u8> {
    let to = (from + 1 + numbers.below(guests - 1)) % guests;
    let ports = [1000 + numbers.below(50) as u16, PORTS[numbers.below(PORTS.len())]];
    let mut frame = datagram((from, to), ports);
    match numbers.below(16) {
        0 => frame[..6].fill(0xff),
        // A station that nobody has, the sender's own, and one that no bridge relays to.
        1 => frame[..6].copy_from_slice(&[2, 0, 0, 0, 9, 9]),
        2 => frame[..6].copy_from_slice(&address(from)),
        3 => frame[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 3]),
        // A wrong checksum, a packet that is longer than its frame, a group as the sender.
        4 => frame[24] ^= 1,
        5 => frame[17] = 200,
        6 => frame[6] |= 1,
        // Neither IP nor ARP.
        7 => frame[12..14].copy_from_slice(&[0x88, 0xb5]),
        _ => {}
    }
    frame[44..48].copy_from_slice(&sequence.to_be_bytes());
    frame.resize(60 + numbers.below(300), 0);
    frame
}

/// Returns all frames that a guest has received, queue by queue.
fn receive(vif: &mut Vif, arena: &mut [u8], received: &mut [Vec<Vec<u8>>]) -> usize {
    let mut count = 0;
    for (queue, received) in vif.queues().iter_mut().zip(received) {
        let mut places = Vec::new();
        while queue.recv_burst(arena, |at, frame| places.push((at, frame.len))).unwrap() > 0 {
            count += places.len();
            received.extend(places.drain(..).map(|(at, len)| arena[at..at + len].to_vec()));
        }
    }
    count
}

/// Sends bursts of all guests, and returns what each queue of each guest receives.
fn carry(way: Way, case: &Case, rules: &str) -> Vec<Vec<Vec<Vec<u8>>>> {
    let mut setup = Setup::new(case, way, rules).unwrap();
    let guests = setup.vifs.len();
    let mut arena = vec![0; BURST * 4096 + RECV_BUFFER];
    let queues = setup.vifs.iter_mut().map(|vif| vif.queues().len());
    let mut received: Vec<Vec<Vec<Vec<u8>>>> = queues.map(|n| vec![Vec::new(); n]).collect();
    let (mut numbers, mut sequence) = (Numbers::new(5), 0);
    for round in 0..120 {
        // Each queue of each guest in turn.
        let (from, by) = (round % guests, round / guests % usize::from(case.queues));
        let burst: Vec<Vec<u8>> = (0..1 + numbers.below(64))
            .map(|_| {
                sequence += 1;
                frame(from, guests, sequence, &mut numbers)
            })
            .collect();
        let frames: Vec<&[u8]> = burst.iter().map(Vec::as_slice).collect();
        let sent = send(&mut setup.vifs[from].queues()[by], &frames).unwrap();
        assert_eq!(sent, frames.len(), "{way:?}");
        setup.server.serve().unwrap();
        // More frames come than a guest has pages, and some wait until it posts others.
        if round % 24 != 23 {
            continue;
        }
        let mut still = 0;
        while still < 3 {
            setup.server.serve().unwrap();
            let all = setup.vifs.iter_mut().zip(&mut received);
            let came: usize = all.map(|(vif, into)| receive(vif, &mut arena, into)).sum();
            still = if came == 0 { still + 1 } else { 0 };
        }
    }
    received
}

#[test]
fn all_ways_deliver_the_same_frames_in_the_same_order() {
    for case in [case(2, 1), case(2, 4)] {
        for rules in ["", RULES] {
            let [expected, others @ ..] = Way::ALL.map(|way| carry(way, &case, rules));
            for (guest, queues) in expected.iter().enumerate() {
                let count: usize = queues.iter().map(Vec::len).sum();
                assert!(count > 200, "guest {guest} received {count}");
                assert!(
                    queues.iter().all(|queue| !queue.is_empty()),
                    "guest {guest}: an idle queue"
                );
            }
            for (found, way) in others.iter().zip(&Way::ALL[1..]) {
                for (guest, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    for (queue, (found, expected)) in found.iter().zip(expected).enumerate() {
                        let at = found.iter().zip(expected).position(|(a, b)| a != b);
                        let lengths = (found.len(), expected.len());
                        assert!(
                            found == expected,
                            "{way:?}, guest {guest}, queue {queue}: {lengths:?}, differs at {at:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn rules_and_bridge_decide_as_written() {
    let mut judge = Judge::new(RULES, Secret(1, 2)).unwrap();
    let (one, two) = (PortId(1), PortId(2));
    let to_port = |port| datagram((1, 0), [1000, port]);
    assert_eq!(judge.judge(&to_port(20_000), two, 0), Fate::Flood, "an unknown station");
    assert_eq!(judge.judge(&datagram((0, 1), [1, 20_000]), one, 0), Fate::To(two));
    let fates = PORTS.map(|port| judge.judge(&to_port(port), two, 0));
    let to = Fate::To(one);
    assert_eq!(fates, [to, to, Fate::Drop, to, Fate::Drop]);
    assert_eq!(judge.judge(&to_port(20_000)[..40], two, 0), Fate::Drop, "a frame that is cut");
    assert_eq!(judge.judge(&datagram((1, 1), [1, 20_000]), two, 0), Fate::Drop, "back to its port");
}

#[test]
fn rules_that_the_plain_program_does_not_have_are_refused() {
    for rules in [
        "[[rule]]\naction = \"accept\"\nstate = \"new\"\n",
        "[[filter]]\naction = \"queue\"\nqueue = 1\n",
        "[[vif]]\nname = \"1.0\"\nisolated = true\n",
    ] {
        let error = Judge::new(rules, Secret(1, 2)).err().expect(rules).to_string();
        assert!(error.contains("remove the others"), "{error}");
    }
}

#[test]
fn every_load_lets_the_papers_streams_pass() {
    for load in [Load::Nothing, Load::OneRule, Load::Flower] {
        for (senders, queues) in [(4, 1), (1, 1), (1, 4)] {
            let case = Case { name: "", senders, queues, load };
            for way in Way::ALL {
                let mut running = Running::start(&case, way)
                    .unwrap_or_else(|error| panic!("{case:?} {way:?}: {error}"));
                // A frame that is lost is an error of the slice.
                let slice = running.slice(Duration::from_millis(5)).unwrap();
                assert!(slice.rate > 0.0, "{case:?} {way:?} {slice:?}");
            }
        }
    }
}

#[test]
fn the_filters_have_eight_masks_and_the_rule_is_one() {
    let parse = |load: Load| {
        let names = &mut grantway_vector::rules::Names::default();
        grantway_vector::rules::parse(&load.rules(), names, Secret(1, 2)).unwrap()
    };
    assert_eq!(parse(Load::OneRule).firewall.rules.len(), 1);
    let flower = parse(Load::Flower);
    let mut masks: Vec<String> = Vec::new();
    for filter in &flower.filters.filters {
        // The mask is the second half of the pattern.
        let pattern = format!("{:?}", filter.pattern);
        let mask = pattern.split_once("mask:").expect("a mask").1.to_owned();
        if !masks.contains(&mask) {
            masks.push(mask);
        }
    }
    assert_eq!((flower.filters.filters.len(), masks.len()), (32, 8));
}

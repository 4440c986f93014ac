//! Target: two ends that send each other any segments.

use super::Bytes;
use grantway_flows::series::POINTS_MAX;
use grantway_flows::{Event, Flows, Limits, Merged, Packet, Ring};

/// Most flows that are followed.
const FLOWS: usize = 4;
/// Most stalls that are listed of each flow.
const STALLS: usize = 3;
/// Most points besides those that each series always has.
const POINTS: usize = 100;

pub(super) fn run(data: &[u8]) {
    let limits = Limits { flows: FLOWS, points: POINTS, stalls: STALLS, stall: 1 << 20 };
    let mut flows = Flows::new(limits);
    let mut bytes = Bytes(data);
    let mut now = 0_u64;
    while !bytes.0.is_empty() {
        // The time is a digit and a shift, so that one byte can make nanoseconds or years.
        let (time, what) = (bytes.u8(), bytes.u8());
        now = now.saturating_add(u64::from(time & 15) << (4 * (time >> 4)));
        let ring = Ring { interface: u32::from(what >> 6 & 1), ..Ring::default() };
        if what & 7 == 7 {
            let event = Event::ALL[usize::from(what >> 3) % Event::ALL.len()];
            flows.event(now, ring, event);
            continue;
        }
        let frame = frame(&mut bytes, what);
        let length = frame.len() + if what & 32 == 0 { 0 } else { usize::from(bytes.u16()) };
        let packet = Packet { time: now, head: &frame, length, point: ring.interface, ring };
        let merged = if what & 128 == 0 { None } else { merged(&mut bytes) };
        match merged {
            Some(merged) => flows.merged(&packet, merged),
            None => flows.packet(&packet),
        }
    }
    check(&flows);
}

/// Returns any segments that a packet may have been merged of.
fn merged(bytes: &mut Bytes<'_>) -> Option<Merged> {
    Merged::new(u32::from(bytes.u16()), u32::from(bytes.u16()))
}

/// Returns a TCP segment over IPv4, with any numbers and options.
fn frame(bytes: &mut Bytes<'_>, what: u8) -> Vec<u8> {
    let options = usize::from(what >> 3 & 3) * 4;
    let side = usize::from(what & 1);
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0]);
    let hosts = [[10, 0, 0, 1], [10, 0, 0, 2]];
    frame.extend([hosts[side], hosts[1 - side]].concat());
    let ports = [[0, 1], [0, what >> 1 & 3]];
    frame.extend([ports[side], ports[1 - side]].concat());
    frame.extend(bytes.u32().to_be_bytes());
    frame.extend(bytes.u32().to_be_bytes());
    let flags = bytes.u8() & 0x17;
    frame.extend([(5 + options as u8 / 4) << 4, flags]);
    frame.extend(bytes.u16().to_be_bytes());
    frame.extend([0; 4]);
    frame.extend((0..options).map(|_| bytes.u8()));
    frame
}

/// Checks the rules that hold for any input.
pub(super) fn check(flows: &Flows) {
    let report = flows.report();
    let skipped = report.skipped;
    let told: u64 = report.flows.iter().map(|flow| flow.packets).sum();
    let others = [skipped.other, skipped.unread, skipped.forgotten];
    let untold: u64 = others.iter().map(|count| count.packets).sum();
    assert_eq!(told + untold, report.all.packets);
    assert!(report.flows.len() <= FLOWS);
    let mut points = 0;
    for flow in &report.flows {
        assert!(flow.stalls.len() <= STALLS && flow.stall_count() >= flow.stalls.len() as u64);
        assert!(flow.start_s + flow.seconds <= report.seconds * 1.000_001 + 1e-6);
        for stall in &flow.stalls {
            assert!(stall.seconds >= 0.0 && stall.at_s + stall.seconds <= report.seconds + 1.0);
        }
        for direction in &flow.directions {
            let lines = &direction.lines;
            let all = [&lines.sent, &lines.again, &lines.acked, &lines.rtt];
            for line in all.into_iter().chain([&lines.in_flight, &lines.window]) {
                assert!(line.len() <= POINTS_MAX);
                assert!(line.is_sorted_by(|a, b| a.0 <= b.0) && line.iter().all(|p| p.1 <= p.2));
                points += line.len().saturating_sub(32);
            }
            assert!(direction.rtt.is_none_or(|trip| trip.min_ms <= trip.max_ms));
        }
    }
    assert!(points <= POINTS);
}

//! Frames of a generator, byte by byte and over time.

use std::sync::{Arc, Mutex};

use etherparse::SlicedPacket;

use super::*;
use crate::{checker::Verdict, clock::monotonic, port::RECV_BUFFER, testframe::TaggedAt};

fn generator(size: usize, flows: u32, count: Option<u64>) -> Generator {
    let config = GeneratorConfig { size, flows, count, ..GeneratorConfig::default() };
    Generator::new(config, monotonic()).unwrap()
}

#[test]
fn every_size_is_well_formed() {
    let mut buf = vec![0; RECV_BUFFER];
    for size in (14..1600).chain([9000, 65_534, 65_535]) {
        let mut generator = generator(size, 3, None);
        let mut checker = crate::Checker::default();
        for n in 0..7 {
            buf.fill(0xcc);
            assert_eq!(generator.next_into(&mut buf), size);
            assert!(buf[size..].iter().all(|&b| b == 0xcc));
            let frame = &buf[..size];
            let packet = SlicedPacket::from_ethernet(frame).unwrap();
            let expected = match generator.sequence_at() {
                None => Verdict::Foreign,
                Some(at) => {
                    let sequence = u64::from_be_bytes(frame[at..at + 8].try_into().unwrap());
                    assert_eq!(sequence, n / 3);
                    Verdict::InOrder
                }
            };
            if size >= 58 {
                let udp = packet.transport.unwrap();
                assert!(matches!(udp, etherparse::TransportSlice::Udp(_)), "{size}");
                let ip = etherparse::Ipv4HeaderSlice::from_slice(&frame[14..]).unwrap();
                let checksum = ip.to_header().calc_header_checksum();
                assert_eq!(ip.header_checksum(), checksum);
            }
            assert_eq!(checker.check(frame), expected, "size {size}");
        }
    }
}

#[test]
fn the_size_of_64_is_a_udp_packet() {
    assert_eq!(TaggedAt::of_size(64), Some(TaggedAt::Udp));
    assert_eq!(TaggedAt::of_size(60), Some(TaggedAt::Udp));
    assert_eq!(TaggedAt::of_size(57), Some(TaggedAt::Ethernet));
    assert_eq!(TaggedAt::of_size(29), None);
}

#[test]
fn a_patched_template_is_the_next_frame() {
    for size in [14, 30, 58, 64, 65, 1518] {
        let mut one = generator(size, 5, None);
        let mut other = generator(size, 5, None);
        let mut templates: Vec<_> = (0..5).map(|f| one.template(f).unwrap()).collect();
        assert_eq!(one.template(5), None);
        let mut buf = vec![0; size];
        for _ in 0..23 {
            let stamp = one.advance().unwrap();
            let frame = &mut templates[usize::from(stamp.flow)];
            one.patch(frame, stamp.sequence);
            other.next_into(&mut buf);
            assert_eq!(*frame, buf);
        }
        assert_eq!(one.made_of(0), 5);
        assert_eq!(one.made_of(3), 4);
        assert_eq!(one.made(), 23);
    }
}

#[test]
fn the_count_is_the_end() {
    let mut generator = generator(64, 2, Some(3));
    let mut buf = [0; 64];
    assert!(generator.readiness().is_now());
    for _ in 0..3 {
        assert!(generator.recv(&mut buf).unwrap().is_some());
    }
    assert_eq!(generator.recv(&mut buf).unwrap(), None);
    assert_eq!(generator.next_into(&mut buf), 0);
    assert_eq!(generator.advance(), None);
    assert!(generator.finished() && !generator.readiness().is_now());
}

#[test]
fn a_short_buffer_takes_no_frame() {
    let mut generator = generator(64, 1, None);
    assert_eq!(generator.next_into(&mut [0; 63]), 0);
    assert_eq!(generator.made(), 0);
    generator.patch(&mut [0; 10], 1);
}

#[test]
fn after_a_burst_there_is_no_frame_once() {
    let config = GeneratorConfig { burst: 3, ..GeneratorConfig::default() };
    let mut generator = Generator::new(config, monotonic()).unwrap();
    let mut buf = [0; 64];
    let got: Vec<bool> = (0..12).map(|_| generator.recv(&mut buf).unwrap().is_some()).collect();
    let pattern = [true, true, true, false];
    assert_eq!(got, pattern.repeat(3));
}

#[test]
fn a_burst_has_the_frames_that_come_one_by_one() {
    for (size, flows, count) in [(64, 1, 200), (60, 3, 64), (14, 1, 70), (1500, 2, 130), (65, 7, 5)]
    {
        let (mut one, mut burst) =
            (generator(size, flows, Some(count)), generator(size, flows, Some(count)));
        let mut own = generator(size, flows, Some(count));
        let arena = vec![0; 64 * size.next_multiple_of(64)];
        let (mut arenas, mut other) = ([arena.clone(), arena.clone()], arena);
        let mut kept = [0; 2];
        let mut buf = vec![0; size];
        let mut got = 0;
        while !burst.finished() {
            let mut frames = [ArrayVec::new(), ArrayVec::new()];
            burst.recv_burst(&mut arenas[0], &mut frames[0]).unwrap();
            // Another arena in between has no frames yet.
            let elsewhere = got == 64;
            let arena = if elsewhere { &mut other } else { &mut arenas[1] };
            own.recv_own_burst(arena, &mut kept[usize::from(elsewhere)], &mut frames[1]).unwrap();
            assert_eq!(frames[0], frames[1]);
            for place in &frames[0] {
                assert_eq!(one.next_into(&mut buf), size);
                assert_eq!(place.bytes(&arenas[0]), buf);
                assert_eq!(place.bytes(if elsewhere { &other } else { &arenas[1] }), buf);
                got += 1;
            }
        }
        assert_eq!((got, burst.made(), burst.report().counters.received), (count, count, count));
    }
}

#[test]
fn the_rate_is_kept_and_late_frames_are_due_at_once() {
    let now = Arc::new(Mutex::new(Duration::from_secs(100)));
    let clock = {
        let now = now.clone();
        Arc::new(move || *now.lock().unwrap())
    };
    let config = GeneratorConfig { rate: 1000, burst: 4, ..GeneratorConfig::default() };
    let mut generator = Generator::new(config, clock).unwrap();
    let mut buf = [0; 64];
    let mut drain = || {
        let mut n = 0;
        while generator.recv(&mut buf).unwrap().is_some() {
            n += 1;
        }
        n
    };
    let mut at = |millis: u64| {
        *now.lock().unwrap() = Duration::from_secs(100) + Duration::from_millis(millis);
        drain()
    };
    assert_eq!(at(0), 4);
    assert_eq!(at(3), 0);
    assert_eq!(at(4), 4);
    assert_eq!(at(7), 0);
    assert_eq!(at(1000), 1000 - 8 + 4);
    // A clock that steps back brings no frame and breaks nothing.
    assert_eq!(at(10), 0);
    assert_eq!(at(2000), 1000);
}

#[test]
fn bounds_are_refused() {
    let with = |change: fn(&mut GeneratorConfig)| {
        let mut config = GeneratorConfig::default();
        change(&mut config);
        Generator::new(config, monotonic()).map(drop)
    };
    assert_eq!(with(|c| c.size = 13), Err(GeneratorError::Size(13)));
    assert_eq!(with(|c| c.size = 65_536), Err(GeneratorError::Size(65_536)));
    assert_eq!(with(|c| c.burst = 0), Err(GeneratorError::Burst));
    assert_eq!(with(|c| c.flows = 65_537), Err(GeneratorError::Flows(65_537)));
    assert_eq!(with(|c| c.flows = 65_536), Ok(()));
}

#[test]
fn further_queues_have_flows_of_their_own() {
    let mut first = generator(64, 3, Some(9));
    assert_eq!(first.caps().max_queues, 65_536 / 3);
    let mut queues = vec![first.another_queue().unwrap(), first.another_queue().unwrap()];
    let mut seen = Vec::new();
    let mut checker = crate::Checker::default();
    let mut drain = |queue: &mut dyn Port| {
        let mut buf = [0; 64];
        let mut flows = std::collections::BTreeSet::new();
        while queue.readiness().is_now() {
            if queue.recv(&mut buf).unwrap().is_some() {
                let (_, tag) = crate::testframe::Tag::find(&buf).unwrap();
                // The sender's port belongs to the flow, too.
                assert_eq!(buf[34..36], tag.flow.to_be_bytes());
                assert_eq!(checker.check(&buf), Verdict::InOrder);
                flows.insert(tag.flow);
            }
        }
        flows.into_iter().collect::<Vec<_>>()
    };
    seen.extend(drain(&mut first));
    for queue in &mut queues {
        seen.extend(drain(queue.as_mut()));
    }
    assert_eq!(seen, (0..9).collect::<Vec<_>>());
    assert_eq!(checker.total().received, 27);
}

#[test]
fn a_queue_that_is_opened_again_goes_on_where_it_left_off() {
    let mut first = generator(64, 2, None);
    let mut checker = crate::Checker::default();
    let mut buf = [0; 64];
    for _ in 0..5 {
        let mut queues = vec![first.another_queue().unwrap(), first.another_queue().unwrap()];
        for queue in &mut queues {
            for _ in 0..7 {
                assert!(queue.recv(&mut buf).unwrap().is_some());
                assert_eq!(checker.check(&buf), Verdict::InOrder);
            }
        }
    }
    assert_eq!(checker.total().received, 70);
    assert_eq!(checker.flow_report(2).received + checker.flow_report(3).received, 35);
}

#[test]
fn no_more_queues_than_there_are_flows_for() {
    let mut first = generator(64, 30_000, None);
    assert_eq!(first.caps().max_queues, 2);
    let second = first.another_queue().unwrap();
    assert!(first.another_queue().is_err());
    drop(second);
    assert!(first.another_queue().is_ok());
}

#[test]
fn every_third_frame_carries_the_time_at_which_it_was_due() {
    let nanos = Arc::new(Mutex::new(5_000_000_000u64));
    let now = Arc::clone(&nanos);
    let clock: Clock = Arc::new(move || Duration::from_nanos(*now.lock().unwrap()));
    let config = GeneratorConfig { rate: 1_000_000, burst: 2, timed: 3, ..Default::default() };
    let mut generator = Generator::new(config, Arc::clone(&clock)).unwrap();
    let mut checker = crate::Checker::default().timed_by(clock);
    let mut buf = vec![0; RECV_BUFFER];
    // The first two are due at once, and set the schedule.
    for _ in 0..2 {
        let len = generator.recv(&mut buf).unwrap().unwrap().len;
        assert_eq!(checker.check(&buf[..len]), Verdict::InOrder);
    }
    assert!(generator.recv(&mut buf).unwrap().is_none());
    // Nobody asks for a while: late frames carry the time at which they were due.
    *nanos.lock().unwrap() += 10_000;
    for _ in 2..8 {
        let len = generator.recv(&mut buf).unwrap().unwrap().len;
        assert_eq!(checker.check(&buf[..len]), Verdict::InOrder);
        generator.send(&buf[..len], Offload::default()).unwrap();
    }
    // Frames 0, 3 and 6, due after 0, 2 and 6 us.
    let told: Vec<_> = checker.latency().iter().map(|&(ns, n)| (ns / 100, n)).collect();
    assert_eq!(told, [(0, 1), (40, 1), (80, 1)]);
    // The generator itself judges the frames that come back.
    assert_eq!(generator.report().latency, checker.latency()[1..]);
    assert_eq!(generator.report().checked.map(|report| report.total.received), Some(6));
}

#[test]
fn a_frame_without_room_for_a_time_is_refused() {
    let config = GeneratorConfig { size: 63, timed: 1, ..GeneratorConfig::default() };
    let refused = Generator::new(config, monotonic()).map(drop).unwrap_err().to_string();
    assert!(refused.contains("63") && refused.contains("64"), "{refused}");
}

#[test]
fn frames_made_in_place_are_those_that_are_received() {
    for size in [14, 29, 30, 60, 64, 65, 1500] {
        let config = GeneratorConfig { size, burst: 100, count: Some(700), ..Default::default() };
        let mut copying = Generator::new(config.clone(), monotonic()).unwrap();
        let mut placing = Generator::new(config, monotonic()).unwrap();
        let mut frames = 0;
        for turn in 0..60 {
            // Not all frames that may be made are made.
            let run = placing.run(7 + turn);
            let made = run.frames().min(turn * 7 % 65);
            for number in 0..made {
                let mut placed = vec![0xaa; run.size()];
                run.write(number, |at, bytes| placed[at..at + bytes.len()].copy_from_slice(bytes));
                let mut copied = vec![0; size];
                assert_eq!(copying.next_into(&mut copied), size);
                assert_eq!(placed, copied, "frame {frames} of {size}");
                frames += 1;
            }
            placing.made_in_place(made);
        }
        assert_eq!((frames, placing.made(), placing.report().counters.received), (700, 700, 700));
        assert!(placing.finished() && !placing.readiness().is_now());
    }
}

#[test]
fn no_more_than_the_window_is_under_way() {
    let config = GeneratorConfig { window: 2, ..GeneratorConfig::default() };
    let mut generator = Generator::new(config.clone(), monotonic()).unwrap();
    let mut buf = vec![0; RECV_BUFFER];
    for round in 0..3 {
        let first = if round == 0 { 2 } else { 1 };
        for _ in 0..first {
            assert_eq!(generator.recv(&mut buf).unwrap().map(|meta| meta.len), Some(64));
        }
        assert!(generator.recv(&mut buf).unwrap().is_none(), "round {round}");
        generator.send(&buf[..64], Offload::default()).unwrap();
    }
    let mut frames = ArrayVec::new();
    generator.recv_burst(&mut vec![0; 4096], &mut frames).unwrap();
    assert_eq!(frames.len(), 1);
    let both = GeneratorConfig { rate: 7, ..config };
    let refused = Generator::new(both, monotonic()).map(drop).unwrap_err().to_string();
    assert!(refused.contains("window 2 with rate 7"), "{refused}");
}

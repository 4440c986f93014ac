//! Segments that a stranger, a hostile peer or a slow path sends.

use super::*;
use grantway_testkit::Numbers;

/// Has two talks go on alike, of which a stranger disturbs one.
fn disturbed(stranger: impl Fn(&mut Talk, u32)) {
    let mut talks = [Talk::new(), Talk::new()];
    let mut found = [Vec::new(), Vec::new()];
    for step in 0..60 {
        for (at, talk) in talks.iter_mut().enumerate() {
            let first = 10 * (step / 6);
            match step % 6 {
                0 => talk.data(10),
                1 => talk.ack(first + 2, 500, false),
                2 => talk.ack_behind(first + 2, 501, 3),
                5 => talk.ack(first + 10, 500, false),
                _ => {}
            }
            if at == 1 {
                stranger(talk, first + 2 * u32::from(step % 6 > 0));
            }
            talk.wait(150);
            found[at].push((talk.found(), talk.recovery.due()));
        }
    }
    let [alone, beside] = found;
    assert!(alone.iter().filter(|(found, _)| found.is_some()).count() > 10);
    assert_eq!(alone, beside);
}

/// Returns a segment of the other end with these numbers, which are bytes.
fn other(flags: u8, numbers: [u32; 2], window: u16, len: u32, behind: u32) -> Vec<u8> {
    frame(9, true, flags, numbers, window, len, behind)
}

#[test]
fn segments_beside_the_window_change_nothing() {
    for number in [0, 2, 1000, 1 << 31, u32::MAX] {
        disturbed(|talk, first| {
            let acknowledges = 1 + first * SIZE;
            talk.receive(&other(RST, [number, 0], 0, 0, 0));
            talk.receive(&other(RST | ACK, [number, acknowledges], 0, 0, 0));
            talk.receive(&other(ACK, [number, acknowledges], 0, 0, 0));
            talk.receive(&other(ACK, [number, acknowledges + SIZE], 1, 0, 3));
            talk.receive(&other(SYN | ACK, [number, acknowledges], 7, 0, 0));
        });
    }
}

#[test]
fn acknowledgements_of_less_or_of_what_was_never_sent_change_nothing() {
    disturbed(|talk, first| {
        let acknowledges = 1 + first * SIZE;
        for number in [acknowledges.wrapping_sub(1), acknowledges + 11 * SIZE, 1 << 31, u32::MAX] {
            talk.receive(&other(ACK, [1, number], 0, 0, 0));
            talk.receive(&other(ACK, [1, number], 7, 0, 3));
        }
        // No acknowledgement at all.
        talk.receive(&other(0, [1, acknowledges], 0, 0, 0));
    });
}

#[test]
fn an_answer_to_a_strangers_reset_or_to_no_syn_ends_no_flow() {
    let mut talk = Talk::new();
    talk.data(3);
    talk.ack(2, 500, false);
    // smoltcp answers what it does not take by a reset with the number that a stranger acknowledged.
    for number in [0, 2 * SIZE, 2 + 3 * SIZE, 1 << 31] {
        talk.send(&frame(9, false, RST, [number, 0], 0, 0, 0));
        assert!(talk.recovery.flows.contains(&ends(9)), "{number}");
    }
    talk.send(&frame(9, false, RST, [1 + 3 * SIZE, 0], 0, 0, 0));
    assert!(!talk.recovery.flows.contains(&ends(9)));
    // Before the answer to a SYN nothing is taken but that, and a reset that acknowledges the SYN.
    talk.send(&frame(9, false, SYN, [70, 0], 0, 0, 0));
    for (flags, numbers) in
        [(RST, [0, 0]), (RST | ACK, [0, 70]), (RST | ACK, [0, 72]), (ACK, [9, 71])]
    {
        talk.receive(&other(flags, numbers, 500, 0, 0));
        let flow = talk.recovery.flows.get_mut(&ends(9)).unwrap();
        assert_eq!((flow.first, flow.next, flow.window.1), (70, 71, 0));
    }
    talk.receive(&other(RST | ACK, [0, 71], 0, 0, 0));
    assert!(talk.recovery.flows.values().next().is_none());
}

#[test]
fn an_acknowledgement_is_repeated_no_more_once_its_flow_is_over() {
    let mut talk = Talk::new();
    talk.data(3);
    talk.ack(1, 500, false);
    talk.wait(200);
    assert!(talk.recovery.find(talk.now, &mut talk.repeats).is_some());
    assert!(talk.repeats.next(&talk.recovery));
    // The socket is gone, so smoltcp answers by a reset.
    talk.send(&frame(9, false, RST, [1 + SIZE, 0], 0, 0, 0));
    assert!(!talk.repeats.next(&talk.recovery));
    talk.wait(100_000);
    assert_eq!(talk.recovery.find(talk.now, &mut talk.repeats), None);
    assert_eq!(talk.recovery.due(), None);
}

#[test]
fn a_long_frame_is_not_kept() {
    let mut talk = Talk::new();
    talk.data(3);
    for (more, kept) in [(0, 54), (80, 134), (81, 0), (60_000, 0)] {
        let mut long = other(ACK, [1, 1 + SIZE], 500, 0, 0);
        let found = headers::read(&long, long.len()).unwrap();
        long.resize(long.len() + more, 0);
        let segment = Segment::read(&long, &found).unwrap();
        talk.recovery.received(&segment, &long, WINDOW_AT, talk.now);
        let flow = talk.recovery.flows.get_mut(&ends(9)).unwrap();
        assert_eq!(flow.acknowledgement.len(), kept);
        assert!(flow.acknowledgement.capacity() <= 2 * KEPT);
    }
}

#[test]
fn bytes_that_are_named_twice_count_once_and_none_beside_what_is_under_way() {
    let selected = |ranges: [(u32, u32); 3], first: u32, next: u32| {
        let mut frame = other(ACK, [1, first], 500, 0, 0);
        frame[17] = 40 + 28;
        frame[46] = 12 << 4;
        frame.extend([1, 1, 5, 26]);
        for (left, right) in ranges {
            frame.extend([left, right].map(u32::to_be_bytes).concat());
        }
        let found = headers::read(&frame, frame.len()).unwrap();
        Segment::read(&frame, &found).unwrap().ranges().selected(first, next)
    };
    // Beside the wrap of numbers, too.
    for first in [1, u32::MAX - 20, u32::MAX - 120, 1 << 31, (1 << 31) - 50] {
        let sum = |ranges: [(u32, u32); 3]| {
            let of = |(left, right)| (first.wrapping_add(left), first.wrapping_add(right));
            selected(ranges.map(of), first, first.wrapping_add(100))
        };
        assert_eq!(sum([(10, 20), (30, 40), (50, 60)]), 30);
        assert_eq!(sum([(10, 20), (10, 20), (10, 20)]), 10);
        assert_eq!(sum([(12, 14), (10, 20), (15, 30)]), 20);
        assert_eq!(sum([(90, 100), (0, 10), (5, 95)]), 100);
        // Backwards, empty, beyond, and below.
        let none = [(20, 10), (10, 10), (90, 101)];
        assert_eq!(sum(none), 0);
        assert_eq!(sum([(u32::MAX, 10), (1 << 31, 10), (10, 1 << 31)]), 0);
    }
}

#[test]
fn for_any_input_little_is_sent_again_and_no_flow_keeps_a_stack_awake() {
    for seed in 0..300 {
        let mut numbers = Numbers::new(seed);
        let mut any = |below: u32| (numbers.next() % u64::from(below)) as u32;
        let mut talk = Talk::new();
        // Near the wrap of numbers.
        let base = [0, u32::MAX - 3000, (1 << 31) - 3000][seed as usize % 3];
        talk.send(&frame(9, false, SYN, [base, 0], 8000, 0, 0));
        talk.receive(&other(SYN | ACK, [0, base.wrapping_add(1)], 500, 0, 0));
        let (mut inputs, mut finds) = (0, 0);
        for _ in 0..400 {
            let number = base.wrapping_add(any(12_000)).wrapping_sub(1000);
            let window = [0, 1, 2, 500, 501][any(5) as usize];
            let seq = [1, 1, 1, any(9000)][any(4) as usize];
            let flags = [ACK, ACK, ACK, ACK, FIN | ACK, SYN, 0][any(7) as usize];
            match any(3) {
                0 => talk.send(&frame(9, false, ACK, [number, 1], 8000, any(2000), 0)),
                _ => talk.receive(&other(flags, [seq, number], window, any(2), any(6))),
            }
            inputs += 1;
            // Time may go back.
            match any(20) {
                0 => talk.now -= Duration::from_millis(u64::from(any(1000))),
                _ => talk.wait(u64::from(any(100))),
            }
            let mut at_once = 0;
            while talk.recovery.find(talk.now, &mut talk.repeats).is_some() {
                let times = core::iter::from_fn(|| talk.repeats.next(&talk.recovery).then_some(()));
                assert_eq!(times.count() as u32, TIMES);
                at_once += 1;
            }
            // One flow, which is found once at a time.
            assert!(at_once <= 1, "seed {seed}");
            finds += at_once;
        }
        assert!(finds < inputs, "seed {seed}");
        // Then nothing comes, and a program that sleeps is woken a few times more.
        let mut woken = 0;
        while let Some(due) = talk.recovery.due() {
            talk.now = due.max(talk.now);
            talk.recovery.find(talk.now, &mut talk.repeats);
            woken += 1;
            assert!(woken <= PROBES + 2, "seed {seed}");
        }
    }
}

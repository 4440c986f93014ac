//! The checker against a model that forgets nothing.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{
    clock::monotonic,
    frames::GeneratorConfig,
    generator::Generator,
    port::{FrameMeta, FramePlace, Port, Probe},
};
use grantway_netif::Offload;

fn frames(size: usize, count: usize) -> Vec<Vec<u8>> {
    let config = GeneratorConfig { size, ..GeneratorConfig::default() };
    let mut generator = Generator::new(config, monotonic()).unwrap();
    let mut buf = vec![0; size];
    let mut frames = Vec::new();
    for _ in 0..count {
        generator.next_into(&mut buf);
        frames.push(buf.clone());
    }
    frames
}

/// A frame of any flow and sequence.
fn numbered(flow: u16, sequence: u64) -> Vec<u8> {
    let config = GeneratorConfig { flows: 65_536, ..GeneratorConfig::default() };
    thread_local! {
        static SOURCE: std::cell::OnceCell<Generator> = const { std::cell::OnceCell::new() };
    }
    SOURCE.with(|source| {
        let generator = source.get_or_init(|| Generator::new(config, monotonic()).unwrap());
        let mut frame = generator.template(flow).unwrap();
        generator.patch(&mut frame, sequence);
        frame
    })
}

#[test]
fn all_in_order_is_no_loss() {
    let mut checker = Checker::default();
    for frame in frames(64, 5000) {
        assert_eq!(checker.check(&frame), Verdict::InOrder);
    }
    checker.finish(0, 5000);
    let expected = FlowReport { received: 5000, ..FlowReport::default() };
    assert_eq!(checker.total(), expected);
}

#[test]
fn loss_lateness_and_repetition_are_told_apart() {
    let mut checker = Checker::default();
    let verdicts: Vec<_> =
        [0, 1, 4, 2, 2, 4, 5].into_iter().map(|n| checker.check(&numbered(0, n))).collect();
    use Verdict::*;
    assert_eq!(verdicts, [InOrder, InOrder, Ahead(2), Reordered, Duplicated, Duplicated, InOrder]);
    checker.finish(0, 10);
    let expected = FlowReport { received: 7, lost: 1 + 4, duplicated: 2, reordered: 1, stale: 0 };
    assert_eq!(checker.flow_report(0), expected);
    // A frame that the end counted as lost may still arrive.
    assert_eq!(checker.check(&numbered(0, 9)), Reordered);
    assert_eq!(checker.flow_report(0).lost, 4);
}

#[test]
fn the_first_frames_may_be_lost_or_not_expected() {
    let mut checker = Checker::default();
    assert_eq!(checker.check(&numbered(7, 3)), Verdict::Ahead(3));
    let mut checker = Checker::new(CheckerConfig { from_zero: false, ..CheckerConfig::default() });
    assert_eq!(checker.check(&numbered(7, 3)), Verdict::InOrder);
    assert_eq!(checker.check(&numbered(7, 2)), Verdict::Stale);
    assert_eq!(checker.check(&numbered(7, 5)), Verdict::Ahead(1));
    assert_eq!(checker.total().lost, 1);
}

#[test]
fn a_flow_never_seen_is_wholly_lost() {
    let mut checker = Checker::default();
    checker.finish(2, 100);
    assert_eq!(checker.flow_report(2).lost, 100);
    assert_eq!(checker.total().lost, 100);
}

#[test]
fn damage_is_corrupt_and_noise_is_foreign() {
    let mut checker = Checker::new(CheckerConfig { payload_every: 1, ..CheckerConfig::default() });
    let whole = &frames(200, 1)[0];
    let mut changed = whole.clone();
    changed[150] ^= 1;
    assert_eq!(checker.check(&changed), Verdict::Corrupt);
    assert_eq!(checker.check(&whole[..199]), Verdict::Corrupt);
    let longer = [whole.as_slice(), &[0]].concat();
    assert_eq!(checker.check(&longer), Verdict::Corrupt);
    let mut absurd = whole.clone();
    absurd[50..58].fill(0xff);
    assert_eq!(checker.check(&absurd), Verdict::Corrupt);
    let mut magic = whole.clone();
    magic[42] ^= 1;
    assert_eq!(checker.check(&magic), Verdict::Foreign);
    assert_eq!(checker.check(&[]), Verdict::Foreign);
    assert_eq!((checker.corrupt(), checker.foreign()), (4, 2));
    assert_eq!(checker.check(whole), Verdict::InOrder);
}

#[test]
fn short_frames_may_be_padded_on_their_way() {
    let mut checker = Checker::default();
    let mut frame = frames(40, 1).remove(0);
    frame.resize(60, 0);
    assert_eq!(checker.check(&frame), Verdict::InOrder);
}

#[test]
fn flows_beyond_the_bound_cost_no_memory() {
    let mut checker = Checker::new(CheckerConfig { flows: 4, ..CheckerConfig::default() });
    assert_eq!(checker.check(&numbered(4, 0)), Verdict::Corrupt);
    assert_eq!(checker.check(&numbered(3, 0)), Verdict::InOrder);
    assert_eq!(checker.flows.len(), 4);
    checker.finish(9, 10);
    assert_eq!(checker.flows.len(), 4);
}

#[test]
fn the_port_checks_the_frames_that_are_sent() {
    let mut port = CheckPort::default();
    for frame in frames(64, 3) {
        port.send(&frame, Offload::default()).unwrap();
    }
    port.send(&[0; 60], Offload::default()).unwrap();
    assert_eq!(port.checker().total().received, 3);
    assert_eq!(port.checker().foreign(), 1);
    assert_eq!(port.report().counters.sent, 4);
}

/// A checker that gives its verdicts from a set of every sequence ever seen.
#[derive(Default)]
struct Model {
    next: u64,
    seen: BTreeSet<u64>,
    /// Counts; a frame that came too late to tell counts as lost for good.
    report: FlowReport,
}

impl Model {
    fn note(&mut self, sequence: u64) -> Verdict {
        self.report.received += 1;
        if sequence >= self.next {
            let step = sequence - self.next;
            self.report.lost += step;
            self.next = sequence + 1;
            self.seen.insert(sequence);
            return if step == 0 { Verdict::InOrder } else { Verdict::Ahead(step) };
        }
        if self.next - sequence > WINDOW {
            self.report.stale += 1;
            Verdict::Stale
        } else if self.seen.insert(sequence) {
            self.report.lost -= 1;
            self.report.reordered += 1;
            Verdict::Reordered
        } else {
            self.report.duplicated += 1;
            Verdict::Duplicated
        }
    }
}

proptest! {
    /// Steps back and forth, small and larger than the window.
    #[test]
    fn the_checker_agrees_with_the_model(
        steps in proptest::collection::vec(
            (0u16..3, prop_oneof![
                4 => Just(1i64),
                4 => -5i64..6,
                2 => -1100i64..1100,
                1 => -5000i64..5000,
            ]),
            1..800,
        ),
        tail in 0u64..3000,
    ) {
        let mut checker = Checker::default();
        let mut models: [Model; 3] = Default::default();
        for (flow, step) in steps {
            let model = &mut models[usize::from(flow)];
            // A step of 1 is the next frame.
            let sequence = (model.next + 999_999).saturating_add_signed(step);
            let sequence = sequence.saturating_sub(1_000_000);
            prop_assert_eq!(checker.check(&numbered(flow, sequence)), model.note(sequence));
            prop_assert_eq!(checker.flow_report(flow), model.report);
        }
        for (flow, model) in models.iter_mut().enumerate() {
            let made = model.next + tail;
            checker.finish(flow as u16, made);
            model.report.lost += tail;
            prop_assert_eq!(checker.flow_report(flow as u16), model.report);
            // Every sequence is counted exactly once.
            let report = model.report;
            let unique = report.received - report.duplicated - report.stale;
            prop_assert_eq!(unique + report.lost, made);
        }
    }

    /// Runs in order, broken now and then.
    #[test]
    fn a_burst_is_judged_like_its_single_frames(
        steps in proptest::collection::vec(
            (0u16..2, prop_oneof![12 => Just(1i64), 1 => -5i64..6], prop::bool::weighted(0.05)),
            1..300,
        ),
        every in prop_oneof![Just(0u32), Just(1), Just(7), Just(64)],
        lengths in proptest::collection::vec(1usize..65, 1..20),
    ) {
        let config = CheckerConfig { payload_every: every, ..CheckerConfig::default() };
        let mut one = CheckPort::new(Checker::new(config.clone()));
        let mut burst = CheckPort::new(Checker::new(config));
        let mut next = [0u64; 2];
        let mut arena = Vec::new();
        let mut frames = Vec::new();
        for (flow, step, damaged) in steps {
            let sequence = (next[usize::from(flow)] + 9).saturating_add_signed(step);
            let sequence = sequence.saturating_sub(10);
            next[usize::from(flow)] = sequence + 1;
            let mut frame = numbered(flow, sequence);
            if damaged {
                frame[45] ^= 1;
            }
            one.send(&frame, Offload::default()).unwrap();
            let meta = FrameMeta { len: frame.len(), offload: Offload::default() };
            frames.push(FramePlace { at: arena.len(), meta });
            arena.extend(frame);
        }
        let mut left = &frames[..];
        for length in lengths.into_iter().cycle() {
            let (now, later) = left.split_at(length.min(left.len()));
            let sent = burst.send_burst(&arena, now).unwrap();
            prop_assert_eq!((sent.taken, sent.bytes), (now.len(), now.len() * 64));
            left = later;
            if left.is_empty() {
                break;
            }
        }
        prop_assert_eq!(one.report().checked, burst.report().checked);
        prop_assert_eq!(one.report().counters, burst.report().counters);
        for flow in 0..2 {
            let (one, burst) = (one.checker(), burst.checker());
            prop_assert_eq!(one.flow_report(flow), burst.flow_report(flow));
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        Checker::default().check(&bytes);
    }

    #[test]
    fn damaged_frames_never_panic(
        changes in proptest::collection::vec((0usize..64, any::<u8>()), 1..5),
        cut in 0usize..65,
    ) {
        let mut frame = numbered(1, 1);
        for (at, value) in changes {
            frame[at] = value;
        }
        let mut checker = Checker::new(CheckerConfig { payload_every: 1, ..Default::default() });
        checker.check(&frame[..cut]);
        checker.check(&frame);
    }
}

#[test]
fn frames_are_judged_in_place_as_they_are_judged_elsewhere() {
    for size in [60, 64, 300] {
        let config = GeneratorConfig { size, ..GeneratorConfig::default() };
        let mut generator = Generator::new(config, monotonic()).unwrap();
        let (mut here, mut there) = (CheckPort::default(), CheckPort::default());
        for n in 0..500 {
            let mut frame = vec![0; size];
            generator.next_into(&mut frame);
            match n {
                // Frame 100 is lost, 127 is damaged in its payload, and 200 in its first bytes.
                100 => continue,
                127 => frame[size - 1] ^= 1,
                200 => frame[50] ^= 0x80,
                _ => {}
            }
            here.check_in_place(frame.len(), |buf| {
                let len = frame.len().min(buf.len());
                buf[..len].copy_from_slice(&frame[..len]);
                len
            });
            there.send(&frame, Offload::default()).unwrap();
        }
        assert_eq!(here.report().checked, there.report().checked, "{size}");
        assert!(here.report().checked.unwrap().total.lost > 0);
        assert_eq!(here.report().counters, there.report().counters);
    }
}

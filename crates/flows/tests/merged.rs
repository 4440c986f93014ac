//! Merged segments give the results of the same segments one by one.

mod talk;

use grantway_flows::{Event, Flows, Limits, Merged, Packet, Ring, Way};
use proptest::prelude::*;
use talk::{Flag, MS, Talk};

/// Bytes of headers of a segment without options, of IPv4 without tags.
const HEADERS: usize = 54;

/// Flows that are given segments one by one, and flows that are given them merged.
struct Both {
    talk: Talk,
    merged: Flows,
}

impl Both {
    fn new() -> Self {
        let mut both = Self { talk: Talk::new(), merged: Flows::new(Limits::default()) };
        both.each(0, 0, 0, Flag::Syn).talk.wait(10);
        both.each(1, 0, 0, Flag::Syn).each(0, 0, 0, Flag::None);
        both
    }

    /// Gives both one segment.
    fn each(&mut self, side: usize, at: u32, payload: usize, flag: Flag) -> &mut Self {
        let frame = self.talk.frame(side, at, payload, flag);
        self.merged.packet(&self.packet(&frame, frame.len()));
        self.talk.send(side, at, payload, flag);
        self
    }

    fn packet<'a>(&self, head: &'a [u8], length: usize) -> Packet<'a> {
        Packet { time: self.talk.now, head, length, point: 0, ring: self.talk.ring }
    }

    /// Gives both a run of segments.
    fn run(&mut self, side: usize, at: u32, sizes: &[usize]) -> &mut Self {
        let payload: usize = sizes.iter().sum();
        let mut whole = self.talk.frame(side, at, sizes[0], Flag::None);
        let length = whole.len() + payload - sizes[0];
        // The length of the IP packet: 0 if it does not fit, as a backend writes it.
        let total = u16::try_from(length - 14).unwrap_or(0);
        whole[16..18].copy_from_slice(&total.to_be_bytes());
        let head = whole.get(..128).unwrap_or(&whole);
        let merged = Merged::new(sizes.len() as u32, sizes[0] as u32).expect("segments");
        self.merged.merged(&self.packet(head, length), merged);
        let mut at = at;
        for &size in sizes {
            self.talk.send(side, at, size, Flag::None);
            at += size as u32;
        }
        self
    }

    /// Checks that both tell the same.
    fn check(&self) {
        let [one, other] = [&self.talk.flows, &self.merged]
            .map(|flows| serde_json::to_value(flows.report()).expect("a report"));
        assert_eq!(one, other);
    }
}

#[test]
fn a_run_counts_as_its_segments() {
    let mut both = Both::new();
    both.run(0, 0, &[1400, 1400, 1400, 100]).talk.wait(10);
    both.talk.acked[1] = 2800;
    both.each(1, 0, 0, Flag::None).check();
    let flow = both.talk.flow();
    let client = &flow.directions[0];
    assert_eq!((client.packets, client.payload_bytes), (6, 4300));
    // Each segment has its headers.
    let handshake = [0, 4, 4].map(|options| (HEADERS + options) as u64);
    let handshake = handshake[1] + 4 + handshake[0];
    assert_eq!(client.bytes, handshake + 4300 + 4 * HEADERS as u64);
    // A half of the run was acknowledged, which is a round trip.
    assert_eq!(client.rtt.expect("round trips").samples, 2);
    assert_eq!(both.merged.report().all.packets, 8);
}

#[test]
fn a_run_that_is_sent_again_counts_each_segment() {
    let mut both = Both::new();
    both.run(0, 0, &[1400; 10]).talk.wait(300);
    // Five of these were sent before, and one is new.
    both.run(0, 7000, &[1400; 6]).check();
    assert_eq!(both.talk.flow().directions[0].retransmissions, 5);
    assert_eq!(both.talk.stalls().len(), 1);
    // Segments were lost before this run.
    both.talk.wait(10);
    both.run(0, 21_000, &[1400; 3]).talk.wait(1);
    both.run(0, 16_800, &[1400; 3]).check();
    assert_eq!(both.talk.flow().directions[0].out_of_order, 3);
}

#[test]
fn a_run_longer_than_an_ip_packet_counts_all_of_it() {
    let mut both = Both::new();
    both.run(0, 0, &[60_000; 5]).check();
    assert_eq!(both.talk.flow().directions[0].payload_bytes, 300_000);
}

#[test]
fn a_comment_that_does_not_fit_changes_nothing() {
    for (segments, size) in [(2, 2000), (3, 500), (4, 334), (2, 499), (400, 2)] {
        let mut talk = Talk::new();
        talk.shake();
        let frame = talk.frame(0, 0, 1000, Flag::None);
        let (time, ring) = (talk.now, talk.ring);
        let packet = Packet { time, head: &frame, length: frame.len(), point: 0, ring };
        talk.flows.merged(&packet, Merged::new(segments, size).expect("segments"));
        assert_eq!(talk.flow().packets, 4, "{segments} of {size}");
    }
    // Neither does one beside the end of a flow.
    let mut talk = Talk::new();
    talk.shake();
    let frame = talk.frame(0, 0, 1000, Flag::Fin);
    let (time, ring) = (talk.now, talk.ring);
    let packet = Packet { time, head: &frame, length: frame.len(), point: 0, ring };
    talk.flows.merged(&packet, Merged::new(2, 500).expect("segments"));
    assert_eq!(talk.flow().packets, 4);
}

#[test]
fn segments_of_flows_that_are_not_followed_count_each() {
    let mut both = Both::new();
    both.merged = Flows::new(Limits { flows: 0, ..Limits::default() });
    both.run(0, 0, &[1400; 3]);
    let report = both.merged.report();
    let count = report.skipped.forgotten;
    assert_eq!((count.packets, count.bytes), (3, 3 * (HEADERS as u64 + 1400)));
    assert_eq!(count, report.all);
}

/// A step of a conversation.
#[derive(Debug, Clone)]
enum Step {
    /// A run of segments of a side, which begins so far from the end of what was sent.
    Run {
        side: usize,
        off: i32,
        size: usize,
        full: usize,
        last: usize,
    },
    /// An acknowledgement of a side, so far before the end of what the other side sent.
    Answer {
        side: usize,
        behind: u32,
    },
    Window {
        side: usize,
        window: u16,
    },
    Wait(u64),
    Ring(Event),
}

fn step() -> impl Strategy<Value = Step> {
    let off = prop_oneof![3 => Just(0), 1 => -4000..4000];
    prop_oneof![
        4 => (0..2usize, off, 2..1500usize, 1..12usize, 1..1500usize).prop_map(
            |(side, off, size, full, last)| Step::Run { side, off, size, full, last: last.min(size) }
        ),
        3 => (0..2usize, prop_oneof![Just(0), 0..5000u32])
            .prop_map(|(side, behind)| Step::Answer { side, behind }),
        1 => (0..2usize, prop_oneof![Just(0), 0..200u16])
            .prop_map(|(side, window)| Step::Window { side, window }),
        2 => prop_oneof![0..5u64, 90..400u64].prop_map(Step::Wait),
        1 => (0..3usize).prop_map(|event| Step::Ring(Event::ALL[event])),
    ]
}

proptest! {
    /// The results are those of the segments one by one, whatever two ends say to each other.
    #[test]
    fn merged_or_not_the_results_are_equal(
        stamps in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut both = Both::new();
        both.talk.stamps = stamps;
        both.talk.ring = Ring { interface: 1, queue: 0, way: Some(Way::Transmit) };
        let mut sent = [20_000_u32; 2];
        for step in steps {
            match step {
                Step::Run { side, off, size, full, last } => {
                    let at = sent[side].saturating_add_signed(off);
                    let sizes = [vec![size; full], vec![last]].concat();
                    let end = at + sizes.iter().sum::<usize>() as u32;
                    both.run(side, at, &sizes);
                    sent[side] = sent[side].max(end);
                }
                Step::Answer { side, behind } => {
                    both.talk.acked[side] = sent[1 - side].saturating_sub(behind);
                    both.each(side, sent[side], 0, Flag::None);
                }
                Step::Window { side, window } => both.talk.windows[side] = window,
                Step::Wait(milliseconds) => both.talk.now += milliseconds * MS,
                Step::Ring(event) => {
                    let (now, ring) = (both.talk.now, both.talk.ring);
                    both.talk.flows.event(now, ring, event);
                    both.merged.event(now, ring, event);
                }
            }
        }
        both.check();
    }
}

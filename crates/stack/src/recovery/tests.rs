//! Segments of a flow, made by hand, and what is repeated to smoltcp for them.

mod hostile;

use super::*;
use alloc::vec;
use grantway_netif::headers;
use smoltcp::wire::{IpAddress, IpEndpoint};

const SIZE: u32 = 1000;
const SYN: u8 = 2;
const ACK: u8 = 0x10;
const FIN: u8 = 1;
const RST: u8 = 4;
const WINDOW_AT: usize = 48;

fn ends(port: u16) -> Ends {
    let end = |number, port| IpEndpoint::new(IpAddress::v4(10, 0, 0, number), port);
    (end(1, port), end(2, 80))
}

/// Returns a frame between 10.0.0.1, of this port, and 10.0.0.2:80, and back if `back`. Its option
/// names so many segments behind the first one that is not acknowledged.
fn frame(
    port: u16,
    back: bool,
    flags: u8,
    numbers: [u32; 2],
    window: u16,
    len: u32,
    behind: u32,
) -> Vec<u8> {
    let options = if behind > 0 { 12 } else { 0 };
    let total = (40 + options + len) as u16;
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 6, 0, 0]);
    let (own, other) = ((1, port), (2, 80));
    let [from, to] = if back { [other, own] } else { [own, other] };
    frame.extend([10, 0, 0, from.0, 10, 0, 0, to.0]);
    frame.extend([from.1, to.1].map(u16::to_be_bytes).concat());
    frame.extend(numbers.map(u32::to_be_bytes).concat());
    frame.extend([(5 + options as u8 / 4) << 4, flags]);
    frame.extend(window.to_be_bytes());
    frame.extend([0; 4]);
    if behind > 0 {
        frame.extend([1, 1, 5, 10]);
        frame.extend(
            [1, 1 + behind]
                .map(|n| numbers[1].wrapping_add(n * SIZE))
                .map(u32::to_be_bytes)
                .concat(),
        );
    }
    frame.extend(vec![0; len as usize]);
    frame
}

/// A sender's recovery, and the time.
struct Talk {
    recovery: Recovery,
    repeats: Repeats,
    now: Instant,
    /// Data that was sent, in segments.
    sent: u32,
    /// The window's field that smoltcp is told.
    told: u16,
}

impl Talk {
    /// Begins a flow whose data begins with number 1, and whose round trips take 40 ms.
    fn new() -> Self {
        let (recovery, repeats) = (Recovery::default(), Repeats::default());
        let mut talk = Self { recovery, repeats, now: Instant::from_secs(5), sent: 0, told: 0 };
        talk.send(&frame(9, false, SYN, [0, 0], 0, 0, 0));
        talk.wait(40);
        talk.receive(&frame(9, true, SYN | ACK, [0, 1], 500, 0, 0));
        talk
    }

    fn send(&mut self, frame: &[u8]) {
        let found = headers::read(frame, frame.len()).unwrap();
        let segment = Segment::read(frame, &found).unwrap();
        self.recovery.sent(&segment, || Said { size: SIZE as u16, time: None }, false, self.now);
    }

    fn receive(&mut self, frame: &[u8]) {
        let found = headers::read(frame, frame.len()).unwrap();
        let segment = Segment::read(frame, &found).unwrap();
        self.told = match self.recovery.received(&segment, frame, WINDOW_AT, self.now) {
            Verdict::Taken(told) => told,
            Verdict::Passed | Verdict::Old(_) => 0,
        };
    }

    /// Sends so many segments.
    fn data(&mut self, segments: u32) {
        for _ in 0..segments {
            self.again(self.sent);
            self.sent += 1;
        }
    }

    /// Sends a segment.
    fn again(&mut self, segment: u32) {
        self.send(&frame(9, false, ACK, [1 + segment * SIZE, 1], 0, SIZE, 0));
    }

    /// Has the other end acknowledge so many segments.
    fn ack(&mut self, segments: u32, window: u16, selective: bool) {
        self.ack_behind(segments, window, u32::from(selective));
    }

    /// Has the other end acknowledge so many segments, and name so many behind the next one.
    fn ack_behind(&mut self, segments: u32, window: u16, behind: u32) {
        self.receive(&frame(9, true, ACK, [1, 1 + segments * SIZE], window, 0, behind));
    }

    /// Has the other end acknowledge so many segments, and say that the last one came twice.
    fn twice(&mut self, segments: u32) {
        let mut twice = frame(9, true, ACK, [1, 1 + segments * SIZE], 500, 0, 1);
        twice[58..62].copy_from_slice(&(1 + (segments - 1) * SIZE).to_be_bytes());
        twice[62..66].copy_from_slice(&(1 + segments * SIZE).to_be_bytes());
        self.receive(&twice);
    }

    fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// Returns the segments that the repeated acknowledgement has, and whether it is for want of one.
    /// Sends that segment again, as smoltcp would.
    fn found(&mut self) -> Option<(u32, bool)> {
        let (found, wanting) = self.recovery.find(self.now, &mut self.repeats)?;
        assert_eq!(found, ends(9));
        let mut windows = Vec::new();
        let mut number = 0;
        while self.repeats.next(&self.recovery) {
            let frame = self.repeats.frame();
            let field = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
            windows.push(field(WINDOW_AT));
            number = u32::from(field(42)) << 16 | u32::from(field(44));
        }
        let last = *windows.last().unwrap();
        assert_eq!(windows, [last - 1, last, last, last, last]);
        let segments = (number - 1) / SIZE;
        self.again(segments);
        Some((segments, wanting))
    }
}

#[test]
fn the_third_selective_acknowledgement_names_a_loss_whatever_its_window() {
    for (selective, expected) in [(true, Some((2, false))), (false, None)] {
        let mut talk = Talk::new();
        talk.data(10);
        talk.ack(2, 500, false);
        for window in [501, 502] {
            talk.ack(2, window, selective);
            assert_eq!(talk.found(), None);
        }
        talk.ack(2, 503, selective);
        // Not at once, since others may only have overtaken it.
        assert_eq!(talk.found(), None);
        talk.wait(10);
        assert_eq!(talk.found(), expected);
        // Once.
        talk.ack(2, 504, selective);
        talk.wait(10);
        assert_eq!(talk.found(), None);
    }
}

#[test]
fn data_of_the_other_end_has_smoltcp_count_anew() {
    let mut talk = Talk::new();
    talk.data(10);
    talk.ack(2, 500, false);
    for n in 0..3 {
        talk.ack(2, 500, true);
        // smoltcp takes what has data, or another window, for news.
        let window = 500 + u16::from(n == 1);
        let len = if n == 1 { 0 } else { 7 };
        talk.receive(&frame(9, true, ACK, [1, 1 + 2 * SIZE], window, len, 0));
        talk.receive(&frame(9, true, ACK, [1, 1 + 2 * SIZE], 500, len, 0));
    }
    talk.ack(2, 500, true);
    talk.wait(10);
    assert_eq!(talk.found(), Some((2, false)));
}

#[test]
fn one_acknowledgement_names_a_loss_if_it_has_more_than_two_segments_behind_it_or_all() {
    // So many segments lie behind the first one, and came.
    for (sent, behind, expected) in
        [(10, 1, None), (10, 2, None), (10, 3, Some((2, false))), (2, 1, Some((2, false)))]
    {
        let mut talk = Talk::new();
        talk.data(2 + sent);
        talk.ack(2, 500, false);
        talk.ack_behind(2, 501, behind);
        assert_eq!(talk.found(), None);
        talk.wait(10);
        assert_eq!(talk.found(), expected, "{behind} of {sent}");
    }
}

#[test]
fn where_segments_overtake_others_smoltcp_counts_no_duplicate_of_one_that_may_come() {
    let mut talk = Talk::new();
    talk.data(10);
    talk.wait(40);
    talk.ack(0, 500, true);
    talk.ack(2, 500, false);
    let mut told = vec![talk.told];
    for _ in 0..5 {
        talk.ack(2, 500, true);
        told.push(talk.told);
    }
    assert_eq!(told, [500, 499, 500, 499, 500, 499]);
    talk.wait(10);
    assert_eq!(talk.found(), Some((2, false)));
    // From then on each lets smoltcp send a further segment.
    for _ in 0..3 {
        talk.ack(2, 500, true);
        assert_eq!(talk.told, 500);
    }
}

#[test]
fn segments_sent_again_in_vain_make_recovery_more_patient() {
    let mut talk = Talk::new();
    for (round, wait) in [(0, 0), (1, 20), (2, 30), (3, 40), (4, 40)] {
        let first = 10 * round;
        talk.data(10);
        talk.wait(40);
        if round == 0 {
            talk.again(5);
            talk.ack(10, 500, false);
            continue;
        }
        talk.twice(first);
        (0..3).for_each(|_| talk.ack(first, 500, true));
        talk.wait(wait - 1);
        assert_eq!(talk.found(), None, "{round}");
        talk.wait(1);
        assert_eq!(talk.found(), Some((first, false)), "{round}");
        talk.ack(first + 10, 500, false);
    }
}

#[test]
fn data_that_came_twice_without_being_sent_again_changes_nothing() {
    let mut talk = Talk::new();
    talk.data(10);
    talk.wait(40);
    talk.ack(10, 500, false);
    // What keeps a connection alive is answered in the same way.
    talk.send(&frame(9, false, ACK, [10 * SIZE, 1], 0, 1, 0));
    for _ in 0..5 {
        talk.twice(10);
    }
    talk.data(10);
    (0..3).for_each(|_| talk.ack(10, 500, true));
    assert_eq!(talk.told, 500, "smoltcp counts");
    let flow = talk.recovery.flows.get_mut(&ends(9)).unwrap();
    assert_eq!((flow.overtaken, flow.patience, flow.resent), (false, 1, 0));
}

#[test]
fn an_acknowledgement_of_a_part_names_the_next_loss() {
    let mut talk = Talk::new();
    talk.data(10);
    talk.ack(2, 500, false);
    // smoltcp counts them.
    (0..3).for_each(|_| talk.ack(2, 500, true));
    assert_eq!((talk.told, talk.found()), (500, None));
    talk.again(2);
    // Sent behind the loss, so not of this one.
    talk.data(5);
    for next in [5, 7] {
        talk.ack(next, 500, true);
        assert_eq!(talk.found(), Some((next, false)));
    }
    talk.ack(10, 500, false);
    assert_eq!(talk.found(), None);
    talk.ack(12, 500, false);
    assert_eq!(talk.found(), None);
}

#[test]
fn a_segment_that_is_lost_again_is_named_by_data_that_was_sent_after_it() {
    let mut talk = Talk::new();
    talk.data(10);
    talk.ack(2, 500, false);
    (0..3).for_each(|_| talk.ack(2, 500, true));
    talk.again(2);
    // All that was under way before says nothing of the second one.
    talk.ack_behind(2, 500, 7);
    assert_eq!(talk.found(), None);
    for _ in 0..3 {
        talk.data(1);
        assert_eq!(talk.found(), None);
        talk.ack_behind(2, 500, talk.sent - 3);
        assert_eq!(talk.found(), Some((2, false)));
        // Once for what was sent after it.
        talk.ack_behind(2, 500, talk.sent - 3);
        assert_eq!(talk.found(), None);
    }
    // Nothing was sent that is named here.
    talk.ack_behind(2, 500, talk.sent - 1);
    assert_eq!(talk.found(), None);
}

#[test]
fn where_segments_overtake_others_a_segment_that_is_lost_again_is_named_later() {
    let mut talk = Talk::new();
    talk.data(10);
    talk.wait(40);
    talk.ack(0, 500, true);
    // It came behind the second one.
    talk.ack(2, 500, false);
    (0..3).for_each(|_| talk.ack(2, 500, true));
    talk.wait(10);
    assert_eq!(talk.found(), Some((2, false)));
    talk.data(1);
    talk.ack_behind(2, 500, 8);
    talk.wait(9);
    assert_eq!(talk.found(), None);
    // Another one that says so does not put it off.
    talk.ack_behind(2, 500, 8);
    talk.wait(1);
    assert_eq!(talk.found(), Some((2, false)));
}

#[test]
fn the_end_of_a_loss_names_the_next_one_if_more_than_two_segments_are_behind_it() {
    for (behind, expected) in [(2, None), (3, Some((10, false)))] {
        let mut talk = Talk::new();
        talk.data(10);
        talk.ack(2, 500, false);
        (0..3).for_each(|_| talk.ack(2, 500, true));
        talk.again(2);
        // Sent behind the loss, and the first one of them is lost.
        talk.data(5);
        talk.ack_behind(10, 500, behind);
        assert_eq!(talk.found(), None);
        talk.wait(10);
        assert_eq!(talk.found(), expected);
    }
    // Where none was lost they may only have overtaken it.
    let mut talk = Talk::new();
    talk.data(15);
    talk.ack_behind(10, 500, 3);
    talk.wait(10);
    assert_eq!(talk.found(), None);
}

#[test]
fn segments_sent_again_behind_the_first_one_were_not_overtaken() {
    for again in [false, true] {
        let mut talk = Talk::new();
        talk.data(10);
        talk.wait(40);
        if again {
            // smoltcp's timer has all sent again.
            (0..3).for_each(|segment| talk.again(segment));
        }
        talk.ack(2, 500, false);
        talk.ack(2, 500, true);
        talk.ack(5, 500, false);
        let flow = talk.recovery.flows.get_mut(&ends(9)).unwrap();
        assert_eq!(flow.overtaken, !again);
    }
}

#[test]
fn where_segments_overtake_others_a_loss_is_named_later() {
    let mut talk = Talk::new();
    talk.data(1);
    talk.wait(40);
    talk.ack(1, 500, false);
    talk.data(10);
    talk.wait(40);
    // Segment 1 comes behind the second one, without being sent again.
    talk.ack(1, 500, true);
    talk.ack(3, 500, false);
    (0..3).for_each(|_| talk.ack(3, 500, true));
    talk.wait(10);
    assert_eq!(talk.found(), Some((3, false)));
    talk.ack(5, 500, true);
    assert_eq!(talk.found(), None);
    // A quarter of a round trip.
    talk.wait(9);
    assert_eq!(talk.found(), None);
    talk.wait(1);
    assert_eq!(talk.found(), Some((5, false)));
    talk.ack(6, 500, true);
    talk.wait(5);
    // It came in time.
    talk.ack(8, 500, true);
    talk.wait(6);
    assert_eq!(talk.found(), None);
}

#[test]
fn data_that_is_not_acknowledged_is_sent_again_twice_and_then_left() {
    let mut talk = Talk::new();
    talk.data(1);
    talk.wait(1);
    talk.ack(1, 500, false);
    talk.data(3);
    for (wait, more) in [(199, 1), (399, 1)] {
        talk.wait(wait);
        assert_eq!(talk.found(), None);
        assert!(talk.recovery.due().unwrap() > talk.now);
        talk.wait(more);
        assert_eq!(talk.found(), Some((1, true)));
    }
    talk.wait(100_000);
    assert_eq!((talk.found(), talk.recovery.due()), (None, None));
    // The next one is counted anew.
    talk.ack(2, 500, false);
    assert_eq!(talk.found(), Some((2, false)), "a part of what was under way");
    talk.wait(200);
    assert_eq!(talk.found(), Some((2, true)));
}

#[test]
fn round_trips_that_are_long_are_waited_for() {
    let mut talk = Talk::new();
    for _ in 0..20 {
        talk.data(1);
        talk.wait(600);
        talk.ack(talk.sent, 500, false);
    }
    talk.data(2);
    talk.wait(599);
    assert_eq!(talk.found(), None);
    talk.wait(400);
    assert_eq!(talk.found(), Some((20, true)));
}

#[test]
fn a_fin_alone_a_closed_window_and_data_of_the_other_end_are_left_to_smoltcp() {
    let begin = || {
        let mut talk = Talk::new();
        talk.data(3);
        talk.ack(2, 500, false);
        talk
    };
    let mut talk = begin();
    talk.ack(3, 500, false);
    talk.send(&frame(9, false, FIN | ACK, [1 + 3 * SIZE, 1], 0, 0, 0));
    talk.ack(3, 500, false);
    talk.wait(10_000);
    assert_eq!(talk.found(), None, "a FIN");
    let mut talk = begin();
    talk.ack(2, 0, false);
    talk.wait(10_000);
    assert_eq!(talk.found(), None, "a closed window");
    let mut talk = begin();
    talk.receive(&frame(9, true, ACK, [1, 1 + 2 * SIZE], 500, SIZE, 0));
    talk.wait(10_000);
    assert_eq!(talk.found(), None, "data");
    let mut talk = begin();
    talk.wait(10_000);
    assert_eq!(talk.found(), Some((2, true)));
}

#[test]
fn many_losses_of_a_window_are_left_to_smoltcp() {
    let mut talk = Talk::new();
    talk.data(2 * NAMED + 20);
    talk.ack(1, 500, false);
    (0..3).for_each(|_| talk.ack(1, 500, true));
    talk.again(1);
    let named = (1..=NAMED + 5).filter(|n| {
        talk.ack(1 + 2 * n, 500, true);
        talk.found().is_some()
    });
    assert_eq!(named.count() as u32, NAMED);
    talk.wait(10_000);
    assert_eq!(talk.found(), None);
    // The next window is another one.
    talk.ack(2 * NAMED + 20, 500, false);
    talk.data(1);
    talk.wait(10_000);
    assert_eq!(talk.found(), Some((2 * NAMED + 20, true)));
}

#[test]
fn flows_are_bounded_and_the_quiet_one_goes() {
    let mut talk = Talk::new();
    for port in 1000..3000 {
        talk.now += Duration::from_millis(1);
        talk.send(&frame(port, false, SYN, [0, 0], 0, 0, 0));
        assert!(talk.recovery.flows.values().count() <= FLOWS);
    }
    assert!(!talk.recovery.flows.contains(&ends(9)));
    assert!(talk.recovery.flows.contains(&ends(2999)));
    // A reset ends one.
    talk.receive(&frame(2999, true, RST | ACK, [1, 1], 0, 0, 0));
    assert!(!talk.recovery.flows.contains(&ends(2999)));
}

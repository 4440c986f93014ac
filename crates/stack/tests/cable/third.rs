//! Segments of a third host, made by hand, and what a host answers.

use super::*;
use grantway_stack::FlowState;

/// Port of the third host's flow.
pub const OWN: u16 = 7;

/// Returns a segment of a third host, by the numbers and flags of its header.
pub fn segment(
    port: u16,
    [sequence, acknowledged]: [u32; 2],
    flags: u8,
    options: &[u8],
    payload: &[u8],
) -> Frame {
    let mut bytes = vec![0, 0x16, 0x3e, 0, 0, 1, 0, 0x16, 0x3e, 0, 0, 9, 8, 0];
    let length = (40 + options.len() + payload.len()) as u16;
    bytes.extend([0x45, 0]);
    bytes.extend(length.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 9, 10, 0, 0, 1]);
    bytes.extend(port.to_be_bytes());
    bytes.extend(PORT.to_be_bytes());
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(acknowledged.to_be_bytes());
    bytes.extend([(5 + options.len() as u8 / 4) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend([options, payload].concat());
    // smoltcp looks at the header's own checksum.
    let sum: u32 = bytes[14..34].chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(b[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    Frame { bytes, offload: Offload { checksum: Checksum::Partial, gso: None } }
}

/// Returns a SYN of a third host that accepts segments of `size`.
pub fn syn(port: u16, size: u16) -> Frame {
    let [high, low] = size.to_be_bytes();
    segment(port, [1, 0], 2, &[2, 4, high, low], &[])
}

/// Has a host listen with a window, and be called by the third one with these options. Returns its socket,
/// and the number that it begins with.
pub fn greet(
    one: &mut Host,
    there: &RefCell<Way>,
    window: usize,
    options: &[u8],
) -> (SocketHandle, u32) {
    let called = one.socket(window);
    one.get(called).listen(PORT).unwrap();
    let back = Rc::clone(&one.device.link().unwrap().back);
    // Our host asks for the third one's address, and knows it once it is told.
    let mut known = vec![0, 0x16, 0x3e, 0, 0, 1, 0, 0x16, 0x3e, 0, 0, 9];
    known.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2, 0, 0x16, 0x3e, 0, 0, 9, 10, 0, 0, 9]);
    known.extend([0, 0x16, 0x3e, 0, 0, 1, 10, 0, 0, 1]);
    back.borrow_mut().under_way.push_back(segment(OWN, [1, 0], 2, options, &[]));
    one.receive(Instant::ZERO);
    one.send(Instant::ZERO);
    back.borrow_mut().under_way.push_back(Frame { bytes: known, offload: Offload::default() });
    one.receive(Instant::from_millis(1));
    one.send(Instant::from_secs(4));
    let answer = there.borrow().passed.iter().rfind(|frame| frame.bytes[13] == 0).cloned();
    let answer = answer.expect("a SYN that is answered").bytes;
    (called, u32::from_be_bytes(answer[38..42].try_into().unwrap()).wrapping_add(1))
}

/// Returns the option of times, aligned, with the own time and 0.
pub fn times(own: u32) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &own.to_be_bytes(), &[0; 4]].concat()
}

/// Gives a host a frame, and returns the number and the options of its acknowledgement, if it answers at
/// once.
fn answer(one: &mut Host, there: &RefCell<Way>, frame: Frame) -> Option<(u32, Vec<u8>)> {
    let before = there.borrow().passed.len();
    let back = Rc::clone(&one.device.link().unwrap().back);
    back.borrow_mut().under_way.push_back(frame);
    one.receive(Instant::from_millis(5000));
    let way = there.borrow();
    let bytes = &way.passed.get(before)?.bytes;
    assert_eq!(way.passed.len(), before + 1);
    let found = headers::read(bytes, bytes.len()).unwrap();
    assert_eq!((found.header_end, found.end), (bytes.len(), bytes.len()), "no payload");
    let number = u32::from_be_bytes(bytes[42..46].try_into().unwrap());
    Some((number, bytes[54..].to_vec()))
}

#[test]
fn an_acknowledgement_names_what_came_behind_a_hole_and_what_came_twice_and_answers_a_time() {
    // With times there is room for three ranges, and without them for four.
    for (selective, timed) in [(true, true), (true, false), (false, true), (false, false)] {
        let (mut one, _other, there) = cable(ALL, 256);
        let mut options = vec![2, 4, 5, 180, 1, 3, 3, 7];
        options.extend(if selective { [4, 2, 1, 1].as_slice() } else { &[] });
        options.extend(if timed { times(10) } else { vec![] });
        let (called, number) = greet(&mut one, &there, 60_000, &options);
        // Segments as blocks of 500 bytes, their time, and the answer: the number, the time that it
        // answers, and the ranges.
        type Said<'a> = (u32, u32, &'a [(u32, u32)]);
        let steps: [(u32, u32, u32, Option<Said<'_>>); 9] = [
            (2, 1, 20, Some((0, 10, &[(2, 3)]))),
            (4, 1, 21, Some((0, 10, &[(4, 5), (2, 3)]))),
            (6, 1, 22, Some((0, 10, &[(6, 7), (4, 5), (2, 3)]))),
            // Once more: the part, and then the whole.
            (4, 1, 23, Some((0, 10, &[(4, 5), (4, 5), (6, 7), (2, 3)]))),
            // The hole is filled by the segment that was overtaken.
            (0, 2, 15, Some((3, 15, &[(4, 5), (6, 7)]))),
            // And by the one that was sent again, of which a part came before.
            (0, 2, 24, Some((3, 15, &[(0, 2), (4, 5), (6, 7)]))),
            (2, 2, 25, Some((5, 25, &[(2, 3), (6, 7)]))),
            (5, 1, 26, Some((7, 26, &[]))),
            // Nothing is behind a hole any more, so this waits.
            (7, 1, 27, None),
        ];
        for (at, blocks, time, expected) in steps {
            let payload = vec![7; 500 * blocks as usize];
            let own = if timed { times(time) } else { vec![] };
            let frame = segment(OWN, [2 + 500 * at, number], 16, &own, &payload);
            let found = answer(&mut one, &there, frame);
            let place = |block: u32| 2 + 500 * block;
            let expected = expected.map(|(acknowledged, answered, ranges)| {
                let mut options = vec![];
                if timed {
                    options.extend([1, 1, 8, 10]);
                    options.extend([5000, answered].map(u32::to_be_bytes).concat());
                }
                let ranges = &ranges[..ranges.len().min(if timed { 3 } else { 4 })];
                if selective && !ranges.is_empty() {
                    options.extend([1, 1, 5, 2 + 8 * ranges.len() as u8]);
                    for &(left, right) in ranges {
                        options.extend([left, right].map(place).map(u32::to_be_bytes).concat());
                    }
                }
                (place(acknowledged), options)
            });
            assert_eq!(found, expected, "{at}: {selective}, {timed}");
        }
        assert_eq!(one.get(called).recv_queue(), 8 * 500);
        // What is sent by itself says its time, too.
        one.send(Instant::from_millis(5001));
        let last = there.borrow().passed.last().unwrap().bytes.clone();
        assert_eq!(last.len(), if timed { 66 } else { 54 });
        if timed {
            assert_eq!(last[58..66], [5001_u32, 27].map(u32::to_be_bytes).concat());
        }
    }
}

/// A host that the third one called, whose flow is logged, and which has sent it 20 segments of 1,000 bytes.
struct Sender {
    one: Host,
    there: Rc<RefCell<Way>>,
    /// The first number of the host's data.
    number: u32,
    state: Option<FlowState>,
}

impl Sender {
    fn new() -> Self {
        let (mut one, _other, there) = cable(ALL, 256);
        one.congestion = CongestionControl::None;
        one.device.log_flows(true);
        let options = [2, 4, 3, 232, 1, 3, 3, 2];
        let (called, number) = greet(&mut one, &there, 60_000, &options);
        let mut sender = Self { one, there, number, state: None };
        sender.give(segment(OWN, [2, number], 16, &[], &[]));
        assert_eq!(sender.one.get(called).send_slice(&[7; 20_000]), Ok(20_000));
        sender.one.send(Instant::from_secs(6));
        sender.give(segment(OWN, [2, number + 1000], 16, &[], &[]));
        sender
    }

    /// Gives the host a frame. Returns the state of its flow, if the log has a new one.
    fn give(&mut self, frame: Frame) -> Option<FlowState> {
        let back = Rc::clone(&self.one.device.link().unwrap().back);
        back.borrow_mut().under_way.push_back(frame);
        self.one.receive(Instant::from_secs(6));
        let mut moved = None;
        self.one.device.flow_states(|_| None, &mut |state| moved = Some(*state));
        self.state = moved.or(self.state);
        moved
    }

    /// Returns an acknowledgement of so many bytes.
    fn ack(&self, bytes: u32) -> Frame {
        segment(OWN, [2, self.number + bytes], 16, &[], &[])
    }

    /// Returns the payload that the host has sent.
    fn sent(&self) -> usize {
        segments(&self.there).iter().map(|(payload, _)| payload).sum()
    }
}

#[test]
fn forged_segments_change_nothing_that_the_log_says_of_a_flow() {
    let mut sender = Sender::new();
    let number = sender.number;
    let state = sender.state.unwrap();
    assert_eq!((state.sent, state.acked, state.window), (20_000, 1000, 4 * 65_535));
    let shifted = [2, 4, 3, 232, 1, 3, 3, 14];
    let forged = [
        // What was never sent, and less than was acknowledged.
        segment(OWN, [2, number + 20_001], 16, &[], &[]),
        segment(OWN, [2, number.wrapping_sub(1 << 30)], 16, &[], &[]),
        segment(OWN, [2, number + 999], 16, &[], &[]),
        // Numbers beside the window, with data and without.
        segment(OWN, [1, number + 2000], 16, &[], &[]),
        segment(OWN, [1 << 30, number + 2000], 16, &[], &[]),
        segment(OWN, [1 << 30, number + 2000], 16, &[], &[9; 100]),
        // No acknowledgement, and SYNs that tell another shift.
        segment(OWN, [2, number + 2000], 0, &[], &[]),
        segment(OWN, [2, number + 2000], 18, &shifted, &[]),
        segment(OWN, [70, 0], 2, &shifted, &[]),
    ];
    for (n, frame) in forged.into_iter().enumerate() {
        // An answer may tell what was known.
        assert_eq!(sender.give(frame).unwrap_or(state), state, "{n}");
    }
    let frame = sender.ack(3000);
    let after = sender.give(frame).unwrap();
    assert_eq!(after, FlowState { acked: 3000, in_flight: 17_000, rtt: after.rtt, ..state });
}

#[test]
fn the_padding_of_a_short_frame_is_no_data_and_a_tagged_frame_is_no_segment() {
    let mut sender = Sender::new();
    let sent = sender.sent();
    for step in 0..3 {
        let mut frame = sender.ack(1000);
        let mut tagged = frame.clone();
        tagged.bytes.splice(12..12, [0x81, 0, 0, 5]);
        // smoltcp reads no tags.
        let before = sender.one.device.due();
        sender.give(tagged);
        assert_eq!((sender.sent(), sender.one.device.due()), (sent, before));
        // Ethernet's shortest frame, behind whose packet anything may lie.
        frame.bytes.resize(60, 0xff);
        let state = sender.give(frame);
        sender.one.send(Instant::from_secs(6));
        // Nor does anything count what is tagged.
        let state = state.unwrap();
        assert_eq!((state.duplicate_acks, state.window), (step + 1, 4 * 65_535));
    }
    // The third one that repeats another has the first segment sent again.
    assert_eq!(sender.sent(), sent + 1000);
    // Padded ones are repeated without their padding, for want of an answer.
    let mut frame = sender.ack(2000);
    frame.bytes.resize(60, 0xff);
    let state = sender.give(frame).unwrap();
    assert_eq!((state.acked, state.fast, state.again), (2000, 1, 1));
    let later = Instant::from_secs(60);
    assert!(sender.one.device.due().is_some_and(|due| due < later));
    sender.one.receive(later);
    sender.one.send(later);
    assert_eq!(sender.sent(), sent + 2000);
}

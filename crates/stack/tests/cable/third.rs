//! Segments of a third host, made by hand, and what a host answers.

use super::*;

/// Port of the third host's flow.
const OWN: u16 = 7;

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
fn times(own: u32) -> Vec<u8> {
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

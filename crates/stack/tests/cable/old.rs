//! Segments of a third host that a path kept until their numbers came round, and such that only look so.

use super::*;
use third::{OWN, greet, segment, times};

/// A host that the third one called by a SYN with time 1000, and that has taken 1,000 bytes with time 1300.
struct Taker {
    one: Host,
    there: Rc<RefCell<Way>>,
    called: SocketHandle,
    /// The first number of the host's data.
    number: u32,
    now: Instant,
}

const ACK: u8 = 16;
const RST: u8 = 4;
const FIN: u8 = 1;

impl Taker {
    fn new() -> Self {
        let (mut one, _other, there) = cable(ALL, 256);
        let options = [&[2, 4, 5, 180, 1, 3, 3, 7], times(1000).as_slice()].concat();
        let (called, number) = greet(&mut one, &there, 60_000, &options);
        let now = Instant::from_secs(5);
        let mut taker = Self { one, there, called, number, now };
        for (at, time) in [(0, 1100), (500, 1200), (1000, 1300)] {
            taker.now += Duration::from_millis(100);
            taker.data(at, time);
        }
        assert_eq!(taker.got(), 1500);
        taker
    }

    /// Gives the host a segment. Returns the numbers of acknowledgements that it sends at once or later.
    fn give(&mut self, frame: Frame) -> Vec<u32> {
        let before = self.there.borrow().passed.len();
        let back = Rc::clone(&self.one.device.link().unwrap().back);
        back.borrow_mut().under_way.push_back(frame);
        self.one.receive(self.now);
        self.one.send(self.now + Duration::from_millis(20));
        let way = self.there.borrow();
        let number = |frame: &Frame| u32::from_be_bytes(frame.bytes[42..46].try_into().unwrap());
        way.passed[before..].iter().map(number).collect()
    }

    fn data(&mut self, at: u32, time: u32) -> Vec<u32> {
        self.give(segment(OWN, [2 + at, self.number], ACK, &times(time), &[7; 500]))
    }

    fn got(&mut self) -> usize {
        self.one.get(self.called).recv_queue()
    }

    fn old(&self) -> u64 {
        self.one.device.stats().rx_old
    }
}

#[test]
fn a_segment_whose_numbers_came_round_is_acknowledged_and_not_taken() {
    let mut taker = Taker::new();
    taker.now += Duration::from_millis(100);
    // In its place, behind a hole, across the left edge, and with a FIN.
    for (n, at) in [1500, 5000, 1200, 1500].into_iter().enumerate() {
        let flags = if n == 3 { ACK | FIN } else { ACK };
        let old = segment(OWN, [2 + at, taker.number], flags, &times(1299), &[9; 500]);
        assert_eq!(taker.give(old), [2 + 1500], "{n}");
        assert_eq!((taker.got(), taker.old()), (1500, n as u64 + 1));
    }
    assert!(taker.one.get(taker.called).may_recv(), "no FIN");
    // An acknowledgement, which changes nothing of the window either.
    let mut old = segment(OWN, [2 + 1500, taker.number], ACK, &times(1299), &[]);
    old.bytes[48..50].copy_from_slice(&[0, 0]);
    taker.give(old);
    assert_eq!(taker.old(), 5);
    assert_eq!(taker.one.get(taker.called).send_slice(&[7; 100]), Ok(100));
    let now = taker.now + Duration::from_millis(100);
    taker.one.send(now);
    assert!(segments(&taker.there).iter().any(|(payload, _)| *payload == 100));
    // The real one.
    taker.data(1500, 1400);
    let bytes = taker.one.get(taker.called).recv(|bytes| (bytes.len(), bytes.to_vec())).unwrap();
    assert_eq!(bytes, [7; 2000]);
}

#[test]
fn a_segment_that_was_overtaken_by_later_ones_is_taken() {
    let mut taker = Taker::new();
    // The one that is sent again comes before others that were sent 90 ms earlier.
    taker.data(1500, 1399);
    taker.now += Duration::from_millis(70);
    taker.data(2000, 1310);
    taker.data(2500, 1311);
    assert_eq!((taker.got(), taker.old()), (3000, 0));
    taker.now += Duration::from_millis(200);
    taker.data(3000, 1398);
    assert_eq!((taker.got(), taker.old()), (3000, 1));
    taker.data(3000, 1399);
    assert_eq!((taker.got(), taker.old()), (3500, 1));
}

#[test]
fn an_old_reset_ends_a_flow_and_one_beside_the_window_does_not() {
    let mut taker = Taker::new();
    taker.now += Duration::from_millis(100);
    taker.give(segment(OWN, [1, taker.number], RST | ACK, &times(1), &[]));
    assert!(taker.one.get(taker.called).is_active());
    taker.give(segment(OWN, [2 + 1500, taker.number], RST | ACK, &times(1), &[]));
    assert!(!taker.one.get(taker.called).is_active());
    assert_eq!(taker.old(), 0);
}

#[test]
fn a_stranger_does_not_move_the_time_and_segments_without_times_are_taken() {
    let mut taker = Taker::new();
    let number = taker.number;
    let later = times(1300 + (1 << 30));
    let mut came = 0;
    for _ in 0..3 {
        taker.now += Duration::from_millis(100);
        for forged in [
            // Below the window, beyond it, and behind a hole of it.
            segment(OWN, [1, number], ACK, &later, &[]),
            segment(OWN, [2 + 100, number], ACK, &later, &[9; 100]),
            segment(OWN, [2 + 100_000, number], ACK, &later, &[9; 100]),
            segment(OWN, [2 + 40_000, number], ACK, &later, &[]),
            // In its place, but with the number of an acknowledgement that cannot be, or of none.
            segment(OWN, [2 + 1500 + came, number + 1], ACK, &later, &[9; 100]),
            segment(OWN, [2 + 1500 + came, number.wrapping_sub(1)], ACK, &later, &[9; 100]),
            segment(OWN, [2 + 1500 + came, number], 0, &later, &[9; 100]),
            segment(OWN, [2 + 1500 + came, 0], 2, &later, &[]),
        ] {
            taker.give(forged);
        }
        assert_eq!(taker.data(1500 + came, 1400 + came), [2 + 2000 + came]);
        came += 500;
    }
    assert_eq!((taker.got(), taker.old()), (3000, 0));
    taker.give(segment(OWN, [2 + 3000, number], ACK, &[], &[7; 500]));
    assert_eq!((taker.got(), taker.old()), (3500, 0));
}

#[test]
fn after_24_days_of_silence_any_time_is_taken() {
    for (days, taken) in [(23, false), (24, true)] {
        let mut taker = Taker::new();
        let socket = taker.one.get(taker.called);
        socket.set_timeout(None);
        taker.now += Duration::from_secs(days * 24 * 60 * 60);
        let time = 1300_u32.wrapping_add(1 << 31) + 10;
        taker.data(1500, time);
        assert_eq!((taker.got() == 2000, taker.old() == 0), (taken, taken), "{days} days");
        // From then on it counts.
        taker.now += Duration::from_millis(100);
        taker.data(2000, time - 1);
        assert_eq!(taker.old(), if taken { 1 } else { 2 });
    }
}

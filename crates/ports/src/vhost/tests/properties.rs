//! Both sides work in any order: nothing is lost, nothing comes twice or out of order, and neither
//! side sleeps while the other waits for it.

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::VecDeque;

use super::device::Kernel;
use crate::port::RECV_BUFFER;
use crate::vhost::device::Rings;

/// A step of one side.
#[derive(Debug, Clone)]
enum Step {
    /// The driver sends frames of this length, as far as there is room.
    Send { frames: usize, len: usize, pieces: usize },
    /// The driver ends a burst.
    Show,
    /// The kernel takes so many frames.
    Take(usize),
    /// The kernel has so many further frames of this length to give.
    Give { frames: usize, len: usize },
    /// The driver receives so many frames.
    Receive(usize),
    /// The driver waits, if there is nothing to do for it.
    Wait,
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 14usize..200,
        2 => 1400usize..1600,
        2 => 4000usize..4200,
        1 => 14..=RECV_BUFFER,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1usize..300, length(), 1usize..5).prop_map(|(frames, len, pieces)| Step::Send {
            frames,
            len,
            pieces
        }),
        Just(Step::Show),
        (1usize..400).prop_map(Step::Take),
        (1usize..100, length()).prop_map(|(frames, len)| Step::Give { frames, len }),
        (1usize..100).prop_map(Step::Receive),
        Just(Step::Wait),
    ]
}

/// Returns the frame of a number.
fn frame(number: u64, len: usize) -> Vec<u8> {
    let mut frame = vec![(number * 37) as u8; len];
    frame[..8].copy_from_slice(&number.to_le_bytes());
    frame
}

/// Both sides, and what is under way between them.
struct Play {
    rings: Rings,
    kernel: Kernel,
    buf: Vec<u8>,
    numbers: u64,
    sent: VecDeque<Vec<u8>>,
    to_give: VecDeque<Vec<u8>>,
    given: VecDeque<Vec<u8>>,
    /// Calls that the driver has seen, if it waits for another one.
    waits: Option<usize>,
}

impl Play {
    fn new() -> Self {
        let rings = Rings::new().unwrap();
        let kernel = Kernel::new(&rings);
        let (sent, to_give, given) = Default::default();
        let buf = vec![0; RECV_BUFFER];
        Self { rings, kernel, buf, numbers: 0, sent, to_give, given, waits: None }
    }

    fn calls(&self) -> usize {
        self.kernel.transmit.calls + self.kernel.receive.calls
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn send(&mut self, len: usize, pieces: usize) -> bool {
        let number = self.number();
        let frame = frame(number, len);
        let parts: Vec<&[u8]> = frame.chunks(len.div_ceil(pieces)).collect();
        let taken = match pieces {
            1 => self.rings.transmit.send([0; 10], &frame),
            _ => self.rings.transmit.send_pieces([0; 10], &parts),
        };
        let taken = taken.unwrap();
        if taken {
            self.sent.push_back(frame);
        }
        taken
    }

    fn take(&mut self, most: usize) {
        for frame in self.kernel.take(most) {
            assert!(self.sent.pop_front().as_ref() == Some(&frame));
        }
    }

    fn give(&mut self) {
        while let Some(frame) = self.to_give.front()
            && self.kernel.give(frame)
        {
            self.given.extend(self.to_give.pop_front());
        }
    }

    /// Receives at most `most` frames. Returns false if there are no more.
    fn receive(&mut self, most: usize) -> bool {
        for _ in 0..most {
            let Some(received) = self.rings.receive.recv(&mut self.buf).unwrap() else {
                self.rings.receive.show().unwrap();
                return false;
            };
            assert!(self.given.pop_front().as_deref() == Some(&self.buf[..received.len]));
            if self.rings.receive.is_behind() {
                self.rings.receive.show().unwrap();
            }
        }
        true
    }

    /// Has the driver wait as the port's owner does: it asks for both events, and looks again.
    fn wait(&mut self) {
        self.rings.transmit.show().unwrap();
        if self.receive(usize::MAX) {
            return;
        }
        let seen = self.calls();
        self.rings.transmit.arm();
        self.rings.receive.arm();
        self.waits = (!self.rings.receive.has_frame().unwrap()).then_some(seen);
    }

    fn perform(&mut self, step: Step) {
        // One that waits does nothing until it is called.
        let is_awake = self.waits.is_none_or(|seen| self.calls() > seen);
        match step {
            Step::Take(most) => return self.take(most),
            Step::Give { frames, len } => {
                for _ in 0..frames {
                    let number = self.number();
                    self.to_give.push_back(frame(number, len));
                }
                return self.give();
            }
            _ if !is_awake => return,
            _ => self.waits = None,
        }
        match step {
            Step::Send { frames, len, pieces } => {
                for _ in 0..frames {
                    if !self.send(len, pieces) {
                        break;
                    }
                }
            }
            Step::Show => self.rings.transmit.show().unwrap(),
            Step::Receive(most) => drop(self.receive(most)),
            _ => self.wait(),
        }
    }

    /// Lets both work as long as each is woken.
    fn end(&mut self) {
        self.perform(Step::Wait);
        for _ in 0..10_000 {
            let before = (self.sent.len(), self.to_give.len(), self.given.len(), self.waits);
            self.take(7);
            self.give();
            self.perform(Step::Wait);
            let after = (self.sent.len(), self.to_give.len(), self.given.len(), self.waits);
            if before == after {
                break;
            }
        }
        assert!(self.sent.is_empty(), "{} frames were not taken", self.sent.len());
        assert!(self.to_give.is_empty(), "{} frames found no buffers", self.to_give.len());
        assert!(self.given.is_empty(), "{} frames were not received", self.given.len());
        // Nobody is left to say that there is room.
        assert!(!self.rings.transmit.is_full().unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn each_frame_crosses_once_and_in_order(steps in vec(step(), 1..60)) {
        let mut play = Play::new();
        for step in steps {
            play.perform(step);
        }
        play.end();
    }
}

#[test]
fn an_owner_that_waits_for_room_is_woken_when_there_is_room() {
    for len in [60, 1514, 9000, RECV_BUFFER] {
        let mut play = Play::new();
        for _ in 0..200 {
            while !play.rings.transmit.is_full().unwrap() {
                assert!(play.send(len, 1));
            }
            play.rings.transmit.show().unwrap();
            let mut looks = 0;
            while play.rings.transmit.is_full().unwrap() {
                let seen = play.calls();
                play.rings.transmit.arm();
                if play.rings.transmit.is_full().unwrap() {
                    while play.calls() == seen {
                        assert!(!play.sent.is_empty(), "not called, and nothing is left");
                        play.take(1);
                    }
                    looks += 1;
                }
            }
            // It is not called for each frame.
            assert!(looks <= 4, "{looks} looks for frames of {len} bytes");
        }
    }
}

//! Test frames that are made and checked in the vif's own pages.
//!
//! A generator writes its frames where the backend reads them. A checker reads frames where the
//! backend wrote them, and the port `null` skips them there. `grantway-bench --api lend` measures
//! this way. Frames of all other ports are copied.

use super::bursts::Bursts;
use super::{Carry, Ends, Trouble};
use grantway_frontend::{SendError, TxMeta};
use grantway_netif::Offload;
use grantway_ports::{BURST, CheckPort, Generator, Null, Port};
use std::any::Any;

/// Numbers of the frames of a burst.
const NUMBERS: [u8; BURST] = {
    let mut numbers = [0; BURST];
    let mut n = 0;
    while n < BURST {
        numbers[n] = n as u8;
        n += 1;
    }
    numbers
};

/// The way of frames in place for generators, checkers and `null`, and by copy for other ports.
pub(super) struct InPlace {
    others: Bursts,
    /// True while a new frame waits for room on the ring.
    stuck: bool,
}

impl InPlace {
    /// Returns a way that uses `others` for all other ports.
    pub(super) fn new(others: Bursts) -> Self {
        Self { others, stuck: false }
    }
}

/// Returns the port as a `P`, if it is one.
fn downcast<P: Port>(port: &mut dyn Port) -> Option<&mut P> {
    (port as &mut dyn Any).downcast_mut()
}

impl Carry for InPlace {
    fn transmit(&mut self, ends: &mut Ends) -> Result<bool, Trouble> {
        let short = ends.port.caps().short;
        let Some(generator) = downcast::<Generator>(ends.port.as_mut()).filter(|_| short) else {
            return self.others.transmit(ends);
        };
        // The frames are written directly into the slots' buffers.
        let queue = &mut ends.queue;
        let run = generator.run(BURST);
        let numbers = NUMBERS.get(..run.frames()).unwrap_or(&NUMBERS);
        let meta = TxMeta { len: run.size(), offload: Offload::default() };
        let mut made = 0;
        while made < numbers.len() {
            let (sent, why_not) = queue.lend_burst(
                &numbers[made..],
                |_| meta,
                |&number, _, mut room| {
                    run.write(number.into(), |at, bytes| {
                        // The room is as long as the frame.
                        let _ = room.write(at, bytes);
                    });
                },
            );
            made += sent;
            match why_not {
                None => {}
                // The rest waits if no slot came back.
                Some(SendError::Full) => {
                    queue.flush()?;
                    if queue.reap()? == 0 {
                        break;
                    }
                }
                Some(_) => {
                    ends.tally.drops.tx_length += 1;
                    made += 1;
                }
            }
        }
        // Frames without room are made in the next turn.
        self.stuck = made < numbers.len();
        generator.made_in_place(made);
        if made > 0 {
            queue.count_turn();
            queue.flush()?;
        }
        Ok(made > 0)
    }

    fn receive(&mut self, ends: &mut Ends) -> Result<bool, Trouble> {
        let Ends { queue, port, .. } = ends;
        let moved = if let Some(checker) = downcast::<CheckPort>(port.as_mut()) {
            queue.recv_lent_burst(|frame| {
                checker.check_in_place(frame.len(), |buf| frame.copy_to(buf));
            })?
        } else if let Some(null) = downcast::<Null>(port.as_mut()) {
            queue.recv_lent_burst(|frame| null.pass_over(frame.len()))?
        } else {
            return self.others.receive(ends);
        };
        if moved > 0 {
            ends.queue.count_turn();
            ends.queue.repost()?;
        }
        Ok(moved > 0)
    }

    fn is_waiting(&self) -> bool {
        self.stuck || self.others.is_waiting()
    }

    fn forget_waiting(&mut self) {
        self.stuck = false;
        self.others.forget_waiting();
    }
}

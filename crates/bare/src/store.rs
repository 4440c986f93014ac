//! The guest's way to the store: a page of two rings, and an event channel.

use crate::clock::Clock;
use crate::events::{Events, Set};
use crate::println;
use crate::sys::hypercall::{self, events};
use crate::sys::memory;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{Ordering::SeqCst, fence};
use core::time::Duration;
use grantway_hypervisor::Port;
use grantway_ring::SharedPage;
use grantway_xenstore::{Ready, Transport, TransportError};

/// The guest's parameters for its store (`HVM_PARAM_STORE_PFN`, `_EVTCHN`).
const PARAMETERS: [u32; 2] = [1, 2];
/// Bytes of a ring (`XENSTORE_RING_SIZE`), and offsets of the two rings and of their indices.
const RING: u32 = 1024;
const REQUESTS: Ring = Ring { bytes: 0, read: 2048, written: 2052 };
const ANSWERS: Ring = Ring { bytes: 1024, read: 2056, written: 2060 };

/// Longest time that one wait counts for: a guest that was paused has not waited all the time.
const A_WAIT: Duration = Duration::from_secs(2);
/// Time after which the console shows that the store does not answer.
const SHOWN: Duration = Duration::from_secs(10);
/// Time after which the store is given up. A store that is started anew, or a host that starts
/// hundreds of guests, takes minutes. The guest does nothing else meanwhile, so it is better ended
/// then, for its toolstack to see.
const PATIENCE: Duration = Duration::from_secs(600);

/// Places of a ring in the page.
struct Ring {
    bytes: usize,
    read: usize,
    written: usize,
}

/// The page: a peer may have written anything to it.
struct Rings(SharedPage);

impl Rings {
    fn word(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        let _ = self.0.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// Returns the bytes that the ring holds: none may be more than there is room for.
    fn held(&self, ring: &Ring) -> Result<u32, TransportError> {
        let held = self.word(ring.written).wrapping_sub(self.word(ring.read));
        if held > RING { Err(TransportError::Closed) } else { Ok(held) }
    }

    fn is_ready(&self, ready: Ready) -> bool {
        // A ring that is broken is seen by the next call.
        match ready {
            Ready::Read => self.held(&ANSWERS) != Ok(0),
            Ready::Write => self.held(&REQUESTS) != Ok(RING),
        }
    }

    /// Takes bytes of answers.
    fn read(&self, bytes: &mut [u8]) -> Result<usize, TransportError> {
        let held = self.held(&ANSWERS)? as usize;
        if held == 0 {
            return Err(TransportError::NotReady);
        }
        // What is read was written before the index.
        fence(SeqCst);
        let read = self.word(ANSWERS.read);
        let first = (read % RING) as usize;
        let count = held.min(bytes.len()).min(RING as usize - first);
        let _ = self.0.read(ANSWERS.bytes + first, &mut bytes[..count]);
        fence(SeqCst);
        let _ = self.0.write_word(ANSWERS.read, read.wrapping_add(count as u32));
        Ok(count)
    }

    /// Gives bytes of a request.
    fn write(&self, bytes: &[u8]) -> Result<usize, TransportError> {
        let room = (RING - self.held(&REQUESTS)?) as usize;
        if room == 0 {
            return Err(TransportError::NotReady);
        }
        let written = self.word(REQUESTS.written);
        let first = (written % RING) as usize;
        let count = room.min(bytes.len()).min(RING as usize - first);
        let _ = self.0.write(REQUESTS.bytes + first, &bytes[..count]);
        fence(SeqCst);
        let _ = self.0.write_word(REQUESTS.written, written.wrapping_add(count as u32));
        Ok(count)
    }
}

/// The page, and its event channel. A guest has one.
pub(crate) struct StorePage {
    rings: Rings,
    port: Port,
    events: Arc<Events>,
    /// The set of event channels that has the port and nothing else.
    set: Set,
    clock: Clock,
}

impl StorePage {
    /// Finds the page; none if the toolstack set none up.
    pub fn new(clock: Clock, events: Arc<Events>) -> Option<Self> {
        let [frame, port] = PARAMETERS.map(hypercall::parameter);
        let (page, port) = (memory::toolstack_page(frame?)?, Port(port? as u32));
        let set = events.set();
        let rings = Rings(page);
        events.adopt(set, port).then_some(Self { rings, port, events, set, clock })
    }
}

impl Transport for StorePage {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, TransportError> {
        let count = self.rings.read(bytes)?;
        events::send(self.port);
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, TransportError> {
        let count = self.rings.write(bytes)?;
        events::send(self.port);
        Ok(count)
    }

    fn wait(&mut self, ready: Ready, block: bool) -> Result<bool, TransportError> {
        let mut fired = Vec::new();
        let (mut last, mut waited, mut shown) = (self.clock.now(), Duration::ZERO, false);
        loop {
            // Forgotten before the look, so that what comes after it wakes.
            self.events.take(self.set, &mut fired);
            if self.rings.is_ready(ready) {
                return Ok(true);
            }
            if !block {
                return Ok(false);
            }
            let now = self.clock.now();
            waited += now.saturating_sub(core::mem::replace(&mut last, now)).min(A_WAIT);
            if waited >= PATIENCE {
                return Err(TransportError::Failed(format!("no answer in {} s", waited.as_secs())));
            }
            if waited >= SHOWN && !shown {
                shown = true;
                println!(
                    "grantway: the store does not answer; waiting for up to {} s",
                    PATIENCE.as_secs()
                );
            }
            self.events.wait_for(self.set);
        }
    }

    fn pause(&mut self, time: Duration) {
        self.events.pause(self.clock.now().saturating_add(time));
    }
}

#[cfg(test)]
mod tests;

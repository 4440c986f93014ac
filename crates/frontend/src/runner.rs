//! Runners of a vif's queues: one thread, or many.

use crate::queue::Queue;
use crate::receive::Received;
use crate::stats::QueueStats;
use crate::vif::Vif;
use crate::{SendError, VifError};
use alloc::vec::Vec;
use grantway_netif::Offload;
use grantway_netif::flow::{flow_hash, queue_of};

/// Runs the queues of a vif while it is connected.
///
/// Each [`Queue`] has everything that a thread needs to use it. If a queue finds a fault of the
/// backend, the error must go to [`Vif::fail`], which closes the vif.
pub trait Runner {
    /// Takes the queues of a new connection, in the order of their numbers. Frames may cross now.
    fn start(&mut self, queues: Vec<Queue>);

    /// Returns the queues at once, because the connection ends.
    fn stop(&mut self) -> Vec<Queue>;
}

/// Frames received from one queue before the next queue gets its turn.
const BURST: u32 = 64;

/// The queues of a vif, run by the thread that has the vif.
#[derive(Default)]
pub struct Here {
    queues: Vec<Queue>,
    /// The queue that is received from, and the number of frames that it had in this turn.
    turn: usize,
    taken: u32,
}

impl Runner for Here {
    fn start(&mut self, queues: Vec<Queue>) {
        *self = Self { queues, turn: 0, taken: 0 };
    }

    fn stop(&mut self) -> Vec<Queue> {
        core::mem::take(&mut self.queues)
    }
}

impl Here {
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        let number = match self.queues.len() {
            0 | 1 => 0,
            many => queue_of(flow_hash(frame), many),
        };
        let queue = self.queues.get_mut(number).ok_or(SendError::Full)?;
        queue.send(frame, offload)
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<Option<Received>, VifError> {
        // One look more than there are queues: the first may only have ended its turn.
        for _ in 0..=self.queues.len() {
            let Some(queue) = self.queues.get_mut(self.turn) else { break };
            if self.taken < BURST
                && let Some(received) = queue.recv(buf)?
            {
                self.taken += 1;
                return Ok(Some(received));
            }
            self.taken = 0;
            self.turn = (self.turn + 1) % self.queues.len();
        }
        Ok(None)
    }

    /// Runs one step on each queue.
    fn each(
        &mut self,
        step: impl FnMut(&mut Queue) -> Result<(), VifError>,
    ) -> Result<(), VifError> {
        self.queues.iter_mut().try_for_each(step)
    }
}

/// Calls for one thread that has all queues of a vif. While the vif is not connected, it has no
/// queues: nothing is sent or received.
///
/// If the backend breaks the protocol, the vif is closed and becomes
/// [`Held`](crate::VifStatus::Held).
/// [`Vif::take_failure`] returns the reason.
impl Vif<Here> {
    /// Queues a frame, on the queue of its flow. The frame leaves with the next [`Vif::flush`].
    ///
    /// # Errors
    ///
    /// [`SendError`]. A vif that is not connected returns [`SendError::Full`].
    pub fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        self.runner.send(frame, offload)
    }

    /// Publishes the queued frames, and signals the backend if it asked for a signal.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn flush(&mut self) -> Result<(), VifError> {
        self.runner.each(Queue::flush)
    }

    /// Takes in transmit completions, and returns the number of buffers that came back. Call this
    /// after [`SendError::Full`], or after an event.
    ///
    /// # Errors
    ///
    /// The platform or the store is gone.
    pub fn reap(&mut self) -> Result<usize, VifError> {
        let mut reaped = 0;
        let done = self.runner.each(|queue| {
            reaped += queue.reap()?;
            Ok(())
        });
        self.judge(done)?;
        Ok(reaped)
    }

    /// Copies the next frame to `buf`, from each queue in turn. A frame that is longer than `buf`
    /// is dropped and counted. Returns `None` if there is no frame.
    ///
    /// # Errors
    ///
    /// The platform or the store is gone.
    pub fn recv(&mut self, buf: &mut [u8]) -> Result<Option<Received>, VifError> {
        let received = self.runner.recv(buf);
        self.judge(received).map(Option::flatten)
    }

    /// Posts the pages that [`Vif::recv`] emptied, if there are enough of them, and signals the
    /// backend if it asked for a signal.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn repost(&mut self) -> Result<(), VifError> {
        self.runner.each(Queue::repost)
    }

    /// Looks for the last time before a wait, as [`Queue::arm`] does. Returns true if the caller
    /// must not wait, because a queue or the store has something new.
    ///
    /// # Errors
    ///
    /// The platform or the store is gone.
    pub fn arm(&mut self) -> Result<bool, VifError> {
        let mut there = false;
        let done = self.runner.each(|queue| {
            there |= queue.arm()?;
            Ok(())
        });
        self.judge(done)?;
        // Arming may change the pages that are worth staging, and the backend is asked for that now.
        self.take_answers()?;
        Ok(there || self.has_changes())
    }

    /// Takes in signals, and answers of the control ring, without waiting. Returns true if a queue
    /// was signalled.
    ///
    /// # Errors
    ///
    /// The platform or the store is gone.
    pub fn take_events(&mut self) -> Result<bool, VifError> {
        self.take_answers()?;
        let mut taken = false;
        self.runner.each(|queue| {
            taken |= queue.take_events()?;
            Ok(())
        })?;
        Ok(taken)
    }

    /// Returns the queues, for calls to one of them.
    pub fn queues(&mut self) -> &mut [Queue] {
        &mut self.runner.queues
    }

    /// Returns the descriptors of the event channels: one per queue, and the control ring's. The
    /// store has its own. None are returned if the platform has no descriptors.
    #[cfg(feature = "std")]
    pub fn event_descriptors(&self) -> impl Iterator<Item = std::os::fd::BorrowedFd<'_>> {
        let control = self.control().and_then(|control| control.descriptor());
        self.runner.queues.iter().filter_map(Queue::descriptor).chain(control)
    }

    /// Returns the vif's counters since it was opened, over all its connections.
    #[must_use]
    pub fn stats(&self) -> QueueStats {
        let mut sum = self.past_stats();
        for queue in &self.runner.queues {
            sum.add(queue.stats());
        }
        sum
    }

    fn judge<T>(&mut self, done: Result<T, VifError>) -> Result<Option<T>, VifError> {
        match done {
            Ok(value) => Ok(Some(value)),
            Err(error) => self.fail(error).map(|()| None),
        }
    }
}

//! Who runs a vif's queues: one thread, or many.

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
/// Each [`Queue`] has all that a thread needs to use it. What it finds the
/// backend doing wrong is told to [`Vif::fail`], which closes the vif.
pub trait Runner {
    /// Takes the queues of a new connection, in order: frames may cross.
    fn start(&mut self, queues: Vec<Queue>);

    /// Hands them back, at once: the connection ends.
    fn stop(&mut self) -> Vec<Queue>;
}

/// Frames received from one queue before the next gets its turn.
const BURST: u32 = 64;

/// The queues of a vif that the thread which has the vif runs itself.
#[derive(Default)]
pub struct Here {
    queues: Vec<Queue>,
    /// Whose turn it is to be received from, and how many it gave in this one.
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
        // Once more than there are: the first may only have had its turn.
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

    /// One step on each queue.
    fn each(
        &mut self,
        step: impl FnMut(&mut Queue) -> Result<(), VifError>,
    ) -> Result<(), VifError> {
        self.queues.iter_mut().try_for_each(step)
    }
}

/// What one thread does with all queues of a vif. While it is not connected
/// there are none: nothing is sent, and nothing comes.
///
/// A backend that breaks the protocol has the vif closed and held, and the
/// reason is in [`Vif::take_failure`].
impl Vif<Here> {
    /// Queues a frame, if the backend takes what it asks, on the queue that its
    /// flow keeps to. It goes out with the next [`Vif::flush`].
    ///
    /// # Errors
    ///
    /// [`SendError`]; [`SendError::Full`] also while not connected.
    pub fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        self.runner.send(frame, offload)
    }

    /// Shows the backend what was queued, and signals it where it asked.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn flush(&mut self) -> Result<(), VifError> {
        self.runner.each(Queue::flush)
    }

    /// Takes transmit completions in; returns how many pages came back. For
    /// when [`Vif::send`] gave [`SendError::Full`], or on an event.
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

    /// Receives a frame, from each queue in its turn.
    ///
    /// # Errors
    ///
    /// The platform or the store is gone.
    pub fn recv(&mut self, buf: &mut [u8]) -> Result<Option<Received>, VifError> {
        let received = self.runner.recv(buf);
        self.judge(received).map(Option::flatten)
    }

    /// Posts pages that [`Vif::recv`] emptied, where enough are, and signals
    /// the backend where it asked.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn repost(&mut self) -> Result<(), VifError> {
        self.runner.each(Queue::repost)
    }

    /// The last look before sleeping: see [`Queue::arm`]. True when something
    /// is there already, in a queue or in the store: do not sleep.
    ///
    /// # Errors
    ///
    /// The platform or the store is gone.
    pub fn arm(&mut self) -> Result<bool, VifError> {
        let mut there = self.has_changes();
        let done = self.runner.each(|queue| {
            there |= queue.arm()?;
            Ok(())
        });
        self.judge(done)?;
        Ok(there)
    }

    /// Takes signals in without blocking, and answers of the control ring; true
    /// when there was a signal for a queue.
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

    /// The queues, for what is done with one of them.
    pub fn queues(&mut self) -> &mut [Queue] {
        &mut self.runner.queues
    }

    /// The descriptors of the event channels, one a queue and the control ring's,
    /// to wait on beside the store's.
    #[cfg(feature = "std")]
    pub fn event_descriptors(&self) -> impl Iterator<Item = std::os::fd::BorrowedFd<'_>> {
        let control = self.control().map(|control| control.descriptor());
        self.runner.queues.iter().map(Queue::descriptor).chain(control)
    }

    /// The vif's counters since it was opened, over all its connections.
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

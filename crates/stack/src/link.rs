//! The interface between the stack and a queue.

use grantway_frontend::{BackendFeatures, Queue, Received, SendError, VifError};
use grantway_netif::Offload;

/// A path for frames: a queue of a vif, or a cable of a test.
pub trait Link {
    /// Returns the features that the other end offers.
    fn features(&self) -> BackendFeatures;

    /// Queues a frame. It leaves with the next [`Link::flush`].
    ///
    /// # Errors
    ///
    /// [`SendError`]. Nothing was queued then.
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError>;

    /// Publishes the queued frames to the other end.
    ///
    /// # Errors
    ///
    /// The link cannot be used any longer.
    fn flush(&mut self) -> Result<(), VifError>;

    /// Takes back buffers that the other end no longer uses. Returns their number.
    ///
    /// # Errors
    ///
    /// The link cannot be used any longer.
    fn reap(&mut self) -> Result<usize, VifError>;

    /// Copies a burst of frames to `arena`, and calls `took` with the start of each. Returns the
    /// number of frames: 0 if the arena has no room for a frame of 65,535 bytes.
    ///
    /// # Errors
    ///
    /// The link cannot be used any longer.
    fn recv_burst(
        &mut self,
        arena: &mut [u8],
        took: &mut dyn FnMut(usize, Received),
    ) -> Result<usize, VifError>;
}

impl Link for Queue {
    fn features(&self) -> BackendFeatures {
        Queue::features(self)
    }

    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        Queue::send(self, frame, offload)
    }

    fn flush(&mut self) -> Result<(), VifError> {
        Queue::flush(self)
    }

    fn reap(&mut self) -> Result<usize, VifError> {
        Queue::reap(self)
    }

    fn recv_burst(
        &mut self,
        arena: &mut [u8],
        took: &mut dyn FnMut(usize, Received),
    ) -> Result<usize, VifError> {
        Queue::recv_burst(self, arena, took)
    }
}

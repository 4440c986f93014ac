//! What frames cross by.

use grantway_frontend::{BackendFeatures, Queue, Received, SendError, VifError};
use grantway_netif::Offload;

/// What frames cross by: a queue of a vif, or whatever stands for one in a test.
pub trait Link {
    /// What the other end offers to do.
    fn features(&self) -> BackendFeatures;

    /// Takes a frame, which goes out with the next [`Link::flush`].
    ///
    /// # Errors
    ///
    /// [`SendError`]; nothing was taken then.
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError>;

    /// Shows the other end what was taken.
    ///
    /// # Errors
    ///
    /// The link is of no more use.
    fn flush(&mut self) -> Result<(), VifError>;

    /// Takes room back that the other end is done with; how many buffers.
    ///
    /// # Errors
    ///
    /// The link is of no more use.
    fn reap(&mut self) -> Result<usize, VifError>;

    /// Copies a burst of frames to `arena` and tells `took` where each begins; how many:
    /// none where the arena has no room for a frame of 65,535 bytes.
    ///
    /// # Errors
    ///
    /// The link is of no more use.
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

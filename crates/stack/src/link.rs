//! The link that frames cross by.

use grantway_frontend::{BackendFeatures, Queue, Received, SendError, VifError};
use grantway_netif::Offload;

/// The link that frames cross by: a queue of a vif, or a test's own.
pub trait Link {
    /// Returns the features that the other end offers.
    fn features(&self) -> BackendFeatures;

    /// Takes a frame, which goes out with the next [`Link::flush`].
    ///
    /// # Errors
    ///
    /// [`SendError`]. No frame was taken then.
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError>;

    /// Shows the other end the frames that were taken.
    ///
    /// # Errors
    ///
    /// The link cannot be used any more.
    fn flush(&mut self) -> Result<(), VifError>;

    /// Takes room back that the other end is done with. Returns the number of buffers.
    ///
    /// # Errors
    ///
    /// The link cannot be used any more.
    fn reap(&mut self) -> Result<usize, VifError>;

    /// Copies a burst of frames to `arena`, and tells `took` the start of each. Returns the number
    /// of frames, which is 0 if the arena has no room for a frame of 65,535 bytes.
    ///
    /// # Errors
    ///
    /// The link cannot be used any more.
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

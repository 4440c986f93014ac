//! Checksums and segmentation in software, for frames whose checksum or segmentation was left to a
//! network card.
//!
//! Some receivers accept only the frames of a wire: a capture file, or a guest without the offload.
//! A frame may come from a hostile guest. So a frame that cannot be finished gives a
//! [`DropReason`](crate::DropReason), and the work is bounded by [`MAX_PACKET`] and
//! [`MAX_SEGMENTS`].

mod checksum;
mod segment;

#[cfg(feature = "std")]
pub(crate) use checksum::finish_at;
pub use checksum::{begin_checksum, begin_checksum_at, finish_checksum};
#[cfg(feature = "std")]
pub(crate) use segment::check_gso;
pub use segment::{MAX_PACKET, MAX_SEGMENTS, SegmentChecksum, Segments};

#[cfg(all(test, feature = "std"))]
pub(crate) mod tests;

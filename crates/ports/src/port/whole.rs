//! Frames that are sent as one copy, by ports that need all of a frame in one piece.

use super::{DropReason, Port, SendError};
use crate::split::SplitFrame;
use grantway_netif::Offload;

/// Sends a copy of the frame, for a port that looks at all of it.
pub(crate) fn send_gathered(
    port: &mut (impl Port + ?Sized),
    frame: &SplitFrame<'_>,
    offload: Offload,
    room: &mut [u8],
) -> Result<(), SendError> {
    match frame.gather(room) {
        Some(whole) => port.send(whole, offload),
        None => Err(SendError::Dropped(DropReason::TooLong)),
    }
}

/// Sends a copy of a frame that lies in pieces, for a port that needs it in one piece.
pub(crate) fn send_joined(
    port: &mut (impl Port + ?Sized),
    pieces: &[&[u8]],
    offload: Offload,
    room: &mut [u8],
) -> Result<(), SendError> {
    let mut len = 0;
    for piece in pieces {
        let Some(part) = room.get_mut(len..len + piece.len()) else {
            return Err(SendError::Dropped(DropReason::TooLong));
        };
        part.copy_from_slice(piece);
        len += piece.len();
    }
    port.send(&room[..len], offload)
}

//! Large frames that a port writes to the pages from which the vif sends them.

use super::{Ends, HEAD, Trouble};
use grantway_frontend::{SendError, TxMeta, VolatileSliceMut};
use grantway_ports::{BURST, FrameMeta, Port, PortError, SplitMeta, SplitRoom};

/// Longest frame that is copied, in bytes. A page does not pay for shorter ones.
const COPIED: usize = 2048;

/// The way of large frames. The length of a frame is known only after it was read. So each frame is
/// expected to be as large as the one before it.
#[derive(Debug, Default)]
pub(super) struct Intake {
    /// True if the last frame was large.
    large: bool,
    /// True while the port may have a frame for which the ring has no room.
    stuck: bool,
}

impl Intake {
    /// Returns true if the next frame is expected to be large.
    pub fn expects_large(&self) -> bool {
        self.large
    }

    /// Notes the last frame.
    pub fn saw(&mut self, meta: FrameMeta) {
        self.large = meta.offload.gso.is_some() && meta.len > COPIED;
    }

    /// Returns true while a frame of the port may wait for room on the ring.
    pub fn is_waiting(&self) -> bool {
        self.stuck
    }

    /// Forgets that a frame may wait for room.
    pub fn forget_waiting(&mut self) {
        self.stuck = false;
    }

    /// Moves at most a burst from the port to the vif, up to the first frame that is not large.
    /// Returns true if a frame moved. `buf` is private memory for a frame.
    pub fn turn(&mut self, ends: &mut Ends, buf: &mut [u8]) -> Result<bool, Trouble> {
        let (mut moved, mut taken) = (0, 0);
        self.stuck = false;
        while self.large && taken < BURST {
            let (queue, port) = (&mut ends.queue, ends.port.as_mut());
            let (given, sent) = match queue.lend_room(|pages| give(port, buf, pages)) {
                Ok(filled) => filled,
                Err(_) => {
                    queue.flush()?;
                    if queue.reap()? == 0 {
                        self.stuck = true;
                        break;
                    }
                    continue;
                }
            };
            let Some(meta) = given? else { break };
            self.saw(meta);
            taken += 1;
            match sent {
                Ok(_) => {
                    if self.large {
                        ends.tally.in_pages.tx_frames += 1;
                        ends.tally.in_pages.tx_bytes += meta.len as u64;
                    }
                    // The backend takes it meanwhile.
                    queue.flush()?;
                    moved += 1;
                }
                Err(SendError::NotOffered { .. }) => ends.tally.drops.tx_not_offered += 1,
                Err(_) => ends.tally.drops.tx_length += 1,
            }
        }
        if moved > 0 {
            ends.queue.count_turn();
        }
        Ok(moved > 0)
    }
}

/// Result of reading the port: a frame, no frame, or an error.
type Given = Result<Option<FrameMeta>, PortError>;

/// Calls the port to write a frame to these pages. Returns the frame for the vif, and for the
/// caller.
fn give(
    port: &mut dyn Port,
    buf: &mut [u8],
    pages: &mut [VolatileSliceMut<'_>],
) -> (Option<TxMeta>, Given) {
    let mut room = SplitRoom::new(HEAD);
    for (number, page) in pages.iter_mut().enumerate() {
        room.push(page.behind(if number == 0 { HEAD } else { 0 }));
    }
    let received = port.recv_split(buf, &mut room);
    drop(room);
    match received {
        Ok(Some(SplitMeta { meta, private })) => {
            let mut bytes = buf.get(..private).unwrap_or_default();
            for page in pages {
                let (part, behind) = bytes.split_at(page.len().min(bytes.len()));
                // The part is no longer than the page.
                let _ = page.write(0, part);
                bytes = behind;
            }
            (Some(TxMeta { len: meta.len, offload: meta.offload }), Ok(Some(meta)))
        }
        Ok(None) => (None, Ok(None)),
        Err(error) => (None, Err(error)),
    }
}

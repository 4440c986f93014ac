//! Frames that smoltcp made, on their way to the link.

use crate::dhcp::Pace;
use crate::link::Link;
use crate::sizes::{payload, tell};
use crate::stats::DeviceStats;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use grantway_frontend::{BackendFeatures, SendError, VifError};
use grantway_netif::headers::{Family, Headers, Protocol};
use grantway_netif::{Checksum, Gso, GsoKind, Offload};
use grantway_ports::ETHERNET_HEADER;
use grantway_ports::finish::{SegmentChecksum, Segments, finish_checksum};
use smoltcp::time::Instant;

/// Most frames that wait for room. With more, no frame is received.
const WAITING: usize = 256;

/// A frame that found no room.
struct Waiting {
    bytes: Vec<u8>,
    offload: Offload,
}

/// Frames that found no room, in order.
#[derive(Default)]
pub(crate) struct Outgoing {
    waiting: VecDeque<Waiting>,
    dhcp: Pace,
}

impl Outgoing {
    /// Returns true if no frame waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns true if so many frames wait that none may be received, since its answer would have
    /// to wait, too.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING
    }

    /// Drops the waiting frames, since there is no link for them.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Sends waiting frames by the link, as long as it has room. Returns true if one was sent. A
    /// frame that the link refuses is dropped and counted, and does not stop the others.
    pub fn drain<L: Link>(
        &mut self,
        link: &mut L,
        stats: &mut DeviceStats,
    ) -> Result<bool, VifError> {
        let before = self.waiting.len();
        while let Some(frame) = self.waiting.front() {
            match give(link, &frame.bytes, frame.offload)? {
                Err(SendError::Full) => break,
                Ok(()) => {}
                Err(_) => stats.tx_too_long += 1,
            }
            self.waiting.pop_front();
        }
        Ok(self.waiting.len() < before)
    }

    /// Sends a frame of the stack, for a vif of this MTU. The frame may have to wait. If the frame
    /// is TCP or UDP, `found` has its headers, and its checksum was begun. If it has TCP payload,
    /// `accepts` is the number of bytes that the other end accepts in a segment, without options.
    pub fn send<L: Link>(
        &mut self,
        frame: &mut [u8],
        found: Option<Headers>,
        link: &mut L,
        (accepts, mtu): (u16, usize),
        now: Instant,
        stats: &mut DeviceStats,
    ) -> Result<(), VifError> {
        stats.tx_frames += 1;
        let Some(found) = found else {
            return self.send_plain(frame, Offload::default(), link, mtu, stats);
        };
        if !self.dhcp.allows(frame, &found, now) {
            stats.tx_dhcp_held += 1;
            return Ok(());
        }
        if found.protocol != Protocol::Tcp {
            let checksum = finish(frame, &found, link.features());
            return self.send_plain(frame, Offload { checksum, gso: None }, link, mtu, stats);
        }
        // Each segment is to be as long as the other end accepts, and a longer frame is cut.
        tell(frame, &found, mtu);
        let size = payload(accepts, &found, mtu);
        let bytes = found.end - found.header_end;
        if bytes == 0 || bytes <= usize::from(size) {
            let checksum = finish(frame, &found, link.features());
            return self.put(frame, Offload { checksum, gso: None }, link, stats);
        }
        let (kind, offered) = match found.family {
            Family::V4 => (GsoKind::Tcpv4, link.features().gso_tcpv4),
            Family::V6 => (GsoKind::Tcpv6, link.features().gso_tcpv6),
        };
        let gso = Gso { kind, size };
        if offered {
            stats.tx_large += 1;
            let offload = Offload { checksum: Checksum::Partial, gso: Some(gso) };
            return self.put(frame, offload, link, stats);
        }
        self.cut(frame, gso, fills_in(&found, link.features()), link, stats)
    }

    /// Cuts a large frame and sends its segments.
    fn cut<L: Link>(
        &mut self,
        frame: &[u8],
        gso: Gso,
        fills_in: bool,
        link: &mut L,
        stats: &mut DeviceStats,
    ) -> Result<(), VifError> {
        let checksum = if fills_in { SegmentChecksum::Partial } else { SegmentChecksum::Whole };
        let Ok(mut segments) = Segments::new(frame, gso, checksum) else {
            stats.tx_too_long += 1;
            return Ok(());
        };
        let mut segment = vec![0; segments.longest()];
        while let Ok(Some(meta)) = segments.next_into(&mut segment) {
            stats.tx_cut += 1;
            self.put(&segment[..meta.len], meta.offload, link, stats)?;
        }
        Ok(())
    }

    /// Sends a frame that is not cut.
    fn send_plain<L: Link>(
        &mut self,
        frame: &[u8],
        offload: Offload,
        link: &mut L,
        mtu: usize,
        stats: &mut DeviceStats,
    ) -> Result<(), VifError> {
        if frame.len() > mtu + ETHERNET_HEADER {
            stats.tx_too_long += 1;
            return Ok(());
        }
        self.put(frame, offload, link, stats)
    }

    /// Sends a frame by the link, behind all frames that wait.
    fn put<L: Link>(
        &mut self,
        frame: &[u8],
        offload: Offload,
        link: &mut L,
        stats: &mut DeviceStats,
    ) -> Result<(), VifError> {
        if self.waiting.is_empty() {
            match give(link, frame, offload)? {
                Ok(()) => return Ok(()),
                Err(SendError::Full) => {}
                Err(_) => {
                    stats.tx_too_long += 1;
                    return Ok(());
                }
            }
        }
        stats.tx_waited += 1;
        self.waiting.push_back(Waiting { bytes: frame.to_vec(), offload });
        Ok(())
    }
}

/// Sends a frame by the link. Tries a second time if buffers came back.
fn give<L: Link>(
    link: &mut L,
    frame: &[u8],
    offload: Offload,
) -> Result<Result<(), SendError>, VifError> {
    match link.send(frame, offload) {
        Err(SendError::Full) => {
            link.flush()?;
            match link.reap()? {
                0 => Ok(Err(SendError::Full)),
                _ => Ok(link.send(frame, offload)),
            }
        }
        other => Ok(other),
    }
}

/// Leaves a checksum blank if the backend fills in checksums, or finishes it.
fn finish(frame: &mut [u8], found: &Headers, features: BackendFeatures) -> Checksum {
    if fills_in(found, features) {
        return Checksum::Partial;
    }
    // The headers were found before, so this does not fail.
    match finish_checksum(frame) {
        Ok(()) => Checksum::Complete,
        Err(_) => Checksum::Unknown,
    }
}

/// Returns true if the backend fills in blank checksums.
fn fills_in(found: &Headers, features: BackendFeatures) -> bool {
    match found.family {
        Family::V4 => features.checksum_ipv4,
        Family::V6 => features.checksum_ipv6,
    }
}

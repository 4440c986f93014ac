//! The header beside a frame of a TAP or a packet socket, `struct virtio_net_hdr`
//! (`linux/virtio_net.h`): little-endian, 10 bytes, and its meaning in netif's words.

use grantway_netif::headers::{self, Headers};
use grantway_netif::{Checksum, Gso, GsoKind, Offload};

use crate::offloads::TapOffloads;
use crate::{
    finish::{check_gso, finish_at},
    frame::DropReason,
};

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// The header beside each frame.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct VnetHeader {
    pub(super) flags: u8,
    pub(super) gso_type: u8,
    pub(super) hdr_len: u16,
    pub(super) gso_size: u16,
    pub(super) csum_start: u16,
    pub(super) csum_offset: u16,
}

impl VnetHeader {
    /// Length in bytes.
    pub(super) const LEN: usize = 10;

    pub(super) fn encode(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[0] = self.flags;
        out[1] = self.gso_type;
        let words = [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset];
        for (field, word) in out[2..].chunks_exact_mut(2).zip(words) {
            field.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    pub(super) fn decode(bytes: [u8; Self::LEN]) -> VnetHeader {
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        VnetHeader {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        }
    }

    /// Moves all offsets by `bytes` bytes, which were inserted behind the addresses of the frame.
    pub(super) fn move_by(&mut self, bytes: u16) -> Result<(), DropReason> {
        for offset in [&mut self.hdr_len, &mut self.csum_start] {
            *offset = offset.checked_add(bytes).ok_or(DropReason::TooLong)?;
        }
        Ok(())
    }

    /// Returns true for segments or datagrams that were merged on the way, with checksums that were
    /// checked.
    pub(super) fn is_merged_and_complete(&self) -> bool {
        let is_merged = matches!(self.gso_type & !GSO_ECN, GSO_TCPV4 | GSO_TCPV6 | GSO_UDP_L4);
        is_merged && self.flags & (NEEDS_CSUM | DATA_VALID) == DATA_VALID
    }

    /// Marks the checksum behind these headers as unfinished.
    pub(super) fn begin(&mut self, found: &Headers) -> Result<(), DropReason> {
        self.flags = NEEDS_CSUM;
        self.csum_start = narrow(found.start)?;
        self.csum_offset = narrow(found.protocol.checksum_offset())?;
        Ok(())
    }
}

/// Most segments that the kernel is given to cut one frame into: as many as the longest has of
/// Linux's smallest segment (48 bytes). It takes about a millisecond for them, and the thread that
/// gives it the frame waits.
const SEGMENTS_MAX: usize = 65_535 / 48;

/// Returns the header for a frame on its way to the kernel, and the number of bytes to write. An
/// unfinished checksum covers all bytes that are written, so padding behind the IP packet is left
/// out.
///
/// `head` has the first bytes of the frame of `len` bytes. Only those are read.
pub(super) fn outgoing(
    head: &[u8],
    len: usize,
    offload: Offload,
) -> Result<(VnetHeader, usize), DropReason> {
    if offload.gso.is_some() && offload.checksum != Checksum::Partial {
        return Err(DropReason::GsoNotPartial);
    }
    let mut header = VnetHeader::default();
    match offload.checksum {
        Checksum::Unknown => return Ok((header, len)),
        Checksum::Complete => {
            header.flags = DATA_VALID;
            return Ok((header, len));
        }
        Checksum::Partial => {}
    }
    let found = headers::read(head, len)?;
    header.flags = NEEDS_CSUM;
    header.csum_start = narrow(found.start)?;
    header.csum_offset = narrow(found.protocol.checksum_offset())?;
    header.hdr_len = narrow(found.header_end)?;
    if let Some(gso) = offload.gso {
        check_gso(gso, &found)?;
        let payload = found.end.saturating_sub(found.header_end);
        if payload.div_ceil(gso.size.into()) > SEGMENTS_MAX {
            return Err(DropReason::GsoTooMany);
        }
        header.gso_type = match gso.kind {
            GsoKind::Tcpv4 => GSO_TCPV4,
            GsoKind::Tcpv6 => GSO_TCPV6,
            GsoKind::Udp => GSO_UDP_L4,
        };
        if found.cwr {
            header.gso_type |= GSO_ECN;
        }
        header.gso_size = gso.size;
    }
    Ok((header, found.end))
}

/// A frame from the kernel, judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) offload: Offload,
    /// True if the checksum was finished here.
    pub(super) finished: bool,
}

/// A frame from the kernel, judged by its header and its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judged {
    /// The frame needs no work.
    Ready(Offload),
    /// The checksum of the bytes from `start` on is to be finished, `offset` bytes behind that.
    Unfinished { start: usize, offset: usize },
}

/// Judges a frame from the kernel, and returns its state in netif's words.
///
/// netif can only say that the outermost transport checksum is unfinished. An inner checksum (of a
/// tunnel of the host) is finished here. So is any checksum while the frontend does not accept
/// unfinished ones.
pub(super) fn incoming(
    header: VnetHeader,
    frame: &mut [u8],
    offloads: TapOffloads,
) -> Result<Arrival, DropReason> {
    match judge(header, frame, frame.len(), offloads)? {
        Judged::Ready(offload) => Ok(Arrival { offload, finished: false }),
        Judged::Unfinished { start, offset } => {
            finish_at(frame, start, offset)?;
            let offload = Offload { checksum: Checksum::Complete, gso: None };
            Ok(Arrival { offload, finished: true })
        }
    }
}

/// Judges a frame of `len` bytes from the kernel by its first bytes.
pub(super) fn judge(
    header: VnetHeader,
    head: &[u8],
    len: usize,
    offloads: TapOffloads,
) -> Result<Judged, DropReason> {
    // Segmentation of a kind that is known here.
    let kind = match (header.gso_type & !GSO_ECN, header.gso_type & GSO_ECN) {
        (GSO_NONE, _) => None,
        (GSO_TCPV4, _) => Some(GsoKind::Tcpv4),
        (GSO_TCPV6, _) => Some(GsoKind::Tcpv6),
        (GSO_UDP_L4, 0) => Some(GsoKind::Udp),
        _ => return Err(DropReason::GsoUnknown),
    };
    let gso = kind.map(|kind| Gso { kind, size: header.gso_size });
    // The checksum is not unfinished, so there is nothing to finish and nothing to cut.
    if header.flags & NEEDS_CSUM == 0 {
        if gso.is_some() {
            return Err(DropReason::GsoNotPartial);
        }
        let valid = header.flags & DATA_VALID != 0;
        let checksum = if valid { Checksum::Complete } else { Checksum::Unknown };
        return Ok(Judged::Ready(Offload { checksum, gso: None }));
    }
    // The outermost checksum, if it is the unfinished one.
    let (start, offset) = (usize::from(header.csum_start), usize::from(header.csum_offset));
    let outermost = headers::read(head, len)
        .ok()
        .filter(|found| found.start == start && found.protocol.checksum_offset() == offset);
    // Large frames go on only if the frontend accepts them, and if the headers agree.
    if let Some(gso) = gso {
        let wanted = match gso.kind {
            GsoKind::Tcpv4 => offloads.tso4,
            GsoKind::Tcpv6 => offloads.tso6,
            GsoKind::Udp => offloads.uso,
        };
        if !wanted {
            return Err(DropReason::GsoNotWanted);
        }
        let other = match gso.kind {
            GsoKind::Udp => DropReason::GsoNotUdp,
            GsoKind::Tcpv4 | GsoKind::Tcpv6 => DropReason::GsoNotTcp,
        };
        check_gso(gso, &outermost.ok_or(other)?)?;
    }
    // The frontend finishes the checksum, or it is finished here.
    if offloads.checksum && outermost.is_some() {
        return Ok(Judged::Ready(Offload { checksum: Checksum::Partial, gso }));
    }
    Ok(Judged::Unfinished { start, offset })
}

fn narrow(n: usize) -> Result<u16, DropReason> {
    u16::try_from(n).map_err(|_| DropReason::TooLong)
}

#[cfg(test)]
mod tests;

//! Where the packets of a guest go: a port, or the bridge.

use crate::VifError;
use crate::policy::Buffers;
use crate::state::stats::VifStats;
use crate::turn::scratch::Scratch;
use crate::turn::taken::Taken;
use grantway_netif::Offload;
use grantway_netif::slots::tx::{TxFragment, TxFragments, TxPacket};
use grantway_netif::tx::status;
use grantway_ports::{FramePlace, Port, SendError, SentBurst};
use grantway_ring::PAGE_SIZE;
use std::ops::Deref;

/// A packet whose first bytes are private, and the rest still in the guest's pages.
pub(crate) struct Outgoing<'a> {
    pub packet: &'a TxPacket<'a>,
    /// Its number in the turn.
    pub number: usize,
    /// Where its private bytes lie in the arena.
    pub at: usize,
    /// How many they are at most.
    pub head: usize,
    /// Where there is room in the arena for all of it.
    pub whole_at: usize,
}

impl Outgoing<'_> {
    /// All of its bytes.
    pub fn len(&self) -> usize {
        self.packet.len.into()
    }

    /// The private ones.
    pub fn head(&self) -> usize {
        self.len().min(self.head)
    }

    /// As [`lead`].
    pub fn lead(&self) -> Option<usize> {
        lead(self.packet)
    }

    /// What is still in the guest's pages.
    pub fn rest(&self) -> Rest<'_> {
        Rest::behind(self.packet, self.head())
    }

    pub fn offload(&self) -> Offload {
        self.packet.offload
    }
}

/// Bytes of a packet before the first that fill a page of the guest; none where none
/// do.
pub(crate) fn lead(packet: &TxPacket<'_>) -> Option<usize> {
    let mut before = 0;
    for fragment in packet.fragments() {
        if usize::from(fragment.size) == PAGE_SIZE {
            return Some(before);
        }
        before += usize::from(fragment.size);
    }
    None
}

/// The part of a packet that is still in its guest's pages, stretch by stretch.
pub(crate) struct Rest<'a> {
    /// What is left of the fragment that is being taken.
    fragment: Option<TxFragment>,
    later: TxFragments<'a>,
}

impl<'a> Rest<'a> {
    /// What comes behind so many bytes.
    pub fn behind(packet: &TxPacket<'a>, mut private: usize) -> Self {
        let mut rest = Self { fragment: None, later: packet.fragments() };
        while private > 0
            && let Some(stretch) = rest.take(private)
        {
            private -= usize::from(stretch.size);
        }
        rest
    }

    /// The next stretch of at most `most` bytes, in one page; none at the end.
    pub fn take(&mut self, most: usize) -> Option<TxFragment> {
        let fragment = match self.fragment.take() {
            Some(fragment) => fragment,
            None => self.later.find(|fragment| !fragment.is_empty())?,
        };
        // At most a page, as the fragment is.
        let size = usize::from(fragment.size).min(most) as u16;
        let left = fragment.size - size;
        if left > 0 {
            let offset = fragment.offset + size;
            self.fragment = Some(TxFragment { offset, size: left, ..fragment });
        }
        Some(TxFragment { size, ..fragment })
    }
}

/// Counts the packets of one turn that were taken, and adds them to the vif's
/// counters when it goes: others write those, too, and each addition costs.
pub(crate) struct Tally<'a> {
    stats: &'a VifStats,
    packets: u64,
    bytes: u64,
}

impl<'a> Tally<'a> {
    pub fn new(stats: &'a VifStats) -> Self {
        Self { stats, packets: 0, bytes: 0 }
    }

    /// A packet from the guest was taken.
    #[inline]
    pub fn sent(&mut self, len: usize) {
        self.packets += 1;
        self.bytes += len as u64;
    }
}

impl Deref for Tally<'_> {
    type Target = VifStats;

    fn deref(&self) -> &VifStats {
        self.stats
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        VifStats::add(&self.stats.tx_packets, self.packets);
        VifStats::add(&self.stats.tx_bytes, self.bytes);
    }
}

/// Where the packets of one turn go.
pub(crate) trait Outlet {
    /// Bytes of the longest packet that it takes whole, and asks nothing of but its
    /// bytes and its offload; 0 where it takes none so.
    const WHOLE: usize = 0;

    /// Takes such packets, all of them in private memory, and ends the burst. What
    /// becomes of them is no news for the guest.
    ///
    /// # Errors
    ///
    /// As [`Outlet::send`].
    fn send_whole(
        &mut self,
        arena: &mut [u8],
        frames: &[FramePlace],
        stats: &VifStats,
    ) -> Result<(), VifError> {
        let _ = (arena, frames, stats);
        Err(VifError::Internal("an outlet that takes no whole packets"))
    }

    /// Bytes of a packet that are to be private before it is sent.
    fn head(&self) -> usize;

    /// Whether the packets of a turn may come to more than its work, by their prices.
    const IS_PRICED: bool = false;

    /// How many packets of a turn, whose first bytes are private now, are within its work:
    /// one at least. The others stay on the ring.
    fn within(&self, packets: &[Taken], arena: &[u8]) -> usize {
        let _ = arena;
        packets.len()
    }

    /// The same of packets that are taken whole.
    fn within_whole(&self, frames: &[FramePlace], arena: &[u8]) -> usize {
        let _ = arena;
        frames.len()
    }

    /// Whether a turn that has so many slots takes no further packet.
    fn has_enough(&self, slots: usize) -> bool {
        let _ = slots;
        false
    }

    /// Looks at the packets of a turn, whose first bytes are private now, before
    /// they are sent.
    ///
    /// # Errors
    ///
    /// The vif cannot go on.
    fn prepare(
        &mut self,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
        stats: &VifStats,
    ) -> Result<(), VifError> {
        let _ = (scratch, buffers, stats);
        Ok(())
    }

    /// Takes a packet; the status that its slots are to be answered with. What
    /// becomes of it beyond the vif is no news for the guest.
    ///
    /// # Errors
    ///
    /// The vif cannot go on.
    fn send(
        &mut self,
        packet: &Outgoing<'_>,
        arena: &mut [u8],
        buffers: &mut Buffers,
        stats: &mut Tally<'_>,
    ) -> Result<i16, VifError>;

    /// Pages that are mapped for packets on their way: while there are any, answers wait.
    fn mapped(&self) -> usize {
        0
    }

    /// Unmaps them all. From here on their packets may be answered.
    fn unmap(&mut self) {}

    /// Ends the burst; from here on no page of the guest is looked at. A packet
    /// whose pages could not be read has its status changed.
    ///
    /// # Errors
    ///
    /// As [`Outlet::send`].
    fn finish(
        &mut self,
        arena: &mut [u8],
        buffers: &mut Buffers,
        statuses: &mut [i16],
    ) -> Result<(), VifError>;
}

/// What a port said of a packet of so many bytes: the guest's status for it.
#[inline]
pub(crate) fn sent(
    said: Result<(), SendError>,
    len: usize,
    stats: &mut Tally<'_>,
) -> Result<i16, VifError> {
    match said {
        Ok(()) => stats.sent(len),
        Err(SendError::Dropped(_)) => VifStats::add(&stats.tx_dropped_port, 1),
        Err(SendError::Busy) => VifStats::add(&stats.tx_dropped_busy, 1),
        Err(SendError::Failed(e)) => return Err(e.into()),
    }
    Ok(status::OKAY)
}

/// Adds what a port said of a burst to the vif's counters.
#[inline]
pub(crate) fn count(sent: SentBurst, stats: &VifStats) {
    VifStats::add(&stats.tx_packets, sent.taken as u64);
    VifStats::add(&stats.tx_bytes, sent.bytes as u64);
    VifStats::add(&stats.tx_merged, sent.merged as u64);
    VifStats::add(&stats.tx_dropped_port, sent.dropped as u64);
    VifStats::add(&stats.tx_dropped_busy, sent.busy as u64);
}

impl Outlet for &mut (dyn Port + 'static) {
    const WHOLE: usize = PAGE_SIZE;

    fn send_whole(
        &mut self,
        arena: &mut [u8],
        frames: &[FramePlace],
        stats: &VifStats,
    ) -> Result<(), VifError> {
        count(self.send_burst(arena, frames)?, stats);
        Ok(self.flush()?)
    }

    fn head(&self) -> usize {
        usize::MAX
    }

    fn send(
        &mut self,
        packet: &Outgoing<'_>,
        arena: &mut [u8],
        _: &mut Buffers,
        stats: &mut Tally<'_>,
    ) -> Result<i16, VifError> {
        let bytes = &arena[packet.at..packet.at + packet.len()];
        sent(Port::send(&mut **self, bytes, packet.offload()), bytes.len(), stats)
    }

    fn finish(&mut self, _: &mut [u8], _: &mut Buffers, _: &mut [i16]) -> Result<(), VifError> {
        Ok(self.flush()?)
    }
}

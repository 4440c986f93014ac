//! One queue: a transmit and a receive ring and their event channels.

use crate::buffers::{Buffers, SMALL_PAGES};
use crate::frame::{LentFrame, RxFrame};
use crate::lent::{Channels, Lent};
use crate::negotiate::BackendFeatures;
use crate::pool::Pool;
use crate::receive::{Receive, Received};
use crate::refs::QueueRefs;
use crate::staging::{QueueStaging, StagingPage};
use crate::stats::QueueStats;
use crate::transmit::{BURST, LONGEST, Transmit, TxFrame, TxMeta};
use crate::{PeerError, SendError, VifError};
use alloc::sync::Arc;
use alloc::vec::Vec;
use grantway_hypervisor::{
    Access, DomId, Error as PlatformError, EventChannels, GrantRef, Platform,
};
use grantway_netif::Offload;
use grantway_ring::{Front, RingPage, SharedPage, VolatileSliceMut};

/// Pages in each direction's pool: one for each slot of the ring.
const POOL_PAGES: u16 = 256;
/// Slots that have to be free before a ring that was full is filled again. To refill it slot by
/// slot would make bursts of a few, and read the line of the index again for each.
const ROOM: u32 = BURST as u32;

/// A queue that is connected, or ready to be: its rings, its pages and its
/// event channels, for one thread to use. Dropped, it closes and takes back
/// what it lent to the backend, which may still reach it: then the platform's
/// deferred reclaim has it.
pub struct Queue {
    number: u16,
    features: BackendFeatures,
    refs: QueueRefs,
    channels: Channels,
    transmit: Transmit,
    receive: Receive,
    /// A frame found no room since pages last came back.
    wants_room: bool,
    staging: QueueStaging,
    stats: QueueStats,
    // Behind the halves, which have handles of these pages.
    rings: [Lent; 2],
}

impl Queue {
    /// Pages of its rings, one each way.
    pub const RING_PAGES: usize = 2;

    /// Pages that frames go through, granted for as long as it is connected.
    pub const BUFFER_PAGES: usize = 2 * POOL_PAGES as usize + SMALL_PAGES;

    /// Grants rings and pools to the backend's domain and makes the event
    /// channels. On failure nothing stays granted.
    pub(crate) fn new(
        number: u16,
        platform: &Arc<dyn Platform>,
        backend: DomId,
        features: BackendFeatures,
    ) -> Result<Self, PlatformError> {
        let channels = Channels::new(platform.as_ref(), backend, features.split_events)?;
        let (tx_ring, tx_page, tx_gref) = ring(platform, backend)?;
        let (rx_ring, rx_page, rx_gref) = ring(platform, backend)?;
        let buffers = Buffers::new(platform, backend, POOL_PAGES)?;
        let rx_pool = Pool::new(platform, backend, POOL_PAGES, Access::ReadWrite)?;
        let tx_front = Front::init(RingPage::new(tx_page));
        let transmit = Transmit::new(tx_front, buffers, features);
        let rx_front = Front::init(RingPage::new(rx_page));
        let receive = Receive::new(rx_front, rx_pool, features.trusted);
        let staging = QueueStaging::new(number, to_stage(&transmit, &receive));
        Ok(Self {
            number,
            features,
            refs: QueueRefs {
                tx_ring: tx_gref,
                rx_ring: rx_gref,
                tx_event: channels.tx,
                rx_event: channels.rx,
            },
            channels,
            transmit,
            receive,
            wants_room: false,
            staging,
            stats: QueueStats::default(),
            rings: [tx_ring, rx_ring],
        })
    }

    /// Which of the vif's queues it is, from 0.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// What the backend offers, as far as it was wished for.
    #[must_use]
    pub fn features(&self) -> BackendFeatures {
        self.features
    }

    pub(crate) fn refs(&self) -> QueueRefs {
        self.refs
    }

    /// What the backend does wrong is told with the queue's number.
    fn fault(&self) -> impl Fn(PeerError) -> VifError + use<> {
        let queue = self.number;
        move |source| VifError::Peer { queue, source }
    }

    /// Copies a frame to granted pages and queues it. It goes out with the next
    /// [`Queue::flush`], and a burst is best flushed once.
    ///
    /// # Errors
    ///
    /// [`SendError`]; nothing was taken then.
    pub fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        let frame = TxFrame { bytes: frame, offload };
        let (_, why_not) = self.send_burst(&[frame], |&frame| frame);
        why_not.map_or(Ok(()), Err)
    }

    /// The same for frames in order, up to the first that cannot be taken: how
    /// many were, and why that one was not. `frame` makes the frame of one of
    /// `items`, the same one at each call.
    #[inline]
    pub fn send_burst<'a, T>(
        &mut self,
        items: &[T],
        frame: impl Fn(&T) -> TxFrame<'a>,
    ) -> (usize, Option<SendError>) {
        let meta = |item: &T| {
            let TxFrame { bytes, offload } = frame(item);
            TxMeta { len: bytes.len(), offload }
        };
        self.lend_burst(items, meta, |item, at, mut room| {
            let bytes = frame(item).bytes;
            if let Some(bytes) = bytes.get(at..).and_then(|rest| rest.get(..room.len())) {
                // As long as the room.
                let _ = room.write(0, bytes);
            }
        })
    }

    /// Lends the buffers that frames are sent from, so that they are written once, in
    /// their place. `meta` tells of each of `items` what is to be known of its frame,
    /// the same at each call; `write` is then called with the room for it, or for each
    /// stretch of it where it is longer than 4096 bytes, and where in the frame that
    /// begins. What is not written is whatever an earlier frame of this queue left
    /// there. As with [`Queue::send_burst`] frames are taken in order, up to the first
    /// that cannot be, which may have been written; they go out with the next
    /// [`Queue::flush`].
    ///
    /// Whether the backend offers to fill a blank checksum in is looked up in the frame
    /// once it is written.
    ///
    /// ```no_run
    /// # fn lends(queue: &mut grantway_frontend::Queue) -> Result<(), grantway_frontend::VifError> {
    /// use grantway_frontend::TxMeta;
    /// use grantway_netif::Offload;
    ///
    /// let header = [0xff; 14];
    /// let meta = |_: &u32| TxMeta { len: 60, offload: Offload::default() };
    /// let (sent, why_not) = queue.lend_burst(&[1u32, 2, 3], meta, |number, _, mut room| {
    ///     let _ = room.write(0, &header);
    ///     let _ = room.write(14, &number.to_be_bytes());
    ///     let _ = room.write(18, &[0; 42]);
    /// });
    /// assert!(sent == 3 || why_not.is_some());
    /// queue.flush()?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn lend_burst<T>(
        &mut self,
        items: &[T],
        meta: impl Fn(&T) -> TxMeta,
        mut write: impl FnMut(&T, usize, VolatileSliceMut<'_>),
    ) -> (usize, Option<SendError>) {
        if self.wants_room && self.transmit.room() < ROOM {
            return (0, Some(SendError::Full));
        }
        self.wants_room = false;
        let mut sent = 0;
        while let Some(left @ [first, ..]) = items.get(sent..) {
            let (transmit, stats) = (&mut self.transmit, &mut self.stats);
            let short = transmit.send_short(left, &meta, &mut write, stats);
            if short == 0
                && let Err(why_not) =
                    transmit.send(meta(first), |at, room| write(first, at, room), stats)
            {
                self.wants_room = why_not == SendError::Full;
                return (sent, Some(why_not));
            }
            sent += short.max(1);
        }
        (sent, None)
    }

    /// Shows the backend what was queued, and signals it if it asked.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn flush(&mut self) -> Result<(), VifError> {
        if self.transmit.publish() {
            self.stats.notifies += 1;
            self.channels.set.notify(self.channels.tx)?;
        }
        Ok(())
    }

    /// Takes transmit completions in; returns how many pages came back. For
    /// when [`Queue::send`] gave [`SendError::Full`], or on an event.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol.
    pub fn reap(&mut self) -> Result<usize, VifError> {
        let reaped = self.transmit.reap(&mut self.stats).map_err(self.fault())?;
        self.wants_room &= reaped == 0 || self.transmit.room() < ROOM;
        Ok(reaped)
    }

    /// Copies the next frame to `buf`, which best has room for 65,535 bytes.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol.
    pub fn recv(&mut self, buf: &mut [u8]) -> Result<Option<Received>, VifError> {
        self.receive.recv(buf, &mut self.stats).map_err(self.fault())
    }

    /// Copies frames to `arena`, each at a multiple of 64 bytes, and tells `took`
    /// where each begins; how many: a burst at most, and none once what is left of
    /// the arena is shorter than the longest frame, 65,535 bytes.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol.
    #[inline]
    pub fn recv_burst(
        &mut self,
        arena: &mut [u8],
        mut took: impl FnMut(usize, Received),
    ) -> Result<usize, VifError> {
        let fault = self.fault();
        let Self { receive, stats, .. } = self;
        let (mut received, mut at) = (0, 0);
        while received < BURST {
            let most = BURST - received;
            let short = receive.recv_short(arena, &mut at, most, &mut took, stats);
            let short = short.map_err(&fault)?;
            received += short;
            if short > 0 && receive.is_through() {
                break;
            }
            if received < BURST {
                let room = arena.get_mut(at..).filter(|room| room.len() >= LONGEST);
                let Some(room) = room else { break };
                let Some(frame) = receive.recv(room, stats).map_err(&fault)? else { break };
                took(at, frame);
                at = (at + frame.len).next_multiple_of(64);
                received += 1;
            }
        }
        Ok(received)
    }

    /// Lends the next frame in the pages that the backend wrote it to, so that it
    /// is copied once, where its reader wants it, or never. Where half of the
    /// queue's pages are lent already the frame is a copy, and so it is with a
    /// backend that the toolstack says is not to be trusted.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol.
    pub fn recv_lent(&mut self) -> Result<Option<LentFrame>, VifError> {
        self.receive.recv_lent(&mut self.stats).map_err(self.fault())
    }

    /// Lends frames in the pages that the backend wrote them to, each for one call of
    /// `look`; how many, a burst at most. Their pages are posted again by the next
    /// [`Queue::repost`]. The backend may write while they are looked at: what is to be
    /// judged is copied out first ([`RxFrame::copy_to`]), and nothing is read twice.
    /// Frames of a backend that the toolstack says is not to be trusted are copied to
    /// private memory before.
    ///
    /// ```no_run
    /// # fn looks(queue: &mut grantway_frontend::Queue) -> Result<(), grantway_frontend::VifError> {
    /// let mut multicast = 0;
    /// queue.recv_lent_burst(|frame| {
    ///     let mut destination = [0; 6];
    ///     frame.copy_to(&mut destination);
    ///     multicast += u32::from(destination[0] & 1);
    /// })?;
    /// queue.repost()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The backend broke the protocol.
    #[inline]
    pub fn recv_lent_burst(
        &mut self,
        mut look: impl FnMut(RxFrame<'_>),
    ) -> Result<usize, VifError> {
        let fault = self.fault();
        self.receive.look_at(BURST, &mut look, &mut self.stats).map_err(fault)
    }

    /// What is to be staged, and the word that it is.
    #[must_use]
    pub fn staging(&self) -> &QueueStaging {
        &self.staging
    }

    /// Posts pages that [`Queue::recv`] emptied, where enough are, and signals
    /// the backend if it asked.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn repost(&mut self) -> Result<(), VifError> {
        if self.receive.wants_refill() {
            self.post()?;
        }
        Ok(())
    }

    /// Posts every free page.
    pub(crate) fn post(&mut self) -> Result<(), VifError> {
        if self.receive.refill() {
            self.stats.notifies += 1;
            self.channels.set.notify(self.channels.rx)?;
        }
        Ok(())
    }

    /// The last look before sleeping: flushes, posts, and asks to be signalled
    /// for a received frame, and for room where the last frame found none. True
    /// when something is there already: do not sleep.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol, or the platform is gone.
    pub fn arm(&mut self) -> Result<bool, VifError> {
        self.flush()?;
        self.post()?;
        let frame = self.receive.arm().map_err(self.fault())?;
        // What comes back now is room, and nobody signals it a second time.
        let room = self.wants_room && {
            self.reap()?;
            !self.wants_room || self.transmit.arm().map_err(self.fault())?
        };
        self.wants_room &= !room;
        Ok(frame || room)
    }

    /// Takes signals in without blocking; true when there was one.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn take_events(&mut self) -> Result<bool, VifError> {
        let mut taken = 0;
        self.channels.set.poll(&mut |_| taken += 1)?;
        self.stats.interrupts += taken;
        Ok(taken > 0)
    }

    /// Its event channels, for waiting.
    pub fn events(&mut self) -> &mut dyn EventChannels {
        self.channels.set.as_mut()
    }

    /// The descriptor of its event channels.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        self.channels.set.descriptor()
    }

    /// Counts a call that moved packets.
    pub fn count_turn(&mut self) {
        self.stats.turns += 1;
    }

    /// Slots on the transmit ring that the backend has not answered.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.transmit.outstanding()
    }

    /// What it carried.
    #[must_use]
    pub fn stats(&self) -> &QueueStats {
        &self.stats
    }

    /// Forgets what was lent without touching it: grants and ports are void,
    /// and their numbers may be somebody else's by now.
    pub(crate) fn forget(self) {
        self.transmit.void();
        self.receive.void();
        self.rings.iter().for_each(Lent::void);
        self.channels.forget();
    }
}

/// The pages of a queue that are worth staging, the best first.
fn to_stage(transmit: &Transmit, receive: &Receive) -> Vec<StagingPage> {
    let [small, whole] = transmit.buffers().grefs();
    let read = |gref| StagingPage { gref, readonly: true };
    let written = receive.pool().grefs().map(|gref| StagingPage { gref, readonly: false });
    small.into_iter().map(read).chain(written).chain(whole.into_iter().map(read)).collect()
}

/// A page for a ring.
fn ring(
    platform: &Arc<dyn Platform>,
    backend: DomId,
) -> Result<(Lent, SharedPage, GrantRef), PlatformError> {
    let lent = Lent::new(platform, backend, 1, Access::ReadWrite)?;
    let (page, gref) = lent.page(0).ok_or_else(|| PlatformError::Protocol {
        what: "granted run",
        found: "no page".into(),
        expected: "one page",
    })?;
    Ok((lent, page, gref))
}

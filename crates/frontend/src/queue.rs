//! One queue: a transmit ring, a receive ring, and their event channels.

use crate::buffers::{Buffers, SEND_PAGES};
use crate::demand::Ready;
use crate::frame::{LentFrame, RxFrame};
use crate::lent::{Channels, Lent};
use crate::negotiate::BackendFeatures;
use crate::pool::Pool;
use crate::receive::{RESTING, Receive, Received};
use crate::refs::QueueRefs;
use crate::staging::{QueueStaging, StagingPage};
use crate::stats::QueueStats;
use crate::transmit::{BURST, LONGEST, Transmit, TxFrame, TxMeta};
use crate::{PeerError, SendError, VifError};
use alloc::sync::Arc;
use alloc::vec::Vec;
use grantway_hypervisor::{
    Access, DomId, Error as PlatformError, FrontendEvents, FrontendPlatform, GrantRef,
};
use grantway_netif::{Offload, Policy};
use grantway_ring::{Front, RingPage, SharedPage, VolatileSliceMut};

/// A queue that is connected, or ready to be connected: its rings, its pages and its event
/// channels, for one thread to use. When dropped, it closes its channels and takes its pages back.
/// Pages that the backend can still reach go to the platform's deferred reclaim.
pub struct Queue {
    number: u16,
    features: BackendFeatures,
    refs: QueueRefs,
    channels: Channels,
    // Declared before the receive half, whose pool has the further pages that it sends from.
    transmit: Transmit,
    receive: Receive,
    /// True if a frame found no room since pages last came back.
    wants_room: bool,
    staging: QueueStaging,
    stats: QueueStats,
    // Declared after the halves, which have handles of these pages.
    rings: [Lent; 2],
}

impl Queue {
    /// Pages of the rings, one for each direction.
    pub const RING_PAGES: usize = 2;

    /// Pages for frames while the queue is at rest, granted for as long as the queue is connected.
    pub const RESTING_PAGES: usize = SEND_PAGES + RESTING as usize;

    /// Pages for frames of a busy queue: those at rest, and 128 further ones. The further pages are
    /// granted when three quarters of the pages to receive into have frames at once. They are also
    /// granted when a frame to be sent finds free slots but no free pages. They stay granted. The
    /// queue uses them in one direction at a time, preferably to receive, until it is at rest
    /// again.
    pub const BUFFER_PAGES: usize = Self::RESTING_PAGES + RESTING as usize;

    /// Grants rings and pools to the backend's domain and makes the event
    /// channels. On failure nothing stays granted.
    pub(crate) fn new(
        number: u16,
        platform: &Arc<dyn FrontendPlatform>,
        backend: DomId,
        features: BackendFeatures,
    ) -> Result<Self, PlatformError> {
        let channels = Channels::new(platform.as_ref(), backend, features.split_events)?;
        let (tx_ring, tx_page, tx_gref) = ring(platform, backend)?;
        let (rx_ring, rx_page, rx_gref) = ring(platform, backend)?;
        let buffers = Buffers::new(platform, backend)?;
        let rx_pool = Pool::new(platform, backend, RESTING)?;
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

    /// Returns the queue's number in the vif, from 0.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns the features of this connection: those that the backend offers and the guest wishes
    /// for.
    #[must_use]
    pub fn features(&self) -> BackendFeatures {
        self.features
    }

    pub(crate) fn refs(&self) -> QueueRefs {
        self.refs
    }

    /// Returns a function that adds the queue's number to an error of the backend.
    fn fault(&self) -> impl Fn(PeerError) -> VifError + use<> {
        let queue = self.number;
        move |source| VifError::Peer { queue, source }
    }

    /// Copies a frame to granted pages and queues it. The frame leaves with the next
    /// [`Queue::flush`]. One flush for a whole burst is best.
    ///
    /// # Errors
    ///
    /// [`SendError`]. Nothing was queued then.
    pub fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        let frame = TxFrame { bytes: frame, offload };
        let (_, why_not) = self.send_burst(&[frame], |&frame| frame);
        why_not.map_or(Ok(()), Err)
    }

    /// Copies and queues frames in order, up to the first frame that cannot be queued. Returns the
    /// number of queued frames, and the error of the first frame that was not queued. `frame` makes
    /// the frame of an item, and must make the same frame at each call.
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
                // The bytes are as long as the room.
                let _ = room.write(0, bytes);
            }
        })
    }

    /// Lends the buffers that frames are sent from, so that each frame is written only once, in its
    /// place. `meta` returns the length and offload of an item's frame, the same at each call. Then
    /// `write` is called with the offset in the frame, and with the room for the bytes from there
    /// on: once, or once per page if the frame is longer than 4096 bytes. Bytes that are not
    /// written keep older content: bytes of an earlier frame that was sent or received here, or
    /// bytes that the backend wrote.
    ///
    /// Frames are queued in order, up to the first frame that cannot be queued, as in
    /// [`Queue::send_burst`]. That frame may have been written. The queued frames leave with the
    /// next [`Queue::flush`]. Returns the number of queued frames, and the error of the first frame
    /// that was not queued.
    ///
    /// If a checksum is blank, the written frame is read, to find out if the backend offers to fill
    /// in that checksum.
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
        if self.wants_room && !self.transmit.has_room() {
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

    /// Lends whole pages to write a frame of unknown length: room for the longest frame, 65,535
    /// bytes, from the start of the first page. `fill` writes a frame there. It returns the frame's
    /// length and offload, or `None` if there is no frame, and a value for the caller. Pages behind
    /// the end of the frame, and pages of a refused frame, are lent again later. They keep what was
    /// written, and the backend can read it.
    ///
    /// The frame leaves with the next [`Queue::flush`]. Returns the value of `fill`, and true if a
    /// frame was queued, or the reason why it was not, as in [`Queue::send`].
    ///
    /// # Errors
    ///
    /// [`SendError::Full`] if there is no room for the longest frame. Then `fill` was not called.
    pub fn lend_room<T>(
        &mut self,
        fill: impl FnOnce(&mut [VolatileSliceMut<'_>]) -> (Option<TxMeta>, T),
    ) -> Result<(T, Result<bool, SendError>), SendError> {
        if self.wants_room && !self.transmit.has_room() {
            return Err(SendError::Full);
        }
        let filled = self.transmit.fill(fill, &mut self.stats);
        self.wants_room = filled.is_err();
        filled
    }

    /// Publishes the queued frames, and signals the backend if it asked for a signal.
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

    /// Takes in transmit completions, and returns the number of buffers that came back. Call this
    /// after [`SendError::Full`], or after an event. Even if it returns 0, there may be room in
    /// further pages: [`Queue::arm`] returns true then.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol ([`VifError::Peer`]).
    pub fn reap(&mut self) -> Result<usize, VifError> {
        let reaped = self.transmit.reap(&mut self.stats).map_err(self.fault())?;
        if self.transmit.may_resize() {
            self.resize_transmit();
            // Otherwise the next post has them received into, and says so.
            if !self.receive.misses_further() {
                self.stage_further();
            }
        }
        // Room that came from further pages alone is not told by the number, but by `arm`.
        self.wants_room &= reaped == 0 || !self.transmit.has_room();
        Ok(reaped)
    }

    /// Copies the next frame to `buf`. A frame that is longer than `buf` is dropped and counted
    /// ([`QueueStats::rx_too_large`]), so `buf` should have 65,535 bytes. Returns `None` if there
    /// is no frame.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol, or the platform is gone.
    pub fn recv(&mut self, buf: &mut [u8]) -> Result<Option<Received>, VifError> {
        let received = self.receive.recv(buf, &mut self.stats).map_err(self.fault())?;
        if received.is_none() {
            self.repost()?;
        }
        Ok(received)
    }

    /// Copies frames to `arena`, each at a multiple of 64 bytes, and calls `took` with the start of
    /// each. Returns the number of frames, 64 at most. Ends early if the rest of the arena is
    /// shorter than the longest frame, 65,535 bytes.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol, or the platform is gone.
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
        if received == 0 {
            self.repost()?;
        }
        Ok(received)
    }

    /// Lends the next frame in the pages that the backend wrote it to, so that its reader copies it
    /// once or never. The frame is a copy if more than half of the queue's pages would be lent with
    /// it, or if the backend is not trusted ([`BackendFeatures::trusted`]). Returns `None` if there
    /// is no frame.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol, or the platform is gone.
    pub fn recv_lent(&mut self) -> Result<Option<LentFrame>, VifError> {
        let received = self.receive.recv_lent(&mut self.stats).map_err(self.fault())?;
        if received.is_none() {
            self.repost()?;
        }
        Ok(received)
    }

    /// Lends frames in the pages that the backend wrote them to, each for one call of `look`.
    /// Returns the number of frames. Ends once the frames had 64 pages, a quarter of the ring's
    /// slots. The next [`Queue::repost`] posts the pages again. The backend cannot use them before.
    ///
    /// The backend may write while `look` runs. So copy the bytes that are to be judged
    /// ([`RxFrame::copy_to`]), and read nothing twice. If the backend is not trusted
    /// ([`BackendFeatures::trusted`]), frames are copied to private memory first.
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
    /// The backend broke the protocol, or the platform is gone.
    #[inline]
    pub fn recv_lent_burst(
        &mut self,
        mut look: impl FnMut(RxFrame<'_>),
    ) -> Result<usize, VifError> {
        let fault = self.fault();
        let received = self.receive.look_at(&mut look, &mut self.stats).map_err(fault)?;
        if received == 0 {
            self.repost()?;
        }
        Ok(received)
    }

    /// Returns the pages that are worth staging, and the number of staged pages.
    #[must_use]
    pub fn staging(&self) -> &QueueStaging {
        &self.staging
    }

    /// Posts the pages that [`Queue::recv`] emptied, if there are enough of them, and signals the
    /// backend if it asked for a signal. A receiving call that finds no frame does this by itself.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    #[inline]
    pub fn repost(&mut self) -> Result<(), VifError> {
        if self.receive.wants_refill() {
            self.post()?;
        }
        Ok(())
    }

    /// Posts all free pages, and further ones if the queue is busy. Signals the backend if it asked
    /// for a signal.
    #[inline(never)]
    pub(crate) fn post(&mut self) -> Result<(), VifError> {
        if self.receive.misses_further() && self.transmit.has_further() {
            // An application that sends no more need not reap, and what was answered is free.
            // Room that came by this is reported by `arm`, which still knows that somebody wants it.
            self.transmit.reap(&mut self.stats).map_err(self.fault())?;
        }
        let resized = self.transmit.may_resize();
        if resized {
            self.resize_transmit();
        }
        let ready = match self.receive.misses_further() {
            // Frames are still sent from them.
            true if self.transmit.has_further() => Ready::NotYet,
            true => self.further_ready(),
            false => Ready::NotYet,
        };
        // If not all are staged, they are used all the same: a frame that finds no page waits in
        // the backend, or is lost.
        let ready = if ready == Ready::Refused { Ready::Yes } else { ready };
        if self.receive.refill(ready) {
            self.stats.notifies += 1;
            self.channels.set.notify(self.channels.rx)?;
        }
        if self.receive.has_moved() | resized {
            self.stage_further();
        }
        Ok(())
    }

    /// Takes further pages into use to send from, or out of use.
    #[inline(never)]
    fn resize_transmit(&mut self) {
        // Frames to be sent can wait for pages, so receiving comes first.
        let ready = match self.receive.misses_further() || self.receive.has_further() {
            true => Ready::Elsewhere,
            false => self.further_ready(),
        };
        self.transmit.resize(ready, self.receive.pool_mut());
    }

    /// Returns the readiness of the further pages, for both directions.
    fn further_ready(&self) -> Ready {
        match self.features.policy {
            Policy::Staging => self.staging.ready(),
            _ => Ready::Yes,
        }
    }

    /// Reports if further pages are worth staging.
    fn stage_further(&self) {
        let further = self.transmit.has_further() || self.receive.has_further();
        self.staging.set_further(further, self.receive.pool());
    }

    /// Looks for the last time before a wait. Flushes, posts, and asks for a signal at the next
    /// received frame. If a frame found no room before, asks for a signal at room, too. Returns
    /// true if the caller must not wait, because there is a frame or room. Room is reported once,
    /// until the next frame finds no room.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol, or the platform is gone.
    pub fn arm(&mut self) -> Result<bool, VifError> {
        self.flush()?;
        self.post()?;
        let frame = self.receive.arm().map_err(self.fault())?;
        Ok(self.arm_room()? || frame)
    }

    /// Looks for the last time before a wait for room, as [`Queue::arm`] does, but not for frames.
    /// Received frames do not end that wait, and the backend is not asked for a signal at the next
    /// one.
    ///
    /// # Errors
    ///
    /// The errors of [`Queue::arm`].
    pub fn arm_for_room(&mut self) -> Result<bool, VifError> {
        self.flush()?;
        self.post()?;
        self.arm_room()
    }

    /// Asks to be signalled for room if the last frame found none. Returns true if there is room.
    fn arm_room(&mut self) -> Result<bool, VifError> {
        // Answers that are there now are room, and nobody signals them a second time.
        let room = self.wants_room && {
            self.reap()?;
            self.transmit.has_room() || self.transmit.arm().map_err(self.fault())?
        };
        self.wants_room &= !room;
        Ok(room)
    }

    /// Takes in signals without waiting. Returns true if there was a signal.
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

    /// Returns the event channels, to wait for them.
    pub fn events(&mut self) -> &mut dyn FrontendEvents {
        self.channels.set.as_mut()
    }

    /// Returns the descriptor of the event channels, or `None` if the platform has no descriptors.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.channels.set.descriptor()
    }

    /// Counts a call that moved packets.
    pub fn count_turn(&mut self) {
        self.stats.turns += 1;
    }

    /// Returns the number of transmit slots that the backend has not answered.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.transmit.outstanding()
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> &QueueStats {
        &self.stats
    }

    /// Drops the queue without touching its grants and ports. They are void, and their numbers may
    /// belong to others by now.
    pub(crate) fn forget(self) {
        self.transmit.void();
        self.receive.void();
        self.rings.iter().for_each(Lent::void);
        self.channels.forget();
    }
}

/// Returns the pages of a queue at rest, the best first.
fn to_stage(transmit: &Transmit, receive: &Receive) -> Vec<StagingPage> {
    let [small, whole] = transmit.buffers().grefs();
    let read = |gref| StagingPage { gref, readonly: true };
    let written = receive.pool().grefs().map(|gref| StagingPage { gref, readonly: false });
    small.into_iter().map(read).chain(written).chain(whole.into_iter().map(read)).collect()
}

/// Grants a page for a ring.
fn ring(
    platform: &Arc<dyn FrontendPlatform>,
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

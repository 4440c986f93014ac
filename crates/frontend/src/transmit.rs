//! Transmit: frames into granted pages, slots onto the ring, completions back.

use crate::buffers::{Buffers, SMALL};
use crate::demand::{Change, Demand, Ready};
use crate::halves::Buffer;
use crate::negotiate::BackendFeatures;
use crate::pool::Pool;
use crate::receive::RESTING;
use crate::stats::QueueStats;
use crate::{PeerError, SendError};
use alloc::boxed::Box;
use arrayvec::ArrayVec;
use grantway_netif::slots::tx::{SLOTS_SENT, SLOTS_WRITTEN, TxFragment, write_one, write_tx};
use grantway_netif::tx::{TxResponse, status};
use grantway_netif::{Checksum, Offload};
use grantway_ring::{Front, PAGE_SIZE, RingPage, SharedPage, VolatileSliceMut};

/// Shortest frame: an Ethernet header.
pub(crate) const SHORTEST: usize = 14;
/// Longest frame that a request's 16-bit size can express.
pub(crate) const LONGEST: usize = 65_535;

/// Bytes of a page, which fit 16 bits.
const PAGE_BYTES: u16 = PAGE_SIZE as u16;

/// Bytes of a frame that are read to find out what it carries.
const LOOKED_AT: usize = 128;

/// Pages that the longest frame takes.
pub(crate) const FRAME_PAGES: usize = LONGEST.div_ceil(PAGE_SIZE);

/// Frames that are put on the ring, or taken off it, together.
pub(crate) const BURST: usize = 64;

/// Slots and halves of pages that must be free before a full queue is filled again. If single slots
/// were used, bursts would have only a few frames, and each would read the index's cache line
/// again.
const ROOM: u32 = BURST as u32;

/// A frame to be sent.
#[derive(Debug, Clone, Copy)]
pub struct TxFrame<'a> {
    /// All bytes of the frame, 14 to 65,535, without FCS.
    pub bytes: &'a [u8],
    /// Checksum and segmentation state.
    pub offload: Offload,
}

/// Description of a frame that is written in the buffer from which it is sent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TxMeta {
    /// Length of the frame, 14 to 65,535 bytes, without FCS.
    pub len: usize,
    /// Checksum and segmentation state.
    pub offload: Offload,
}

/// The transmit half of a queue.
pub(crate) struct Transmit {
    ring: Front<RingPage<3>, 3>,
    buffers: Buffers,
    /// Extra slots that wait for an answer. These answers carry no id.
    extras_out: u32,
    /// Copies of slots, for one call at a time.
    slots: Box<[[u32; 3]; BURST]>,
    /// Features of the backend, which limit what may be sent.
    features: BackendFeatures,
    /// Demand for further pages.
    demand: Demand,
    /// True if further pages are out of use, and some of them have not come back.
    leaving: bool,
}

impl Transmit {
    pub fn new(ring: Front<RingPage<3>, 3>, buffers: Buffers, features: BackendFeatures) -> Self {
        let slots = Box::new([[0; 3]; BURST]);
        let demand = Demand::new();
        Self { ring, buffers, extras_out: 0, slots, features, demand, leaving: false }
    }

    /// Returns the buffers that frames are sent from.
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Writes short frames to the small buffers of the next slots, by calls of `write`, and puts
    /// their slots on the ring. The slots stay private until [`Transmit::publish`]. Returns the
    /// number of frames. Ends at the first frame that is not short, may not be sent, or finds no
    /// room.
    ///
    /// There are two passes. The writes of the first pass wait for cache lines that the backend
    /// has. Without other work in between, more cache lines are fetched at once.
    #[inline]
    pub fn send_short<T>(
        &mut self,
        items: &[T],
        meta: &impl Fn(&T) -> TxMeta,
        write: &mut impl FnMut(&T, usize, VolatileSliceMut<'_>),
        stats: &mut QueueStats,
    ) -> usize {
        let small = self.buffers.small();
        let first = self.ring.req_prod_pvt();
        let room = (self.ring.free() as usize).min(small.free_from(first));
        let items = items.get(..room).unwrap_or(items);
        let (mut index, mut bytes) = (first, 0);
        for item in items {
            let TxMeta { len, offload } = meta(item);
            if !(SHORTEST..=SMALL).contains(&len) || offload.gso.is_some() {
                break;
            }
            let (page, offset) = small.buffer(index);
            // The length is at most 256.
            let Ok(room) = VolatileSliceMut::new(page, offset, len as u16) else { break };
            write(item, 0, room);
            if offload.checksum == Checksum::Partial && self.admit_blank(page, offset, len).is_err()
            {
                break;
            }
            bytes += len;
            index = index.wrapping_add(1);
        }
        let count = index.wrapping_sub(first) as usize;
        index = first;
        for (slot, item) in self.slots.iter_mut().zip(items.get(..count).unwrap_or(&[])) {
            let TxMeta { len, offload } = meta(item);
            // The length is at most 256, if `meta` says the same as before.
            *slot = small.request(index, len as u16, offload.checksum);
            index = index.wrapping_add(1);
        }
        // The count was limited to the room, so all slots are pushed.
        let sent = self.ring.push_batch(self.slots.get(..count).unwrap_or(&[]));
        self.buffers.small_mut().send(first, sent);
        stats.tx_packets += sent as u64;
        stats.tx_bytes += bytes as u64;
        stats.tx_slots += sent as u64;
        sent
    }

    /// Writes a frame to halves of pages and whole pages, and puts its slots on the ring. `write`
    /// is called for each page in order, with the offset in the frame and the room in the page.
    ///
    /// # Errors
    /// The frame has a length that the backend does not accept, asks for work that the backend does
    /// not offer, or finds no room. Nothing is sent then.
    pub fn send(
        &mut self,
        meta: TxMeta,
        write: impl FnMut(usize, VolatileSliceMut<'_>),
        stats: &mut QueueStats,
    ) -> Result<(), SendError> {
        let TxMeta { len, offload } = meta;
        let longest = if self.features.scatter_gather { LONGEST } else { PAGE_SIZE };
        if !(SHORTEST..=longest).contains(&len) {
            return Err(SendError::Length { found: len, longest });
        }
        // The slots, extras included, and the pages have to be there before anything is written.
        self.features.admit_segments(offload)?;
        let pages = len.div_ceil(PAGE_SIZE);
        let extras = usize::from(offload.gso.is_some());
        let has_room = self.buffers.halves().has_room(len);
        if (self.ring.free() as usize) < pages + extras || !has_room {
            return Err(self.full(pages + extras, stats));
        }
        let mut fragments = ArrayVec::<TxFragment, SLOTS_SENT>::new();
        let mut outcome = self.write_pages(meta, write, &mut fragments);
        let mut slots = ArrayVec::<[u32; 3], SLOTS_WRITTEN>::new();
        // The length is at most LONGEST, which fits 16 bits.
        let len16 = len as u16;
        let written = match fragments[..] {
            [fragment] if extras == 0 => {
                slots.push(write_one(fragment, offload.checksum));
                Ok(())
            }
            _ => write_tx(&fragments, len16, offload, None, None, &mut slots),
        };
        if written.is_err() || fragments.len() != pages {
            outcome = outcome.and(Err(SendError::Length { found: len, longest }));
        }
        // The pages of a refused frame go back. Nothing is on the ring yet.
        if let Err(refusal) = outcome {
            let halves = self.buffers.halves_mut();
            for fragment in &fragments {
                halves.give_back(fragment.id);
            }
            return Err(refusal);
        }
        self.push(len, &fragments, &slots, stats);
        Ok(())
    }

    /// Notes that a frame of `slots` slots found no room. This is a crowd if the ring has room.
    #[cold]
    fn full(&mut self, slots: usize, stats: &mut QueueStats) -> SendError {
        stats.tx_full += 1;
        if self.ring.free() as usize >= slots {
            self.demand.crowd();
        }
        SendError::Full
    }

    /// Writes a frame of unknown length to whole pages, by a call of `fill`, and puts its slots on
    /// the ring. `fill` gets room for the longest frame, and returns `None` if there is no frame.
    /// Returns the value of `fill`, and the reason if the frame may not be sent.
    ///
    /// # Errors
    /// There is no room for the longest frame. `fill` was not called.
    pub fn fill<T>(
        &mut self,
        fill: impl FnOnce(&mut [VolatileSliceMut<'_>]) -> (Option<TxMeta>, T),
        stats: &mut QueueStats,
    ) -> Result<(T, Result<bool, SendError>), SendError> {
        // One slot more for an extra.
        let has_room = self.buffers.halves().has_room(FRAME_PAGES * PAGE_SIZE);
        if (self.ring.free() as usize) <= FRAME_PAGES || !has_room {
            return Err(self.full(FRAME_PAGES + 1, stats));
        }
        let mut ids = ArrayVec::<u16, FRAME_PAGES>::new();
        while !ids.is_full()
            && let Some(id) = self.buffers.halves_mut().take(PAGE_SIZE)
        {
            ids.push(id);
        }
        let whole = |id: &u16| {
            let buffer = self.buffers.halves().buffer(*id, PAGE_SIZE)?;
            VolatileSliceMut::new(buffer.page, 0, PAGE_BYTES).ok()
        };
        let mut room: ArrayVec<_, FRAME_PAGES> = ids.iter().filter_map(whole).collect();
        let (meta, told) = fill(&mut room);
        drop(room);
        let sent = match meta {
            Some(meta) => self.send_filled(meta, &mut ids, stats).map(|()| true),
            None => Ok(false),
        };
        // The pages that were not reached go back.
        let halves = self.buffers.halves_mut();
        for id in ids {
            halves.give_back(id);
        }
        Ok((told, sent))
    }

    /// Puts the slots of a frame that is in the first of these pages on the ring, and takes those
    /// pages out of the list.
    fn send_filled(
        &mut self,
        TxMeta { len, offload }: TxMeta,
        ids: &mut ArrayVec<u16, FRAME_PAGES>,
        stats: &mut QueueStats,
    ) -> Result<(), SendError> {
        let longest = if self.features.scatter_gather { LONGEST } else { PAGE_SIZE };
        let refused = SendError::Length { found: len, longest };
        if !(SHORTEST..=longest).contains(&len) {
            return Err(refused);
        }
        self.features.admit_segments(offload)?;
        let mut fragments = ArrayVec::<TxFragment, SLOTS_SENT>::new();
        for (at, &id) in (0..len).step_by(PAGE_SIZE).zip(ids.iter()) {
            // The size is at most a page.
            let size = (len - at).min(PAGE_SIZE) as u16;
            let Some(buffer) = self.buffers.halves().buffer(id, PAGE_SIZE) else { break };
            let Buffer { page, gref, .. } = buffer;
            if at == 0 && offload.checksum == Checksum::Partial {
                self.admit_blank(page, 0, size.into())?;
            }
            fragments.push(TxFragment { gref: gref.0, offset: 0, size, id });
        }
        let pages = len.div_ceil(PAGE_SIZE);
        let mut slots = ArrayVec::<[u32; 3], SLOTS_WRITTEN>::new();
        // The length is at most LONGEST, which fits 16 bits.
        let written = write_tx(&fragments, len as u16, offload, None, None, &mut slots);
        if written.is_err() || fragments.len() != pages {
            return Err(refused);
        }
        self.push(len, &fragments, &slots, stats);
        ids.drain(..pages);
        Ok(())
    }

    /// Puts the slots of a frame of `len` bytes on the ring, and notes that its pages are in use.
    fn push(
        &mut self,
        len: usize,
        fragments: &[TxFragment],
        slots: &[[u32; 3]],
        stats: &mut QueueStats,
    ) {
        // There is room. Most frames have one slot.
        match *slots {
            [slot] => _ = self.ring.push(slot),
            _ => _ = self.ring.push_batch(slots),
        }
        // A packet has few extras, and the ring has 256 slots.
        self.extras_out += (slots.len() - fragments.len()) as u32;
        stats.tx_packets += 1;
        stats.tx_bytes += len as u64;
        stats.tx_slots += slots.len() as u64;
    }

    /// Writes a frame to free pages, and adds a fragment for each. The caller has checked the room.
    /// Ends with a refusal if the checksum is blank, and the first page shows that the backend does
    /// not offer to fill it in.
    #[inline]
    fn write_pages(
        &mut self,
        TxMeta { len, offload }: TxMeta,
        mut write: impl FnMut(usize, VolatileSliceMut<'_>),
        fragments: &mut ArrayVec<TxFragment, SLOTS_SENT>,
    ) -> Result<(), SendError> {
        for at in (0..len).step_by(PAGE_SIZE) {
            // The size is at most a page.
            let size = (len - at).min(PAGE_SIZE) as u16;
            // There is room, and each piece fits its page: none of these fails.
            let Some(id) = self.buffers.halves_mut().take(size.into()) else { break };
            let Some(buffer) = self.buffers.halves().buffer(id, size.into()) else { break };
            let Buffer { page, gref, offset } = buffer;
            let Ok(room) = VolatileSliceMut::new(page, offset, size) else { break };
            write(at, room);
            let refusal = match at == 0 && offload.checksum == Checksum::Partial {
                true => self.admit_blank(page, offset, size.into()),
                false => Ok(()),
            };
            fragments.push(TxFragment { gref: gref.0, offset, size, id });
            refusal?;
        }
        Ok(())
    }

    /// Refuses a frame with a blank checksum that the backend does not fill in. The frame's first
    /// bytes are read from the page that it is sent from.
    #[cold]
    fn admit_blank(&self, page: &SharedPage, offset: u16, len: usize) -> Result<(), SendError> {
        let mut head = [0; LOOKED_AT];
        let head = &mut head[..len.min(LOOKED_AT)];
        let read = page.read(offset.into(), head);
        read.map_err(|_| SendError::Length { found: len, longest: PAGE_SIZE })?;
        self.features.admit_blank(head)
    }

    /// Shows the backend the slots that were pushed. Returns true if it asked to be signalled.
    #[must_use]
    pub fn publish(&mut self) -> bool {
        self.ring.publish()
    }

    /// Takes in completions, frees their buffers, and returns the number of buffers. Call this on
    /// an event, or if pages run short, but not after each send: each call moves the event index.
    pub fn reap(&mut self, stats: &mut QueueStats) -> Result<usize, PeerError> {
        let mut reaped = 0;
        // Frames are out that would not have found room otherwise.
        if self.demand.is_busy() && self.buffers.halves().misses_further() {
            self.demand.crowd();
        }
        loop {
            let first = self.ring.rsp_cons();
            let popped = self.ring.pop_batch(&mut self.slots[..]);
            let popped = popped.map_err(|source| PeerError::Ring { ring: "transmit", source })?;
            if self.reap_in_order(first, popped) {
                reaped += popped;
            } else {
                reaped += self.reap_any(first, popped, stats)?;
            }
            // At most a burst.
            self.demand.count(popped as u32);
            if popped < BURST {
                return Ok(reaped);
            }
        }
    }

    /// Takes in answers to short frames, each in its own slot and without error. Returns false, and
    /// takes nothing, if one is of another kind.
    #[inline]
    fn reap_in_order(&mut self, first: u32, count: usize) -> bool {
        let small = self.buffers.small_mut();
        let Some(answers) = self.slots.get(..count) else { return false };
        let (mut index, mut differ) = (first, 0);
        for &[word, ..] in answers {
            let response = TxResponse { id: small.number(index), status: status::OKAY };
            let [expected, ..] = response.to_words();
            differ |= word ^ expected;
            index = index.wrapping_add(1);
        }
        differ == 0 && small.take_back(first, count)
    }

    /// Takes in answers of any kind. Returns the number of buffers that came back.
    fn reap_any(
        &mut self,
        first: u32,
        count: usize,
        stats: &mut QueueStats,
    ) -> Result<usize, PeerError> {
        let mut reaped = 0;
        for (&words, at) in self.slots.iter().take(count).zip(0..) {
            let response = TxResponse::from_words(words);
            let index = first.wrapping_add(at);
            if response.status == status::NULL {
                let left = self.extras_out.checked_sub(1);
                self.extras_out = left.ok_or(PeerError::UnknownExtra { index })?;
                continue;
            }
            let id = response.id;
            let small = self.buffers.small_mut();
            let known = match small.slot_of(id) {
                Some(slot) => small.take_back(slot, 1),
                None => self.buffers.halves_mut().give_back(id),
            };
            if !known {
                return Err(PeerError::UnknownId { index, found: id });
            }
            stats.tx_errors += u64::from(response.status != status::OKAY);
            reaped += 1;
        }
        Ok(reaped)
    }

    /// Returns true if the pages that frames are sent from may change: [`Transmit::resize`] is to
    /// be called.
    #[inline]
    pub fn may_resize(&self) -> bool {
        self.demand.is_due() || self.has_further()
    }

    /// Takes further pages of the pool into use after a crowd, and out of use after a calm, or if
    /// they are needed elsewhere.
    pub fn resize(&mut self, ready: Ready, pool: &mut Pool) {
        let halves = self.buffers.halves_mut();
        match self.demand.step(ready, || pool.grant(RESTING).is_ok()) {
            Change::Grow => halves.grow(pool.further(RESTING).iter()),
            Change::Shrink => {
                halves.shrink();
                self.leaving = true;
            }
            Change::Nothing | Change::Await | Change::Withdraw => {}
        }
        self.leaving &= !self.demand.is_busy() && !halves.has_all_further();
    }

    /// Returns true if further pages are to be used, are in use, or are still on the ring.
    #[inline]
    pub fn has_further(&self) -> bool {
        self.demand.is_active() || self.leaving
    }

    /// Asks for a signal once a quarter of the outstanding slots has come back. Returns true if
    /// this is so already, or if nothing is outstanding: then no signal would ever come.
    pub fn arm(&mut self) -> Result<bool, PeerError> {
        let outstanding = self.ring.outstanding();
        if outstanding == 0 {
            return Ok(true);
        }
        let armed = self.ring.arm_after(outstanding.div_ceil(4));
        armed.map_err(|source| PeerError::Ring { ring: "transmit", source })
    }

    /// Returns true if there is room for a burst, in slots and in pages, and for the longest frame.
    /// This is enough room for any sender that waited.
    #[inline]
    pub fn has_room(&self) -> bool {
        let halves = self.buffers.halves();
        self.ring.free() >= ROOM && halves.free() >= ROOM && halves.has_room(LONGEST)
    }

    /// Returns the number of slots that the backend has not answered.
    pub fn outstanding(&self) -> u32 {
        self.ring.outstanding()
    }

    /// Says that the pool's grants are void.
    pub fn void(&self) {
        self.buffers.void();
    }
}

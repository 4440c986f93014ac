//! Frontend's end of a ring: it writes requests and reads responses.

use crate::access::{Fence, Index, RingMemory};
use crate::error::{BadIndices, Full, RingError, Unseen};

/// The frontend's end of a ring whose slots are `W` words.
///
/// All state that the frontend relies on is private. It reads only `rsp_prod`, `req_event` and
/// response slots of the shared page.
#[derive(Debug)]
pub struct Front<M, const W: usize> {
    mem: M,
    /// Requests written, published or not.
    req_prod_pvt: u32,
    /// Requests published.
    req_prod: u32,
    /// Responses consumed.
    rsp_cons: u32,
    /// `rsp_prod` as last read and judged: never behind `rsp_cons`, never
    /// beyond `req_prod`.
    rsp_seen: u32,
}

impl<M: RingMemory<W>, const W: usize> Front<M, W> {
    /// Begins with a new ring. Zeroes the page, and sets `req_event` and `rsp_event` to 1, so that
    /// both ends are notified of the first entry.
    #[must_use]
    pub fn init(mem: M) -> Self {
        mem.clear();
        mem.store(Index::ReqEvent, 1);
        mem.store(Index::RspEvent, 1);
        Self { mem, req_prod_pvt: 0, req_prod: 0, rsp_cons: 0, rsp_seen: 0 }
    }

    /// Continues a ring that another process used before, after `req_prod` published requests and
    /// `rsp_cons` consumed responses. Does not access the page.
    ///
    /// # Errors
    ///
    /// Returns [`BadIndices`] if more requests would be outstanding than the ring has slots.
    pub fn attach(mem: M, req_prod: u32, rsp_cons: u32) -> Result<Self, BadIndices> {
        let found = req_prod.wrapping_sub(rsp_cons);
        let slots = mem.slots();
        if found > slots {
            return Err(BadIndices { found, slots });
        }
        Ok(Self { mem, req_prod_pvt: req_prod, req_prod, rsp_cons, rsp_seen: rsp_cons })
    }

    /// Returns the memory of the ring.
    #[must_use]
    pub fn memory(&self) -> &M {
        &self.mem
    }

    /// Returns the number of slots in the ring.
    #[inline]
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.mem.slots()
    }

    /// Returns the number of free slots. A free slot holds neither a request without a response nor
    /// a response that is not consumed yet.
    #[inline]
    #[must_use]
    pub fn free(&self) -> u32 {
        // Wrapping only in form: at most `slots` are ever taken.
        self.mem.slots().wrapping_sub(self.req_prod_pvt.wrapping_sub(self.rsp_cons))
    }

    /// Returns the number of published requests whose responses are not consumed yet.
    #[inline]
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.req_prod.wrapping_sub(self.rsp_cons)
    }

    /// Returns the free-running index that the next request will have.
    #[inline]
    #[must_use]
    pub fn req_prod_pvt(&self) -> u32 {
        self.req_prod_pvt
    }

    /// Returns the number of requests published.
    #[inline]
    #[must_use]
    pub fn req_prod_published(&self) -> u32 {
        self.req_prod
    }

    /// Returns the free-running index of the next response to be consumed.
    #[inline]
    #[must_use]
    pub fn rsp_cons(&self) -> u32 {
        self.rsp_cons
    }

    /// Writes a request, and returns its free-running index. The backend sees the request after
    /// [`publish`](Self::publish).
    ///
    /// # Errors
    ///
    /// Returns [`Full`] if no slot is free.
    #[inline]
    pub fn push(&mut self, words: [u32; W]) -> Result<u32, Full> {
        if self.free() == 0 {
            return Err(Full);
        }
        let index = self.req_prod_pvt;
        self.mem.write_slot(index, words);
        self.req_prod_pvt = index.wrapping_add(1);
        Ok(index)
    }

    /// Writes as many of `requests` as there are free slots, in order, and returns their number.
    /// The first has the index that [`req_prod_pvt`](Self::req_prod_pvt) returned before.
    #[inline]
    pub fn push_batch(&mut self, requests: &[[u32; W]]) -> usize {
        let count = requests.len().min(self.free() as usize);
        self.mem.write_slots(self.req_prod_pvt, &requests[..count]);
        // At most a ring of them.
        self.req_prod_pvt = self.req_prod_pvt.wrapping_add(count as u32);
        count
    }

    /// Publishes all requests written so far. Returns true if the backend must be notified, since
    /// it asked for an event at one of them. Returns false, and does nothing, if there is no new
    /// request.
    #[inline]
    #[must_use = "true means that the backend must be notified"]
    pub fn publish(&mut self) -> bool {
        let (old, new) = (self.req_prod, self.req_prod_pvt);
        if old == new {
            return false;
        }
        self.mem.fence(Fence::RequestsWritten);
        self.mem.store(Index::ReqProd, new);
        self.req_prod = new;
        self.mem.fence(Fence::RequestsPublished);
        let event = self.mem.load(Index::ReqEvent);
        new.wrapping_sub(event) < new.wrapping_sub(old)
    }

    /// Reads the backend's index, and returns the number of waiting responses.
    ///
    /// # Errors
    ///
    /// Returns [`RingError`] if the backend claims more responses than requests are outstanding, or
    /// if its index went back.
    #[inline]
    pub fn available(&mut self) -> Result<u32, RingError> {
        let known = self.known();
        let found = self.mem.load(Index::RspProd).wrapping_sub(self.rsp_cons);
        let limit = self.outstanding();
        if found > limit {
            return Err(RingError::Overflow { found, limit });
        }
        if found < known {
            return Err(RingError::Retreat { found, known });
        }
        self.mem.fence(Fence::ResponsesSeen);
        self.rsp_seen = self.rsp_cons.wrapping_add(found);
        Ok(found)
    }

    /// Consumes the next response, and returns it with its free-running index. Returns `None` if no
    /// response waits. Reads the backend's index only if no response is known.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`available`](Self::available).
    #[inline]
    pub fn pop(&mut self) -> Result<Option<(u32, [u32; W])>, RingError> {
        if self.look_for(1)? == 0 {
            return Ok(None);
        }
        let index = self.rsp_cons;
        let words = self.mem.read_slot(index);
        self.rsp_cons = index.wrapping_add(1);
        Ok(Some((index, words)))
    }

    /// Copies waiting responses to `out` without consuming them, and returns their number. The
    /// first has the index [`rsp_cons`](Self::rsp_cons). Reads the backend's index at most once,
    /// and only if fewer responses are known than `out` has room for.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`available`](Self::available).
    #[inline]
    pub fn peek_batch(&mut self, out: &mut [[u32; W]]) -> Result<usize, RingError> {
        let count = self.look_for(out.len())?.min(out.len());
        self.mem.read_slots(self.rsp_cons, &mut out[..count]);
        Ok(count)
    }

    /// Consumes `count` responses that [`peek_batch`](Self::peek_batch) returned.
    ///
    /// # Errors
    ///
    /// Returns [`Unseen`] if fewer responses are known. No response is consumed then.
    #[inline]
    pub fn consume(&mut self, count: u32) -> Result<(), Unseen> {
        let known = self.known();
        if count > known {
            return Err(Unseen { asked: count, known });
        }
        self.rsp_cons = self.rsp_cons.wrapping_add(count);
        Ok(())
    }

    /// Copies waiting responses to `out` as [`peek_batch`](Self::peek_batch) does, and consumes
    /// them.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`available`](Self::available).
    #[inline]
    pub fn pop_batch(&mut self, out: &mut [[u32; W]]) -> Result<usize, RingError> {
        let count = self.peek_batch(out)?;
        // At most the ring's size, which is a u32.
        self.rsp_cons = self.rsp_cons.wrapping_add(count as u32);
        Ok(count)
    }

    /// Asks for an event at the next response, and then reads the backend's index again: the final
    /// check before a sleep. Returns true if a response waits, so the caller must not sleep.
    /// Returns false if an event will come. No event comes if no request is
    /// [`outstanding`](Self::outstanding).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`available`](Self::available).
    #[inline]
    pub fn arm(&mut self) -> Result<bool, RingError> {
        self.arm_after(1)
    }

    /// Asks for an event when `count` responses wait, and returns true if they already do.
    /// Otherwise it is like [`arm`](Self::arm). Use it for completions that are not urgent. `count`
    /// is limited to 1 at least, and to the [`outstanding`](Self::outstanding) requests at most, so
    /// that the event can come.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`available`](Self::available).
    pub fn arm_after(&mut self, count: u32) -> Result<bool, RingError> {
        let count = count.min(self.outstanding()).max(1);
        if self.available()? >= count {
            return Ok(true);
        }
        self.mem.store(Index::RspEvent, self.rsp_cons.wrapping_add(count));
        self.mem.fence(Fence::ResponsesArmed);
        Ok(self.available()? >= count)
    }

    /// Returns the number of responses that are known to wait, without reading the backend's index.
    #[inline(always)]
    #[must_use]
    pub fn known(&self) -> u32 {
        self.rsp_seen.wrapping_sub(self.rsp_cons)
    }

    /// Responses known, after a look if they are fewer than `wanted`.
    #[inline(always)]
    fn look_for(&mut self, wanted: usize) -> Result<usize, RingError> {
        let known = self.known() as usize;
        if known >= wanted { Ok(known) } else { self.available().map(|found| found as usize) }
    }
}

//! Backend's end of a ring: it reads requests and writes responses.

use crate::access::{Fence, Index, RingMemory};
use crate::error::{BadIndices, RingError, Unconsumed, Unseen};

/// The backend's end of a ring whose slots are `W` words.
///
/// All state that the backend relies on is private. It reads only `req_prod`, `rsp_event` and
/// request slots of the shared page.
#[derive(Debug)]
pub struct Back<M, const W: usize> {
    mem: M,
    /// Requests consumed.
    req_cons: u32,
    /// Responses written, published or not.
    rsp_prod_pvt: u32,
    /// Responses published.
    rsp_prod: u32,
    /// `req_prod` as last read and judged: never behind `req_cons`, never more
    /// than the ring's size beyond `rsp_prod`.
    req_seen: u32,
}

impl<M: RingMemory<W>, const W: usize> Back<M, W> {
    /// Begins with a ring on which no request was consumed yet.
    #[must_use]
    pub fn new(mem: M) -> Self {
        Self { mem, req_cons: 0, rsp_prod_pvt: 0, rsp_prod: 0, req_seen: 0 }
    }

    /// Continues a ring that another process served before, after `req_cons` consumed requests and
    /// `rsp_prod` published responses. Does not access the page.
    ///
    /// # Errors
    ///
    /// Returns [`BadIndices`] if more responses would be owed than the ring has slots.
    pub fn attach(mem: M, req_cons: u32, rsp_prod: u32) -> Result<Self, BadIndices> {
        let slots = mem.slots();
        let found = req_cons.wrapping_sub(rsp_prod);
        if found > slots {
            return Err(BadIndices { found, slots });
        }
        Ok(Self { mem, req_cons, rsp_prod_pvt: rsp_prod, rsp_prod, req_seen: req_cons })
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

    /// Returns the free-running index of the next request to be consumed.
    #[inline]
    #[must_use]
    pub fn req_cons(&self) -> u32 {
        self.req_cons
    }

    /// Returns the free-running index that the next response will have.
    #[inline]
    #[must_use]
    pub fn rsp_prod_pvt(&self) -> u32 {
        self.rsp_prod_pvt
    }

    /// Returns the number of responses published.
    #[inline]
    #[must_use]
    pub fn rsp_prod_published(&self) -> u32 {
        self.rsp_prod
    }

    /// Returns the number of responses that are written and not published yet.
    #[inline]
    #[must_use]
    pub fn unpublished(&self) -> u32 {
        self.rsp_prod_pvt.wrapping_sub(self.rsp_prod)
    }

    /// Returns the number of requests that are consumed and not answered yet.
    #[inline]
    #[must_use]
    pub fn owed(&self) -> u32 {
        self.req_cons.wrapping_sub(self.rsp_prod_pvt)
    }

    /// Reads the frontend's index, and returns the number of waiting requests.
    ///
    /// # Errors
    ///
    /// Returns [`RingError`] if the frontend claims more requests than there are slots without a
    /// published response (`req_prod - rsp_prod` is greater than the number of slots), or if its
    /// index went back.
    #[inline]
    pub fn available(&mut self) -> Result<u32, RingError> {
        let known = self.known();
        let found = self.mem.load(Index::ReqProd).wrapping_sub(self.req_cons);
        // Wrapping only in form: at most `slots` are ever without a published response.
        let limit = self.mem.slots().wrapping_sub(self.req_cons.wrapping_sub(self.rsp_prod));
        if found > limit {
            return Err(RingError::Overflow { found, limit });
        }
        if found < known {
            return Err(RingError::Retreat { found, known });
        }
        self.mem.fence(Fence::RequestsSeen);
        self.req_seen = self.req_cons.wrapping_add(found);
        Ok(found)
    }

    /// Returns the number of waiting requests that the frontend's index shows, at most the number
    /// of slots. The index is not validated: use this for display only.
    #[must_use]
    pub fn shown(&self) -> u32 {
        self.mem.load(Index::ReqProd).wrapping_sub(self.req_cons).min(self.mem.slots())
    }

    /// Returns true if at least `count` requests are waiting. Reads the frontend's index only if
    /// fewer are known. A receive ring needs this: a packet waits until `count` slots are posted.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`available`](Self::available).
    #[inline]
    pub fn has(&mut self, count: u32) -> Result<bool, RingError> {
        Ok(self.known() >= count || self.available()? >= count)
    }

    /// Copies waiting requests to `out` without consuming them, and returns their number. The first
    /// has the index [`req_cons`](Self::req_cons). Reads the frontend's index at most once, and
    /// only if fewer requests are known than `out` has room for.
    ///
    /// Two copies of the same request may differ. Use only the copy after which the request is
    /// consumed.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`available`](Self::available).
    #[inline]
    pub fn peek_batch(&mut self, out: &mut [[u32; W]]) -> Result<usize, RingError> {
        let mut known = self.known() as usize;
        if known < out.len() {
            known = self.available()? as usize;
        }
        let count = known.min(out.len());
        self.mem.read_slots(self.req_cons, &mut out[..count]);
        Ok(count)
    }

    /// Consumes `count` requests that [`peek_batch`](Self::peek_batch) returned.
    ///
    /// # Errors
    ///
    /// Returns [`Unseen`] if fewer requests are known. No request is consumed then.
    #[inline]
    pub fn consume(&mut self, count: u32) -> Result<(), Unseen> {
        let known = self.known();
        if count > known {
            return Err(Unseen { asked: count, known });
        }
        self.req_cons = self.req_cons.wrapping_add(count);
        Ok(())
    }

    /// Consumes the next request, and returns it with its free-running index. Returns `None` if no
    /// request waits. Reads the frontend's index only if no request is known.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`available`](Self::available).
    #[inline]
    pub fn pop(&mut self) -> Result<Option<(u32, [u32; W])>, RingError> {
        if self.known() == 0 && self.available()? == 0 {
            return Ok(None);
        }
        let index = self.req_cons;
        let words = self.mem.read_slot(index);
        self.req_cons = index.wrapping_add(1);
        Ok(Some((index, words)))
    }

    /// Writes a response over the oldest request that is not answered yet, and returns its
    /// free-running index. The frontend sees the response after [`publish`](Self::publish). All
    /// words of the slot are written, so no private data leaks (XSA-216).
    ///
    /// # Errors
    ///
    /// Returns [`Unconsumed`] if every consumed request is answered already.
    #[inline]
    pub fn push_response(&mut self, words: [u32; W]) -> Result<u32, Unconsumed> {
        let index = self.rsp_prod_pvt;
        if index == self.req_cons {
            return Err(Unconsumed { index });
        }
        self.mem.write_slot(index, words);
        self.rsp_prod_pvt = index.wrapping_add(1);
        Ok(index)
    }

    /// Writes several responses in order, as [`push_response`](Self::push_response) does. It writes
    /// all of them or none.
    ///
    /// # Errors
    ///
    /// Returns [`Unconsumed`] if there are more responses than requests that wait for one.
    #[inline]
    pub fn push_responses(&mut self, responses: &[[u32; W]]) -> Result<(), Unconsumed> {
        let index = self.rsp_prod_pvt;
        let owed = self.req_cons.wrapping_sub(index);
        if responses.len() > owed as usize {
            return Err(Unconsumed { index: self.req_cons });
        }
        self.mem.write_slots(index, responses);
        // At most a ring of them.
        self.rsp_prod_pvt = index.wrapping_add(responses.len() as u32);
        Ok(())
    }

    /// Publishes all responses written so far. Returns true if the frontend must be notified, since
    /// it asked for an event at one of them. Returns false, and does nothing, if there is no new
    /// response.
    #[inline]
    #[must_use = "true means that the frontend must be notified"]
    pub fn publish(&mut self) -> bool {
        let (old, new) = (self.rsp_prod, self.rsp_prod_pvt);
        if old == new {
            return false;
        }
        self.mem.fence(Fence::ResponsesWritten);
        self.mem.store(Index::RspProd, new);
        self.rsp_prod = new;
        self.mem.fence(Fence::ResponsesPublished);
        let event = self.mem.load(Index::RspEvent);
        new.wrapping_sub(event) < new.wrapping_sub(old)
    }

    /// Asks for an event at the next request, and then reads the frontend's index again: the final
    /// check before a sleep. Returns true if a request waits, so the caller must not sleep. Returns
    /// false if an event will come.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`available`](Self::available).
    #[inline]
    pub fn arm(&mut self) -> Result<bool, RingError> {
        self.arm_after(1)
    }

    /// Asks for an event when `count` requests wait, and returns true if they already do. Otherwise
    /// it is like [`arm`](Self::arm). A receive ring needs this if the next packet takes `count`
    /// slots. `count` is limited to 1 at least, and to the slots without an owed response at most.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`available`](Self::available).
    pub fn arm_after(&mut self, count: u32) -> Result<bool, RingError> {
        let room = self.mem.slots().wrapping_sub(self.owed());
        let count = count.min(room).max(1);
        if self.available()? >= count {
            return Ok(true);
        }
        self.mem.store(Index::ReqEvent, self.req_cons.wrapping_add(count));
        self.mem.fence(Fence::RequestsArmed);
        Ok(self.available()? >= count)
    }

    /// Returns the number of requests that are known to wait, without reading the frontend's index.
    #[inline(always)]
    #[must_use]
    pub fn known(&self) -> u32 {
        self.req_seen.wrapping_sub(self.req_cons)
    }
}

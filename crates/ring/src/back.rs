//! The backend's end: requests out, responses in.

use crate::access::{Fence, Index, RingMemory};
use crate::error::{BadIndices, RingError, Unconsumed, Unseen};

/// The backend's end of a ring whose slots are `W` words.
///
/// All state that decides anything is private; of the shared page, only
/// `req_prod`, `rsp_event` and request slots are ever read.
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
    /// than the ring's size beyond `rsp_prod_pvt`.
    req_seen: u32,
}

impl<M: RingMemory<W>, const W: usize> Back<M, W> {
    /// Takes up a ring on which nothing was consumed yet.
    #[must_use]
    pub fn new(mem: M) -> Self {
        Self { mem, req_cons: 0, rsp_prod_pvt: 0, rsp_prod: 0, req_seen: 0 }
    }

    /// Takes up a ring where a former holder of this end left it: `req_cons`
    /// requests consumed, `rsp_prod` responses published. The page is not
    /// touched.
    ///
    /// # Errors
    ///
    /// [`BadIndices`] when more responses would be owed than there are slots.
    pub fn attach(mem: M, req_cons: u32, rsp_prod: u32) -> Result<Self, BadIndices> {
        let slots = mem.slots();
        let found = req_cons.wrapping_sub(rsp_prod);
        if found > slots {
            return Err(BadIndices { found, slots });
        }
        Ok(Self { mem, req_cons, rsp_prod_pvt: rsp_prod, rsp_prod, req_seen: req_cons })
    }

    /// The memory that the ring lives in.
    #[must_use]
    pub fn memory(&self) -> &M {
        &self.mem
    }

    /// Number of slots in the ring.
    #[inline]
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.mem.slots()
    }

    /// Free-running index of the next request to be consumed.
    #[inline]
    #[must_use]
    pub fn req_cons(&self) -> u32 {
        self.req_cons
    }

    /// Free-running index that the next response will have.
    #[inline]
    #[must_use]
    pub fn rsp_prod_pvt(&self) -> u32 {
        self.rsp_prod_pvt
    }

    /// Responses published.
    #[inline]
    #[must_use]
    pub fn rsp_prod_published(&self) -> u32 {
        self.rsp_prod
    }

    /// Requests consumed and not answered yet.
    #[inline]
    #[must_use]
    pub fn owed(&self) -> u32 {
        self.req_cons.wrapping_sub(self.rsp_prod_pvt)
    }

    /// Requests waiting, by a fresh look at the frontend's index.
    ///
    /// # Errors
    ///
    /// [`RingError`] when the frontend claims more requests than the slots can
    /// hold beside those that are owed a response (`req_prod - rsp_prod_pvt`
    /// beyond the ring's size), or takes requests back.
    #[inline]
    pub fn available(&mut self) -> Result<u32, RingError> {
        let known = self.known();
        let found = self.mem.load(Index::ReqProd).wrapping_sub(self.req_cons);
        // Wrapping only in form: at most `slots` are ever owed.
        let limit = self.mem.slots().wrapping_sub(self.owed());
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

    /// Requests waiting as the frontend has it, which is not judged: for telling, and
    /// nothing else. At most the ring's size, whatever it has.
    #[must_use]
    pub fn shown(&self) -> u32 {
        self.mem.load(Index::ReqProd).wrapping_sub(self.req_cons).min(self.mem.slots())
    }

    /// Returns true if at least `count` requests are waiting. Reads the frontend's index only if
    /// fewer are known. A receive ring needs this: a packet waits until `count` slots are posted.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
    #[inline]
    pub fn has(&mut self, count: u32) -> Result<bool, RingError> {
        Ok(self.known() >= count || self.available()? >= count)
    }

    /// Copies waiting requests to `out` without consuming them and returns how
    /// many; the first has the index [`req_cons`](Self::req_cons). Looks at the
    /// frontend's index at most once, and only when fewer than asked for are
    /// known.
    ///
    /// A request that is peeked twice may differ: act on the copy of which the
    /// request is consumed, and on no other.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
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

    /// Consumes `count` requests that [`peek_batch`](Self::peek_batch) gave.
    ///
    /// # Errors
    ///
    /// [`Unseen`] when fewer are known; none is consumed then.
    #[inline]
    pub fn consume(&mut self, count: u32) -> Result<(), Unseen> {
        let known = self.known();
        if count > known {
            return Err(Unseen { asked: count, known });
        }
        self.req_cons = self.req_cons.wrapping_add(count);
        Ok(())
    }

    /// Consumes the next request, if there is one, and returns it with its
    /// free-running index. Looks at the frontend's index only when no request
    /// is known.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
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

    /// Writes a response over the oldest request not answered yet; private
    /// until [`publish`](Self::publish). Returns its free-running index. All
    /// words of the slot are written, so that none of ours leaks (XSA-216).
    ///
    /// # Errors
    ///
    /// [`Unconsumed`] when every consumed request was answered.
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

    /// Writes several responses, in order: all of them or none. See
    /// [`push_response`](Self::push_response).
    ///
    /// # Errors
    ///
    /// [`Unconsumed`] when they are more than the requests that wait for an answer.
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

    /// Shows the frontend all responses written so far. Returns whether it
    /// asked to be notified of one of them. With nothing new to show, does
    /// nothing and returns false.
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

    /// The final check before sleeping: asks for an event at the next request,
    /// then looks again. True: a request is there, do not sleep. False: an
    /// event will come.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
    #[inline]
    pub fn arm(&mut self) -> Result<bool, RingError> {
        self.arm_after(1)
    }

    /// Like [`arm`](Self::arm), but asks for the event only once `count`
    /// requests are waiting, and returns true if they already are: for a
    /// receive ring on which the next packet needs `count` slots. `count` is
    /// held between 1 and what the ring can hold beside the responses owed.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
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

    /// Requests that are known to wait, without a look at the frontend's index.
    #[inline(always)]
    #[must_use]
    pub fn known(&self) -> u32 {
        self.req_seen.wrapping_sub(self.req_cons)
    }
}

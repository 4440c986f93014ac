//! The frontend's end: requests in, responses out.

use crate::access::{Fence, Index, RingMemory};
use crate::error::{BadIndices, Full, RingError, Unseen};

/// The frontend's end of a ring whose slots are `W` words.
///
/// All state that decides anything is private; of the shared page, only
/// `rsp_prod`, `req_event` and response slots are ever read.
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
    /// Takes a page into use: zeroes it and asks for the first event on either
    /// side (`req_event` = `rsp_event` = 1).
    #[must_use]
    pub fn init(mem: M) -> Self {
        mem.clear();
        mem.store(Index::ReqEvent, 1);
        mem.store(Index::RspEvent, 1);
        Self { mem, req_prod_pvt: 0, req_prod: 0, rsp_cons: 0, rsp_seen: 0 }
    }

    /// Takes up a ring where a former holder of this end left it: `req_prod`
    /// requests published, `rsp_cons` responses consumed. The page is not
    /// touched.
    ///
    /// # Errors
    ///
    /// [`BadIndices`] when more requests would be outstanding than there are
    /// slots.
    pub fn attach(mem: M, req_prod: u32, rsp_cons: u32) -> Result<Self, BadIndices> {
        let found = req_prod.wrapping_sub(rsp_cons);
        let slots = mem.slots();
        if found > slots {
            return Err(BadIndices { found, slots });
        }
        Ok(Self { mem, req_prod_pvt: req_prod, req_prod, rsp_cons, rsp_seen: rsp_cons })
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

    /// Slots that may be pushed: those that hold neither a request without a
    /// response nor a response not yet consumed.
    #[inline]
    #[must_use]
    pub fn free(&self) -> u32 {
        // Wrapping only in form: at most `slots` are ever taken.
        self.mem.slots().wrapping_sub(self.req_prod_pvt.wrapping_sub(self.rsp_cons))
    }

    /// Requests published and not answered, as far as responses were consumed.
    #[inline]
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.req_prod.wrapping_sub(self.rsp_cons)
    }

    /// Free-running index that the next request will have.
    #[inline]
    #[must_use]
    pub fn req_prod_pvt(&self) -> u32 {
        self.req_prod_pvt
    }

    /// Requests published.
    #[inline]
    #[must_use]
    pub fn req_prod_published(&self) -> u32 {
        self.req_prod
    }

    /// Free-running index of the next response to be consumed.
    #[inline]
    #[must_use]
    pub fn rsp_cons(&self) -> u32 {
        self.rsp_cons
    }

    /// Writes a request, which stays private until [`publish`](Self::publish);
    /// returns its free-running index.
    ///
    /// # Errors
    ///
    /// [`Full`] when no slot is free.
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

    /// Writes as many of `requests` as there are free slots, in order, and
    /// returns how many; the first has the index that
    /// [`req_prod_pvt`](Self::req_prod_pvt) gave before.
    #[inline]
    pub fn push_batch(&mut self, requests: &[[u32; W]]) -> usize {
        let count = requests.len().min(self.free() as usize);
        self.mem.write_slots(self.req_prod_pvt, &requests[..count]);
        // At most a ring of them.
        self.req_prod_pvt = self.req_prod_pvt.wrapping_add(count as u32);
        count
    }

    /// Shows the backend all requests written so far. Returns whether it asked
    /// to be notified of one of them. With nothing new to show, does nothing
    /// and returns false.
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

    /// Responses waiting, by a fresh look at the backend's index.
    ///
    /// # Errors
    ///
    /// [`RingError`] when the backend claims to have answered more requests
    /// than are outstanding, or takes responses back.
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

    /// Consumes the next response, if there is one, and returns it with its
    /// free-running index. Looks at the backend's index only when no response
    /// is known.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
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

    /// Copies waiting responses to `out` without consuming them and returns how
    /// many; the first has the index [`rsp_cons`](Self::rsp_cons). Looks at the
    /// backend's index at most once, and only when fewer than asked for are
    /// known.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
    #[inline]
    pub fn peek_batch(&mut self, out: &mut [[u32; W]]) -> Result<usize, RingError> {
        let count = self.look_for(out.len())?.min(out.len());
        self.mem.read_slots(self.rsp_cons, &mut out[..count]);
        Ok(count)
    }

    /// Consumes `count` responses that [`peek_batch`](Self::peek_batch) gave.
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
        self.rsp_cons = self.rsp_cons.wrapping_add(count);
        Ok(())
    }

    /// [`peek_batch`](Self::peek_batch), and consumes what it gave.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
    #[inline]
    pub fn pop_batch(&mut self, out: &mut [[u32; W]]) -> Result<usize, RingError> {
        let count = self.peek_batch(out)?;
        // At most the ring's size, which is a u32.
        self.rsp_cons = self.rsp_cons.wrapping_add(count as u32);
        Ok(count)
    }

    /// The final check before sleeping: asks for an event at the next response,
    /// then looks again. True: a response is there, do not sleep. False: an
    /// event will come, provided that a request is
    /// [`outstanding`](Self::outstanding); with none, nobody owes us anything.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
    #[inline]
    pub fn arm(&mut self) -> Result<bool, RingError> {
        self.arm_after(1)
    }

    /// Like [`arm`](Self::arm), but asks for the event only once `count`
    /// responses are waiting, and returns true if they already are: for
    /// completions that nobody is in a hurry for. `count` is held between 1 and
    /// the requests [`outstanding`](Self::outstanding), so that the event can
    /// come at all.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
    pub fn arm_after(&mut self, count: u32) -> Result<bool, RingError> {
        let count = count.min(self.outstanding()).max(1);
        if self.available()? >= count {
            return Ok(true);
        }
        self.mem.store(Index::RspEvent, self.rsp_cons.wrapping_add(count));
        self.mem.fence(Fence::ResponsesArmed);
        Ok(self.available()? >= count)
    }

    /// Responses known without looking.
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

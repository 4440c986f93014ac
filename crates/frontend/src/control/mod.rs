//! The control ring from the guest's side: requests that never block the data
//! path, and answers that may come out of order.
//!
//! The ring, its event channel and one page for what requests point to are lent
//! to the backend for as long as the vif is connected. Every request has a
//! private shadow: an answer is believed only where it names one that is out, of
//! the same type (XSA-376). An id holds the shadow's number and a count, so that
//! an answer which comes twice is found out.

mod hash;

pub use hash::{HashRefusal, HashState, HashWish};

use crate::lent::{Channels, Lent};
use crate::{PeerError, VifError};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use grantway_hypervisor::{Access, DomId, Error as PlatformError, GrantRef, Platform, Port};
use grantway_netif::ctrl::{CTRL_RING_ENTRIES, CtrlResponse, Message, Status};
use grantway_ring::{Front, RingPage, SharedPage};
use hash::HashChange;

/// Which request an answer is to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(u16);

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Which request.
    pub ticket: Ticket,
    /// What was asked.
    pub message: Message,
    /// The answer's data, or why the backend refused.
    pub result: Result<u32, Status>,
}

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// As many requests are out, or answered and not looked at, as the ring has
    /// slots: take answers first.
    #[error("{CTRL_RING_ENTRIES} control requests are out or answered; take answers first")]
    Full,
}

/// What a backend is told of a control ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CtrlRefs {
    pub ring: GrantRef,
    pub event: Port,
}

/// A request that is out.
#[derive(Debug, Clone, Copy)]
struct Asked {
    id: u16,
    message: Message,
}

/// Bits of an id that number its shadow.
const SHADOW_BITS: u32 = CTRL_RING_ENTRIES.trailing_zeros();
const _: () = assert!(1 << SHADOW_BITS == CTRL_RING_ENTRIES);

/// The control ring of one connection. Nothing here blocks.
pub struct Control {
    ring: Front<RingPage<4>, 4>,
    /// One for each slot of the ring.
    out: Vec<Option<Asked>>,
    /// Requests made so far, for ids.
    made: u16,
    /// What was answered and not looked at.
    answers: VecDeque<Answer>,
    change: HashChange,
    /// What requests point to: one change uses it at a time.
    page: SharedPage,
    page_gref: GrantRef,
    refs: CtrlRefs,
    channels: Channels,
    // Behind the handles of its pages.
    lent: Lent,
}

impl Control {
    /// Lends a ring and a page to the backend's domain and makes an event
    /// channel. On failure nothing stays lent.
    pub(crate) fn new(
        platform: &Arc<dyn Platform>,
        backend: DomId,
        queues: u16,
    ) -> Result<Self, PlatformError> {
        let lent = Lent::new(platform, backend, 2, Access::ReadWrite)?;
        let found = || PlatformError::Protocol {
            what: "granted run",
            found: "fewer".into(),
            expected: "two pages",
        };
        let (ring_page, ring) = lent.page(0).ok_or_else(found)?;
        let (page, page_gref) = lent.page(1).ok_or_else(found)?;
        let channels = Channels::new(platform.as_ref(), backend, false)?;
        Ok(Self {
            ring: Front::init(RingPage::new(ring_page)),
            out: alloc::vec![None; CTRL_RING_ENTRIES],
            made: 0,
            answers: VecDeque::new(),
            change: HashChange::new(queues),
            page,
            page_gref,
            refs: CtrlRefs { ring, event: channels.tx },
            channels,
            lent,
        })
    }

    pub(crate) fn refs(&self) -> CtrlRefs {
        self.refs
    }

    /// Puts a request on the ring and signals the backend if it asked. What the
    /// message points to must stay granted until the answer is there.
    ///
    /// # Errors
    ///
    /// [`SubmitError`] within, nothing was taken then; [`VifError`] where the
    /// platform is gone.
    pub fn submit(&mut self, message: Message) -> Result<Result<Ticket, SubmitError>, VifError> {
        let taken = self.out.iter().flatten().count() + self.answers.len();
        let free = self.out.iter().position(Option::is_none);
        let Some(shadow) = free.filter(|_| taken < CTRL_RING_ENTRIES) else {
            return Ok(Err(SubmitError::Full));
        };
        self.made = self.made.wrapping_add(1);
        // Below the number of slots, which the bits hold.
        let id = self.made << SHADOW_BITS | shadow as u16;
        if self.ring.push(message.request(id).to_words()).is_err() {
            return Ok(Err(SubmitError::Full));
        }
        if let Some(place) = self.out.get_mut(shadow) {
            *place = Some(Asked { id, message });
        }
        if self.ring.publish() {
            self.channels.set.notify(self.channels.tx)?;
        }
        Ok(Ok(Ticket(id)))
    }

    /// The next answer to a request of [`Control::submit`], in the order in which
    /// they came; see [`Vif::take_answers`](crate::Vif::take_answers).
    pub fn next_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Takes signals and answers in, and goes on with a change of the hash; asks
    /// to be signalled for the next answer.
    pub(crate) fn poll(&mut self) -> Result<(), VifError> {
        self.channels.set.poll(&mut |_| {})?;
        // Each turn takes an answer, or ends: as many as are out, and those of
        // the few steps of a change.
        loop {
            while let Some((index, words)) = self.ring.pop().map_err(ring_error)? {
                let answer = self.judge(index, CtrlResponse::from_words(words));
                let answer = answer.map_err(|source| VifError::Control { source })?;
                match self.change.is_waiting_for(answer.ticket) {
                    true => self.change.answered(answer.result),
                    false => self.answers.push_back(answer),
                }
            }
            self.go_on()?;
            // Armed with nothing out, too: what is asked later is answered later.
            if !self.ring.arm().map_err(ring_error)? {
                return Ok(());
            }
        }
    }

    /// Matches an answer with its request.
    fn judge(&mut self, index: u32, response: CtrlResponse) -> Result<Answer, PeerError> {
        let found = response.id;
        let shadow = usize::from(found) % CTRL_RING_ENTRIES;
        let place = self.out.get_mut(shadow);
        let Some((place, asked)) = place.and_then(|place| {
            let asked = place.filter(|asked| asked.id == found)?;
            Some((place, asked))
        }) else {
            return Err(PeerError::UnknownAnswer { index, found });
        };
        let expected = asked.message.request(found).kind;
        if response.kind != expected {
            return Err(PeerError::WrongAnswer { index, found: response.kind, expected });
        }
        let result = match response.status() {
            Some(Status::Success) => Ok(response.data),
            Some(status) => Err(status),
            None => return Err(PeerError::UnknownStatus { index, found: response.status }),
        };
        if let Message::DelGrefMapping { entries, .. } = asked.message
            && let Ok(found) = result
            && found > entries
        {
            return Err(PeerError::TooManyDeleted { index, found, expected: entries });
        }
        *place = None;
        Ok(Answer { ticket: Ticket(found), message: asked.message, result })
    }

    /// Begins a change of the hash, behind one that is under way.
    pub(crate) fn set_hash(&mut self, wish: Option<HashWish>) -> Result<(), VifError> {
        self.change.want(wish);
        self.go_on()
    }

    /// How the change of the hash stands that was asked for last.
    #[must_use]
    pub fn hash(&self) -> HashState {
        self.change.state()
    }

    /// Asks what is to be asked next for a change of the hash.
    fn go_on(&mut self) -> Result<(), VifError> {
        let gref = self.page_gref.0;
        if let Some(message) = self.change.next_message(&self.page, gref)
            && let Ok(ticket) = self.submit(message)?
        {
            self.change.asked(ticket);
        }
        Ok(())
    }

    /// Whether a request of ours is out.
    #[must_use]
    pub fn is_out(&self, ticket: Ticket) -> bool {
        self.out.iter().flatten().any(|asked| asked.id == ticket.0)
    }

    /// The descriptor of its event channel.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        self.channels.set.descriptor()
    }

    /// Forgets what was lent without touching it.
    pub(crate) fn forget(self) {
        let Self { lent, channels, .. } = self;
        lent.forget();
        channels.forget();
    }
}

fn ring_error(source: grantway_ring::RingError) -> VifError {
    VifError::Control { source: PeerError::Ring { ring: "control", source } }
}

//! The control ring from the guest's side: requests that never block the data
//! path, and answers that may come out of order.
//!
//! The ring, its event channel and two pages for what requests point to, one for
//! the hash and one for staging, are lent to the backend for as long as the vif is connected. Every request has a
//! private shadow: an answer is believed only where it names one that is out, of
//! the same type (XSA-376). An id holds the shadow's number and a count, so that
//! an answer which comes twice is found out.

mod hash;
mod staging;

pub use hash::{HashRefusal, HashState, HashWish};
pub use staging::{StagingRefusal, StagingState};

use crate::lent::{Channels, Lent};
use crate::refs::CtrlRefs;
use crate::staging::QueueStaging;
use crate::{PeerError, VifError};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use grantway_hypervisor::{Access, DomId, Error as PlatformError, GrantRef, Platform};
use grantway_netif::ctrl::{CTRL_RING_ENTRIES, CtrlResponse, Message, Status};
use grantway_ring::{Front, RingPage, SharedPage};
use hash::HashChange;
use staging::StagingChange;

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
    staging: StagingChange,
    /// What requests of a change of the hash point to, and of staging.
    hash_page: (SharedPage, GrantRef),
    list_page: (SharedPage, GrantRef),
    refs: CtrlRefs,
    channels: Channels,
    // Behind the handles of its pages.
    lent: Lent,
}

impl Control {
    /// Pages that it grants: the ring, and two that requests point to.
    pub const PAGES: usize = 3;

    /// Lends a ring and two pages to the backend's domain and makes an event
    /// channel, for so many queues, which have these pages to be staged, or none.
    /// On failure nothing stays lent.
    pub(crate) fn new(
        platform: &Arc<dyn Platform>,
        backend: DomId,
        queues: u16,
        staging: Vec<QueueStaging>,
    ) -> Result<Self, PlatformError> {
        let lent = Lent::new(platform, backend, Self::PAGES, Access::ReadWrite)?;
        let found = || PlatformError::Protocol {
            what: "granted run",
            found: "fewer".into(),
            expected: "three pages",
        };
        let (ring_page, ring) = lent.page(0).ok_or_else(found)?;
        let hash_page = lent.page(1).ok_or_else(found)?;
        let list_page = lent.page(2).ok_or_else(found)?;
        let channels = Channels::new(platform.as_ref(), backend, false)?;
        Ok(Self {
            ring: Front::init(RingPage::new(ring_page)),
            out: alloc::vec![None; CTRL_RING_ENTRIES],
            made: 0,
            answers: VecDeque::new(),
            change: HashChange::new(queues),
            staging: StagingChange::new(staging),
            hash_page,
            list_page,
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

    /// Takes signals and answers in, and goes on with what is being changed; asks
    /// to be signalled for the next answer.
    pub(crate) fn poll(&mut self) -> Result<(), VifError> {
        self.channels.set.poll(&mut |_| {})?;
        // Each turn takes an answer, or ends: as many as are out, and those of
        // the few steps of a change.
        loop {
            while let Some((index, words)) = self.ring.pop().map_err(ring_error)? {
                let answer = self.judge(index, CtrlResponse::from_words(words));
                let answer = answer.map_err(|source| VifError::Control { source })?;
                if self.change.is_waiting_for(answer.ticket) {
                    self.change.answered(answer.result);
                } else if self.staging.is_waiting_for(answer.ticket) {
                    self.staging.answered(answer.result, &self.list_page.0);
                } else {
                    self.answers.push_back(answer);
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

    /// Has so many pages of a queue staged, from the first on, or as many as the
    /// backend takes; and others taken back.
    pub(crate) fn stage(&mut self, queue: u16, pages: usize) -> Result<(), VifError> {
        self.staging.want(queue, pages);
        self.go_on()
    }

    /// What of each queue is staged; nothing where staging was not agreed on.
    pub fn staging(&self) -> impl Iterator<Item = StagingState> + '_ {
        self.staging.states()
    }

    /// What the backend refused of staging since the last call, the first of it:
    /// the pages that it is about take grant copy.
    pub(crate) fn take_staging_refusal(&mut self) -> Option<StagingRefusal> {
        self.staging.take_refusal()
    }

    /// Asks what is to be asked next for a change of the hash, and for staging.
    fn go_on(&mut self) -> Result<(), VifError> {
        if let Some(message) = self.change.next_message(&self.hash_page.0, self.hash_page.1.0)
            && let Ok(ticket) = self.submit(message)?
        {
            self.change.asked(ticket);
        }
        if let Some(message) = self.staging.next_message(&self.list_page.0, self.list_page.1.0)
            && let Ok(ticket) = self.submit(message)?
        {
            self.staging.asked(ticket);
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
        self.lent.void();
        self.channels.forget();
    }
}

fn ring_error(source: grantway_ring::RingError) -> VifError {
    VifError::Control { source: PeerError::Ring { ring: "control", source } }
}

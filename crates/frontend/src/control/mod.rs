//! The control ring from the guest's side. Requests never block packets, and their answers may come
//! in any order.
//!
//! The ring, its event channel and two pages are lent to the backend for as long as the vif is
//! connected. The pages have data of requests: one for the hash, and one for staging. Each request
//! has a private record. An answer is believed only if it names a request that waits for its
//! answer, and has the same type (XSA-376). An id has the record's number and a count, so that a
//! second answer to one request is an error.

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
use grantway_hypervisor::{Access, DomId, Error as PlatformError, FrontendPlatform, GrantRef};
use grantway_netif::ctrl::{CTRL_RING_ENTRIES, CtrlResponse, Message, Status};
use grantway_ring::{Front, RingPage, SharedPage};
use hash::HashChange;
use staging::StagingChange;

/// Identity of a request, which its answer repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(u16);

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The request's ticket.
    pub ticket: Ticket,
    /// The request.
    pub message: Message,
    /// The answer's data, or the status with which the backend refused.
    pub result: Result<u32, Status>,
}

/// Reason why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The ring has no free slot. Unanswered requests and answers that were not taken both count.
    /// Take answers first.
    #[error("{CTRL_RING_ENTRIES} control requests are out or answered; take answers first")]
    Full,
}

/// A request that is not answered yet.
#[derive(Debug, Clone, Copy)]
struct Asked {
    id: u16,
    message: Message,
}

/// Bits of an id that number its record.
const SHADOW_BITS: u32 = CTRL_RING_ENTRIES.trailing_zeros();
const _: () = assert!(1 << SHADOW_BITS == CTRL_RING_ENTRIES);

/// The control ring of one connection. No call waits.
pub struct Control {
    ring: Front<RingPage<4>, 4>,
    /// Requests that are out: one place for each slot of the ring.
    out: Vec<Option<Asked>>,
    /// Requests made so far, for ids.
    made: u16,
    /// Answers that the caller has not taken.
    answers: VecDeque<Answer>,
    change: HashChange,
    staging: StagingChange,
    /// Pages with the data of requests: for a change of the hash, and for staging.
    hash_page: (SharedPage, GrantRef),
    list_page: (SharedPage, GrantRef),
    refs: CtrlRefs,
    channels: Channels,
    // Declared after the handles of its pages.
    lent: Lent,
}

impl Control {
    /// Pages that the control ring grants: the ring, and two for data of requests.
    pub const PAGES: usize = 3;

    /// Lends a ring and two pages to the backend's domain, and makes an event channel. `queues` is
    /// the number of queues. `staging` has the queues whose pages are to be staged. On failure
    /// nothing stays lent.
    pub(crate) fn new(
        platform: &Arc<dyn FrontendPlatform>,
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

    /// Puts a request on the ring, and signals the backend if it asked for a signal. Returns the
    /// request's ticket. Memory that the message names must stay granted until the answer has come.
    ///
    /// # Errors
    ///
    /// [`SubmitError`] in the inner result: nothing was sent. [`VifError`] if the platform is gone.
    pub fn submit(&mut self, message: Message) -> Result<Result<Ticket, SubmitError>, VifError> {
        let taken = self.out.iter().flatten().count() + self.answers.len();
        if taken >= CTRL_RING_ENTRIES {
            return Ok(Err(SubmitError::Full));
        }
        Ok(self.ask(message)?.ok_or(SubmitError::Full))
    }

    /// Puts a request on the ring like [`Control::submit`], however many answers were not taken: a
    /// change's own requests never wait for the caller. Returns `None` if all slots have unanswered
    /// requests.
    fn ask(&mut self, message: Message) -> Result<Option<Ticket>, VifError> {
        let Some(shadow) = self.out.iter().position(Option::is_none) else { return Ok(None) };
        self.made = self.made.wrapping_add(1);
        // The shadow is below the number of slots, for which the bits have room.
        let id = self.made << SHADOW_BITS | shadow as u16;
        if self.ring.push(message.request(id).to_words()).is_err() {
            return Ok(None);
        }
        if let Some(place) = self.out.get_mut(shadow) {
            *place = Some(Asked { id, message });
        }
        if self.ring.publish() {
            self.channels.set.notify(self.channels.tx)?;
        }
        Ok(Some(Ticket(id)))
    }

    /// Returns the next answer to a request of [`Control::submit`], in the order in which they
    /// came. Call [`Vif::take_answers`](crate::Vif::take_answers) before.
    pub fn next_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Takes in signals and answers, continues the changes that wait for these answers, and asks
    /// for a signal at the next answer.
    pub(crate) fn poll(&mut self) -> Result<(), VifError> {
        self.channels.set.poll(&mut |_| {})?;
        // Each turn takes an answer, or is the last. There are as many answers as requests out, and
        // those of the few steps of a change.
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
            // The ring is armed with nothing out, too, for answers to later requests.
            if !self.ring.arm().map_err(ring_error)? {
                return Ok(());
            }
        }
    }

    /// Takes in signals, and nothing else.
    pub(crate) fn take_signals(&mut self) -> Result<(), VifError> {
        Ok(self.channels.set.poll(&mut |_| {})?)
    }

    /// Matches an answer with its request, and returns both.
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

    /// Begins a change of the hash, after one that is under way.
    pub(crate) fn set_hash(&mut self, wish: Option<HashWish>) -> Result<(), VifError> {
        self.change.want(wish);
        self.go_on()
    }

    /// Returns the state of the last change of the hash.
    #[must_use]
    pub fn hash(&self) -> HashState {
        self.change.state()
    }

    /// Stages the first `pages` pages of a queue, or as many as the backend accepts, and takes the
    /// other pages back.
    pub(crate) fn stage(&mut self, queue: u16, pages: usize) -> Result<(), VifError> {
        self.staging.want(queue, pages);
        self.go_on()
    }

    /// Returns the staging state of each queue, or nothing if the two ends did not agree on
    /// staging.
    pub fn staging(&self) -> impl Iterator<Item = StagingState> + '_ {
        self.staging.states()
    }

    /// Returns the backend's first refusal about staging since the last call. The pages that were
    /// refused use grant copy.
    pub(crate) fn take_staging_refusal(&mut self) -> Option<StagingRefusal> {
        self.staging.take_refusal()
    }

    /// Sends the next request of a change of the hash, and the next one of staging, if there are
    /// any.
    fn go_on(&mut self) -> Result<(), VifError> {
        if let Some(message) = self.change.next_message(&self.hash_page.0, self.hash_page.1.0)
            && let Some(ticket) = self.ask(message)?
        {
            self.change.asked(ticket);
        }
        if let Some(message) = self.staging.next_message(&self.list_page.0, self.list_page.1.0)
            && let Some(ticket) = self.ask(message)?
        {
            self.staging.asked(ticket);
        }
        Ok(())
    }

    /// Returns true if the request of this ticket is not answered yet.
    #[must_use]
    pub fn is_out(&self, ticket: Ticket) -> bool {
        self.out.iter().flatten().any(|asked| asked.id == ticket.0)
    }

    /// Returns the descriptor of the event channel, or `None` if the platform has no descriptors.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.channels.set.descriptor()
    }

    /// Drops the ring without touching its grants and its port.
    pub(crate) fn forget(self) {
        self.lent.void();
        self.channels.forget();
    }
}

fn ring_error(source: grantway_ring::RingError) -> VifError {
    VifError::Control { source: PeerError::Ring { ring: "control", source } }
}

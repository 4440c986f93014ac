//! The control ring of one vif: what its guest sets of the hash, and the grants
//! that it has staged.
//!
//! Served on the control thread, a few requests at a time. What the packet path
//! needs of it is handed over: hash settings by [`Shared`], grants by
//! [`StagedTable`].
//!
//! A request is carried out, its answer noted in the journal, then written over
//! the request and published, before the next one is looked at. So a killed
//! process owes at most one answer, and its successor has it, or carries out the
//! request that is still there.

mod messages;
#[cfg(test)]
mod tests;

use crate::VifError;
use crate::ids::CtrlRefs;
use crate::ids::QUEUE_PAGES;
use crate::journal::{Journal, JournalMemory, StagedJournal};
use crate::policy::{StagedTable, StagingError};
use crate::rings::map_ring;
use crate::state::shared::Shared;
use crate::state::stats::VifStats;
use grantway_hypervisor::{DomId, EventChannels, Platform, Port as EventPort};
use grantway_netif::ctrl::{CtrlRequest, CtrlResponse, GREF_LIST_ENTRIES, Message, Status};
use grantway_netif::hashing::Hashing;
use grantway_ring::{Back, Index, RingMemory, RingPage, SharedPage};
use messages::{Guest, Pages, Refused, carry_out};

/// Requests that are served before other vifs get their turn.
pub(crate) const BURST: usize = 16;
/// Work after which others get it, too: pages that are mapped or unmapped, and what comes to
/// as much.
pub(crate) const BURST_WORK: usize = GREF_LIST_ENTRIES;
/// Most work of one request, or of one attempt to map a list that a killed process had
/// staged: a list and the small areas of both kinds that it is mapped together with, all of
/// that twice where it is refused; or all pages of a queue but one for each area, and as many
/// unmapped as a list names.
pub(crate) const REQUEST_WORK: usize = 2 * (GREF_LIST_ENTRIES + QUEUE_PAGES / 4) + LOOK;
/// What a request takes beside: its answer, and a look at each entry of its list.
const LOOK: usize = 1 + GREF_LIST_ENTRIES / ENTRIES_A_PAGE;
/// Entries that are looked at in the time that it takes to map a page.
const ENTRIES_A_PAGE: usize = 8;
const _: () = assert!(QUEUE_PAGES + GREF_LIST_ENTRIES <= REQUEST_WORK);

/// A control ring in service, without its event channel. Generic over where ring
/// and journal lie, so that tests can cut it after any write.
struct Ctrl<M = RingPage<4>, J = SharedPage> {
    ring: Back<M, 4>,
    hashing: Hashing,
    /// One for each queue, or none at all.
    tables: Vec<Box<dyn StagedTable>>,
    journal: Option<Journal<J>>,
    /// Whether tables may have to take up what a killed process had staged.
    takes_up: bool,
    /// Where there are no tables: the journal of what a killed process had staged.
    left: Vec<Vec<J>>,
}

/// What became of a vif's turn at its control ring.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Served {
    /// Requests that were served.
    pub requests: usize,
    /// Pages that were mapped or unmapped for it, and what comes to as much.
    pub work: usize,
    /// Whether there may be more to do.
    pub more: bool,
    /// Whether the guest asked to be signalled.
    notify: bool,
}

impl<M: RingMemory<4>, J: JournalMemory> Ctrl<M, J> {
    /// Takes a ring up where its answers stand; `resume` where a killed process
    /// left it, by its journal. Whether the guest is to be signalled, besides.
    fn new(
        memory: M,
        queues: u16,
        tables: Vec<Box<dyn StagedTable>>,
        journal: Option<Journal<J>>,
        resume: bool,
    ) -> Result<(Self, bool), VifError> {
        let published = memory.load(Index::RspProd);
        let left = journal.as_ref().filter(|_| resume);
        let state = left.map(|journal| journal.resume_ctrl(published)).transpose()?;
        let hashing = left.map_or_else(|| Hashing::new(queues), |left| left.hashing(queues));
        let consumed = state.map_or(published, |state| state.answered);
        let bad = |_| VifError::Internal("journalled indices");
        let ring = Back::attach(memory, consumed, published).map_err(bad)?;
        let mut ctrl = Self { ring, hashing, tables, journal, takes_up: resume, left: Vec::new() };
        if let Some(journal) = ctrl.journal.as_ref().filter(|_| !resume) {
            journal.set_hashing(&ctrl.hashing);
        }
        let mut notify = resume;
        if let Some([first, second, third]) = state.and_then(|state| state.owed) {
            ctrl.ring.available().map_err(VifError::Control)?;
            notify |= ctrl.publish([first, second, third, 0])?;
        }
        Ok((ctrl, notify))
    }

    /// Maps again what a killed process had staged, as far as a turn's work goes: first of
    /// all, since what the guest asks is about that.
    fn take_up(&mut self, served: &mut Served) {
        while served.work < BURST_WORK {
            let Some(table) = self.tables.iter_mut().find_map(|table| {
                let more = table.take_up();
                more.then_some(table)
            }) else {
                self.takes_up = false;
                return;
            };
            served.work += 1 + table.take_work();
        }
        served.more = true;
    }

    /// Serves at most `most` requests, and no more once it has done a turn's work.
    fn serve(
        &mut self,
        most: usize,
        pages: &impl Pages,
        shared: &Shared,
    ) -> Result<Served, VifError> {
        let mut served = Served::default();
        if self.takes_up {
            self.take_up(&mut served);
        }
        while served.requests < most && served.work < BURST_WORK {
            let Some((index, words)) = self.ring.pop().map_err(VifError::Control)? else {
                return Ok(served);
            };
            let request = CtrlRequest::from_words(words);
            let response = self.answer(index, request, pages, shared)?;
            let words @ [first, second, third, _] = response.to_words();
            if let Some(journal) = &self.journal {
                journal.ctrl_answered(index.wrapping_add(1), [first, second, third]);
            }
            served.notify |= self.publish(words)?;
            served.requests += 1;
            // The tables of a vif count together.
            served.work += look(request) + self.tables.first_mut().map_or(0, |t| t.take_work());
        }
        served.more = true;
        Ok(served)
    }

    fn answer(
        &mut self,
        index: u32,
        request: CtrlRequest,
        pages: &impl Pages,
        shared: &Shared,
    ) -> Result<CtrlResponse, VifError> {
        self.forget(request);
        let before = self.hashing.clone();
        let done = match request.message() {
            Ok(message) => {
                match carry_out(index, message, &mut self.hashing, &mut self.tables, pages) {
                    Ok(data) => Ok(data),
                    Err(Refused::With(status)) => Err(status),
                    Err(Refused::Gone(error)) => return Err(error.into()),
                }
            }
            Err(_) => Err(Status::NotSupported),
        };
        if self.hashing != before {
            if let Some(journal) = &self.journal {
                journal.set_hashing(&self.hashing);
            }
            shared.steering.set(self.hashing.steering());
        }
        VifStats::add(&shared.stats.ctrl_requests, 1);
        VifStats::add(&shared.stats.ctrl_refused, u64::from(done.is_err()));
        Ok(match done {
            Ok(data) => request.answer(Status::Success, data),
            Err(status) => request.answer(status, 0),
        })
    }

    /// Forgets what a killed process had staged, before a guest that asks about it hears that
    /// nothing is staged here: it may use those pages otherwise from then on, and no
    /// successor may map them again. Who does not ask has them mapped by the next that stages.
    fn forget(&mut self, request: CtrlRequest) {
        if !self.left.is_empty() && request.message().is_ok_and(|message| message.is_staging()) {
            for pages in self.left.drain(..) {
                drop(StagedJournal::begin(pages));
            }
        }
    }

    fn publish(&mut self, words: [u32; 4]) -> Result<bool, VifError> {
        let pushed = self.ring.push_response(words);
        pushed.map_err(|_| VifError::Internal("answered a control request twice"))?;
        Ok(self.ring.publish())
    }
}

/// What a request takes beside what is mapped for it.
fn look(request: CtrlRequest) -> usize {
    let entries = match request.message() {
        Ok(Message::AddGrefMapping { entries, .. } | Message::DelGrefMapping { entries, .. }) => {
            entries as usize
        }
        _ => 0,
    };
    1 + entries.min(GREF_LIST_ENTRIES) / ENTRIES_A_PAGE
}

/// The control ring of a connected vif.
pub(crate) struct Control {
    ctrl: Ctrl,
    event: EventPort,
    domain: DomId,
}

/// What a control ring is made of.
pub(crate) struct ControlSpec<'a> {
    pub domain: DomId,
    pub refs: CtrlRefs,
    /// Queues of the vif.
    pub queues: u16,
    /// One for each queue, or none where the vif's policy stages nothing.
    pub tables: Vec<Box<dyn StagedTable>>,
    /// Of a vif that is taken over and stages nothing: the journal of what was staged.
    pub left: Vec<Vec<SharedPage>>,
    /// The vif's first journal page.
    pub journal: Option<Journal>,
    /// Whether to go on where a killed process left off, by that page.
    pub resume: bool,
    pub shared: &'a Shared,
}

impl Control {
    /// Maps the ring and binds its event channel; on failure neither stays.
    pub fn connect(
        spec: ControlSpec<'_>,
        platform: &dyn Platform,
        events: &mut dyn EventChannels,
    ) -> Result<Self, VifError> {
        let ControlSpec { domain, refs, queues, tables, left, journal, resume, shared } = spec;
        let memory = map_ring::<4>(platform, domain, refs.ring)?;
        if let Some(journal) = journal.as_ref().filter(|_| !resume) {
            journal.begin_ctrl(Some((refs, memory.load(Index::RspProd))));
        }
        let event = events.bind_interdomain(domain, refs.event)?;
        let (mut ctrl, notify) = match Ctrl::new(memory, queues, tables, journal, resume) {
            Ok(made) => made,
            Err(e) => {
                events.close(event);
                return Err(e);
            }
        };
        ctrl.left = left;
        shared.steering.set(ctrl.hashing.steering());
        if notify {
            // Whether the killed process still did, nobody knows; an empty wake-up
            // is legal.
            let _ = events.notify(event);
        }
        Ok(Self { ctrl, event, domain })
    }

    /// Its event channel.
    pub fn event(&self) -> EventPort {
        self.event
    }

    /// Serves a burst of requests. Where there are no more it asks to be signalled for the
    /// next.
    ///
    /// # Errors
    ///
    /// The guest broke the ring, or the platform is gone: the vif is to be
    /// disabled.
    pub fn serve(
        &mut self,
        platform: &dyn Platform,
        events: &mut dyn EventChannels,
        shared: &Shared,
    ) -> Result<Served, VifError> {
        let guest = Guest { platform, domain: self.domain };
        let mut served = self.ctrl.serve(BURST, &guest, shared)?;
        if served.notify {
            events.notify(self.event)?;
        }
        served.more = served.more || self.ctrl.ring.arm().map_err(VifError::Control)?;
        Ok(served)
    }

    /// Which queue's lists were refused, and why, for the log: each queue's first.
    pub fn refusal(&mut self) -> Option<(usize, StagingError)> {
        let mut tables = self.ctrl.tables.iter_mut().enumerate();
        tables.find_map(|(queue, table)| Some((queue, table.refusal()?)))
    }

    /// Takes it out of service.
    pub fn disconnect(self, events: &mut dyn EventChannels) {
        events.close(self.event);
    }
}

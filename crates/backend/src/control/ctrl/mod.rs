//! The control ring of one vif: the hash settings of its guest, and the grants that it has staged.
//!
//! The control thread serves the ring, a few requests at a time. The packet path gets hash settings
//! by [`Shared`], and grants by [`StagedTable`].
//!
//! A request is carried out, and its answer is noted in the journal. Then the answer is written
//! over the request and published, before the next request is looked at. So a killed process owes
//! at most one answer. Its successor has that answer in the journal, or carries out the request,
//! which is still there.

mod messages;
#[cfg(test)]
mod tests;

use crate::VifError;
use crate::ids::CtrlRefs;
use crate::ids::QUEUE_PAGES;
use crate::journal::{Journal, JournalMemory};
use crate::policy::{StagedTable, StagingError};
use crate::rings::map_ring;
use crate::state::shared::Shared;
use crate::state::stats::VifStats;
use grantway_hypervisor::{BackendPlatform, DomId, EventChannels, Port as EventPort};
use grantway_netif::ctrl::{CtrlRequest, CtrlResponse, GREF_LIST_ENTRIES, Message, Status};
use grantway_netif::hashing::Hashing;
use grantway_ring::{Back, Index, RingMemory, RingPage, SharedPage};
use messages::{Guest, Pages, Refused, carry_out};

/// Requests of one vif that are served before other vifs get their turn.
pub(crate) const BURST: usize = 16;
/// Work after which other vifs get their turn, too. The unit is a page that is mapped or unmapped;
/// other work counts as pages that take as long.
pub(crate) const BURST_WORK: usize = GREF_LIST_ENTRIES;
/// Most work of one request, or of one attempt to map a list that a killed process had staged.
/// There are two worst cases:
///
/// - A list is mapped together with the small areas of both kinds, and all of that counts twice
///   because it is refused.
/// - All pages of a queue are mapped anew but one for each area, and as many are unmapped as a list
///   names.
pub(crate) const REQUEST_WORK: usize = 2 * (GREF_LIST_ENTRIES + QUEUE_PAGES / 4) + LOOK;
/// Work of a request beside its pages: its answer, and a look at each entry of its list.
const LOOK: usize = 1 + GREF_LIST_ENTRIES / ENTRIES_A_PAGE;
/// Entries that are looked at in the time that one page takes to be mapped.
const ENTRIES_A_PAGE: usize = 8;
const _: () = assert!(QUEUE_PAGES + GREF_LIST_ENTRIES <= REQUEST_WORK);

/// A control ring in service, without its event channel. The type is generic over the memory of
/// ring and journal, so that tests can stop it after any write.
struct Ctrl<M = RingPage<4>, J = SharedPage> {
    ring: Back<M, 4>,
    hashing: Hashing,
    /// One table for each queue, or none at all.
    tables: Vec<Box<dyn StagedTable>>,
    journal: Option<Journal<J>>,
    /// True if tables may have to take up lists that a killed process had staged.
    takes_up: bool,
}

/// Outcome of a vif's turn at its control ring.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Served {
    /// Requests that were served.
    pub requests: usize,
    /// Work for them: pages that were mapped or unmapped, and other work as pages that take as
    /// long.
    pub work: usize,
    /// True if there may be more to do.
    pub more: bool,
    /// True if the guest asked to be signalled.
    notify: bool,
}

impl<M: RingMemory<4>, J: JournalMemory> Ctrl<M, J> {
    /// Takes a ring up at its last answer; with `resume`, at the point where a killed process left
    /// it, by its journal. Returns the ring, and true if the guest is to be signalled.
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
        // A successor keeps the settings, and consumes no request that was answered in the journal.
        let hashing = left.map_or_else(|| Hashing::new(queues), |left| left.hashing(queues));
        let consumed = state.map_or(published, |state| state.answered);
        let bad = |_| VifError::Internal("journalled indices");
        let ring = Back::attach(memory, consumed, published).map_err(bad)?;
        let mut ctrl = Self { ring, hashing, tables, journal, takes_up: resume };
        if let Some(journal) = ctrl.journal.as_ref().filter(|_| !resume) {
            journal.set_hashing(&ctrl.hashing);
        }
        // The one answer that a killed process may owe is given before any other.
        let mut notify = resume;
        if let Some([first, second, third]) = state.and_then(|state| state.owed) {
            ctrl.ring.available().map_err(VifError::Control)?;
            notify |= ctrl.publish([first, second, third, 0])?;
        }
        Ok((ctrl, notify))
    }

    /// Maps lists again that a killed process had staged, up to a turn's work. This comes before
    /// requests, as these are about staged pages.
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

    /// Serves at most `most` requests, and no more once a turn's work is done. Returns what was
    /// done.
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
            // The first table tells the work of all tables of the vif.
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
        shared.counters.add_all(&VifStats {
            ctrl_requests: 1.into(),
            ctrl_refused: u64::from(done.is_err()).into(),
            ..VifStats::default()
        });
        Ok(match done {
            Ok(data) => request.answer(Status::Success, data),
            Err(status) => request.answer(status, 0),
        })
    }

    fn publish(&mut self, words: [u32; 4]) -> Result<bool, VifError> {
        let pushed = self.ring.push_response(words);
        pushed.map_err(|_| VifError::Internal("answered a control request twice"))?;
        Ok(self.ring.publish())
    }
}

/// Returns the work of a request beside the pages that are mapped for it.
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

/// The parts of which a control ring is made.
pub(crate) struct ControlSpec<'a> {
    pub domain: DomId,
    pub refs: CtrlRefs,
    /// Number of the vif's queues.
    pub queues: u16,
    /// One table for each queue, or no table if nothing is staged or can be.
    pub tables: Vec<Box<dyn StagedTable>>,
    /// The vif's first journal page.
    pub journal: Option<Journal>,
    /// True to continue where a killed process ended, by that page.
    pub resume: bool,
    pub shared: &'a Shared,
}

impl Control {
    /// Maps the ring and binds its event channel. If it fails, neither stays.
    pub fn connect(
        spec: ControlSpec<'_>,
        platform: &dyn BackendPlatform,
        events: &mut dyn EventChannels,
    ) -> Result<Self, VifError> {
        let ControlSpec { domain, refs, queues, tables, journal, resume, shared } = spec;
        // The journal names the ring before a request is served, so that a successor can take it
        // up.
        let memory = map_ring::<4>(platform, domain, refs.ring)?;
        if let Some(journal) = journal.as_ref().filter(|_| !resume) {
            journal.begin_ctrl(Some((refs, memory.load(Index::RspProd))));
        }
        let event = events.bind_interdomain(domain, refs.event)?;
        let (ctrl, notify) = match Ctrl::new(memory, queues, tables, journal, resume) {
            Ok(made) => made,
            Err(e) => {
                events.close(event);
                return Err(e);
            }
        };
        shared.steering.set(ctrl.hashing.steering());
        if notify {
            // Nobody knows if the killed process still signalled. An empty wake-up is legal.
            let _ = events.notify(event);
        }
        Ok(Self { ctrl, event, domain })
    }

    /// Returns the event channel of the ring.
    pub fn event(&self) -> EventPort {
        self.event
    }

    /// Serves a burst of requests, and returns what was done. If there are no more, it asks to be
    /// signalled for the next.
    ///
    /// # Errors
    ///
    /// The guest broke the ring, or the platform is gone. The vif must be disabled.
    pub fn serve(
        &mut self,
        platform: &dyn BackendPlatform,
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

    /// Returns a queue whose lists were refused, and the reason, for the log: the first for each
    /// queue.
    pub fn refusal(&mut self) -> Option<(usize, StagingError)> {
        let mut tables = self.ctrl.tables.iter_mut().enumerate();
        tables.find_map(|(queue, table)| Some((queue, table.refusal()?)))
    }

    /// Takes the control ring out of service.
    pub fn disconnect(self, events: &mut dyn EventChannels) {
        events.close(self.event);
    }
}

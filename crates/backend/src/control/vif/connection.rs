//! The connection of a vif: its terms are read from the store, and its link makes it.

use super::Vif;
use super::pending::Attempt;
use crate::VifError;
use crate::control::link::Terms;
use crate::control::published::FrontendKeys;
use crate::control::succession::JournalPages;
use crate::control::surroundings::Surroundings;
use crate::error::Passing;
use crate::ids::MAX_QUEUES;
use crate::turn::queue::Afterwards;
use grantway_hypervisor::Error as PlatformError;
use grantway_netif::xenbus::backend::BackendEvent;
use std::time::Duration;

/// Time for which a connection is tried that the kernel or the hypervisor refuses.
const PATIENCE: Duration = Duration::from_secs(2);

impl Vif {
    /// Makes the connection that is to be made, and tells the machine. If it cannot be made for a
    /// moment, the error says so, and the caller calls again. Nothing of the journal is lost
    /// meanwhile. A trouble of the store may last for any time, as the machine could not write
    /// Closing either.
    pub(super) fn try_to_connect(&mut self, around: &mut Surroundings<'_>) -> Result<(), VifError> {
        let Some(&Attempt { resume, until }) = self.attempt.as_ref() else { return Ok(()) };
        // A failed attempt leaves nothing in service. At a takeover the journal keeps the
        // connection.
        let error = match self.connect(resume, around) {
            Ok(()) => {
                (self.attempt, self.left) = (None, None);
                return self.feed(BackendEvent::Connected, around);
            }
            Err(e @ VifError::Platform(PlatformError::Gone { .. })) => return Err(e),
            Err(error) => error,
        };
        let after = if resume { Afterwards::Resumed } else { Afterwards::Over };
        self.link.take_out_of_service(after, &mut around.engine.machine());
        let now = (around.engine.settings.clock)();
        match error.passing(resume) {
            Some(Passing::Store) => Err(error),
            Some(Passing::Machine) if until.is_none_or(|until| now < until) => {
                let until = until.or_else(|| now.checked_add(PATIENCE));
                self.attempt = Some(Attempt { resume, until });
                Err(error)
            }
            _ => {
                self.attempt = None;
                self.report(&error, around);
                self.feed(BackendEvent::ConnectFailed, around)
            }
        }
    }

    /// Puts the vif's queues into service; `resume` if a killed process left them. If it fails,
    /// some queues may be in service.
    fn connect(&mut self, resume: bool, around: &mut Surroundings<'_>) -> Result<(), VifError> {
        // A resumed connection keeps the queues that it has, if the port can have them.
        let most = if resume { self.link.queues(MAX_QUEUES) } else { self.queues };
        let keys = FrontendKeys::read(around.store, &self.frontend, most)?;
        self.look_at_rate(around)?;
        let headroom = self.headroom_due(0, around)?;
        self.look_at_checksums(around)?;
        let (pages, resumed) = self.journal_of(&keys, resume, around)?;
        let terms = Terms { keys, checksums: self.checksums, headroom, pages, resumed };
        self.link.connect(terms, &mut around.engine.machine())
    }

    /// Returns the pages of the vif's journal, and the number of queues that are resumed by them;
    /// `None` for a new connection. A connection to take over must still be the one that the guest
    /// shows, since some time may have passed since it was read.
    fn journal_of(
        &self,
        keys: &FrontendKeys,
        resume: bool,
        around: &Surroundings<'_>,
    ) -> Result<(JournalPages, Option<usize>), VifError> {
        if !resume {
            return Ok((around.engine.journals.pages(self.id), None));
        }
        let pages = around.engine.journals.pages_left(self.id)?;
        let left = pages.left().zip(self.left);
        match left.filter(|(left, half)| left.is_of(keys, *half)) {
            Some((left, _)) => Ok((pages, Some(left.connection.len()))),
            None => Err(VifError::Key {
                path: self.frontend.clone(),
                found: "other rings or event channels".into(),
                expected: "those of the connection that is to be taken over",
            }),
        }
    }

    /// Ends the connection, or the attempt at one. Nothing of the guest's stays mapped.
    pub(super) fn disconnect(&mut self, around: &mut Surroundings<'_>) {
        self.attempt = None;
        self.link.take_out_of_service(Afterwards::Over, &mut around.engine.machine());
        if self.left.take().is_some() {
            // A connection that was never taken over is in no queue's hands.
            around.engine.journals.pages(self.id).end();
        }
    }
}

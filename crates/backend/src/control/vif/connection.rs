//! The resources of a vif while it is connected: its control ring, its staged pages, and its
//! queues, which workers have.

use super::Vif;
use super::pending::Attempt;
use crate::VifError;
use crate::control::ctrl::{Control, ControlSpec};
use crate::control::negotiate::FrontendKeys;
use crate::control::succession::JournalPages;
use crate::control::surroundings::Surroundings;
use crate::error::Passing;
use crate::ids::MAX_QUEUES;
use crate::journal::{Journal, StagedJournal};
use crate::policy::{Buffers, KeptTable, LastingTable, Map, Policy, Staged, StagedTable};
use crate::state::guest::Guest;
use crate::state::steer::lanes;
use crate::turn::queue::{Afterwards, QueueSpec};
use grantway_hypervisor::Error as PlatformError;
use grantway_netif::xenbus::backend::BackendEvent;
use grantway_ports::{Port, PortReport};
use std::sync::Arc;
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
        self.take_out_of_service(after, around);
        let now = (around.settings.clock)();
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
        let port = self.port.as_ref().map_or(1, |port| port.caps().max_queues);
        let most = if resume { port.min(MAX_QUEUES) } else { self.queues };
        let keys = FrontendKeys::read(around.store, &self.frontend, most)?;
        // Settings that the queues share are in force before the first queue runs.
        self.shared.begin();
        self.shared.multicast.set_wanted(keys.multicast);
        self.look_at_rate(around)?;
        self.headroom = self.headroom_due(0, around)?;
        self.look_at_checksums(around)?;
        let (pages, left) = self.journal_of(&keys, resume, around)?;
        // At most MAX_QUEUES.
        let queues = keys.queues.len() as u16;
        if !resume {
            // No successor may take further queues of an earlier connection for queues of this one.
            pages.end();
            for pages in pages.staged.iter().take(queues.into()) {
                drop(StagedJournal::begin(pages.clone()));
            }
        }
        let first = pages.queues.first().cloned().map(Journal::new);
        self.shared.multicast.begin(first, resume);
        // This comes before anything is mapped: workers open no device.
        self.apart = around.platform.apart(self.id.domain);
        // The queues go by the policy and by what the control ring finds set and staged.
        self.choose_policy(&keys, around);
        self.connect_control(&keys, &pages, resume, around)?;
        let published = keys.clone();
        let keys = keys.under(self.checksums);
        let ports = self.ports(queues.into(), &keys, around.settings.merge)?;
        // From here on `take_out_of_service` detaches the queues that were attached.
        self.served = Some(published);
        self.connection = around.workers.next_connection();
        let guest = Guest {
            scatter_gather: keys.scatter_gather,
            checksum_ipv6: keys.checksum_ipv6,
            offloads: keys.offloads,
            headroom: self.headroom,
            patience: match keys.rx_notify {
                true => around.settings.patience,
                false => around.settings.patience.without_notify(),
            },
        };
        let mut lanes = (queues > 1).then(|| lanes(queues.into()).into_iter());
        for ((number, port), refs) in (0..).zip(ports).zip(keys.queues) {
            let spec = QueueSpec {
                vif: self.id,
                connection: self.connection,
                number,
                refs,
                guest,
                checksums: self.checksums,
                journal: pages.queues.get(usize::from(number)).cloned(),
                resume: usize::from(number) < left,
                buffers: self.buffers_of(number, around),
                map: self.map_of(around),
                port,
                shared: Arc::clone(&self.shared),
                lane: lanes.as_mut().and_then(Iterator::next),
            };
            if let Err((error, port)) = around.workers.attach(spec) {
                self.keep(port.into_iter().collect());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the pages of the vif's journal, and the number of queues that are resumed by them. A
    /// connection to take over must still be the one that the guest shows, since some time may have
    /// passed since it was read.
    fn journal_of(
        &self,
        keys: &FrontendKeys,
        resume: bool,
        around: &Surroundings<'_>,
    ) -> Result<(JournalPages, usize), VifError> {
        if !resume {
            return Ok((around.journals.pages(self.id), 0));
        }
        let pages = around.journals.pages_left(self.id)?;
        let left = pages.left().zip(self.left);
        match left.filter(|(left, half)| left.is_of(keys, *half)) {
            Some((left, _)) => Ok((pages, left.connection.len())),
            None => Err(VifError::Key {
                path: self.frontend.clone(),
                found: "other rings or event channels".into(),
                expected: "those of the connection that is to be taken over",
            }),
        }
    }

    /// Chooses the policy of a new connection.
    fn choose_policy(&mut self, keys: &FrontendKeys, around: &Surroundings<'_>) {
        let chosen = Policy::chosen(keys.persistent, keys.ctrl.is_some());
        self.policy = match chosen.within(around.settings.policy.most) {
            // A checksum is completed in private memory.
            Policy::Map if self.checksums.are_full() => Policy::Copy,
            policy => policy,
        };
        self.staged = (self.policy == Policy::Staging).then(|| {
            // No more than MAX_QUEUES.
            let (mapper, queues) = (Arc::clone(around.platform), keys.queues.len() as u16);
            let (quota, lease) = (Arc::clone(&self.quota), around.settings.policy.lease);
            Staged::with_lease(mapper, self.id.domain, queues, quota, lease)
        });
    }

    /// Returns the table of each queue's staged pages for the control ring, or no table if nothing
    /// is staged or can be. With `answered`, the tables are those of a killed process that had
    /// answered the requests before this index.
    fn tables(
        &self,
        pages: &JournalPages,
        queues: usize,
        answered: Option<u32>,
    ) -> Vec<Box<dyn StagedTable>> {
        let Some(staged) = &self.staged else {
            return answered.map_or_else(Vec::new, |answered| kept(pages, queues, answered));
        };
        let tables = staged.queues().enumerate().map(|(number, queue)| {
            let pages = pages.staged.get(number).cloned().unwrap_or_default();
            Box::new(match answered {
                Some(answered) => LastingTable::resume(queue, pages, answered),
                None => LastingTable::begin(queue, pages),
            }) as Box<dyn StagedTable>
        });
        tables.collect()
    }

    /// Returns the buffers of one of the vif's queues, by its policy.
    fn buffers_of(&self, number: u16, around: &Surroundings<'_>) -> Buffers {
        let (platform, guest) = (Arc::clone(around.platform), self.id.domain);
        let staged = self.staged.as_ref().and_then(|staged| staged.queue(number.into()));
        match (self.policy, staged) {
            (Policy::Staging, Some(queue)) => Buffers::staging(platform, guest, &queue),
            (Policy::Persistent, _) => {
                Buffers::persistent(platform, guest, Arc::clone(&self.quota))
            }
            _ => Buffers::copy(platform, guest),
        }
    }

    /// Returns the map of one of the vif's queues, which maps pages for its port, under the map
    /// policy.
    fn map_of(&self, around: &Surroundings<'_>) -> Option<Map> {
        let (platform, quota) = (Arc::clone(around.platform), Arc::clone(&self.quota));
        (self.policy == Policy::Map).then(|| Map::new(platform, self.id.domain, quota))
    }

    /// Returns the policy of this connection or the last. A vif that may stage pages, but has none
    /// staged, is said to copy.
    pub fn policy(&self) -> Policy {
        match self.policy {
            Policy::Staging if self.mapped() == 0 => Policy::Copy,
            policy => policy,
        }
    }

    /// Returns the number of the guest's pages that are mapped under the policy.
    pub fn mapped(&self) -> usize {
        self.quota.used().pages
    }

    /// Takes up the control ring, if the frontend has one. This comes before the queues: they go by
    /// what the control ring finds set and staged.
    fn connect_control(
        &mut self,
        keys: &FrontendKeys,
        pages: &JournalPages,
        resume: bool,
        around: &mut Surroundings<'_>,
    ) -> Result<(), VifError> {
        self.shared.steering.set(None);
        let journal = pages.queues.first().cloned().map(Journal::new);
        let Some(refs) = keys.ctrl else {
            if let Some(journal) = journal.filter(|_| !resume) {
                journal.begin_ctrl(None);
            }
            return Ok(());
        };
        let answered = journal.as_ref().filter(|_| resume).map(Journal::ctrl_index);
        let tables = self.tables(pages, keys.queues.len(), answered);
        let spec = ControlSpec {
            domain: self.id.domain,
            refs,
            // At most MAX_QUEUES.
            queues: keys.queues.len() as u16,
            tables,
            journal,
            resume,
            shared: &self.shared,
        };
        self.control = Some(Control::connect(spec, around.platform.as_ref(), around.events)?);
        Ok(())
    }

    /// Returns a port for each queue. If not all can be had, the first is kept.
    fn ports(
        &mut self,
        queues: usize,
        keys: &FrontendKeys,
        merge: bool,
    ) -> Result<Vec<Box<dyn Port>>, VifError> {
        let mut first = self.port.take().ok_or(VifError::Internal("the port is in use"))?;
        let offloads = match merge && first.caps().wants_merged {
            true => keys.offloads_with_cutting(),
            false => keys.offloads,
        };
        let mut open = || {
            first.set_offloads(offloads)?;
            let further = (1..queues).map(|_| first.another_queue()).collect::<Result<Vec<_>, _>>();
            first.set_link(true)?;
            further
        };
        match open() {
            Ok(further) => Ok(std::iter::once(first).chain(further).collect()),
            Err(e) => {
                self.port = Some(first);
                Err(e.into())
            }
        }
    }

    /// Keeps one of the ports that came back, and the counts of the others.
    pub(super) fn keep(&mut self, ports: Vec<Box<dyn Port>>) {
        for port in ports {
            if self.port.is_none() {
                self.port = Some(port);
            } else {
                let more = port.report();
                self.past = PortReport::sum(self.past.take().into_iter().chain([more]));
            }
        }
    }

    /// Ends the connection, or the attempt at one. Nothing of the guest's stays mapped.
    pub(super) fn disconnect(&mut self, around: &mut Surroundings<'_>) {
        self.attempt = None;
        self.take_out_of_service(Afterwards::Over, around);
        if self.left.take().is_some() {
            // A connection that was never taken over is in no queue's hands.
            around.journals.pages(self.id).end();
        }
    }

    fn take_out_of_service(&mut self, after: Afterwards, around: &mut Surroundings<'_>) {
        if self.served.take().is_some() {
            self.keep(around.workers.detach(self.id, after));
        }
        if let Some(control) = self.control.take() {
            control.disconnect(around.events);
        }
        if let Some(staged) = self.staged.take() {
            staged.close();
        }
        self.apart = None;
        if after == Afterwards::Over {
            self.link_down();
        }
    }
}

/// Returns a table for each of `queues` queues in a backend without staging, for the lists of a
/// killed process. That process had answered the requests before the index `answered`. Returns no
/// table if there are no such lists.
fn kept(pages: &JournalPages, queues: usize, answered: u32) -> Vec<Box<dyn StagedTable>> {
    let staged = pages.staged.iter().take(queues).cloned();
    let tables: Vec<_> = staged.map(|pages| KeptTable::resume(pages, answered)).collect();
    if tables.iter().all(KeptTable::is_empty) {
        return Vec::new();
    }
    tables.into_iter().map(|table| Box::new(table) as Box<dyn StagedTable>).collect()
}

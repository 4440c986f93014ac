//! The half of a vif that knows no store: its port, its counters, and its connection while it has
//! one. A connection is a control ring, staged pages, and queues, which workers have.

use super::ctrl::{Control, ControlSpec, Served};
use super::engine::{Engine, Machine};
use super::published::FrontendKeys;
use super::succession::JournalPages;
use super::voice::Voice;
use crate::VifError;
use crate::ids::VifId;
use crate::journal::{Journal, StagedJournal};
use crate::policy::{
    Buffers, KeptTable, LastingTable, Map, Policy, Quota, Staged, StagedTable, StagingError,
};
use crate::state::checksums::Checksums;
use crate::state::credit::Rate;
use crate::state::guest::Guest;
use crate::state::shared::Shared;
use crate::state::stats::VifStatsSnapshot;
use crate::state::steer::lanes;
use crate::state::trace::Tap;
use crate::turn::queue::{Afterwards, QueueReport, QueueSpec};
use crate::worker::Workers;
use grantway_hypervisor::{Apart, Port as EventPort};
use grantway_ports::{Port, PortError, PortReport};
use std::sync::Arc;
use tracing::warn;

/// A vif without its store.
pub(crate) struct Link {
    id: VifId,
    /// The port, while no worker has it.
    port: Option<Box<dyn Port>>,
    /// Port of a queue that could not be attached, until the other queues are detached.
    refused: Option<Box<dyn Port>>,
    /// Counts of the ports of further queues that are closed again.
    past: Option<PortReport>,
    shared: Arc<Shared>,
    policy: Policy,
    /// Quota of the guest's pages that are mapped, over all connections.
    quota: Arc<Quota>,
    /// Rings and features that the guest published for the connection in service; `None` while no
    /// worker has the port.
    served: Option<FrontendKeys>,
    /// Bytes that the queues in service leave free in front of each frame.
    headroom: u16,
    /// The number of the last connection.
    connection: u64,
    /// Control ring, while it is in service and the guest has one.
    control: Option<Control>,
    /// Staged pages, while the vif is connected and may stage.
    staged: Option<Arc<Staged>>,
    /// Guard that keeps the guest's mapped memory apart from other guests' while the vif is
    /// connected.
    apart: Option<Apart>,
    voice: Voice,
}

/// Terms of a connection.
pub(crate) struct Terms {
    /// Rings and features that the guest published.
    pub keys: FrontendKeys,
    pub checksums: Checksums,
    /// Bytes to leave free in front of each frame.
    pub headroom: u16,
    /// The pages of the vif's journal, or none.
    pub pages: JournalPages,
    /// Number of queues that continue a killed process's connection, by the journal; `None` for a
    /// new connection.
    pub resumed: Option<usize>,
}

impl Link {
    pub fn new(id: VifId, engine: &Engine) -> Self {
        let clock = engine.settings.clock;
        Self {
            id,
            port: None,
            refused: None,
            past: None,
            shared: Arc::new(Shared::new(clock, Tap::new(Arc::clone(&engine.trace), id))),
            policy: Policy::Copy,
            quota: Quota::within(&engine.budget, engine.settings.policy.pages),
            served: None,
            headroom: 0,
            connection: 0,
            control: None,
            staged: None,
            apart: None,
            voice: Voice::new(clock()),
        }
    }

    /// Gives the vif its port.
    pub fn set_port(&mut self, port: Box<dyn Port>) {
        self.port = Some(port);
    }

    /// Returns the most queues that a connection can have: no more than the port has, and no more
    /// than `most`.
    pub fn queues(&self, most: u32) -> u32 {
        self.port.as_ref().map_or(1, |port| port.caps().max_queues).min(most)
    }

    /// Returns the port, while no worker has it.
    pub fn port(&mut self) -> Option<&mut Box<dyn Port>> {
        self.port.as_mut()
    }

    /// Takes the port, while no worker has it.
    pub fn take_port(&mut self) -> Option<Box<dyn Port>> {
        self.port.take()
    }

    /// Sets the link of the port down. A failure is logged.
    pub fn link_down(&mut self) {
        if let Some(Err(e)) = self.port.as_mut().map(|port| port.set_link(false)) {
            warn!("{}: {e}", self.id);
        }
    }

    /// Connects the vif to its guest. If that fails, the caller takes the link out of service, and
    /// nothing stays.
    pub fn connect(&mut self, terms: Terms, machine: &mut Machine<'_>) -> Result<(), VifError> {
        let Terms { keys, checksums, headroom, pages, resumed } = terms;
        // Settings that the queues share are in force before the first queue runs.
        self.shared.begin();
        self.shared.multicast.set_wanted(keys.multicast);
        self.headroom = headroom;
        // At most MAX_QUEUES.
        let queues = keys.queues.len() as u16;
        if resumed.is_none() {
            // No successor may take further queues of an earlier connection for queues of this one.
            pages.end();
            for pages in pages.staged.iter().take(queues.into()) {
                drop(StagedJournal::begin(pages.clone()));
            }
        }
        let first = pages.queues.first().cloned().map(Journal::new);
        self.shared.multicast.begin(first, resumed.is_some());
        // This comes before anything is mapped: workers open no device.
        self.apart = machine.platform.apart(self.id.domain);
        // The queues go by the policy and by what the control ring finds set and staged.
        self.choose_policy(&keys, checksums, machine);
        self.connect_control(&keys, &pages, resumed.is_some(), machine)?;
        let published = keys.clone();
        let keys = keys.under(checksums);
        let ports = self.ports(queues.into(), &keys, machine.settings.merge)?;
        // From here on `take_out_of_service` detaches the queues that were attached.
        self.served = Some(published);
        self.connection = machine.workers.next_connection();
        let guest = Guest {
            scatter_gather: keys.scatter_gather,
            checksum_ipv6: keys.checksum_ipv6,
            offloads: keys.offloads,
            headroom,
            patience: match keys.rx_notify {
                true => machine.settings.patience,
                false => machine.settings.patience.without_notify(),
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
                checksums,
                journal: pages.queues.get(usize::from(number)).cloned(),
                resume: resumed.is_some_and(|resumed| usize::from(number) < resumed),
                buffers: self.buffers_of(number, machine),
                map: self.map_of(machine),
                port,
                shared: Arc::clone(&self.shared),
                lane: lanes.as_mut().and_then(Iterator::next),
            };
            if let Err((error, port)) = machine.workers.attach(spec) {
                self.refused = port;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Chooses the policy of a new connection.
    fn choose_policy(&mut self, keys: &FrontendKeys, checksums: Checksums, machine: &Machine<'_>) {
        let limits = &machine.settings.policy;
        let chosen = Policy::chosen(keys.persistent, keys.ctrl.is_some());
        self.policy = match chosen.within(limits.most) {
            // A checksum is completed in private memory.
            Policy::Map if checksums.are_full() => Policy::Copy,
            policy => policy,
        };
        self.staged = (self.policy == Policy::Staging).then(|| {
            // No more than MAX_QUEUES.
            let queues = keys.queues.len() as u16;
            let (mapper, quota) = (Arc::clone(machine.platform), Arc::clone(&self.quota));
            Staged::with_lease(mapper, self.id.domain, queues, quota, limits.lease)
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
    fn buffers_of(&self, number: u16, machine: &Machine<'_>) -> Buffers {
        let (mapper, guest) = (Arc::clone(machine.platform), self.id.domain);
        let staged = self.staged.as_ref().and_then(|staged| staged.queue(number.into()));
        match (self.policy, staged) {
            (Policy::Staging, Some(queue)) => Buffers::staging(mapper, guest, &queue),
            (Policy::Persistent, _) => Buffers::persistent(mapper, guest, Arc::clone(&self.quota)),
            _ => Buffers::copy(mapper, guest),
        }
    }

    /// Returns the map of one of the vif's queues, which maps pages for its port, under the map
    /// policy.
    fn map_of(&self, machine: &Machine<'_>) -> Option<Map> {
        let (mapper, quota) = (Arc::clone(machine.platform), Arc::clone(&self.quota));
        (self.policy == Policy::Map).then(|| Map::new(mapper, self.id.domain, quota))
    }

    /// Takes up the control ring, if the frontend has one. This comes before the queues: they go by
    /// what the control ring finds set and staged.
    fn connect_control(
        &mut self,
        keys: &FrontendKeys,
        pages: &JournalPages,
        resume: bool,
        machine: &mut Machine<'_>,
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
        self.control = Some(Control::connect(spec, machine.platform.as_ref(), machine.events)?);
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
                let e: PortError = e;
                self.port = Some(first);
                Err(e.into())
            }
        }
    }

    /// Keeps the first of the ports that came back, and the counts of the others. The first is that
    /// of the first queue, of which the others are further queues.
    fn keep(&mut self, ports: impl IntoIterator<Item = Box<dyn Port>>) {
        for port in ports {
            if self.port.is_none() {
                self.port = Some(port);
            } else {
                let more = port.report();
                self.past = PortReport::sum(self.past.take().into_iter().chain([more]));
            }
        }
    }

    /// Ends the connection, or what an attempt at one left. Nothing of the guest's stays mapped.
    pub fn take_out_of_service(&mut self, after: Afterwards, machine: &mut Machine<'_>) {
        if self.served.take().is_some() {
            let ports = machine.workers.detach(self.id, after);
            let refused = self.refused.take();
            self.keep(ports.into_iter().chain(refused));
        }
        if let Some(control) = self.control.take() {
            control.disconnect(machine.events);
        }
        if let Some(staged) = self.staged.take() {
            staged.close();
        }
        self.apart = None;
        if after == Afterwards::Over {
            self.link_down();
        }
    }

    /// Returns what the guest published for the connection in service.
    pub fn served(&self) -> Option<&FrontendKeys> {
        self.served.as_ref()
    }

    /// Returns true if this connection is in service.
    pub fn serves(&self, connection: u64) -> bool {
        self.served.is_some() && self.connection == connection
    }

    /// Serves a burst of the guest's control requests, and returns what was done.
    ///
    /// # Errors
    ///
    /// The guest broke the ring, or the platform is gone. The vif must be disabled.
    pub fn serve_control(&mut self, machine: &mut Machine<'_>) -> Result<Served, VifError> {
        let Some(control) = self.control.as_mut() else { return Ok(Served::default()) };
        let served = control.serve(machine.platform.as_ref(), machine.events, &self.shared);
        if let Some((queue, error)) = control.refusal() {
            self.tell_refusal(queue, &error);
        }
        served
    }

    fn tell_refusal(&mut self, queue: usize, error: &StagingError) {
        let id = self.id;
        self.say(|held| {
            warn!("{id}: queue {queue}: a list is not staged: {error}; its pages are copied{held}");
        });
    }

    /// Writes a line to the log by `write`, unless the vif has written too many. `write` is given
    /// what says how many were held back.
    pub fn say(&mut self, write: impl FnOnce(super::voice::Held)) {
        if let Some(held) = self.voice.speak(self.shared.now()) {
            write(held);
        }
    }

    /// Returns the event channel of the vif's control ring.
    pub fn control_event(&self) -> Option<EventPort> {
        self.control.as_ref().map(Control::event)
    }

    /// Returns the bytes that the queues in service leave free in front of each frame.
    pub fn headroom(&self) -> u16 {
        self.headroom
    }

    /// Leaves this many bytes free in front of each frame from now on.
    pub fn set_headroom(&mut self, headroom: u16, workers: &Workers) {
        if self.headroom != headroom {
            workers.set_headroom(self.id, headroom);
            self.headroom = headroom;
        }
    }

    /// Limits what the guest may send from now on.
    pub fn set_rate(&mut self, rate: Option<Rate>, workers: &Workers) {
        if self.shared.credit.set(rate, self.shared.now()) {
            workers.wake(self.id);
        }
    }

    /// Notes that the guest wants multicast frames only to addresses that it lists, or all of them.
    pub fn set_multicast(&self, wanted: bool) {
        self.shared.multicast.set_wanted(wanted);
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

    /// Returns the reports of the vif's queues, and the sum of what its ports have passed so far.
    pub fn inspect(&self, workers: &Workers) -> (Vec<QueueReport>, Option<PortReport>) {
        let here = self.port.iter().map(|port| port.report());
        let (queues, failed) = workers.inspect(self.id);
        let busy = queues.iter().map(|queue| queue.port.clone());
        // The sum has the name of the first.
        let sum = PortReport::sum(here.chain(busy).chain(failed).chain(self.past.clone()));
        (queues, sum)
    }

    /// Returns the vif's counters.
    pub fn stats(&self) -> VifStatsSnapshot {
        self.shared.counters.snapshot()
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

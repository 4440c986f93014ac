//! The half of a backend that knows no store: the workers, the event channels of control rings, and
//! what all vifs share. Both kinds of backend have one: `backend.rs`, which finds its vifs in the
//! store, and `handed.rs`, which is handed them.

use super::asked::{Asked, CONTROL_WORK_MAX};
use super::config::BackendConfig;
use super::succession::Journals;
use crate::bell::{drain, eventfd, os, ring};
use crate::error::{StartError, VifError};
use crate::ids::{MAX_QUEUES, VifId};
use crate::policy::Budget;
use crate::state::trace::{Trace, TraceReader};
use crate::worker::{Beside, Notice, Service, Settings, Teller, Workers};
use grantway_hypervisor::{
    BackendPlatform, DomId, Error as PlatformError, EventChannels, Port as EventPort,
};
use grantway_ports::PortReport;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use tracing::warn;

/// Workers, and what all vifs share.
pub(crate) struct Engine {
    // The first field, so that workers end before what a vif keeps for packets is dropped.
    pub workers: Workers,
    pub platform: Arc<dyn BackendPlatform>,
    /// The event channels of the control rings.
    pub events: Box<dyn EventChannels>,
    /// Vifs whose control rings may have requests.
    pub asked: Asked,
    pub settings: Settings,
    pub budget: Arc<Budget>,
    pub journals: Journals,
    pub trace: Arc<Trace>,
    notices: Receiver<Notice>,
    bell: Arc<OwnedFd>,
    /// The error that ended the uplink.
    lost_uplink: Option<String>,
}

/// Parts of an engine that a vif's link uses.
pub(crate) struct Machine<'a> {
    pub platform: &'a Arc<dyn BackendPlatform>,
    /// The event channels of the control rings.
    pub events: &'a mut dyn EventChannels,
    pub workers: &'a Workers,
    /// Settings of the backend.
    pub settings: &'a Settings,
}

/// A queue that failed: its vif, the number of the vif's connection, and the reason.
pub(crate) type Failed = (VifId, u64, VifError);

impl Engine {
    /// Starts the workers. `own` is the domain of the backend, by which its journals are named.
    ///
    /// # Errors
    ///
    /// The event channels cannot be had, or a worker cannot start. If a journal belongs to a newer
    /// build, nothing was touched.
    pub fn start(
        platform: Arc<dyn BackendPlatform>,
        own: DomId,
        config: BackendConfig,
    ) -> Result<Self, StartError> {
        // The journals first: one of a newer build must stop the start before anything is touched.
        let journals = Journals::open(&config.run_folder, own)?;
        let (sender, notices) = channel();
        let bell = Arc::new(eventfd()?);
        let events = platform.events()?;
        let BackendConfig { mut settings, nodes, uplink, workers, threads, .. } = config;
        settings.queues = settings.queues.clamp(1, MAX_QUEUES);
        let service = Service {
            platform: Arc::clone(&platform),
            settings: settings.clone(),
            teller: Teller { notices: sender, bell: Arc::clone(&bell) },
        };
        let beside = Beside { nodes, uplink };
        Ok(Self {
            workers: Workers::start((workers, threads), &service, beside)?,
            platform,
            events,
            asked: Asked::default(),
            budget: Budget::new(settings.policy.all),
            settings,
            journals,
            trace: Arc::default(),
            notices,
            bell,
            lost_uplink: None,
        })
    }

    pub fn machine(&mut self) -> Machine<'_> {
        Machine {
            platform: &self.platform,
            events: self.events.as_mut(),
            workers: &self.workers,
            settings: &self.settings,
        }
    }

    /// Returns one descriptor that is readable in three cases: the bell was rung, a control ring was
    /// signalled, or `further` is readable.
    pub fn gate(&self, further: Option<BorrowedFd<'_>>) -> Result<OwnedFd, PlatformError> {
        let gate = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| os("epoll_create", e))?;
        for fd in [self.bell.as_fd(), self.events.as_fd()].into_iter().chain(further) {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&gate, fd, data, epoll::EventFlags::IN).map_err(|e| os("epoll_ctl", e))?;
        }
        Ok(gate)
    }

    /// Asks for another step.
    pub fn ring(&self) {
        ring(self.bell.as_fd());
    }

    /// Takes in the notices of the workers, and adds the queues that failed to `all`. Returns true if
    /// there was any notice.
    ///
    /// # Errors
    ///
    /// The platform or a worker is gone.
    pub fn take_notices(&mut self, all: &mut Vec<Failed>) -> Result<bool, PlatformError> {
        drain(self.bell.as_fd());
        let mut any = false;
        while let Ok(notice) = self.notices.try_recv() {
            any = true;
            match notice {
                Notice::Gone(error) => return Err(error),
                Notice::NoUplink(error) => {
                    self.workers.lose_uplink();
                    self.lost_uplink = Some(error.to_string());
                    warn!(
                        "the uplink: {error}; the bridge goes on without it; restart the backend \
                         to open it again"
                    );
                }
                // The platform is gone for all vifs.
                Notice::Failed {
                    error: VifError::Platform(e @ PlatformError::Gone { .. }),
                    ..
                } => return Err(e),
                Notice::Failed { vif, connection, error } => all.push((vif, connection, error)),
            }
        }
        Ok(any)
    }

    /// Notes which control rings were signalled. `channels` has the event channel of each.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn take_signals(
        &mut self,
        channels: impl Iterator<Item = (VifId, EventPort)>,
    ) -> Result<(), PlatformError> {
        let mut fired = BTreeSet::new();
        self.events.poll(&mut |port| {
            fired.insert(port);
        })?;
        if !fired.is_empty() {
            let signalled = channels.filter(|(_, port)| fired.contains(port));
            signalled.for_each(|(id, _)| self.asked.add(id));
        }
        Ok(())
    }

    /// Begins a trace of all vifs, and returns its reader. Returns `None` if another reader exists.
    pub fn listen(&self) -> Option<TraceReader> {
        TraceReader::new(&self.trace)
    }

    /// Returns the most work of a step for control rings so far, and the most that a step may do.
    pub fn control_work(&self) -> (usize, usize) {
        (self.asked.most_work(), CONTROL_WORK_MAX)
    }

    /// Returns the uplink's report, or the error that ended the uplink. Returns `None` if there was
    /// no uplink.
    pub fn uplink(&self) -> Option<Result<PortReport, &str>> {
        match &self.lost_uplink {
            Some(error) => Some(Err(error)),
            None => self.workers.uplink().map(Ok),
        }
    }
}

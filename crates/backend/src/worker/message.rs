//! What workers are given, told and asked, and what they tell.

use super::mode::WaitMode;
use crate::VifError;
use crate::bell::ring;
use crate::ids::VifId;
use crate::state::shared::{Clock, Meter, OnWorker};
use crate::turn::lists::GraphReport;
use crate::turn::queue::{Afterwards, QueueReport, QueueSpec};
use grantway_hypervisor::{Error as PlatformError, Platform};
use grantway_ports::{Port, PortError, PortReport};
use grantway_vector::{Graph, PortId, Rules};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

/// How an attach went: where it failed, the port comes back.
pub(super) type Attached = Result<(), (VifError, Box<dyn Port>)>;

/// What a worker is told.
pub(super) enum Command {
    /// A queue of the vif that has this number in lists.
    Attach(Box<QueueSpec>, PortId, Sender<Attached>),
    Detach(VifId, Afterwards, Sender<Vec<Detached>>),
    Inspect(VifId, Sender<Inspected>),
    Account(Sender<WorkerReport>),
    Load(Box<Rules>),
    Graph(Sender<GraphReport>),
    /// Tells that it takes no turn, and takes none until the other end is dropped.
    Hold(Sender<()>, Receiver<()>),
    Stop,
}

/// How a vif's queues stand, and the ports of those that failed.
pub(crate) type Inspected = (Vec<QueueReport>, Vec<PortReport>);

/// How a worker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerReport {
    /// Which, from 0.
    pub number: usize,
    /// What it used of its processor so far, spinning included; nothing where it has
    /// no thread.
    pub used: Duration,
    /// Queues that it serves.
    pub queues: usize,
    /// How long it looks again before it sleeps, by what it found that a wake-up takes;
    /// for ever where there is none.
    pub spin: Option<Duration>,
    /// The longest of its rounds so far, in time of its processor: how long a signal, or
    /// what the control thread asks, may wait. It is to stay below [`ROUND_MAX`](crate::ROUND_MAX).
    pub longest_round: Duration,
}

/// A queue's number, and the port that was behind it.
pub(super) type Detached = (u16, Box<dyn Port>);

/// What a worker tells.
pub(crate) enum Notice {
    /// A queue failed and is out of service; the vif is to be disabled. Its port
    /// comes back when the vif is detached, as those of other queues do.
    Failed {
        /// Which vif.
        vif: VifId,
        /// Which of its connections.
        connection: u64,
        /// Why.
        error: VifError,
    },
    /// The uplink is of no more use, and was let go of.
    NoUplink(PortError),
    /// The platform is gone, and the worker with it.
    Gone(PlatformError),
}

/// How workers tell: a notice, and a ring of the bell (an eventfd) for each.
#[derive(Clone)]
pub(crate) struct Teller {
    pub notices: Sender<Notice>,
    pub bell: Arc<OwnedFd>,
}

impl Teller {
    pub(super) fn tell(&self, notice: Notice) {
        if self.notices.send(notice).is_ok() {
            ring(self.bell.as_fd());
        }
    }
}

/// What every worker is given.
#[derive(Clone)]
pub(crate) struct Service {
    pub platform: Arc<dyn Platform>,
    pub mode: WaitMode,
    pub clock: Clock,
    pub meter: Meter,
    pub teller: Teller,
    /// Whether segments are merged, as [`crate::BackendConfig::merge`].
    pub merge: bool,
    /// As [`crate::BackendConfig::on_worker`].
    pub on_worker: OnWorker,
}

/// What packets go through beside the vifs' queues: the first worker's.
pub(crate) struct Beside {
    /// The nodes.
    pub graph: Graph,
    /// Whether all packets go by rules, and not those on the bridge only: then all
    /// queues belong to this worker.
    pub by_rules: bool,
    /// A port beside the guests on the bridge.
    pub uplink: Option<Box<dyn Port>>,
}

impl Beside {
    /// That of all other workers.
    pub(super) fn nothing() -> Self {
        Self { graph: Graph::new(|| 0), by_rules: false, uplink: None }
    }
}

//! Messages between the control thread and its workers.

use super::settings::Settings;
use crate::VifError;
use crate::bell::ring;
use crate::ids::VifId;
use crate::turn::lists::GraphReport;
use crate::turn::queue::{Afterwards, QueueReport, QueueSpec};
use grantway_hypervisor::{Error as PlatformError, Platform};
use grantway_ports::{Port, PortError, PortReport};
use grantway_vector::{Graph, PortId, Rules};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

/// Result of an attach. On failure the port comes back.
pub(super) type Attached = Result<(), (VifError, Box<dyn Port>)>;

/// A command to a worker.
pub(super) enum Command {
    /// A queue of the vif that has this number in lists.
    Attach(Box<QueueSpec>, PortId, Sender<Attached>),
    Detach(VifId, Afterwards, Sender<Vec<Detached>>),
    Inspect(VifId, Sender<Inspected>),
    /// The bytes to leave free in front of each frame for the vif's guest. The answer tells that no
    /// frame is published without them any more.
    Headroom(VifId, u16, Sender<()>),
    Account(Sender<WorkerReport>),
    Load(Box<Rules>),
    Graph(Sender<GraphReport>),
    /// Tells that the worker takes no turn, and takes none until the other end is dropped.
    Hold(Sender<()>, Receiver<()>),
    Stop,
}

/// Reports of a vif's queues, and of the ports of those that failed.
pub(crate) type Inspected = (Vec<QueueReport>, Vec<PortReport>);

/// Report of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerReport {
    /// Number of the worker, from 0.
    pub number: usize,
    /// Processor time that the worker's thread used so far, spinning included. Without a thread of
    /// its own: time of the control thread.
    pub used: Duration,
    /// Queues that it serves.
    pub queues: usize,
    /// Time for which the worker looks again before it sleeps, as long as a wake-up takes by its
    /// measurements. None if it looks for ever.
    pub spin: Option<Duration>,
    /// Longest round so far, in processor time of the worker. A signal, or a question of the
    /// control thread, may wait as long. The bound is [`ROUND_MAX`](crate::ROUND_MAX).
    pub longest_round: Duration,
}

/// A queue's number, and the port that was behind it.
pub(super) type Detached = (u16, Box<dyn Port>);

/// A worker's message to the control thread.
pub(crate) enum Notice {
    /// A queue failed and is out of service, and the vif is to be disabled. Its port comes back
    /// when the vif is detached, as the ports of other queues do.
    Failed {
        /// The vif.
        vif: VifId,
        /// Number of the vif's connection.
        connection: u64,
        /// The reason.
        error: VifError,
    },
    /// The uplink failed, and was dropped.
    NoUplink(PortError),
    /// The platform is gone, and the worker with it.
    Gone(PlatformError),
}

/// The way by which workers tell: a notice, and a ring of the bell (an eventfd) for each.
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

/// Everything that every worker is given.
#[derive(Clone)]
pub(crate) struct Service {
    pub platform: Arc<dyn Platform>,
    pub settings: Settings,
    pub teller: Teller,
}

/// Parts beside the vifs' queues that packets go through. The first worker has them.
pub(crate) struct Beside {
    /// The nodes.
    pub graph: Graph,
    /// True if all packets go by rules, and not only those on the bridge. Then all queues belong to
    /// this worker.
    pub by_rules: bool,
    /// A port beside the guests on the bridge.
    pub uplink: Option<Box<dyn Port>>,
}

impl Beside {
    /// Returns the parts of all other workers: none.
    pub(super) fn nothing() -> Self {
        Self { graph: Graph::new(|| 0), by_rules: false, uplink: None }
    }
}

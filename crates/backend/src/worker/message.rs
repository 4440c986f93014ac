//! Messages between the control thread and its workers.

use super::settings::Settings;
use crate::VifError;
use crate::bell::ring;
use crate::bridge::{Elsewhere, Mesh};
use crate::ids::VifId;
use crate::turn::lists::{GraphReport, Loaded};
use crate::turn::queue::{Afterwards, QueueReport, QueueSpec};
use grantway_hypervisor::{BackendPlatform, Error as PlatformError};
use grantway_ports::{Port, PortError, PortReport};
use grantway_vector::path::Nodes;
use grantway_vector::receivers::Takes;
use grantway_vector::{Graph, PortId};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

/// Result of an attach: the unfinished frames that the guest accepts. On failure the port comes
/// back.
pub(super) type Attached = Result<Takes, (VifError, Box<dyn Port>)>;

/// A command to a worker.
pub(super) enum Command {
    /// A queue of the vif that has this number in lists.
    Attach(Box<QueueSpec>, PortId, Sender<Attached>),
    Detach(VifId, Afterwards, Sender<Vec<Detached>>),
    /// Each queue of the vif is to have a turn.
    Wake(VifId),
    Inspect(VifId, Sender<Inspected>),
    /// The bytes to leave free in front of each frame for the vif's guest. The answer tells that no
    /// frame is published without them any more. It has the guest's number in lists, and the
    /// unfinished frames that the guest takes now.
    Headroom(VifId, u16, Sender<Option<(PortId, Takes)>>),
    /// A guest of the bridge belongs to another worker. The answer tells that frames find it from
    /// now on.
    Elsewhere(PortId, Box<Elsewhere>, Sender<()>),
    /// Unfinished frames that a guest of another worker takes. The answer tells that no others are
    /// made for it any more.
    Takes(PortId, Takes, Sender<()>),
    /// A vif with this number is gone. The answer tells that all bundles that other workers had
    /// given are delivered, and all about the vif is forgotten.
    Forget(PortId, Sender<()>),
    /// The worker that has the uplink lost it.
    NoUplink,
    /// Report of the uplink, if the worker has it.
    Uplink(Sender<Option<PortReport>>),
    Account(Sender<WorkerReport>),
    Load(Loaded),
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
    /// Processor time of the worker's thread so far, spinning included. A worker without a thread
    /// has the time of the control thread.
    pub used: Duration,
    /// Number of queues of the worker.
    pub queues: usize,
    /// Time for which the worker spins before it sleeps: as long as a wake-up takes by its
    /// measurements. `None` if it never sleeps.
    pub spin: Option<Duration>,
    /// Processor time of the longest round so far. A signal or a command of the control thread may
    /// wait as long. The bound is [`ROUND_MAX`](crate::ROUND_MAX).
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
    pub platform: Arc<dyn BackendPlatform>,
    pub settings: Settings,
    pub teller: Teller,
}

/// Parts beside the vifs' queues that packets go through.
pub(crate) struct Beside {
    /// The nodes, of which each worker has its own.
    pub nodes: Nodes,
    /// A port beside the guests on the bridge. The first worker has it.
    pub uplink: Option<Box<dyn Port>>,
}

/// One worker's parts of these.
pub(super) struct Parts {
    pub graph: Graph,
    pub uplink: Option<Box<dyn Port>>,
    /// The worker that has the uplink, if that is another.
    pub uplink_at: Option<usize>,
    /// Frames that the uplink accepts merged.
    pub uplink_takes: Takes,
    pub mesh: Mesh,
}

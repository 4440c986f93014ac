//! One queue of a vif and one queue of a port, joined: frames cross in bursts.

mod bursts;
mod in_place;
mod intake;
mod outlet;

use bursts::Bursts;
use grantway_command::args::Api;
use grantway_frontend::{BackendFeatures, Queue, VifError};
use grantway_ports::{Port, PortError, SentBurst};
use in_place::InPlace;
use outlet::Outlet;

/// Most bytes of copied frames in one burst, in either direction, without the room for the last
/// frame.
const FILL: usize = 256 * 1024;

/// Private bytes of a large frame, which are judged. The port reads the others in the vif's pages.
const HEAD: usize = 128;

/// Error that ended a bridge.
#[derive(Debug)]
pub enum Trouble {
    /// The backend broke the protocol, or the platform is gone.
    Queue(VifError),
    /// The port cannot be used any longer.
    Port(PortError),
    /// A thread could not be started, or panicked.
    Thread(String),
}

impl From<VifError> for Trouble {
    fn from(error: VifError) -> Self {
        Self::Queue(error)
    }
}

impl From<PortError> for Trouble {
    fn from(error: PortError) -> Self {
        Self::Port(error)
    }
}

/// Frames that did not cross, by reason.
#[derive(Debug, Default, Clone, Copy)]
pub struct Drops {
    /// Frames longer or shorter than the backend accepts.
    tx_length: u64,
    /// Frames with unfinished work that the backend does not offer to do.
    tx_not_offered: u64,
    /// Frames that the port refused because it was busy.
    rx_busy: u64,
    /// Frames that the port dropped; its own counters have the reasons.
    rx_port: u64,
}

impl Drops {
    /// Adds the drops of another bridge.
    pub fn add(&mut self, other: &Self) {
        self.tx_length += other.tx_length;
        self.tx_not_offered += other.tx_not_offered;
        self.rx_busy += other.rx_busy;
        self.rx_port += other.rx_port;
    }

    /// Returns the name and the value of each counter, for programs.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("tx_length", self.tx_length),
            ("tx_not_offered", self.tx_not_offered),
            ("rx_busy", self.rx_busy),
            ("rx_port", self.rx_port),
        ]
        .into_iter()
    }
}

/// Large frames that the port read or wrote in the vif's pages. All other frames are copied through
/// private memory.
#[derive(Debug, Default, Clone, Copy)]
pub struct InPages {
    /// Frames from the port.
    tx_frames: u64,
    /// Bytes of those frames.
    tx_bytes: u64,
    /// Frames from the vif.
    rx_frames: u64,
    /// Bytes of those frames.
    rx_bytes: u64,
}

impl InPages {
    /// Returns the name and the value of each counter, for programs.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("tx_frames", self.tx_frames),
            ("tx_bytes", self.tx_bytes),
            ("rx_frames", self.rx_frames),
            ("rx_bytes", self.rx_bytes),
        ]
        .into_iter()
    }
}

/// Counters of frames that crossed, and of frames that did not.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    /// Frames that did not cross.
    pub drops: Drops,
    /// Segments from the vif that reached the port as part of a large frame.
    pub merged: u64,
    /// Frames that crossed without a copy.
    pub in_pages: InPages,
}

impl Tally {
    /// Counts frames from the vif.
    fn sent(&mut self, sent: &SentBurst) {
        self.merged += sent.merged as u64;
        self.drops.rx_busy += sent.busy as u64;
        self.drops.rx_port += sent.dropped as u64;
    }
}

/// Both ends of a bridge, and counters.
pub struct Ends {
    /// The vif's end.
    pub queue: Queue,
    /// The network's end.
    pub port: Box<dyn Port>,
    /// Counters of both directions.
    pub tally: Tally,
}

/// The way of frames from one end to the other, chosen when the vif connects.
trait Carry: Send {
    /// Moves at most a burst from the port to the vif. Returns true if a frame moved.
    fn transmit(&mut self, ends: &mut Ends) -> Result<bool, Trouble>;

    /// Moves at most a burst from the vif to the port. Returns true if a frame moved.
    fn receive(&mut self, ends: &mut Ends) -> Result<bool, Trouble>;

    /// Returns true while a frame of the port waits for room on the ring.
    fn is_waiting(&self) -> bool;

    /// Forgets the frames that wait for room.
    fn forget_waiting(&mut self);
}

/// Returns true if the backend accepts each unfinished frame of a port, and is trusted. It can read
/// what a port wrote to pages, even if the frame is not sent.
fn takes_all(features: BackendFeatures) -> bool {
    let BackendFeatures { scatter_gather, checksum_ipv4, checksum_ipv6, .. } = features;
    let large = features.gso_tcpv4 && features.gso_tcpv6;
    features.trusted && scatter_gather && checksum_ipv4 && checksum_ipv6 && large
}

/// Two ends, and the way of frames between them.
pub struct Bridge {
    /// The ends.
    pub ends: Ends,
    way: Box<dyn Carry>,
}

impl Bridge {
    /// Joins a queue and a port. Segments and datagrams from the vif are merged if `merge` is true and
    /// the port wants large frames.
    pub fn new(queue: Queue, port: Box<dyn Port>, api: Api, merge: bool) -> Self {
        let (caps, features) = (port.caps(), queue.features());
        // Pages of a backend that is not trusted are copied first, whoever reads them.
        let outlet = Outlet::new(merge && caps.wants_merged, caps.in_place && features.trusted);
        let bursts = Bursts::new(caps.in_place && takes_all(features), outlet);
        let way: Box<dyn Carry> = match api {
            Api::Copy => Box::new(bursts),
            Api::Lend => Box::new(InPlace::new(bursts)),
        };
        Self { ends: Ends { queue, port, tally: Tally::default() }, way }
    }

    /// Moves at most a burst each way. Returns true if a frame moved.
    pub fn turn(&mut self) -> Result<bool, Trouble> {
        let sent = self.way.transmit(&mut self.ends)?;
        let received = self.way.receive(&mut self.ends)?;
        Ok(sent || received)
    }

    /// Asks both ends for a signal before the thread waits. Returns true if there is work already.
    pub fn arm(&mut self) -> Result<bool, Trouble> {
        let there = self.ends.queue.arm()?;
        Ok(there || (self.wants_frames() && self.ends.port.readiness().is_now()))
    }

    /// Returns true if the port must wake the thread. While frames wait for room, the port's own
    /// bounded queue fills.
    pub fn wants_frames(&self) -> bool {
        !self.way.is_waiting()
    }

    /// Drops the frames that wait for room, because the link is down.
    pub fn forget_waiting(&mut self) {
        self.way.forget_waiting();
    }
}

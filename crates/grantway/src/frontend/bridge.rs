//! One queue of a vif and one queue of a port, joined: frames cross in bursts.

use grantway_frontend::{Queue, SendError, VifError};
use grantway_netif::Offload;
use grantway_ports::{Port, PortError, RECV_BUFFER, SendError as PortSendError};

/// Frames that cross each way before the other way gets its turn.
const BURST: usize = 64;

/// What ended a bridge.
#[derive(Debug)]
pub enum Trouble {
    /// The queue's end: the backend broke the protocol, or the platform is
    /// gone.
    Queue(VifError),
    /// The port is of no more use.
    Port(PortError),
    /// A thread could not be had, or came to a bad end.
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
    /// Longer or shorter than the backend takes.
    tx_length: u64,
    /// They ask what the backend does not offer.
    tx_not_offered: u64,
    /// The port was busy.
    rx_busy: u64,
    /// The port would not take them; its own counters tell why.
    rx_port: u64,
}

impl Drops {
    /// Adds another bridge's.
    pub fn add(&mut self, other: &Self) {
        self.tx_length += other.tx_length;
        self.tx_not_offered += other.tx_not_offered;
        self.rx_busy += other.rx_busy;
        self.rx_port += other.rx_port;
    }

    /// Names and values, for machines.
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

/// A queue and what it is joined to.
pub struct Bridge {
    /// The vif's end.
    pub queue: Queue,
    /// The other end.
    pub port: Box<dyn Port>,
    /// What did not cross.
    pub drops: Drops,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// A frame that was read from the port and waits for room on the ring.
    waiting: Option<(usize, Offload)>,
}

impl Bridge {
    /// Joins the two.
    pub fn new(queue: Queue, port: Box<dyn Port>) -> Self {
        let buffer = || vec![0; RECV_BUFFER];
        Self {
            queue,
            port,
            drops: Drops::default(),
            outgoing: buffer(),
            incoming: buffer(),
            waiting: None,
        }
    }

    /// A burst each way; whether anything moved.
    pub fn turn(&mut self) -> Result<bool, Trouble> {
        let sent = self.transmit()?;
        let received = self.receive()?;
        Ok(sent || received)
    }

    fn transmit(&mut self) -> Result<bool, Trouble> {
        let mut moved = 0;
        while moved < BURST {
            let (len, offload) = match self.waiting.take() {
                Some(waiting) => waiting,
                None => match self.port.recv(&mut self.outgoing)? {
                    Some(frame) => (frame.len, frame.offload),
                    None => break,
                },
            };
            match self.queue.send(&self.outgoing[..len], offload) {
                Ok(()) => moved += 1,
                Err(SendError::Full) => {
                    self.waiting = Some((len, offload));
                    self.queue.flush()?;
                    if self.queue.reap()? == 0 {
                        break;
                    }
                }
                Err(SendError::Length { .. }) => self.drops.tx_length += 1,
                Err(SendError::NotOffered { .. }) => self.drops.tx_not_offered += 1,
            }
        }
        if moved > 0 {
            self.queue.count_turn();
            self.queue.flush()?;
        }
        Ok(moved > 0)
    }

    fn receive(&mut self) -> Result<bool, Trouble> {
        let mut moved = 0;
        while moved < BURST {
            let Some(frame) = self.queue.recv(&mut self.incoming)? else { break };
            moved += 1;
            match self.port.send(&self.incoming[..frame.len], frame.offload) {
                Ok(()) => {}
                Err(PortSendError::Busy) => self.drops.rx_busy += 1,
                Err(PortSendError::Dropped(_)) => self.drops.rx_port += 1,
                Err(PortSendError::Failed(e)) => return Err(e.into()),
            }
        }
        if moved > 0 {
            self.port.flush()?;
            self.queue.count_turn();
            self.queue.repost()?;
        }
        Ok(moved > 0)
    }

    /// The last look before sleeping; true when something is there.
    pub fn arm(&mut self) -> Result<bool, Trouble> {
        let there = self.queue.arm()?;
        Ok(there || (self.wants_frames() && self.port.always_ready()))
    }

    /// Whether the port is to wake us: while a frame waits for room, the
    /// port's own bounded queue fills.
    pub fn wants_frames(&self) -> bool {
        self.waiting.is_none()
    }

    /// Forgets the frame that waits: no frame crosses any more.
    pub fn forget_waiting(&mut self) {
        self.waiting = None;
    }
}

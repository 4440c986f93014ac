//! One queue of a vif and one queue of a port, joined: frames cross in bursts.

use arrayvec::ArrayVec;
use grantway_command::args::Api;
use grantway_command::control::nanoseconds;
use grantway_frontend::{Queue, SendError, TxFrame, TxMeta, VifError};
use grantway_netif::Offload;
use grantway_ports::{BURST, FrameMeta, FramePlace, Port, PortError, RECV_BUFFER, uptime};
use grantway_vector::Merger;

/// Bytes of frames that one burst may fill in either direction, the last one's room
/// not counted.
const FILL: usize = 256 * 1024;

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
    /// Frames that were read from the port, and where they lie.
    outgoing: Vec<u8>,
    burst: ArrayVec<FramePlace, BURST>,
    /// The first of them that waits for room on the ring.
    next: usize,
    /// Frames from the vif, and where they lie.
    incoming: Vec<u8>,
    arrived: Vec<FramePlace>,
    api: Api,
    /// Where segments from the vif are to be merged for the port, and how many were.
    merger: Option<Merger>,
    pub merged: u64,
    /// Frames that are to be made in place wait for room.
    stuck: bool,
}

/// The frames of a burst, by number.
const NUMBERS: [u8; BURST] = {
    let mut numbers = [0; BURST];
    let mut n = 0;
    while n < BURST {
        numbers[n] = n as u8;
        n += 1;
    }
    numbers
};

impl Bridge {
    /// Joins the two; `merge` says whether segments are merged for a port that takes
    /// large frames.
    pub fn new(queue: Queue, port: Box<dyn Port>, api: Api, merge: bool) -> Self {
        let merger = (merge && port.wants_merged()).then(|| Merger::new(|| nanoseconds(uptime())));
        Self {
            queue,
            port,
            drops: Drops::default(),
            outgoing: vec![0; FILL + RECV_BUFFER],
            burst: ArrayVec::new(),
            next: 0,
            incoming: vec![0; FILL + RECV_BUFFER],
            arrived: Vec::with_capacity(BURST),
            api,
            merger,
            merged: 0,
            stuck: false,
        }
    }

    /// A burst each way; whether anything moved.
    pub fn turn(&mut self) -> Result<bool, Trouble> {
        let sent = self.transmit()?;
        let received = self.receive()?;
        Ok(sent || received)
    }

    /// Reads a burst before the first of it is sent: what is written to private
    /// memory meanwhile does not hold up what is written to the backend's.
    fn transmit(&mut self) -> Result<bool, Trouble> {
        if self.api == Api::Lend
            && let Some(moved) = self.make_in_place()?
        {
            return Ok(moved);
        }
        if self.next == self.burst.len() {
            self.burst.clear();
            self.next = 0;
            self.port.recv_burst(&mut self.outgoing, &mut self.burst)?;
            if self.burst.is_empty() {
                return Ok(false);
            }
        }
        let mut moved = 0;
        while let Some(left) = self.burst.get(self.next..).filter(|left| !left.is_empty()) {
            let frame = |place: &FramePlace| TxFrame {
                bytes: place.bytes(&self.outgoing),
                offload: place.meta.offload,
            };
            let (sent, why_not) = self.queue.send_burst(left, frame);
            moved += sent;
            self.next += sent;
            match why_not {
                None => {}
                Some(SendError::Full) => {
                    self.queue.flush()?;
                    if self.queue.reap()? == 0 {
                        break;
                    }
                }
                Some(SendError::Length { .. }) => {
                    self.drops.tx_length += 1;
                    self.next += 1;
                }
                Some(SendError::NotOffered { .. }) => {
                    self.drops.tx_not_offered += 1;
                    self.next += 1;
                }
            }
        }
        if moved > 0 {
            self.queue.count_turn();
            self.queue.flush()?;
        }
        Ok(moved > 0)
    }

    /// Has a generator make a burst where it is sent from; none where the port is none,
    /// or its frames do not fit a page.
    fn make_in_place(&mut self) -> Result<Option<bool>, Trouble> {
        let Self { queue, port, .. } = self;
        let Some(generator) = port.as_generator().filter(|port| port.is_short()) else {
            return Ok(None);
        };
        let run = generator.run(BURST);
        let numbers = NUMBERS.get(..run.frames()).unwrap_or(&NUMBERS);
        let meta = TxMeta { len: run.size(), offload: Offload::default() };
        let mut made = 0;
        while made < numbers.len() {
            let (sent, why_not) = queue.lend_burst(
                &numbers[made..],
                |_| meta,
                |&number, _, mut room| {
                    run.write(number.into(), |at, bytes| {
                        // The room is as long as the frame.
                        let _ = room.write(at, bytes);
                    });
                },
            );
            made += sent;
            match why_not {
                Some(SendError::Full) => {
                    queue.flush()?;
                    if queue.reap()? == 0 {
                        break;
                    }
                }
                Some(_) => {
                    self.drops.tx_length += 1;
                    made += 1;
                }
                None => {}
            }
        }
        self.stuck = made < numbers.len();
        generator.made_in_place(made);
        if made > 0 {
            queue.count_turn();
            queue.flush()?;
        }
        Ok(Some(made > 0))
    }

    fn receive(&mut self) -> Result<bool, Trouble> {
        if self.api == Api::Lend
            && let Some(checker) = self.port.as_checker()
        {
            let moved = self.queue.recv_lent_burst(|frame| {
                checker.check_in_place(frame.len(), |buf| frame.copy_to(buf));
            })?;
            if moved > 0 {
                self.queue.count_turn();
                self.queue.repost()?;
            }
            return Ok(moved > 0);
        }
        self.arrived.clear();
        let moved = self.queue.recv_burst(&mut self.incoming, |at, frame| {
            let meta = FrameMeta { len: frame.len, offload: frame.offload };
            self.arrived.push(FramePlace { at, meta });
        })?;
        if moved > 0 {
            let (port, arrived) = (self.port.as_mut(), &self.arrived);
            let sent = match &mut self.merger {
                Some(merger) => merger.send_burst(port, &mut self.incoming, arrived)?,
                None => port.send_burst(&self.incoming, arrived)?,
            };
            self.merged += sent.merged as u64;
            self.drops.rx_busy += sent.busy as u64;
            self.drops.rx_port += sent.dropped as u64;
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

    /// Whether the port is to wake us: while frames wait for room, the port's
    /// own bounded queue fills.
    pub fn wants_frames(&self) -> bool {
        self.next == self.burst.len() && !self.stuck
    }

    /// Forgets the frames that wait: none crosses any more.
    pub fn forget_waiting(&mut self) {
        self.next = self.burst.len();
        self.stuck = false;
    }
}

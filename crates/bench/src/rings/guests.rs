//! The guests of a measurement: some that send, and one that receives.

use super::judge::sum;
use crate::turns::{address, ip, send};
use grantway_command::error::CommandError;
use grantway_frontend::{Queue, Vif};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Frames that a sender makes at a time.
const BURST: u64 = 32;
/// Most frames on their way: as many as a receive ring has slots.
const WINDOW: u64 = 256;
/// Number of the paper's streams.
pub const STREAMS: usize = 4;
/// Looks at the rings between two looks at the clock.
const LOOKS: u64 = 64;
/// Time limit for frames on their way. It only guards against a server that loses some.
const PATIENCE: Duration = Duration::from_secs(30);

/// The guests. The first of them receives, and all others send to it.
pub struct Guests {
    vifs: Vec<Vif>,
    sources: Vec<Source>,
    sent: u64,
    received: u64,
}

/// A queue that sends.
struct Source {
    guest: usize,
    queue: usize,
    /// A burst: a frame of each of its streams, again and again.
    frames: Vec<Vec<u8>>,
}

impl Source {
    /// Returns the sources of some guests, each with some queues. They share the streams.
    fn all(senders: usize, queues: usize) -> Vec<Self> {
        let source = |at: usize| {
            let (guest, queue) = (1 + at / queues, at % queues);
            let streams = (at..STREAMS).step_by(senders * queues);
            let frames: Vec<_> = streams.map(|stream| of_stream(stream, guest)).collect();
            let frames = frames.iter().cycle().take(BURST as usize).cloned().collect();
            Self { guest, queue, frames }
        };
        (0..senders * queues).map(source).collect()
    }
}

/// Figures of one slice.
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    /// Frames per second that the receiver got.
    pub rate: f64,
    /// Share of the guests' looks at their rings that found nothing to do, since the server had not
    /// come to it yet: from 0 to 1. If it is near to 0, the guests limit the rate.
    pub waits: f64,
}

impl Guests {
    /// Makes the guests' frames. Lets the bridge learn the receiver's station by a frame, which
    /// `serve` is to carry.
    ///
    /// # Errors
    ///
    /// The server broke the protocol, or did not carry the frame.
    pub fn start(
        mut vifs: Vec<Vif>,
        serve: &mut dyn FnMut() -> Result<(), CommandError>,
    ) -> Result<Self, CommandError> {
        let senders = vifs.len().saturating_sub(1);
        let queues = vifs.first_mut().map_or(1, |vif| vif.queues().len().max(1));
        let sources = Source::all(senders, queues);
        let mut guests = Self { vifs, sources, sent: 0, received: 0 };
        let mut hello = datagram((0, 0), [10_000, 20_000]);
        hello[..6].fill(0xff);
        send(guests.queue(0)?, &[&hello]).map_err(CommandError::failed)?;
        let since = Instant::now();
        for guest in 1..guests.vifs.len() {
            while guests.look(guest)? == 0 {
                serve()?;
                if since.elapsed() > PATIENCE {
                    return Err(lost("the broadcast of the receiver", 1));
                }
            }
        }
        Ok(guests)
    }

    fn queue(&mut self, guest: usize) -> Result<&mut Queue, CommandError> {
        crate::turns::queue(&mut self.vifs, guest)
    }

    /// Looks at all frames that a guest received, in their pages. Returns their number.
    fn look(&mut self, guest: usize) -> Result<u64, CommandError> {
        let mut received = 0;
        for queue in self.vifs[guest].queues() {
            let mut bytes = 0;
            let came = queue.recv_lent_burst(|frame| bytes += frame.len());
            received += came.map_err(CommandError::failed)? as u64;
            std::hint::black_box(bytes);
            queue.repost().map_err(CommandError::failed)?;
        }
        Ok(received)
    }

    /// Looks at the receiver's rings once. Returns true if there was a frame.
    fn receive(&mut self) -> Result<bool, CommandError> {
        let came = self.look(0)?;
        self.received += came;
        Ok(came > 0)
    }

    /// Sends from all guests what fits, and receives. Returns true if a frame moved.
    fn pass(&mut self) -> Result<bool, CommandError> {
        let mut moved = false;
        for Source { guest, queue, frames } in &self.sources {
            let room = WINDOW.saturating_sub(self.sent - self.received).min(BURST);
            let frames = frames.iter().take(room as usize).map(Vec::as_slice);
            let frames: arrayvec::ArrayVec<&[u8], { BURST as usize }> = frames.collect();
            let queue = self.vifs[*guest].queues().get_mut(*queue);
            let Some(queue) = queue.filter(|_| !frames.is_empty()) else { continue };
            let sent = send(queue, &frames).map_err(CommandError::failed)? as u64;
            self.sent += sent;
            moved |= sent > 0;
        }
        Ok(self.receive()? | moved)
    }

    /// Sends and receives for a tenth of `span`, and then for `span`, which is measured. Waits until
    /// all frames have arrived. `failed` is set if the server ended.
    ///
    /// # Errors
    ///
    /// The server broke the protocol, ended, or lost a frame.
    pub fn run(&mut self, span: Duration, failed: &AtomicBool) -> Result<Slice, CommandError> {
        self.passes(span / 10, failed)?;
        let (since, before) = (Instant::now(), self.received);
        let waits = self.passes(span, failed)?;
        let rate = (self.received - before) as f64 / since.elapsed().as_secs_f64();
        let since = Instant::now();
        while self.received < self.sent && !failed.load(Relaxed) {
            if !self.receive()? {
                std::thread::yield_now();
            }
            if since.elapsed() > PATIENCE {
                return Err(lost("the senders", self.sent - self.received));
            }
        }
        Ok(Slice { rate, waits })
    }

    /// Sends and receives for `span`, and until a frame has arrived. Returns the share of looks that
    /// found nothing.
    fn passes(&mut self, span: Duration, failed: &AtomicBool) -> Result<f64, CommandError> {
        let (since, before) = (Instant::now(), self.received);
        let (mut looks, mut idle) = (0, 0);
        while (since.elapsed() < span || self.received == before) && !failed.load(Relaxed) {
            for _ in 0..LOOKS {
                idle += u64::from(!self.pass()?);
            }
            looks += LOOKS;
            if since.elapsed() > span + PATIENCE {
                return Err(lost("the senders", self.sent - self.received));
            }
        }
        Ok(idle as f64 / f64::max(looks as f64, 1.0))
    }
}

fn lost(whose: &str, frames: u64) -> CommandError {
    let seconds = PATIENCE.as_secs();
    CommandError::Failed(format!(
        "{frames} frames of {whose} did not arrive within {seconds} s; this is a fault of the bench"
    ))
}

/// Returns the frame of a stream to the receiver.
fn of_stream(stream: usize, sender: usize) -> Vec<u8> {
    // There are a few streams.
    datagram((sender, 0), [10_000 + stream as u16, 20_000])
}

/// Makes a frame with a UDP datagram of one byte from one guest to another, as netperf sends it in
/// the paper. It is padded to 60 bytes.
pub fn datagram((from, to): (usize, usize), ports: [u16; 2]) -> Vec<u8> {
    let mut frame = [address(to), address(from)].concat();
    let mut header = vec![0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0];
    header.extend([ip(from), ip(to)].concat());
    let check = !sum(&header);
    header[10..12].copy_from_slice(&check.to_be_bytes());
    frame.extend([8, 0]);
    frame.extend(header);
    frame.extend(ports.map(u16::to_be_bytes).concat());
    // Length of the datagram; no checksum.
    frame.extend([0, 9, 0, 0]);
    frame.resize(60, 0);
    frame
}

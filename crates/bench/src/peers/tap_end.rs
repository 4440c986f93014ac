//! `grantway bench tap-end`: a program that reads and writes one TAP, a frame per system call.
//!
//! It is what a program does that knows nothing of a kernel's fast paths. Frames cross behind a
//! header of their TAP (`IFF_VNET_HDR`) with all offloads off, by `read` and `write` of one buffer.

use super::end::SIZE_MAX;
use crate::args::{narrow, numbers};
use clap::{Args, ValueEnum};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::process::pin;
use grantway_netif::Offload;
use grantway_ports::{
    Generator, GeneratorConfig, Port, RECV_BUFFER, SendError, Tap, TapConfig, monotonic, uptime,
};
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Work of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// Sends frames all the time.
    Send,
    /// Counts frames and drops them.
    Take,
    /// Sends frames back.
    Echo,
    /// Sends frames back, and first sends one.
    Bounce,
}

/// `grantway bench tap-end`.
#[derive(Debug, Args)]
#[command(after_help = "\
`grantway bench peers --peer plain-tap` starts this process twice. It creates
the TAP, prints `ready`, and reads lines from standard input: `start` begins its
work, and `show` prints the number of frames received and the time. It ends with
its standard input.

Example:
  grantway bench tap-end --interface tap7 --work take --cpu 0")]
pub struct TapEndArgs {
    /// Name of the TAP.
    #[arg(long, value_name = "NAME")]
    pub interface: String,
    /// Work to do.
    #[arg(long, value_enum)]
    pub work: Work,
    /// Size of the frames that are made, in bytes, without FCS.
    #[arg(long, value_name = "N", default_value = "64", value_parser = size)]
    pub size: usize,
    /// Pin this process to a processor.
    #[arg(long, value_name = "N")]
    pub cpu: usize,
}

fn size(text: &str) -> Result<usize, String> {
    match narrow(numbers(text, 64, SIZE_MAX, "bytes")?).0[..] {
        [size] => Ok(size),
        _ => Err(format!("found {text:?}, expected one size")),
    }
}

/// Opens the TAP, prints `ready`, and obeys the lines of standard input until it ends: `start`
/// begins the work, and `show` prints `received N at NANOSECONDS`.
///
/// # Errors
///
/// The TAP cannot be opened, or its kernel's end fails.
pub fn run(args: &TapEndArgs) -> Result<(), CommandError> {
    pin(args.cpu)?;
    let config = TapConfig { up: true, ..TapConfig::named(&args.interface) };
    let tap = Tap::open(&config).map_err(CommandError::failed)?;
    let received = Arc::new(AtomicU64::new(0));
    let mut idle = Some(Mover::new(tap, args, Arc::clone(&received))?);
    output::line("ready")?;
    let mut working = None;
    for line in std::io::stdin().lock().lines() {
        match line.map_err(CommandError::failed)?.as_str() {
            // The thread has the processor of this one, which waits for lines.
            "start" => {
                working = working
                    .or(idle.take().map(|mut mover| std::thread::spawn(move || mover.work())));
            }
            "show" => {
                let (count, now) = (received.load(Ordering::Relaxed), uptime().as_nanos());
                output::line(format!("received {count} at {now}"))?;
            }
            other => {
                let found = format!("line {other:?} of standard input; expected start or show");
                return Err(CommandError::Failed(found));
            }
        }
        // A mover ends only by an error.
        if let Some(ended) = working.take_if(|thread| thread.is_finished()) {
            return ended.join().unwrap_or_else(|_| Err(CommandError::Failed("panicked".into())));
        }
    }
    Ok(())
}

/// The TAP, and the work that is done with it.
struct Mover {
    tap: Tap,
    work: Work,
    frames: Generator,
    /// The frame that is sent. Each copy has a number of its own.
    frame: Vec<u8>,
    room: Vec<u8>,
    received: Arc<AtomicU64>,
}

impl Mover {
    fn new(tap: Tap, args: &TapEndArgs, received: Arc<AtomicU64>) -> Result<Self, CommandError> {
        let config = GeneratorConfig { size: args.size, ..GeneratorConfig::default() };
        let frames = Generator::new(config, monotonic()).map_err(CommandError::failed)?;
        let frame = frames.template(0).unwrap_or_default();
        Ok(Self { tap, work: args.work, frames, frame, room: vec![0; RECV_BUFFER], received })
    }

    /// Works until the TAP fails.
    fn work(&mut self) -> Result<(), CommandError> {
        if self.work == Work::Bounce {
            self.send_next()?;
        }
        loop {
            match self.work {
                Work::Send => self.send_next()?,
                Work::Take | Work::Echo | Work::Bounce => self.take_next()?,
            }
        }
    }

    fn send_next(&mut self) -> Result<(), CommandError> {
        if let Some(stamp) = self.frames.advance() {
            self.frames.patch(&mut self.frame, stamp.sequence);
        }
        sent(self.tap.send(&self.frame, Offload::default()))
    }

    /// Reads a frame, if there is one, and sends it back if that is the work.
    fn take_next(&mut self) -> Result<(), CommandError> {
        let found = self.tap.recv(&mut self.room).map_err(CommandError::failed)?;
        let Some(meta) = found else { return Ok(()) };
        self.received.fetch_add(1, Ordering::Relaxed);
        match (self.work, self.room.get(..meta.len)) {
            (Work::Echo | Work::Bounce, Some(frame)) => sent(self.tap.send(frame, meta.offload)),
            _ => Ok(()),
        }
    }
}

/// A frame that the kernel did not take is lost, as it is between hosts.
fn sent(outcome: Result<(), SendError>) -> Result<(), CommandError> {
    match outcome {
        Ok(()) | Err(SendError::Dropped(_) | SendError::Busy) => Ok(()),
        Err(error) => Err(CommandError::failed(error)),
    }
}

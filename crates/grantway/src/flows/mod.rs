//! `grantway flows`: what each TCP flow of a capture did, and why it stood still.
//!
//! - here: the command line, and a capture read; [`text`]: what is printed;
//!   [`page`]: the same as a page, with plots that `page.js` draws.

mod page;
mod text;

use crate::bench::report::Destination;
use crate::error::CommandError;
use crate::output;
use clap::Args;
use grantway_flows::{Event, Flows, Limits, Packet, Report, Ring, Way};
use grantway_ports::CaptureError;
use grantway_ports::pcap::{CaptureReader, Direction};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// `grantway flows`.
#[derive(Debug, Args)]
#[command(after_help = "\
Reads a capture (pcapng or pcap, Ethernet) once and in bounded memory. A stall is a
time for which a sender sent no data, by what it was spent on for the most part:

  sender    all was acknowledged, and there was a window: nothing to send
  window    the receiver's window was zero, or full
  ring      a ring was full
  wake-up   a ring had room again, and who waited for it was still asleep
  network   data was under way, and came late or had to be sent again
  unknown   data was under way, and nothing was captured that explains it

Of rings only a backend can tell. In a capture it does so in comments of packets,
grantway:ring-full, grantway:ring-drained and grantway:woken: each is of the ring
that its packet crosses (epb_flags: inbound is to the guest). Without them such
stalls are told as sender, network or unknown.

Capture at the sender or on the vif: at a receiver, what was lost before cannot be
known. Where the handshake is not in the capture, windows other than zero are not
known. A flow that was captured on two interfaces is two flows.

Example:
  grantway flows trace.pcapng
  grantway flows trace.pcapng --flow 1 --stall 50
  grantway flows trace.pcapng --report flows.html --stats
  grantway flows trace.pcapng --json | jq '.flows[].stalls[]'")]
pub struct FlowsArgs {
    /// The capture; `-` for standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The shortest stall in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub stall: u32,
    /// Tell all of one flow, by its number in the table.
    #[arg(long, value_name = "N")]
    pub flow: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Also write a page with plots that can be zoomed into.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Say in the last line how many packets a second were looked at.
    #[arg(long, conflicts_with = "json")]
    pub stats: bool,
}

/// What was read.
struct Found {
    report: Report,
    /// Packets without a time, which tell nothing.
    untimed: u64,
    took: Duration,
    /// Why the rest of the file could not be read.
    damage: Option<CaptureError>,
}

/// Runs the command. What could be read of a damaged file is told before its damage.
///
/// # Errors
///
/// The file is no capture or damaged, there is no such flow, or a page or standard
/// output cannot be written.
pub fn run(args: &FlowsArgs) -> Result<(), CommandError> {
    let page = args.report.as_deref().map(Destination::at).transpose()?;
    let mut found = read(args)?;
    if let Some(damage) = found.damage.take_if(|_| found.report.all.packets == 0) {
        return Err(CommandError::failed(damage));
    }
    if let Some(number) = args.flow {
        choose(&mut found.report, number)?;
    }
    if let Some(page) = page {
        page.write(&page::of(&found.report, &args.file, args.stall))?;
    }
    if args.json {
        output::line(serde_json::to_string(&found.report).map_err(CommandError::failed)?)?;
    } else {
        output::line(text::of(&found, args))?;
    }
    match found.damage {
        Some(damage) => Err(CommandError::failed(damage)),
        None => Ok(()),
    }
}

/// Leaves one flow only.
fn choose(report: &mut Report, number: u64) -> Result<(), CommandError> {
    let numbers = || report.flows.iter().map(|flow| flow.number);
    if !numbers().any(|known| known == number) {
        let known = match (numbers().min(), numbers().max()) {
            (Some(first), Some(last)) => format!("the capture has flows {first} to {last}"),
            _ => "the capture has no TCP flow".to_owned(),
        };
        return Err(CommandError::Failed(format!(
            "--flow {number}: no such flow; {known}, which the table without --flow shows"
        )));
    }
    report.flows.retain(|flow| flow.number == number);
    Ok(())
}

fn read(args: &FlowsArgs) -> Result<Found, CommandError> {
    let began = Instant::now();
    let source: Box<dyn Read> = match args.file.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => Box::new(std::fs::File::open(&args.file).map_err(|error| {
            let path = args.file.display();
            CommandError::Failed(format!(
                "{path}: {error}; expected a capture file, or - for one on standard input"
            ))
        })?),
    };
    let stall = u64::from(args.stall) * 1_000_000;
    let mut flows = Flows::new(Limits { stall, ..Limits::default() });
    let mut untimed = 0;
    let damage = follow(source, &args.file, &mut flows, &mut untimed).err();
    let report = flows.report();
    Ok(Found { report, untimed, took: began.elapsed(), damage })
}

fn follow(
    source: Box<dyn Read>,
    path: &Path,
    flows: &mut Flows,
    untimed: &mut u64,
) -> Result<(), CaptureError> {
    let mut reader = CaptureReader::new(source, path)?;
    while let Some(record) = reader.next_record()? {
        let Some(time) = record.time else {
            *untimed += 1;
            continue;
        };
        let way = record.direction().map(|direction| match direction {
            Direction::Inbound => Way::Receive,
            Direction::Outbound => Way::Transmit,
        });
        let ring = Ring { interface: record.interface, way };
        for event in record.comments().filter_map(Event::read) {
            flows.event(time, ring, event);
        }
        let length = record.length as usize;
        let (head, point) = (record.frame, record.interface);
        flows.packet(&Packet { time, head, length, point, ring });
    }
    Ok(())
}

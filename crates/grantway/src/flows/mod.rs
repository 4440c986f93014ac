//! `grantway flows` shows each TCP flow of a capture or of a running backend, and why it stalled.
//!
//! - This module has the command line, and reads a capture.
//! - [`live`] is the stream of a backend, which is read as a capture.
//! - [`stack`] reads the log of a stack in user space.
//! - [`text`] has the printed text. [`page`] has a page with plots, which `page.js` draws.

mod live;
mod page;
mod stack;
mod text;

use clap::Args;
use grantway_command::args::DOMAIN_MAX;
use grantway_command::args::{milliseconds, seconds};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::report::Destination;
use grantway_flows::{Event, Flows, Limits, Merged, NAMES_MAX, Packet, Report, Ring, Way};
use grantway_ports::CaptureError;
use grantway_ports::pcap::{CaptureReader, Direction};
use live::Live;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// `grantway flows`.
#[derive(Debug, Args)]
#[command(after_help = "\
Reads a capture (pcapng or pcap, Ethernet) once and in bounded memory. With
--host or --live it reads the packets of all vifs from a running backend until
Ctrl-C: the first 128 bytes of each packet, and the times at which rings were
full. Segments of a flow that cross a ring in one burst come as one packet, with
their number and size. All results are those of the segments one by one. Packets
that this command does not read in time are left out and counted, and the
results say so. One reader per backend is allowed. Without a reader the backend
has no measurable cost. On a terminal q ends the reading, p pauses the picture,
and arrows and Page Up and Down scroll.

A stall is a time in which a sender sent no data. Its cause is what took most of
that time:

  sender    everything was acknowledged and the window was open: nothing to send
  window    the receiver's window was zero or full
  ring      a ring was full, or the rate of its vif delayed its packets
  wake-up   a ring had space again and its sender still slept (or had nothing
            more to send; both look the same from outside)
  network   data was in flight, and arrived late or was retransmitted
  unknown   data was in flight, and the capture explains nothing

Only a backend knows the state of rings. In a capture it writes that state as
packet comments: grantway:ring-full, grantway:ring-drained and grantway:woken.
Each comment is about the ring that its packet crosses (epb_flags: inbound is to
the guest). Without these comments such stalls have the cause sender, network or
unknown. Beside a packet that was merged of 12 segments of 1448 bytes it writes
grantway:segments=12x1448; the last segment may be shorter.

Capture at the sender or on the vif: a capture at the receiver does not show
what was lost on the way. Without the handshake in the capture, only windows of
zero are known. A flow that was captured on two interfaces counts as two flows.

Example:
  grantway flows trace.pcapng
  grantway flows trace.pcapng --flow 1 --stall 50
  grantway flows trace.pcapng --report flows.html --stats
  grantway flows trace.pcapng --stack-log stack.jsonl --flow 1
  grantway flows trace.pcapng --json | jq '.flows[].stalls[]'
  grantway flows --host /tmp/gw
  grantway flows --host /tmp/gw --seconds 10 --write trace.pcapng \\
      --report flows.html")]
pub struct FlowsArgs {
    /// Capture; `-` for standard input.
    #[arg(value_name = "FILE", required_unless_present_any = ["host", "live"])]
    pub file: Option<PathBuf>,
    /// Read from a running backend of this embedded host.
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    pub host: Option<PathBuf>,
    /// Read from a running backend on Xen.
    #[arg(long, conflicts_with_all = ["file", "host"])]
    pub live: bool,
    /// Directory of the sockets on Xen.
    #[arg(long, value_name = "DIR", default_value = grantway_command::place::RUN_FOLDER, requires = "live")]
    pub run_dir: PathBuf,
    /// Domain that the backend runs in. Default: the only one with a backend.
    #[arg(long, value_name = "N", conflicts_with = "file", value_parser = clap::value_parser!(u16).range(0..=DOMAIN_MAX))]
    pub domain: Option<u16>,
    /// Time to read. Default: until Ctrl-C.
    #[arg(long, value_name = "TIME", conflicts_with = "file", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Also write the packets to a capture.
    #[arg(long, value_name = "FILE.pcapng", conflicts_with = "file")]
    pub write: Option<PathBuf>,
    /// Shortest stall, in ms if it has no unit.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = milliseconds(1))]
    pub stall: u32,
    /// Show all details of one flow, by its number in the table.
    #[arg(long, value_name = "N")]
    pub flow: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Log of a TCP stack (`grantway iperf --stack-log`), shown with its flows.
    #[arg(long, value_name = "FILE")]
    pub stack_log: Option<PathBuf>,
    /// Also write a page with plots that zoom.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Print the number of packets read per second in the last line.
    #[arg(long, conflicts_with = "json")]
    pub stats: bool,
}

/// Result of reading a capture or a stream.
struct Found {
    /// Path of the file, or of the backend's socket.
    source: PathBuf,
    report: Report,
    /// Number of packets ignored (no timestamp).
    untimed: u64,
    /// Number of directions to which the log of a stack adds something.
    logged: Option<usize>,
    took: Duration,
    /// Error because of which the rest of the file was not read.
    damage: Option<CaptureError>,
}

/// Runs the command. If a file is damaged, prints the part that could be read, then the damage.
///
/// # Errors
///
/// The file is not a capture or is damaged, the flow does not exist, or a page or standard output
/// cannot be written.
pub fn run(args: &FlowsArgs) -> Result<(), CommandError> {
    let page = args.report.as_deref().map(Destination::at).transpose()?;
    // A log is complete when a capture is read. A stream is read while the log is written.
    let early = args.stack_log.as_deref().filter(|_| args.file.is_some());
    let log = early.map(stack::read).transpose()?;
    let mut found = read(args)?;
    if let Some(path) = &args.stack_log {
        let log = log.map_or_else(|| stack::read(path), Ok)?;
        found.logged = Some(log.attach(&mut found.report));
    }
    if let Some(damage) = found.damage.take_if(|_| found.report.all.packets == 0) {
        return Err(CommandError::failed(damage));
    }
    if let Some(number) = args.flow {
        choose(&mut found.report, number)?;
    }
    if let Some(page) = page {
        page.write(&page::of(&found.report, &found.source, args.stall))?;
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

/// Leaves one flow in the report.
fn choose(report: &mut Report, number: u64) -> Result<(), CommandError> {
    let numbers = || report.flows.iter().map(|flow| flow.number);
    if !numbers().any(|known| known == number) {
        let known = match (numbers().min(), numbers().max()) {
            (Some(first), Some(last)) => format!("the capture has flows {first} to {last}"),
            _ => "the capture has no TCP flow".to_owned(),
        };
        return Err(CommandError::Failed(format!(
            "--flow {number}: no such flow; {known} (run without --flow to list them)"
        )));
    }
    report.flows.retain(|flow| flow.number == number);
    Ok(())
}

fn read(args: &FlowsArgs) -> Result<Found, CommandError> {
    let began = Instant::now();
    let stall = u64::from(args.stall) * 1_000_000;
    let flows = Flows::new(Limits { stall, ..Limits::default() });
    let flows = Rc::new(RefCell::new(flows));
    let (source, path): (Box<dyn Read>, _) = match &args.file {
        Some(file) if file.as_os_str() == "-" => (Box::new(io::stdin().lock()), file.clone()),
        Some(file) => {
            let opened = File::open(file).map_err(|error| {
                let path = file.display();
                CommandError::Failed(format!(
                    "{path}: {error}; expected a capture file, or - for standard input"
                ))
            })?;
            (Box::new(opened), file.clone())
        }
        None => {
            let stall = args.stall;
            let draw = move |flows: &Flows| text::picture(&flows.report(), stall);
            let (live, path) = Live::open(args, &flows, draw)?;
            (Box::new(live), path)
        }
    };
    let mut untimed = 0;
    let damage = follow(source, &path, &flows, &mut untimed).err();
    // A backend that ends may do so in the middle of a packet, which is no damage.
    let cut = |e: &CaptureError| args.file.is_none() && matches!(e, CaptureError::Truncated { .. });
    let damage = damage.filter(|e| !cut(e));
    let report = flows.borrow().report();
    Ok(Found { source: path, report, untimed, logged: None, took: began.elapsed(), damage })
}

fn follow(
    source: Box<dyn Read>,
    path: &Path,
    flows: &RefCell<Flows>,
    untimed: &mut u64,
) -> Result<(), CaptureError> {
    let mut reader = CaptureReader::new(source, path)?;
    // An interface is described before its packets, so its name is taken once.
    let mut named = [false; NAMES_MAX];
    while let Some(record) = reader.next_record()? {
        let mut flows = flows.borrow_mut();
        flows.lost(record.lost());
        if let Some(named @ false) = named.get_mut(record.interface as usize) {
            *named = true;
            record.name.into_iter().for_each(|name| flows.name_point(record.interface, name));
        }
        let Some(time) = record.time else {
            *untimed += 1;
            continue;
        };
        let way = record.direction().map(|direction| match direction {
            Direction::Inbound => Way::Receive,
            Direction::Outbound => Way::Transmit,
        });
        let queue = record.queue().unwrap_or(0);
        let ring = Ring { interface: record.interface, queue, way };
        for event in record.comments().filter_map(Event::read) {
            flows.event(time, ring, event);
        }
        // A record without a packet is there for its comments.
        if record.length == 0 {
            continue;
        }
        let length = record.length as usize;
        let (head, point) = (record.frame, record.interface);
        let packet = Packet { time, head, length, point, ring };
        match record.comments().find_map(Merged::read) {
            Some(merged) => flows.merged(&packet, merged),
            None => flows.packet(&packet),
        }
    }
    Ok(())
}

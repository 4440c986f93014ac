//! `grantway bench guests`: the process that has all guests.

use super::args::GuestsArgs;
use super::crowd::Crowd;
use grantway_command::control::ReportSocket;
use grantway_command::control::nanoseconds;
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::process::pin;
use grantway_command::wait::Signals;
use grantway_embedded::raise_descriptor_limit;
use grantway_ports::uptime;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two looks for events while frames are sent.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Time that the process goes on polling after no ring had room.
const SPIN: Duration = Duration::from_micros(50);

/// Returns the path of the socket on which the process reports.
pub fn socket(dir: &Path) -> PathBuf {
    dir.join("guests.sock")
}

/// Runs all guests until a signal asks the process to end.
///
/// # Errors
///
/// A vif does not connect, the host ended, or a backend broke the protocol.
pub fn run(args: &GuestsArgs) -> Result<(), CommandError> {
    let signals = Signals::take()?;
    raise_descriptor_limit();
    if let Some(cpu) = args.cpu {
        pin(cpu)?;
    }
    // The socket is there before `ready`, so that the bench finds it.
    let path = socket(&args.host);
    let reports = ReportSocket::bind(&path)
        .map_err(|e| CommandError::Failed(format!("{}: {e}", path.display())))?;
    let mut crowd = Crowd::open(args)?;
    crowd.pass()?;
    crowd.wake_by(signals.descriptor())?;
    crowd.wake_by(reports.descriptor())?;
    output::line("ready")?;
    let active = usize::from(args.active);
    let mut looked = Instant::now();
    let mut idle_since = None;
    loop {
        // Bursts are sent as long as rings have room.
        let sent = crowd.load(active)?;
        let now = Instant::now();
        if sent > 0 {
            idle_since = None;
        }
        // Without room the process polls for a short time, and then sleeps until an event.
        let since = *idle_since.get_or_insert(now);
        let spins = active > 0 && now.duration_since(since) < SPIN;
        if spins && now.duration_since(looked) < LOOK_EVERY {
            continue;
        }
        // The vifs are asked for events before the process sleeps.
        let busy = spins || crowd.arm(active)?;
        crowd.look(busy.then_some(Duration::ZERO))?;
        looked = Instant::now();
        reports.serve(|| report(&mut crowd, args));
        if signals.came().is_some() {
            return crowd.close();
        }
    }
}

fn report(crowd: &mut Crowd, args: &GuestsArgs) -> Value {
    let (carried, answered) = crowd.carried();
    json!({
        "at_ns": nanoseconds(uptime()),
        "vifs": args.vifs,
        "active": args.active,
        "queues": args.queues,
        "attached_in_ns": nanoseconds(crowd.attached_in),
        "connected_in_ns": nanoseconds(crowd.connected_in),
        "answered": answered,
        "errors": carried.tx_errors,
        "received": carried.rx_packets,
    })
}

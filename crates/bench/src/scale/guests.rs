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

/// How often it looks up from sending.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long it goes on looking where no ring had room.
const SPIN: Duration = Duration::from_micros(50);

/// Where it tells how it stands.
pub fn socket(dir: &Path) -> PathBuf {
    dir.join("guests.sock")
}

/// Runs all guests until it is told to end.
///
/// # Errors
///
/// They do not connect, the host went away, or a backend broke the protocol.
pub fn run(args: &GuestsArgs) -> Result<(), CommandError> {
    let signals = Signals::take()?;
    raise_descriptor_limit();
    if let Some(cpu) = args.cpu {
        pin(cpu)?;
    }
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
        let sent = crowd.load(active)?;
        let now = Instant::now();
        if sent > 0 {
            idle_since = None;
        }
        let since = *idle_since.get_or_insert(now);
        let spins = active > 0 && now.duration_since(since) < SPIN;
        if spins && now.duration_since(looked) < LOOK_EVERY {
            continue;
        }
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

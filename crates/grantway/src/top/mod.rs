//! `grantway top` shows what running backends do now.
//!
//! [`sample`] is a backend's report, [`figures`] are the rates between two, and [`screen`] shows
//! them. A backend does no work for this command but to report.

mod figures;
pub mod sample;
mod screen;
#[cfg(test)]
mod tests;

use crate::report::reports_in;
use clap::Args;
use figures::Figures;
use grantway_command::args::seconds;
use grantway_command::error::CommandError;
use grantway_command::output;
use sample::Sample;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `grantway top`.
#[derive(Debug, Args)]
#[command(after_help = "\
The busiest vif is first. PPI and SPI are packets and slots per interrupt. PPN
and SPN are packets and slots per poll round that moved any. Bits are those of
layer 2 without FCS. The share of a worker includes the time that it spins; its
queues are in parentheses. The longest round is the longest time that a signal
or a command may wait for a worker. The control step is the one that mapped or
unmapped most pages for requests of guests. A vif with several queues has one
line per queue.

Example:
  grantway top
  grantway top --host /tmp/gw --once
  grantway top --once --json | jq '.\"backend-0\".vifs[].tx_pps'")]
pub struct TopArgs {
    /// Directory of the embedded host. Default: real Xen.
    #[arg(long, value_name = "DIR")]
    pub host: Option<PathBuf>,
    /// Directory of the sockets on Xen.
    #[arg(long, value_name = "DIR", default_value = grantway_command::place::RUN_FOLDER, conflicts_with = "host")]
    pub run_dir: PathBuf,
    /// Seconds between two updates.
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub interval: f64,
    /// Show one interval, then exit.
    #[arg(long)]
    pub once: bool,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
}

/// Shows the figures of all backends of the folder, until the program is interrupted.
///
/// # Errors
///
/// No backend runs in the folder, or standard output cannot be written.
pub fn run(args: &TopArgs) -> Result<(), CommandError> {
    let dir = args.host.as_ref().unwrap_or(&args.run_dir);
    let mut before = samples(dir)?;
    loop {
        std::thread::sleep(Duration::from_secs_f64(args.interval));
        let after = samples(dir)?;
        let figures: BTreeMap<_, _> = after
            .iter()
            .map(|(name, now)| (name, Figures::between(before.get(name).unwrap_or(now), now)))
            .collect();
        match args.json {
            true => output::line(json!(figures).to_string())?,
            false => {
                let parts = figures.iter().map(|(name, figures)| screen::show(name, figures));
                output::screen(&parts.collect::<Vec<_>>().join("\n"))?;
            }
        }
        if args.once {
            return Ok(());
        }
        before = after;
    }
}

fn samples(dir: &Path) -> Result<BTreeMap<String, Sample>, CommandError> {
    let reports = reports_in(dir)?;
    let backends = reports.into_iter().filter(|(name, _)| name.starts_with("backend-"));
    let samples: BTreeMap<_, _> = backends
        .filter_map(|(name, report)| Some((name, Sample::deserialize(report).ok()?)))
        .collect();
    if samples.is_empty() {
        return Err(CommandError::Failed(format!(
            "{}: no backend is running; start `grantway backend`, or give its --run-dir",
            dir.display()
        )));
    }
    Ok(samples)
}

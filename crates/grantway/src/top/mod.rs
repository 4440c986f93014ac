//! `grantway top` shows what running backends do now.
//!
//! [`figures`] are the rates between two reports of a backend, and [`screen`] makes text of them. A
//! backend does no work for this command but to report.

mod figures;
mod screen;
#[cfg(test)]
mod tests;

use crate::running::{FolderArgs, REMEDY, reports};
use crate::sample::Sample;
use crate::terminal::{SLICE, Step, Terminal, View};
use clap::Args;
use figures::{Figures, Order};
use grantway_command::args::seconds;
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::wait::Signals;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest time for which a terminal shows no rates yet.
const FIRST: Duration = Duration::from_millis(500);

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

Keys on a terminal: q quits, s sorts by packets, drops or name, p pauses, arrows
and Page Up and Down scroll.

Example:
  grantway top
  grantway top --host /tmp/gw --once
  grantway top --once --json | jq '.\"backend-0\".vifs[].tx_pps'")]
pub struct TopArgs {
    /// Directory of the sockets.
    #[command(flatten)]
    pub folder: FolderArgs,
    /// Time between two updates.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = seconds)]
    pub interval: f64,
    /// Show one interval, then exit.
    #[arg(long)]
    pub once: bool,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
}

/// Shows the figures of all backends of the folder, until the program is interrupted. On a terminal,
/// keys change what is shown.
///
/// # Errors
///
/// No backend runs in the folder, or standard output cannot be written.
pub fn run(args: &TopArgs) -> Result<(), CommandError> {
    let dir = args.folder.dir();
    let interval = Duration::from_secs_f64(args.interval);
    let mut before = samples(dir)?;
    if !args.once && !args.json && std::io::stdout().is_terminal() {
        return watch(dir, interval, before);
    }
    loop {
        std::thread::sleep(interval);
        let after = samples(dir)?;
        let figures = between(&before, &after);
        output::line(match args.json {
            true => json!(figures).to_string(),
            false => text(&figures),
        })?;
        if args.once {
            return Ok(());
        }
        before = after;
    }
}

/// Shows the figures on a terminal until a person has seen enough.
fn watch(
    dir: &Path,
    interval: Duration,
    mut before: BTreeMap<String, Sample>,
) -> Result<(), CommandError> {
    let signals = Signals::take()?;
    let mut terminal = Terminal::open("s sort  ")?;
    let (mut view, mut order) = (View::default(), Order::default());
    // The first figures come soon.
    let mut after = before.clone();
    let mut wait = interval.min(FIRST);
    loop {
        let figures = between(&before, &after);
        let sorted = |order| {
            let mut figures = figures.clone();
            figures.values_mut().for_each(|figures| figures.sort(order));
            text(&figures)
        };
        let end = Instant::now() + wait;
        let mut shown = sorted(order);
        terminal.draw(&view, &note(order), &shown)?;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() && !view.is_held {
                break;
            }
            if signals.came().is_some() {
                return Ok(());
            }
            let left = if view.is_held { SLICE } else { left.min(SLICE) };
            match terminal.key(&mut view, &shown, left)? {
                None => continue,
                Some(Step::Quit) => return Ok(()),
                Some(Step::Own('s')) => {
                    order = order.next();
                    view.restart();
                    shown = sorted(order);
                }
                Some(Step::Own(_) | Step::Stay) => {}
            }
            terminal.draw(&view, &note(order), &shown)?;
        }
        (before, after) = (after, samples(dir)?);
        wait = interval;
    }
}

/// Returns the words about an order in the last line of the screen.
fn note(order: Order) -> String {
    format!("by {}, ", order.name())
}

fn between(
    before: &BTreeMap<String, Sample>,
    after: &BTreeMap<String, Sample>,
) -> BTreeMap<String, Figures> {
    let of = |(name, now): (&String, &Sample)| {
        (name.clone(), Figures::between(before.get(name).unwrap_or(now), now))
    };
    after.iter().map(of).collect()
}

fn text(figures: &BTreeMap<String, Figures>) -> String {
    let parts = figures.iter().map(|(name, figures)| screen::show(name, figures));
    parts.collect::<Vec<_>>().join("\n")
}

fn samples(dir: &Path) -> Result<BTreeMap<String, Sample>, CommandError> {
    let backends = reports(dir)?.into_iter().filter(|(name, _)| name.starts_with("backend-"));
    let samples: BTreeMap<_, _> = backends
        .filter_map(|(name, report)| Some((name, Sample::deserialize(report).ok()?)))
        .collect();
    if samples.is_empty() {
        return Err(CommandError::Failed(format!(
            "{}: no backend is running; {REMEDY}",
            dir.display()
        )));
    }
    Ok(samples)
}

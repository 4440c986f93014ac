//! Rows of the paper on lists of packets, from end to end: from guests' rings to a guest's rings.

use crate::rings::{self, Case, Found, Load, RETPOLINES};
use crate::slices::Timing;
use grantway_command::error::CommandError;
use grantway_command::table::Table;
use serde::Serialize;

/// The paper's case, its Mbit/s of bytes before and after if it has them, its gain in percent by
/// patches 1 and 2 alone and by all patches, and our case.
type Row = (&'static str, Option<[f64; 2]>, [Option<f64>; 2], Case);

const ROWS: [Row; 5] = {
    const fn case(name: &'static str, senders: u16, queues: u16, load: Load) -> Case {
        Case { name, senders, queues, load }
    }
    [
        (
            "four streams, several receive queues",
            Some([6.91, 8.46]),
            [Some(10.0), Some(22.5)],
            case("four senders to one receive queue", 4, 1, Load::Nothing),
        ),
        (
            "the same",
            Some([6.91, 8.46]),
            [Some(10.0), Some(22.5)],
            case("one sender, four queues to four", 1, 4, Load::Nothing),
        ),
        (
            "one receive queue",
            None,
            [None, Some(4.0)],
            case("one sender, one queue to one", 1, 1, Load::Nothing),
        ),
        (
            "one iptables rule that matches nothing",
            Some([5.02, 6.78]),
            [None, Some(35.1)],
            case("four senders, one rule", 4, 1, Load::OneRule),
        ),
        (
            "flower filters",
            Some([6.83, 8.86]),
            [None, Some(29.7)],
            case("four senders, eight masks", 4, 1, Load::Flower),
        ),
    ]
};

/// Number of cases.
pub const CASES: usize = ROWS.len();

/// A row of the paper, and ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rings {
    /// The paper's case.
    pub case: &'static str,
    /// Our case: four streams in each.
    pub ours: &'static str,
    /// The paper's Mpps before and after, if it has them.
    pub paper_mpps: Option<[f64; 2]>,
    /// The paper's gain in percent, by patches 1 and 2 alone and by all patches, if it has them.
    pub paper_percent: [Option<f64>; 2],
    /// True if indirect calls of our build are retpolines.
    pub retpolines: bool,
    /// Our figures, in the order one by one, lists at the entry, lists in each layer, and Grantway.
    #[serde(flatten)]
    pub found: Found,
}

/// Heading of [`table`].
pub const HEADING: &str = "Rings to rings: Mpps one by one, and gains of lists";

/// Returns the conditions of [`table`], and what its columns are.
pub fn note() -> String {
    let retpolines = if RETPOLINES { "with" } else { "without" };
    format!(
        "The paper: netperf UDP_STREAM of 1 byte, one processor, with retpolines.\n\
         Ours: {retpolines} retpolines, four streams of UDP of 1 byte, persistent grants,\n\
         embedded host; one thread serves, another one has all guests.\n\
         One by one: a plain program takes a packet from a ring, calls a function for\n\
         each step, and puts the packet into the receiver's ring. Entry (patches 1 and\n\
         2) and layers (all patches): the same functions over lists. Grantway: its\n\
         backend, which also counts flows and keeps its journal.\n\
         Guests wait: share of the guests' looks at their rings that found nothing to\n\
         do, one by one / entry / layers / Grantway. Near 0, the guests are the limit."
    )
}

/// Measures our cases. Calls `progress` with number, name and part of a case.
///
/// # Errors
///
/// A part of a set-up failed.
pub fn measure(
    timing: Timing,
    progress: &mut dyn FnMut(usize, &str, f64),
) -> Result<Vec<Rings>, CommandError> {
    let row = |(number, (case, mbits, paper_percent, ours)): (usize, Row)| {
        let mut show = |part| progress(number, ours.name, part);
        let found = rings::measure(&ours, timing, &mut show)?;
        // A packet has one byte.
        let paper_mpps = mbits.map(|mbits| mbits.map(|mbits| mbits / 8.0));
        let (ours, retpolines) = (ours.name, RETPOLINES);
        Ok(Rings { case, ours, paper_mpps, paper_percent, retpolines, found })
    };
    ROWS.into_iter().enumerate().map(row).collect()
}

/// Returns the table of these rows.
pub fn table(rows: &[Rings]) -> Table {
    let headings = [
        "paper",
        "Mpps#",
        "entry#",
        "all#",
        "ours",
        "one by one#",
        "entry#",
        "layers#",
        "Grantway#",
        "guests wait %#",
        "state ns",
        "n#",
    ];
    let mut table = Table::new(&headings);
    for row in rows {
        let paper = row.paper_mpps.map(|[one, list]| format!("{one:.3} > {list:.3}"));
        let percent = |at: usize| {
            let factor = row.paper_percent[at].map(|percent| 1.0 + percent / 100.0);
            factor.map_or_else(dash, |factor| format!("{factor:.2}"))
        };
        let gain = |at: usize| row.found.gains[at].map_or_else(dash, |ratio| ratio.text());
        table.row([
            row.case.to_owned(),
            paper.unwrap_or_else(dash),
            percent(0),
            percent(1),
            row.ours.to_owned(),
            format!("{:.2}", row.found.mpps[0]),
            gain(1),
            gain(2),
            gain(3),
            row.found.guests_wait.map(|share| format!("{:.0}", 100.0 * share)).join(" / "),
            row.found.machine.words(),
            row.found.n.to_string(),
        ]);
    }
    table
}

fn dash() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_gains_are_those_of_printed_rates() {
        for (case, mbits, [_, percent], _) in ROWS {
            if let Some([one, list]) = mbits {
                let gain: f64 = 100.0 * (list / one - 1.0);
                assert!((gain - percent.unwrap()).abs() < 0.15, "{case}: {gain}");
            }
        }
    }
}

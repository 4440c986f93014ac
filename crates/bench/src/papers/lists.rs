//! Rows of the paper on lists of packets, and our graph alone: fed frame by frame, and in lists.

use crate::slices::Timing;
use crate::stats::Ratio;
use crate::vector::lists_against_one;
use grantway_command::error::CommandError;
use grantway_command::table::Table;
use serde::Serialize;

/// Number of the paper.
pub const PAPER: &str = "002";
/// Heading of [`table`].
pub const HEADING: &str = "The graph alone: Mpps one by one and in lists of 64, in one thread, \
                           without rings and receiver; one by one is the same graph, which pays \
                           its start for each frame";

/// A case of the paper: its name, Mbit/s of bytes one by one and in lists if the paper has them,
/// the gain in percent, and the name of our case.
type Case = (&'static str, Option<[f64; 2]>, f64, &'static str);

const ROWS: [Case; 4] = [
    ("four streams, several receive queues", Some([6.91, 8.46]), 22.5, "four streams"),
    ("one iptables rule that matches nothing", Some([5.02, 6.78]), 35.1, "one firewall rule"),
    ("flower filters", Some([6.83, 8.86]), 29.7, "flower filters"),
    ("one receive queue (ours: one stream)", None, 4.0, "one stream"),
];

/// Number of cases.
pub const CASES: usize = ROWS.len();

/// A row of the paper, and ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lists {
    /// The paper's case.
    pub case: &'static str,
    /// The paper's Mpps, one by one and in lists, if it has them.
    pub paper_mpps: Option<[f64; 2]>,
    /// The paper's gain in percent.
    pub paper_percent: f64,
    /// Our Mpps, one by one and in lists of 64.
    pub mpps: [f64; 2],
    /// Ratio of our rate in lists to one by one; `None` if no pair of slices was in one state.
    pub gain: Option<Ratio>,
    /// Number of slices.
    pub n: usize,
}

/// Measures our cases. Calls `progress` with number, name and part of a case.
///
/// # Errors
///
/// The rules of a case cannot be compiled.
pub fn measure(
    timing: Timing,
    progress: &mut dyn FnMut(usize, &str, f64),
) -> Result<Vec<Lists>, CommandError> {
    let row = |(number, (case, mbits, percent, ours)): (usize, Case)| {
        let found = lists_against_one(ours, 64, timing, &mut |part| progress(number, ours, part))?;
        Ok(Lists {
            case,
            // A packet has one byte.
            paper_mpps: mbits.map(|mbits| mbits.map(|mbits| mbits / 8.0)),
            paper_percent: percent,
            mpps: found.mpps,
            gain: found.gain,
            n: found.n,
        })
    };
    ROWS.into_iter().enumerate().map(row).collect()
}

/// Returns the table of these rows.
pub fn table(rows: &[Lists]) -> Table {
    let headings = ["case", "paper#", "gain#", "ours#", "gain#", "n#"];
    let mut table = Table::new(&headings);
    for row in rows {
        let paper = row.paper_mpps.map(|[one, list]| format!("{one:.3} > {list:.3}"));
        table.row([
            row.case.to_owned(),
            paper.unwrap_or_else(|| "-".to_owned()),
            format!("{:.2}", 1.0 + row.paper_percent / 100.0),
            format!("{:.1} > {:.1}", row.mpps[0], row.mpps[1]),
            row.gain.map_or("-".to_owned(), |gain| gain.text()),
            row.n.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_gains_are_those_of_printed_rates() {
        for (case, mbits, percent, _) in ROWS {
            if let Some([one, list]) = mbits {
                let gain: f64 = 100.0 * (list / one - 1.0);
                assert!((gain - percent).abs() < 0.15, "{case}: {gain}");
            }
        }
    }
}

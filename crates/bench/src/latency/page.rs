//! The report: the rows as a page.

use super::{COLUMNS, Row, place};
use crate::document;
use crate::fill::{Lines, conditions, heading, slices};
use grantway_command::report::{Report, Scale, Section};

const DISTRIBUTION: Lines<Row> = Lines {
    title: "Latency",
    x: ("share of packets with at most this latency", Scale::Percentile),
    // The scale is logarithmic, since a single wait for a processor would flatten all else.
    y: ("microseconds", Scale::Log),
    common: &[|row| format!("{} bytes", row.size), |row| format!("{} per second", row.offered_pps)],
    names: [|row| row.policy.clone(), |row| row.mode.clone()],
    add: |row, line| {
        let points =
            row.curve.iter().map(|&(percent, nanos)| (percent / 100.0, nanos as f64 / 1e3));
        line.points.extend(points);
    },
};

/// Returns the page of these rows.
pub fn of(rows: &[Row]) -> Report {
    let own = [("n", slices(rows.iter().map(|row| row.n))), ("set-up", place(rows))];
    let ways = document::different(rows, |row| row.direction.words().to_owned());
    Report {
        title: "Grantway: packet latency by buffer policy".to_owned(),
        conditions: conditions(rows, &COLUMNS, &own),
        sections: ways.iter().map(|words| section(rows, words)).collect(),
        ..Report::default()
    }
}

fn section(rows: &[Row], words: &str) -> Section {
    let rows: Vec<Row> =
        rows.iter().filter(|row| row.direction.words() == words).cloned().collect();
    Section {
        heading: heading(words),
        note: "Times count from when a packet was due, not from when there was space for it; they \
               have two significant digits. The sender never sleeps; the other ends wait as the \
               mode says. Times of the embedded host are not times of Xen."
            .to_owned(),
        table: Some(document::table(&rows, &COLUMNS)),
        plots: DISTRIBUTION.plots(&rows),
        ..Section::default()
    }
}

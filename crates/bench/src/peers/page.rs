//! The report: the rows as a page.

use super::{COLUMNS, NOTE, Row, place};
use crate::document;
use crate::fill::{Lines, conditions, has_width, heading, slices};
use crate::rig::Direction;
use grantway_command::report::{Report, Scale, Section, Series};
use grantway_command::table::Table;

const OVER_SIZE: Lines<Row> = Lines {
    title: "Packets per second over frame size",
    x: ("frame size (bytes, without FCS)", Scale::Log),
    y: ("Mpps", Scale::Log),
    common: &[],
    names: [contender, nothing],
    add: add_rate,
};

const TIMES: Lines<Row> = Lines {
    title: "Mean round trip over frame size",
    x: ("frame size (bytes, without FCS)", Scale::Log),
    y: ("nanoseconds", Scale::Log),
    common: &[],
    names: [contender, nothing],
    add: |row, line| line.points.extend(row.mean_ns.map(|ns| (row.size as f64, ns))),
};

fn contender(row: &Row) -> String {
    row.contender.clone()
}

fn nothing(_: &Row) -> String {
    String::new()
}

fn add_rate(row: &Row, line: &mut Series) {
    line.points.push((row.size as f64, row.mpps.median));
    line.intervals.push((row.mpps.low, row.mpps.high));
}

/// Returns the page of these rows.
pub fn of(rows: &[Row]) -> Report {
    let own = [("n", slices(rows.iter().map(|row| row.n))), ("set-up", place(rows))];
    let ways = document::different(rows, |row| row.direction.words().to_owned());
    let mut sections: Vec<_> = ways.iter().map(|words| section(rows, words)).collect();
    sections.push(commands(rows));
    Report {
        title: "Grantway and its peers".to_owned(),
        conditions: conditions(rows, &COLUMNS, &own),
        sections,
        ..Report::default()
    }
}

fn section(rows: &[Row], words: &str) -> Section {
    let mut rows: Vec<Row> =
        rows.iter().filter(|row| row.direction.words() == words).cloned().collect();
    let table = document::table(&rows, &COLUMNS);
    rows.sort_by_key(|row| row.size);
    let is_round = rows.iter().any(|row| row.direction == Direction::RoundTrip);
    let (lines, what) = match is_round {
        true => (
            &TIMES,
            "One packet is in flight, and both ends return it at once: Mpps are round trips, and \
             their mean time is one divided by that. testpmd does not time packets; Grantway times \
             one in 16 (p50 and p99). ",
        ),
        false => (&OVER_SIZE, ""),
    };
    let mut plots = lines.plots(&rows);
    plots.retain(has_width);
    Section {
        heading: heading(words),
        note: format!("{what}Figures: {NOTE} of slices of one round, above 1 Grantway is faster."),
        table: Some(table),
        plots,
        ..Section::default()
    }
}

/// Returns the section with the command lines of all rows.
fn commands(rows: &[Row]) -> Section {
    let mut table = Table::new(&["direction", "bytes#", "contender", "end", "command line"]);
    for row in rows {
        for (end, line) in ["backend", "guest"].into_iter().zip(&row.commands) {
            let size = row.size.to_string();
            table.row([row.direction.words(), &size, &row.contender, end, line]);
        }
    }
    Section {
        heading: "Command lines".to_owned(),
        note: "DIR is a directory of the bench. Commands at the prompt of testpmd: start (for \
               round trips: start tx_first 1), and show port stats 0 for the packets that arrived. \
               Grantway also needs grantway host --dir DIR, which is idle."
            .to_owned(),
        table: Some(table),
        plots: Vec::new(),
        ..Section::default()
    }
}

//! The report: the rows as a page.

use super::{COLUMNS, Row, place};
use crate::document;
use crate::fill::{Lines, conditions, heading, slices};
use crate::rig::Direction;
use grantway_command::report::{Report, Scale, Section};

const OVER_QUEUES: Lines<Row> = Lines {
    title: "TCP over queues",
    x: ("queues", Scale::Linear),
    y: ("payload Gbit/s", Scale::Linear),
    common: &[],
    names: [line, |row| row.mode.clone()],
    add: |row, line| {
        line.points.push((row.queues.into(), row.gbps.median));
        line.intervals.push((row.gbps.low, row.gbps.high));
    },
};

/// Returns the name of a line: the policy, and the switches that were off.
fn line(row: &Row) -> String {
    let off = [("gso", &row.gso), ("merge", &row.merge)].into_iter().filter(|(_, is)| *is == "off");
    off.fold(row.policy.clone(), |name, (what, is)| format!("{name}, {what} {is}"))
}

/// Returns the page of these rows.
pub fn of(rows: &[Row]) -> Report {
    let Some(first) = rows.first() else { return Report::default() };
    let own = [
        ("burst", "as the kernel's TCP sends".to_owned()),
        ("n", format!("{}, 1 s each", slices(rows.iter().map(|row| row.n)))),
        ("set-up", place(&first.host)),
    ];
    let sections = [Direction::Tx, Direction::Rx].map(|direction| section(rows, direction));
    Report {
        title: "Grantway: TCP through a vif by buffer policy".to_owned(),
        conditions: conditions(rows, &COLUMNS, &own),
        sections: sections.to_vec(),
        ..Report::default()
    }
}

fn section(rows: &[Row], direction: Direction) -> Section {
    let mut rows: Vec<Row> =
        rows.iter().filter(|row| row.direction == direction).cloned().collect();
    let reference = rows.first().map_or("", |row| row.reference.as_str());
    let note = format!(
        "Medians of slices with 95 % intervals; ratio: to {reference}, the median of pairs of \
         slices of one round. Grant operations, copied bytes, notifications and wake-ups are \
         totals of both ends per packet that the backend moved. Ratios of the embedded host are \
         not ratios of Xen."
    );
    let table = document::table(&rows, &COLUMNS);
    rows.sort_by_key(|row| row.queues);
    Section {
        heading: heading(direction.words()),
        note,
        table: Some(table),
        plots: OVER_QUEUES.plots(&rows),
        ..Section::default()
    }
}

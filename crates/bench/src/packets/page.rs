//! The report: the rows as a page.

use super::{COLUMNS, Row, place};
use crate::document;
use crate::fill::{Lines, conditions, has_width, heading, slices};
use grantway_command::args::Api;
use grantway_command::report::{Plot, Report, Scale, Section};

const OVER_SIZE: Lines<Row> = Lines {
    title: "Packets per second over frame size",
    x: ("frame size (bytes, without FCS)", Scale::Log),
    y: ("Mpps", Scale::Log),
    common: &[burst, queues, offered],
    names: [policy, way],
    add: |row, line| line.points.push((row.size as f64, row.mpps)),
};

const OVER_BURST: Lines<Row> = Lines {
    title: "Packets per second over burst",
    x: ("burst (frames that the generator sends at a time)", Scale::Log),
    y: ("Mpps", Scale::Log),
    common: &[size, queues, offered],
    names: [policy, way],
    add: |row, line| line.points.push((row.burst.into(), row.mpps)),
};

const WAKE_UPS: Lines<Row> = Lines {
    title: "Wake-ups over offered load",
    x: ("packets per second, offered", Scale::Log),
    // The axis begins at zero, since ends that never sleep have no wake-ups.
    y: ("wake-ups per second, all ends", Scale::Linear),
    common: &[size, burst, queues],
    names: [policy, way],
    add: |row, line| {
        line.points.extend(row.offered_pps.map(|rate| (rate as f64, row.wakeups_per_second)));
    },
};

fn policy(row: &Row) -> String {
    row.policy.clone()
}

/// Returns the wait mode of the ends, and how frames cross if they are not copied.
fn way(row: &Row) -> String {
    match row.api {
        Api::Copy => row.mode.clone(),
        Api::Lend => format!("{}, lend", row.mode),
    }
}

fn size(row: &Row) -> String {
    format!("{} bytes", row.size)
}

fn burst(row: &Row) -> String {
    format!("burst {}", row.burst)
}

fn queues(row: &Row) -> String {
    format!("queues: {}", row.queues)
}

fn offered(row: &Row) -> String {
    row.offered_pps.map(|rate| format!("{rate} per second offered")).unwrap_or_default()
}

/// Returns the page of these rows.
pub fn of(rows: &[Row]) -> Report {
    let own = [
        ("n", slices(rows.iter().map(|row| row.n))),
        ("seconds", seconds(rows)),
        ("set-up", place(rows)),
    ];
    let ways = document::different(rows, |row| row.direction.words().to_owned());
    Report {
        title: "Grantway: packets per second by buffer policy".to_owned(),
        conditions: conditions(rows, &COLUMNS, &own),
        sections: ways.iter().map(|words| section(rows, words)).collect(),
        ..Report::default()
    }
}

/// Returns the shortest and the longest measured time of a row in words, without dropped slices.
fn seconds(rows: &[Row]) -> String {
    let bound = |best: fn(f64, f64) -> f64| rows.iter().map(|row| row.seconds).reduce(best);
    match (bound(f64::min), bound(f64::max)) {
        (Some(least), Some(most)) => format!("{least:.2} to {most:.2} per row"),
        _ => String::new(),
    }
}

fn section(rows: &[Row], words: &str) -> Section {
    let mut rows: Vec<Row> =
        rows.iter().filter(|row| row.direction.words() == words).cloned().collect();
    let table = document::table(&rows, &COLUMNS);
    let ratio = match rows.iter().find(|row| row.ratio.is_some()) {
        Some(row) => format!(
            "Ratio: to {}, median of pairs of slices of one round, with the 95 % interval in \
             brackets. ",
            row.reference
        ),
        None => String::new(),
    };
    Section {
        heading: heading(words),
        note: format!(
            "{ratio}Copies to wake-ups are totals of all ends per packet. PPN: packets per poll \
             round that moved any. Ratios of the embedded host are not ratios of Xen."
        ),
        table: Some(table),
        plots: plots(&mut rows),
        ..Section::default()
    }
}

/// Returns the plots in which a line has more than one point.
fn plots(rows: &mut [Row]) -> Vec<Plot> {
    let mut plots = Vec::new();
    // Lines go from left to right, in whatever order the points were measured.
    rows.sort_by_key(|row| row.size);
    plots.extend(OVER_SIZE.plots(rows));
    rows.sort_by_key(|row| row.burst);
    plots.extend(OVER_BURST.plots(rows));
    rows.sort_by_key(|row| row.offered_pps);
    plots.extend(WAKE_UPS.plots(rows));
    plots.retain(has_width);
    plots
}

//! The report: what was measured as a page.

use super::{COLUMNS, Row, place};
use crate::bench::document;
use crate::bench::report::{Axis, Plot, Report, Scale, Section, Series, of_this_run};
use crate::bench::rig::Direction;
use std::collections::BTreeSet;

/// The page of these rows.
pub fn of(rows: &[Row]) -> Report {
    let Some(first) = rows.first() else { return Report::default() };
    let all = |cell: fn(&Row) -> String| -> String {
        let values: BTreeSet<String> = rows.iter().map(cell).collect();
        values.into_iter().collect::<Vec<_>>().join(", ")
    };
    let [least, most] = [rows.iter().map(|row| row.n).min(), rows.iter().map(|row| row.n).max()];
    let [least, most] = [least, most].map(Option::unwrap_or_default);
    let conditions = [
        ("host", first.host.clone()),
        ("state", all(|row| row.state.as_str().to_owned())),
        ("mode", all(|row| row.mode.clone())),
        ("flows", all(|row| row.flows.to_string())),
        ("burst", "as the kernel's TCP sends".to_owned()),
        ("n", format!("{least} to {most} slices of 1 s a row")),
        ("processes", place(&first.host)),
    ];
    let conditions = conditions.map(|(name, value)| (name.to_owned(), value));
    let sections = [Direction::Tx, Direction::Rx].map(|direction| section(rows, direction));
    Report {
        title: "Grantway: TCP through a vif, by buffer policy".to_owned(),
        conditions: conditions.into_iter().chain(of_this_run()).collect(),
        sections: sections.to_vec(),
    }
}

fn section(rows: &[Row], direction: Direction) -> Section {
    let rows: Vec<Row> = rows.iter().filter(|row| row.direction == direction).cloned().collect();
    let reference = rows.first().map_or("", |row| row.reference.as_str());
    let words = direction.words();
    let heading = words.chars().take(1).flat_map(char::to_uppercase).chain(words.chars().skip(1));
    Section {
        heading: heading.collect(),
        note: format!(
            "Medians of slices with 95 % intervals; ratio: to {reference}, the median of pairs of \
             slices of one round. Grant operations, bytes copied, notifications and wake-ups are \
             those of both ends for each packet that the backend moved. The embedded host's \
             ratios are not Xen's."
        ),
        table: Some(document::table(&rows, &COLUMNS)),
        plot: Some(plot(&rows, words)),
    }
}

fn plot(rows: &[Row], words: &str) -> Plot {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        if !series.iter().any(|known| known.name == row.policy) {
            series.push(Series { name: row.policy.clone(), ..Series::default() });
        }
        if let Some(line) = series.iter_mut().find(|known| known.name == row.policy) {
            line.points.push((row.queues.into(), row.gbps.median));
            line.intervals.push((row.gbps.low, row.gbps.high));
        }
    }
    Plot {
        title: format!("TCP over queues, {words}"),
        x: Axis { label: "queues".to_owned(), scale: Scale::Linear },
        y: Axis { label: "Gbit/s of payload".to_owned(), scale: Scale::Linear },
        series,
    }
}

//! The report: the papers' tables beside our figures, as a page.

use super::{COLUMNS, Row, WIRE, has_wire, place, tables, wire};
use crate::document;
use crate::fill::{conditions, has_width, slices};
use grantway_command::args::WaitModeArg;
use grantway_command::report::{Axis, Plot, Report, Scale, Section, Series};

/// Returns the page of these rows.
pub fn of(rows: &[Row]) -> Report {
    let bursts = document::different(rows, |row| row.burst.to_string());
    let own = [
        ("burst", bursts.join(", ")),
        ("mode", WaitModeArg::Adaptive.name().to_owned()),
        ("n", slices(rows.iter().map(|row| row.n))),
        ("set-up", place(rows)),
    ];
    let mut sections: Vec<Section> = tables(rows).filter_map(section).collect();
    if has_wire(rows) {
        sections.push(Section {
            heading: format!("Seed 004: {WIRE}"),
            table: Some(wire()),
            ..Section::default()
        });
    }
    Report {
        title: "Grantway: the papers' tables beside ours".to_owned(),
        conditions: conditions(rows, &COLUMNS, &own),
        sections,
        ..Report::default()
    }
}

fn section(rows: &[Row]) -> Option<Section> {
    let first = rows.first()?;
    Some(Section {
        heading: format!("Seed {}, {}: {}", first.seed, first.unit.as_str(), first.conditions),
        note: "The paper's figures before and after, on its hardware and on Xen, and ours on the \
               embedded host. The factors are to be compared with care, the figures not at all."
            .to_owned(),
        table: Some(document::table(rows, &COLUMNS)),
        plots: factors(rows),
        ..Section::default()
    })
}

/// Returns a plot of the factors over queues for each direction that has several numbers of queues.
/// Figures are not drawn, since a reader would compare figures of two machines on one axis.
fn factors(rows: &[Row]) -> Vec<Plot> {
    let ways = document::different(rows, |row| row.direction.words().to_owned());
    let plots = ways.iter().map(|words| {
        let (mut paper, mut ours) = (line("paper"), line("ours"));
        for row in rows.iter().filter(|row| row.direction.words() == words) {
            let queues = row.queues.into();
            paper.points.push((queues, row.seed_factor));
            if let Some(factor) = row.factor {
                ours.points.push((queues, factor.median));
                ours.intervals.push((factor.low, factor.high));
            }
        }
        Plot {
            title: format!("Factor over queues, {words}"),
            x: Axis { label: "queues".to_owned(), scale: Scale::Linear },
            y: Axis { label: "factor (after / before)".to_owned(), scale: Scale::Linear },
            series: vec![paper, ours],
        }
    });
    plots.filter(has_width).collect()
}

fn line(name: &str) -> Series {
    Series { name: name.to_owned(), ..Series::default() }
}

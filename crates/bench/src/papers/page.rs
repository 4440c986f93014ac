//! The report: the papers' tables beside our figures, as a page.

use super::{
    COLUMNS, Findings, Row, WIRE, apart, batches, has_wire, heading, lists, place, rings, tables,
    tcp, wire,
};
use crate::document;
use crate::fill::{conditions, has_width, slices};
use grantway_command::report::{Axis, Plot, Report, Scale, Section, Series};
use grantway_command::table::Table;

/// Returns the page of these findings.
pub fn of(findings: &Findings) -> Report {
    let rows = &findings.rows;
    let own = [
        ("burst", document::different(rows, |row| row.burst.to_string()).join(", ")),
        ("mode", document::different(rows, |row| row.mode.clone()).join(", ")),
        ("n", slices(rows.iter().map(|row| row.n))),
        ("set-up", place(rows)),
    ];
    let mut sections = Vec::new();
    for paper in &findings.papers {
        let about = |text: &str| format!("Paper {}, {text}", paper.number);
        let plain = |heading: &str, table: Table| Section {
            heading: about(heading),
            table: Some(table),
            ..Section::default()
        };
        for rows in tables(rows).filter(|rows| rows[0].paper == paper.number) {
            sections.extend(section(rows));
            sections.extend(batches::table(rows).map(|table| plain(batches::HEADING, table)));
        }
        let tcp = findings.tcp_of(paper);
        if !tcp.is_empty() {
            let section = plain(tcp::HEADING, tcp::table(&tcp));
            sections.push(Section { note: tcp::NOTE.to_owned(), ..section });
        }
        if paper.number == lists::PAPER && !findings.rings.is_empty() {
            let section = plain(rings::HEADING, rings::table(&findings.rings));
            sections.push(Section { note: rings::note(), ..section });
        }
        if paper.number == lists::PAPER && !findings.lists.is_empty() {
            sections.push(plain(lists::HEADING, lists::table(&findings.lists)));
        }
        if has_wire(&[paper]) {
            sections.push(plain(WIRE, wire()));
        }
        let rest: Vec<_> = findings.apart.iter().filter(|row| row.paper == paper.number).collect();
        if !rest.is_empty() {
            sections.push(plain(apart::HEADING, apart::table(&rest)));
        }
    }
    let papers: Vec<_> = findings.papers.iter().map(|paper| paper.words()).collect();
    sections.insert(
        0,
        Section { heading: "Papers".to_owned(), note: papers.join(". "), ..Section::default() },
    );
    Report {
        title: "Grantway: tables of the papers and ours".to_owned(),
        conditions: conditions(rows, &COLUMNS, &own),
        sections,
        ..Report::default()
    }
}

fn section(rows: &[Row]) -> Option<Section> {
    let first = rows.first()?;
    Some(Section {
        heading: format!("Paper {}, {}", first.paper, heading(first)),
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
            paper.points.extend(row.paper_factor.map(|factor| (queues, factor)));
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

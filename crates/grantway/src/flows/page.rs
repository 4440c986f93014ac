//! Flows as a page: tables, and plots that a script of the page draws.

use super::text;
use grantway_command::report::{Live, Report as Page, Section, of_this_run};
use grantway_command::table::Table;
use grantway_flows::report::{FlowReport, LinesReport, Report};
use serde_json::{Value, json};
use std::path::Path;

/// Most flows that are drawn: the largest ones.
const DRAWN: usize = 24;
/// Most rows of a table.
const ROWS: usize = 500;

/// Returns the page of a report.
pub(super) fn of(report: &Report, file: &Path, stall: u32) -> Page {
    let drawn = &report.flows[..report.flows.len().min(DRAWN)];
    let mut conditions = vec![
        ("capture".to_owned(), file.display().to_string()),
        ("packets".to_owned(), report.all.packets.to_string()),
        ("seconds".to_owned(), format!("{:.3}", report.seconds)),
        ("shortest stall".to_owned(), format!("{stall} ms")),
    ];
    conditions.extend(of_this_run());
    let mut sections = tables(report, stall).to_vec();
    sections.extend(drawn.iter().map(section));
    let data: Vec<_> = drawn.iter().map(flow).collect();
    Page {
        title: "Grantway: TCP flows and their stalls".to_owned(),
        conditions,
        sections,
        live: Some(Live {
            style: include_str!("page.css"),
            script: include_str!("page.js"),
            data: Value::Array(data).to_string(),
        }),
    }
}

/// Returns a section with all flows, and one with all stalls.
fn tables(report: &Report, stall: u32) -> [Section; 2] {
    let (all, stalls) = text::stalls(report, ROWS);
    let note = match all {
        0 => format!("No stalls of {stall} ms or more."),
        all if all > stalls.rows().len() as u64 => {
            format!("{all} stalls of {stall} ms or more; this table shows some of them.")
        }
        _ => String::new(),
    };
    let rows = &report.flows[..report.flows.len().min(ROWS)];
    let table = |table: Table| Some(table).filter(|table| !table.rows().is_empty());
    let all = table(text::table(rows));
    [
        Section { heading: "All flows".to_owned(), table: all, ..Section::default() },
        Section { heading: "Stalls".to_owned(), note, table: table(stalls), ..Section::default() },
    ]
}

fn section(flow: &FlowReport) -> Section {
    let sums = flow
        .stall_sums
        .iter()
        .map(|sum| format!("{} {} ({:.3} s)", sum.count, sum.cause.name(), sum.seconds));
    let sums: Vec<_> = sums.collect();
    let stalls = match sums.is_empty() {
        true => "no stalls".to_owned(),
        false => format!("stalls: {}", sums.join(", ")),
    };
    let main = &flow.directions[flow.main()];
    let at = flow.point_name.as_ref().map_or_else(String::new, |name| format!(" at {name}"));
    let trips = main.rtt.map_or_else(String::new, |trip| {
        format!("round trips {:.3} to {:.3} ms, ", trip.min_ms, trip.max_ms)
    });
    Section {
        heading: format!("Flow {}{at}: {} > {}", flow.number, flow.client, flow.server),
        note: format!("{trips}retransmissions: {}, {stalls}.", main.retransmissions),
        place: Some(flow.number.to_string()),
        ..Section::default()
    }
}

/// Returns the data of a flow for the script.
fn flow(flow: &FlowReport) -> Value {
    let stalls = flow.stalls.iter().map(|stall| {
        json!({
            "at": micro(stall.at_s), "for": micro(stall.seconds), "cause": stall.cause,
            "side": stall.direction, "ended": stall.ended,
        })
    });
    let [client, server] = &flow.directions;
    json!({
        "number": flow.number,
        "names": [text::name(flow, usize::MAX), format!("{} > {}", flow.server, flow.client)],
        "from": micro(flow.start_s),
        "to": micro(flow.start_s + flow.seconds),
        "main": flow.main(),
        "stalls": stalls.collect::<Vec<_>>(),
        "sides": [lines(&client.lines), lines(&server.lines)],
    })
}

fn lines(lines: &LinesReport) -> Value {
    let points = |points: &[(f64, f64, f64)]| -> Vec<Value> {
        let point = |(time, min, max): &(f64, f64, f64)| {
            let (time, min, max) = (micro(*time), micro(*min), micro(*max));
            if min == max { json!([time, min]) } else { json!([time, min, max]) }
        };
        points.iter().map(point).collect()
    };
    let (from, width, rates) = &lines.throughput;
    json!({
        "sent": points(&lines.sent), "again": points(&lines.again), "acked": points(&lines.acked),
        "rtt": points(&lines.rtt), "flight": points(&lines.in_flight),
        "window": points(&lines.window),
        "rate": {
            "from": micro(*from), "width": width,
            "values": rates.iter().map(|rate| micro(*rate)).collect::<Vec<_>>(),
        },
    })
}

/// Rounds to six decimal places, which are more than a screen shows.
fn micro(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

//! Flows as text, within 80 columns.

use super::{FlowsArgs, Found};
use grantway_command::report::number;
use grantway_command::table::Table;
use grantway_flows::report::{DirectionReport, FlowReport, Report, StallReport};
use grantway_flows::stack::StackReport;
use std::fmt::Write;

/// Columns of a line.
const LINE: usize = 80;
/// Columns of a table's line without numbers and names of flows.
const OTHERS: usize = 40;
/// Most letters of the interface of a flow: as many as Linux gives a name.
const PLACE: usize = 15;
/// Most stalls that are listed.
const STALLS: usize = 50;

/// Returns the whole printed text.
pub(super) fn of(found: &Found, args: &FlowsArgs) -> String {
    let report = &found.report;
    let mut out = summary(found);
    if args.flow.is_some() {
        report.flows.iter().for_each(|flow| out += &details(flow));
    } else if !report.flows.is_empty() {
        // Writing to a string cannot fail, here and below.
        let _ = write!(out, "\n{}", table(&report.flows));
    }
    let least = args.stall;
    out += &match stalls(report, STALLS) {
        (0, _) if report.flows.is_empty() => String::new(),
        (0, _) => format!("\nNo stalls of {least} ms or more.\n"),
        (all, table) => {
            let shown = table.rows().len() as u64;
            let rest = match all - shown {
                0 => String::new(),
                rest => format!(
                    "{rest} more; --flow N and --json show the longest stalls of each \
                                 flow\n"
                ),
            };
            format!("\nStalls of {least} ms or more:\n{table}{rest}")
        }
    };
    if args.stats {
        let (packets, took) = (report.all.packets, found.took.as_secs_f64());
        let rate = packets as f64 / took.max(1e-9) / 1e6;
        let _ = write!(out, "\n{packets} packets in {took:.3} s: {rate:.2} M packets/s\n");
    }
    out
}

fn summary(found: &Found) -> String {
    let report = &found.report;
    let (path, packets, seconds) = (found.source.display(), report.all.packets, report.seconds);
    let flows = count(report.flows.len() as u64, "flow");
    let mut out = format!("{path}: {} in {seconds:.3} s, {flows}\n", count(packets, "packet"));
    let skipped = &report.skipped;
    let mut line = |packets: u64, what: &str| {
        if packets > 0 {
            let _ = writeln!(out, "{} {what}", count(packets, "packet"));
        }
    };
    line(skipped.other.packets, "other than TCP");
    line(skipped.unread.packets, "of TCP ignored (cut, fragments or damaged)");
    line(skipped.forgotten.packets, "ignored (too many flows)");
    line(found.untimed, "ignored (no timestamp)");
    line(skipped.lost, "lost before the capture; the results after them are uncertain");
    if let Some(0) = found.logged {
        out += "the stack log contains none of these flows\n";
    }
    out
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Returns the flows and stalls so far, for a terminal.
pub(super) fn picture(report: &Report, least: u32) -> String {
    let (all, stalls) = stalls(report, STALLS);
    let packets = count(report.all.packets, "packet");
    let flows = count(report.flows.len() as u64, "flow");
    let mut out = format!("{packets} in {:.0} s, {flows}\n", report.seconds);
    if !report.flows.is_empty() {
        let _ = write!(out, "\n{}", table(&report.flows));
    }
    if all > 0 {
        let _ = write!(out, "\n{} of {least} ms or more:\n{stalls}", count(all, "stall"));
    }
    out
}

/// Returns a table with a row for each flow.
pub(super) fn table(flows: &[FlowReport]) -> Table {
    let mut headings = vec!["n#", "flow", "bytes#", "Mbit/s#", "rtt ms#", "retr#", "stalls#"];
    let mut used = flows.iter().map(|flow| flow.number.to_string().len()).max().unwrap_or(1);
    // A single place needs no column.
    let several = flows.iter().any(|flow| flow.point != flows[0].point);
    if several {
        let heading = "seen at";
        headings.insert(1, heading);
        used += 2 + flows.iter().map(|flow| place(flow).len()).fold(heading.len(), usize::max);
    }
    let mut table = Table::new(&headings);
    for flow in flows {
        let main = &flow.directions[flow.main()];
        let both = |of: fn(&DirectionReport) -> u64| flow.directions.iter().map(of).sum::<u64>();
        let rate: f64 = flow.directions.iter().map(|direction| direction.mbit_per_second).sum();
        let mut cells = vec![
            flow.number.to_string(),
            name(flow, LINE - OTHERS - used),
            number(flow.bytes as f64),
            few(rate, 100.0),
            main.rtt.map_or_else(String::new, |trip| few(trip.mean_ms, 1000.0)),
            number(both(|direction| direction.retransmissions) as f64),
            number(flow.stall_count() as f64),
        ];
        if several {
            cells.insert(1, place(flow));
        }
        table.row(cells);
    }
    table
}

/// Returns the place of a flow, in a few letters.
fn place(flow: &FlowReport) -> String {
    let name = flow.point_name.as_deref().map(|name| name.chars().take(PLACE).collect());
    name.unwrap_or_else(|| flow.point.to_string())
}

/// Returns a number with few digits. Its last digit is a `part`.
fn few(value: f64, part: f64) -> String {
    number((value * part).round() / part)
}

/// Returns the ends of a flow, such as `10.0.0.1:40000 > 10.0.0.2:80`. Both ends are shortened if
/// the text would have more than `most` characters.
pub(super) fn name(flow: &FlowReport, most: usize) -> String {
    let whole = format!("{} > {}", flow.client, flow.server);
    if whole.len() <= most {
        return whole;
    }
    let each = most.saturating_sub(3) / 2;
    let [client, server] = [&flow.client, &flow.server].map(|end| match end.len() <= each {
        true => end.clone(),
        // The last letters tell more: host and port.
        false => format!("..{}", end.get((end.len() + 2).saturating_sub(each)..).unwrap_or(end)),
    });
    format!("{client} > {server}")
}

/// Returns the number of stalls of all flows, and a table of `most` of them.
pub(super) fn stalls(report: &Report, most: usize) -> (u64, Table) {
    let mut table = Table::new(&["n#", "from", "at s#", "ms#", "cause"]);
    let all = report.flows.iter().map(FlowReport::stall_count).sum();
    let each = |flow| {
        let flow: &FlowReport = flow;
        flow.stalls.iter().map(move |stall| (flow, stall))
    };
    for (flow, stall) in report.flows.iter().flat_map(each).take(most) {
        table.row([
            flow.number.to_string(),
            side(stall).to_owned(),
            format!("{:.3}", stall.at_s),
            format!("{:.0}", stall.seconds * 1e3),
            cause(stall),
        ]);
    }
    (all, table)
}

pub(super) fn cause(stall: &StallReport) -> String {
    let end = if stall.ended { "" } else { ", not ended" };
    format!("{}{end}", stall.cause.name())
}

/// Returns the side that sent no data during the stall.
pub(super) fn side(stall: &StallReport) -> &'static str {
    if stall.direction == 0 { "client" } else { "server" }
}

/// Returns all figures of one flow.
fn details(flow: &FlowReport) -> String {
    let end = if flow.closed { "closed" } else { "open" };
    let vlan = if flow.vlan == 0 { String::new() } else { format!(", VLAN {}", flow.vlan) };
    let called = flow.point_name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
    // The first lines say which flow this is, and when.
    let mut out = format!(
        "\nflow {}: {} > {}\nstart {:.6} s, duration {:.6} s, {end}, interface \
         {}{called}{vlan}\n\n",
        flow.number, flow.client, flow.server, flow.start_s, flow.seconds, flow.point
    );
    // Each row has a figure for both directions.
    let mut table = Table::new(&["", "from client#", "from server#"]);
    let mut row = |what: &str, of: &dyn Fn(&DirectionReport) -> String| {
        let [client, server] = &flow.directions;
        table.row([what.to_owned(), of(client), of(server)]);
    };
    row("packets", &|d| d.packets.to_string());
    row("bytes", &|d| d.bytes.to_string());
    row("payload bytes", &|d| d.payload_bytes.to_string());
    row("payload Mbit/s", &|d| number(d.mbit_per_second));
    let trip = |of: fn(&grantway_flows::report::TripReport) -> f64| {
        move |d: &DirectionReport| {
            d.rtt.as_ref().map_or("-".to_owned(), |t| format!("{:.3}", of(t)))
        }
    };
    row("round trip, ms: minimum", &trip(|trip| trip.min_ms));
    row("  mean", &trip(|trip| trip.mean_ms));
    row("  maximum", &trip(|trip| trip.max_ms));
    row("  samples", &|d| d.rtt.map_or(0, |trip| trip.samples).to_string());
    row("bytes in flight, maximum", &|d| d.in_flight_max.to_string());
    row("window, maximum", &|d| match d.window_max {
        0 => "-".to_owned(),
        window => window.to_string(),
    });
    row("zero windows", &|d| d.zero_windows.to_string());
    row("retransmissions", &|d| d.retransmissions.to_string());
    row("retransmitted bytes", &|d| d.retransmitted_bytes.to_string());
    row("duplicate ACKs", &|d| d.duplicate_acks.to_string());
    row("out of order", &|d| d.out_of_order.to_string());
    row("bytes not captured", &|d| d.not_captured_bytes.to_string());
    row("s without data to send", &|d| format!("{:.3}", d.idle_s));
    row("s with data in flight", &|d| format!("{:.3}", d.waiting_s));
    row("s without a window", &|d| format!("{:.3}", d.blocked_s));
    let _ = write!(out, "{table}{}", own(flow));
    // The last lines sum up the stalls by cause.
    for sum in &flow.stall_sums {
        let (cause, seconds) = (sum.cause.name(), sum.seconds);
        let _ = write!(out, "\n{} by {cause}, {seconds:.3} s", count(sum.count, "stall"));
    }
    out.push('\n');
    out
}

/// Returns the data of the senders' own logs, if there are any.
fn own(flow: &FlowReport) -> String {
    if flow.directions.iter().all(|direction| direction.stack.is_none()) {
        return String::new();
    }
    let mut table = Table::new(&["from the sender's stack", "client#", "server#"]);
    let mut row = |what: &str, of: &dyn Fn(&StackReport) -> Option<String>| {
        let cell = |direction: &DirectionReport| {
            direction.stack.as_ref().and_then(of).unwrap_or_else(|| "-".to_owned())
        };
        let [client, server] = &flow.directions;
        table.row([what.to_owned(), cell(client), cell(server)]);
    };
    let whole = |value: Option<u64>| value.map(|value| value.to_string());
    let ms = |value: Option<f64>| value.map(|value| format!("{value:.3}"));
    row("bytes sent", &|s| whole(Some(s.sent_bytes)));
    row("bytes in flight, maximum", &|s| whole(Some(s.in_flight_max)));
    row("window, maximum", &|s| whole(Some(s.window_max)));
    row("congestion window, minimum", &|s| whole(s.congestion_min));
    row("congestion window, maximum", &|s| whole(s.congestion_max));
    row("% of samples limited by it", &|s| {
        Some(format!("{:.1}", 100.0 * s.held_samples as f64 / s.samples.max(1) as f64))
    });
    row("round trip, ms: minimum", &|s| ms(s.rtt_min_ms));
    row("  maximum", &|s| ms(s.rtt_max_ms));
    row("timeout (RTO), ms: maximum", &|s| ms(s.rto_max_ms));
    row("retransmitted segments", &|s| whole(Some(s.again)));
    row("retransmitted bytes", &|s| whole(Some(s.again_bytes)));
    row("timeouts", &|s| whole(Some(s.timeouts)));
    row("fast retransmissions", &|s| whole(Some(s.fast)));
    row("duplicate ACKs", &|s| whole(Some(s.duplicate_acks)));
    row("samples", &|s| whole(Some(s.samples)));
    format!("\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use grantway_flows::{Flows, Limits, Packet, Ring};

    /// Returns a report of a flow between long addresses, to change.
    fn long() -> FlowReport {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
        frame.extend([0xfd; 32]);
        frame
            .extend([0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0, 1, 0, 0, 0, 0]);
        let mut flows = Flows::new(Limits::default());
        let (head, ring) = (&frame[..], Ring::default());
        let packet = Packet { time: 5, head, length: head.len(), point: 0, ring };
        flows.packet(&packet);
        flows.report().flows.remove(0)
    }

    #[test]
    fn tables_fit_whatever_the_figures() {
        let mut flow = long();
        (flow.number, flow.bytes) = (1_234_567, 99_990_000_000);
        for (rate, trip) in [(1.234_567_8e-5, 1.234_567e-3), (98_765.4, 98_765.432_1)] {
            flow.directions[0].mbit_per_second = rate;
            let trips = grantway_flows::report::TripReport {
                samples: 1,
                min_ms: trip,
                mean_ms: trip,
                max_ms: trip,
            };
            flow.directions[0].rtt = Some(trips);
            flow.directions[0].retransmissions = 99_999;
            let text = table(&[flow.clone()]).to_string();
            assert!(text.lines().all(|line| line.chars().count() <= LINE), "{text}");
            assert!(!text.contains("seen at"), "{text}");
            // If there are several places, each is told.
            let name = Some("vif1234.15-and-more".to_owned());
            let mut other = flow.clone();
            (other.point, other.point_name) = (7, name);
            let text = table(&[flow.clone(), other]).to_string();
            assert!(text.lines().all(|line| line.chars().count() <= LINE), "{text}");
            let rows: Vec<_> = text.lines().skip(1).collect();
            assert!(rows[0].starts_with("1234567  0  ") && rows[1].contains("  vif1234.15-and- "));
        }
    }

    #[test]
    fn names_keep_their_ends() {
        let flow = long();
        let host = "fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd";
        assert_eq!(name(&flow, 200), format!("[{host}]:65535 > [{host}]:65534"));
        assert_eq!(name(&flow, 35), "..fd:fdfd]:65535 > ..fd:fdfd]:65534");
    }
}

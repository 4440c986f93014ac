//! `grantway graph` shows the counters of the nodes of a backend's graph.

use crate::running::RunningArgs;
use clap::Args;
use grantway_backend::GraphReport;
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::table::Table;
use grantway_vector::report::{Count, Flow};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Most flows that are shown: those with the most bytes.
const FLOWS: usize = 10;

/// `grantway graph`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each node processes a whole list of frames before the next node begins. A node
without work is skipped and counts nothing. One list in 64 is timed. Without
--rules a backend has its bridge and two nodes that merge TCP segments for
receivers that accept large frames: `segments` reads them, `gro` merges them.
`grantway show nodes` prints the same.

Example:
  grantway graph
  grantway graph --host /tmp/gw --json | jq .nodes")]
pub struct GraphArgs {
    /// Backend to ask.
    #[command(flatten)]
    pub of: RunningArgs,
}

/// Shows the nodes and drops of a graph.
///
/// # Errors
///
/// No backend runs in the folder, or its report has no graph.
pub fn run(args: &GraphArgs) -> Result<(), CommandError> {
    show(&args.of.fetch()?, args.of.json)
}

/// Shows the nodes and drops of the graph in a backend's report.
///
/// # Errors
///
/// The report has no graph.
pub fn show(report: &Value, json: bool) -> Result<(), CommandError> {
    let graph = of(report)?;
    if json {
        return output::line(graph.to_string());
    }
    let headings = ["node", "packets#", "vectors#", "packets/vector#", "ns/packet#"];
    let mut table = Table::new(&headings);
    for node in graph["nodes"].as_array().into_iter().flatten() {
        let number = |key: &str| node[key].as_u64().unwrap_or(0);
        let ratio = |key: &str| node[key].as_f64().map_or("-".into(), |n| format!("{n:.1}"));
        table.row([
            node["name"].as_str().unwrap_or("").to_owned(),
            number("packets").to_string(),
            number("vectors").to_string(),
            ratio("packets_a_vector"),
            ratio("ns_a_packet"),
        ]);
    }
    output::line(format!("{table}{}", drops(&graph)))
}

/// Returns the graph in a backend's report.
///
/// # Errors
///
/// The report has no graph.
pub fn of(report: &Value) -> Result<Value, CommandError> {
    match &report["graph"] {
        Value::Null => Err(CommandError::Failed(
            "the backend reports no graph; restart it with the version of this command".into(),
        )),
        graph => Ok(graph.clone()),
    }
}

/// Returns a table of drops by reason, or no text if nothing was dropped.
pub fn drops(graph: &Value) -> String {
    let Some(drops) = graph["drops"].as_object().filter(|drops| !drops.is_empty()) else {
        return String::new();
    };
    let mut table = Table::new(&["dropped", "packets#"]);
    for (reason, n) in drops {
        table.row([reason.clone(), n.to_string()]);
    }
    let mut text = String::from("\n");
    let _ = write!(text, "{table}");
    text
}

/// Returns a graph's report as JSON.
pub fn json(graph: &GraphReport) -> Value {
    let GraphReport { nodes, drops, known } = graph;
    let nodes: Vec<Value> = nodes
        .iter()
        .map(|node| {
            json!({
                "name": node.name,
                "packets": node.packets,
                "vectors": node.vectors,
                "packets_a_vector": (node.vectors > 0).then(|| node.packets_a_vector()),
                "ns_a_packet": node.ns_a_packet(),
            })
        })
        .collect();
    let drops: Map<String, Value> =
        drops.iter().map(|(reason, n)| (reason.to_string(), n.into())).collect();
    json!({
        "nodes": nodes,
        "drops": drops,
        "rules": counts(&known.rules),
        "default": count(&known.by_default),
        "filters": counts(&known.filters),
        "connections": known.connections,
        "fragmented": known.fragmented,
        "stations": known.stations,
        "stations_refused": known.stations_refused,
        "flows": known.flows.len(),
        "largest_flows": known.flows.iter().take(FLOWS).map(flow).collect::<Vec<_>>(),
        "merged": known.merged,
        "mirrored": known.mirrored,
        "mirror_error": known.mirror_error,
    })
}

fn counts(named: &[(String, Count)]) -> Vec<Value> {
    let one = |(name, count): &(String, Count)| json!({ "name": name, "packets": count.packets, "bytes": count.bytes });
    named.iter().map(one).collect()
}

fn count(count: &Count) -> Value {
    json!({ "packets": count.packets, "bytes": count.bytes })
}

fn flow(flow: &Flow) -> Value {
    let address = |address: u128| match flow.is_v6 {
        true => Ipv6Addr::from_bits(address).to_string(),
        // An IPv4 address is in the low half.
        false => Ipv4Addr::from_bits(address as u32).to_string(),
    };
    json!({
        "from": address(flow.addresses[0]),
        "to": address(flow.addresses[1]),
        "from_port": flow.ports[0],
        "to_port": flow.ports[1],
        "protocol": flow.protocol,
        "packets": flow.count.packets,
        "bytes": flow.count.bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;
    use grantway_vector::Reason;
    use grantway_vector::reason::Drops;
    use grantway_vector::report::Report;

    #[test]
    fn own_reasons_are_shown_as_all_others() {
        let own = Reason::own("below-60-bytes").unwrap();
        let mut dropped = Drops::default();
        dropped.add(own, 3);
        dropped.add(Reason::Firewall, 2);
        let report = GraphReport { nodes: Vec::new(), drops: dropped, known: Report::default() };
        let graph = json(&report);
        assert_eq!(graph["drops"], json!({ "below-60-bytes": 3, "firewall": 2 }));
        let table = drops(&graph);
        assert!(table.contains("below-60-bytes") && table.contains("firewall"), "{table}");
        let page = metrics::render(&json!({ "graph": graph }));
        for line in [
            "grantway_rules_dropped_frames_total{reason=\"below-60-bytes\"} 3",
            "grantway_rules_dropped_frames_total{reason=\"firewall\"} 2",
        ] {
            assert!(page.lines().any(|found| found == line), "no {line} in {page}");
        }
    }
}

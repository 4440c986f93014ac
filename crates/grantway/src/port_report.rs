//! Counters of a port as JSON.

use grantway_ports::PortReport;
use serde_json::{Map, Value, json};

/// Returns a port's drops by reason as JSON.
pub fn port_drops(port: &PortReport) -> Map<String, Value> {
    port.counters.drops().map(|(reason, n)| (reason.to_string(), n.into())).collect()
}

/// Returns a port's counters as JSON.
pub fn port_report(port: &PortReport) -> Value {
    json!({
        "name": port.name,
        "sent": port.counters.sent,
        "received": port.counters.received,
        "busy": port.counters.busy,
        "drops": port_drops(port),
        "checked": port.checked.as_ref().map(|c| json!({
            "received": c.total.received,
            "lost": c.total.lost,
            "duplicated": c.total.duplicated,
            "reordered": c.total.reordered,
            "corrupt": c.corrupt,
            "foreign": c.foreign,
        })),
        "latency_ns": port.latency,
    })
}

//! A report in Prometheus's text format.

use crate::shares::{SHARES, Share};
use serde_json::Value;
use std::fmt::Write;

/// Counters of a vif: the name in its report, the metric, a label beside the vif's, and help.
const VIF_COUNTERS: [(&str, &str, &str, &str); 22] = [
    ("tx_packets", "packets", "direction=\"tx\"", "Packets, direction as the guest sees it"),
    ("rx_packets", "packets", "direction=\"rx\"", ""),
    ("tx_bytes", "bytes", "direction=\"tx\"", "Bytes of the packets, without FCS"),
    ("rx_bytes", "bytes", "direction=\"rx\"", ""),
    ("tx_slots", "slots", "direction=\"tx\"", "Ring slots of the packets"),
    ("rx_slots", "slots", "direction=\"rx\"", ""),
    ("rx_cut", "cut", "", "Segments and datagrams made from large frames for the guest"),
    ("tx_merged", "merged", "", "Segments and datagrams of the guest merged into large frames"),
    (
        "tx_completed",
        "tx_completed",
        "",
        "Packets of the guest whose checksum the backend \
                                          completed",
    ),
    ("tx_cut", "tx_cut", "", "Segments made from large frames of the guest"),
    ("interrupts", "interrupts", "", "Signals from the guest"),
    ("notifies", "notifies", "", "Signals to the guest"),
    ("turns", "turns", "", "Poll rounds in which a queue moved a packet"),
    (
        "rx_stalls",
        "rx_stalls",
        "",
        "Times at which the guest had posted too few pages for the next \
                                    frame",
    ),
    (
        "rx_filtered_multicast",
        "rx_filtered",
        "",
        "Multicast frames to groups that the guest did \
                                                  not list",
    ),
    ("rx_steered", "rx_steered", "", "Frames moved to the queue that the hash settings select"),
    ("ctrl_requests", "ctrl_requests", "", "Control requests answered"),
    ("ctrl_refused", "ctrl_refused", "", "Control requests answered with an error"),
    ("mapped_hits", "mapped_hits", "", "Buffers found mapped"),
    ("mapped_misses", "mapped_misses", "", "Buffers not mapped, which were copied"),
    ("mapped_pages", "pages_mapped", "", "Pages mapped for packets"),
    ("mapped_evicted", "pages_evicted", "", "Pages unmapped because they were unused"),
];

/// Counters of a queue: the name in its report, the metric, a label beside the queue's, and help.
const QUEUE_COUNTERS: [(&str, &str, &str, &str); 5] = [
    ("tx_packets", "packets", "direction=\"tx\"", "Packets from the guest or to it"),
    ("rx_packets", "packets", "direction=\"rx\"", ""),
    ("interrupts", "interrupts", "", "Signals from the guest"),
    ("notifies", "notifies", "", "Signals to the guest"),
    ("turns", "turns", "", "Poll rounds that moved a packet"),
];

/// Counters of the platform: the name in its report, and help.
const PLATFORM_COUNTERS: [(&str, &str); 9] = [
    ("copies", "Grant copies"),
    ("copy_batches", "Calls for grant copies"),
    ("copy_bytes", "Bytes moved by grant copies"),
    ("maps", "Grants mapped"),
    ("map_batches", "Calls for mapping grants"),
    ("unmaps", "Grants unmapped"),
    ("unmap_batches", "Calls for unmapping grants"),
    ("notifies", "Signals sent through event channels"),
    ("wakeups", "Waits ended by a signal, or for which a signal was pending"),
];

/// Returns the text for a backend's report.
pub fn render(report: &Value) -> String {
    let mut page = Page::default();
    let vifs: Vec<(String, &Value)> =
        list(&report["vifs"]).map(|vif| (vif_labels(vif), vif)).collect();
    let queues: Vec<(String, &Value)> = vifs
        .iter()
        .flat_map(|(labels, vif)| {
            list(&vif["queues"])
                .map(move |queue| (format!("{labels},queue=\"{}\"", queue["queue"]), queue))
        })
        .collect();
    // An info metric is always 1: its labels are what it says.
    let info = vifs.iter().map(|(labels, vif)| {
        let [policy, checksum, port] =
            [&vif["policy"], &vif["checksum"], &vif["port"]["name"]].map(escaped);
        let said = format!("policy=\"{policy}\",checksum=\"{checksum}\",port=\"{port}\"");
        (format!("{labels},{said}"), 1.0)
    });
    page.gauge("vif_info", "Buffer policy, checksums and port of a vif", info);
    let connected =
        vifs.iter().map(|(labels, vif)| (labels.clone(), f64::from(vif["connected"] == true)));
    page.gauge("vif_connected", "1 if the vif is connected", connected);
    page.gauge("vif_mapped_pages", "Pages of the guest that are mapped", each(&vifs, "mapped"));
    page.counters("vif", &VIF_COUNTERS, &vifs, |vif| &vif["stats"]);
    let drops = vifs.iter().flat_map(|(labels, vif)| {
        let stats = vif["stats"].as_object().into_iter().flatten();
        stats.filter_map(move |(name, n)| {
            let (direction, reason) = name.split_once("_dropped_")?;
            Some((format!("{labels},direction=\"{direction}\",reason=\"{reason}\""), n.as_f64()?))
        })
    });
    page.counter("vif_dropped_packets_total", "Packets dropped by the vif", drops);
    page.counters("queue", &QUEUE_COUNTERS, &queues, |queue| queue);
    page.gauge("queue_tx_waiting_slots", "Waiting requests", each(&queues, "tx_waiting"));
    page.gauge("queue_rx_posted_slots", "Posted pages", each(&queues, "rx_posted"));
    let drops = queues.iter().flat_map(|(labels, queue)| {
        let drops = queue["port_drops"].as_object().into_iter().flatten();
        drops.filter_map(move |(reason, n)| {
            let reason = escaped(&Value::from(reason.as_str()));
            Some((format!("{labels},reason=\"{reason}\""), n.as_f64()?))
        })
    });
    page.counter("queue_port_dropped_frames_total", "Frames dropped by the queue's port", drops);
    let drops = report["graph"]["drops"].as_object().into_iter().flatten();
    let drops = drops.filter_map(|(reason, n)| {
        let reason = escaped(&Value::from(reason.as_str()));
        Some((format!("reason=\"{reason}\""), n.as_f64()?))
    });
    page.counter("rules_dropped_frames_total", "Frames dropped by rules and other nodes", drops);
    uplink(&mut page, &report["uplink"]);
    // Prometheus counts time in seconds, and the report in nanoseconds.
    let workers: Vec<(String, &Value)> = list(&report["workers"])
        .map(|worker| (format!("worker=\"{}\"", worker["worker"]), worker))
        .collect();
    let used = each(&workers, "used_ns").map(|(labels, ns)| (labels, ns / 1e9));
    page.counter("worker_processor_seconds_total", "Processor time, spinning included", used);
    page.gauge("worker_queues", "Queues of a worker", each(&workers, "queues"));
    let seconds = |key| each(&workers, key).map(|(labels, ns)| (labels, ns / 1e9));
    let help = "Processor time of a worker's longest round: the longest wait of a signal";
    page.gauge("worker_longest_round_seconds", help, seconds("longest_round_ns"));
    let help = "Limit of a round, whatever guests send";
    page.gauge("worker_round_limit_seconds", help, seconds("round_limit_ns"));
    // These have no vif or worker, so they come after all that have.
    let control = [(String::new(), &report["control"])];
    let help = "Pages mapped or unmapped in the control thread's longest step";
    page.gauge("control_step_pages", help, each(&control, "used"));
    let help = "Limit of pages mapped or unmapped in a control step";
    page.gauge("control_step_limit", help, each(&control, "limit"));
    let budget = SHARES.map(|Share { key, .. }| (format!("of=\"{key}\""), &report["budget"][key]));
    page.gauge("budget_used", "Use of a shared resource by all vifs", each(&budget, "used"));
    page.gauge("budget_limit", "Limit of the shared resource", each(&budget, "limit"));
    let platform = [(String::new(), &report["platform"])];
    for (name, help) in PLATFORM_COUNTERS {
        page.counter(&format!("platform_{name}_total"), help, each(&platform, name));
    }
    page.gauge("platform_mapped_grants", "Mapped grants", each(&platform, "mapped"));
    page.gauge("platform_deferred_pages", "Pages not reclaimed yet", each(&platform, "deferred"));
    page.0
}

/// Adds the uplink of the backend's bridge, if there is one.
fn uplink(page: &mut Page, uplink: &Value) {
    let [name, state] = [&uplink["name"], &uplink["state"]].map(escaped);
    if name.is_empty() {
        return;
    }
    let labels = format!("uplink=\"{name}\"");
    let info = (format!("{labels},state=\"{state}\""), 1.0);
    page.gauge("uplink_info", "State of the uplink of the bridge", [info].into_iter());
    let is_up = matches!(state.as_str(), "up" | "open");
    let up = [(labels.clone(), f64::from(is_up))].into_iter();
    page.gauge("uplink_up", "1 if the uplink carries frames", up);
    let ways = |keys: [&str; 2]| {
        let ways = ["tx", "rx"].into_iter().zip(keys.map(|key| uplink[key].as_f64()));
        let all: Vec<_> = ways
            .filter_map(|(way, n)| Some((format!("{labels},direction=\"{way}\""), n?)))
            .collect();
        all.into_iter()
    };
    page.counter("uplink_frames_total", "Frames", ways(["sent", "received"]));
    let bytes = ways(["sent_bytes", "received_bytes"]);
    page.counter("uplink_bytes_total", "Bytes of the frames, without FCS", bytes);
    let busy = uplink["busy"].as_f64().map(|n| (labels.clone(), n));
    page.counter("uplink_busy_total", "Frames dropped for lack of space", busy.into_iter());
    let drops = uplink["drops"].as_object().into_iter().flatten().filter_map(|(reason, n)| {
        let reason = escaped(&Value::from(reason.as_str()));
        Some((format!("{labels},reason=\"{reason}\""), n.as_f64()?))
    });
    page.counter("uplink_dropped_frames_total", "Frames dropped", drops);
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn gauge(&mut self, name: &str, help: &str, samples: impl Iterator<Item = (String, f64)>) {
        self.family(name, "gauge", help, samples);
    }

    fn counter(&mut self, name: &str, help: &str, samples: impl Iterator<Item = (String, f64)>) {
        self.family(name, "counter", help, samples);
    }

    /// Adds the counters of a table. Rows with the same metric are next to each other in the table,
    /// so that the metric has one heading.
    fn counters(
        &mut self,
        of: &str,
        table: &[(&str, &str, &str, &str)],
        items: &[(String, &Value)],
        stats: impl Fn(&Value) -> &Value,
    ) {
        for rows in table.chunk_by(|a, b| a.1 == b.1) {
            let Some((_, metric, _, help)) = rows.first() else { continue };
            let stats = &stats;
            let samples = rows.iter().flat_map(move |(counter, _, label, _)| {
                items.iter().filter_map(move |(labels, item)| {
                    let comma = if label.is_empty() { "" } else { "," };
                    Some((format!("{labels}{comma}{label}"), stats(item)[counter].as_f64()?))
                })
            });
            self.counter(&format!("{of}_{metric}_total"), help, samples);
        }
    }

    fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl Iterator<Item = (String, f64)>,
    ) {
        let mut samples = samples.peekable();
        if samples.peek().is_some() {
            let _ =
                writeln!(self.0, "# HELP grantway_{name} {help}.\n# TYPE grantway_{name} {kind}");
        }
        for (labels, value) in samples {
            let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
            let _ = writeln!(self.0, "grantway_{name}{labels} {value}");
        }
    }
}

/// Returns the number named `key` of each item that has one.
fn each<'a>(
    items: &'a [(String, &Value)],
    key: &'a str,
) -> impl Iterator<Item = (String, f64)> + 'a {
    items.iter().filter_map(move |(labels, item)| Some((labels.clone(), item[key].as_f64()?)))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn vif_labels(vif: &Value) -> String {
    format!("domid=\"{}\",devid=\"{}\"", vif["domain"], vif["devid"])
}

/// Returns a text as the value of a label.
fn escaped(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metrics_have_labels_and_are_escaped() {
        let text = render(&json!({
            "vifs": [{
                "domain": 3, "devid": 1, "connected": true, "policy": "copy", "mapped": 7,
                "checksum": "full",
                "port": { "name": "a\"b\\c\nd" },
                "stats": { "tx_packets": 5, "rx_packets": 6, "tx_dropped_grant": 2 },
                "queues": [{ "queue": 0, "rx_posted": 256, "port_drops": { "too long": 4 } }],
            }],
            "workers": [{
                "worker": 0, "used_ns": 1_500_000_000, "queues": 1,
                "longest_round_ns": 1_250_000, "round_limit_ns": 5_000_000,
            }],
            "uplink": {
                "name": "packet:eth0", "state": "up", "sent": 3, "received_bytes": 60, "busy": 0,
                "drops": { "queue-full": 8 },
            },
            "control": { "used": 577, "limit": 2600 },
            "budget": { "waiting_bytes": { "used": 1500, "limit": 1_048_576 } },
            "platform": { "copies": 9 },
        }));
        let vif = "domid=\"3\",devid=\"1\"";
        for line in [
            format!(
                "grantway_vif_info{{{vif},policy=\"copy\",checksum=\"full\",port=\"a\\\"b\\\\c\\nd\"}} 1"
            ),
            format!("grantway_vif_packets_total{{{vif},direction=\"rx\"}} 6"),
            format!(
                "grantway_vif_dropped_packets_total{{{vif},direction=\"tx\",reason=\"grant\"}} 2"
            ),
            format!("grantway_queue_rx_posted_slots{{{vif},queue=\"0\"}} 256"),
            format!(
                "grantway_queue_port_dropped_frames_total{{{vif},queue=\"0\",reason=\"too long\"}} 4"
            ),
            "grantway_worker_processor_seconds_total{worker=\"0\"} 1.5".to_owned(),
            "grantway_worker_longest_round_seconds{worker=\"0\"} 0.00125".to_owned(),
            "grantway_worker_round_limit_seconds{worker=\"0\"} 0.005".to_owned(),
            "grantway_uplink_info{uplink=\"packet:eth0\",state=\"up\"} 1".to_owned(),
            "grantway_uplink_up{uplink=\"packet:eth0\"} 1".to_owned(),
            "grantway_uplink_frames_total{uplink=\"packet:eth0\",direction=\"tx\"} 3".to_owned(),
            "grantway_uplink_bytes_total{uplink=\"packet:eth0\",direction=\"rx\"} 60".to_owned(),
            "grantway_uplink_dropped_frames_total{uplink=\"packet:eth0\",reason=\"queue-full\"} 8"
                .to_owned(),
            "grantway_control_step_pages 577".to_owned(),
            "grantway_control_step_limit 2600".to_owned(),
            "grantway_budget_used{of=\"waiting_bytes\"} 1500".to_owned(),
            "grantway_budget_limit{of=\"waiting_bytes\"} 1048576".to_owned(),
            "grantway_platform_copies_total 9".to_owned(),
            "# TYPE grantway_vif_packets_total counter".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in {text}");
        }
        assert_eq!(text.matches("# TYPE grantway_vif_packets_total").count(), 1);
    }

    #[test]
    fn every_counter_of_a_vif_has_a_metric() {
        let stats = grantway_backend::VifStats::default().snapshot();
        for (name, _) in stats.fields() {
            let told = name.contains("_dropped_") || VIF_COUNTERS.iter().any(|row| row.0 == name);
            assert!(told, "{name}");
        }
    }
}

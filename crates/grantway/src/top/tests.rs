use super::figures::Figures;
use super::screen::show;
use crate::sample::Sample;
use serde_json::{Value, json};

/// Returns a backend's report after `seconds` in which each counter grew by `per_second` or a
/// multiple of it.
fn sample(seconds: u64, per_second: u64) -> Sample {
    let n = seconds * per_second;
    let vif = |name: &str, n: u64| {
        let queues = [0, 1].map(|queue| {
            json!({
                "queue": queue, "worker": queue, "tx_packets": n, "rx_packets": n,
                "interrupts": n, "notifies": n, "turns": n, "tx_waiting": 256, "rx_posted": 256,
            })
        });
        json!({
            "vif": name, "connected": true, "policy": "persistent", "mapped": 4096,
            "checksum": if name == "vif1.0" { "full" } else { "offload" },
            "stats": {
                "tx_packets": 3 * n, "rx_packets": n, "tx_bytes": 3 * n * 1500, "rx_bytes": n * 64,
                "tx_slots": 6 * n, "rx_slots": 2 * n, "interrupts": n, "turns": 2 * n,
                "notifies": n, "tx_dropped_grant": n, "rx_dropped_drained": 0,
            },
            "port": { "drops": { "a reason of any length, cut so that the line fits 80": n } },
            "queues": queues,
        })
    };
    let workers: Vec<Value> = (0..12)
        .map(|n| {
            json!({
                "worker": n, "used_ns": seconds * 250_000_000, "queues": 64,
                "longest_round_ns": 1_000_000 + n * 20_000, "round_limit_ns": 5_000_000,
            })
        })
        .collect();
    serde_json::from_value(json!({
        "host": "embedded", "mode": "interrupt", "at_ns": seconds * 1_000_000_000,
        "vifs": [vif("vif1.0", n / 2), vif("vif32751.65535", n)],
        "uplink": {
            "name": "packet:abcdefghijklmno", "state": "no-carrier", "sent": 2 * n, "received": n,
            "busy": n, "drops": { "queue-full": n },
        },
        "workers": workers,
        "control": { "used": 577, "limit": 2600 },
        "platform": { "copies": n, "notifies": n, "mapped": 8194 },
        "budget": {
            "pages": { "used": 8192, "limit": 98_304 }, "areas": { "used": 32, "limit": 48_397 },
            "descriptors": { "used": 64, "limit": 1024 },
            "waiting_bytes": { "used": 12_345_678, "limit": 134_217_728 },
            "stations": { "used": 16_384, "limit": 16_384 },
            "connections": { "used": 65_536, "limit": 75_776 },
            "fragmented": { "used": 2560, "limit": 2560 },
        },
    }))
    .unwrap()
}

#[test]
fn rates_ratios_and_the_busiest_first() {
    let figures = Figures::between(&sample(10, 1000), &sample(12, 1000));
    assert_eq!(figures.seconds, 2.0);
    let [busiest, other] = &figures.vifs[..] else { panic!("{figures:?}") };
    assert_eq!((busiest.vif.as_str(), other.vif.as_str()), ("vif32751.65535", "vif1.0"));
    assert_eq!((busiest.tx_pps, busiest.rx_pps, busiest.tx_bps), (3000.0, 1000.0, 36e6));
    assert_eq!(
        [busiest.ppi, busiest.spi, busiest.ppn, busiest.spn],
        [4.0, 8.0, 2.0, 4.0].map(Some)
    );
    assert_eq!(busiest.drops["tx grant"], (12_000, 1000.0));
    assert!(!busiest.drops.contains_key("rx drained"), "it never came");
    assert_eq!((figures.workers[0].busy, figures.mapped), (0.25, 8194));
    assert_eq!(figures.platform["copies"], 1000.0);
}

#[test]
fn what_is_new_or_begins_anew_is_no_burst() {
    let (mut before, after) = (sample(10, 1000), sample(11, 1000));
    before.vifs.pop();
    let figures = Figures::between(&before, &after);
    let new = figures.vifs.iter().find(|vif| vif.vif == "vif32751.65535").unwrap();
    assert_eq!((new.tx_pps, new.ppi, new.drops_rate), (0.0, None, 0.0));
    // A successor's counters begin at nothing.
    let figures =
        Figures::between(&sample(10, 1000), &Sample { at_ns: 11_000_000_000, ..sample(1, 1000) });
    assert_eq!(figures.vifs[0].tx_pps, 3000.0);
    let quiet = Figures::between(&Sample::default(), &sample(0, 0));
    assert_eq!(serde_json::to_value(quiet.vifs[0].drops_rate).unwrap().to_string(), "0.0");
    assert_eq!(Figures::between(&after, &after).vifs[0].tx_pps, 0.0);
}

#[test]
fn every_line_fits_a_terminal() {
    let text = show("backend-0", &Figures::between(&sample(1, 0), &sample(2, 12_345_678)));
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    for part in [
        "vif32751.65535",
        "PPI",
        "worker 11 25 % (64)",
        "with full checksums:\nvif1.0\n",
        "uplink packet:abcdefghijklmno no-carrier: tx/s 49.4M, rx/s 24.7M, drop/s 49.4M",
        "tx grant",
        "grants mapped: 8194",
        "8192 of 98.3k pages mapped, 32 of 48.4k areas, 64 of 1.02k descriptors",
        "12345678 of 134M waiting bytes, 16384 of 16.4k stations",
        "65536 of 75.8k connections, 2560 of 2.56k fragmented packets",
        "longest round 1.22 of 5.00 ms, control step 577 of 2.60k pages",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

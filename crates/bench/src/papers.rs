//! Figures of the papers that Grantway grew from, measured on Xen and on their hardware.

use super::rig::Direction::{self, GuestToGuest, Rx, Tx};
use grantway_backend::policy::Policy;
use serde::{Deserialize, Serialize};

/// Unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Millions of packets per second.
    Mpps,
    /// Gbit/s.
    #[serde(rename = "Gbit/s")]
    Gbps,
}

impl Unit {
    /// Returns the unit as tables print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mpps => "Mpps",
            Self::Gbps => "Gbit/s",
        }
    }
}

/// One row of a paper's table.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The paper's number.
    pub seed: &'static str,
    /// Program, software and hardware of the measurement.
    pub conditions: &'static str,
    /// Direction of the packets.
    pub direction: Direction,
    /// Frame size in bytes; for a bulk transfer, the size of our frames.
    pub size: usize,
    /// Number of queues.
    pub queues: u16,
    /// Unit of the figures.
    pub unit: Unit,
    /// Figures before the paper's proposal, and with it.
    pub figures: [f64; 2],
    /// Packets and slots per interrupt, both before and after, if the paper has them.
    pub ppi_spi: Option<[[f64; 2]; 2]>,
    /// Our policies that correspond to the two figures.
    pub policies: [Policy; 2],
}

impl Entry {
    /// Returns the factor by which the proposal is faster.
    pub fn factor(&self) -> f64 {
        self.figures[1] / self.figures[0]
    }
}

const PKTGEN: &str = "pktgen, dom0 and guest, Xen 4.5, Xeon E5-1650 v2";
const BULK_A: &str = "iperf TCP, Xen 4.5, Xeon E5-1650 v2";
const BULK_B: &str = "iperf TCP, Xen 4.5, Xeon E5-2697 v2";
const IPERF: &str = "iperf TCP of 64 KiB packets, pages mapped for good";
const NETPERF: &str = "netperf TCP of 64 KiB packets, pages mapped for good";
const STAGED_BULK: &str = "TCP, Linux 4.11 guest and a host behind 100 Gbit/s, Xeon E5-2630 v4";
const STAGED_UDP: &str = "UDP, Linux 4.11 guest and a host behind 100 Gbit/s, Xeon E5-2630 v4";

/// Direction, bytes, queues, before, after.
type Line = (Direction, usize, u16, f64, f64);

const BULK: usize = 65_535;

const PERSISTENT_PACKETS: [Line; 6] = [
    (Tx, 64, 1, 1.24, 1.82),
    (Tx, 1496, 1, 0.518, 1.48),
    (Tx, BULK, 1, 0.0664, 0.2051),
    (Rx, 64, 1, 1.33, 2.78),
    (Rx, 1496, 1, 1.03, 1.66),
    (Rx, BULK, 1, 0.0525, 0.0978),
];

const PERSISTENT_BULK_A: [Line; 7] = [
    (Tx, BULK, 1, 14.5, 21.6),
    (Tx, BULK, 2, 17.6, 27.4),
    (Tx, BULK, 3, 17.2, 29.3),
    (Rx, BULK, 1, 20.9, 17.8),
    (Rx, BULK, 2, 21.1, 24.9),
    (Rx, BULK, 3, 22.1, 31.0),
    (GuestToGuest, BULK, 1, 12.4, 18.9),
];

const PERSISTENT_BULK_B: [Line; 13] = [
    (Tx, BULK, 1, 10.5, 15.9),
    (Tx, BULK, 2, 14.0, 20.1),
    (Tx, BULK, 3, 15.7, 23.5),
    (Tx, BULK, 4, 15.0, 25.9),
    (Tx, BULK, 6, 15.9, 30.0),
    (Rx, BULK, 1, 15.1, 13.3),
    (Rx, BULK, 2, 19.5, 18.1),
    (Rx, BULK, 3, 22.2, 22.7),
    (Rx, BULK, 4, 23.7, 25.8),
    (Rx, BULK, 6, 24.0, 29.8),
    (GuestToGuest, BULK, 1, 12.5, 14.5),
    (GuestToGuest, BULK, 2, 12.6, 20.6),
    (GuestToGuest, BULK, 3, 13.7, 24.5),
];

// The paper's heading says Gbit/s, but its figures are in Mbit/s.
const STAGING_BULK: [Line; 8] = [
    (Tx, BULK, 1, 17.244, 38.189),
    (Tx, BULK, 2, 24.023, 54.783),
    (Tx, BULK, 3, 29.148, 85.777),
    (Tx, BULK, 4, 39.782, 99.530),
    (Rx, BULK, 1, 6.0, 28.108),
    (Rx, BULK, 2, 9.416, 40.624),
    (Rx, BULK, 3, 17.196, 54.118),
    (Rx, BULK, 4, 18.502, 46.859),
];

const STAGING_PACKETS: [Line; 6] = [
    (Tx, 64, 1, 0.684, 2.49),
    (Tx, 64, 2, 0.953, 4.74),
    (Tx, 64, 4, 1.890, 8.80),
    (Rx, 64, 1, 0.439, 2.96),
    (Rx, 64, 2, 0.755, 5.07),
    (Rx, 64, 4, 1.390, 9.92),
];

/// Returns all rows of the papers `seeds`, in the order of the papers.
pub fn entries(seeds: &[&str]) -> Vec<Entry> {
    use Unit::{Gbps, Mpps};
    let persistent = Policy::Persistent;
    let mut all = Vec::new();
    all.extend(rows("000", PKTGEN, Mpps, &PERSISTENT_PACKETS, persistent));
    all.extend(rows("000", BULK_A, Gbps, &PERSISTENT_BULK_A, persistent));
    all.extend(rows("000", BULK_B, Gbps, &PERSISTENT_BULK_B, persistent));
    all.extend(mapped());
    all.extend(rows("004", STAGED_BULK, Gbps, &STAGING_BULK, Policy::Staging));
    all.extend(rows("004", STAGED_UDP, Mpps, &STAGING_PACKETS, Policy::Staging));
    all.retain(|entry| seeds.contains(&entry.seed));
    all
}

fn rows(
    seed: &'static str,
    conditions: &'static str,
    unit: Unit,
    lines: &[Line],
    after: Policy,
) -> impl Iterator<Item = Entry> {
    lines.iter().map(move |&(direction, size, queues, before, proposed)| Entry {
        seed,
        conditions,
        direction,
        size,
        queues,
        unit,
        figures: [before, proposed],
        ppi_spi: None,
        policies: [stock(direction), after],
    })
}

/// Returns the rows of copying against mapping. The paper's pages stay mapped for good, which is
/// the policy persistent here. If there is a policy that maps each packet's pages, it has rows as
/// well.
fn mapped() -> Vec<Entry> {
    let persistent = std::iter::once(Policy::Persistent);
    let afters: Vec<_> = map().into_iter().chain(persistent).collect();
    let figures = [
        (IPERF, [6.5, 14.0], [[2.90, 1.07], [37.75, 13.69]]),
        (NETPERF, [5.8, 10.5], [[2.13, 1.00], [36.70, 16.73]]),
    ];
    let of = |(conditions, figures, ppi_spi)| {
        afters.iter().map(move |&after| Entry {
            seed: "001",
            conditions,
            direction: Tx,
            size: BULK,
            queues: 1,
            unit: Unit::Gbps,
            figures,
            ppi_spi: Some(ppi_spi),
            policies: [Policy::Copy, after],
        })
    };
    figures.into_iter().flat_map(of).collect()
}

/// Returns the policy that maps the pages of each packet, if there is one.
fn map() -> Option<Policy> {
    Policy::ALL.into_iter().find(|policy| policy.as_str() == "map")
}

/// Returns the policy of Linux's netback when the papers were written. It mapped what guests sent,
/// and copied what they received.
fn stock(direction: Direction) -> Policy {
    match direction {
        Rx => Policy::Copy,
        _ => map().unwrap_or(Policy::Copy),
    }
}

/// Returns the packets per second that a link of `gbps` Gbit/s carries, by the formula of seed 004:
/// preamble, start of frame, packet, FCS and gap. `packet` is in bytes, without FCS, and is padded
/// to 60.
pub fn wire_pps(gbps: f64, packet: usize) -> f64 {
    let bytes = 7 + 1 + packet.max(60) + 4 + 12;
    gbps * 1e9 / (bytes as f64 * 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_carries_what_the_paper_says() {
        // Packet with FCS, and Mpps at 10, 40 and 100 Gbit/s, as printed there.
        for (bytes, printed) in [
            (64, [14.88, 59.52, 148.80]),
            (128, [8.44, 33.78, 84.46]),
            (256, [4.52, 18.11, 45.29]),
            (1500, [0.822, 3.28, 8.22]),
        ] {
            for (gbps, printed) in [10.0, 40.0, 100.0].into_iter().zip(printed) {
                let mpps = wire_pps(gbps, bytes - 4) / 1e6;
                assert!((mpps - printed).abs() < 0.012, "{bytes} at {gbps}: {mpps}");
            }
        }
        assert!((wire_pps(40.0, 65_531) / 1e3 - 76.27).abs() < 0.01);
        assert_eq!(wire_pps(10.0, 14), wire_pps(10.0, 60), "padded");
    }

    #[test]
    fn every_paper_has_its_rows() {
        let count = |seed| entries(&[seed]).len();
        assert_eq!((count("000"), count("004")), (26, 14));
        assert_eq!(count("001"), if map().is_some() { 4 } else { 2 });
        let first = entries(&["004"])[0];
        assert!((first.factor() - 2.21).abs() < 0.01);
        assert_eq!(first.policies[1], Policy::Staging);
    }
}

//! Figures of the papers that Grantway grew from, measured on Xen and on their hardware.

use crate::rig::Direction::{self, GuestToGuest, Rx, Tx};
use grantway_backend::policy::Policy;
use grantway_command::args::WaitModeArg;
use serde::{Deserialize, Serialize};

/// A paper, which is mostly a message to a mailing list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Paper {
    /// Number of the paper on the command line.
    pub number: &'static str,
    /// Title of the paper.
    pub title: &'static str,
    /// Authors of the paper.
    pub authors: &'static str,
    /// Year in which it was published.
    pub year: u16,
}

/// All papers, in the order of their numbers.
pub const PAPERS: [Paper; 5] = [
    Paper {
        number: "000",
        title: "Persistent grant maps for xen net drivers",
        authors: "Joao Martins",
        year: 2015,
    },
    Paper {
        number: "001",
        title: "Interesting observation with network event notification and batching",
        authors: "Wei Liu",
        year: 2013,
    },
    Paper {
        number: "002",
        title: "Handle multiple received packets at each stage",
        authors: "Edward Cree",
        year: 2018,
    },
    Paper {
        number: "003",
        title: "Improving the network-stack performance over Xen",
        authors: "Dimosthenis Pediaditakis, David Scott",
        year: 2013,
    },
    Paper {
        number: "004",
        title: "Staging grants for network I/O requests",
        authors: "Joao Martins",
        year: 2017,
    },
];

impl Paper {
    /// Returns the paper in words: number, title, authors and year.
    pub fn words(&self) -> String {
        format!("{}: {}; {}, {}", self.number, self.title, self.authors, self.year)
    }
}

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

/// Packets and slots per interrupt (PPI, SPI) and per turn (PPN, SPN) of a run, and their counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Batches {
    /// Packets per interrupt; `None` if the end was never interrupted, since it never slept.
    pub ppi: Option<f64>,
    /// Slots per interrupt.
    pub spi: Option<f64>,
    /// Packets per turn that found packets; in the paper, per NAPI schedule.
    pub ppn: Option<f64>,
    /// Slots per turn that found packets.
    pub spn: Option<f64>,
    /// Number of interrupts.
    pub interrupts: u64,
    /// Number of turns that found packets; in the paper, of NAPI schedules.
    pub turns: u64,
    /// Number of packets.
    pub packets: u64,
    /// Number of slots.
    pub slots: u64,
}

/// One row of a paper's table.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Number of the paper.
    pub paper: &'static str,
    /// Program, software and hardware of the measurement.
    pub conditions: &'static str,
    /// Difference of our measurement from the paper's, beside host and hardware; empty if none.
    pub apart: &'static str,
    /// Direction of the packets.
    pub direction: Direction,
    /// Frame size in bytes; for a bulk transfer, the size of our frames.
    pub size: usize,
    /// Number of queues.
    pub queues: u16,
    /// Frames that the paper's generator made at a time, or ours if the paper does not say.
    pub burst: u32,
    /// Wait mode of the paper's guest, and of our ends.
    pub mode: WaitModeArg,
    /// Unit of the figures.
    pub unit: Unit,
    /// Figure before the paper's proposal, if the paper has one.
    pub before: Option<f64>,
    /// Figure with the paper's proposal.
    pub after: f64,
    /// Batches before and after, if the paper has them.
    pub batches: Option<[Batches; 2]>,
    /// Our policies that correspond to the two figures.
    pub policies: [Policy; 2],
}

impl Entry {
    /// Returns the factor by which the proposal is faster, if there is a figure before it.
    pub fn factor(&self) -> Option<f64> {
        self.before.map(|before| self.after / before)
    }
}

const PKTGEN: &str = "pktgen burst 1, dom0 and guest, Xen 4.5, Xeon E5-1650 v2";
const MINIOS: &str = "MiniOS guest that polls, pktgen burst 8, Xen 4.5, Xeon E5-1650 v2";
const BULK_A: &str = "iperf TCP, Xen 4.5, Xeon E5-1650 v2";
const BULK_B: &str = "iperf TCP, Xen 4.5, Xeon E5-2697 v2";
const IPERF: &str = "iperf TCP of 64 KiB packets, pages mapped for good";
const NETPERF: &str = "netperf TCP of 64 KiB packets, pages mapped for good";
const STAGED_BULK: &str = "TCP, Linux 4.11 guest and a host behind 100 Gbit/s, Xeon E5-2630 v4";
const STAGED_UDP: &str = "UDP, Linux 4.11 guest and a host behind 100 Gbit/s, Xeon E5-2630 v4";

/// Difference of rows that the papers measured by TCP. `grantway bench stream` has TCP itself.
const FRAMES: &str = "frames of 65,535 B for TCP";
/// Frames at a time where a paper does not say how many: what is there to be sent in a burst.
const MANY: u32 = 32;

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

/// Returns all rows of the papers of these numbers, in the order of the papers.
pub fn entries(papers: &[&str]) -> Vec<Entry> {
    use Unit::{Gbps, Mpps};
    let (persistent, staging) = (Policy::Persistent, Policy::Staging);
    let table = |paper, conditions, unit, after| Entry {
        paper,
        conditions,
        apart: if unit == Gbps { FRAMES } else { "" },
        direction: Tx,
        size: BULK,
        queues: 1,
        burst: MANY,
        mode: WaitModeArg::Adaptive,
        unit,
        before: None,
        after: 0.0,
        batches: None,
        policies: [Policy::Copy, after],
    };
    let mut all = Vec::new();
    let pktgen = Entry { burst: 1, ..table("000", PKTGEN, Mpps, persistent) };
    all.extend(rows(pktgen, &PERSISTENT_PACKETS));
    all.push(Entry {
        direction: Rx,
        size: 64,
        burst: 8,
        mode: WaitModeArg::Busy,
        after: 4.17,
        ..table("000", MINIOS, Mpps, persistent)
    });
    all.extend(rows(table("000", BULK_A, Gbps, persistent), &PERSISTENT_BULK_A));
    all.extend(rows(table("000", BULK_B, Gbps, persistent), &PERSISTENT_BULK_B));
    all.extend(mapped(table("001", IPERF, Gbps, persistent)));
    all.extend(rows(table("004", STAGED_BULK, Gbps, staging), &STAGING_BULK));
    all.extend(rows(table("004", STAGED_UDP, Mpps, staging), &STAGING_PACKETS));
    all.retain(|entry| papers.contains(&entry.paper));
    all
}

/// Returns the rows of a table, each as `table` but for its line.
fn rows(table: Entry, lines: &[Line]) -> impl Iterator<Item = Entry> {
    lines.iter().map(move |&(direction, size, queues, before, after)| Entry {
        direction,
        size,
        queues,
        before: Some(before),
        after,
        policies: [stock(direction), table.policies[1]],
        ..table
    })
}

/// Returns the batches that the paper printed.
const fn batches(per: [f64; 4], [interrupts, turns, packets, slots]: [u64; 4]) -> Batches {
    let [ppi, spi, ppn, spn] = per;
    let (ppi, spi, ppn, spn) = (Some(ppi), Some(spi), Some(ppn), Some(spn));
    Batches { ppi, spi, ppn, spn, interrupts, turns, packets, slots }
}

/// Conditions, Gbit/s and batches of copying, then of mapping.
type Mapped = (&'static str, [f64; 2], [Batches; 2]);

const MAPPED: [Mapped; 2] = [
    (
        IPERF,
        [6.5, 14.0],
        [
            batches([2.90, 37.75, 2.90, 37.75], [31_808, 31_805, 92_354, 1_200_793]),
            batches([1.07, 13.69, 1.07, 13.69], [174_769, 174_697, 187_408, 2_392_614]),
        ],
    ),
    (
        NETPERF,
        [5.8, 10.5],
        [
            batches([2.13, 36.70, 2.13, 36.70], [57_635, 57_633, 122_800, 2_115_068]),
            batches([1.00, 16.73, 1.31, 16.75], [205_599, 205_311, 270_254, 3_439_751]),
        ],
    ),
];

/// Returns the rows of copying against mapping. The paper's pages stay mapped for good, which is
/// the policy persistent here. If there is a policy that maps each packet's pages, it has rows as
/// well.
fn mapped(table: Entry) -> Vec<Entry> {
    let afters: Vec<_> = map().into_iter().chain([Policy::Persistent]).collect();
    let of = |(conditions, [before, after], batches): Mapped| {
        let entry = move |&policy: &Policy| Entry {
            conditions,
            before: Some(before),
            after,
            batches: Some(batches),
            policies: [Policy::Copy, policy],
            ..table
        };
        afters.iter().map(entry)
    };
    MAPPED.into_iter().flat_map(of).collect()
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

/// Returns the packets per second that a link of `gbps` Gbit/s carries, by the formula of paper 004:
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
        let count = |paper| entries(&[paper]).len();
        assert_eq!((count("000"), count("004")), (27, 14));
        assert_eq!((count("002"), count("003")), (0, 0), "no row of packets between two ends");
        assert_eq!(count("001"), if map().is_some() { 4 } else { 2 });
        let first = entries(&["004"])[0];
        assert!((first.factor().unwrap() - 2.21).abs() < 0.01);
        assert_eq!(first.policies[1], Policy::Staging);
    }

    #[test]
    fn rows_have_the_bursts_and_the_waiting_of_their_papers() {
        let all = entries(&["000"]);
        let bursts = |conditions| {
            let of = all.iter().filter(move |entry| entry.conditions == conditions);
            of.map(|entry| (entry.burst, entry.mode)).collect::<Vec<_>>()
        };
        assert_eq!(bursts(PKTGEN), [(1, WaitModeArg::Adaptive); 6]);
        assert_eq!(bursts(MINIOS), [(8, WaitModeArg::Busy)]);
        let minios = all.iter().find(|entry| entry.conditions == MINIOS).unwrap();
        assert_eq!((minios.factor(), minios.after), (None, 4.17), "no figure of before");
    }

    #[test]
    fn printed_quotients_are_those_of_printed_counts() {
        // PPI of netperf with mapping is the one that is not: 1.31 by its counts, 1.00 as printed.
        for (conditions, _, sides) in MAPPED {
            for (side, batches) in sides.into_iter().enumerate() {
                let near = |printed: Option<f64>, of: u64, per: u64| {
                    let counted = of as f64 / per as f64;
                    (printed.unwrap() - counted).abs() < 0.02
                };
                let Batches { ppi, spi, ppn, spn, interrupts, turns, packets, slots } = batches;
                let odd = conditions == NETPERF && side == 1;
                assert_eq!(near(ppi, packets, interrupts), !odd, "{conditions} {side}");
                assert!(near(spi, slots, interrupts), "{conditions} {side}");
                assert!(
                    near(ppn, packets, turns) && near(spn, slots, turns),
                    "{conditions} {side}"
                );
            }
        }
    }

    #[test]
    fn numbers_of_papers_are_in_order() {
        let numbers = PAPERS.map(|paper| paper.number);
        assert_eq!(numbers, ["000", "001", "002", "003", "004"]);
        assert!(PAPERS.iter().all(|paper| !paper.authors.is_empty() && paper.year > 2012));
    }
}

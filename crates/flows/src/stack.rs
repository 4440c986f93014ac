//! Log of a TCP stack in user space about its own flows, to be read beside a capture.
//!
//! A stack knows how much data it held back, and by which window. No capture shows this. Each line
//! of its log is the state of one flow at one moment (`docs/stack-log.md`), and is read as a
//! [`StackSample`]. [`StackLog`] summarises the lines of each flow in bounded memory, and finds the
//! flow of a report.

use crate::report::Report;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Most flows of a log that are kept.
const FLOWS: usize = 2048;
/// Most flows between the same two ends that are kept.
const TURNS: usize = 64;
/// Time by which the clocks of a log and of a capture may differ, in nanoseconds.
const APART: u64 = 1_000_000_000;

/// Line of a log: the state of a flow at a moment, at its sender. Counts begin with the flow. Bytes
/// are bytes of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct StackSample {
    /// Time since 1970, in nanoseconds.
    pub t_ns: u64,
    /// The end that has the stack.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Bytes that were sent, each counted once.
    pub sent: u64,
    /// Bytes that were acknowledged.
    pub acked: u64,
    /// Bytes under way.
    pub in_flight: u64,
    /// The receiver's window in bytes.
    pub window: u64,
    /// Bytes that the application wrote and that are not sent.
    pub unsent: Option<u64>,
    /// The congestion window in bytes, if it held data back.
    pub congestion: Option<u64>,
    /// The last measured round trip in microseconds.
    pub rtt_us: Option<u64>,
    /// The last retransmission timeout, in microseconds.
    pub rto_us: Option<u64>,
    /// Segments that were sent again.
    pub again: u64,
    /// Bytes that were sent again.
    pub again_bytes: u64,
    /// Retransmissions after a timeout.
    pub timeouts: u64,
    /// Retransmissions after acknowledgements that repeat an earlier one.
    pub fast: u64,
    /// Acknowledgements that repeat an earlier one.
    pub duplicate_acks: u64,
}

/// Summary of a sender's log for one direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StackReport {
    /// Lines of the log.
    pub samples: u64,
    /// Lines in which the congestion window held data back.
    pub held_samples: u64,
    /// Bytes that were sent, each counted once.
    pub sent_bytes: u64,
    /// Most bytes under way.
    pub in_flight_max: u64,
    /// The largest window of the receiver.
    pub window_max: u64,
    /// The smallest congestion window that held data back.
    pub congestion_min: Option<u64>,
    /// The largest congestion window that held data back.
    pub congestion_max: Option<u64>,
    /// The shortest round trip.
    pub rtt_min_ms: Option<f64>,
    /// The longest round trip.
    pub rtt_max_ms: Option<f64>,
    /// The longest retransmission timeout.
    pub rto_max_ms: Option<f64>,
    /// Segments that were sent again.
    pub again: u64,
    /// Bytes that were sent again.
    pub again_bytes: u64,
    /// Retransmissions after a timeout.
    pub timeouts: u64,
    /// Retransmissions after acknowledgements that repeat an earlier one.
    pub fast: u64,
    /// Acknowledgements that repeat an earlier one.
    pub duplicate_acks: u64,
}

/// A flow of a log.
#[derive(Debug)]
struct Logged {
    first: u64,
    last: u64,
    report: StackReport,
}

impl Logged {
    fn new(sample: &StackSample) -> Self {
        let report = StackReport {
            samples: 0,
            held_samples: 0,
            sent_bytes: 0,
            in_flight_max: 0,
            window_max: 0,
            congestion_min: None,
            congestion_max: None,
            rtt_min_ms: None,
            rtt_max_ms: None,
            rto_max_ms: None,
            again: 0,
            again_bytes: 0,
            timeouts: 0,
            fast: 0,
            duplicate_acks: 0,
        };
        Self { first: sample.t_ns, last: sample.t_ns, report }
    }

    fn take(&mut self, sample: &StackSample) {
        self.first = self.first.min(sample.t_ns);
        self.last = self.last.max(sample.t_ns);
        let report = &mut self.report;
        report.samples += 1;
        report.held_samples += u64::from(sample.congestion.is_some());
        report.in_flight_max = report.in_flight_max.max(sample.in_flight);
        report.window_max = report.window_max.max(sample.window);
        let ms = |micros: Option<u64>| micros.map(|micros| micros as f64 / 1e3);
        let least =
            |one: Option<f64>, other: Option<f64>| one.into_iter().chain(other).reduce(f64::min);
        let most =
            |one: Option<f64>, other: Option<f64>| one.into_iter().chain(other).reduce(f64::max);
        let congestion = sample.congestion;
        report.congestion_min = report.congestion_min.into_iter().chain(congestion).min();
        report.congestion_max = report.congestion_max.max(congestion);
        report.rtt_min_ms = least(report.rtt_min_ms, ms(sample.rtt_us));
        report.rtt_max_ms = most(report.rtt_max_ms, ms(sample.rtt_us));
        report.rto_max_ms = most(report.rto_max_ms, ms(sample.rto_us));
        report.sent_bytes = sample.sent;
        report.again = sample.again;
        report.again_bytes = sample.again_bytes;
        report.timeouts = sample.timeouts;
        report.fast = sample.fast;
        report.duplicate_acks = sample.duplicate_acks;
    }
}

/// The flows of a log.
#[derive(Debug, Default)]
pub struct StackLog {
    /// Flows by their ends, the earliest first. The local end is the first one.
    flows: BTreeMap<(SocketAddr, SocketAddr), Vec<Logged>>,
    count: usize,
    /// Lines of flows that were too many to keep.
    forgotten: u64,
}

impl StackLog {
    /// Takes a line. Lines of a flow come in the order in which they were written.
    pub fn take(&mut self, sample: &StackSample) {
        let key = (sample.local, sample.remote);
        let full = self.count >= FLOWS;
        let turns = match self.flows.get_mut(&key) {
            Some(turns) => turns,
            None if full => {
                self.forgotten += 1;
                return;
            }
            None => self.flows.entry(key).or_default(),
        };
        // Counts that fall back are those of the next flow between these ends.
        let begins = turns.last().is_none_or(|before| {
            sample.sent < before.report.sent_bytes || sample.again < before.report.again
        });
        if begins {
            if full || turns.len() >= TURNS {
                self.forgotten += 1;
                return;
            }
            self.count += 1;
            turns.push(Logged::new(sample));
        }
        if let Some(flow) = turns.last_mut() {
            flow.take(sample);
        }
    }

    /// Returns the number of flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there is no flow.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of lines whose flows were too many to keep.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Gives each direction of a report its sender's own account, if the log has it. Several flows
    /// between the same ends are told apart by their times. Returns the number of directions that
    /// got one.
    pub fn attach(&self, report: &mut Report) -> usize {
        let mut found = 0;
        for flow in &mut report.flows {
            let (Ok(client), Ok(server)) = (flow.client.parse(), flow.server.parse()) else {
                continue;
            };
            let nanos = |seconds: f64| (seconds * 1e9) as u64;
            let first = report.start.saturating_add(nanos(flow.start_s));
            let last = first.saturating_add(nanos(flow.seconds));
            for (direction, ends) in
                flow.directions.iter_mut().zip([(client, server), (server, client)])
            {
                let turns = self.flows.get(&ends).map_or(&[][..], Vec::as_slice);
                let near = |logged: &&Logged| {
                    logged.first <= last.saturating_add(APART)
                        && first <= logged.last.saturating_add(APART)
                };
                let apart = |logged: &&Logged| logged.first.abs_diff(first);
                direction.stack = match turns {
                    // The clocks may be different ones.
                    [only] => Some(only.report),
                    _ => turns.iter().filter(near).min_by_key(apart).map(|logged| logged.report),
                };
                found += usize::from(direction.stack.is_some());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flows, Limits, Packet, Ring};

    const SECOND: u64 = 1_000_000_000;

    fn sample(second: u64, sent: u64) -> StackSample {
        StackSample {
            t_ns: second * SECOND,
            local: "10.0.0.1:80".parse().unwrap(),
            remote: "10.0.0.2:1000".parse().unwrap(),
            sent,
            acked: sent,
            in_flight: sent / 2,
            window: 65_535,
            unsent: Some(1),
            congestion: Some(sent / 2),
            rtt_us: Some(second * 1000),
            rto_us: None,
            again: sent / 1000,
            again_bytes: sent / 100,
            timeouts: 0,
            fast: 1,
            duplicate_acks: 3,
        }
    }

    /// Returns a report of a segment from the local end at a second.
    fn report(second: u64) -> Report {
        let mut head = vec![0; 12];
        head.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        head.extend([0, 80, 3, 232, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0, 1, 0, 0, 0, 0]);
        let mut flows = Flows::new(Limits::default());
        let (length, ring) = (head.len(), Ring::default());
        let time = second * SECOND;
        flows.packet(&Packet { time, head: &head, length, point: 0, ring });
        flows.report()
    }

    #[test]
    fn a_flow_gets_the_account_of_its_sender() {
        let mut log = StackLog::default();
        for second in 1..=5 {
            log.take(&sample(second, second * 1000));
        }
        let mut report = report(3);
        assert_eq!((log.attach(&mut report), log.len(), log.forgotten()), (1, 1, 0));
        let [own, other] = &report.flows[0].directions;
        let found = own.stack.unwrap();
        assert!(other.stack.is_none());
        assert_eq!((found.samples, found.sent_bytes, found.again), (5, 5000, 5));
        assert_eq!((found.congestion_min, found.congestion_max), (Some(500), Some(2500)));
        assert_eq!((found.rtt_min_ms, found.rtt_max_ms), (Some(1.0), Some(5.0)));
        assert_eq!((found.held_samples, found.rto_max_ms), (5, None));
    }

    #[test]
    fn flows_between_the_same_ends_are_told_apart_by_time() {
        let mut log = StackLog::default();
        // The same ports are used again at second 100, and counts begin anew.
        for (second, sent) in [(1, 10_000), (2, 20_000), (100, 5_000), (101, 7_000)] {
            log.take(&sample(second, sent));
        }
        assert_eq!(log.len(), 2);
        for (second, expected) in [(1, Some(20_000)), (100, Some(7_000)), (50, None)] {
            let mut report = report(second);
            log.attach(&mut report);
            let found = report.flows[0].directions[0].stack;
            assert_eq!(found.map(|found| found.sent_bytes), expected, "at {second} s");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut log = StackLog::default();
        for n in 0..5000_u64 {
            let remote = SocketAddr::from(([10, 1, (n >> 8) as u8, n as u8], 1));
            log.take(&StackSample { remote, ..sample(n, 1) });
        }
        assert_eq!((log.len(), log.forgotten()), (FLOWS, 5000 - FLOWS as u64));
        let mut log = StackLog::default();
        for n in 0..5000 {
            log.take(&sample(n, 1_000_000 - n));
        }
        assert_eq!((log.len(), log.forgotten()), (TURNS, 5000 - TURNS as u64));
    }
}

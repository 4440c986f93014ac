//! Reports of flows, as JSON has them. The names of fields have the units.

use crate::count::{Count, Skipped};
use crate::direction::Direction;
use crate::flow::Flow;
use crate::series::{Bins, Point, Series};
use crate::stack::StackReport;
use crate::stall::{Cause, Stall, Stalls};
use serde::Serialize;

/// The report of an analysis.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Time of the first packet, in nanoseconds. Other times count from here.
    pub start: u64,
    /// Seconds from the first packet to the last.
    pub seconds: f64,
    /// All packets that came.
    pub all: Count,
    /// Packets that are in no flow.
    pub skipped: Skipped,
    /// The flows, the one with most bytes first.
    pub flows: Vec<FlowReport>,
}

/// Report of a flow.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct FlowReport {
    /// Number of the flow, in the order in which flows began.
    pub number: u64,
    /// The end that began the flow or, if that was not seen, sent the first packet.
    pub client: String,
    /// The other end.
    pub server: String,
    /// Point at which the flow was seen: the number of a capture's interface.
    pub point: u32,
    /// Name of the point, if it is known.
    pub point_name: Option<String>,
    /// Number of the outer VLAN; 0 without one.
    pub vlan: u16,
    /// Time of the flow's first packet.
    pub start_s: f64,
    /// Seconds from the flow's first packet to its last.
    pub seconds: f64,
    /// Packets of both directions.
    pub packets: u64,
    /// Bytes of these packets, headers included.
    pub bytes: u64,
    /// True if the end of the flow was seen.
    pub closed: bool,
    /// Data from the client, and data from the server.
    pub directions: [DirectionReport; 2],
    /// Sums of all stalls, by cause.
    pub stall_sums: Vec<StallSum>,
    /// The longest stalls, in order of time.
    pub stalls: Vec<StallReport>,
}

impl FlowReport {
    /// Returns the number of stalls of all causes.
    #[must_use]
    pub fn stall_count(&self) -> u64 {
        self.stall_sums.iter().map(|sum| sum.count).sum()
    }

    /// Returns the direction that carried more payload.
    #[must_use]
    pub fn main(&self) -> usize {
        usize::from(self.directions[1].payload_bytes > self.directions[0].payload_bytes)
    }
}

/// Stalls of one cause.
#[derive(Debug, Clone, Copy, Serialize)]
#[non_exhaustive]
pub struct StallSum {
    /// The cause.
    pub cause: Cause,
    /// Number of stalls.
    pub count: u64,
    /// Seconds of all stalls together.
    pub seconds: f64,
}

/// Report of a stall.
#[derive(Debug, Clone, Copy, Serialize)]
#[non_exhaustive]
pub struct StallReport {
    /// Start of the stall.
    pub at_s: f64,
    /// Length of the stall.
    pub seconds: f64,
    /// Cause of the stall.
    pub cause: Cause,
    /// Direction that stalled: 0 from the client, 1 from the server.
    pub direction: usize,
    /// True if data came again.
    pub ended: bool,
}

/// Data of one end, and the answers of the other end to it.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct DirectionReport {
    /// Packets of this sender.
    pub packets: u64,
    /// Bytes of these packets, headers included.
    pub bytes: u64,
    /// Bytes of payload, each counted once.
    pub payload_bytes: u64,
    /// Payload per time of the flow.
    pub mbit_per_second: f64,
    /// Segments that were sent again.
    pub retransmissions: u64,
    /// Bytes of payload that were sent again.
    pub retransmitted_bytes: u64,
    /// Segments that were overtaken by others.
    pub out_of_order: u64,
    /// Acknowledgements that repeat an earlier one.
    pub duplicate_acks: u64,
    /// Number of times that the receiver shut its window.
    pub zero_windows: u64,
    /// Bytes that were acknowledged, but not captured.
    pub not_captured_bytes: u64,
    /// Segments whose numbers are too far off for the flow.
    pub odd: u64,
    /// Most bytes under way.
    pub in_flight_max: u64,
    /// The largest window; 0 if the handshake, and so the scale, was not seen.
    pub window_max: u64,
    /// Round trips from data to its acknowledgement; `None` if none was measured.
    pub rtt: Option<TripReport>,
    /// Time with nothing to send.
    pub idle_s: f64,
    /// Time with data under way.
    pub waiting_s: f64,
    /// Time without a window.
    pub blocked_s: f64,
    /// The sender's own account, if its stack keeps one.
    pub stack: Option<StackReport>,
    /// Points of the plots.
    #[serde(skip)]
    pub lines: LinesReport,
}

/// Round trips of a direction.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct TripReport {
    /// Number of measured round trips.
    pub samples: u64,
    /// The shortest round trip.
    pub min_ms: f64,
    /// The mean round trip.
    pub mean_ms: f64,
    /// The longest round trip.
    pub max_ms: f64,
}

/// Points over time. Neighbours are merged, with their smallest and largest value. Times are in
/// seconds from the start of the report.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LinesReport {
    /// Bytes since the first one, at the ends of segments.
    pub sent: Vec<(f64, f64, f64)>,
    /// Bytes since the first one, at the ends of segments that were sent again.
    pub again: Vec<(f64, f64, f64)>,
    /// Bytes that were acknowledged.
    pub acked: Vec<(f64, f64, f64)>,
    /// Round trips in milliseconds.
    pub rtt: Vec<(f64, f64, f64)>,
    /// Bytes under way.
    pub in_flight: Vec<(f64, f64, f64)>,
    /// The window in bytes.
    pub window: Vec<(f64, f64, f64)>,
    /// Mbit/s of payload: start of the first bin, width of each bin, and the rate of each bin.
    pub throughput: (f64, f64, Vec<f64>),
}

/// Returns nanoseconds as seconds.
pub(crate) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn milliseconds(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// Makes the report of a flow and its stalls. Times count from `start`.
pub(crate) fn flow(
    flow: &Flow,
    point_name: Option<&str>,
    stalls: &Stalls,
    start: u64,
) -> FlowReport {
    let whole = seconds(flow.last.saturating_sub(flow.first));
    let mut kept = stalls.kept().to_vec();
    kept.sort_by_key(|stall| (stall.from, stall.direction));
    let [client, server] = &flow.directions;
    FlowReport {
        number: flow.number,
        client: flow.ends[0].to_string(),
        server: flow.ends[1].to_string(),
        point: flow.point,
        point_name: point_name.map(str::to_owned),
        vlan: flow.vlan,
        start_s: seconds(flow.first.saturating_sub(start)),
        seconds: whole,
        packets: flow.packets,
        bytes: flow.wire,
        closed: flow.closed,
        directions: [direction(client, whole, start), direction(server, whole, start)],
        stall_sums: stalls
            .sums()
            .map(|(cause, count, time)| StallSum { cause, count, seconds: seconds(time) })
            .collect(),
        stalls: kept.iter().map(|stall| self::stall(stall, start)).collect(),
    }
}

fn stall(stall: &Stall, start: u64) -> StallReport {
    StallReport {
        at_s: seconds(stall.from.saturating_sub(start)),
        seconds: seconds(stall.length()),
        cause: stall.cause,
        direction: stall.direction,
        ended: stall.ended,
    }
}

fn direction(of: &Direction, whole: f64, start: u64) -> DirectionReport {
    let [idle, waiting, blocked] = of.limited.map(seconds);
    let trips = &of.trips;
    let rtt = (trips.count > 0).then(|| TripReport {
        samples: trips.count,
        min_ms: milliseconds(trips.min),
        mean_ms: milliseconds(trips.sum / trips.count),
        max_ms: milliseconds(trips.max),
    });
    DirectionReport {
        packets: of.packets,
        bytes: of.wire,
        payload_bytes: of.bytes,
        mbit_per_second: if whole > 0.0 { of.bytes as f64 * 8.0 / 1e6 / whole } else { 0.0 },
        retransmissions: of.resent,
        retransmitted_bytes: of.resent_bytes,
        out_of_order: of.late,
        duplicate_acks: of.duplicates,
        zero_windows: of.zero_windows,
        not_captured_bytes: of.missed,
        odd: of.odd,
        in_flight_max: of.flight_max,
        window_max: of.window_max,
        rtt,
        idle_s: idle,
        waiting_s: waiting,
        blocked_s: blocked,
        stack: None,
        lines: lines(of, start),
    }
}

fn lines(of: &Direction, start: u64) -> LinesReport {
    let points = |series: &Series, scale: f64| {
        let point = |p: &Point| {
            let time = seconds(p.time.saturating_sub(start));
            (time, p.min as f64 / scale, p.max as f64 / scale)
        };
        series.points().iter().map(point).collect()
    };
    LinesReport {
        sent: points(&of.lines.sent, 1.0),
        again: points(&of.lines.again, 1.0),
        acked: points(&of.lines.acked, 1.0),
        rtt: points(&of.lines.trips, 1e6),
        in_flight: points(&of.lines.flight, 1.0),
        window: points(&of.lines.window, 1.0),
        throughput: throughput(&of.bins, start),
    }
}

fn throughput(bins: &Bins, start: u64) -> (f64, f64, Vec<f64>) {
    let (first, width) = bins.scale();
    let rates = bins.bytes().iter().map(|&bytes| bytes as f64 * 8e3 / width as f64);
    (seconds(first.saturating_sub(start)), seconds(width), rates.collect())
}

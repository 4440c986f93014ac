//! The log of the stack's own flows (`docs/stack-log.md`), kept in memory until somebody asks for it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt::Write;
use core::time::Duration;
use grantway_stack::smoltcp::wire::IpEndpoint;
use grantway_stack::{FlowLine, FlowState};

/// Most lines that are kept. Each takes 200 bytes, and up to 400 as text.
const LINES: usize = 256;
/// Least time between two lines of a flow, as long as all lines have room.
const EVERY: Duration = Duration::from_millis(10);

/// Both ends of a flow, the own one first.
type Ends = (IpEndpoint, IpEndpoint);

/// The log. If there are too many lines, every other one of a flow goes, and from then on lines are
/// taken half as often: what is kept is the whole time, ever more coarsely.
#[derive(Debug)]
pub struct FlowsLog {
    lines: Vec<FlowLine>,
    /// The latest states, which are not among the lines.
    latest: BTreeMap<Ends, FlowLine>,
    every: Duration,
    /// Time at which the latest states were added to the lines.
    last: Duration,
}

impl Default for FlowsLog {
    fn default() -> Self {
        let (lines, latest) = (Vec::new(), BTreeMap::new());
        Self { lines, latest, every: EVERY, last: Duration::ZERO }
    }
}

impl FlowsLog {
    /// Notes the state of a flow at a time since 1970.
    pub fn note(&mut self, state: FlowState, time: Duration) {
        self.latest.insert((state.local, state.remote), FlowLine { time, state });
    }

    /// Adds a line for each flow that moved since its last one, if it is time for it.
    pub fn add(&mut self, now: Duration) {
        let due = now.saturating_sub(self.last) >= self.every || self.latest.len() >= LINES / 2;
        if self.latest.is_empty() || !due {
            return;
        }
        self.last = now;
        self.lines.extend(core::mem::take(&mut self.latest).into_values());
        while self.lines.len() > LINES {
            self.thin();
        }
    }

    /// Drops every other line of each flow, but not the last one of it. If all flows have few lines,
    /// drops the oldest lines.
    fn thin(&mut self) {
        let before = self.lines.len();
        let mut odd = BTreeMap::<Ends, bool>::new();
        // From the last one of each on.
        let mut kept: Vec<FlowLine> = Vec::with_capacity(LINES);
        for line in self.lines.iter().rev() {
            let ends = (line.state.local, line.state.remote);
            let odd = odd.entry(ends).or_default();
            *odd = !*odd;
            if *odd {
                kept.push(*line);
            }
        }
        kept.reverse();
        if kept.len() * 4 > before * 3 {
            kept.drain(..before / 4);
        }
        self.lines = kept;
        self.every = self.every.saturating_mul(2);
    }

    /// Returns all lines as text.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        let mut text = alloc::string::String::new();
        for line in self.lines.iter().chain(self.latest.values()) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{line}");
        }
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(port: u16, sent: u64) -> FlowState {
        let local = IpEndpoint::new("10.0.0.2".parse().unwrap(), port);
        let remote = IpEndpoint::new("10.0.0.1".parse().unwrap(), 5001);
        FlowState { sent, ..FlowState::new(local, remote) }
    }

    /// Returns ports and sent bytes of all lines.
    fn told(log: &FlowsLog) -> Vec<(u16, u64)> {
        let all = log.lines.iter().chain(log.latest.values());
        all.map(|line| (line.state.local.port, line.state.sent)).collect()
    }

    #[test]
    fn a_flow_has_a_line_at_most_each_ten_milliseconds_and_one_of_its_end() {
        let mut log = FlowsLog::default();
        for n in 0..=25_u64 {
            let now = Duration::from_millis(1000 + n);
            log.note(state(1, n), now);
            log.add(now);
        }
        assert_eq!(told(&log), [(1, 0), (1, 10), (1, 20), (1, 25)]);
        let text = alloc::string::String::from_utf8(log.text()).unwrap();
        assert!(text.ends_with("\"duplicate_acks\":0}\n") && text.lines().count() == 4, "{text}");
    }

    #[test]
    fn a_long_log_keeps_the_whole_time_and_each_flows_end() {
        let mut log = FlowsLog::default();
        let first = Duration::from_secs(5);
        log.note(state(9, 77), first);
        log.add(first);
        for n in 1..100_000_u64 {
            let now = first + Duration::from_millis(10) * n as u32;
            log.note(state(1, n), now);
            log.add(now);
            assert!(log.lines.len() <= LINES, "{n}");
        }
        let told = told(&log);
        assert_eq!((told[0], told.last()), ((9, 77), Some(&(1, 99_999))));
        let sent: Vec<_> = told[1..].iter().map(|(_, sent)| *sent).collect();
        // Neighbours are as far apart as the log has become coarse.
        assert!(sent.len() >= LINES / 2 - 1 && sent[0] < 2000, "{sent:?}");
        assert!(
            sent.windows(2).all(|pair| pair[0] < pair[1] && pair[1] - pair[0] <= 2048),
            "{sent:?}"
        );
    }

    #[test]
    fn the_log_of_many_flows_is_bounded() {
        let mut log = FlowsLog::default();
        for n in 0..5000_u16 {
            log.note(state(n, 1), Duration::from_secs(1));
            log.add(Duration::from_secs(1));
            assert!(log.lines.len() <= LINES && log.latest.len() <= LINES / 2, "{n}");
        }
        // The newest are there.
        assert_eq!(told(&log).last(), Some(&(4999, 1)));
    }
}

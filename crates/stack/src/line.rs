//! A line of the log of a stack (`docs/stack-log.md`).

use crate::log::FlowState;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use smoltcp::wire::IpEndpoint;

/// State of a flow at one moment. Its `Display` is a line of the log, without the end of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowLine {
    /// Time since 1970 (UTC), by the clock of captures.
    pub time: Duration,
    /// State of the flow.
    pub state: FlowState,
}

/// A value, or `null`.
struct Known<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Known<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("null"),
        }
    }
}

/// Returns an end in the form of `std::net::SocketAddr`, with brackets around an IPv6 address.
fn end(of: IpEndpoint) -> SocketAddr {
    SocketAddr::new(IpAddr::from(of.addr), of.port)
}

impl fmt::Display for FlowLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = &self.state;
        let micros = |time: Option<smoltcp::time::Duration>| Known(time.map(|t| t.total_micros()));
        write!(f, "{{\"t_ns\":{}", u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX))?;
        write!(f, ",\"local\":\"{}\",\"remote\":\"{}\"", end(state.local), end(state.remote))?;
        write!(f, ",\"sent\":{},\"acked\":{}", state.sent, state.acked)?;
        write!(f, ",\"in_flight\":{},\"window\":{}", state.in_flight, state.window)?;
        write!(f, ",\"unsent\":{}", Known(state.unsent))?;
        write!(f, ",\"congestion\":{}", Known(state.congestion))?;
        write!(f, ",\"rtt_us\":{},\"rto_us\":{}", micros(state.rtt), micros(state.rto))?;
        write!(f, ",\"again\":{},\"again_bytes\":{}", state.again, state.again_bytes)?;
        write!(f, ",\"timeouts\":{},\"fast\":{}", state.timeouts, state.fast)?;
        write!(f, ",\"duplicate_acks\":{}}}", state.duplicate_acks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_line_is_an_object_of_json_with_all_keys() {
        let mut state = FlowState {
            local: IpEndpoint::new("fd00::2".parse().unwrap(), 80),
            remote: IpEndpoint::new("fd00::1".parse().unwrap(), 1000),
            sent: 1,
            acked: 2,
            in_flight: 3,
            window: 4,
            unsent: Some(5),
            congestion: None,
            rtt: Some(smoltcp::time::Duration::from_micros(6)),
            rto: None,
            again: 7,
            again_bytes: 8,
            timeouts: 9,
            fast: 10,
            duplicate_acks: 11,
        };
        let time = Duration::new(1_700_000_000, 12);
        let text = FlowLine { time, state }.to_string();
        assert_eq!(
            text,
            "{\"t_ns\":1700000000000000012,\"local\":\"[fd00::2]:80\",\"remote\":\"[fd00::1]:1000\",\
             \"sent\":1,\"acked\":2,\"in_flight\":3,\"window\":4,\"unsent\":5,\"congestion\":null,\
             \"rtt_us\":6,\"rto_us\":null,\"again\":7,\"again_bytes\":8,\"timeouts\":9,\"fast\":10,\
             \"duplicate_acks\":11}"
        );
        state.local.addr = "10.0.0.2".parse().unwrap();
        (state.unsent, state.congestion) = (None, Some(14_600));
        let text = FlowLine { time, state }.to_string();
        assert!(text.contains("\"local\":\"10.0.0.2:80\""), "{text}");
        assert!(text.contains("\"unsent\":null,\"congestion\":14600,"), "{text}");
    }
}

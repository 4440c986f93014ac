//! The printed results of a test: lines like iperf's, or JSON.

use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_iperf2::Report;
use serde_json::{Value, json};
use std::time::Duration;

/// The subject of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A part of a test that goes on.
    Interval,
    /// A whole test, as this end saw it.
    End,
    /// All streams of a test.
    Sum,
    /// A whole test by UDP, as its server saw it.
    Server,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Interval => "interval",
            Self::End => "end",
            Self::Sum => "sum",
            Self::Server => "server",
        }
    }
}

/// A line of a report.
#[derive(Debug, Clone)]
pub struct Line {
    /// Its subject.
    pub kind: Kind,
    /// Number of the stream, from 1 on. 0 is all of them.
    pub stream: u32,
    /// Name of the other end, as both ends write it.
    pub peer: String,
    /// Start of the line's time, since the test began.
    pub from: Duration,
    /// End of the line's time, since the test began.
    pub to: Duration,
    /// Bytes of payload.
    pub bytes: u64,
    /// Counts of datagrams, if the end that counts them reports.
    pub datagrams: Option<Report>,
    /// Time that a client waited for its server: for its address, and a handshake.
    pub connect: Option<Duration>,
}

impl Line {
    fn rate(&self) -> f64 {
        let seconds = self.to.saturating_sub(self.from).as_secs_f64();
        if seconds > 0.0 { self.bytes as f64 * 8.0 / seconds } else { 0.0 }
    }

    /// Returns the line in words.
    pub fn text(&self) -> String {
        let stream = match self.stream {
            0 => "SUM".to_owned(),
            stream => format!("{stream:3}"),
        };
        let mut text = format!(
            "[{stream}] {:.4}-{:.4} sec  {}B  {}bit/s",
            self.from.as_secs_f64(),
            self.to.as_secs_f64(),
            scaled(self.bytes as f64),
            scaled(self.rate()),
        );
        if let Some(report) = &self.datagrams {
            let percent = 100.0 * f64::from(report.lost) / f64::from(report.datagrams.max(1));
            text += &format!(
                "  {:.3} ms  {}/{} ({percent:.2} %) lost",
                report.jitter.as_secs_f64() * 1e3,
                report.lost,
                report.datagrams
            );
            if report.out_of_order > 0 {
                text += &format!(", {} out of order", report.out_of_order);
            }
        }
        match self.kind {
            Kind::Server => text + "  (the server's report)",
            _ => text,
        }
    }

    /// Returns the line as an object.
    pub fn json(&self) -> Value {
        let mut object = json!({
            "kind": self.kind.name(),
            "stream": self.stream,
            "peer": self.peer,
            "from_s": self.from.as_secs_f64(),
            "to_s": self.to.as_secs_f64(),
            "bytes": self.bytes,
            "bits_per_second": self.rate(),
        });
        if let Some(report) = &self.datagrams {
            object["datagrams"] = report.datagrams.into();
            object["lost"] = report.lost.into();
            object["out_of_order"] = report.out_of_order.into();
            object["jitter_ms"] = (report.jitter.as_secs_f64() * 1e3).into();
        }
        if let Some(connect) = self.connect {
            object["connect_ms"] = (connect.as_secs_f64() * 1e3).into();
        }
        object
    }

    /// Prints the line, as JSON if `json` is set.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written.
    pub fn print(&self, json: bool) -> Result<(), CommandError> {
        output::line(if json { self.json().to_string() } else { self.text() })
    }
}

/// Returns a number with three digits and a decimal prefix.
fn scaled(number: f64) -> String {
    let prefixes = ["", "k", "M", "G", "T"];
    let mut number = number;
    let mut at = 0;
    while number >= 999.5 && at + 1 < prefixes.len() {
        number /= 1000.0;
        at += 1;
    }
    let digits = match number {
        n if n < 9.995 => 2,
        n if n < 99.95 => 1,
        _ => 0,
    };
    format!("{number:.digits$} {}", prefixes[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_rates() {
        let mut line = Line {
            kind: Kind::End,
            stream: 1,
            peer: "10.0.0.1:5001".into(),
            from: Duration::ZERO,
            to: Duration::from_secs(2),
            bytes: 2_500_000_000,
            datagrams: None,
            connect: None,
        };
        assert_eq!(line.text(), "[  1] 0.0000-2.0000 sec  2.50 GB  10.0 Gbit/s");
        assert_eq!(line.json()["bits_per_second"], 1e10);
        let jitter = Duration::from_micros(5);
        line.datagrams = Some(Report { lost: 1, datagrams: 50, jitter, ..Default::default() });
        (line.kind, line.stream, line.to) = (Kind::Server, 0, Duration::ZERO);
        assert!(
            line.text()
                .ends_with("0.00 bit/s  0.005 ms  1/50 (2.00 %) lost  (the server's report)")
        );
        assert!(line.text().starts_with("[SUM] "));
        assert_eq!((&line.json()["lost"], &line.json()["datagrams"]), (&1.into(), &50.into()));
    }

    #[test]
    fn prefixes_are_decimal() {
        for (number, text) in [
            (0.0, "0.00 "),
            (999.4, "999 "),
            (999.6, "1.00 k"),
            (12_345.0, "12.3 k"),
            (1e18, "1000000 T"),
        ] {
            assert_eq!(scaled(number), text);
        }
    }
}

//! Options of more than one program, and the end of a wrong command line.

use clap::error::ErrorKind;
use clap::{Args, ValueEnum};
use grantway_netif::Policy;
use grantway_ports::quantity::{TimeUnit, duration};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;

/// Most queues that a vif may have.
pub const QUEUES_MAX: i64 = grantway_backend::MAX_QUEUES as i64;
/// Largest number of a domain.
pub const DOMAIN_MAX: i64 = grantway_hypervisor::DomId::FIRST_RESERVED as i64 - 1;

/// Wait mode of a thread without work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WaitModeArg {
    /// Never sleep. Takes a whole processor, has the lowest latency.
    Busy,
    /// Poll for 50 us, then sleep.
    Adaptive,
    /// Sleep at once.
    Interrupt,
}

impl WaitModeArg {
    /// All modes, from the one that never sleeps on.
    pub const ALL: [Self; 3] = [Self::Busy, Self::Adaptive, Self::Interrupt];

    /// Returns the mode's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Adaptive => "adaptive",
            Self::Interrupt => "interrupt",
        }
    }
}

/// The way in which frames get into the buffers that they are sent from, and out of the buffers
/// that they were received in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    /// Frames are copied.
    Copy,
    /// A generator writes frames directly into the buffers, and a checker reads them there.
    Lend,
}

impl Api {
    /// Returns the API's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Lend => "lend",
        }
    }
}

/// A switch for something that is used or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Used.
    On,
    /// Not used.
    Off,
}

impl Switch {
    /// Returns true if the switch is on.
    #[must_use]
    pub fn is_on(self) -> bool {
        self == Self::On
    }

    /// Returns the switch's value on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        if self.is_on() { "on" } else { "off" }
    }
}

/// The guest that a frontend runs in.
#[derive(Debug, Args)]
pub struct GuestArgs {
    /// Directory of the embedded host. Default: the Xen domain that this machine is.
    #[arg(long, value_name = "DIR", requires = "domain")]
    pub host: Option<PathBuf>,
    /// Domain of the embedded host.
    #[arg(long, value_name = "N", requires = "host", allow_negative_numbers = true, value_parser = within::<u16>(1..=DOMAIN_MAX))]
    pub domain: Option<u16>,
    /// Directory of sockets on Xen.
    #[arg(long, value_name = "DIR", default_value = crate::place::RUN_FOLDER, conflicts_with = "host")]
    pub run_dir: PathBuf,
}

/// The buffer policy that a frontend asks for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BufferPolicy {
    /// The best policy that both ends support: staging, then persistent, then copy.
    #[default]
    Auto,
    /// One grant copy per slot. Works with any backend.
    Copy,
    /// Pages stay mapped after their first use (feature-persistent).
    Persistent,
    /// Pages that the frontend lists over the control ring stay mapped.
    Staging,
}

impl BufferPolicy {
    /// Returns the best policy that the frontend accepts.
    #[must_use]
    pub fn kind(self) -> Policy {
        match self {
            Self::Copy => Policy::Copy,
            Self::Persistent => Policy::Persistent,
            Self::Auto | Self::Staging => Policy::Staging,
        }
    }

    /// Returns its name on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            _ => self.kind().as_str(),
        }
    }
}

/// Returns a reader of whole numbers within bounds. The reader's error names the bounds.
pub fn within<T: TryFrom<i64> + Clone + Send + Sync + 'static>(
    bounds: RangeInclusive<i64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        let (from, to) = (bounds.start(), bounds.end());
        number
            .and_then(|number: i64| T::try_from(number).ok())
            .ok_or_else(|| format!("expected a whole number from {from} to {to}"))
    }
}

/// Reads a time in seconds, at least a hundredth and at most a day: `2`, `0.5`, `500ms`, `2min`.
pub fn seconds(text: &str) -> Result<f64, String> {
    let time = duration(text, TimeUnit::Seconds).map(|time| time.as_secs_f64());
    time.filter(|s| (0.01..=86_400.0).contains(s)).ok_or_else(|| {
        "expected a time from 0.01 to 86400 seconds, such as 2, 0.5, 500ms or 2min".to_owned()
    })
}

/// Returns a reader of times of whole seconds within bounds: `4`, `4s`, `2min`.
pub fn whole_seconds(
    bounds: RangeInclusive<u32>,
) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    move |text| {
        let time = duration(text, TimeUnit::Seconds).filter(|time| time.subsec_nanos() == 0);
        let seconds = time.and_then(|time| u32::try_from(time.as_secs()).ok());
        seconds.filter(|seconds| bounds.contains(seconds)).ok_or_else(|| {
            let (from, to) = (bounds.start(), bounds.end());
            format!("expected a time from {from} to {to} whole seconds, such as 4 or 2min")
        })
    }
}

/// Returns a reader of times of whole milliseconds, at least `least` of them: `100`, `100ms`, `2s`.
pub fn milliseconds(
    least: u32,
) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    move |text| {
        let time = duration(text, TimeUnit::Milliseconds);
        let time = time.filter(|time| time.subsec_nanos().is_multiple_of(1_000_000));
        let number = time.and_then(|time| u32::try_from(time.as_millis()).ok());
        number.filter(|number| *number >= least).ok_or_else(|| {
            format!("expected a time of at least {least} whole ms, such as 100, 100ms or 2s")
        })
    }
}

/// Prints help and version as they are, and any error in one line. Returns the exit status, which
/// is 2 for an error.
pub fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // If printing fails, there is no reader to be told.
        let _ = error.print();
        return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
    }
    eprintln!("grantway: {}; see --help", one_line(error));
    ExitCode::from(2)
}

/// Returns the message of an error in one line, without the usage.
#[must_use]
pub fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim);
    let told =
        lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let told = joined(told.filter(|line| !line.is_empty()));
    told.strip_prefix("error: ").unwrap_or(&told).to_owned()
}

/// Joins lines to one. A line that ends with a colon goes on in the next.
fn joined<'l>(lines: impl Iterator<Item = &'l str>) -> String {
    lines.fold(String::new(), |all, line| {
        let between = if all.is_empty() {
            ""
        } else if all.ends_with(':') {
            " "
        } else {
            "; "
        };
        all + between + line
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_with_its_parts_apart() {
        let lines = ["unrecognized subcommand 'atach'", "tip: try:", "attach", "detach"];
        let line = "unrecognized subcommand 'atach'; tip: try: attach; detach";
        assert_eq!(joined(lines.into_iter()), line);
        assert_eq!(joined(std::iter::empty()), "");
    }

    #[test]
    fn seconds_have_bounds() {
        for text in ["0.5", "0.5s", "500ms"] {
            assert_eq!(seconds(text), Ok(0.5), "{text}");
        }
        for text in ["", "0", "-1", "nan", "inf", "1e9", "1ms", "25h"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        let whole = whole_seconds(1..=3600);
        assert_eq!([whole("4"), whole("2min"), whole("1000ms")], [Ok(4), Ok(120), Ok(1)]);
        for text in ["", "0", "0.5", "1500ms", "2h"] {
            assert!(whole(text).is_err(), "{text}");
        }
        let milliseconds = milliseconds(1);
        assert_eq!([milliseconds("100"), milliseconds("2s")], [Ok(100), Ok(2000)]);
        for text in ["", "0", "0.5", "1us", "5000000s"] {
            assert!(milliseconds(text).is_err(), "{text}");
        }
    }
}

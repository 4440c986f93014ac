//! Options that more than one program has, and what a wrong command line ends with.

use clap::error::ErrorKind;
use clap::{Args, ValueEnum};
use grantway_netif::Policy;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;

/// Most queues that a vif may have.
pub const QUEUES_MAX: i64 = grantway_backend::MAX_QUEUES as i64;
/// The largest number of a domain.
pub const DOMAIN_MAX: i64 = grantway_hypervisor::DomId::FIRST_RESERVED as i64 - 1;

/// How to wait when there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WaitModeArg {
    /// Never sleep: a processor for the shortest latency.
    Busy,
    /// Look for 50 us, then sleep.
    Adaptive,
    /// Sleep at once.
    Interrupt,
}

impl WaitModeArg {
    /// All of them, the one that never sleeps first.
    pub const ALL: [Self; 3] = [Self::Busy, Self::Adaptive, Self::Interrupt];

    /// Its name, as on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Adaptive => "adaptive",
            Self::Interrupt => "interrupt",
        }
    }
}

/// How frames get into the buffers that they are sent from, and out of those that
/// they were received in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    /// They are copied.
    Copy,
    /// A generator makes them there, and a checker judges them there.
    Lend,
}

impl Api {
    /// Its name, as on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Lend => "lend",
        }
    }
}

/// Something that is used, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Used.
    On,
    /// Not used.
    Off,
}

impl Switch {
    /// Whether it is on.
    #[must_use]
    pub fn is_on(self) -> bool {
        self == Self::On
    }

    /// As on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        if self.is_on() { "on" } else { "off" }
    }
}

/// The guest that a frontend runs in.
#[derive(Debug, Args)]
pub struct GuestArgs {
    /// Folder of the embedded host; the Xen domain that this machine is where
    /// missing.
    #[arg(long, value_name = "DIR", requires = "domain")]
    pub host: Option<PathBuf>,
    /// The domain of the embedded host.
    #[arg(long, value_name = "N", requires = "host", allow_negative_numbers = true, value_parser = within::<u16>(1..=DOMAIN_MAX))]
    pub domain: Option<u16>,
    /// Folder of sockets on Xen.
    #[arg(long, value_name = "DIR", default_value = crate::place::RUN_FOLDER, conflicts_with = "host")]
    pub run_dir: PathBuf,
}

/// How the two ends of a vif agree that buffers cross.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BufferPolicy {
    /// A grant copy for each slot, as with any backend and any frontend.
    Copy,
    /// Pages stay mapped once they were seen (feature-persistent).
    Persistent,
    /// Pages are mapped that the frontend lists over the control ring.
    Staging,
}

impl BufferPolicy {
    /// As the ends have it.
    #[must_use]
    pub fn kind(self) -> Policy {
        match self {
            Self::Copy => Policy::Copy,
            Self::Persistent => Policy::Persistent,
            Self::Staging => Policy::Staging,
        }
    }
}

/// Reads a whole number within bounds; what is none is told them, too.
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

/// Seconds: at least a hundredth, at most a day.
pub fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|s| (0.01..=86_400.0).contains(s));
    number.ok_or_else(|| "expected seconds from 0.01 to 86400, such as 2 or 0.5".to_owned())
}

/// Help and version as they are; anything else in one line, with status 2.
pub fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Nobody is there to be told that it cannot be printed.
        let _ = error.print();
        return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
    }
    let text = error.to_string();
    let lines = text.lines().map(str::trim);
    let told =
        lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let told: Vec<&str> = told.filter(|line| !line.is_empty()).collect();
    let told = told.join(" ");
    eprintln!("grantway: {}; see --help", told.strip_prefix("error: ").unwrap_or(&told));
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_bounds() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for text in ["", "0", "-1", "nan", "inf", "1e9", "1s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}

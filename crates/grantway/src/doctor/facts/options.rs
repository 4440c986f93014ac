//! Facts about the file of options that the backend's units name.

use crate::args::backend_definition;
use crate::config;
use crate::doctor::roots::Roots;
use grantway_ports::TextFault;
use std::io::ErrorKind;

/// File of options, below the root.
pub const OPTIONS: &str = "etc/grantway/backend.toml";
/// Folders of systemd's units, and the units.
const UNIT_FOLDERS: [&str; 4] = [
    "etc/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];
const UNITS: [&str; 2] = ["grantway-backend.service", "grantway-backend-domU.service"];

/// State of the file of options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionsFact {
    /// There is no such file, and no unit names it.
    Unused,
    /// There is no such file, but a unit names it.
    Missing,
    /// The file cannot be read.
    Unreadable(String),
    /// The file is valid.
    Valid,
    /// The first fault of the file.
    Invalid(TextFault),
}

impl OptionsFact {
    /// Reads the file.
    pub fn gather(roots: &Roots) -> Self {
        let units =
            UNIT_FOLDERS.iter().flat_map(|folder| UNITS.map(|unit| format!("{folder}/{unit}")));
        let named = |unit: String| roots.text(unit).is_some_and(|text| text.contains(OPTIONS));
        match std::fs::read_to_string(roots.at(OPTIONS)) {
            Ok(text) => {
                config::fault_of(&backend_definition(), &text).map_or(Self::Valid, Self::Invalid)
            }
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Self::Unreadable(error.to_string())
            }
            Err(_) if units.into_iter().any(named) => Self::Missing,
            Err(_) => Self::Unused,
        }
    }
}

//! Facts about backends, by the sockets in their run folder.

use crate::doctor::bound::within;
use crate::doctor::roots::names;
use crate::shares::{Part, Parts};
use grantway_backend::Checksums;
use grantway_command::control;
use serde::Deserialize;
use serde_json::Value;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// Facts about the backends of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendFact {
    /// No backend listens.
    Absent,
    /// The user may not ask the backend, or may not read the folder.
    Denied {
        /// Path of the socket or of the folder.
        socket: String,
    },
    /// A backend listens, but gives no report in time.
    Silent {
        /// Path of the socket.
        socket: String,
    },
    /// At least one backend gave a report.
    Serves {
        /// Vifs of all backends.
        vifs: Vec<Served>,
        /// Limits of each backend of the folder, and how much of them is used.
        bounds: Vec<Bounds>,
        /// Uplinks of the backends' own bridges.
        uplinks: Vec<Uplink>,
        /// Port of the vifs of each backend, from its command line.
        ports: Vec<String>,
    },
}

/// Limits of resources that all vifs of a backend share, and of its rounds and steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Used and largest amount of each share.
    pub shares: Parts,
    /// Longest round of any worker and its limit, in nanoseconds.
    pub round: Part,
    /// Longest step of the control thread and its limit, in pages mapped or unmapped.
    pub control: Part,
}

/// An uplink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uplink {
    /// Name of the port, such as `packet:eth0`.
    pub name: String,
    /// State of the interface behind the port, or of the port.
    pub state: String,
    /// The error that ended the port; empty if there was none.
    pub error: String,
}

/// A vif that a backend serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served {
    /// Name of the vif, such as `vif1.0`.
    pub name: String,
    /// True if packets may flow.
    pub connected: bool,
    /// Buffer policy that was agreed on; empty if the backend does not report it.
    pub policy: String,
    /// Pages of buffers that are mapped now.
    pub mapped: u64,
    /// True if the vif's checksums are full.
    pub full_checksums: bool,
}

impl BackendFact {
    /// Asks each backend that listens in the folder, and waits up to `patience` for each.
    pub fn gather(folder: &Path, patience: Duration) -> Self {
        let is_backend = |name: &String| name.starts_with("backend-") && name.ends_with(".sock");
        // The backend's unit makes a folder that only root may look into.
        let closed = |e: std::io::Error| e.kind() == ErrorKind::PermissionDenied;
        let mut found = match std::fs::read_dir(folder).err().is_some_and(closed) {
            true => Self::Denied { socket: folder.display().to_string() },
            false => Self::Absent,
        };
        let mut reports = Vec::new();
        for name in names(folder).into_iter().filter(is_backend) {
            let path = folder.join(&name);
            let socket = path.display().to_string();
            // A folder may hold the sockets of several domains, and sockets of dead backends.
            match within(patience, move || control::fetch_within(&path, patience)) {
                Some(Ok(report)) => reports.push(report),
                Some(Err(e)) => match e.kind() {
                    ErrorKind::ConnectionRefused | ErrorKind::NotFound => {}
                    ErrorKind::PermissionDenied => found = Self::Denied { socket },
                    _ => found = Self::Silent { socket },
                },
                None => found = Self::Silent { socket },
            }
        }
        if reports.is_empty() {
            return found;
        }
        let vifs = reports.iter().flat_map(vifs).collect();
        let uplinks = reports.iter().filter_map(uplink).collect();
        let port = |report: &Value| report["port"].as_str().map(str::to_owned);
        let ports = reports.iter().filter_map(port).collect();
        Self::Serves { vifs, bounds: reports.iter().map(bounds).collect(), uplinks, ports }
    }

    /// Returns true unless no backend listens. A backend that cannot be asked counts as running.
    pub fn runs(&self) -> bool {
        *self != Self::Absent
    }
}

fn vifs(report: &Value) -> Vec<Served> {
    let vifs = report["vifs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let each = |vif: &Value| {
        Some(Served {
            name: vif["vif"].as_str()?.to_owned(),
            connected: vif["connected"] == true,
            policy: vif["policy"].as_str().unwrap_or_default().to_owned(),
            mapped: vif["mapped"].as_u64().unwrap_or_default(),
            full_checksums: vif["checksum"] == Checksums::Full.as_str(),
        })
    };
    vifs.iter().filter_map(each).collect()
}

fn uplink(report: &Value) -> Option<Uplink> {
    let uplink = &report["uplink"];
    let text = |key: &str| uplink[key].as_str().unwrap_or_default().to_owned();
    let (state, error) = (text("state"), text("error"));
    Some(Uplink { name: uplink["name"].as_str()?.to_owned(), state, error })
}

fn bounds(report: &Value) -> Bounds {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let bound =
        |value: &Value| Part { used: number(&value["used"]), limit: number(&value["limit"]) };
    let workers = report["workers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let most = |key: &str| workers.iter().map(|worker| number(&worker[key])).max();
    let most = |key| most(key).unwrap_or_default();
    Bounds {
        shares: Parts::deserialize(&report["budget"]).unwrap_or_default(),
        round: Part { used: most("longest_round_ns"), limit: most("round_limit_ns") },
        control: bound(&report["control"]),
    }
}

//! Whether a backend runs, by the socket in its run folder.

use crate::doctor::bound::within;
use crate::doctor::roots::names;
use crate::shares::{Part, Parts};
use grantway_command::control;
use serde::Deserialize;
use serde_json::Value;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// What the backend says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendFact {
    /// Nobody listens.
    Absent,
    /// This user may not ask, or not even look.
    Denied {
        /// Where.
        socket: String,
    },
    /// Somebody listens, and gives no report.
    Silent {
        /// Where.
        socket: String,
    },
    /// It serves.
    Serves {
        /// What it says of each vif.
        vifs: Vec<Served>,
        /// What each backend of the folder may use, and does.
        bounds: Vec<Bounds>,
    },
}

/// What all vifs of a backend share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    /// What it tells of.
    pub shares: Parts,
    /// The longest round of any worker, in nanoseconds.
    pub round: Part,
    /// The longest step of the control thread, in pages mapped or unmapped.
    pub control: Part,
}

/// A vif that a backend serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served {
    /// Its name: `vif1.0`.
    pub name: String,
    /// Whether packets may flow.
    pub connected: bool,
    /// How buffers cross at most; empty where it does not say.
    pub policy: String,
    /// Pages of buffers that are mapped right now.
    pub mapped: u64,
}

impl BackendFact {
    /// Asks whoever listens in the folder, each for so long.
    pub fn gather(folder: &Path, patience: Duration) -> Self {
        let is_backend = |name: &String| name.starts_with("backend-") && name.ends_with(".sock");
        // Its unit makes a folder that only root may look into.
        let closed = |e: std::io::Error| e.kind() == ErrorKind::PermissionDenied;
        let mut found = match std::fs::read_dir(folder).err().is_some_and(closed) {
            true => Self::Denied { socket: folder.display().to_string() },
            false => Self::Absent,
        };
        let mut reports = Vec::new();
        for name in names(folder).into_iter().filter(is_backend) {
            let path = folder.join(&name);
            let socket = path.display().to_string();
            // A folder may hold the sockets of several domains, and dead ones.
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
        Self::Serves { vifs, bounds: reports.iter().map(bounds).collect() }
    }

    /// Whether there is one, whatever it says.
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
        })
    };
    vifs.iter().filter_map(each).collect()
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

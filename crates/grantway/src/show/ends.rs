//! The ends of vifs, read from reports.

use crate::sample::{Port, Sample};
use grantway_command::error::CommandError;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The ends that run in a folder, by the names of their sockets.
pub struct Ends {
    /// Backends, each with many vifs.
    pub backends: Vec<(String, Backend)>,
    /// Frontends, each with one vif.
    pub frontends: Vec<(String, Frontend)>,
}

/// Report of a backend.
#[derive(Debug, Deserialize)]
pub struct Backend {
    /// Vifs, workers and uplink.
    #[serde(flatten)]
    pub sample: Sample,
    /// Drops of its graph.
    #[serde(default)]
    pub graph: Graph,
}

/// The part of a graph that is shown.
#[derive(Debug, Default, Deserialize)]
pub struct Graph {
    /// Packets dropped by the graph, by reason.
    #[serde(default)]
    pub drops: BTreeMap<String, u64>,
}

/// Report of a frontend.
#[derive(Debug, Deserialize)]
pub struct Frontend {
    /// True if packets may flow.
    pub connected: bool,
    /// Policy in force.
    pub policy: String,
    /// Pages that are staged.
    #[serde(default)]
    pub staged: u64,
    /// Counters by name.
    pub stats: BTreeMap<String, u64>,
    /// Packets dropped, by reason.
    #[serde(default)]
    pub drops: BTreeMap<String, u64>,
    /// Port of the vif.
    pub port: Option<Port>,
    /// Queues of the vif.
    #[serde(default)]
    pub queues: Vec<FrontendQueue>,
}

/// A queue of a frontend.
#[derive(Debug, Deserialize)]
pub struct FrontendQueue {
    /// Number of the queue in its vif.
    pub queue: u16,
    /// Counters by name.
    pub stats: BTreeMap<String, u64>,
}

impl Ends {
    /// Reads reports.
    ///
    /// # Errors
    ///
    /// A report has another version than this command.
    pub fn read(reports: Map<String, Value>) -> Result<Self, CommandError> {
        let mut ends = Self { backends: Vec::new(), frontends: Vec::new() };
        for (name, report) in reports {
            let failed = |e| {
                CommandError::Failed(format!(
                    "{name}: a report that this version cannot read ({e}); restart it with the \
                     version of this command, or use --json"
                ))
            };
            if name.starts_with("backend-") {
                let backend = Backend::deserialize(report).map_err(failed)?;
                ends.backends.push((name, backend));
            } else {
                let frontend = Frontend::deserialize(report).map_err(failed)?;
                ends.frontends.push((name, frontend));
            }
        }
        Ok(ends)
    }
}

/// Returns the name of a frontend's vif, by the name of its socket. On Xen this name does not have
/// the domain, so the vif has the name of its folder in the domain's own part of the store.
pub fn frontend_vif(socket: &str) -> String {
    match socket.strip_prefix("frontend-") {
        Some(number) if number.contains('.') => format!("vif{number}"),
        Some(number) => format!("device/vif/{number}"),
        None => socket.to_owned(),
    }
}

//! Facts about a vif of this domain itself: the frontend that runs it.

use crate::doctor::bound::within;
use crate::doctor::finding::shown;
use crate::doctor::roots::Roots;
use grantway_command::control::{self, frontend_socket};
use serde_json::Value;

/// Frontends that run a vif.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrontendFact {
    /// Driver of the kernel that has the vif, if there is one. The name of xen-netfront is `vif`.
    pub driver: Option<String>,
    /// Report of Grantway's frontend, if it runs.
    pub ours: Option<Ours>,
}

/// Report of a running `grantway frontend`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ours {
    /// True if packets may flow.
    pub connected: bool,
    /// Buffer policy that the frontend was started with.
    pub wished: String,
    /// Buffer policy that both ends agreed on.
    pub agreed: String,
    /// Buffer policy in force.
    pub policy: String,
    /// Pages that the backend keeps mapped.
    pub staged: u64,
}

impl FrontendFact {
    /// Looks for the frontends that run vif `devid`.
    pub fn gather(roots: &Roots, devid: u32) -> Self {
        let socket = frontend_socket(&roots.run_folder, None, devid);
        let patience = roots.patience;
        let fetch = move || control::fetch_within(&socket, patience);
        let report = within(patience, fetch).and_then(Result::ok);
        Self {
            driver: roots.link(format!("sys/bus/xen/devices/vif-{devid}/driver")),
            ours: report.as_ref().map(ours),
        }
    }
}

fn ours(report: &Value) -> Ours {
    let text = |key: &str| shown(report[key].as_str().unwrap_or_default());
    Ours {
        connected: report["connected"] == true,
        wished: text("wished"),
        agreed: text("agreed"),
        policy: text("policy"),
        staged: report["staged"].as_u64().unwrap_or_default(),
    }
}

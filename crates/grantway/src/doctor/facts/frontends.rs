//! Who runs a vif of this domain's own.

use crate::doctor::bound::within;
use crate::doctor::finding::shown;
use crate::doctor::roots::Roots;
use grantway_command::control::{self, frontend_socket};
use serde_json::Value;

/// Who runs it, as far as it is seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrontendFact {
    /// The kernel's driver, where one holds the vif: `vif` is xen-netfront's name.
    pub driver: Option<String>,
    /// What our own says, where one runs.
    pub ours: Option<Ours>,
}

/// What a running `grantway frontend` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ours {
    /// Whether packets may flow.
    pub connected: bool,
    /// How buffers are to cross, as it was told.
    pub wished: String,
    /// How they do.
    pub policy: String,
    /// Pages that the backend keeps mapped.
    pub staged: u64,
}

impl FrontendFact {
    /// Looks for who runs vif `devid`.
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
        policy: text("policy"),
        staged: report["staged"].as_u64().unwrap_or_default(),
    }
}

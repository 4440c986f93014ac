//! Facts about the kernel's backend, which takes the same vifs.

use crate::doctor::roots::{MODPROBE, Roots};
use std::collections::BTreeSet;

/// Name of the module, as `/proc/modules` writes it.
const MODULE: &str = "xen_netback";

/// State of the kernel's backend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Netback {
    /// True if the module is loaded, or a part of the kernel.
    pub loaded: bool,
    /// True if the module is a part of the kernel.
    pub builtin: bool,
    /// True if the module could be loaded, or if the kernel does not show whether it can.
    pub available: bool,
    /// File or kernel option that prevents the module from being loaded for a vif.
    pub forbidden: Option<String>,
    /// True if udev runs, which loads modules for new devices.
    pub udev: bool,
    /// Vifs that a driver of the kernel has: device and driver.
    pub bound: Vec<(String, String)>,
    /// True if a unit starts Grantway's backend at the next boot. `None` without systemd.
    pub succeeded: Option<bool>,
}

impl Netback {
    /// Gathers the state from the system.
    pub fn gather(roots: &Roots) -> Self {
        let modules = roots.text("proc/modules").unwrap_or_default();
        let listed = modules.lines().any(|line| line.split_whitespace().next() == Some(MODULE));
        let known = roots.has("sys/module/xen_netback");
        let in_kernel = roots.lists_module("modules.builtin", MODULE) == Some(true);
        // A loaded module shows its state in `initstate`; a part of the kernel has no such file.
        let builtin =
            in_kernel || (known && !listed && !roots.has("sys/module/xen_netback/initstate"));
        let available = roots.lists_module("modules.dep", MODULE) != Some(false);
        let devices = "sys/bus/xen-backend/devices";
        let bound = roots
            .names(devices)
            .into_iter()
            .filter(|device| device.starts_with("vif-"))
            .filter_map(|device| {
                let driver = roots.link(format!("{devices}/{device}/driver"))?;
                Some((device, driver))
            })
            .collect();
        let units = || roots.names("etc/systemd/system/multi-user.target.wants");
        let starts = |name: &String| name.starts_with("grantway-backend");
        let systemd = roots.has("run/systemd/system");
        Self {
            succeeded: systemd.then(|| units().iter().any(starts)),
            loaded: listed || known,
            builtin,
            available,
            forbidden: forbidden(roots),
            udev: roots.has("run/udev/control"),
            bound,
        }
    }
}

fn is_module(name: &str) -> bool {
    name.replace('-', "_") == MODULE
}

/// Returns the file or the kernel option that prevents the module from being loaded for a vif.
fn forbidden(roots: &Roots) -> Option<String> {
    let options = roots.text("proc/cmdline").unwrap_or_default();
    for option in options.split_whitespace() {
        let Some((key, value)) = option.split_once('=') else { continue };
        if matches!(key, "modprobe.blacklist" | "module_blacklist")
            && value.split(',').any(is_module)
        {
            return Some(format!("{key} on the kernel's command line"));
        }
    }
    let mut seen = BTreeSet::new();
    for folder in MODPROBE {
        for name in roots.names(folder) {
            if !name.ends_with(".conf") || !seen.insert(name.clone()) {
                continue;
            }
            let path = format!("{folder}/{name}");
            let text = roots.text(&path).unwrap_or_default();
            if text.lines().any(forbids) {
                return Some(format!("/{path}"));
            }
        }
    }
    None
}

/// Returns true if a line of modprobe's configuration prevents the module from being loaded.
fn forbids(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let (Some(word), Some(name)) = (words.next(), words.next()) else { return false };
    if !is_module(name) {
        return false;
    }
    let command = words.next().and_then(|path| path.rsplit('/').next());
    match word {
        "blacklist" => true,
        "install" => matches!(command, Some("false" | "true")),
        _ => false,
    }
}

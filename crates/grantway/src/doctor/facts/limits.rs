//! Facts about limits on granted and mapped pages.

use super::platform::Role;
use crate::doctor::bound::output_of;
use crate::doctor::roots::Roots;
use grantway_command::limits::{GRANT_FRAMES, MAPTRACK_FRAMES};

/// A limit of Xen's, and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XenLimit {
    /// Value of the limit.
    pub value: u64,
    /// Source of the value, in words.
    pub source: &'static str,
}

/// Limits of this domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Pages that all processes of this domain may grant (`xen-gntalloc`).
    pub gntalloc: Option<u64>,
    /// Areas that a process's address space may have (`vm.max_map_count`).
    pub map_count: Option<u64>,
    /// Pages of a domain's grant table.
    pub grant_frames: Option<XenLimit>,
    /// Pages of a domain's table of mapped grants.
    pub maptrack_frames: Option<XenLimit>,
}

impl Limits {
    /// Reads the limits. Only dom0 can read those of Xen.
    pub fn gather(roots: &Roots, role: Role) -> Self {
        let mut limits = Self {
            gntalloc: roots.number("sys/module/xen_gntalloc/parameters/limit"),
            map_count: roots.number("proc/sys/vm/max_map_count"),
            ..Self::default()
        };
        if role != Role::Dom0 {
            return limits;
        }
        limits.grant_frames = parameter(roots, "gnttab_max_frames");
        limits.maptrack_frames = parameter(roots, "gnttab_max_maptrack_frames");
        if (limits.grant_frames.is_none() || limits.maptrack_frames.is_none())
            && let Some(line) = command_line(roots)
        {
            let grants = option(&line, "gnttab_max_frames", GRANT_FRAMES);
            let maptrack = option(&line, "gnttab_max_maptrack_frames", MAPTRACK_FRAMES);
            limits.grant_frames.get_or_insert(grants);
            limits.maptrack_frames.get_or_insert(maptrack);
        }
        limits
    }
}

/// Returns a parameter of the running Xen, which Xen 4.14 or later shows.
fn parameter(roots: &Roots, name: &str) -> Option<XenLimit> {
    let text = output_of(
        &roots.program("xenhypfs")?,
        ["cat", &format!("/params/{name}")],
        roots.patience,
    )?;
    Some(XenLimit { value: number(text.trim())?, source: "xenhypfs" })
}

/// Returns the command line of the running Xen.
fn command_line(roots: &Roots) -> Option<String> {
    let text = output_of(&roots.program("xl")?, ["info"], roots.patience)?;
    let line = text.lines().find_map(|line| line.strip_prefix("xen_commandline"))?;
    Some(line.trim_start().trim_start_matches(':').trim().to_owned())
}

/// Returns an option of Xen's command line. The last one counts. Without the option, returns the
/// default.
fn option(line: &str, name: &str, default: u64) -> XenLimit {
    let mut values = line.split_whitespace().filter_map(|word| {
        let (key, value) = word.split_once('=')?;
        (key == name).then(|| number(value)).flatten()
    });
    match values.next_back() {
        Some(value) => XenLimit { value, source: "Xen's command line" },
        None => XenLimit { value: default, source: "Xen's default" },
    }
}

/// Returns a number as Xen reads it, in decimal or with `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

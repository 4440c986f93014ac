//! Limits of this machine that can be read.

use super::args::DomainKind;
use crate::doctor::facts::limits::Limits;
use crate::doctor::facts::platform::{PlatformFacts, Role};
use crate::doctor::facts::vifs::StoreFact;
use crate::doctor::roots::Roots;

/// Limits of this machine. A limit that this machine cannot know is `None`.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// Mode in which the machine runs, if it runs on Xen and is not a guest.
    pub kind: Option<DomainKind>,
    /// Pages that gntalloc may grant, if the machine is a guest.
    pub gntalloc: Option<u64>,
    /// Pages of a domain's grant table.
    pub grant_frames: Option<u64>,
    /// Pages of a domain's maptrack table.
    pub maptrack_frames: Option<u64>,
    /// Grants that gntdev maps at one time.
    pub gntdev: Option<u64>,
    /// Areas that a process may have.
    pub map_count: Option<u64>,
}

impl Machine {
    /// Gathers the limits.
    pub fn gather(roots: &Roots) -> Self {
        let platform = PlatformFacts::gather(roots);
        if !platform.is_xen() {
            let map_count = Limits::gather(roots, Role::Guest).map_count;
            return Self { map_count, ..Self::default() };
        }
        let role = platform.role(&StoreFact::gather(&roots.stores(), roots.patience));
        let limits = Limits::gather(roots, role);
        let kind = match platform.kind.as_deref() {
            Some("PV") => Some(DomainKind::Pv),
            Some("PVH") => Some(DomainKind::Pvh),
            Some("HVM") => Some(DomainKind::Hvm),
            _ => None,
        };
        let guest = role == Role::Guest;
        Self {
            // A guest's own mode tells nothing about its backend's domain.
            kind: kind.filter(|_| !guest),
            gntalloc: limits.gntalloc.filter(|_| guest),
            grant_frames: limits.grant_frames.map(|limit| limit.value),
            maptrack_frames: limits.maptrack_frames.map(|limit| limit.value),
            gntdev: roots.number("sys/module/xen_gntdev/parameters/limit").filter(|_| !guest),
            map_count: limits.map_count.filter(|_| !guest),
        }
    }
}

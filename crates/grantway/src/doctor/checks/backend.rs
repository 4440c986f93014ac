//! Whether somebody serves.

use crate::doctor::facts::backend::{BackendFact, Bounds};
use crate::doctor::facts::vifs::VifNodes;
use crate::doctor::finding::Finding;
use crate::doctor::hints::Hints;
use crate::limits::UNBOUNDED;
use crate::top::sample::Part;

/// A backend runs, or is not needed yet.
pub fn judge(backend: &BackendFact, vifs: &[VifNodes], hints: &Hints) -> Finding {
    let subject = "backend";
    let online = vifs.iter().filter(|vif| vif.online).count();
    match backend {
        BackendFact::Serves { vifs, .. } => {
            let connected = vifs.iter().filter(|vif| vif.connected).count();
            Finding::ok(
                subject,
                format!("runs; vifs: {} served, {connected} connected", vifs.len()),
            )
        }
        BackendFact::Absent if online == 0 => {
            Finding::warn(subject, "none runs; no vif waits for it yet", hints.start())
        }
        BackendFact::Absent => Finding::fail(
            subject,
            format!("none runs; vifs that wait for it: {online}"),
            hints.start(),
        ),
        BackendFact::Denied { socket } => Finding::warn(
            subject,
            format!("unknown: this user may not look into {socket}"),
            "run as root, or as the user who runs the backend: sudo grantway doctor",
        ),
        BackendFact::Silent { socket } => Finding::fail(
            subject,
            format!("somebody listens on {socket}, and gives no report in 2 s: it hangs"),
            hints.restart(),
        ),
    }
}

/// What the vifs of each backend share: how much of it they use, at most so far where it
/// comes and goes.
pub fn bounds(backend: &BackendFact) -> Vec<Finding> {
    let BackendFact::Serves { bounds, .. } = backend else { return Vec::new() };
    bounds.iter().map(|bounds| one(*bounds)).collect()
}

fn one(bounds: Bounds) -> Finding {
    let Bounds { pages, areas, round, control } = bounds;
    let subject = "what vifs share";
    let milliseconds = |ns: u64| ns as f64 / 1e6;
    let pages_used = match pages.limit {
        limit if limit < UNBOUNDED => format!("{} of {limit}", pages.used),
        _ => pages.used.to_string(),
    };
    let found = format!(
        "{pages_used} pages mapped, {} of {} areas; longest round {:.1} ms of {:.0}; longest step of \
         control {} pages of {}",
        areas.used,
        areas.limit,
        milliseconds(round.used),
        milliseconds(round.limit),
        control.used,
        control.limit
    );
    // What does not fit is copied.
    let tight = |part: Part| part.limit > 0 && part.used >= part.limit - part.limit / 10;
    let raise = match (tight(pages), tight(areas)) {
        (true, _) => {
            "grantway backend --mapped-total, and the hypervisor's \
                      gnttab_max_maptrack_frames: see grantway plan"
        }
        (_, true) => "sysctl vm.max_map_count: see grantway plan",
        _ => return Finding::ok(subject, found),
    };
    Finding::warn(subject, format!("{found}; what does not fit is copied"), raise)
}

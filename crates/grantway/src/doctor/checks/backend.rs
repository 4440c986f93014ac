//! Whether somebody serves.

use crate::doctor::facts::backend::BackendFact;
use crate::doctor::facts::vifs::VifNodes;
use crate::doctor::finding::Finding;
use crate::doctor::hints::Hints;

/// A backend runs, or is not needed yet.
pub fn judge(backend: &BackendFact, vifs: &[VifNodes], hints: &Hints) -> Finding {
    let subject = "backend";
    let online = vifs.iter().filter(|vif| vif.online).count();
    match backend {
        BackendFact::Serves { vifs } => {
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

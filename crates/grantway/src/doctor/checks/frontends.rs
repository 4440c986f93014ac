//! Findings about each vif of this domain itself: the frontend that runs it.

use crate::doctor::facts::frontends::{FrontendFact, Ours};
use crate::doctor::facts::vifs::OwnVif;
use crate::doctor::finding::{Finding, shown};
use grantway_netif::XenbusState::{self, Connected};

/// Judges which frontend runs a vif, and if the vif is connected.
pub fn judge(vif: &OwnVif, frontend: &FrontendFact) -> Finding {
    let devid = vif.devid;
    let subject = format!("vif {devid}");
    let of = |state: Option<XenbusState>| state.map_or("missing", XenbusState::name);
    let states = format!("frontend {}, backend {}", of(vif.frontend), of(vif.backend));
    // Two frontends on one vif are a fault, whatever the states are.
    match (&frontend.driver, &frontend.ours) {
        (Some(driver), Some(_)) => Finding::fail(
            subject,
            format!("two frontends: the kernel's driver {} and grantway frontend", shown(driver)),
            format!("echo vif-{devid} > /sys/bus/xen/drivers/{}/unbind", shown(driver)),
        ),
        (Some(driver), None) => Finding::ok(
            subject,
            format!(
                "used by the kernel's driver {}, which does not support staging ({states})",
                shown(driver)
            ),
        ),
        (None, None) => Finding::warn(
            subject,
            format!("no frontend ({states})"),
            format!("grantway frontend --devid {devid} --tap gw{devid}"),
        ),
        (None, Some(ours)) if ours.connected => {
            Finding::ok(subject, format!("connected, policy {}", crossing(vif, ours)))
        }
        (None, Some(_)) if vif.backend == Some(Connected) => {
            let found = format!("the backend is connected but the frontend is not ({states})");
            Finding::fail(subject, found, "read the log of grantway frontend; restart it")
        }
        (None, Some(_)) => Finding::warn(
            subject,
            format!("the frontend waits for the backend ({states})"),
            "run grantway doctor in the backend's domain",
        ),
    }
}

/// Returns the buffer policy, and the reason if pages are not staged.
fn crossing(vif: &OwnVif, ours: &Ours) -> String {
    let Ours { wished, agreed, policy, staged, .. } = ours;
    let why = match agreed.as_str() {
        "staging" if *staged > 0 => return format!("staging: pages mapped: {staged}"),
        _ if !matches!(wished.as_str(), "auto" | "staging") => {
            "the frontend did not ask for it: grantway frontend --policy auto"
        }
        "staging" => "the backend accepted no page: grantway show staging",
        _ if !vif.control_ring => "the backend has no control ring",
        _ if vif.refuses_staging => "the backend's --policy excludes it",
        _ => "the backend does not offer it",
    };
    format!("{}; not staging: {why}", shown(policy))
}

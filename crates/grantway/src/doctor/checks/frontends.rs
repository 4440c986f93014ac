//! Findings about each vif of this domain's own: the frontend that runs it.

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
            format!("run by two: the kernel's driver {}, and grantway frontend", shown(driver)),
            format!("echo vif-{devid} > /sys/bus/xen/drivers/{}/unbind", shown(driver)),
        ),
        (Some(driver), None) => Finding::ok(
            subject,
            format!(
                "run by the kernel's driver {}, which stages nothing ({states})",
                shown(driver)
            ),
        ),
        (None, None) => Finding::warn(
            subject,
            format!("nobody runs it ({states})"),
            format!("grantway frontend --devid {devid} --tap gw{devid}"),
        ),
        (None, Some(ours)) if ours.connected => {
            Finding::ok(subject, format!("connected, by {}", crossing(vif, ours)))
        }
        (None, Some(_)) if vif.backend == Some(Connected) => {
            let found = format!("the backend is connected, and the frontend is not ({states})");
            Finding::fail(subject, found, "look at what grantway frontend says; start it again")
        }
        (None, Some(_)) => Finding::warn(
            subject,
            format!("its frontend waits for the backend ({states})"),
            "in the backend's domain: grantway doctor",
        ),
    }
}

/// Returns how buffers cross, and the reason why they are not staged, if so.
fn crossing(vif: &OwnVif, ours: &Ours) -> String {
    let Ours { wished, agreed, policy, staged, .. } = ours;
    let why = match agreed.as_str() {
        "staging" if *staged > 0 => return format!("staging: pages mapped: {staged}"),
        _ if !matches!(wished.as_str(), "auto" | "staging") => {
            "it was not asked for: grantway frontend --policy auto"
        }
        "staging" => "the backend took no page: grantway ctl staging show",
        _ if !vif.control_ring => "the backend has no control ring",
        _ if vif.refuses_staging => "the backend stages nothing: its --policy is less",
        _ => "the backend does not offer it",
    };
    format!("{}; not staging: {why}", shown(policy))
}

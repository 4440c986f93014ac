//! Findings about a backend: it serves, and its limits leave room.

use crate::doctor::facts::backend::{BackendFact, Bounds, Uplink};
use crate::doctor::facts::vifs::VifNodes;
use crate::doctor::finding::{Finding, shown};
use crate::doctor::hints::{Hints, quoted};
use crate::shares;

/// Judges if a backend runs. Without online vifs a backend is not needed yet, so its absence is
/// only a warning; but if xen-netback is `kept_away` as well, the next guest has no network.
pub fn judge(
    backend: &BackendFact,
    vifs: &[VifNodes],
    kept_away: Option<&str>,
    hints: &Hints,
) -> Finding {
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
        BackendFact::Absent if online == 0 => match kept_away {
            Some(by) => Finding::fail(
                subject,
                format!(
                    "none runs, and xen-netback is kept away by {}: guests get no network",
                    shown(by)
                ),
                hints.enable(),
            ),
            None => Finding::warn(subject, "none runs; no vif waits for it yet", hints.start()),
        },
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

/// Judges how much the vifs of each backend use of what they share. Returns a warning for a backend
/// if little is left of something. Rounds and steps of control are the longest so far.
pub fn bounds(backend: &BackendFact) -> Vec<Finding> {
    let BackendFact::Serves { bounds, .. } = backend else { return Vec::new() };
    bounds.iter().map(one).collect()
}

/// Judges the uplinks of backends' own bridges.
pub fn uplinks(backend: &BackendFact, hints: &Hints) -> Vec<Finding> {
    let BackendFact::Serves { uplinks, .. } = backend else { return Vec::new() };
    uplinks.iter().map(|uplink| judge_uplink(uplink, hints)).collect()
}

fn judge_uplink(Uplink { name, state, error }: &Uplink, hints: &Hints) -> Finding {
    let subject = format!("uplink {}", shown(name));
    let interface = quoted(name.split_once(':').map_or(name.as_str(), |(_, name)| name));
    match state.as_str() {
        "up" | "open" => Finding::ok(subject, state.clone()),
        "down" => {
            let found = "its interface is down: no guest reaches the network";
            Finding::fail(subject, found, format!("ip link set dev {interface} up"))
        }
        "no-carrier" => {
            let found = "its interface has no carrier: no guest reaches the network";
            Finding::fail(subject, found, "look at the cable, or at the other end of a veth")
        }
        "gone" => {
            let found = "its interface is gone: no guest reaches the network";
            let remedy = format!("make an interface {interface}; the backend takes it at once");
            Finding::fail(subject, found, remedy)
        }
        _ => {
            let found = format!("it was lost: {}", shown(error));
            Finding::fail(subject, found, hints.restart())
        }
    }
}

fn one(bounds: &Bounds) -> Finding {
    let Bounds { shares, round, control } = bounds;
    let mut found = String::new();
    let (mut beyond, mut remedies) = (Vec::new(), Vec::new());
    for (share, part) in shares::used(shares) {
        found += &match part.is_bounded() {
            true => format!("{} of {} {}, ", part.used, part.limit, share.name),
            false => format!("{} {}, ", part.used, share.name),
        };
        if let Some([becomes, remedy]) = share.beyond.filter(|_| part.is_tight()) {
            beyond.push(format!("{}: {becomes}", share.name));
            remedies.push(remedy);
        }
    }
    let milliseconds = |ns: u64| ns as f64 / 1e6;
    found += &format!(
        "longest round {:.1} ms of {:.0}, longest step of control {} pages of {}",
        milliseconds(round.used),
        milliseconds(round.limit),
        control.used,
        control.limit
    );
    let subject = "what vifs share";
    match remedies.is_empty() {
        true => Finding::ok(subject, found),
        false => {
            let found = format!("{found}; few left of {}", beyond.join(", of "));
            Finding::warn(subject, found, remedies.join("; "))
        }
    }
}

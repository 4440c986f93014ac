//! Findings about a backend: it serves, and its limits leave room.

use crate::doctor::facts::backend::{BackendFact, Bounds, Uplink};
use crate::doctor::facts::options::{OPTIONS, OptionsFact};
use crate::doctor::facts::vifs::VifNodes;
use crate::doctor::finding::{Finding, shown};
use crate::doctor::hints::{Hints, quoted};
use crate::shares;
use grantway_ports::TextFault;

/// Judges if a backend runs. Without online vifs no backend is needed yet, so its absence is only a
/// warning. But if xen-netback is `kept_away`, too, the next guest has no network.
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
                format!("running; vifs: {} served, {connected} connected", vifs.len()),
            )
        }
        BackendFact::Absent if online == 0 => match kept_away {
            Some(by) => Finding::fail(
                subject,
                format!(
                    "not running, and {} keeps xen-netback from loading: guests have no network",
                    shown(by)
                ),
                hints.enable(),
            ),
            None => Finding::warn(subject, "not running; no vif needs it yet", hints.start()),
        },
        BackendFact::Absent => Finding::fail(
            subject,
            format!("not running; vifs that wait for it: {online}"),
            hints.start(),
        ),
        BackendFact::Denied { socket } => Finding::warn(
            subject,
            format!("unknown: this user cannot read {socket}"),
            "run it as root, or as the backend's user: sudo grantway doctor",
        ),
        BackendFact::Silent { socket } => Finding::fail(
            subject,
            format!("hangs: the process at {socket} did not answer within 2 s"),
            hints.restart(),
        ),
    }
}

/// Judges the file of options that the units name.
pub fn options(fact: &OptionsFact, hints: &Hints) -> Option<Finding> {
    let subject = format!("/{OPTIONS}");
    let restart = hints.restart();
    Some(match fact {
        OptionsFact::Unused => return None,
        OptionsFact::Valid => Finding::ok(subject, "valid"),
        OptionsFact::Missing => {
            let remedy = format!("touch {subject}; {restart}");
            Finding::fail(&subject, "missing: the backend's unit cannot start without it", remedy)
        }
        OptionsFact::Unreadable(error) => {
            let remedy = "run it as root: sudo grantway doctor";
            Finding::warn(subject, format!("cannot be read: {error}"), remedy)
        }
        OptionsFact::Invalid(TextFault { line, column, found, expected, remedy, .. }) => {
            let found = format!(
                "line {line}, column {column}: found {}, expected {expected}: a backend that starts \
                 ends with this error",
                shown(found)
            );
            Finding::fail(subject, found, format!("{remedy}; then: {restart}"))
        }
    })
}

/// Judges how much the vifs of each backend use of shared resources. Returns a warning for a
/// backend if little is left of one. Rounds and steps are the longest so far.
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
            let found = "its interface is down: guests cannot reach the network";
            Finding::fail(subject, found, format!("ip link set dev {interface} up"))
        }
        "no-carrier" => {
            let found = "its interface has no carrier: guests cannot reach the network";
            Finding::fail(subject, found, "check the cable, or the other end of the veth")
        }
        "gone" => {
            let found = "its interface does not exist: guests cannot reach the network";
            let remedy = format!("create the interface {interface}; the backend uses it at once");
            Finding::fail(subject, found, remedy)
        }
        _ => {
            let found = format!("failed: {}", shown(error));
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
        "longest round {:.1} of {:.0} ms, longest control step {} of {} pages",
        milliseconds(round.used),
        milliseconds(round.limit),
        control.used,
        control.limit
    );
    let subject = "shared limits";
    match remedies.is_empty() {
        true => Finding::ok(subject, found),
        false => {
            let found = format!("{found}; nearly used up: {}", beyond.join(", "));
            Finding::warn(subject, found, remedies.join("; "))
        }
    }
}

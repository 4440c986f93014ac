//! Findings about each vif, by the nodes of both ends in the store.

use crate::doctor::facts::backend::{BackendFact, Served};
use crate::doctor::facts::vifs::{StoreFact, VifNodes};
use crate::doctor::finding::{Finding, shown};
use crate::doctor::hints::{Hints, SCRIPTS_LOG, quoted};
use grantway_netif::XenbusState::{
    self, Closed, Closing, Connected, InitWait, Initialising, Reconfigured,
};
use std::path::Path;

/// Judges the store's answer. `dir` is the folder of the embedded host, if there is one.
pub fn store(store: &StoreFact, dir: Option<&Path>) -> Finding {
    let subject = if dir.is_some() { "host" } else { "xenstore" };
    let start = match dir {
        Some(dir) => format!("grantway host --dir {}", quoted(&dir.to_string_lossy())),
        None => "in dom0: systemctl restart xenstored (Debian: systemctl start xen)".into(),
    };
    match store {
        StoreFact::Read { vifs, .. } => {
            Finding::ok(subject, format!("answers; vifs of this backend: {}", vifs.len()))
        }
        StoreFact::Missing => {
            Finding::fail(subject, "its socket and /dev/xen/xenbus are missing", start)
        }
        StoreFact::Silent => Finding::fail(subject, "no answer", start),
        StoreFact::Refused(why) => Finding::fail(subject, shown(why), start),
    }
}

/// Judges one vif.
pub fn judge(vif: &VifNodes, backend: &BackendFact, hints: &Hints) -> Finding {
    let name = vif.default_name();
    let runs = backend.runs();
    // The backend has to write what is missing: the one that runs, or would run.
    let look = || if runs { hints.log() } else { hints.start() };
    let states = || {
        let of = |state: Option<XenbusState>| state.map_or("missing", XenbusState::name);
        format!("backend {}, frontend {}", of(vif.backend), of(vif.frontend))
    };
    let failed = |why: &str| Finding::fail(&name, format!("{why} ({})", states()), look());

    let both = (vif.backend, vif.frontend);
    // An error in words says more than the states do, so errors come first.
    if let Some(error) = &vif.error {
        let found = format!("the backend wrote: {} ({})", shown(error), states());
        if is_in_use(both) {
            let remedy =
                format!("when the cause is known: xenstore-rm {}/error", quoted(&vif.path));
            return Finding::warn(name, found, remedy);
        }
        return Finding::fail(name, found, look());
    }
    if vif.hotplug_error.is_some() || vif.hotplug_status.as_deref() == Some("error") {
        let why = vif.hotplug_error.as_deref().unwrap_or("no reason given");
        let found = format!("its hotplug script failed: {}", shown(why));
        let remedy = format!("{SCRIPTS_LOG}; fix the cause, then: {}", hints.hotplug(vif));
        return Finding::fail(name, found, remedy);
    }
    let hotplugged = !hints.is_scripted() || vif.hotplug_status.as_deref() == Some("connected");
    // Every other fault shows in the two states.
    match both {
        (_, None) => {
            let found = format!("the frontend's part of the store is gone ({})", states());
            Finding::warn(name, found, hints.detach(vif))
        }
        (None | Some(XenbusState::Unknown | Initialising), _) if !vif.online => {
            Finding::warn(name, "being detached", hints.detach(vif))
        }
        (None | Some(XenbusState::Unknown | Initialising), _) => match runs {
            true => failed("the running backend does not serve it"),
            false => failed("no backend serves it"),
        },
        (Some(InitWait), Some(front)) if front.has_rings() && !hotplugged => Finding::fail(
            name,
            format!("stuck: its hotplug script did not report that it finished ({})", states()),
            format!("{SCRIPTS_LOG}; then: {}", hints.hotplug(vif)),
        ),
        (Some(InitWait), Some(front)) if front.has_rings() => {
            failed("the guest is ready but the backend is not")
        }
        (Some(InitWait), _) if !hotplugged => Finding::warn(
            name,
            "its hotplug script has not finished",
            format!("{SCRIPTS_LOG}; if the script no longer runs: {}", hints.hotplug(vif)),
        ),
        (Some(InitWait), _) => Finding::ok(name, format!("waits for its guest ({})", states())),
        _ if is_in_use(both) => served(vif, &name, backend, hints),
        (Some(Closing), Some(Closing | Closed)) | (Some(Connected), Some(Closing)) => {
            let found = format!("closing ({})", states());
            Finding::warn(name, found, format!("if this does not end: {}", hints.detach(vif)))
        }
        (Some(Closed), Some(Closing | Closed)) if vif.online => {
            Finding::ok(name, "closed by its guest, which can open it again")
        }
        (Some(Closed), _) if !vif.online => {
            let found = format!("detached but still in the store ({})", states());
            Finding::warn(name, found, hints.detach(vif))
        }
        _ => failed("the states of the two ends do not match"),
    }
}

/// Returns true if both ends are connected by their states. While a guest loads an XDP program, its
/// state is Reconfiguring, and that of its backend Reconfigured.
fn is_in_use((backend, frontend): (Option<XenbusState>, Option<XenbusState>)) -> bool {
    matches!(backend, Some(Connected | Reconfigured))
        && frontend.is_some_and(XenbusState::has_rings)
}

/// Judges a vif whose two ends are connected by their states. The running backend must report the
/// same.
fn served(vif: &VifNodes, name: &str, backend: &BackendFact, hints: &Hints) -> Finding {
    match backend {
        BackendFact::Absent => Finding::fail(
            name,
            "connected to a backend that has ended: all frames of the guest are lost",
            hints.start(),
        ),
        BackendFact::Serves { vifs, .. } => match vifs.iter().find(|served| served.name == name) {
            Some(served) if served.connected => {
                let queues = vif.queues;
                let s = if queues == 1 { "" } else { "s" };
                let full = if served.full_checksums { ", full checksums" } else { "" };
                let crossing = crossing(vif, served);
                Finding::ok(name, format!("connected, {queues} queue{s}{full}{crossing}"))
            }
            Some(_) => {
                let found = "connected in the store, but the running backend reports that it is \
                             not";
                Finding::fail(name, found, hints.log())
            }
            None => {
                let found = "connected in the store, but the running backend does not serve it";
                Finding::fail(name, found, hints.restart())
            }
        },
        BackendFact::Denied { .. } | BackendFact::Silent { .. } => {
            Finding::ok(name, "connected in the store")
        }
    }
}

/// Returns the buffer policy of a vif, and the reason if pages are not staged. Returns no text if
/// the backend does not report a policy.
fn crossing(vif: &VifNodes, served: &Served) -> String {
    let Served { policy, mapped, .. } = served;
    let why = match policy.as_str() {
        "" => return String::new(),
        "staging" if *mapped > 0 => return format!(", policy staging: pages mapped: {mapped}"),
        "map" => "the backend runs with --policy map",
        _ if !vif.offers_staging => "the backend's --policy excludes it",
        _ if vif.persistent => "its frontend asks for persistent grants",
        _ if !vif.control_ring => "its frontend has no control ring (nor has xen-netfront)",
        _ => "its frontend staged no page: grantway frontend --policy auto",
    };
    // A vif that has a control ring may begin to stage at any time.
    let policy = if policy == "staging" { "copy" } else { policy };
    format!(", policy {}; not staging: {why}", shown(policy))
}

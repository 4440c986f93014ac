//! Devices that a backend or a frontend opens.

use crate::doctor::facts::platform::Role;
use crate::doctor::facts::process::{DeviceState, Process};
use crate::doctor::facts::vhost::Vhost;
use crate::doctor::finding::{Finding, Verdict};
use crate::doctor::hints::Hints;

/// Judges Xen's devices. A device that the role of this domain needs must be usable. Another device
/// may be missing, with a warning.
pub fn judge(process: &Process, role: Role) -> Vec<Finding> {
    let serves = role != Role::Guest;
    let socket = process.store_socket;
    let line = |name: &str, what: &str, state, needed| device(name, what, state, needed, role);
    vec![
        line("gntdev", "maps and copies pages of guests", process.gntdev, serves),
        line("evtchn", "event channels", process.evtchn, true),
        line("gntalloc", "pages of a frontend", process.gntalloc, !serves),
        line("xenbus", "the xenstore, if there is no socket", process.xenbus, !socket),
    ]
}

fn device(name: &str, what: &str, state: DeviceState, needed: bool, role: Role) -> Finding {
    let subject = format!("/dev/xen/{name}");
    let verdict = if needed { Verdict::Fail } else { Verdict::Warn };
    let other = match (needed, role) {
        (false, Role::Guest) => "; only a backend needs it",
        (false, _) if name == "gntalloc" => "; only a frontend needs it",
        (false, _) => "; only processes without the socket need it",
        (true, _) => "",
    };
    match state {
        DeviceState::Ready => Finding::ok(subject, format!("readable and writable ({what})")),
        DeviceState::Denied => Finding::new(
            verdict,
            &subject,
            &format!("this user cannot read and write it ({what}){other}"),
            Some("run it as root: sudo grantway doctor"),
        ),
        DeviceState::Missing => {
            // The kernel itself makes xenbus, so there is no module to load.
            let remedy = match name {
                "xenbus" => "check the kernel log: dmesg | grep -i xenbus".into(),
                _ => format!("modprobe xen-{name}"),
            };
            let found = format!("missing ({what}){other}");
            Finding::new(verdict, &subject, &found, Some(&remedy))
        }
    }
}

/// Judges the device of TAPs, which must be usable if it is `needed`. Other ports work without it.
pub fn tun(process: &Process, needed: bool) -> Finding {
    let subject = "/dev/net/tun";
    let verdict = if needed { Verdict::Fail } else { Verdict::Warn };
    let rest = if needed { "" } else { "; only tap ports need it" };
    let (found, remedy) = match (process.tun, process.net_admin) {
        (DeviceState::Ready, true) => {
            return Finding::ok(subject, "usable");
        }
        (DeviceState::Missing, _) => ("missing: the backend cannot create TAPs", "modprobe tun"),
        (DeviceState::Denied, _) => {
            ("this user cannot read and write it", "run the backend and this command as root")
        }
        (DeviceState::Ready, false) => (
            "present, but this process has no CAP_NET_ADMIN",
            "run it as root, or: setcap cap_net_admin+ep $(command -v grantway)",
        ),
    };
    Finding::new(verdict, subject, &format!("{found}{rest}"), Some(remedy))
}

/// Judges the device of vhost-net, if a backend has such ports.
pub fn vhost(Vhost { user, device, module }: &Vhost, hints: &Hints) -> Option<Finding> {
    let subject = "/dev/vhost-net";
    let needed = format!("needed by --port vhost of {}", user.as_deref()?);
    Some(match (device, module) {
        (DeviceState::Ready, true) => Finding::ok(subject, format!("usable ({needed})")),
        (DeviceState::Denied, true) => Finding::fail(
            subject,
            format!("this user cannot read and write it ({needed})"),
            "run the backend and this command as root",
        ),
        (DeviceState::Missing, true) => Finding::fail(
            subject,
            format!("missing ({needed})"),
            format!("modprobe vhost_net; {}", hints.restart()),
        ),
        (_, false) => Finding::fail(
            subject,
            format!("this kernel has no module vhost_net ({needed})"),
            "use --port tap, or a kernel with CONFIG_VHOST_NET",
        ),
    })
}

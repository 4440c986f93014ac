//! Findings about the kernel's backend, which must not take vifs of Grantway.

use crate::doctor::facts::netback::Netback;
use crate::doctor::finding::{Finding, Verdict, shown};
use crate::doctor::hints::quoted;

const SUBJECT: &str = "xen-netback";
const FORBID: &str = r"printf 'blacklist xen-netback\ninstall xen-netback /bin/false\n' > /etc/modprobe.d/grantway.conf";

/// Judges the module, and the vifs that it has.
pub fn judge(netback: &Netback) -> Vec<Finding> {
    let mut findings = vec![module(netback)];
    findings.extend(next_boot(netback));
    findings.extend(netback.bound.iter().map(|(device, driver)| {
        let driver = shown(driver);
        Finding::fail(
            shown(device),
            format!("used by the kernel's driver {driver}: two backends would serve one vif"),
            format!(
                "echo {} > /sys/bus/xen-backend/drivers/{}/unbind",
                quoted(&shown(device)),
                quoted(&driver)
            ),
        )
    }));
    findings
}

/// Judges which backend serves vifs after the next boot, if xen-netback is always kept away.
fn next_boot(Netback { forbidden, succeeded, .. }: &Netback) -> Option<Finding> {
    let (by, succeeded) = (forbidden.as_deref()?, (*succeeded)?);
    Some(match succeeded {
        true => Finding::ok("next boot", "systemd starts grantway-backend"),
        false => Finding::fail(
            "next boot",
            format!(
                "{} keeps xen-netback from loading, and no unit starts grantway-backend: guests \
                 will have no network",
                shown(by)
            ),
            "systemctl enable grantway-backend, or grantway-backend-domU in a driver domain",
        ),
    })
}

fn module(netback: &Netback) -> Finding {
    // A built-in backend cannot be unloaded, so it has a remedy of its own.
    if netback.builtin {
        let found = "built into the kernel: it takes every vif";
        let remedy = "add initcall_blacklist=netback_init to the kernel's command line, and reboot";
        return Finding::fail(SUBJECT, found, remedy);
    }
    if netback.loaded {
        let (found, remedy) = match &netback.forbidden {
            Some(_) => (
                "loaded although a file forbids it: it takes every vif",
                "shut the guests down, then: modprobe -r xen-netback".to_owned(),
            ),
            None => (
                "loaded: it takes every vif",
                format!("shut the guests down, then: modprobe -r xen-netback; {FORBID}"),
            ),
        };
        return Finding::fail(SUBJECT, found, remedy);
    }
    // A module that is not loaded must not come with the next vif.
    match &netback.forbidden {
        Some(by) => {
            Finding::ok(SUBJECT, format!("not loaded; {} keeps it from loading", shown(by)))
        }
        None if !netback.available => Finding::ok(SUBJECT, "this kernel has no such module"),
        None => {
            // Without udev nobody loads the module for a new device.
            let (verdict, when) = match netback.udev {
                true => (Verdict::Fail, "udev will load it with the next vif"),
                false => (Verdict::Warn, "any program can load it"),
            };
            let found = format!("not loaded, but not forbidden: {when}");
            Finding::new(verdict, SUBJECT, &found, Some(FORBID))
        }
    }
}

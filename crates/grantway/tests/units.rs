//! The units of systemd that are shipped: that systemd takes them, and what they leave.

mod common;

use common::words;
use grantway_needs::{Need, met};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const UNITS: [&str; 2] = ["grantway-backend", "grantway-backend-domU"];

/// Largest exposure that `systemd-analyze security` may report, of 10. The rest is the device list,
/// `CAP_NET_ADMIN` and the host's network, which a backend needs.
const EXPOSURE_MAX: f64 = 2.5;

fn source(unit: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    read_to_string(folder.join(format!("{unit}.service.in"))).expect("a unit")
}

/// The unit as it is installed, with a command that is there.
fn installed(unit: &str, folder: &Path) -> PathBuf {
    let program = env!("CARGO_BIN_EXE_grantway");
    let text = source(unit).replace("@BINDIR@/grantway", program).replace("@DOCDIR@", "/usr/doc");
    assert!(!text.contains('@') || !text.contains("DIR@"), "{text}");
    let path = folder.join(format!("{unit}.service"));
    std::fs::write(&path, text).expect("a unit to write");
    path
}

fn analyze(args: &[&str], unit: &Path) -> Output {
    Command::new("systemd-analyze").args(args).arg(unit).output().expect("systemd-analyze")
}

/// The values of a setting, in the unit's order.
fn values(text: &str, setting: &str) -> Vec<String> {
    let of = |line: &str| Some(line.strip_prefix(setting)?.strip_prefix('=')?.to_owned());
    text.lines().filter_map(of).collect()
}

#[test]
fn systemd_accepts_the_units() {
    if !met(&[Need::Program("systemd-analyze", "systemd")]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for unit in UNITS {
        let path = installed(unit, folder.path());
        let output = analyze(&["verify", "--man=no", "--recursive-errors=no"], &path);
        assert!(output.status.success() && output.stderr.is_empty(), "{unit}: {}", words(&output));
        let output = analyze(&["security", "--offline=true", "--no-pager"], &path);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let level = text.lines().rev().find_map(|line| line.split_once("service: "));
        let level = level.and_then(|(_, level)| level.split_whitespace().next()?.parse().ok());
        let level: f64 = level.unwrap_or_else(|| panic!("no level in {}", words(&output)));
        assert!(level <= EXPOSURE_MAX, "{unit}: {level}\n{text}");
    }
}

#[test]
fn the_units_leave_what_every_option_needs() {
    for unit in UNITS {
        let text = source(unit);
        assert_eq!(values(&text, "Type"), ["notify"]);
        // ProtectKernelTunables= and ProtectControlGroups= take /proc/xen away, so the
        // condition is judged outside of them.
        let conditions = values(&text, "ExecCondition");
        assert!(conditions.iter().all(|line| line.starts_with('+')), "{unit}: {conditions:?}");
        assert_eq!(conditions.len(), 1, "{unit}: {conditions:?}");
        // A clean Debian has no program kill; each shell has one.
        assert_eq!(values(&text, "ExecReload"), [r#"/bin/sh -c "kill -HUP $MAINPID""#]);
        // The file that the package installs, and options of earlier builds, which win.
        let start = "@BINDIR@/grantway backend --config /etc/grantway/backend.toml $GRANTWAY_BACKEND_OPTIONS";
        assert_eq!(values(&text, "ExecStart"), [start]);
        assert_eq!(values(&text, "EnvironmentFile"), ["-/etc/default/grantway"]);
        // --metrics, and no family that nothing uses.
        assert_eq!(values(&text, "RestrictAddressFamilies"), ["AF_UNIX AF_INET AF_INET6"]);
        let devices =
            ["xen/gntdev", "xen/gntalloc", "xen/evtchn", "xen/xenbus", "net/tun", "vhost-net"];
        assert_eq!(values(&text, "DeviceAllow"), devices.map(|name| format!("/dev/{name} rw")));
        // systemd 252 has these in no group that the unit names.
        let calls = values(&text, "SystemCallFilter").join(" ");
        for own in ["seccomp", "landlock_create_ruleset", "landlock_restrict_self"] {
            assert!(calls.split(' ').any(|call| call == own), "{unit}: {own} in {calls}");
        }
        assert_eq!(values(&text, "CapabilityBoundingSet"), ["CAP_NET_ADMIN"]);
        // What nothing needs more of.
        for (setting, value) in [
            ("NoNewPrivileges", "yes"),
            ("DevicePolicy", "closed"),
            ("IPAddressDeny", "any"),
            ("IPAddressAllow", "localhost"),
            ("PrivateIPC", "yes"),
            ("ProtectClock", "yes"),
            ("ProtectSystem", "strict"),
            ("ProtectKernelTunables", "yes"),
            ("ReadWritePaths", "-/sys/devices"),
            (
                "ReadOnlyPaths",
                "-/sys/block -/sys/bus -/sys/class -/sys/dev -/sys/firmware -/sys/fs -/sys/hypervisor \
                 -/sys/kernel -/sys/module -/sys/power",
            ),
        ] {
            assert_eq!(values(&text, setting), [value], "{unit}: {setting}");
        }
    }
}

//! Tests of the platform, devices, the kernel's backend, limits, and the embedded host's needs.

use super::tree::Tree;
use super::{SHORT, about, check};
use crate::doctor::checks::{devices, embedded, limits, netback, platform, sandbox};
use crate::doctor::facts::backend::BackendFact;
use crate::doctor::facts::limits::Limits;
use crate::doctor::facts::netback::Netback;
use crate::doctor::facts::platform::{PlatformFacts, Role};
use crate::doctor::facts::process::{DeviceState, Process};
use crate::doctor::facts::vhost::Vhost;
use crate::doctor::facts::vifs::StoreFact;
use crate::doctor::finding::{Finding, Verdict};
use crate::doctor::hints::Hints;
use crate::doctor::{on_embedded, on_xen};

#[test]
fn another_machine_gets_one_line() {
    let findings = on_xen(&Tree::new().roots());
    assert_eq!(findings.len(), 1);
    check(
        &findings[0],
        Verdict::Fail,
        "not Xen: /sys/hypervisor/type and",
        "grantway host --dir DIR",
    );
    let other = Tree::new().with("sys/hypervisor/type", "z/VM\n").with("dev/xen/gntdev", "");
    check(&on_xen(&other.roots())[0], Verdict::Fail, "says \"z/VM\"", "doctor --host DIR");
}

#[test]
fn an_empty_xen_is_looked_at_without_a_panic() {
    let tree = Tree::new().with("sys/hypervisor/type", "xen");
    let findings = on_xen(&tree.roots());
    check(about(&findings, "platform")[0], Verdict::Ok, "unknown version, a guest", "");
    check(about(&findings, "xenstore")[0], Verdict::Fail, "its socket and", "xenstored");
    let dom0 = tree.with("proc/xen/capabilities", "control_d");
    let findings = on_xen(&dom0.roots());
    check(about(&findings, "/dev/xen/gntdev")[0], Verdict::Fail, "missing", "modprobe xen-gntdev");
    check(about(&findings, "backend")[0], Verdict::Warn, "not running", "systemctl start");
    // Without the store nobody can say what is left over.
    assert!(about(&findings, "leftovers").is_empty());
}

#[test]
fn roles() {
    let store =
        |socket, serves| StoreFact::Read { socket, serves, vifs: Vec::new(), own: Vec::new() };
    let facts = PlatformFacts::gather(&Tree::dom0().roots());
    assert_eq!(facts.role(&StoreFact::Missing), Role::Dom0);
    check(&platform::judge(&facts, Role::Dom0), Verdict::Ok, "Xen 4.17 (PV), dom0", "");
    let domain = PlatformFacts::gather(&Tree::new().with("dev/xen/evtchn", "").roots());
    assert!(domain.is_xen(), "by its devices");
    assert_eq!(domain.role(&store(false, true)), Role::Driver);
    assert_eq!(domain.role(&store(true, false)), Role::Dom0);
    assert_eq!(domain.role(&store(false, false)), Role::Guest);
    assert_eq!(domain.role(&StoreFact::Silent), Role::Guest);
    check(&platform::judge(&domain, Role::Driver), Verdict::Ok, "a driver domain", "");
}

fn process() -> Process {
    let process = Process::gather(&Tree::dom0().roots());
    assert_eq!((process.gntdev, process.xenbus), (DeviceState::Ready, DeviceState::Missing));
    assert!(process.net_admin && process.sys_ptrace && !process.store_socket);
    process
}

fn line(findings: &[Finding], name: &str) -> Finding {
    about(findings, &format!("/dev/xen/{name}"))[0].clone()
}

#[test]
fn parts_of_the_sandbox_that_a_kernel_offers() {
    use grantway_sandbox::{Landlock, Offer};
    let all = Offer { seccomp: true, landlock: Landlock::Version(7) };
    let judge = |offer: Offer| sandbox::judge(&offer);
    check(&judge(all), Verdict::Ok, "seccomp and landlock 7", "");
    let off = judge(Offer { landlock: Landlock::Off, ..all });
    check(&off, Verdict::Warn, "switched off: the control thread may open", "lsm=");
    let missing = judge(Offer { landlock: Landlock::Missing, ..all });
    check(&missing, Verdict::Warn, "lacks landlock", "5.13");
    let none = judge(Offer { seccomp: false, ..all });
    check(&none, Verdict::Warn, "workers may open files", "CONFIG_SECCOMP_FILTER");

    let tree = Tree::dom0();
    assert!(!Offer::of_kernel(&tree.roots().at("")).seccomp);
    let tree = tree.with("proc/sys/kernel/seccomp/actions_avail", "kill_process errno allow");
    assert!(Offer::of_kernel(&tree.roots().at("")).seccomp);
    assert_eq!(about(&on_xen(&tree.roots()), "sandbox").len(), 1);
}

#[test]
fn devices_that_the_part_needs() {
    use DeviceState::{Denied, Missing, Ready};
    let all = Process { xenbus: Ready, ..process() };
    for role in [Role::Dom0, Role::Driver, Role::Guest] {
        for finding in devices::judge(&all, role) {
            check(&finding, Verdict::Ok, "readable and writable", "");
        }
    }
    let none = Process { gntdev: Missing, gntalloc: Missing, evtchn: Denied, ..process() };
    let found = devices::judge(&none, Role::Dom0);
    check(&line(&found, "gntdev"), Verdict::Fail, "missing", "modprobe xen-gntdev");
    check(&line(&found, "gntalloc"), Verdict::Warn, "only a frontend", "modprobe xen-gntalloc");
    check(&line(&found, "evtchn"), Verdict::Fail, "cannot read", "run it as root");
    check(&line(&found, "xenbus"), Verdict::Fail, "if there is no socket", "dmesg");
    let guest = devices::judge(&none, Role::Guest);
    check(&line(&guest, "gntdev"), Verdict::Warn, "only a backend", "modprobe");
    check(&line(&guest, "gntalloc"), Verdict::Fail, "missing", "modprobe");
    let socket = devices::judge(&Process { store_socket: true, ..none }, Role::Dom0);
    check(&line(&socket, "xenbus"), Verdict::Warn, "without the socket", "dmesg");
}

#[test]
fn taps() {
    let judge =
        |tun, net_admin, needed| devices::tun(&Process { tun, net_admin, ..process() }, needed);
    check(&judge(DeviceState::Ready, true, true), Verdict::Ok, "usable", "");
    check(&judge(DeviceState::Missing, true, true), Verdict::Fail, "missing", "modprobe tun");
    check(&judge(DeviceState::Denied, true, false), Verdict::Warn, "only tap ports", "root");
    check(&judge(DeviceState::Ready, false, true), Verdict::Fail, "CAP_NET_ADMIN", "setcap");
    let status = Tree::new().with("proc/self/status", "CapEff:\t0000000000001000\n");
    let process = Process::gather(&status.roots());
    assert!(process.net_admin && !process.sys_ptrace);
}

/// Returns the finding about vhost-net, if there is one, beside backends with these ports.
fn vhost(tree: &Tree, ports: &[&str]) -> Option<Finding> {
    let backend = match ports {
        [] => BackendFact::Absent,
        ports => BackendFact::Serves {
            vifs: Vec::new(),
            bounds: Vec::new(),
            uplinks: Vec::new(),
            ports: ports.iter().map(|&port| port.to_owned()).collect(),
        },
    };
    let vhost = Vhost::gather(&tree.roots(), &backend);
    devices::vhost(&vhost, &Hints::on_xen(Role::Dom0))
}

#[test]
fn vhost_net_is_judged_only_if_a_backend_needs_it() {
    let options = |line: &str| Tree::dom0().with("etc/default/grantway", line);
    for line in [
        "",
        "#GRANTWAY_BACKEND_OPTIONS=\"--port vhost\"",
        "GRANTWAY_BACKEND_OPTIONS=\"--port tap --mirror vhost\"",
        "OTHER=\"--port vhost\"",
    ] {
        assert_eq!(vhost(&options(line), &[]), None, "{line}");
    }
    let remedy = "modprobe vhost_net; systemctl restart grantway-backend";
    for line in ["--port vhost", "--queues 2 --port=vhost:gw0", "'--port' 'vhost'"] {
        let line = format!("RUST_LOG=info\nGRANTWAY_BACKEND_OPTIONS=\"{line}\"");
        let found = vhost(&options(&line), &[]).unwrap_or_else(|| panic!("{line}"));
        let words = "missing (needed by --port vhost of /etc/default/grantway)";
        check(&found, Verdict::Fail, words, remedy);
    }
    // The file of options counts unless the environment has the port, too.
    let written =
        |tree: Tree| tree.with("etc/grantway/backend.toml", "queues = 2\nport = \"vhost\"\n");
    let words = "missing (needed by --port vhost of /etc/grantway/backend.toml)";
    check(&vhost(&written(Tree::dom0()), &[]).expect("a finding"), Verdict::Fail, words, remedy);
    let both = written(options("GRANTWAY_BACKEND_OPTIONS=\"--port tap\""));
    assert_eq!(vhost(&both, &[]), None);
    // A backend that runs knows its own options.
    let tree = options("GRANTWAY_BACKEND_OPTIONS=\"--port vhost\"");
    assert_eq!(vhost(&tree, &["tap"]), None);
    assert_eq!(vhost(&Tree::dom0(), &["bridge", "null"]), None);
    let found = vhost(&Tree::dom0(), &["tap", "vhost:gw0"]).expect("a finding");
    check(&found, Verdict::Fail, "of the running backend", remedy);
    assert_eq!(about(&on_xen(&tree.roots()), "/dev/vhost-net").len(), 1);
}

#[test]
fn the_file_of_options_is_judged() {
    let subject = "/etc/grantway/backend.toml";
    let found =
        |tree: &Tree| about(&on_xen(&tree.roots()), subject).first().map(|found| (*found).clone());
    let with = |text: &str| Tree::dom0().with(&subject[1..], text);
    assert_eq!(found(&Tree::dom0()), None);
    check(&found(&with("queues = 2\n")).unwrap(), Verdict::Ok, "valid", "");
    let invalid = found(&with("\nqueus = 2\n")).unwrap();
    let words = "line 2, column 1: found \"queus\"";
    let remedy = "did you mean \"queues\"?; then: systemctl restart grantway-backend";
    check(&invalid, Verdict::Fail, words, remedy);
    let unit = "usr/lib/systemd/system/grantway-backend.service";
    let unit = Tree::dom0()
        .with(unit, "ExecStart=/usr/bin/grantway backend --config /etc/grantway/backend.toml");
    check(&found(&unit).unwrap(), Verdict::Fail, "cannot start without it", "touch /etc/grantway");
}

#[test]
fn vhost_net_is_usable_denied_or_missing() {
    let tree = Tree::dom0().with("dev/vhost-net", "");
    check(&vhost(&tree, &["vhost"]).unwrap(), Verdict::Ok, "usable", "");
    let user = Some("the running backend".to_owned());
    let denied = Vhost { user, device: DeviceState::Denied, module: true };
    let found = devices::vhost(&denied, &Hints::on_xen(Role::Dom0)).unwrap();
    check(&found, Verdict::Fail, "cannot read and write", "as root");
    // The kernel's list decides, whether a node is left or not; a loaded module decides more.
    let dep = "lib/modules/6.1.0-1-amd64/modules.dep";
    for tree in [tree, Tree::dom0()] {
        let tree = tree.with(dep, "kernel/drivers/net/tun.ko.xz:\n");
        let found = vhost(&tree, &["vhost"]).unwrap();
        check(&found, Verdict::Fail, "no module vhost_net", "CONFIG_VHOST_NET");
    }
    let listed = "kernel/drivers/vhost/vhost_net.ko.xz: kernel/drivers/net/tun.ko.xz\n";
    let tree = Tree::dom0().with(dep, listed);
    check(&vhost(&tree, &["vhost"]).unwrap(), Verdict::Fail, "missing", "modprobe vhost_net");
    let tree = Tree::dom0()
        .with("dev/vhost-net", "")
        .with(dep, "")
        .with("sys/module/vhost_net/refcnt", "0");
    check(&vhost(&tree, &["vhost"]).unwrap(), Verdict::Ok, "usable", "");
}

/// Returns the finding about the kernel's backend.
fn module(tree: &Tree) -> Finding {
    netback::judge(&Netback::gather(&tree.roots())).remove(0)
}

#[test]
fn the_kernels_backend_is_kept_away() {
    let tree = Tree::dom0();
    check(
        &module(&tree),
        Verdict::Ok,
        "/usr/lib/modprobe.d/grantway.conf keeps it from loading",
        "",
    );
    for line in ["install xen-netback /bin/false", "install xen_netback /usr/bin/true"] {
        let tree = Tree::new().with("etc/modprobe.d/x.conf", line);
        check(&module(&tree), Verdict::Ok, "/etc/modprobe.d/x.conf", "");
    }
    let tree = Tree::new().with("proc/cmdline", "quiet modprobe.blacklist=a,xen_netback");
    check(&module(&tree), Verdict::Ok, "modprobe.blacklist", "");
    let none = Tree::new()
        .with("proc/sys/kernel/osrelease", "6.1")
        .with("lib/modules/6.1/modules.dep", "kernel/net/tun.ko.xz: kernel/net/xen-netback.ko\n");
    check(&module(&none), Verdict::Ok, "no such module", "");
}

#[test]
fn after_the_next_boot_a_backend_runs() {
    let wants = "etc/systemd/system/multi-user.target.wants";
    let boot = |tree: &Tree| {
        let findings = netback::judge(&Netback::gather(&tree.roots()));
        about(&findings, "next boot").first().map(|finding| (*finding).clone())
    };
    let tree = Tree::dom0();
    assert_eq!(boot(&tree), None, "without systemd");
    let tree = tree.with("run/systemd/system/x", "").with(&format!("{wants}/ssh.service"), "");
    let words = "no unit starts grantway-backend";
    check(&boot(&tree).unwrap(), Verdict::Fail, words, "systemctl enable grantway-backend");
    for unit in ["grantway-backend.service", "grantway-backend-domU.service"] {
        let tree = Tree::dom0()
            .with("run/systemd/system/x", "")
            .linked(&format!("{wants}/{unit}"), &format!("/lib/systemd/system/{unit}"));
        check(&boot(&tree).unwrap(), Verdict::Ok, "systemd starts grantway-backend", "");
    }
    // A kernel's backend that may come serves the vifs.
    let tree = Tree::new().with("run/systemd/system/x", "");
    assert_eq!(boot(&tree), None);
}

#[test]
fn the_kernels_backend_would_come() {
    // None of these forbids it: comments, other modules, other files, and a file that hides
    // another.
    let tree = Tree::dom0()
        .with("etc/modprobe.d/grantway.conf", "# blacklist xen-netback\nblacklist xen-blkback\n")
        .with("etc/modprobe.d/x.conf.off", "blacklist xen-netback\n")
        .with("etc/modprobe.d/y.conf", "install xen-netback /sbin/modprobe --ignore-install x\n");
    check(&module(&tree), Verdict::Fail, "udev will load it", "> /etc/modprobe.d/grantway.conf");
    let tree = tree.without("run/udev/control");
    check(&module(&tree), Verdict::Warn, "any program can", "install xen-netback /bin/false");
}

#[test]
fn the_kernels_backend_is_there() {
    let loaded = "xen_netback 61440 0 - Live 0x0000000000000000\n";
    let tree = Tree::dom0().with("proc/modules", loaded);
    check(&module(&tree), Verdict::Fail, "although a file forbids", "modprobe -r xen-netback");
    let tree = tree.without("usr/lib/modprobe.d/grantway.conf");
    check(&module(&tree), Verdict::Fail, "takes every vif", "modprobe.d/grantway.conf");
    let tree = Tree::dom0().with("sys/module/xen_netback/initstate", "live");
    check(&module(&tree), Verdict::Fail, "loaded", "modprobe -r");
    let builtin = Tree::dom0().with("sys/module/xen_netback/parameters/max_queues", "4");
    check(&module(&builtin), Verdict::Fail, "built into", "initcall_blacklist=netback_init");
    let builtin = Tree::dom0().with(
        "lib/modules/6.1.0-1-amd64/modules.builtin",
        "kernel/drivers/net/xen-netback/xen-netback.ko\n",
    );
    check(&module(&builtin), Verdict::Fail, "built into", "initcall_blacklist=netback_init");
}

#[test]
fn vifs_that_a_driver_of_the_kernel_holds() {
    let devices = "sys/bus/xen-backend/devices";
    let tree = Tree::dom0()
        .linked(&format!("{devices}/vif-3-0/driver"), "../../bus/xen-backend/drivers/vif")
        .linked(&format!("{devices}/vbd-3-51712/driver"), "../../bus/xen-backend/drivers/vbd")
        .with(&format!("{devices}/vif-4-0/nodename"), "x");
    let findings = netback::judge(&Netback::gather(&tree.roots()));
    assert_eq!(findings.len(), 2);
    let remedy = "echo vif-3-0 > /sys/bus/xen-backend/drivers/vif/unbind";
    check(about(&findings, "vif-3-0")[0], Verdict::Fail, "driver vif", remedy);
}

fn judged(tree: &Tree, role: Role, queues: u64) -> Vec<Finding> {
    let roots = tree.roots();
    limits::judge(&Limits::gather(&roots, role), &PlatformFacts::gather(&roots), role, queues)
}

#[test]
fn limits_with_room() {
    let tree = Tree::dom0()
        .program("xenhypfs", "exit 1")
        .program("xl", "[ $1 = info ] && echo 'xen_version : 4.17' && echo 'xen_commandline        : placeholder gnttab_max_frames=32 x'");
    let found = judged(&tree, Role::Dom0, 2);
    let one = |subject| about(&found, subject)[0];
    check(
        one("xen-gntalloc limit"),
        Verdict::Ok,
        "1024 pages: enough for 3 workers with an arena of 340",
        "",
    );
    check(one("grant table"), Verdict::Ok, "32 frames (Xen's command line): 16384 grants", "");
    let words = "1024 frames (Xen's default): 262144 handles, two per page on PV: 131072 mapped \
                 pages, 247 queues with all pages mapped; 2 queues attached";
    check(one("maptrack"), Verdict::Ok, words, "");
    check(one("vm.max_map_count"), Verdict::Ok, "65530: enough for 3024 queues of 16 areas", "");
    // The running Xen is believed more than its command line.
    let tree = tree.with("sys/hypervisor/guest_type", "PVH").program(
        "xenhypfs",
        "case $2 in /params/gnttab_max_frames) echo 128;; *maptrack_frames) echo 0x10;; esac",
    );
    let found = judged(&tree, Role::Dom0, 0);
    check(about(&found, "grant table")[0], Verdict::Ok, "128 frames (xenhypfs)", "");
    check(about(&found, "maptrack")[0], Verdict::Ok, "4096 handles, 4096 mapped pages", "");
}

#[test]
fn limits_without_room() {
    let tree = Tree::dom0()
        .with("sys/module/xen_gntalloc/parameters/limit", "300\n")
        .program("xl", "echo 'xen_commandline : gnttab_max_frames=0 gnttab_max_maptrack_frames=8'");
    let found = judged(&tree, Role::Dom0, 4000);
    let one = |subject| about(&found, subject)[0];
    check(one("xen-gntalloc limit"), Verdict::Warn, "0 workers with an arena", "echo 4096 >");
    check(one("grant table"), Verdict::Warn, "0 grants, at most 0 queues", "gnttab_max_frames=64");
    let remedy = "gnttab_max_maptrack_frames=4096";
    check(one("maptrack"), Verdict::Warn, "1024 mapped pages, 1 queue", remedy);
    check(
        one("vm.max_map_count"),
        Verdict::Warn,
        "4000 queues attached",
        "vm.max_map_count=262144",
    );
    let guest = judged(&tree, Role::Guest, 0);
    check(about(&guest, "xen-gntalloc limit")[0], Verdict::Fail, "0 frontend queues", "echo");
    assert!(about(&guest, "maptrack").is_empty());
}

#[test]
fn limits_that_cannot_be_read() {
    let tree = Tree::dom0().program("xl", "exec sleep 3600");
    let roots = tree.roots().waiting(SHORT);
    let judged = |role| {
        let facts = PlatformFacts::gather(&roots);
        limits::judge(&Limits::gather(&roots, role), &facts, role, 0)
    };
    let found = judged(Role::Dom0);
    let remedy = "xl info | grep xen_commandline";
    check(about(&found, "grant table")[0], Verdict::Warn, "gnttab_max_frames is unknown", remedy);
    check(about(&found, "maptrack")[0], Verdict::Warn, "is unknown", remedy);
    let driver = judged(Role::Driver);
    check(about(&driver, "maptrack")[0], Verdict::Ok, "dom0 sets max_maptrack_frames", "");
}

#[test]
fn features_that_the_embedded_host_needs() {
    let ptrace = |scope, sys_ptrace| {
        embedded::ptrace(&Process { ptrace_scope: scope, sys_ptrace, ..process() })
    };
    check(&ptrace(None, false), Verdict::Ok, "no Yama", "");
    check(&ptrace(Some(1), false), Verdict::Ok, "1: processes can copy", "");
    check(&ptrace(Some(2), true), Verdict::Ok, "CAP_SYS_PTRACE", "");
    let remedy = "sysctl -w kernel.yama.ptrace_scope=1";
    check(&ptrace(Some(2), false), Verdict::Fail, "no process can copy", remedy);
    check(&ptrace(Some(3), true), Verdict::Fail, "until the next reboot", "reboot");
    let memfd = |memfd| embedded::memfd(&Process { memfd, ..process() });
    check(&memfd(None), Verdict::Ok, "is available", "");
    check(&memfd(Some("EMFILE".into())), Verdict::Fail, "EMFILE", "ulimit -n");
}

#[test]
fn an_embedded_host_that_does_not_run() {
    let tree = Tree::dom0().with("proc/sys/kernel/yama/ptrace_scope", "1");
    let findings = on_embedded(&tree.roots(), &tree.path("gw"));
    check(about(&findings, "host")[0], Verdict::Fail, "No such file", "grantway host --dir ");
    check(about(&findings, "ptrace_scope")[0], Verdict::Ok, "1: ", "");
    assert!(about(&findings, "backend").is_empty());
}

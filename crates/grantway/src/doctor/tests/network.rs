//! Tests of vifs, of their interfaces, and of the ends that serve them.

use super::tree::Tree;
use super::{LONG, SHORT, about, check};
use crate::doctor::checks::{backend, frontends, links, vifs};
use crate::doctor::facts::backend::{BackendFact, Bounds, Served, Uplink};
use crate::doctor::facts::frontends::{FrontendFact, Ours};
use crate::doctor::facts::links as link_facts;
use crate::doctor::facts::platform::Role;
use crate::doctor::facts::vifs::{OwnVif, StoreFact, VifNodes};
use crate::doctor::finding::{Finding, Verdict};
use crate::doctor::hints::Hints;
use crate::doctor::on_xen;
use crate::shares::{Part, Parts};
use grantway_command::limits::UNBOUNDED;
use grantway_netif::XenbusState::{self, Closed, Closing, Connected, InitWait, Initialising};
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;

fn hints() -> Hints {
    Hints::on_xen(Role::Dom0)
}

fn serves(connected: bool) -> BackendFact {
    serves_all(vec![served(connected, "", 0)])
}

fn serves_all(vifs: Vec<Served>) -> BackendFact {
    BackendFact::Serves { vifs, bounds: Vec::new(), uplinks: Vec::new(), ports: Vec::new() }
}

fn bound(used: u64, limit: u64) -> Part {
    Part { used, limit }
}

fn parts<const N: usize>(each: [(&str, Part); N]) -> Parts {
    each.into_iter().map(|(key, part)| (key.to_owned(), part)).collect()
}

fn served(connected: bool, policy: &str, mapped: u64) -> Served {
    Served {
        name: "vif3.0".into(),
        connected,
        policy: policy.into(),
        mapped,
        full_checksums: false,
    }
}

/// Returns vif3.0, with its hotplug script done.
fn vif(backend: XenbusState, frontend: XenbusState) -> VifNodes {
    VifNodes {
        backend: Some(backend),
        frontend: Some(frontend),
        hotplug_status: Some("connected".into()),
        script: Some("/etc/xen/scripts/vif-bridge".into()),
        ..VifNodes::of(3, 0)
    }
}

fn judged(vif: &VifNodes) -> Finding {
    vifs::judge(vif, &serves(true), &hints())
}

#[test]
fn vifs_that_are_well() {
    check(&judged(&vif(Connected, Connected)), Verdict::Ok, "connected, 1 queue", "");
    // A guest that loads an XDP program, and one whose program is loaded.
    let (asks, answers) = (XenbusState::Reconfiguring, XenbusState::Reconfigured);
    for (backend, frontend) in [(Connected, asks), (answers, asks), (answers, Connected)] {
        check(&judged(&vif(backend, frontend)), Verdict::Ok, "connected, 1 queue", "");
    }
    check(&judged(&vif(InitWait, Initialising)), Verdict::Ok, "waits for its guest", "");
    check(&judged(&vif(Closed, Closed)), Verdict::Ok, "closed by its guest", "");
    let silent = BackendFact::Silent { socket: "s".into() };
    let found = vifs::judge(&vif(Connected, Connected), &silent, &hints());
    check(&found, Verdict::Ok, "connected in the store", "");
}

#[test]
fn how_buffers_cross_and_why_they_are_not_staged() {
    let staged = VifNodes { offers_staging: true, control_ring: true, ..vif(Connected, Connected) };
    let stock = VifNodes { control_ring: false, ..staged.clone() };
    let persistent = VifNodes { persistent: true, ..staged.clone() };
    let less = VifNodes { offers_staging: false, ..staged.clone() };
    for (vif, policy, mapped, words) in [
        (&staged, "staging", 528, "1 queue, policy staging: pages mapped: 528"),
        (&staged, "staging", 0, "policy copy; not staging: its frontend staged no page"),
        (&stock, "copy", 0, "policy copy; not staging: its frontend has no control ring"),
        (&persistent, "persistent", 9, "policy persistent; not staging: its frontend asks for"),
        (&less, "copy", 0, "policy copy; not staging: the backend's --policy excludes it"),
        (&less, "map", 40, "policy map; not staging: the backend runs with --policy map"),
    ] {
        let backend = serves_all(vec![served(true, policy, mapped)]);
        check(&vifs::judge(vif, &backend, &hints()), Verdict::Ok, words, "");
    }
}

#[test]
fn a_vif_with_full_checksums_is_named() {
    let full = Served { full_checksums: true, ..served(true, "copy", 0) };
    let found = vifs::judge(&vif(Connected, Connected), &serves_all(vec![full]), &hints());
    check(&found, Verdict::Ok, "connected, 1 queue, full checksums, policy copy", "");
}

#[test]
fn the_frontend_of_an_own_vif_is_found() {
    let vif = OwnVif {
        devid: 1,
        frontend: Some(Connected),
        backend: Some(Connected),
        control_ring: true,
        refuses_staging: false,
    };
    let tree = Tree::new().linked("sys/bus/xen/devices/vif-1/driver", "../../drivers/vif");
    let held = FrontendFact::gather(&tree.roots(), 1);
    assert_eq!(held, FrontendFact { driver: Some("vif".into()), ours: None });
    check(&frontends::judge(&vif, &held), Verdict::Ok, "the kernel's driver vif, which", "");
    let free = FrontendFact::gather(&tree.roots(), 0);
    assert_eq!(free, FrontendFact::default());
    let remedy = "grantway frontend --devid 1 --tap gw1";
    check(&frontends::judge(&vif, &free), Verdict::Warn, "no frontend", remedy);
    let ours = |connected, wished: &str, agreed: &str, staged| FrontendFact {
        driver: None,
        ours: Some(Ours {
            connected,
            wished: wished.into(),
            agreed: agreed.into(),
            policy: if staged == 0 && agreed == "staging" { "copy" } else { agreed }.into(),
            staged,
        }),
    };
    let waits = ours(false, "copy", "copy", 0);
    check(&frontends::judge(&vif, &waits), Verdict::Fail, "but the frontend is not", "restart");
    let early = OwnVif { backend: Some(InitWait), ..vif.clone() };
    check(&frontends::judge(&early, &waits), Verdict::Warn, "backend InitWait", "doctor");
    let both = FrontendFact { driver: held.driver, ..waits };
    let remedy = "echo vif-1 > /sys/bus/xen/drivers/vif/unbind";
    check(&frontends::judge(&vif, &both), Verdict::Fail, "two frontends", remedy);
    let none = OwnVif { control_ring: false, ..vif.clone() };
    let less = OwnVif { refuses_staging: true, ..vif.clone() };
    for (vif, wished, policy, staged, words) in [
        (&vif, "staging", "staging", 528, "connected, policy staging: pages mapped: 528"),
        (&vif, "auto", "staging", 528, "connected, policy staging: pages mapped: 528"),
        (&none, "auto", "copy", 0, "policy copy; not staging: the backend has no control ring"),
        (&vif, "staging", "staging", 0, "policy copy; not staging: the backend accepted no page"),
        (&vif, "copy", "copy", 0, "policy copy; not staging: the frontend did not ask for it"),
        (&none, "staging", "copy", 0, "policy copy; not staging: the backend has no control ring"),
        (
            &less,
            "staging",
            "persistent",
            0,
            "policy persistent; not staging: the backend's --policy",
        ),
    ] {
        let found = frontends::judge(vif, &ours(true, wished, policy, staged));
        check(&found, Verdict::Ok, words, "");
    }
}

#[test]
fn a_frontend_of_our_own_says_how_it_stands() {
    let tree = Tree::new().with("run/grantway/journal", "");
    let socket = tree.path("run/grantway/frontend-0.sock");
    let listener = UnixListener::bind(socket).unwrap();
    let answering = std::thread::spawn(move || {
        let report = br#"{"connected":true,"wished":"staging","agreed":"staging","policy":"staging","staged":528}"#;
        let _ = listener.accept().unwrap().0.write_all(report);
    });
    let ours = FrontendFact::gather(&tree.roots(), 0).ours.unwrap();
    assert_eq!((ours.connected, ours.staged, ours.policy.as_str()), (true, 528, "staging"));
    answering.join().unwrap();
}

#[test]
fn vifs_whose_script_failed() {
    let stuck = VifNodes { hotplug_status: None, ..vif(InitWait, Connected) };
    let script = "XENBUS_PATH=/local/domain/0/backend/vif/3/0 vif=vif3.0 \
                  /etc/xen/scripts/vif-bridge online type_if=vif";
    check(&judged(&stuck), Verdict::Fail, "did not report that it finished", script);
    let early = VifNodes { hotplug_status: None, ..vif(InitWait, Initialising) };
    check(&judged(&early), Verdict::Warn, "has not finished", "xen-hotplug.log");
    let failed = VifNodes {
        hotplug_status: Some("error".into()),
        hotplug_error: Some("Could not find bridge\x1b[2J".into()),
        ..vif(InitWait, Initialising)
    };
    check(&judged(&failed), Verdict::Fail, "failed: Could not find bridge [2J", script);
    // Nobody runs scripts on the embedded host.
    let hints = Hints::on_embedded(Path::new("/tmp/gw"));
    check(&vifs::judge(&early, &serves(true), &hints), Verdict::Ok, "waits", "");
}

#[test]
fn vifs_whose_ends_disagree() {
    for (backend, frontend, words) in [
        (Initialising, Connected, "the running backend does not serve it"),
        (InitWait, Connected, "the guest is ready but the backend is not"),
        (InitWait, XenbusState::Reconfiguring, "the guest is ready but the backend is not"),
        (Connected, Initialising, "do not match (backend Connected, frontend Initialising)"),
        (Closed, Connected, "do not match"),
        (Connected, Closed, "do not match"),
        (XenbusState::Reconfiguring, Connected, "do not match"),
        (XenbusState::Reconfigured, Closed, "do not match"),
    ] {
        let vif = vif(backend, frontend);
        check(&judged(&vif), Verdict::Fail, words, "journalctl -u grantway-backend -n 20");
        let start = "systemctl start grantway-backend";
        check(&vifs::judge(&vif, &BackendFact::Absent, &hints()), Verdict::Fail, "", start);
    }
    check(&judged(&vif(Connected, Closing)), Verdict::Warn, "closing", "xl network-detach 3 0");
}

#[test]
fn vifs_that_are_removed_or_should_be() {
    let offline = |backend, frontend| VifNodes { online: false, ..vif(backend, frontend) };
    check(&judged(&offline(Closed, Closed)), Verdict::Warn, "still in the store", "network-detach");
    check(&judged(&offline(Initialising, Initialising)), Verdict::Warn, "being detached", "xl");
    let gone = VifNodes { frontend: None, ..vif(Connected, Closed) };
    check(
        &judged(&gone),
        Verdict::Warn,
        "frontend's part of the store is gone",
        "xl network-detach 3 0",
    );
}

#[test]
fn vifs_that_the_backend_gave_up() {
    let error = Some("tx-ring-ref: found x, expected a grant reference".to_owned());
    let failed = VifNodes { error: error.clone(), ..vif(Closed, Connected) };
    check(&judged(&failed), Verdict::Fail, "wrote: tx-ring-ref: found x", "journalctl");
    let over = VifNodes { error, ..vif(Connected, Connected) };
    let remedy = "xenstore-rm /local/domain/0/backend/vif/3/0/error";
    check(&judged(&over), Verdict::Warn, "wrote: tx-ring-ref", remedy);
}

#[test]
fn vifs_that_the_store_takes_for_served() {
    let vif = vif(Connected, Connected);
    let judged = |backend| vifs::judge(&vif, &backend, &hints());
    check(&judged(BackendFact::Absent), Verdict::Fail, "are lost", "systemctl start");
    check(&judged(serves(false)), Verdict::Fail, "reports that it is not", "journalctl");
    let other = serves_all(Vec::new());
    check(&judged(other), Verdict::Fail, "does not serve it", "systemctl restart");
}

#[test]
fn a_missing_or_silent_backend_is_found() {
    let waiting = [vif(InitWait, Initialising)];
    let judged = |fact: BackendFact, vifs: &[VifNodes]| backend::judge(&fact, vifs, None, &hints());
    let by = Some("/lib/modprobe.d/grantway.conf");
    let nobody = |fact: BackendFact, vifs: &[VifNodes]| backend::judge(&fact, vifs, by, &hints());
    let words = "/lib/modprobe.d/grantway.conf keeps xen-netback from loading";
    check(&nobody(BackendFact::Absent, &[]), Verdict::Fail, words, "systemctl enable --now");
    check(&nobody(BackendFact::Absent, &waiting), Verdict::Fail, "wait for it: 1", "systemctl");
    check(&nobody(serves(true), &waiting), Verdict::Ok, "1 served, 1 connected", "");
    check(&judged(serves(true), &waiting), Verdict::Ok, "1 served, 1 connected", "");
    check(&judged(BackendFact::Absent, &[]), Verdict::Warn, "no vif needs", "systemctl start");
    check(&judged(BackendFact::Absent, &waiting), Verdict::Fail, "wait for it: 1", "systemctl");
    let socket = || "/run/grantway/backend-0.sock".to_owned();
    let denied = BackendFact::Denied { socket: socket() };
    check(&judged(denied, &waiting), Verdict::Warn, "backend-0.sock", "sudo");
    let silent = BackendFact::Silent { socket: socket() };
    check(&judged(silent, &waiting), Verdict::Fail, "hangs", "systemctl restart");
}

#[test]
fn the_backends_socket() {
    let tree = Tree::new().with("run/grantway/journal", "").with("run/grantway/other.sock", "");
    let folder = tree.path("run/grantway");
    assert_eq!(BackendFact::gather(&folder, LONG), BackendFact::Absent);
    drop(UnixListener::bind(folder.join("backend-0.sock")).unwrap());
    assert_eq!(BackendFact::gather(&folder, LONG), BackendFact::Absent, "a dead one's socket");
    let listener = UnixListener::bind(folder.join("backend-5.sock")).unwrap();
    let silent = BackendFact::gather(&folder, SHORT);
    assert!(matches!(silent, BackendFact::Silent { .. }), "{silent:?}");
    let answering = std::thread::spawn(move || {
        // The first client is the one that gave up.
        for client in listener.incoming().take(2) {
            let report = br#"{"vifs":[{"vif":"vif3.0","connected":true},{"x":1},7],
                "budget":{"pages":{"used":5,"limit":6},"areas":{"used":7}},
                "workers":[{"longest_round_ns":8,"round_limit_ns":9},{"longest_round_ns":10}, 1],
                "uplink":{"name":"packet:eth0","state":"down"}, "port":"vhost:gw0",
                "control":{"used":11,"limit":12}}"#;
            let _ = client.unwrap().write_all(report);
        }
    });
    let bounds = Bounds {
        shares: parts([("areas", bound(7, 0)), ("pages", bound(5, 6))]),
        round: bound(10, 9),
        control: bound(11, 12),
    };
    let (vifs, uplinks) = (vec![served(true, "", 0)], vec![uplink("down")]);
    let ports = vec!["vhost:gw0".to_owned()];
    let expected = BackendFact::Serves { vifs, bounds: vec![bounds], uplinks, ports };
    assert_eq!(BackendFact::gather(&folder, LONG), expected);
    answering.join().unwrap();
}

const TAP: (&str, &str) = ("tun_flags", "0x5002\n");
const KEPT: (&str, &str) = ("tun_flags", "0x5802\n");

/// Returns a vif in a bridge, and a system with its interface.
fn bridged() -> (VifNodes, Tree) {
    let vif = VifNodes { mtu: Some(1500), bridge: Some("br0".into()), ..vif(Connected, Connected) };
    let tree = Tree::new()
        .interface("vif3.0", 1500, &[KEPT])
        .linked("sys/class/net/vif3.0/brport/bridge", "../../br0")
        .interface("br0", 1500, &[])
        .with("sys/class/net/bonding_masters", "");
    (vif, tree)
}

fn looked(vif: &VifNodes, tree: &Tree, hints: &Hints) -> Vec<Finding> {
    links::judge(std::slice::from_ref(vif), &link_facts::gather(&tree.roots()), hints)
}

#[test]
fn interfaces_that_are_well() {
    let (vif, tree) = bridged();
    let found = looked(&vif, &tree, &hints());
    assert_eq!(found.len(), 1);
    check(&found[0], Verdict::Ok, "set up as their vifs require: 1", "");
    // The scripts rename the interface as the vif asks.
    let named = VifNodes { vifname: Some("br0".into()), bridge: None, ..vif };
    check(&looked(&named, &tree, &hints())[0], Verdict::Ok, "1", "");
    let unconnected = VifNodes { backend: Some(InitWait), ..VifNodes::of(9, 9) };
    assert!(looked(&unconnected, &tree, &hints()).is_empty());
}

#[test]
fn interfaces_of_another_mtu() {
    let (vif, tree) = bridged();
    let told = VifNodes { mtu: Some(9000), ..vif.clone() };
    let remedy = "ip link set dev vif3.0 mtu 9000";
    check(
        &looked(&told, &tree, &hints())[0],
        Verdict::Warn,
        "1500, but the guest's is 9000",
        remedy,
    );
    let tree = tree.with("sys/class/net/br0/mtu", "1400\n");
    let found = looked(&vif, &tree, &hints());
    check(&found[0], Verdict::Warn, "its bridge br0 is 1400", "ip link set dev br0 mtu 1500");
}

#[test]
fn interfaces_that_are_down_missing_or_astray() {
    let (vif, tree) = bridged();
    let tree = tree.with("sys/class/net/vif3.0/flags", "0x1002\n");
    check(&looked(&vif, &tree, &hints())[0], Verdict::Warn, "down", "ip link set dev vif3.0 up");
    let astray = Tree::new().interface("vif3.0", 1500, &[KEPT]);
    let remedy = "ip link set dev vif3.0 master br0";
    check(&looked(&vif, &astray, &hints())[0], Verdict::Fail, "not in a bridge", remedy);
    let found = looked(&vif, &Tree::new(), &hints());
    check(&found[0], Verdict::Fail, "no interface vif3.0", "journalctl");
    // The embedded host has no scripts, and ports of any kind.
    let embedded = Hints::on_embedded(Path::new("/tmp/gw"));
    check(&looked(&vif, &astray, &embedded)[0], Verdict::Ok, "1", "");
    assert!(looked(&vif, &Tree::new(), &embedded).is_empty());
}

#[test]
fn taps_left_over() {
    let (vif, tree) = bridged();
    let left =
        |tree: &Tree, vifs: &[VifNodes]| links::leftovers(vifs, &link_facts::gather(&tree.roots()));
    let vifs = [vif];
    check(&left(&tree, &vifs)[0], Verdict::Ok, "none: every TAP belongs to a vif", "");
    let found = left(&tree, &[]);
    check(about(&found, "vif3.0")[0], Verdict::Warn, "not in the store", "ip link del dev vif3.0");
    let tree = tree
        .interface("vif3.0-emu", 1500, &[TAP])
        .interface("vif4.1-emu", 1500, &[TAP])
        .interface("gone", 1500, &[KEPT, ("carrier", "0\n")])
        .interface("vpn", 1500, &[KEPT, ("carrier", "1\n")])
        .interface("vifx", 1500, &[TAP])
        .interface("tunnel", 1500, &[("tun_flags", "0x1801\n")])
        .interface("vif8.0", 1500, &[]);
    let found = left(&tree, &vifs);
    assert_eq!(found.len(), 2, "{found:?}");
    check(about(&found, "vif4.1-emu")[0], Verdict::Warn, "not in the store", "ip link del");
    check(about(&found, "gone")[0], Verdict::Warn, "unused TAP", "ip -d tuntap; if");
}

#[test]
fn stores_that_do_not_answer() {
    let judged = |fact| vifs::store(&fact, None);
    check(&judged(StoreFact::Silent), Verdict::Fail, "no answer", "restart xenstored");
    let refused = StoreFact::Refused("connect /run/x: refused".into());
    check(&judged(refused), Verdict::Fail, "refused", "Debian: systemctl start xen");
    let read = StoreFact::Read { socket: true, serves: true, vifs: Vec::new(), own: Vec::new() };
    check(&judged(read), Verdict::Ok, "vifs of this backend: 0", "");
    // A store that accepts and says nothing does not hold the doctor up.
    let tree = Tree::dom0().with("run/xenstored/x", "");
    let _listener = UnixListener::bind(tree.path("run/xenstored/socket")).unwrap();
    let found = on_xen(&tree.roots().waiting(SHORT));
    check(about(&found, "xenstore")[0], Verdict::Fail, "no answer", "xenstored");
}

fn uplink(state: &str) -> Uplink {
    Uplink { name: "packet:eth0".into(), state: state.into(), error: String::new() }
}

#[test]
fn an_uplink_that_carries_nothing_fails_with_its_remedy() {
    for (state, verdict, found, remedy) in [
        ("up", Verdict::Ok, "up", ""),
        ("open", Verdict::Ok, "open", ""),
        ("down", Verdict::Fail, "is down", "ip link set dev eth0 up"),
        ("no-carrier", Verdict::Fail, "no carrier", "cable"),
        ("gone", Verdict::Fail, "does not exist", "create the interface eth0"),
        ("lost", Verdict::Fail, "failed", "systemctl restart"),
    ] {
        let (vifs, bounds, ports) = (Vec::new(), Vec::new(), Vec::new());
        let served = BackendFact::Serves { vifs, bounds, uplinks: vec![uplink(state)], ports };
        let findings = backend::uplinks(&served, &hints());
        assert_eq!(findings.len(), 1);
        check(&findings[0], verdict, found, remedy);
    }
}

#[test]
fn shared_resources_are_shown_with_a_warning_before_they_are_used_up() {
    let shares = parts([
        ("pages", bound(528, 10_000)),
        ("areas", bound(3, 30_000)),
        ("descriptors", bound(40, 1024)),
        ("waiting_bytes", bound(1 << 20, 1 << 20)),
        ("fragmented", bound(256, 256)),
    ]);
    let bounds = Bounds {
        shares: shares.clone(),
        round: bound(1_250_000, 5_000_000),
        control: bound(12, 2072),
    };
    let judged = |bounds| {
        let (vifs, uplinks, ports) = (Vec::new(), Vec::new(), Vec::new());
        let findings = backend::bounds(&BackendFact::Serves { vifs, bounds, uplinks, ports });
        findings.into_iter().next()
    };
    assert_eq!(judged(Vec::new()), None);
    // Bytes that wait may well reach their limit, and so may fragmented packets, which are
    // forgotten for newer ones.
    let ok = judged(vec![bounds.clone()]).unwrap();
    let told = "528 of 10000 pages mapped, 3 of 30000 areas, 40 of 1024 descriptors, \
                1048576 of 1048576 waiting bytes, 256 of 256 fragmented packets, \
                longest round 1.2 of 5 ms, longest control step 12 of 2072 pages";
    check(&ok, Verdict::Ok, told, "");
    let with = |key: &str, part| {
        let mut shares = shares.clone();
        shares.insert(key.into(), part);
        judged(vec![Bounds { shares, ..bounds.clone() }]).unwrap()
    };
    for (key, told, remedy) in [
        ("pages", "9000 of 10000 pages mapped", "--mapped-total"),
        ("areas", "9000 of 10000 areas", "vm.max_map_count"),
        ("descriptors", "9000 of 10000 descriptors", "LimitNOFILE"),
    ] {
        check(&with(key, bound(9000, 10_000)), Verdict::Warn, told, remedy);
    }
    // Each share that is short has its remedy. A share that can have nothing is left out.
    let mut two = shares.clone();
    two.insert("descriptors".into(), bound(1024, 1024));
    two.insert("areas".into(), bound(29_000, 30_000));
    two.insert("connections".into(), bound(0, 0));
    let two = judged(vec![Bounds { shares: two, ..bounds.clone() }]).unwrap();
    check(
        &two,
        Verdict::Warn,
        "nearly used up: areas: further buffers are copied, descriptors: ",
        "",
    );
    check(&two, Verdict::Warn, "areas", "vm.max_map_count");
    check(&two, Verdict::Warn, "descriptors", "LimitNOFILE");
    assert!(!format!("{two:?}").contains("connections"), "{two:?}");
    // Without a hypervisor there is no limit of pages.
    let free = with("pages", bound(528, UNBOUNDED));
    check(&free, Verdict::Ok, "528 pages mapped, 3 of", "");
}

use super::bounds::bounds;
use super::judge::{Limit, limits};
use super::need::{Need, needs};
use super::*;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: PlanArgs,
}

fn plan_on(machine: &Machine, line: &str) -> Result<Plan, CommandError> {
    let words = ["plan"].into_iter().chain(line.split_whitespace());
    Plan::of(&Line::try_parse_from(words).unwrap().args, machine)
}

fn plan(line: &str) -> Plan {
    plan_on(&Machine::default(), line).unwrap()
}

#[track_caller]
fn need(plan: &Plan, side: &str, what: &str) -> Need {
    let found = needs(plan).into_iter().find(|need| need.side == side && need.what == what);
    found.unwrap_or_else(|| panic!("{side} {what}"))
}

#[track_caller]
fn limit(plan: &Plan, machine: &Machine, name: &str, of: &str) -> Limit {
    let found = limits(plan, machine).into_iter().find(|l| l.name == name && l.of == of);
    found.unwrap_or_else(|| panic!("{name} of {of}"))
}

#[track_caller]
fn check(plan: &Plan, name: &str, of: &str, need: u64, raise: Option<&str>) {
    let limit = limit(plan, &Machine::default(), name, of);
    assert_eq!(limit.need, need, "{name}");
    assert_eq!(limit.fits(), raise.is_none(), "{limit:?}");
    assert!(limit.raise.contains(raise.unwrap_or_default()), "{}", limit.raise);
}

#[test]
fn two_hundred_staged_vifs_by_hand() {
    let plan = plan("--vifs 200 --queues 2 --policy staging");
    // (2 + 400) * 2 + 3
    let grants = need(&plan, "guest", "grants, total");
    assert_eq!((grants.queue, grants.vif, grants.all), (Some(402), 807, 161_400));
    assert_eq!(need(&plan, "guest", "at rest").vif, 2 * 272);
    assert_eq!(need(&plan, "guest", "memory granted").vif, 807 * 4096);
    assert_eq!(need(&plan, "guest", "event channels").all, 1000);
    // 4 rings, the control ring, 800 buffers; twice on PV.
    assert_eq!(need(&plan, "backend", "pages mapped: rings, control ring").vif, 5);
    assert_eq!(need(&plan, "backend", "pages mapped: buffers").vif, 800);
    assert_eq!(need(&plan, "backend", "at rest").vif, 544);
    assert_eq!(need(&plan, "backend", "maptrack handles").all, 2 * 805 * 200);
    // 5 + 2 * 3 + 1
    assert_eq!(need(&plan, "backend", "areas of address space").all, 2400);
    // (8 + 807) / 512
    check(&plan, "gnttab_max_frames", "each guest", 2, None);
    check(&plan, "xen-gntalloc limit", "a guest with Grantway", 807, None);
    // Buffers take 320,000 / 256 = 1250, which are three quarters of 1667.
    let option = "gnttab_max_maptrack_frames=2048 to GRUB";
    check(&plan, "gnttab_max_maptrack_frames", "dom0", 1667, Some(option));
    let option = "grantway backend --mapped-total 160000";
    check(&plan, "--mapped-total", "grantway backend", 160_000, Some(option));
    check(&plan, "event channels, 2-level", "dom0", 1000, None);
    check(&plan, "vm.max_map_count", "grantway backend", 3400, None);
    // 9 * 200 + 64
    check(&plan, "descriptors", "the backend's unit", 1864, None);
    check(&plan, "xen-gntdev limit", "one map call", 512, None);
    assert!(!limits(&plan, &Machine::default()).iter().any(|l| l.name == "store watches"));
}

#[test]
fn vhost_takes_four_megabytes_and_four_descriptors_per_queue() {
    let (tap, vhost) = (plan("--vifs 40 --queues 2"), plan("--vifs 40 --queues 2 --port vhost"));
    assert!(!needs(&tap).iter().any(|need| need.what.contains("vhost")));
    let memory = need(&vhost, "backend", "memory of vhost-net");
    let bytes = grantway_ports::VhostTap::MEMORY as u64;
    assert!((4 << 20..(4 << 20) + (64 << 10)).contains(&bytes), "{bytes}");
    assert_eq!((memory.queue, memory.vif, memory.all), (Some(bytes), 2 * bytes, 80 * bytes));
    let threads = need(&vhost, "backend", "threads of vhost-net");
    assert_eq!((threads.queue, threads.vif, threads.all), (Some(1), 2, 80));
    // 2 + 4 a queue, and 5.
    let descriptors = need(&vhost, "backend", "descriptors");
    assert_eq!((descriptors.queue, descriptors.vif), (Some(6), 17));
    assert_eq!(need(&tap, "backend", "descriptors").queue, Some(2));
    check(&vhost, "descriptors", "the backend's unit", 40 * 17 + 64, None);
    let areas = |plan| limit(plan, &Machine::default(), "vm.max_map_count", "grantway backend");
    assert_eq!(areas(&vhost).need - areas(&tap).need, 80);
    let many = plan("--vifs 4000 --queues 2 --port vhost");
    let raise = Some("LimitNOFILE=131072");
    check(&many, "descriptors", "the backend's unit", 4000 * 17 + 64, raise);
}

#[test]
fn units_allow_the_descriptors_that_a_plan_counts_with() {
    for unit in [
        include_str!("../../../../packaging/systemd/grantway-backend.service.in"),
        include_str!("../../../../packaging/systemd/grantway-backend-domU.service.in"),
    ] {
        let line = format!("LimitNOFILE={}", grantway_command::limits::DESCRIPTORS);
        assert!(unit.lines().any(|found| found == line), "no {line}");
    }
}

#[test]
fn a_hundred_and_ten_staged_vifs_are_within_the_defaults() {
    let plan = plan("--vifs 110 --policy staging");
    for limit in limits(&plan, &Machine::default()) {
        assert!(limit.fits(), "{limit:?}");
    }
}

#[test]
fn a_page_is_one_handle_where_the_domain_is_not_pv() {
    for (kind, pages) in [("pv", 2), ("pvh", 1), ("hvm", 1)] {
        let plan = plan(&format!("--vifs 1 --policy staging --type {kind}"));
        assert_eq!(need(&plan, "backend", "maptrack handles").vif, pages * 403, "{kind}");
    }
    let machine = Machine { kind: Some(DomainKind::Pvh), ..Machine::default() };
    assert_eq!(plan_on(&machine, "--vifs 1").unwrap().kind, DomainKind::Pvh);
    assert_eq!(plan_on(&machine, "--vifs 1 --type pv").unwrap().kind, DomainKind::Pv);
}

#[test]
fn persistent_pages_may_be_in_sixteen_areas() {
    // A vif has 16 areas of buffers. They are three quarters of the limit, beside 1000 of the
    // process.
    let plan = plan("--vifs 3100 --policy persistent");
    check(&plan, "vm.max_map_count", "grantway backend", 67_134, Some("max_map_count=131072"));
    let plan = super::tests::plan("--vifs 3024 --policy persistent");
    check(&plan, "vm.max_map_count", "grantway backend", 65_512, None);
}

#[test]
fn queues_and_mapped_pages_are_options_of_the_backend() {
    let plan = plan("--vifs 1 --queues 11 --policy staging");
    check(&plan, "--queues", "grantway backend", 11, Some("grantway backend --queues 11"));
    check(&plan, "--mapped-pages", "each vif", 4400, Some("--mapped-pages 4400"));
    // What is not mapped is copied.
    assert_eq!(need(&plan, "backend", "pages mapped: buffers").vif, 4096);
    let plan = super::tests::plan("--vifs 1 --queues 11 --policy staging --mapped-pages 4400");
    check(&plan, "--mapped-pages", "each vif", 4400, None);
    let plan = super::tests::plan("--vifs 1 --queues 4");
    check(&plan, "--queues", "grantway backend", 4, None);
    check(&plan, "--mapped-pages", "each vif", 0, None);
}

#[test]
fn a_driver_domain_has_quotas() {
    let plan = plan("--vifs 49 --driver-domain --type hvm");
    check(&plan, "store watches", "driver domain", 99, None);
    check(&plan, "store nodes", "driver domain", 1421, Some("quota-maxentity = 2048"));
    check(&plan, "max_event_channels", "driver domain", 147, None);
    let plan = super::tests::plan("--vifs 200 --queues 4 --driver-domain --policy staging");
    check(&plan, "store watches", "driver domain", 401, Some("-W 512 in XENSTORED_ARGS"));
    let ports = "max_event_channels=2047 in xl.cfg";
    check(&plan, "max_event_channels", "driver domain", 1800, Some(ports));
    // 2 * 1600 * 200 / 256 = 2500, which are three quarters of 3334.
    let both = "max_maptrack_frames=4096 in xl.cfg, and add gnttab_max_maptrack_frames=4096";
    check(&plan, "gnttab_max_maptrack_frames", "driver domain", 3334, Some(both));
}

#[test]
fn many_vifs_of_one_guest() {
    let plan = plan("--vifs 84 --per-guest 84");
    // (8 + 84 * 405) / 512
    let option = "max_grant_frames=128 in xl.cfg, and add gnttab_max_frames=128";
    check(&plan, "gnttab_max_frames", "each guest", 67, Some(option));
    check(&plan, "store nodes", "each guest", 84 * 21, Some("-E 2048"));
    check(&plan, "max_event_channels", "each guest", 252, None);
}

#[test]
fn event_channels_of_both_kinds() {
    let plan = plan("--vifs 10000 --queues 16 --per-guest 4");
    check(&plan, "event channels, 2-level", "dom0", 330_000, Some("xen.fifo_events=0"));
    check(&plan, "event channels, FIFO", "dom0", 330_000, Some("driver domains"));
    let fifo = limit(&plan, &Machine::default(), "event channels, FIFO", "dom0");
    assert_eq!(fifo.default, 131_071);
}

#[test]
fn this_machine_goes_before_the_default() {
    let plan = plan("--vifs 3100 --policy persistent");
    let machine = Machine { map_count: Some(262_144), ..Machine::default() };
    let areas = limit(&plan, &machine, "vm.max_map_count", "grantway backend");
    assert!(areas.fits());
    let text = judge::table(&[areas]).to_string();
    let row: Vec<_> = text.lines().nth(1).unwrap().split("  ").filter(|w| !w.is_empty()).collect();
    let words = ["vm.max_map_count", "grantway backend", "67134", "65530", "262144", "fits"];
    assert_eq!(row.iter().map(|w| w.trim()).collect::<Vec<_>>(), words);
    let machine = Machine { map_count: Some(1024), ..Machine::default() };
    assert!(!limit(&plan, &machine, "vm.max_map_count", "grantway backend").fits());
}

#[test]
fn useless_options_are_refused() {
    let refused = |line: &str| plan_on(&Machine::default(), line).unwrap_err().to_string();
    let text = refused("--vifs 40000");
    assert!(text.contains("need 40000 guests") && text.ends_with("--per-guest 2"), "{text}");
    assert!(refused("--vifs 2 --per-guest 3").contains("expected 1 to 2"));
    for line in
        ["--vifs 0", "--vifs x", "--queues 1", "--vifs 1 --queues 0", "--vifs 1 --queues 17"]
    {
        let words = ["plan"].into_iter().chain(line.split_whitespace());
        assert!(Line::try_parse_from(words).is_err(), "{line}");
    }
}

#[test]
fn shared_resources_are_bounded_and_some_are_reserved_per_vif() {
    let of = |vifs: u64, what: &str| {
        let bounds = bounds(&plan(&format!("--vifs {vifs}")));
        let found = bounds.into_iter().find(|bound| bound.what.starts_with(what));
        let bound = found.unwrap_or_else(|| panic!("{what}"));
        (bound.all, bound.least, bound.most)
    };
    for vifs in [1, 200] {
        assert_eq!(of(vifs, "round of a worker"), (5000, None, None));
        // A burst begins below two lists of 512 entries, and its last request below one. That
        // request may take twice a list, the pages of staging, and the look at a list behind it.
        let most = (2 * 512 - 1) + (512 - 1) + 2 * (512 + 256) + 65;
        assert_eq!(of(vifs, "control step"), (most, None, None));
    }
    assert_eq!(of(1, "stations"), (64, None, Some(64)));
    assert_eq!(of(300, "stations"), (16_384, None, Some(64)));
    assert_eq!(of(10, "connections"), (65_536 + 11_264, Some(1024), Some(16_384)));
    assert_eq!(of(10, "fragmented packets"), (2816, Some(256), Some(256)));
}

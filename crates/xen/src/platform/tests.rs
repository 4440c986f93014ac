//! Tests of a domain whose drivers are not loaded.

use super::*;
use grantway_hypervisor::CopySide;
use std::os::unix::net::UnixListener;

fn bare() -> (tempfile::TempDir, UnixListener, Arc<Xen>) {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("dev/xen")).unwrap();
    std::fs::create_dir_all(root.path().join("run/xenstored")).unwrap();
    let socket = UnixListener::bind(root.path().join("run/xenstored/socket")).unwrap();
    let xen = Xen::open_in(Layout::under(root.path())).unwrap();
    (root, socket, xen)
}

#[test]
fn each_missing_driver_is_named_with_its_remedy() {
    let (root, _socket, xen) = bare();
    let told = |error: Error| error.to_string().replace(&root.path().display().to_string(), "");
    let missing = |name| {
        format!(
            "open /dev/xen/{name}: No such file or directory (os error 2); load it: modprobe xen-{name}"
        )
    };
    let grefs = [GrantRef(8)];
    let map = xen.map(DomId(1), &grefs, Access::ReadOnly).unwrap_err();
    assert_eq!(told(map), missing("gntdev"));
    assert_eq!(told(xen.require_backend().unwrap_err()), missing("gntdev"));
    let source = CopySide::Foreign { domain: DomId(1), gref: grefs[0], offset: 0 };
    let mut ops = [CopyOp::new(source, CopySide::Local { offset: 0 }, 1)];
    assert_eq!(told(xen.copy(&mut [0], &mut ops).unwrap_err()), missing("gntdev"));
    let grant = xen.grant(DomId(1), 1, Access::ReadWrite).unwrap_err();
    assert_eq!(told(grant), missing("gntalloc"));
    assert_eq!(told(xen.require_gntalloc().unwrap_err()), missing("gntalloc"));
    assert_eq!(told(xen.events().err().unwrap()), missing("evtchn"));
    assert_eq!((xen.domain(), xen.host()), (DomId::ZERO, "xen"));
    assert_eq!((xen.counters().granted, xen.counters().mapped), (0, 0));
}

#[test]
fn a_domain_without_a_store_has_the_number_that_it_is_given() {
    let root = tempfile::tempdir().unwrap();
    let open = || Xen::numbered(Layout::under(root.path()), (DomId(5), false), Arc::default());
    assert!(matches!(open(), Err(OpenError::NotXen { .. })));
    std::fs::create_dir_all(root.path().join("dev/xen")).unwrap();
    let xen = open().unwrap();
    assert_eq!(xen.domain(), DomId(5));
    // Memory for copies is granted to no domain by a number that nothing proved: gntalloc is not
    // even opened.
    let device = root.path().join("dev/xen/gntalloc");
    std::fs::write(&device, "").unwrap();
    let is_open = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        open.flatten().any(|fd| std::fs::read_link(fd.path()).is_ok_and(|path| path == device))
    };
    assert!(xen.arena(4096).is_none() && !is_open());
    let proven = Xen::numbered(Layout::under(root.path()), (DomId(5), true), Arc::default());
    let proven = proven.unwrap();
    assert!(proven.arena(4096).is_none() && is_open(), "it was asked, and is no gntalloc");
    drop(proven);
    // The devices are those of any domain. Only a store that is asked for is missed.
    assert!(xen.events().err().unwrap().to_string().contains("evtchn"));
    assert!(xen.store().err().unwrap().to_string().contains("xenbus"));
}

#[test]
fn a_driver_without_grant_copy_is_named() {
    let (root, _socket, xen) = bare();
    // The kernel gives no file of a disk these requests.
    std::fs::write(root.path().join("dev/xen/gntdev"), "").unwrap();
    let text = xen.require_backend().unwrap_err().to_string();
    let text = text.replace(&root.path().display().to_string(), "");
    assert_eq!(
        text,
        "grant copy by /dev/xen/gntdev: the driver of this kernel does not know it; use Linux 4.9 \
         or later"
    );
}

/// A domain maps by its own device once one is asked for, and by the shared device once its own is
/// dropped. Neither is a gntdev here, so each map fails, with an error of its own.
#[test]
fn pages_of_a_domain_that_is_kept_apart_are_mapped_by_its_own_device() {
    let (root, _socket, xen) = bare();
    let gntdev = root.path().join("dev/xen/gntdev");
    let map =
        |domain| xen.map(DomId(domain), &[GrantRef(8)], Access::ReadOnly).unwrap_err().to_string();
    assert!(xen.apart(DomId(7)).is_none(), "there is no device");
    std::fs::write(&gntdev, "").unwrap();
    let apart = xen.apart(DomId(7)).unwrap();
    std::fs::remove_file(&gntdev).unwrap();
    let by_its_own = map(7);
    assert!(by_its_own.starts_with("mapping 1 grants of domain 7"), "{by_its_own}");
    let by_that_of_all = map(9);
    assert!(by_that_of_all.contains("No such file"), "{by_that_of_all}");
    drop(apart);
    let closed = map(7);
    assert!(closed.contains("No such file"), "{closed}");
}

#[test]
fn a_restored_domain_is_found_anew_and_counts_on() {
    let (root, socket, xen) = bare();
    Counters::add(&xen.counters.copies, 7);
    let restored = xen.restored().unwrap();
    assert_eq!((restored.domain(), restored.counters().copies), (DomId::ZERO, 7));
    Counters::add(&restored.counters.copies, 1);
    assert_eq!(xen.counters().copies, 8);
    drop(socket);
    assert!(xen.restored().unwrap_err().to_string().contains("start it"));
    drop(root);
}

#[test]
fn empty_lists_are_refused_as_on_the_embedded_host() {
    let (_root, _socket, xen) = bare();
    let map = xen.map(DomId(1), &[], Access::ReadOnly).unwrap_err();
    assert_eq!(
        map.to_string(),
        "a list of grants to map: found an empty one, expected at least one"
    );
    let grant = xen.grant(DomId(1), 0, Access::ReadOnly).unwrap_err();
    assert_eq!(grant.to_string(), "a grant: found 0 pages, expected at least one");
    assert_eq!(xen.copy(&mut [], &mut []), Ok(()));
}

#[test]
fn only_a_pv_domain_maps_its_own_grants() {
    let (root, _socket, xen) = bare();
    // The kind is read when the domain is opened.
    let refusal = || {
        let xen = xen.restored().unwrap();
        xen.map(DomId(0), &[GrantRef(8)], Access::ReadOnly).unwrap_err().to_string()
    };
    let refused = |kind: &str| {
        format!(
            "mapping what this domain granted to itself: found a domain of type {kind}, which does \
             not survive that, expected type PV, or two domains"
        )
    };
    assert_eq!(refusal(), refused("unknown"));
    let folder = root.path().join("sys/hypervisor");
    std::fs::create_dir_all(&folder).unwrap();
    for kind in ["PVH", "HVM"] {
        std::fs::write(folder.join("guest_type"), format!("{kind}\n")).unwrap();
        assert_eq!(refusal(), refused(kind));
    }
    std::fs::write(folder.join("guest_type"), "PV\n").unwrap();
    assert!(refusal().ends_with("modprobe xen-gntdev"));
}

#[test]
fn a_store_that_went_away_is_an_error_of_the_next_connection() {
    let (root, socket, xen) = bare();
    assert!(xen.store().is_ok());
    drop(socket);
    let gone = xen.store().err().unwrap().to_string();
    assert!(gone.contains("Connection refused") && gone.contains("xenstored"), "{gone}");
    drop(root);
}

#[test]
fn a_platform_goes_wherever_threads_are() {
    fn is<T: Send + Sync + 'static>() {}
    is::<Xen>();
    fn sends<T: Send + ?Sized>() {}
    sends::<dyn EventChannels>();
    sends::<dyn Store>();
}

#[test]
fn limits_are_those_of_the_drivers_or_their_usual_ones() {
    let (root, _socket, xen) = bare();
    assert_eq!((xen.read.gntdev, xen.read.gntalloc), (65_536, 1024));
    for (module, limit) in [("xen_gntdev", "512\n"), ("xen_gntalloc", "4096\n")] {
        let folder = root.path().join("sys/module").join(module).join("parameters");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("limit"), limit).unwrap();
    }
    let xen = xen.restored().unwrap();
    assert_eq!((xen.read.gntdev, xen.read.gntalloc), (512, 4096));
}

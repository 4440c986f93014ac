//! Tests against a real embedded host, on a thread.

use super::*;
use grantway_embedded::{Domain, Host, HostGuard, Role};
use grantway_hypervisor::Platform;
use std::sync::Arc;

const GUEST: DomId = DomId(7);
const VIF: VifId = VifId { domain: GUEST, devid: 0 };
const FRONT: &str = "/local/domain/7/device/vif/0";
const BACK: &str = "/local/domain/0/backend/vif/7/0";
const SOON: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(120);

struct Bench {
    _dir: tempfile::TempDir,
    host: HostGuard,
    domain: Arc<Domain>,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::spawn(&dir.path().join("host")).unwrap();
        let domain = Domain::connect(host.dir(), DomId::ZERO, Role::Service).unwrap();
        Self { _dir: dir, host, domain }
    }

    /// Makes a bench with the guest's domain.
    fn with_guest() -> Self {
        let bench = Self::new();
        assert!(bench.domain.create_domain(GUEST, "guest").unwrap());
        bench
    }

    fn store(&self) -> Box<dyn Store> {
        self.domain.store().unwrap()
    }

    fn guest_store(&self) -> (Arc<Domain>, Box<dyn Store>) {
        let guest = Domain::connect(self.host.dir(), GUEST, Role::Service).unwrap();
        let store = guest.store().unwrap();
        (guest, store)
    }

    fn attach(&self, vif: &str) -> Result<Attached, DeviceError> {
        attach(self.store().as_mut(), GUEST, &vif.parse().unwrap(), [1, 2, 3])
    }

    /// Runs a backend that closes when it is asked to, as far as the store shows.
    fn backend(&self) -> std::thread::JoinHandle<bool> {
        let mut store = self.store();
        store.write(&format!("{BACK}/state"), b"4").unwrap();
        store.watch(&format!("{BACK}/state"), "b").unwrap();
        std::thread::spawn(move || {
            let end = Instant::now() + LONG;
            while Instant::now() < end {
                while store.next_event().unwrap().is_some() {}
                let state = store.read_text(&format!("{BACK}/state")).unwrap();
                if state.as_deref() == Some("5") {
                    let offline = store.read_text(&format!("{BACK}/online")).unwrap();
                    store.write(&format!("{BACK}/state"), b"6").unwrap();
                    return offline.as_deref() == Some("0");
                }
                wait(store.as_ref(), Duration::from_millis(100)).unwrap();
            }
            false
        })
    }
}

fn text(store: &mut dyn Store, path: &str) -> Option<String> {
    store.read_text(path).unwrap()
}

#[test]
fn what_libxl_writes() {
    let bench = Bench::with_guest();
    let attached = bench
        .attach(
            "mac=00:16:3e:00:00:01,vifname=gwb1,bridge=br0,script=vif-bridge,rate=10Mb/s,mtu=9000",
        )
        .unwrap();
    assert_eq!(attached.vif, VIF);
    assert_eq!(VIF.to_string(), "vif7.0");
    let mut store = bench.store();
    let mut at = |path: &str, key: &str| text(store.as_mut(), &format!("{path}/{key}")).unwrap();
    for (key, value) in [
        ("frontend", FRONT),
        ("frontend-id", "7"),
        ("online", "1"),
        ("state", "1"),
        ("handle", "0"),
        ("mac", "00:16:3e:00:00:01"),
        ("type", "vif"),
        ("script", "/etc/xen/scripts/vif-bridge"),
        ("bridge", "br0"),
        ("mtu", "9000"),
        ("rate", "62500,50000"),
        ("vifname", "gwb1"),
    ] {
        assert_eq!(at(BACK, key), value, "{key}");
    }
    for (key, value) in [
        ("backend", BACK),
        ("backend-id", "0"),
        ("state", "1"),
        ("handle", "0"),
        ("mac", "00:16:3e:00:00:01"),
        ("trusted", "1"),
        ("mtu", "9000"),
    ] {
        assert_eq!(at(FRONT, key), value, "{key}");
    }
}

#[test]
fn what_is_not_said_is_not_written() {
    let bench = Bench::with_guest();
    let attached = bench.attach("").unwrap();
    assert_eq!(attached.mac.to_string(), "00:16:3e:01:02:03");
    let mut store = bench.store();
    for key in ["script", "bridge", "mtu", "rate", "vifname", "checksum", "hotplug-status"] {
        assert_eq!(text(store.as_mut(), &format!("{BACK}/{key}")), None, "{key}");
    }
    assert_eq!(text(store.as_mut(), &format!("{FRONT}/mtu")).as_deref(), Some("1500"));
    let untrusting = bench.attach("untrusted").unwrap();
    let node = format!("{}/trusted", untrusting.vif.frontend_path());
    assert_eq!(text(store.as_mut(), &node).as_deref(), Some("0"));
}

#[test]
fn each_side_writes_its_own_folder_only() {
    let bench = Bench::with_guest();
    bench.attach("").unwrap();
    let (_guest, mut store) = bench.guest_store();
    let eacces = |result: Result<(), Error>| {
        matches!(result, Err(Error::Store { errno: StoreErrno::Eacces, .. }))
    };
    store.write(&format!("{FRONT}/state"), b"1").unwrap();
    store.write(&format!("{FRONT}/tx-ring-ref"), b"8").unwrap();
    assert!(text(store.as_mut(), &format!("{BACK}/state")).is_some());
    assert!(eacces(store.write(&format!("{BACK}/state"), b"6")));
    assert!(eacces(store.write(&format!("{FRONT}/mtu"), b"9000")));
    assert!(eacces(store.write(&format!("{}/backend", VIF.record_path()), b"/local/domain/7")));
    // The backend's domain may read the nodes that the guest adds.
    assert!(text(bench.store().as_mut(), &format!("{FRONT}/tx-ring-ref")).is_some());
}

#[test]
fn another_guest_sees_nothing() {
    let bench = Bench::with_guest();
    bench.attach("").unwrap();
    bench.domain.create_domain(DomId(8), "other").unwrap();
    let other = Domain::connect(bench.host.dir(), DomId(8), Role::Service).unwrap();
    let mut store = other.store().unwrap();
    for path in [FRONT, BACK] {
        let read = store.read(&format!("{path}/mac"));
        assert!(matches!(read, Err(Error::Store { errno: StoreErrno::Eacces, .. })), "{read:?}");
    }
}

#[test]
fn numbers_are_taken_from_below() {
    let bench = Bench::with_guest();
    let devid = |vif: &str| bench.attach(vif).map(|attached| attached.vif.devid);
    assert_eq!(devid("").unwrap(), 0);
    assert_eq!(devid("devid=2").unwrap(), 2);
    assert_eq!(devid("").unwrap(), 1);
    assert_eq!(devid("").unwrap(), 3);
    let taken = devid("devid=2").unwrap_err();
    assert!(matches!(taken, DeviceError::Taken { free: 4, .. }));
    assert!(taken.to_string().contains("vif7.2 is already attached"), "{taken}");
}

#[test]
fn a_domain_that_is_not_there() {
    let bench = Bench::new();
    assert!(matches!(bench.attach(""), Err(DeviceError::NoDomain { domain: GUEST, .. })));
    bench.domain.create_domain(GUEST, "guest").unwrap();
    let refused = bench.attach("backend=9");
    assert!(matches!(refused, Err(DeviceError::NoDomain { domain: DomId(9), .. })));
    let mut store = bench.store();
    let none = VifId { domain: DomId(12), devid: 0 };
    let refused = detach(store.as_mut(), none, SOON);
    assert!(matches!(refused, Err(DeviceError::NoDomain { .. })), "{refused:?}");
    let refused = detach(store.as_mut(), VIF, SOON);
    assert!(matches!(refused, Err(DeviceError::NoVif { .. })), "{refused:?}");
}

#[test]
fn nobody_has_to_let_go_of_a_vif_that_nobody_took_up() {
    let bench = Bench::with_guest();
    bench.attach("").unwrap();
    detach(bench.store().as_mut(), VIF, Duration::ZERO).unwrap();
    let mut store = bench.store();
    for path in [FRONT, BACK, "/local/domain/0/backend", "/local/domain/7/device", "/libxl/7"] {
        assert_eq!(text(store.as_mut(), path), None, "{path}");
    }
    for path in ["/local/domain/0", "/local/domain/7"] {
        assert!(text(store.as_mut(), path).is_some(), "{path}");
    }
    assert_eq!(bench.attach("").unwrap().vif, VIF);
}

#[test]
fn detaching_one_leaves_the_other() {
    let bench = Bench::with_guest();
    bench.attach("").unwrap();
    bench.attach("").unwrap();
    detach(bench.store().as_mut(), VIF, Duration::ZERO).unwrap();
    let rows = list(bench.store().as_mut()).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].vif.devid, 1);
}

#[test]
fn a_backend_is_asked_and_waited_for() {
    let bench = Bench::with_guest();
    bench.attach("").unwrap();
    let backend = bench.backend();
    detach(bench.store().as_mut(), VIF, LONG).unwrap();
    assert!(backend.join().unwrap(), "online was 0 when the state became Closing");
    assert_eq!(list(bench.store().as_mut()).unwrap(), []);
}

#[test]
fn a_backend_that_holds_on() {
    let bench = Bench::with_guest();
    bench.attach("").unwrap();
    let mut store = bench.store();
    store.write(&format!("{BACK}/state"), b"4").unwrap();
    let error = detach(store.as_mut(), VIF, SOON).unwrap_err();
    assert!(matches!(error, DeviceError::StillOpen { waited, .. } if waited >= SOON));
    assert!(error.to_string().contains("--force"), "{error}");
    assert_eq!(list(store.as_mut()).unwrap().len(), 1, "it is still there");
    remove(store.as_mut(), VIF).unwrap();
    assert_eq!(list(store.as_mut()).unwrap(), []);
    assert_eq!(text(store.as_mut(), BACK), None);
}

#[test]
fn the_guests_own_words_choose_nothing_to_remove() {
    let bench = Bench::with_guest();
    bench.attach("").unwrap();
    bench.attach("").unwrap();
    let (_guest, mut guest) = bench.guest_store();
    guest.write(&format!("{FRONT}/backend"), b"/local/domain/0/backend/vif/7/1").unwrap();
    remove(bench.store().as_mut(), VIF).unwrap();
    let rows = list(bench.store().as_mut()).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].backend_state, Some(XenbusState::Initialising));
}

#[test]
fn a_record_that_is_none() {
    let bench = Bench::with_guest();
    bench.attach("").unwrap();
    let mut store = bench.store();
    for found in ["/local/domain/0", "/local/domain/0/backend/vif/7/1", ""] {
        store.write(&format!("{}/backend", VIF.record_path()), found.as_bytes()).unwrap();
        assert!(matches!(remove(store.as_mut(), VIF), Err(DeviceError::Record { .. })));
    }
    assert!(text(store.as_mut(), "/local/domain/0").is_some());
}

#[test]
fn a_list_of_what_is_there() {
    let bench = Bench::with_guest();
    bench.attach("vifname=gwb1,bridge=br0,mtu=1400,rate=1MB/s@20ms").unwrap();
    let mut store = bench.store();
    store.write(&format!("{BACK}/state"), b"2").unwrap();
    let rows = list(store.as_mut()).unwrap();
    let row = &rows[0];
    assert_eq!((row.vif, row.backend), (VIF, DomId(0)));
    assert_eq!(row.mac.as_deref(), Some("00:16:3e:01:02:03"));
    assert_eq!(row.vifname.as_deref(), Some("gwb1"));
    assert_eq!(row.bridge.as_deref(), Some("br0"));
    assert_eq!(row.mtu.as_deref(), Some("1400"));
    assert_eq!(row.rate.as_deref(), Some("20000,20000"));
    assert_eq!(row.backend_state, Some(XenbusState::InitWait));
    assert_eq!(row.frontend_state, Some(XenbusState::Initialising));
}

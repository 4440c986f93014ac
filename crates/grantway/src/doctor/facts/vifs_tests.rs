use super::*;
use crate::doctor::checks;
use crate::doctor::finding::Verdict;
use std::collections::BTreeMap;

/// A store of this domain, number 7.
#[derive(Default)]
struct Fake {
    nodes: BTreeMap<String, Vec<u8>>,
    hidden: Vec<&'static str>,
}

impl Fake {
    fn with(mut self, path: &str, value: impl AsRef<[u8]>) -> Self {
        self.nodes.insert(absolute(path), value.as_ref().to_vec());
        self
    }

    fn check(&self, path: &str) -> Result<String, Error> {
        let full = absolute(path);
        let errno = match self.hidden.iter().any(|hidden| full.starts_with(hidden)) {
            true => StoreErrno::Eacces,
            false if self.nodes.keys().any(|node| node.starts_with(&full)) => return Ok(full),
            false => StoreErrno::Enoent,
        };
        Err(Error::Store { what: "look", path: full, errno })
    }
}

fn absolute(path: &str) -> String {
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/local/domain/7/{path}"),
    }
}

impl StoreOps for Fake {
    fn read(&mut self, path: &str) -> Result<Vec<u8>, Error> {
        let full = self.check(path)?;
        Ok(self.nodes.get(&full).cloned().unwrap_or_default())
    }

    fn write(&mut self, _: &str, _: &[u8]) -> Result<(), Error> {
        panic!("the doctor changes nothing")
    }

    fn remove(&mut self, _: &str) -> Result<(), Error> {
        panic!("the doctor changes nothing")
    }

    fn list(&mut self, path: &str) -> Result<Vec<String>, Error> {
        let full = self.check(path)? + "/";
        let below = self.nodes.keys().filter_map(|node| node.strip_prefix(&full));
        let mut names: Vec<_> =
            below.map(|rest| rest.split('/').next().unwrap_or(rest).to_owned()).collect();
        names.dedup();
        Ok(names)
    }
}

const BACK: &str = "backend/vif/3/0";
const FRONT: &str = "/local/domain/3/device/vif/0";

fn driver() -> Fake {
    Fake::default()
        .with("domid", "7")
        .with(&format!("{BACK}/state"), "4")
        .with(&format!("{BACK}/online"), "1")
        .with(&format!("{BACK}/mtu"), "9000\0")
        .with(&format!("{BACK}/hotplug-status"), "connected")
        .with(&format!("{FRONT}/state"), "4")
        .with(&format!("{FRONT}/multi-queue-num-queues"), "4000000000")
}

#[test]
fn a_driver_domains_vifs() {
    let store = driver().with("backend/vif/x/0/state", "4").with("backend/vif/12/1/state", "2");
    let mut store = store.with("/local/domain/12/device/vif/1/mtu", "1400");
    let StoreFact::Read { socket: false, serves: true, vifs, .. } =
        look(&mut store, false).unwrap()
    else {
        panic!("read")
    };
    let [first, second] = vifs.as_slice() else { panic!("{vifs:?}") };
    assert_eq!(first.path, "/local/domain/7/backend/vif/3/0");
    assert_eq!((first.backend, first.frontend), (Some(XenbusState::Connected), first.backend));
    assert_eq!((first.mtu, first.queues, first.online), (Some(9000), QUEUES_MAX, true));
    assert_eq!(first.hotplug_status.as_deref(), Some("connected"));
    assert_eq!((second.default_name().as_str(), second.frontend), ("vif12.1", None));
    assert_eq!(second.mtu, Some(1400));
}

#[test]
fn a_guest_serves_nobody_and_sees_little() {
    let mut guest = Fake::default().with("domid", "7").with("name", "x");
    let found = look(&mut guest, false).unwrap();
    let none = StoreFact::Read { socket: false, serves: false, vifs: vec![], own: vec![] };
    assert_eq!(found, none);
    // A guest has vifs of its own, and sees what their backend offers.
    let back = "/local/domain/0/backend/vif/7/1";
    let mut guest = guest
        .with("device/vif/1/state", "4")
        .with("device/vif/1/backend", back)
        .with(&format!("{back}/state"), "2")
        .with(&format!("{back}/feature-ctrl-ring"), "1")
        .with(&format!("{back}/feature-staging"), "0")
        .with("device/vif/0/state", "1");
    let found = look(&mut guest, false).unwrap();
    let [first, second] = found.own_vifs() else { panic!("{found:?}") };
    assert_eq!((first.devid, first.frontend), (0, Some(XenbusState::Initialising)));
    assert_eq!((first.backend, first.control_ring, first.refuses_staging), (None, false, false));
    assert_eq!((second.devid, second.backend), (1, Some(XenbusState::InitWait)));
    assert!(second.control_ring && second.refuses_staging);
    let mut blind = driver();
    blind.hidden = vec![FRONT];
    let found = look(&mut blind, false).unwrap();
    assert_eq!(found.vifs()[0].frontend, None);
}

#[test]
fn invalid_states_and_escapes_of_a_guest_are_harmless() {
    let mut store = driver()
        .with(&format!("{FRONT}/state"), "\x1b[2J\u{0}9")
        .with(&format!("{BACK}/error"), b"\xff\x1b]0;x\x07\nb");
    let found = look(&mut store, false).unwrap();
    let vif = &found.vifs()[0];
    assert_eq!(vif.frontend, Some(XenbusState::Unknown));
    let error = vif.error.as_deref().unwrap();
    assert!(!error.contains(|c: char| c.is_control()), "{error:?}");
}

#[test]
fn no_store_at_all() {
    const LONG: Duration = Duration::from_secs(120);
    let found = StoreFact::gather(&[], LONG);
    assert_eq!(found, StoreFact::Missing);
    assert_eq!(checks::vifs::store(&found, None).verdict(), Verdict::Fail);
    let nowhere = StoreAt::Device("/no/such/device".into());
    assert!(matches!(StoreFact::gather(&[nowhere], LONG), StoreFact::Refused(_)));
}

//! A platform in one process: grants are pages of the heap, the store is a
//! map, and an event is a counter.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{RefCell, RefMut};
use grantway_hypervisor::{
    Access, DomId, Error, FrontendEvents, FrontendPlatform, FrontendStore, GrantRef, Granted, Port,
    Released, StoreErrno, StoreOps, WatchEvent,
};
use grantway_ring::{SharedPage, SharedRun};

/// The guest's domain.
pub const GUEST: DomId = DomId(1);

/// State that both ends share: store, grants, event channels.
#[derive(Default)]
pub struct World {
    nodes: BTreeMap<String, Vec<u8>>,
    watches: Vec<WatchEvent>,
    fired: Vec<WatchEvent>,
    grants: BTreeMap<u32, SharedPage>,
    ports: BTreeMap<u32, Signals>,
    last_port: u32,
}

/// One event channel.
#[derive(Default)]
struct Signals {
    to_backend: u64,
    to_guest: u64,
    /// Number of signals in `to_guest` that the guest has seen.
    seen: u64,
}

impl World {
    /// A node's value.
    pub fn read(&self, path: &str) -> Option<String> {
        self.nodes.get(path).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    /// Sets a node; the watches above it fire.
    pub fn write(&mut self, path: &str, value: &str) {
        self.nodes.insert(path.to_owned(), value.as_bytes().to_vec());
        self.fire(path);
    }

    /// Removes a node and all below it; their watches fire.
    pub fn remove(&mut self, path: &str) {
        let gone = |node: &str| {
            node.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let paths: Vec<_> = self.nodes.keys().filter(|node| gone(node)).cloned().collect();
        for path in paths {
            self.nodes.remove(&path);
            self.fire(&path);
        }
    }

    fn fire(&mut self, path: &str) {
        let above = |watch: &&WatchEvent| {
            let rest = path.strip_prefix(watch.path.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let path = path.to_owned();
        let fired: Vec<_> = (self.watches.iter().filter(above))
            .map(|watch| WatchEvent { path: path.clone(), token: watch.token.clone() })
            .collect();
        self.fired.extend(fired);
    }

    /// The page behind a grant, as the backend maps it.
    pub fn page(&self, gref: u32) -> Option<SharedPage> {
        self.grants.get(&gref).cloned()
    }

    /// Grants in force.
    pub fn granted(&self) -> usize {
        self.grants.len()
    }

    /// Ports of the guest.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }

    /// Signals the guest.
    pub fn signal_guest(&mut self, port: u32) {
        self.ports.entry(port).or_default().to_guest += 1;
    }

    /// Returns the number of signals that the guest sent on a port.
    pub fn signals_to_backend(&self, port: u32) -> u64 {
        self.ports.get(&port).map_or(0, |signals| signals.to_backend)
    }
}

/// A value of the one thread that there is.
#[derive(Default)]
struct OneThread(RefCell<World>);

// SAFETY: this program never starts a second thread.
unsafe impl Send for OneThread {}
// SAFETY: as above.
unsafe impl Sync for OneThread {}

/// The platform, and the guest's connections to it.
#[derive(Clone, Default)]
pub struct Mock(Arc<OneThread>);

impl Mock {
    /// Borrows the shared state for a moment.
    pub fn world(&self) -> RefMut<'_, World> {
        self.0.0.borrow_mut()
    }
}

impl FrontendPlatform for Mock {
    fn domain(&self) -> DomId {
        GUEST
    }

    fn grant(&self, peer: DomId, pages: usize, _: Access) -> Result<Granted, Error> {
        let run = SharedRun::private(pages);
        let mut world = self.world();
        let mut grefs = Vec::new();
        for page in (0..pages).filter_map(|at| run.page(at)) {
            let last = world.grants.keys().next_back().copied();
            let gref = last.map_or(GrantRef::FIRST_FREE, |last| last + 1);
            world.grants.insert(gref, page);
            grefs.push(GrantRef(gref));
        }
        Ok(Granted { run, grefs, peer })
    }

    fn release(&self, granted: Granted) -> Released {
        let mut released = Released::default();
        for gref in granted.grefs {
            match self.world().grants.remove(&gref.0) {
                Some(_) => released.revoked += 1,
                None => released.deferred += 1,
            }
        }
        released
    }

    fn frontend_events(&self) -> Result<Box<dyn FrontendEvents>, Error> {
        Ok(Box::new(Set { mock: self.clone(), ports: Vec::new() }))
    }

    fn frontend_store(&self) -> Result<Box<dyn FrontendStore>, Error> {
        Ok(Box::new(self.clone()))
    }
}

/// A set of event channels: it sees the signals of its own ports only.
struct Set {
    mock: Mock,
    ports: Vec<u32>,
}

impl FrontendEvents for Set {
    fn alloc_unbound(&mut self, _: DomId) -> Result<Port, Error> {
        let mut world = self.mock.world();
        world.last_port += 1;
        let port = world.last_port;
        world.ports.insert(port, Signals::default());
        self.ports.push(port);
        Ok(Port(port))
    }

    fn close(&mut self, port: Port) {
        self.ports.retain(|ours| *ours != port.0);
        self.mock.world().ports.remove(&port.0);
    }

    fn notify(&mut self, port: Port) -> Result<(), Error> {
        let why = "not a port of ours";
        match self.mock.world().ports.get_mut(&port.0) {
            Some(signals) => signals.to_backend += 1,
            None => return Err(Error::Event { domain: GUEST, port, why }),
        }
        Ok(())
    }

    fn poll(&mut self, fired: &mut dyn FnMut(Port)) -> Result<(), Error> {
        let mut world = self.mock.world();
        for port in &self.ports {
            let Some(signals) = world.ports.get_mut(port) else { continue };
            if signals.seen != signals.to_guest {
                signals.seen = signals.to_guest;
                fired(Port(*port));
            }
        }
        Ok(())
    }
}

impl StoreOps for Mock {
    fn read(&mut self, path: &str) -> Result<Vec<u8>, Error> {
        let value = self.world().nodes.get(path).cloned();
        value.ok_or_else(|| Error::Store {
            what: "read",
            path: path.to_owned(),
            errno: StoreErrno::Enoent,
        })
    }

    fn write(&mut self, path: &str, value: &[u8]) -> Result<(), Error> {
        self.world().write(path, &String::from_utf8_lossy(value));
        Ok(())
    }

    fn remove(&mut self, path: &str) -> Result<(), Error> {
        self.world().remove(path);
        Ok(())
    }

    fn list(&mut self, path: &str) -> Result<Vec<String>, Error> {
        let world = self.world();
        let below =
            world.nodes.keys().filter_map(|node| node.strip_prefix(path)?.strip_prefix('/'));
        let mut names: Vec<_> = below.filter_map(|rest| rest.split('/').next()).collect();
        names.dedup();
        Ok(names.into_iter().map(ToOwned::to_owned).collect())
    }
}

impl FrontendStore for Mock {
    // One thread: whatever happens between begin and end is alone.
    fn begin(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn end(&mut self, _: bool) -> Result<(), Error> {
        Ok(())
    }

    fn watch(&mut self, path: &str, token: &str) -> Result<(), Error> {
        let watch = WatchEvent { path: path.to_owned(), token: token.to_owned() };
        let mut world = self.world();
        world.watches.push(watch.clone());
        world.fired.push(watch);
        Ok(())
    }

    fn next_event(&mut self) -> Result<Option<WatchEvent>, Error> {
        let mut world = self.world();
        Ok(if world.fired.is_empty() { None } else { Some(world.fired.remove(0)) })
    }
}

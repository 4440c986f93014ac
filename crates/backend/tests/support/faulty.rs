//! A platform whose store fails for a while, where a test wants it to, and which tells what
//! was mapped. It demands that each guest's pages are kept apart from others'.

use grantway_embedded::Domain;
use grantway_hypervisor::{
    Access, Apart, CopyOp, CounterSnapshot, DomId, Error, EventChannels, GrantRef, Granted,
    Granter, Mapper, Permission, Platform, Released, Revoke, Store, StoreErrno, StoreOps,
    WatchEvent,
};
use grantway_ring::SharedRun;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

struct Fault {
    path: String,
    errno: StoreErrno,
    times: usize,
}

/// What is to fail yet, and what was mapped.
#[derive(Default)]
pub struct Faults(Mutex<Vec<Fault>>, Mutex<Maps>);

#[derive(Default)]
struct Maps {
    /// Whose pages, and how many: each time that it was tried.
    tried: Vec<(DomId, usize)>,
    /// How often each guest's pages are kept apart.
    apart: BTreeMap<DomId, usize>,
}

/// A guest's pages are kept apart.
struct Kept(Arc<Faults>, DomId);

impl Drop for Kept {
    fn drop(&mut self) {
        *self.0.1.lock().unwrap().apart.get_mut(&self.1).unwrap() -= 1;
    }
}

impl Faults {
    /// Whatever is next asked about a node fails, so many times.
    pub fn plan(&self, path: String, errno: StoreErrno, times: usize) {
        self.0.lock().unwrap().push(Fault { path, errno, times });
    }

    /// Whether all that was planned has come.
    pub fn are_over(&self) -> bool {
        self.0.lock().unwrap().iter().all(|fault| fault.times == 0)
    }

    /// Whose pages were mapped, and how many, each time that it was tried since this was
    /// asked.
    pub fn maps(&self) -> Vec<(DomId, usize)> {
        std::mem::take(&mut self.1.lock().unwrap().tried)
    }

    fn meet(&self, what: &'static str, path: &str) -> Result<(), Error> {
        let mut faults = self.0.lock().unwrap();
        let due = |fault: &&mut Fault| fault.times > 0 && fault.path == path;
        let Some(fault) = faults.iter_mut().find(due) else { return Ok(()) };
        fault.times -= 1;
        Err(Error::Store { what, path: path.into(), errno: fault.errno })
    }
}

pub struct Faulty {
    domain: Arc<Domain>,
    faults: Arc<Faults>,
}

impl Faulty {
    pub fn over(domain: Arc<Domain>, faults: Arc<Faults>) -> Self {
        Self { domain, faults }
    }
}

impl Granter for Faulty {
    fn grant(&self, peer: DomId, pages: usize, access: Access) -> Result<Granted, Error> {
        self.domain.grant(peer, pages, access)
    }

    fn revoke(&self, gref: GrantRef) -> Revoke {
        self.domain.revoke(gref)
    }

    fn release(&self, granted: Granted) -> Released {
        self.domain.release(granted)
    }
}

impl Mapper for Faulty {
    fn map(&self, peer: DomId, grefs: &[GrantRef], access: Access) -> Result<SharedRun, Error> {
        let mut maps = self.faults.1.lock().unwrap();
        maps.tried.push((peer, grefs.len()));
        let apart = maps.apart.get(&peer).copied().unwrap_or(0);
        drop(maps);
        assert!(apart > 0, "{grefs:?} of domain {peer} are mapped among others' pages");
        self.domain.map(peer, grefs, access)
    }

    fn apart(&self, peer: DomId) -> Option<Apart> {
        *self.faults.1.lock().unwrap().apart.entry(peer).or_default() += 1;
        Some(Box::new(Kept(Arc::clone(&self.faults), peer)))
    }

    fn copy(&self, arena: &mut [u8], ops: &mut [CopyOp]) -> Result<(), Error> {
        self.domain.copy(arena, ops)
    }
}

impl Platform for Faulty {
    fn domain(&self) -> DomId {
        self.domain.domain()
    }

    fn host(&self) -> &'static str {
        self.domain.host()
    }

    fn events(&self) -> Result<Box<dyn EventChannels>, Error> {
        self.domain.events()
    }

    fn store(&self) -> Result<Box<dyn Store>, Error> {
        Ok(Box::new(FaultyStore { store: self.domain.store()?, faults: Arc::clone(&self.faults) }))
    }

    fn counters(&self) -> CounterSnapshot {
        self.domain.counters()
    }
}

struct FaultyStore {
    store: Box<dyn Store>,
    faults: Arc<Faults>,
}

impl StoreOps for FaultyStore {
    fn read(&mut self, path: &str) -> Result<Vec<u8>, Error> {
        self.faults.meet("read", path)?;
        self.store.read(path)
    }

    fn write(&mut self, path: &str, value: &[u8]) -> Result<(), Error> {
        self.faults.meet("write", path)?;
        self.store.write(path, value)
    }

    fn remove(&mut self, path: &str) -> Result<(), Error> {
        self.faults.meet("rm", path)?;
        self.store.remove(path)
    }

    fn list(&mut self, path: &str) -> Result<Vec<String>, Error> {
        self.faults.meet("directory", path)?;
        self.store.list(path)
    }

    fn set_permissions(&mut self, path: &str, permissions: &[Permission]) -> Result<(), Error> {
        self.store.set_permissions(path, permissions)
    }
}

impl Store for FaultyStore {
    fn begin(&mut self) -> Result<(), Error> {
        self.store.begin()
    }

    fn end(&mut self, commit: bool) -> Result<(), Error> {
        self.store.end(commit)
    }

    fn watch(&mut self, path: &str, token: &str) -> Result<(), Error> {
        self.store.watch(path, token)
    }

    fn unwatch(&mut self, path: &str, token: &str) -> Result<(), Error> {
        self.store.unwatch(path, token)
    }

    fn next_event(&mut self) -> Result<Option<WatchEvent>, Error> {
        self.store.next_event()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.store.descriptor()
    }
}

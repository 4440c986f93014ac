//! A platform that fails for a while, where a test wants it to (its store, the mapping of
//! pages, the binding of event channels), and which tells what was mapped. It demands that
//! each guest's pages are kept apart from others'.

use grantway_embedded::Domain;
use grantway_hypervisor::{
    Access, Apart, BackendPlatform, CopyOp, CopySide, CounterSnapshot, DomId, Error, EventChannels,
    FrontendEvents, FrontendPlatform, FrontendStore, GrantRef, Granted, Mapper, Permission,
    Platform, Port, Released, Store, StoreErrno, StoreOps, WatchEvent,
};
use grantway_ring::{PAGE_SIZE, SharedRun};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Fault {
    path: String,
    errno: StoreErrno,
    times: usize,
}

#[derive(Default)]
struct Maps {
    /// Mappings that were tried since [`Faults::maps`] was called last: the domain, and the
    /// number of pages. None before its first call.
    tried: Option<Vec<(DomId, usize)>>,
    /// Number of claims at present that keep each guest's pages apart.
    apart: BTreeMap<DomId, usize>,
}

/// Claim that keeps a guest's pages apart.
struct Kept(Arc<Faults>, DomId);

impl Drop for Kept {
    fn drop(&mut self) {
        *self.0.maps.lock().unwrap().apart.get_mut(&self.1).unwrap() -= 1;
    }
}

/// Kind of request to a platform, of which some can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// The store: a node or a list is read.
    Read,
    /// A node is written or removed.
    Write,
    /// A transaction begins.
    Begin,
    /// A transaction is to be committed.
    Commit,
    /// A watch is set.
    Watch,
    /// A watch is ended.
    Unwatch,
    /// Pages of a guest are mapped.
    Map,
    /// An event channel is bound.
    Bind,
}

/// Plan for requests of one kind: the first `before` succeed, then `times` fail.
struct Row {
    asked: Asked,
    before: usize,
    times: usize,
    error: Error,
}

/// Failures that are planned, and mappings that were tried.
#[derive(Default)]
pub struct Faults {
    nodes: Mutex<Vec<Fault>>,
    row: Mutex<Option<Row>>,
    maps: Mutex<Maps>,
    straddling: [AtomicUsize; 2],
}

impl Faults {
    /// Makes the next `times` operations on a node fail.
    pub fn plan(&self, path: String, errno: StoreErrno, times: usize) {
        self.nodes.lock().unwrap().push(Fault { path, errno, times });
    }

    /// Lets the next `before` requests of a kind succeed, then makes `times` fail. There is one
    /// such plan at a time.
    pub fn plan_row(&self, asked: Asked, before: usize, times: usize, error: Error) {
        *self.row.lock().unwrap() = Some(Row { asked, before, times, error });
    }

    /// Makes requests to the store fail like [`Faults::plan_row`], with an error of the store.
    pub fn plan_store(&self, asked: Asked, before: usize, times: usize, errno: StoreErrno) {
        let error = Error::Store { what: "planned", path: format!("{asked:?}"), errno };
        self.plan_row(asked, before, times, error);
    }

    /// Ends the plan of [`Faults::plan_row`]. Returns the number of failures that did not come.
    pub fn end_row(&self) -> usize {
        self.row.lock().unwrap().take().map_or(0, |row| row.times)
    }

    /// Returns the number of failures that are still planned for this node.
    pub fn left_of(&self, path: &str) -> usize {
        let nodes = self.nodes.lock().unwrap();
        nodes.iter().filter(|fault| fault.path == path).map(|fault| fault.times).sum()
    }

    /// Returns true if all planned failures have come.
    pub fn are_over(&self) -> bool {
        let nodes = self.nodes.lock().unwrap().iter().all(|fault| fault.times == 0);
        nodes && self.row.lock().unwrap().as_ref().is_none_or(|row| row.times == 0)
    }

    /// Returns the mappings that were tried since the last call, each with its domain and
    /// number of pages. The first call returns an empty list.
    pub fn maps(&self) -> Vec<(DomId, usize)> {
        self.maps.lock().unwrap().tried.replace(Vec::new()).unwrap_or_default()
    }

    /// Returns the number of copies so far into two pages of the backend's arena, and the
    /// number of copies from two.
    pub fn straddling(&self) -> [usize; 2] {
        self.straddling.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    fn meet(&self, what: &'static str, path: &str) -> Result<(), Error> {
        let mut faults = self.nodes.lock().unwrap();
        let due = |fault: &&mut Fault| fault.times > 0 && fault.path == path;
        let Some(fault) = faults.iter_mut().find(due) else { return Ok(()) };
        fault.times -= 1;
        Err(Error::Store { what, path: path.into(), errno: fault.errno })
    }

    fn ask(&self, asked: Asked) -> Result<(), Error> {
        let mut row = self.row.lock().unwrap();
        let Some(row) = row.as_mut().filter(|row| row.asked == asked) else { return Ok(()) };
        if row.before > 0 {
            row.before -= 1;
        } else if row.times > 0 {
            row.times -= 1;
            return Err(row.error.clone());
        }
        Ok(())
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

impl FrontendPlatform for Faulty {
    fn domain(&self) -> DomId {
        self.domain.domain()
    }

    fn grant(&self, peer: DomId, pages: usize, access: Access) -> Result<Granted, Error> {
        self.domain.grant(peer, pages, access)
    }

    fn release(&self, granted: Granted) -> Released {
        self.domain.release(granted)
    }

    fn frontend_events(&self) -> Result<Box<dyn FrontendEvents>, Error> {
        Ok(self.events()?)
    }

    fn frontend_store(&self) -> Result<Box<dyn FrontendStore>, Error> {
        Ok(self.store()?)
    }
}

impl Mapper for Faulty {
    fn map(&self, peer: DomId, grefs: &[GrantRef], access: Access) -> Result<SharedRun, Error> {
        let mut maps = self.faults.maps.lock().unwrap();
        if let Some(tried) = &mut maps.tried {
            tried.push((peer, grefs.len()));
        }
        let apart = maps.apart.get(&peer).copied().unwrap_or(0);
        drop(maps);
        assert!(apart > 0, "{grefs:?} of domain {peer} are mapped among others' pages");
        self.faults.ask(Asked::Map)?;
        self.domain.map(peer, grefs, access)
    }

    fn apart(&self, peer: DomId) -> Option<Apart> {
        *self.faults.maps.lock().unwrap().apart.entry(peer).or_default() += 1;
        Some(Box::new(Kept(Arc::clone(&self.faults), peer)))
    }

    fn copy(&self, arena: &mut [u8], ops: &mut [CopyOp]) -> Result<(), Error> {
        let page = |at: usize| at / PAGE_SIZE;
        for op in ops.iter() {
            for (side, count) in [op.dest, op.source].into_iter().zip(&self.faults.straddling) {
                let CopySide::Local { offset } = side else { continue };
                let (first, len) = (offset as usize, usize::from(op.len));
                if page(first) != page(first + len.saturating_sub(1)) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        self.domain.copy(arena, ops)
    }
}

impl BackendPlatform for Faulty {
    fn events(&self) -> Result<Box<dyn EventChannels>, Error> {
        let (events, faults) = (self.domain.events()?, Arc::clone(&self.faults));
        Ok(Box::new(FaultyEvents { events, faults }))
    }
}

impl Platform for Faulty {
    fn host(&self) -> &'static str {
        self.domain.host()
    }

    fn store(&self) -> Result<Box<dyn Store>, Error> {
        Ok(Box::new(FaultyStore { store: self.domain.store()?, faults: Arc::clone(&self.faults) }))
    }

    fn counters(&self) -> CounterSnapshot {
        self.domain.counters()
    }
}

struct FaultyEvents {
    events: Box<dyn EventChannels>,
    faults: Arc<Faults>,
}

impl FrontendEvents for FaultyEvents {
    fn alloc_unbound(&mut self, remote: DomId) -> Result<Port, Error> {
        self.events.alloc_unbound(remote)
    }

    fn close(&mut self, port: Port) {
        self.events.close(port);
    }

    fn notify(&mut self, port: Port) -> Result<(), Error> {
        self.events.notify(port)
    }

    fn poll(&mut self, fired: &mut dyn FnMut(Port)) -> Result<(), Error> {
        self.events.poll(fired)
    }

    fn woken(&mut self) {
        self.events.woken();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

impl AsFd for FaultyEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl EventChannels for FaultyEvents {
    fn bind_interdomain(&mut self, remote: DomId, port: Port) -> Result<Port, Error> {
        self.faults.ask(Asked::Bind)?;
        self.events.bind_interdomain(remote, port)
    }

    fn count(&mut self, port: Port) -> u64 {
        self.events.count(port)
    }

    fn wait(&mut self, port: Port, seen: u64, timeout: Option<Duration>) -> Result<u64, Error> {
        self.events.wait(port, seen, timeout)
    }
}

struct FaultyStore {
    store: Box<dyn Store>,
    faults: Arc<Faults>,
}

impl StoreOps for FaultyStore {
    fn read(&mut self, path: &str) -> Result<Vec<u8>, Error> {
        self.faults.ask(Asked::Read)?;
        self.faults.meet("read", path)?;
        self.store.read(path)
    }

    fn write(&mut self, path: &str, value: &[u8]) -> Result<(), Error> {
        self.faults.ask(Asked::Write)?;
        self.faults.meet("write", path)?;
        self.store.write(path, value)
    }

    fn remove(&mut self, path: &str) -> Result<(), Error> {
        self.faults.ask(Asked::Write)?;
        self.faults.meet("rm", path)?;
        self.store.remove(path)
    }

    fn list(&mut self, path: &str) -> Result<Vec<String>, Error> {
        self.faults.ask(Asked::Read)?;
        self.faults.meet("directory", path)?;
        self.store.list(path)
    }
}

impl FrontendStore for FaultyStore {
    fn begin(&mut self) -> Result<(), Error> {
        self.faults.ask(Asked::Begin)?;
        self.store.begin()
    }

    fn end(&mut self, commit: bool) -> Result<(), Error> {
        if commit && let Err(e) = self.faults.ask(Asked::Commit) {
            self.store.end(false)?;
            return Err(e);
        }
        self.store.end(commit)
    }

    fn watch(&mut self, path: &str, token: &str) -> Result<(), Error> {
        self.faults.ask(Asked::Watch)?;
        self.store.watch(path, token)
    }

    fn next_event(&mut self) -> Result<Option<WatchEvent>, Error> {
        self.store.next_event()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

impl AsFd for FaultyStore {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.store.as_fd()
    }
}

impl Store for FaultyStore {
    fn set_permissions(&mut self, path: &str, permissions: &[Permission]) -> Result<(), Error> {
        self.store.set_permissions(path, permissions)
    }

    fn unwatch(&mut self, path: &str, token: &str) -> Result<(), Error> {
        self.faults.ask(Asked::Unwatch)?;
        self.store.unwatch(path, token)
    }
}

//! A hypervisor and a store that one thread steps: grants, event channels, the
//! real store's code. Processes of it die where their seed says, between two
//! calls.

mod wire;

use grantway_embedded::{
    Revoke,
    store::{ConnId, Quotas, Server},
};
use grantway_hypervisor::{
    Access, BackendPlatform, CopyOp, CopySide, CounterSnapshot, DomId, Error, EventChannels,
    FrontendEvents, FrontendPlatform, FrontendStore, GrantRef, GrantStatus, Granted, Mapper,
    Permission, Platform, Port, Released, Rights, Store, StoreOps,
};
use grantway_ring::{SharedPage, SharedRun};
use grantway_xenstore::Client;
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::Wire;

/// Value with which a killed process unwinds its stack.
pub struct Killed;

/// Pages that a domain may grant, so that a leak shows.
const GRANTS: usize = 16_384;

#[derive(Clone)]
pub struct Xen(Arc<Mutex<Inner>>);

struct Inner {
    store: Server,
    /// Descriptors to signal when a connection has something to read.
    readers: BTreeMap<ConnId, Arc<OwnedFd>>,
    domains: BTreeMap<DomId, Tables>,
    /// Signals of each set of event channels.
    sets: BTreeMap<u64, Arc<OwnedFd>>,
    last: u64,
    processes: BTreeMap<u64, Process>,
}

#[derive(Default)]
struct Tables {
    grants: BTreeMap<GrantRef, Grant>,
    channels: BTreeMap<Port, Channel>,
    /// Numbers are not used again soon, as on Xen; so what is stale is seen.
    next_gref: u32,
    next_port: u32,
}

struct Grant {
    run: SharedRun,
    page: usize,
    peer: DomId,
    access: Access,
    /// Mappings of it.
    mapped: u32,
    /// Given back by its owner while it was mapped.
    ended: bool,
}

struct Channel {
    set: u64,
    remote: DomId,
    peer: Option<Port>,
    pending: bool,
    count: u64,
}

#[derive(Default)]
struct Process {
    dead: bool,
    calls: u64,
    dies_at: Option<u64>,
    /// True if the process dies when it is about to signal.
    dies_at_signal: bool,
}

fn eventfd() -> Arc<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    Arc::new(rustix::event::eventfd(0, flags).unwrap())
}

fn ring(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

fn drain(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}

impl Inner {
    fn fresh(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn tables(&mut self, domain: DomId) -> &mut Tables {
        self.domains.entry(domain).or_default()
    }

    fn ring_readers(&mut self) {
        for connection in self.store.connections_with_output() {
            if let Some(bell) = self.readers.get(&connection) {
                ring(bell);
            }
        }
    }

    fn signal(&mut self, domain: DomId, port: Port) {
        let Some(channel) = self.tables(domain).channels.get_mut(&port) else { return };
        channel.pending = true;
        let set = channel.set;
        if let Some(bell) = self.sets.get(&set) {
            ring(bell);
        }
    }

    fn close(&mut self, domain: DomId, port: Port) {
        let Some(channel) = self.tables(domain).channels.remove(&port) else { return };
        if let Some(peer) = channel.peer
            && let Some(other) = self.tables(channel.remote).channels.get_mut(&peer)
        {
            other.peer = None;
        }
    }

    fn grant(&self, domain: DomId, gref: GrantRef, us: DomId, write: bool) -> Result<&Grant, i16> {
        let found = self.domains.get(&domain).and_then(|tables| tables.grants.get(&gref));
        match found.filter(|grant| grant.peer == us && !grant.ended) {
            None => Err(GrantStatus::BAD_GNTREF.0),
            Some(grant) if write && grant.access == Access::ReadOnly => {
                Err(GrantStatus::PERMISSION_DENIED.0)
            }
            Some(grant) => Ok(grant),
        }
    }

    fn copy(&self, us: DomId, arena: &mut [u8], op: &CopyOp) -> Result<(), i16> {
        let len = usize::from(op.len);
        let mut bytes = vec![0; len];
        let page = |grant: &Grant| -> SharedPage { grant.run.page(grant.page).unwrap() };
        let across = |_| GrantStatus::BAD_COPY_ARG.0;
        match op.source {
            CopySide::Local { offset } => {
                let at = offset as usize;
                let from = arena.get(at..at + len).ok_or(GrantStatus::BAD_VIRT_ADDR.0)?;
                bytes.copy_from_slice(from);
            }
            CopySide::Foreign { domain, gref, offset } => {
                let grant = self.grant(domain, gref, us, false)?;
                page(grant).read(offset.into(), &mut bytes).map_err(across)?;
            }
        }
        match op.dest {
            CopySide::Local { offset } => {
                let at = offset as usize;
                let to = arena.get_mut(at..at + len).ok_or(GrantStatus::BAD_VIRT_ADDR.0)?;
                to.copy_from_slice(&bytes);
            }
            CopySide::Foreign { domain, gref, offset } => {
                let grant = self.grant(domain, gref, us, true)?;
                page(grant).write(offset.into(), &bytes).map_err(across)?;
            }
        }
        Ok(())
    }

    /// Takes a grant back. Returns true if it is revoked.
    fn end(&mut self, domain: DomId, gref: GrantRef) -> bool {
        let tables = self.tables(domain);
        match tables.grants.get_mut(&gref) {
            Some(grant) if grant.mapped > 0 => {
                grant.ended = true;
                false
            }
            _ => {
                tables.grants.remove(&gref);
                true
            }
        }
    }

    fn unmap(&mut self, domain: DomId, grefs: &[GrantRef]) {
        for gref in grefs {
            let tables = self.tables(domain);
            let Some(grant) = tables.grants.get_mut(gref) else { continue };
            grant.mapped -= 1;
            if grant.mapped == 0 && grant.ended {
                tables.grants.remove(gref);
            }
        }
    }
}

impl Xen {
    pub fn new() -> Self {
        let store = Server::new(Quotas::default());
        let (readers, domains, sets) = Default::default();
        let processes = BTreeMap::new();
        let inner = Inner { store, readers, domains, sets, last: 0, processes };
        Self(Arc::new(Mutex::new(inner)))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a domain: a folder that it may look at.
    pub fn create(&self, domain: DomId) {
        let mut inner = self.lock();
        let home = format!("/local/domain/{domain}");
        let none = Permission { domain: DomId(0), rights: Rights::None };
        inner.store.write(&home, b"").unwrap();
        let read = Permission { domain, rights: Rights::Read };
        inner.store.set_permissions(&home, &[none, read]).unwrap();
        inner.store.introduce(domain);
        inner.ring_readers();
    }

    /// A new process of a domain.
    pub fn spawn(&self, domain: DomId) -> Arc<Domain> {
        let mut inner = self.lock();
        let process = inner.fresh();
        inner.processes.insert(process, Process::default());
        drop(inner);
        Arc::new(Domain { xen: self.clone(), domain, process })
    }

    /// The domain dies: its nodes go, and its grants and channels end.
    pub fn destroy(&self, domain: DomId) {
        let mut inner = self.lock();
        inner.store.release(domain);
        inner.store.remove(&format!("/local/domain/{domain}")).unwrap();
        inner.ring_readers();
        let tables = inner.tables(domain);
        let ports: Vec<Port> = tables.channels.keys().copied().collect();
        let grefs: Vec<GrantRef> = tables.grants.keys().copied().collect();
        for port in ports {
            inner.close(domain, port);
        }
        for gref in grefs {
            inner.end(domain, gref);
        }
    }

    /// Grants in force, those of them that are mapped, and event channels.
    pub fn holds(&self, domain: DomId) -> (usize, usize, usize) {
        let mut inner = self.lock();
        let tables = inner.tables(domain);
        let mapped = tables.grants.values().filter(|grant| grant.mapped > 0).count();
        (tables.grants.len(), mapped, tables.channels.len())
    }

    /// Returns the grants of a domain that are mapped, each with the number of its mappings.
    pub fn mapped(&self, domain: DomId) -> BTreeMap<u32, u32> {
        let mut inner = self.lock();
        let grants = inner.tables(domain).grants.iter();
        grants.filter(|(_, g)| g.mapped > 0).map(|(gref, g)| (gref.0, g.mapped)).collect()
    }

    pub fn watches(&self, domain: DomId) -> usize {
        self.lock().store.usage(domain).watches
    }

    /// Counts a call of a process, which may be its last.
    fn call(&self, process: u64) -> Result<MutexGuard<'_, Inner>, Error> {
        let mut inner = self.lock();
        let entry = inner.processes.get_mut(&process).expect("a process");
        if entry.dead {
            return Err(Error::Gone { what: "the process".into() });
        }
        entry.calls += 1;
        if entry.dies_at.is_some_and(|at| at <= entry.calls) {
            entry.dead = true;
            drop(inner);
            std::panic::resume_unwind(Box::new(Killed));
        }
        Ok(inner)
    }
}

/// A process's way to the hypervisor.
pub struct Domain {
    xen: Xen,
    domain: DomId,
    process: u64,
}

impl Domain {
    /// Lets the process die after `calls` calls.
    pub fn dies_after(&self, calls: u64) {
        let mut inner = self.xen.lock();
        let process = inner.processes.get_mut(&self.process).expect("a process");
        process.dies_at = Some(process.calls + calls);
    }

    /// Lets the process die when it is about to signal.
    pub fn dies_at_signal(&self) {
        let mut inner = self.xen.lock();
        inner.processes.get_mut(&self.process).expect("a process").dies_at_signal = true;
    }

    /// Cancels a planned death of the process.
    pub fn lives(&self) {
        let mut inner = self.xen.lock();
        let process = inner.processes.get_mut(&self.process).expect("a process");
        (process.dies_at, process.dies_at_signal) = (None, false);
    }

    /// A call to somebody else, which may be its last as well.
    pub fn acts(&self) {
        drop(self.call());
    }

    fn call(&self) -> Result<MutexGuard<'_, Inner>, Error> {
        self.xen.call(self.process)
    }

    pub fn revoke(&self, gref: GrantRef) -> Revoke {
        if self.xen.lock().end(self.domain, gref) { Revoke::Revoked } else { Revoke::StillMapped }
    }
}

impl FrontendPlatform for Domain {
    fn domain(&self) -> DomId {
        self.domain
    }

    fn grant(&self, peer: DomId, pages: usize, access: Access) -> Result<Granted, Error> {
        let mut inner = self.call()?;
        let tables = inner.tables(self.domain);
        if tables.grants.len() + pages > GRANTS {
            let remedy = "look for what leaks";
            return Err(Error::Exhausted { what: "the grant table", limit: GRANTS as u64, remedy });
        }
        let run = SharedRun::private(pages);
        let mut grefs = Vec::new();
        for page in 0..pages {
            let gref = GrantRef(GrantRef::FIRST_FREE + tables.next_gref);
            tables.next_gref += 1;
            let run = run.clone();
            tables.grants.insert(gref, Grant { run, page, peer, access, mapped: 0, ended: false });
            grefs.push(gref);
        }
        Ok(Granted { run, grefs, peer })
    }

    fn release(&self, granted: Granted) -> Released {
        let mut inner = self.xen.lock();
        let revoked = granted.grefs.iter().filter(|&&gref| inner.end(self.domain, gref)).count();
        Released { revoked, deferred: granted.grefs.len() - revoked }
    }

    fn frontend_events(&self) -> Result<Box<dyn FrontendEvents>, Error> {
        Ok(self.events()?)
    }

    fn frontend_store(&self) -> Result<Box<dyn FrontendStore>, Error> {
        Ok(self.store()?)
    }
}

/// Unmaps when the last handle of a run goes.
struct Mapping {
    xen: Xen,
    domain: DomId,
    grefs: Vec<GrantRef>,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.xen.lock().unmap(self.domain, &self.grefs);
    }
}

impl Mapper for Domain {
    fn map(&self, peer: DomId, grefs: &[GrantRef], access: Access) -> Result<SharedRun, Error> {
        let mut inner = self.call()?;
        let refused = |gref: GrantRef, status| {
            Err(Error::Grant { domain: peer, gref, status: GrantStatus(status) })
        };
        let mut pages = Vec::with_capacity(grefs.len());
        for &gref in grefs {
            match inner.grant(peer, gref, self.domain, access == Access::ReadWrite) {
                Err(status) => return refused(gref, status),
                Ok(grant) => pages.extend(grant.run.page(grant.page)),
            }
        }
        for gref in grefs {
            inner.tables(peer).grants.get_mut(gref).expect("looked at above").mapped += 1;
        }
        let guard = Mapping { xen: self.xen.clone(), domain: peer, grefs: grefs.to_vec() };
        drop(inner);
        Ok(SharedRun::gathered(pages, guard))
    }

    fn copy(&self, arena: &mut [u8], ops: &mut [CopyOp]) -> Result<(), Error> {
        for op in ops {
            // A batch is cut short by a kill, too.
            let inner = self.call()?;
            let done = inner.copy(self.domain, arena, op);
            op.status = GrantStatus(done.err().unwrap_or(0));
        }
        Ok(())
    }
}

impl BackendPlatform for Domain {
    fn events(&self) -> Result<Box<dyn EventChannels>, Error> {
        let mut inner = self.call()?;
        let (set, bell) = (inner.fresh(), eventfd());
        inner.sets.insert(set, Arc::clone(&bell));
        let (xen, domain, process) = (self.xen.clone(), self.domain, self.process);
        Ok(Box::new(Set { xen, domain, process, set, bell }))
    }
}

impl Platform for Domain {
    fn host(&self) -> &'static str {
        "simulation"
    }

    fn store(&self) -> Result<Box<dyn Store>, Error> {
        let mut inner = self.call()?;
        let (connection, bell) = (inner.store.connect(self.domain), eventfd());
        inner.readers.insert(connection, Arc::clone(&bell));
        let (xen, process) = (self.xen.clone(), self.process);
        Ok(Box::new(Client::over(Wire { xen, process, connection, bell })))
    }

    fn counters(&self) -> CounterSnapshot {
        CounterSnapshot::default()
    }
}

/// Event channels of one process.
struct Set {
    xen: Xen,
    domain: DomId,
    process: u64,
    set: u64,
    bell: Arc<OwnedFd>,
}

impl Set {
    fn call(&self) -> Result<MutexGuard<'_, Inner>, Error> {
        self.xen.call(self.process)
    }

    fn add(&self, inner: &mut Inner, remote: DomId, peer: Option<Port>) -> Port {
        let tables = inner.tables(self.domain);
        tables.next_port += 1;
        let port = Port(tables.next_port);
        let channel = Channel { set: self.set, remote, peer, pending: false, count: 0 };
        tables.channels.insert(port, channel);
        port
    }

    /// Moves what is pending into the counters.
    fn take(&self, inner: &mut Inner, fired: &mut dyn FnMut(Port)) {
        drain(&self.bell);
        for (&port, channel) in &mut inner.tables(self.domain).channels {
            if channel.set == self.set && std::mem::take(&mut channel.pending) {
                channel.count += 1;
                fired(port);
            }
        }
    }
}

impl FrontendEvents for Set {
    fn alloc_unbound(&mut self, remote: DomId) -> Result<Port, Error> {
        let mut inner = self.call()?;
        Ok(self.add(&mut inner, remote, None))
    }

    fn close(&mut self, port: Port) {
        self.xen.lock().close(self.domain, port);
    }

    fn notify(&mut self, port: Port) -> Result<(), Error> {
        let mut inner = self.call()?;
        let process = inner.processes.get_mut(&self.process).expect("a process");
        if process.dies_at_signal {
            process.dead = true;
            drop(inner);
            std::panic::resume_unwind(Box::new(Killed));
        }
        let Some(channel) = inner.tables(self.domain).channels.get(&port) else {
            let why = "found a port that is not ours";
            return Err(Error::Event { domain: self.domain, port, why });
        };
        if let (remote, Some(peer)) = (channel.remote, channel.peer) {
            inner.signal(remote, peer);
        }
        Ok(())
    }

    fn poll(&mut self, fired: &mut dyn FnMut(Port)) -> Result<(), Error> {
        let mut inner = self.call()?;
        self.take(&mut inner, fired);
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

impl AsFd for Set {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl EventChannels for Set {
    fn bind_interdomain(&mut self, remote: DomId, port: Port) -> Result<Port, Error> {
        let mut inner = self.call()?;
        let theirs = inner.tables(remote).channels.get(&port);
        if !theirs.is_some_and(|c| c.remote == self.domain && c.peer.is_none()) {
            let why = "found a port that is not free for us";
            return Err(Error::Event { domain: remote, port, why });
        }
        let ours = self.add(&mut inner, remote, Some(port));
        if let Some(theirs) = inner.tables(remote).channels.get_mut(&port) {
            theirs.peer = Some(ours);
        }
        // Its first signal may be spurious.
        inner.signal(self.domain, ours);
        Ok(ours)
    }

    fn count(&mut self, port: Port) -> u64 {
        let mut inner = self.xen.lock();
        self.take(&mut inner, &mut |_| {});
        inner.tables(self.domain).channels.get(&port).map_or(0, |channel| channel.count)
    }

    fn wait(&mut self, port: Port, seen: u64, timeout: Option<Duration>) -> Result<u64, Error> {
        let count = self.count(port);
        assert!(count > seen || timeout.is_some(), "one thread cannot wait for itself");
        Ok(count)
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let mut inner = self.xen.lock();
        inner.sets.remove(&self.set);
        let channels = &inner.tables(self.domain).channels;
        let own = channels.iter().filter(|(_, channel)| channel.set == self.set);
        let own: Vec<Port> = own.map(|(&port, _)| port).collect();
        for port in own {
            inner.close(self.domain, port);
        }
    }
}

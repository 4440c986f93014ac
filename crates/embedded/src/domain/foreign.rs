//! Other domains' grants, as this process reaches them.

use super::control::{Control, lock, os_error, take, unexpected};
use crate::entry::{ENTRY_BYTES, GrantTable};
use crate::protocol::{Answer, Request};
use crate::state::Lives;
use crate::sys::{PageRun, PageSource, Words};
use grantway_hypervisor::{Access, Counters, DomId, Error, GrantRef, GrantStatus};
use grantway_ring::SharedRun;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The domains whose grants this process reaches.
#[derive(Debug)]
pub struct Foreigners {
    us: DomId,
    control: Arc<Control>,
    counters: Arc<Counters>,
    lives: Arc<Lives>,
    known: RwLock<HashMap<DomId, Arc<Foreign>>>,
}

impl Foreigners {
    /// Makes the list, which is empty.
    pub fn new(
        us: DomId,
        control: &Arc<Control>,
        counters: &Arc<Counters>,
        lives: Arc<Lives>,
    ) -> Self {
        Self {
            us,
            control: Arc::clone(control),
            counters: Arc::clone(counters),
            lives,
            known: RwLock::new(HashMap::new()),
        }
    }

    /// Returns the domain as it runs now. Asks the host at first sight, and again if the domain
    /// booted anew.
    pub fn get(&self, domain: DomId) -> Result<Arc<Foreign>, Error> {
        let boot = self.lives.boot(domain);
        let dead = Error::NoDomain { domain, remedy: "it does not run: start its frontend" };
        if boot == 0 {
            return Err(dead);
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(foreign) = known.get(&domain).filter(|foreign| foreign.boot == boot) {
            return Ok(Arc::clone(foreign));
        }
        drop(known);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have asked in between. Two sets of pins for one table would clear each
        // other's bits.
        if let Some(foreign) = known.get(&domain).filter(|foreign| foreign.boot == boot) {
            return Ok(Arc::clone(foreign));
        }
        known.retain(|&domain, foreign| self.lives.boot(domain) == foreign.boot);
        let request = Request::Lease { domid: domain.0 };
        let (answer, fds) = self.control.request(&request)?;
        let Answer::Grants { boot, pid, base, ram_pages, grant_entries } = answer else {
            return Err(unexpected(&answer));
        };
        let mut fds = fds.into_iter();
        let ram = PageSource::new(take(&mut fds)?, ram_pages)
            .map_err(|reason| os_error("a peer's memory", reason))?;
        let words = Words::of(take(&mut fds)?, grant_entries as usize * ENTRY_BYTES)
            .map_err(|reason| os_error("mmap of a grant table", reason))?;
        let foreign = Arc::new(Foreign {
            domain,
            us: self.us,
            boot,
            pid,
            base,
            ram,
            table: GrantTable::new(words, grant_entries),
            pins: Mutex::new(Pins::default()),
            lives: Arc::clone(&self.lives),
            counters: Arc::clone(&self.counters),
            _control: Arc::clone(&self.control),
        });
        known.insert(domain, Arc::clone(&foreign));
        Ok(foreign)
    }
}

/// One boot of another domain.
///
/// The host lets one process of a domain do this at a time, and that process has one value of this
/// type. So its counts decide when the entry's bits are to be set and cleared.
#[derive(Debug)]
pub struct Foreign {
    domain: DomId,
    us: DomId,
    boot: u32,
    pid: i32,
    base: u64,
    ram: PageSource,
    table: GrantTable,
    pins: Mutex<Pins>,
    lives: Arc<Lives>,
    counters: Arc<Counters>,
    /// The connection, which stays while the holds do: the host takes them back when it goes.
    _control: Arc<Control>,
}

/// Holds of this process, by reference.
#[derive(Debug, Default)]
struct Pins(Vec<Pin>);

#[derive(Debug, Default, Clone, Copy)]
struct Pin {
    holds: u32,
    writers: u32,
    /// Frame that the granter wrote, judged at the first hold.
    frame: u32,
}

impl Foreign {
    /// Returns the process that runs the domain.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns the domain's number.
    pub fn domain(&self) -> DomId {
        self.domain
    }

    /// Returns true if this boot of the domain still runs.
    pub fn is_alive(&self) -> bool {
        self.lives.boot(self.domain) == self.boot
    }

    /// Returns the address, in the domain's process, of a byte of a frame that `pin` gave.
    pub fn address(&self, frame: u32, offset: u16) -> u64 {
        let page = u64::from(frame) * grantway_ring::PAGE_SIZE as u64;
        self.base.wrapping_add(page).wrapping_add(offset.into())
    }

    /// Locks the holds, to take and to end them. Each lasts until [`Holder::unpin`].
    pub fn holder(&self) -> Holder<'_> {
        Holder { foreign: self, pins: lock(&self.pins) }
    }

    /// Maps a list of grants, all or nothing.
    pub fn map(self: Arc<Self>, grefs: &[GrantRef], access: Access) -> Result<SharedRun, Error> {
        if grefs.is_empty() {
            return Err(Error::Protocol {
                what: "a list of grants to map",
                found: "an empty one".to_owned(),
                expected: "at least one",
            });
        }
        let write = access == Access::ReadWrite;
        // All grants are held before any is mapped.
        let mut frames = Vec::with_capacity(grefs.len());
        let mut holder = self.holder();
        for (index, &gref) in grefs.iter().enumerate() {
            match holder.pin(gref, write) {
                Ok(frame) => frames.push(frame),
                Err(status) => {
                    for &gref in &grefs[..index] {
                        holder.unpin(gref, write);
                    }
                    return Err(Error::Grant { domain: self.domain, gref, status });
                }
            }
        }
        drop(holder);
        let pages = match PageRun::map(&self.ram, &frames, write) {
            Ok(pages) => pages,
            Err(reason) => {
                let mut holder = self.holder();
                for &gref in grefs {
                    holder.unpin(gref, write);
                }
                return Err(os_error("mmap of granted pages", reason));
            }
        };
        let count = grefs.len() as u64;
        Counters::add(&self.counters.maps, count);
        Counters::add(&self.counters.map_batches, 1);
        Counters::add(&self.counters.mapped, count);
        let base = pages.base();
        // From here on the mapping ends the holds when it is dropped.
        let mapped =
            Arc::new(MappedRun { pages: Some(pages), grefs: grefs.into(), write, foreign: self });
        // SAFETY: `pages` maps this many pages at `base` (for reading only
        // where that was asked) until `mapped` is dropped, and gives out no
        // reference to them.
        Ok(unsafe { SharedRun::new(base, grefs.len(), mapped) })
    }
}

/// The holds under their lock.
#[derive(Debug)]
pub struct Holder<'a> {
    foreign: &'a Foreign,
    pins: std::sync::MutexGuard<'a, Pins>,
}

impl Holder<'_> {
    /// Holds a grant. Returns its frame, which lies within the domain's memory.
    pub fn pin(&mut self, gref: GrantRef, write: bool) -> Result<u32, GrantStatus> {
        let table = &self.foreign.table;
        if gref.0 >= table.entries() {
            return Err(GrantStatus::BAD_GNTREF);
        }
        let index = gref.0 as usize;
        if self.pins.0.len() <= index {
            self.pins.0.resize(index + 1, Pin::default());
        }
        let pin = &mut self.pins.0[index];
        if pin.holds == 0 || (write && pin.writers == 0) {
            let frame = table.pin(gref.0, self.foreign.us, write)?;
            if pin.holds == 0 {
                if frame >= self.foreign.ram.pages() {
                    table.unpin(gref.0, false);
                    return Err(GrantStatus::BAD_PAGE);
                }
                pin.frame = frame;
            }
        }
        pin.holds += 1;
        pin.writers += u32::from(write);
        Ok(pin.frame)
    }

    /// Ends a hold that `pin` took.
    pub fn unpin(&mut self, gref: GrantRef, write: bool) {
        let Some(pin) = self.pins.0.get_mut(gref.0 as usize) else {
            return;
        };
        if pin.holds == 0 {
            return;
        }
        pin.holds -= 1;
        pin.writers -= u32::from(write);
        if pin.holds == 0 {
            self.foreign.table.unpin(gref.0, false);
        } else if write && pin.writers == 0 {
            self.foreign.table.unpin(gref.0, true);
        }
    }
}

/// Granted pages that are mapped and held.
#[derive(Debug)]
struct MappedRun {
    pages: Option<PageRun>,
    grefs: Box<[GrantRef]>,
    write: bool,
    foreign: Arc<Foreign>,
}

impl Drop for MappedRun {
    fn drop(&mut self) {
        // The pages are unmapped first: from the unpin on the granter may use them.
        drop(self.pages.take());
        let mut holder = self.foreign.holder();
        for &gref in &self.grefs {
            holder.unpin(gref, self.write);
        }
        drop(holder);
        let (counters, count) = (&self.foreign.counters, self.grefs.len() as u64);
        Counters::add(&counters.unmaps, count);
        Counters::add(&counters.unmap_batches, 1);
        Counters::sub(&counters.mapped, count);
    }
}

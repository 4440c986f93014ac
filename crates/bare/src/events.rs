//! The guest's event channels: who owns which port, which of them were signalled, and the wait for
//! one.

use crate::fifo::{Fifo, Unmasked};
use crate::options::{Layout, Options, Wake};
use crate::sys::fifo::Pages;
use crate::sys::hypercall::{events, run};
use crate::sys::shared::SharedInfo;
use crate::sys::two_level::TwoLevel;
use crate::sys::upcall;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;
use grantway_hypervisor::{DomId, Port};
use spin::Mutex;

/// All event channels of the guest.
pub(crate) struct Events {
    shared: SharedInfo,
    options: Options,
    state: Mutex<State>,
}

/// Number of a set of ports. No number is used twice, so a set of before a restoration is not one
/// of those that were made afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Set(u64);

/// Ports of one owner.
#[derive(Default)]
struct Owned {
    ports: BTreeSet<u32>,
    /// Ports among them that were signalled, each once. A guest that polls has none here.
    fired: Vec<u32>,
}

/// Owner of a port.
struct Owner {
    set: Set,
    /// True while the port is among the set's `fired`.
    fired: bool,
}

struct State {
    words: Words,
    sets: BTreeMap<Set, Owned>,
    owners: BTreeMap<u32, Owner>,
    /// Sets that were made.
    made: u64,
    /// Ports that were signalled, and that their owners have not taken yet.
    waiting: usize,
    timer: Option<Timer>,
}

/// The timer of a guest that waits for upcalls.
struct Timer {
    port: u32,
    /// Time of the host's clock for which it is set.
    set: Option<u64>,
}

/// Memory in which Xen shows what was signalled.
enum Words {
    TwoLevel(TwoLevel),
    Fifo(Fifo<Pages>),
}

impl Words {
    fn new(shared: &SharedInfo, layout: Layout) -> Self {
        // Masked in any case: Xen moves what is pending there to the queues.
        let bits = TwoLevel::new(shared.clone());
        let pages = (layout == Layout::Fifo).then(Pages::new).flatten();
        pages.map_or(Self::TwoLevel(bits), |pages| Self::Fifo(Fifo::new(pages)))
    }

    /// Makes sure that there is room for a port. Returns false if there is none.
    fn reach(&mut self, port: u32) -> bool {
        match self {
            Self::TwoLevel(_) => port < crate::sys::two_level::PORTS,
            Self::Fifo(fifo) => fifo.memory().reach(port),
        }
    }

    /// Has a port make upcalls. Returns true if it was signalled before.
    fn unmask(&self, port: u32) -> bool {
        match self {
            Self::TwoLevel(bits) => bits.unmask(port),
            Self::Fifo(fifo) => match fifo.unmask(port) {
                Unmasked::Fired => true,
                Unmasked::Quiet => false,
                Unmasked::Busy => {
                    events::unmask(Port(port));
                    false
                }
            },
        }
    }

    fn retire(&self, port: u32) {
        match self {
            Self::TwoLevel(bits) => bits.retire(port),
            Self::Fifo(fifo) => fifo.retire(port),
        }
    }

    /// Returns true if a masked port was signalled, and forgets it.
    fn take(&self, port: u32) -> bool {
        match self {
            Self::TwoLevel(bits) => bits.take(port),
            Self::Fifo(fifo) => fifo.take(port),
        }
    }

    fn is_ready(&self) -> bool {
        match self {
            Self::TwoLevel(bits) => bits.is_ready(),
            Self::Fifo(fifo) => fifo.is_ready(),
        }
    }

    fn drain(&mut self, fired: &mut impl FnMut(u32)) {
        match self {
            Self::TwoLevel(bits) => bits.drain(fired),
            Self::Fifo(fifo) => fifo.drain(fired),
        }
    }
}

/// Longest wait for an upcall, or for the ports of one set, in nanoseconds. A guest looks once a
/// second, whether Xen says that something is there or not: what is lost of a machine's interrupts
/// costs it a second then, not its life.
const LOOK: u64 = 1_000_000_000;

/// Reason for which no port was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPort {
    /// There may be no more than this.
    Full(u64),
    /// The set is of before a restoration.
    Stale,
}

impl Events {
    /// Takes the guest's event channels over. Returns none if Xen refuses what the options need.
    pub fn new(shared: SharedInfo, options: Options) -> Option<Self> {
        let state = State::new(&shared, options)?;
        Some(Self { shared, options, state: Mutex::new(state) })
    }

    /// Begins anew in a guest that was restored, where all ports are void. Returns false if Xen
    /// refuses what the options need.
    pub fn renew(&self) -> bool {
        let Some(mut new) = State::new(&self.shared, self.options) else { return false };
        let mut state = self.state.lock();
        new.made = state.made;
        *state = new;
        true
    }

    /// Forgets the time for which the timer is set: Xen may have forgotten it.
    pub fn forget_timer(&self) {
        if let Some(timer) = &mut self.state.lock().timer {
            timer.set = None;
        }
    }

    /// Returns the options that are in force: Xen may have refused queues.
    pub fn options(&self) -> Options {
        let layout = match self.state.lock().words {
            Words::TwoLevel(_) => Layout::TwoLevel,
            Words::Fifo(_) => Layout::Fifo,
        };
        Options { layout, ..self.options }
    }

    /// Makes an empty set.
    pub fn set(&self) -> Set {
        let mut state = self.state.lock();
        state.made += 1;
        let set = Set(state.made);
        state.sets.insert(set, Owned::default());
        set
    }

    /// Ends a set, and closes its ports.
    pub fn end(&self, set: Set) {
        let mut state = self.state.lock();
        let ports = state.sets.get(&set).map(|owned| owned.ports.clone()).unwrap_or_default();
        for port in ports {
            state.close(set, port);
        }
        state.sets.remove(&set);
    }

    /// Makes a port of this set to which `remote` may bind.
    pub fn alloc_unbound(&self, set: Set, remote: DomId) -> Result<Port, NoPort> {
        self.make(set, || events::alloc_unbound(remote))
    }

    /// Makes a port of this set that the guest signals to itself.
    pub fn bind_own(&self, set: Set) -> Result<Port, NoPort> {
        self.make(set, events::bind_own)
    }

    fn make(&self, set: Set, make: impl FnOnce() -> Result<Port, i64>) -> Result<Port, NoPort> {
        let mut state = self.state.lock();
        if !state.sets.contains_key(&set) {
            return Err(NoPort::Stale);
        }
        let full = NoPort::Full(state.owners.len() as u64);
        // A poll is for no more: a signal at another port would wake nobody.
        if self.options.wake == Wake::Poll && state.owners.len() >= run::POLLED {
            return Err(full);
        }
        let port = make().map_err(|_| full)?;
        if state.adopt(set, port.0, self.options.wake) {
            return Ok(port);
        }
        events::close(port);
        Err(full)
    }

    /// Makes a port that the toolstack bound one of this set. Returns false if there is no room.
    pub fn adopt(&self, set: Set, port: Port) -> bool {
        self.state.lock().adopt(set, port.0, self.options.wake)
    }

    /// Closes a port, if it is one of this set.
    pub fn close(&self, set: Set, port: Port) {
        self.state.lock().close(set, port.0);
    }

    /// Returns true if a port is one of this set.
    pub fn owns(&self, set: Set, port: Port) -> bool {
        self.state.lock().owners.get(&port.0).is_some_and(|owner| owner.set == set)
    }

    /// Puts the ports of this set that were signalled since the last call into a list, which is
    /// cleared before.
    pub fn take(&self, set: Set, fired: &mut Vec<u32>) {
        fired.clear();
        let state = &mut *self.state.lock();
        if self.options.wake == Wake::Upcall {
            state.drain();
        }
        let Some(owned) = state.sets.get_mut(&set) else { return };
        if self.options.wake == Wake::Poll {
            fired.extend(owned.ports.iter().filter(|&&port| state.words.take(port)));
            return;
        }
        core::mem::swap(&mut owned.fired, fired);
        state.waiting -= fired.len();
        for port in &*fired {
            if let Some(owner) = state.owners.get_mut(port) {
                owner.fired = false;
            }
        }
    }

    /// Gives the processor away until a port is signalled, or until that time of the guest's
    /// clock. Does not while a signal waits for its owner. It may come back sooner.
    pub fn wait(&self, until: Option<Duration>) {
        if until.is_some_and(|until| until.as_nanos() as u64 <= self.shared.now()) {
            return;
        }
        let until = until.map(|until| self.on_host(until));
        let mut state = self.state.lock();
        match self.options.wake {
            Wake::Poll => {
                let ports: Vec<u32> = state.owners.keys().copied().collect();
                drop(state);
                run::poll(&ports, until.map(Duration::from_nanos));
            }
            Wake::Upcall => {
                state.drain();
                if state.waiting == 0 {
                    state.set_timer(until.unwrap_or(u64::MAX), self.on_host_now());
                    drop(state);
                    self.sleep();
                }
            }
        }
    }

    /// Gives the processor away until a port of this set is signalled, for [`LOOK`] at most. It may
    /// come back sooner.
    pub fn wait_for(&self, set: Set) {
        let mut state = self.state.lock();
        match self.options.wake {
            Wake::Poll => {
                let owned = state.sets.get(&set).into_iter().flat_map(|owned| &owned.ports);
                let ports: Vec<u32> = owned.copied().collect();
                drop(state);
                let until = self.on_host_now().saturating_add(LOOK);
                run::poll(&ports, Some(Duration::from_nanos(until)));
            }
            Wake::Upcall => {
                state.drain();
                if state.sets.get(&set).is_none_or(|owned| owned.fired.is_empty()) {
                    state.set_timer(u64::MAX, self.on_host_now());
                    drop(state);
                    self.sleep();
                }
            }
        }
    }

    /// Gives the processor away until that time of the guest's clock, whatever comes.
    pub fn pause(&self, until: Duration) {
        let on_host = self.on_host(until);
        while self.shared.now() < until.as_nanos() as u64 {
            run::poll(&[], Some(Duration::from_nanos(on_host)));
        }
    }

    /// Takes in what was signalled, for its owners.
    pub fn look(&self) {
        self.state.lock().drain();
    }

    /// Returns the nanoseconds of the host's clock.
    fn on_host_now(&self) -> u64 {
        self.shared.on_host(self.shared.now())
    }

    /// Returns the nanoseconds of the host's clock at that time of the guest's.
    pub fn on_host(&self, at: Duration) -> u64 {
        self.shared.on_host(at.as_nanos() as u64)
    }

    /// Waits for an upcall, unless something is ready.
    fn sleep(&self) {
        // First: a signal after the look makes an upcall due again, and the wait ends at once.
        self.shared.forget_upcall();
        if !self.state.lock().words.is_ready() {
            upcall::wait();
        }
    }
}

impl State {
    fn new(shared: &SharedInfo, options: Options) -> Option<Self> {
        let words = Words::new(shared, options.layout);
        let (sets, owners) = (BTreeMap::new(), BTreeMap::new());
        let mut state = Self { words, sets, owners, made: 0, waiting: 0, timer: None };
        if options.wake == Wake::Upcall {
            let port = events::bind_timer().map(|port| port.0);
            let Some(port) = port.ok().filter(|&port| state.words.reach(port)) else {
                // Xen has these pages from now on.
                core::mem::forget(state);
                return None;
            };
            state.words.unmask(port);
            state.timer = Some(Timer { port, set: None });
        }
        Some(state)
    }

    fn adopt(&mut self, set: Set, port: u32, wake: Wake) -> bool {
        if !self.words.reach(port) {
            return false;
        }
        let Some(owned) = self.sets.get_mut(&set) else { return false };
        owned.ports.insert(port);
        self.owners.insert(port, Owner { set, fired: false });
        if wake == Wake::Upcall && self.words.unmask(port) {
            self.fire(port);
        }
        true
    }

    fn close(&mut self, set: Set, port: u32) {
        let Some(owned) = self.sets.get_mut(&set) else { return };
        if !owned.ports.remove(&port) {
            return;
        }
        if self.owners.remove(&port).is_some_and(|owner| owner.fired) {
            owned.fired.retain(|&fired| fired != port);
            self.waiting -= 1;
        }
        events::close(Port(port));
        // Behind the close: nobody signals it any more.
        self.words.retire(port);
    }

    /// Takes in what was signalled.
    fn drain(&mut self) {
        if !self.words.is_ready() {
            return;
        }
        let Self { words, sets, owners, waiting, timer, .. } = self;
        words.drain(&mut |port| fire(port, sets, owners, waiting, timer));
    }

    fn fire(&mut self, port: u32) {
        let Self { sets, owners, waiting, timer, .. } = self;
        fire(port, sets, owners, waiting, timer);
    }

    /// Has the timer end a wait at that time of the host's clock, where it is `now`, or at the next
    /// look. One that is set for a sooner time stays: the wait then ends sooner, and time that is
    /// always put off costs no hypercall each. One whose time has passed is set anew: its event was
    /// lost, or is about to come.
    fn set_timer(&mut self, until: u64, now: u64) {
        let Some(timer) = &mut self.timer else { return };
        let until = until.min(now.saturating_add(LOOK));
        if timer.set.is_none_or(|set| set > until || set <= now) {
            timer.set = Some(until);
            run::set_timer(until);
        }
    }
}

/// Notes for a port's owner that it was signalled.
fn fire(
    port: u32,
    sets: &mut BTreeMap<Set, Owned>,
    owners: &mut BTreeMap<u32, Owner>,
    waiting: &mut usize,
    timer: &mut Option<Timer>,
) {
    if let Some(timer) = timer.as_mut().filter(|timer| timer.port == port) {
        timer.set = None;
    }
    let Some(owner) = owners.get_mut(&port).filter(|owner| !owner.fired) else { return };
    if let Some(owned) = sets.get_mut(&owner.set) {
        owner.fired = true;
        owned.fired.push(port);
        *waiting += 1;
    }
}

#[cfg(test)]
mod tests;

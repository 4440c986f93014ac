//! A set of event channels: one waiter's ports behind one descriptor.

use super::control::{Control, os_error, take, unexpected};
use crate::pending::Pending;
use crate::protocol::{Answer, Request};
use crate::state::PortState;
use crate::sys::{Wake, WordsView};
use grantway_hypervisor::{Counters, DomId, Error, EventChannels, FrontendEvents, Port};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bound of a disagreement between the bits and the wake-up. After this many empty polls the
/// wake-up is drained, though no ring is known to be in it: a peer may have rung for nothing, and a
/// waiter on the descriptor should not spin for ever. After this many vain drains, rings that are
/// still owed are given up: their sender died.
const PATIENCE: u32 = 64;

/// A port of ours.
#[derive(Debug, Default)]
struct Local {
    /// Number of signals seen.
    count: u64,
    /// The peer, and the binding for which it was found.
    peer: Option<Peer>,
}

/// The set and port of a port's peer.
#[derive(Debug)]
struct Peer {
    binding: u32,
    set: u64,
    pending: Arc<Pending>,
    port: u32,
}

/// A set of event channels.
///
/// Signals are taken from shared memory without a system call. The wake-up (an eventfd) is rung
/// once for each pending bit that was news. So the number of bits taken says how much there is to
/// drain, and an idle poll costs no call.
#[derive(Debug)]
pub struct EventSet {
    id: u64,
    domain: DomId,
    limit: u32,
    control: Arc<Control>,
    counters: Arc<Counters>,
    pending: Pending,
    states: WordsView,
    /// Ports by number; `None` if a port is not ours.
    ports: Vec<Option<Local>>,
    /// Sets of peers, by the host's number, so that many ports share a mapping.
    peers: HashMap<u64, Arc<Pending>>,
    /// Bits taken whose ring of the wake-up was not drained yet.
    rings: u64,
    idle_polls: u32,
    vain_drains: u32,
}

impl EventSet {
    /// Makes a set with no ports.
    pub fn open(
        domain: DomId,
        limit: u32,
        control: &Arc<Control>,
        counters: &Arc<Counters>,
    ) -> Result<Self, Error> {
        let (answer, fds) = control.request(&Request::OpenSet)?;
        let Answer::Set { set } = answer else {
            return Err(unexpected(&answer));
        };
        let mut fds = fds.into_iter();
        let (pending, states, wake) = (take(&mut fds)?, take(&mut fds)?, take(&mut fds)?);
        let mmap = |reason| os_error("mmap", reason);
        Ok(Self {
            id: set,
            domain,
            limit,
            control: Arc::clone(control),
            counters: Arc::clone(counters),
            pending: Pending::new(pending, Wake::from_fd(wake), limit).map_err(mmap)?,
            states: WordsView::of(states, limit as usize * 4).map_err(mmap)?,
            ports: Vec::new(),
            peers: HashMap::new(),
            rings: 0,
            idle_polls: 0,
            vain_drains: 0,
        })
    }

    fn port(&mut self, request: &Request) -> Result<Port, Error> {
        match self.control.request(request)? {
            (Answer::Port { port }, _) if port < self.limit => {
                let index = port as usize;
                if self.ports.len() <= index {
                    self.ports.resize_with(index + 1, || None);
                }
                self.ports[index] = Some(Local::default());
                Ok(Port(port))
            }
            (answer, _) => Err(unexpected(&answer)),
        }
    }

    fn not_ours(&self, port: Port) -> Error {
        Error::Event {
            domain: self.domain,
            port,
            why: "found no port of this set of event channels with this number, expected one of its ports",
        }
    }

    /// Asks the host for the set of a port's peer.
    fn look_up(&mut self, port: u32) -> Result<Option<Peer>, Error> {
        let request = Request::Peer { set: self.id, port };
        let (answer, fds) = self.control.request(&request)?;
        let (binding, set, port) = match answer {
            Answer::Peer { binding, set, port } => (binding, set, port),
            // The port lost its peer in between.
            Answer::Done => return Ok(None),
            other => return Err(unexpected(&other)),
        };
        let pending = match self.peers.get(&set) {
            Some(pending) => Arc::clone(pending),
            None => {
                let pending = Arc::new(self.attach(fds)?);
                self.peers.insert(set, Arc::clone(&pending));
                pending
            }
        };
        Ok(Some(Peer { binding, set, pending, port }))
    }

    /// Forgets the peer of a port. With the last port of the peer's set, the set is forgotten, too.
    fn let_go(&mut self, peer: Option<Peer>) {
        let Some(Peer { set, pending, .. }) = peer else { return };
        drop(pending);
        if self.peers.get(&set).is_some_and(|pending| Arc::strong_count(pending) == 1) {
            self.peers.remove(&set);
        }
    }

    fn attach(&self, fds: Vec<OwnedFd>) -> Result<Pending, Error> {
        let mut fds = fds.into_iter();
        let (memory, wake) = (take(&mut fds)?, take(&mut fds)?);
        Pending::new(memory, Wake::from_fd(wake), self.limit)
            .map_err(|reason| os_error("mmap", reason))
    }

    /// Moves pending bits into the counters, and returns their number.
    fn take(&mut self, fired: &mut dyn FnMut(Port)) -> u64 {
        let ports = &mut self.ports;
        let taken = self.pending.take(|port| {
            if let Some(Some(local)) = ports.get_mut(port as usize) {
                local.count += 1;
                fired(Port(port));
            }
        });
        self.rings += taken;
        taken
    }

    /// Does the work of [`FrontendEvents::poll`], and returns the number of bits taken. `readable`
    /// says that the descriptor is known to be so. After a result of 0, any later signal makes the
    /// descriptor readable (or it is so already).
    fn gather(&mut self, fired: &mut dyn FnMut(Port), readable: bool) -> Result<u64, Error> {
        let taken = self.take(fired);
        if taken == 0 && self.rings == 0 && !readable {
            self.idle_polls += 1;
            if self.idle_polls < PATIENCE {
                return Ok(0);
            }
        }
        self.idle_polls = 0;
        let drained =
            self.pending.wake().drain().map_err(|reason| os_error("read of an eventfd", reason))?;
        self.rings = self.rings.saturating_sub(drained);
        if drained > 0 || self.rings == 0 {
            self.vain_drains = 0;
        } else {
            self.vain_drains += 1;
            if self.vain_drains == PATIENCE {
                // The senders of those bits died before they rang.
                self.rings = 0;
                self.vain_drains = 0;
            }
        }
        // Bits that were set between the look above and the drain, whose rings may be drained.
        Ok(taken + self.take(fired))
    }

    fn seen(&self, port: Port) -> u64 {
        match self.ports.get(port.0 as usize) {
            Some(Some(local)) => local.count,
            _ => 0,
        }
    }

    /// Blocks until the wake-up is rung, the host is gone or the time is over. Returns true if it
    /// was rung.
    fn sleep(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        let timeout = timeout.map(|left| Timespec {
            tv_sec: left.as_secs().min(1 << 30) as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut fds = [
            PollFd::new(self.pending.wake(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.control.descriptor(), PollFlags::empty()),
        ];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(reason) => return Err(os_error("poll", reason)),
        }
        let rung = fds[0].revents().contains(PollFlags::IN);
        if !rung && fds[1].revents().contains(PollFlags::HUP) {
            return Err(self.control.gone());
        }
        Ok(rung)
    }
}

impl FrontendEvents for EventSet {
    fn alloc_unbound(&mut self, remote: DomId) -> Result<Port, Error> {
        self.port(&Request::AllocUnbound { set: self.id, remote: remote.0 })
    }

    fn close(&mut self, port: Port) {
        let Some(slot) = self.ports.get_mut(port.0 as usize) else {
            return;
        };
        if let Some(local) = slot.take() {
            // A host that is gone holds no port either.
            let _ = self.control.request(&Request::ClosePort { set: self.id, port: port.0 });
            self.let_go(local.peer);
        }
    }

    #[inline]
    fn notify(&mut self, port: Port) -> Result<(), Error> {
        let binding = match PortState::from_word(self.states.load32(port.0 as usize)) {
            PortState::Bound(binding) => binding,
            PortState::Unbound => {
                return match self.ports.get(port.0 as usize) {
                    Some(Some(_)) => Ok(()),
                    _ => Err(self.not_ours(port)),
                };
            }
            PortState::Free => return Err(self.not_ours(port)),
        };
        let Some(Some(local)) = self.ports.get(port.0 as usize) else {
            return Err(self.not_ours(port));
        };
        if local.peer.as_ref().is_none_or(|peer| peer.binding != binding) {
            let peer = self.look_up(port.0)?;
            let slot = self.ports.get_mut(port.0 as usize).and_then(Option::as_mut);
            let before = slot.and_then(|local| std::mem::replace(&mut local.peer, peer));
            self.let_go(before);
        }
        let Some(Some(Local { peer: Some(peer), .. })) = self.ports.get(port.0 as usize) else {
            return Ok(());
        };
        Counters::add(&self.counters.notifies, 1);
        peer.pending.signal(peer.port).map_err(|reason| os_error("write of an eventfd", reason))
    }

    fn poll(&mut self, fired: &mut dyn FnMut(Port)) -> Result<(), Error> {
        self.gather(fired, false).map(|_| ())
    }

    fn woken(&mut self) {
        Counters::add(&self.counters.wakeups, 1);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

impl AsFd for EventSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pending.wake().as_fd()
    }
}

impl EventChannels for EventSet {
    fn bind_interdomain(&mut self, remote: DomId, port: Port) -> Result<Port, Error> {
        self.port(&Request::Bind { set: self.id, remote: remote.0, port: port.0 })
    }

    fn count(&mut self, port: Port) -> u64 {
        self.take(&mut |_| {});
        self.seen(port)
    }

    fn wait(&mut self, port: Port, seen: u64, timeout: Option<Duration>) -> Result<u64, Error> {
        // The end is `None` also if it is further off than the clock goes.
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let (mut slept, mut rung) = (false, false);
        loop {
            let taken = self.gather(&mut |_| {}, rung)?;
            let count = self.seen(port);
            if count > seen {
                if slept {
                    Counters::add(&self.counters.wakeups, 1);
                }
                return Ok(count);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(count);
            }
            rung = false;
            if taken == 0 {
                rung = self.sleep(left)?;
                slept = true;
            }
        }
    }
}

impl Drop for EventSet {
    fn drop(&mut self) {
        let _ = self.control.request(&Request::CloseSet { set: self.id });
    }
}

//! Event channels, the host's side: the owner of each port, and its peer. Signals never pass here.

use crate::pending::Pending;
use crate::protocol::{PortRefusal, Refusal};
use crate::state::{Board, PortState};
use crate::sys::{Wake, shared_memory};
use grantway_hypervisor::DomId;
use rustix::fd::OwnedFd;
use rustix::io::Result;
use std::collections::{BTreeMap, BTreeSet};

/// A port of a domain.
#[derive(Debug, Clone, Copy)]
struct Slot {
    set: u64,
    link: Link,
}

/// The other end of a port.
#[derive(Debug, Clone, Copy)]
enum Link {
    Unbound { remote: DomId },
    Bound { remote: DomId, port: u32, binding: u32 },
}

/// The ports of one domain.
#[derive(Debug, Default)]
struct Ports {
    slots: BTreeMap<u32, Slot>,
    /// Freed ports below `fresh`.
    freed: BTreeSet<u32>,
    /// Every port from here on was never used. Port 0 is reserved, as on Xen.
    fresh: u32,
}

impl Ports {
    fn allocate(&mut self, limit: u32) -> Option<u32> {
        if let Some(port) = self.freed.pop_first() {
            return Some(port);
        }
        let port = self.fresh.max(1);
        if port >= limit {
            return None;
        }
        self.fresh = port + 1;
        Some(port)
    }
}

/// A set of event channels: one waiter of one process.
#[derive(Debug)]
pub struct Set {
    domain: DomId,
    pending: Pending,
    pending_fd: OwnedFd,
    states: Board,
    ports: BTreeSet<u32>,
}

impl Set {
    /// Returns the memory of the pending bits.
    pub fn pending_fd(&self) -> &OwnedFd {
        &self.pending_fd
    }

    /// Returns the memory of the port states.
    pub fn states_fd(&self) -> &OwnedFd {
        self.states.fd()
    }

    /// Returns the wake-up.
    pub fn wake(&self) -> &Wake {
        self.pending.wake()
    }

    fn show(&self, port: u32, state: PortState) {
        self.states.set(port as usize, state.word());
    }
}

/// The set and port of a port's peer.
#[derive(Debug)]
pub struct Peer<'a> {
    /// The number of the binding.
    pub binding: u32,
    /// The number of the peer's set.
    pub id: u64,
    /// The peer's set.
    pub set: &'a Set,
    /// The peer's port.
    pub port: u32,
}

/// Every port and every set.
#[derive(Debug)]
pub struct Channels {
    limit: u32,
    domains: BTreeMap<DomId, Ports>,
    sets: BTreeMap<u64, Set>,
    bindings: u32,
}

impl Channels {
    /// Makes a table without sets; each domain may have ports below `limit`.
    pub fn new(limit: u32) -> Self {
        Self { limit, domains: BTreeMap::new(), sets: BTreeMap::new(), bindings: 0 }
    }

    /// Returns the number of sets.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// Returns the numbers of a domain's ports without and with a peer.
    pub fn usage(&self, domain: DomId) -> (u32, u32) {
        let Some(ports) = self.domains.get(&domain) else {
            return (0, 0);
        };
        let bound =
            ports.slots.values().filter(|slot| matches!(slot.link, Link::Bound { .. })).count();
        ((ports.slots.len() - bound) as u32, bound as u32)
    }

    /// Makes a set under the number `id`.
    pub fn open_set(&mut self, id: u64, domain: DomId) -> Result<&Set> {
        let pending_fd = shared_memory("grantway-pending", Pending::bytes(self.limit))?;
        let set = Set {
            domain,
            pending: Pending::new(&pending_fd, Wake::new()?, self.limit)?,
            pending_fd,
            states: Board::new("grantway-ports", self.limit as usize)?,
            ports: BTreeSet::new(),
        };
        // The number is fresh, so no other set is found instead.
        Ok(self.sets.entry(id).or_insert(set))
    }

    /// Ends a set and all its ports.
    pub fn close_set(&mut self, id: u64) {
        let Some(set) = self.sets.get(&id) else {
            return;
        };
        for port in set.ports.clone() {
            let _ = self.close(id, port);
        }
        self.sets.remove(&id);
    }

    /// Makes a port that `remote` may bind to, and returns it.
    pub fn alloc_unbound(&mut self, id: u64, remote: DomId) -> std::result::Result<u32, Refusal> {
        self.allocate(id, Link::Unbound { remote })
    }

    fn allocate(&mut self, id: u64, link: Link) -> std::result::Result<u32, Refusal> {
        let set = self.sets.get_mut(&id).ok_or(Refusal::Confused)?;
        let ports = self.domains.entry(set.domain).or_default();
        let port = ports.allocate(self.limit).ok_or(Refusal::PortsFull { limit: self.limit })?;
        ports.slots.insert(port, Slot { set: id, link });
        set.ports.insert(port);
        set.pending.prepare(port);
        set.show(port, state(link));
        Ok(port)
    }

    /// Makes a port of ours bound to `remote`'s port, and returns it. The port starts pending.
    pub fn bind(
        &mut self,
        id: u64,
        remote: DomId,
        remote_port: u32,
    ) -> std::result::Result<u32, Refusal> {
        let us = self.sets.get(&id).ok_or(Refusal::Confused)?.domain;
        let refuse = |why| Refusal::BadPort { domid: remote.0, port: remote_port, why };
        let theirs = self
            .domains
            .get(&remote)
            .and_then(|ports| ports.slots.get(&remote_port))
            .ok_or_else(|| refuse(PortRefusal::NotThere))?;
        match theirs.link {
            Link::Bound { .. } => return Err(refuse(PortRefusal::Taken)),
            Link::Unbound { remote } if remote != us => {
                return Err(refuse(PortRefusal::NotForUs));
            }
            Link::Unbound { .. } => {}
        }
        self.bindings = (self.bindings + 1) % PortState::BINDINGS;
        let binding = self.bindings;
        let port = self.allocate(id, Link::Bound { remote, port: remote_port, binding })?;
        self.relink(remote, remote_port, Link::Bound { remote: us, port, binding });
        if let Some(set) = self.sets.get(&id) {
            // Xen does so: a signal that was sent before we were there is not lost.
            let _ = set.pending.signal(port);
        }
        Ok(port)
    }

    fn relink(&mut self, domain: DomId, port: u32, link: Link) {
        let slot = self.domains.get_mut(&domain).and_then(|ports| ports.slots.get_mut(&port));
        if let Some(slot) = slot {
            slot.link = link;
            if let Some(set) = self.sets.get(&slot.set) {
                set.show(port, state(link));
            }
        }
    }

    /// Completes a signal that the former peer of a port may have left half done.
    fn complete(&self, domain: DomId, port: u32) {
        let slot = self.domains.get(&domain).and_then(|ports| ports.slots.get(&port));
        if let Some(set) = slot.and_then(|slot| self.sets.get(&slot.set)) {
            let _ = set.pending.complete(port);
        }
    }

    /// Ends a port of a set; its peer returns to unbound, silently.
    pub fn close(&mut self, id: u64, port: u32) -> std::result::Result<(), Refusal> {
        let set = self.sets.get_mut(&id).ok_or(Refusal::Confused)?;
        let us = set.domain;
        if !set.ports.remove(&port) {
            return Err(Refusal::BadPort { domid: us.0, port, why: PortRefusal::NotOurs });
        }
        set.show(port, PortState::Free);
        set.pending.retire(port);
        let Some(ports) = self.domains.get_mut(&us) else {
            return Err(Refusal::Confused);
        };
        let slot = ports.slots.remove(&port);
        ports.freed.insert(port);
        if ports.slots.is_empty() {
            self.domains.remove(&us);
        }
        if let Some(Slot { link: Link::Bound { remote, port, .. }, .. }) = slot {
            self.relink(remote, port, Link::Unbound { remote: us });
            self.complete(remote, port);
        }
        Ok(())
    }

    /// Returns the set and port of the peer of a set's port; `None` while it has none.
    pub fn peer(&self, id: u64, port: u32) -> Option<Peer<'_>> {
        let us = self.sets.get(&id)?;
        if !us.ports.contains(&port) {
            return None;
        }
        let slot = self.domains.get(&us.domain)?.slots.get(&port)?;
        let Link::Bound { remote, port, binding } = slot.link else {
            return None;
        };
        let id = self.domains.get(&remote)?.slots.get(&port)?.set;
        Some(Peer { binding, id, set: self.sets.get(&id)?, port })
    }
}

fn state(link: Link) -> PortState {
    match link {
        Link::Unbound { .. } => PortState::Unbound,
        Link::Bound { binding, .. } => PortState::Bound(binding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACK: DomId = DomId(0);
    const FRONT: DomId = DomId(7);

    fn channels() -> Channels {
        let mut channels = Channels::new(4096);
        channels.open_set(1, BACK).unwrap();
        channels.open_set(2, FRONT).unwrap();
        channels
    }

    #[test]
    fn a_binding_starts_pending_on_the_side_that_binds() {
        let mut channels = channels();
        let theirs = channels.alloc_unbound(2, BACK).unwrap();
        let ours = channels.bind(1, FRONT, theirs).unwrap();
        let fired = |id: u64| {
            let mut ports = Vec::new();
            channels.sets[&id].pending.take(|port| ports.push(port));
            ports
        };
        assert_eq!(fired(1), [ours]);
        assert_eq!(fired(2), []);
        assert_eq!(channels.peer(1, ours).unwrap().port, theirs);
        assert_eq!(channels.peer(2, theirs).unwrap().port, ours);
    }

    #[test]
    fn a_closed_end_leaves_the_other_unbound_for_the_same_domain() {
        let mut channels = channels();
        let theirs = channels.alloc_unbound(2, BACK).unwrap();
        channels.bind(1, FRONT, theirs).unwrap();
        channels.close_set(1);
        assert_eq!(channels.usage(FRONT), (1, 0));
        assert_eq!(channels.usage(BACK), (0, 0));
        assert!(channels.peer(2, theirs).is_none());
        channels.open_set(3, BACK).unwrap();
        let again = channels.bind(3, FRONT, theirs).unwrap();
        assert_eq!(channels.peer(3, again).unwrap().id, 2);
    }

    #[test]
    fn a_signal_in_which_its_sender_was_killed_wakes_all_the_same() {
        let mut channels = channels();
        let theirs = channels.alloc_unbound(2, BACK).unwrap();
        channels.bind(1, FRONT, theirs).unwrap();
        channels.sets[&2].pending.half_a_signal(theirs);
        channels.close_set(1);
        let pending = &channels.sets[&2].pending;
        assert_eq!(pending.wake().drain().unwrap(), 1);
        let mut fired = Vec::new();
        pending.take(|port| fired.push(port));
        assert_eq!(fired, [theirs]);
        // A peer that left nothing behind goes silently.
        channels.open_set(3, BACK).unwrap();
        channels.bind(3, FRONT, theirs).unwrap();
        channels.close_set(3);
        assert_eq!(channels.sets[&2].wake().drain().unwrap(), 0);
    }

    #[test]
    fn ports_are_refused_by_reason() {
        let mut channels = channels();
        let port = channels.alloc_unbound(2, DomId(9)).unwrap();
        let why = |refused: std::result::Result<u32, Refusal>| match refused {
            Err(Refusal::BadPort { why, .. }) => Some(why),
            _ => None,
        };
        assert_eq!(why(channels.bind(1, FRONT, port)), Some(PortRefusal::NotForUs));
        assert_eq!(why(channels.bind(1, FRONT, 99)), Some(PortRefusal::NotThere));
        assert_eq!(why(channels.bind(1, DomId(5), 1)), Some(PortRefusal::NotThere));
        let port = channels.alloc_unbound(2, BACK).unwrap();
        channels.bind(1, FRONT, port).unwrap();
        assert_eq!(why(channels.bind(1, FRONT, port)), Some(PortRefusal::Taken));
        assert!(channels.close(1, 4000).is_err());
    }

    #[test]
    fn a_domain_has_as_many_ports_as_its_table() {
        let mut channels = channels();
        for port in 1..4096 {
            assert_eq!(channels.alloc_unbound(2, BACK), Ok(port));
        }
        assert_eq!(channels.alloc_unbound(2, BACK), Err(Refusal::PortsFull { limit: 4096 }));
        channels.close(2, 17).unwrap();
        assert_eq!(channels.alloc_unbound(2, BACK), Ok(17));
        assert_eq!(channels.alloc_unbound(1, FRONT), Ok(1), "the other domain has its own");
    }

    #[test]
    fn a_domain_may_bind_to_itself() {
        let mut channels = channels();
        let one = channels.alloc_unbound(1, BACK).unwrap();
        let two = channels.bind(1, BACK, one).unwrap();
        assert_ne!(one, two);
        assert_eq!(channels.peer(1, one).unwrap().port, two);
        channels.close(1, one).unwrap();
        assert_eq!(channels.usage(BACK), (1, 0));
    }
}

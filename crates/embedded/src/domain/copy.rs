//! Grant copies, in batches of one call.

use super::control::os_error;
use super::foreign::{Foreign, Foreigners};
use crate::sys::Transfer;
use grantway_hypervisor::{CopyOp, CopySide, Counters, DomId, Error, GrantRef, GrantStatus};
use grantway_ring::PAGE_SIZE;
use rustix::io::Errno;
use std::sync::Arc;

/// Most operations of one group from peer to peer: each takes a page of private memory (256 KiB in
/// all).
const BOUNCES: usize = 64;

/// Memory of a batch beside the operations; kept from batch to batch.
#[derive(Debug, Default)]
pub struct Scratch {
    near: Transfer,
    far: Transfer,
    /// Operations of the group whose grants are held, by index in the batch.
    group: Vec<Held>,
    bounce: Vec<u8>,
}

/// An operation whose grants are held.
#[derive(Debug, Clone, Copy)]
struct Held {
    op: usize,
    len: usize,
    source: Option<GrantRef>,
    dest: Option<GrantRef>,
    /// Addresses in the peers' processes, used from peer to peer only.
    from: u64,
    to: u64,
}

impl Held {
    fn new(op: usize, len: u16) -> Self {
        Self { op, len: usize::from(len), source: None, dest: None, from: 0, to: 0 }
    }
}

/// Domains at both ends of a group; `None` is our own arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ends {
    source: Option<DomId>,
    dest: Option<DomId>,
}

impl Ends {
    fn of(op: &CopyOp) -> Self {
        let domain = |side: &CopySide| match *side {
            CopySide::Local { .. } => None,
            CopySide::Foreign { domain, .. } => Some(domain),
        };
        Self { source: domain(&op.source), dest: domain(&op.dest) }
    }

    /// Returns the most operations of this kind that may be done at once: as many as a call takes,
    /// but one if a later operation may read what an earlier one wrote.
    fn group_max(self) -> usize {
        match (self.source, self.dest) {
            (None, None) => 1,
            (Some(source), Some(dest)) if source == dest => 1,
            (Some(_), Some(_)) => BOUNCES,
            _ => usize::MAX,
        }
    }
}

/// Counts a batch that was done.
pub fn count(counters: &Counters, ops: &[CopyOp]) {
    let bytes = ops.iter().filter(|op| op.status.is_okay()).map(|op| u64::from(op.len)).sum();
    Counters::add(&counters.copies, ops.len() as u64);
    Counters::add(&counters.copy_batches, 1);
    Counters::add(&counters.copy_bytes, bytes);
}

impl Scratch {
    /// Does a batch in order, and sets each status.
    pub fn copy(
        &mut self,
        peers: &Foreigners,
        arena: &mut [u8],
        ops: &mut [CopyOp],
    ) -> Result<(), Error> {
        for op in ops.iter_mut() {
            op.status = GrantStatus::GENERAL_ERROR;
        }
        let mut from = 0;
        while let Some(first) = ops.get(from) {
            let ends = Ends::of(first);
            let to = ops[from..]
                .iter()
                .take(ends.group_max())
                .position(|op| Ends::of(op) != ends)
                .map_or_else(|| ops.len().min(from.saturating_add(ends.group_max())), |n| from + n);
            if let Err(error) = self.group(peers, ends, arena, ops, from..to) {
                for op in ops.iter_mut() {
                    op.status = GrantStatus::GENERAL_ERROR;
                }
                return Err(error);
            }
            from = to;
        }
        Ok(())
    }

    fn group(
        &mut self,
        peers: &Foreigners,
        ends: Ends,
        arena: &mut [u8],
        ops: &mut [CopyOp],
        range: std::ops::Range<usize>,
    ) -> Result<(), Error> {
        let reach = |domain: Option<DomId>| match domain.map(|domain| peers.get(domain)) {
            None => Ok(Some(None)),
            Some(Ok(foreign)) => Ok(Some(Some(foreign))),
            // A domain that is not there is a status of the operations. No lease, or no host, is an
            // error of the batch.
            Some(Err(Error::NoDomain { .. })) => Ok(None),
            Some(Err(error)) => Err(error),
        };
        let (source, dest) = match (reach(ends.source)?, reach(ends.dest)?) {
            (Some(source), Some(dest)) => (source, dest),
            _ => {
                for op in &mut ops[range] {
                    op.status = GrantStatus::BAD_DOMAIN;
                }
                return Ok(());
            }
        };
        // One call may not take all of the group.
        let mut from = range.start;
        while from < range.end {
            from = match (&source, &dest) {
                (None, None) => local(arena, ops, from),
                (Some(peer), None) => self.cross::<false>(peer, arena, ops, from..range.end)?,
                (None, Some(peer)) => self.cross::<true>(peer, arena, ops, from..range.end)?,
                (Some(source), Some(dest)) => self.relay(source, dest, ops, from..range.end)?,
            };
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.near.clear();
        self.far.clear();
        self.group.clear();
    }

    /// Copies between a peer's pages and our arena: to the pages if `STORE`, else from them. Takes
    /// as many operations as one call does, and returns the index of the next.
    fn cross<const STORE: bool>(
        &mut self,
        peer: &Arc<Foreign>,
        arena: &mut [u8],
        ops: &mut [CopyOp],
        range: std::ops::Range<usize>,
    ) -> Result<usize, Error> {
        self.clear();
        let memory = arena.as_mut_ptr();
        let mut at = range.start;
        let mut holder = peer.holder();
        while at < range.end && !self.near.is_full() {
            let op = &mut ops[at];
            let (theirs, ours) = if STORE { (op.dest, op.source) } else { (op.source, op.dest) };
            match (theirs, locate(ours, op.len, arena.len())) {
                (CopySide::Foreign { gref, offset, .. }, Ok(start)) => {
                    match crosses(offset, op.len).and_then(|()| holder.pin(gref, STORE)) {
                        Ok(frame) => {
                            let (source, dest) =
                                if STORE { (None, Some(gref)) } else { (Some(gref), None) };
                            self.group.push(Held { source, dest, ..Held::new(at, op.len) });
                            // The bytes lie in the arena: `locate` checked.
                            let local = memory.wrapping_add(start);
                            self.near.push(local, peer.address(frame, offset), op.len.into());
                        }
                        Err(status) => op.status = status,
                    }
                }
                (_, Err(status)) => op.status = status,
                (CopySide::Local { .. }, _) => {}
            }
            at += 1;
        }
        drop(holder);
        // SAFETY: every local side lies in `arena`, which we borrow mutably and do not
        // touch meanwhile; the remote side is granted memory, to which no reference
        // exists in any process of ours.
        let done = transfer(&self.near, peer, &self.group, ops, |from, to| unsafe {
            if STORE {
                self.near.write(peer.pid(), from, to)
            } else {
                self.near.read(peer.pid(), from, to)
            }
        });
        let mut holder = peer.holder();
        for held in &self.group {
            if let Some(gref) = if STORE { held.dest } else { held.source } {
                holder.unpin(gref, STORE);
            }
        }
        done.map(|()| at)
    }

    /// Copies from a peer's pages to a peer's pages, through private memory, and returns the index
    /// of the next operation. One version of the bytes arrives, whatever the sender writes
    /// meanwhile.
    fn relay(
        &mut self,
        source: &Arc<Foreign>,
        dest: &Arc<Foreign>,
        ops: &mut [CopyOp],
        range: std::ops::Range<usize>,
    ) -> Result<usize, Error> {
        self.clear();
        self.bounce.resize(BOUNCES * PAGE_SIZE, 0);
        let end = range.end.min(range.start.saturating_add(BOUNCES));
        self.hold_both(source, dest, &mut ops[range.start..end], range.start);
        // Each operation has a page of `bounce`.
        let memory = self.bounce.as_mut_ptr();
        for (index, held) in self.group.iter().enumerate() {
            // `index` is below BOUNCES and `len` at most a page.
            let local = memory.wrapping_add(index * PAGE_SIZE);
            self.near.push(local, held.from, held.len);
            self.far.push(local, held.to, held.len);
        }
        // SAFETY: every local side lies in `bounce`, which nobody else has.
        let fetched = transfer(&self.near, source, &self.group, ops, |from, to| unsafe {
            self.near.read(source.pid(), from, to)
        });
        let stored = fetched.and_then(|()| {
            // Only bytes that were fetched are stored, so an operation that failed leaves its
            // destination alone. In the usual case that is one call.
            let fetched = |held: &Held, ops: &[CopyOp]| ops[held.op].status.is_okay();
            let mut from = 0;
            while from < self.group.len() {
                let okay = fetched(&self.group[from], ops);
                let same = self.group[from..].iter().take_while(|held| fetched(held, ops) == okay);
                let to = from + same.count();
                if okay {
                    let part = &self.group[from..to];
                    // SAFETY: every local side lies in `bounce`, which nobody
                    // else has; the remote side is granted memory.
                    transfer_part(&self.far, dest, part, ops, from, |from, to| unsafe {
                        self.far.write(dest.pid(), from, to)
                    })?;
                }
                from = to;
            }
            Ok(())
        });
        let mut holder = source.holder();
        for gref in self.group.iter().filter_map(|held| held.source) {
            holder.unpin(gref, false);
        }
        // One lock is held at a time: both ends may be one domain.
        drop(holder);
        let mut holder = dest.holder();
        for gref in self.group.iter().filter_map(|held| held.dest) {
            holder.unpin(gref, true);
        }
        stored.map(|()| end)
    }

    /// Holds both grants of each operation that is well formed, or neither.
    fn hold_both(&mut self, source: &Foreign, dest: &Foreign, ops: &mut [CopyOp], first: usize) {
        let mut holder = source.holder();
        for (index, op) in ops.iter_mut().enumerate() {
            let (CopySide::Foreign { gref, offset, .. }, CopySide::Foreign { offset: to, .. }) =
                (op.source, op.dest)
            else {
                continue;
            };
            let held = crosses(offset, op.len)
                .and_then(|()| crosses(to, op.len))
                .and_then(|()| holder.pin(gref, false));
            match held {
                Ok(frame) => self.group.push(Held {
                    source: Some(gref),
                    from: source.address(frame, offset),
                    ..Held::new(first + index, op.len)
                }),
                Err(status) => op.status = status,
            }
        }
        // One lock is held at a time: both ends may be one domain.
        drop(holder);
        let mut holder = dest.holder();
        let mut failed = false;
        for held in &mut self.group {
            let op = &mut ops[held.op - first];
            let CopySide::Foreign { gref, offset, .. } = op.dest else {
                continue;
            };
            match holder.pin(gref, true) {
                Ok(frame) => {
                    held.dest = Some(gref);
                    held.to = dest.address(frame, offset);
                }
                Err(status) => {
                    op.status = status;
                    failed = true;
                }
            }
        }
        drop(holder);
        // A source without its destination is let go.
        if failed {
            let mut holder = source.holder();
            self.group.retain(|held| {
                if let (Some(gref), None) = (held.source, held.dest) {
                    holder.unpin(gref, false);
                }
                held.dest.is_some()
            });
        }
    }
}

/// Copies within our arena, without a grant, and returns the index of the next operation.
fn local(arena: &mut [u8], ops: &mut [CopyOp], at: usize) -> usize {
    let size = arena.len();
    let op = &mut ops[at];
    let located =
        locate(op.source, op.len, size).and_then(|from| Ok((from, locate(op.dest, op.len, size)?)));
    op.status = match located {
        Ok((from, to)) => {
            arena.copy_within(from..from + usize::from(op.len), to);
            GrantStatus::OKAY
        }
        Err(status) => status,
    };
    at + 1
}

/// Returns the start of a local side in the arena.
pub(super) fn locate(side: CopySide, len: u16, arena: usize) -> Result<usize, GrantStatus> {
    let CopySide::Local { offset } = side else {
        return Err(GrantStatus::BAD_VIRT_ADDR);
    };
    let (start, len) = (offset as usize, usize::from(len));
    if len == 0 || len > PAGE_SIZE {
        return Err(GrantStatus::BAD_COPY_ARG);
    }
    match start.checked_add(len) {
        Some(end) if end <= arena => Ok(start),
        _ => Err(GrantStatus::BAD_VIRT_ADDR),
    }
}

/// Returns an error if a foreign side is empty or leaves its page.
pub(super) fn crosses(offset: u16, len: u16) -> Result<(), GrantStatus> {
    if len == 0 || usize::from(offset) + usize::from(len) > PAGE_SIZE {
        Err(GrantStatus::BAD_COPY_ARG)
    } else {
        Ok(())
    }
}

fn transfer(
    pairs: &Transfer,
    peer: &Foreign,
    group: &[Held],
    ops: &mut [CopyOp],
    call: impl Fn(usize, usize) -> Result<usize, Errno>,
) -> Result<(), Error> {
    debug_assert_eq!(pairs.len(), group.len());
    transfer_part(pairs, peer, group, ops, 0, call)
}

/// Copies the pairs of `group`, which are those from `first` on, in one call. If that stops
/// half-way, goes on pair by pair, to find those that fail.
fn transfer_part(
    pairs: &Transfer,
    peer: &Foreign,
    group: &[Held],
    ops: &mut [CopyOp],
    first: usize,
    call: impl Fn(usize, usize) -> Result<usize, Errno>,
) -> Result<(), Error> {
    if group.is_empty() {
        return Ok(());
    }
    let end = first + group.len();
    let mut copied = match call(first, end) {
        Ok(copied) => copied,
        Err(Errno::FAULT) => 0,
        Err(errno) => return refused(peer, errno, group, ops),
    };
    // A call that stops copied the first pairs whole.
    let mut single = false;
    for (index, held) in group.iter().enumerate() {
        let pair = first + index;
        if !single && copied >= pairs.bytes(pair) {
            copied -= pairs.bytes(pair);
            ops[held.op].status = GrantStatus::OKAY;
            continue;
        }
        single = true;
        ops[held.op].status = match call(pair, pair + 1) {
            Ok(copied) if copied == held.len => GrantStatus::OKAY,
            Ok(_) | Err(Errno::FAULT) => GrantStatus::BAD_PAGE,
            Err(errno) => return refused(peer, errno, &group[index..], ops),
        };
    }
    if single && !peer.is_alive() {
        for held in group {
            let status = &mut ops[held.op].status;
            if !status.is_okay() {
                *status = GrantStatus::BAD_DOMAIN;
            }
        }
    }
    Ok(())
}

fn refused(peer: &Foreign, errno: Errno, group: &[Held], ops: &mut [CopyOp]) -> Result<(), Error> {
    match errno {
        Errno::SRCH => {
            for held in group {
                ops[held.op].status = GrantStatus::BAD_DOMAIN;
            }
            Ok(())
        }
        // An exiting process has no memory left to check our right to.
        Errno::PERM if !peer.is_alive() => refused(peer, Errno::SRCH, group, ops),
        Errno::PERM => Err(Error::Os {
            call: format!("process_vm_readv of process {} (domain {})", peer.pid(), peer.domain()),
            reason: errno.to_string(),
            remedy: "run both as the same user; with Yama, set sysctl kernel.yama.ptrace_scope to 0 or 1",
        }),
        _ => Err(os_error("process_vm_readv", errno)),
    }
}

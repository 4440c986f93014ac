//! Grant copies, in batches of one request.
//!
//! The driver makes a hypercall for each 16 copies, in order. It refuses copies within our arena,
//! so these are done here, in their place between the others.

use crate::arena::Grants;
use crate::device::{Device, os_error};
use crate::sys::{Copies, Gntdev};
use crate::uapi::CopySegment;
use grantway_hypervisor::{CopyOp, CopySide, Counters, DomId, Error, GrantRef, GrantStatus};
use grantway_ring::PAGE_SIZE;

/// Memory that a batch needs beside the operations, kept from batch to batch.
#[derive(Debug, Default)]
pub struct Scratch {
    segments: Vec<CopySegment>,
    /// The operation of each segment, by index in the batch.
    ops: Vec<usize>,
}

/// Counts a batch that was done.
pub fn count(counters: &Counters, ops: &[CopyOp]) {
    let bytes = ops.iter().filter(|op| op.status.is_okay()).map(|op| u64::from(op.len)).sum();
    Counters::add(&counters.copies, ops.len() as u64);
    Counters::add(&counters.copy_batches, 1);
    Counters::add(&counters.copy_bytes, bytes);
}

impl Scratch {
    /// Copies, as [`grantway_hypervisor::Mapper::copy`] does.
    pub fn copy(
        &mut self,
        device: &Device<Gntdev>,
        grants: Option<&Grants>,
        arena: &mut [u8],
        ops: &mut [CopyOp],
    ) -> Result<(), Error> {
        let done = self.parts(grants, arena, ops, |copies| {
            device.get()?.copy(copies).map_err(|errno| os_error("a grant copy".to_owned(), errno))
        });
        if done.is_err() {
            fail(ops);
        }
        done
    }

    /// Gives `copy` each part of the batch that has no local operation in it, and does local
    /// operations in between.
    fn parts(
        &mut self,
        grants: Option<&Grants>,
        arena: &mut [u8],
        ops: &mut [CopyOp],
        mut copy: impl FnMut(&mut Copies<'_, '_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        fail(ops);
        let mut from = 0;
        while from < ops.len() {
            let to = ops[from..].iter().position(is_local).map_or(ops.len(), |n| from + n);
            let mut copies = Copies::new(&mut self.segments, arena).by(grants);
            self.ops.clear();
            for (index, op) in ops[from..to].iter_mut().enumerate() {
                match copies.push(op) {
                    Ok(()) => self.ops.push(from + index),
                    Err(status) => op.status = status,
                }
            }
            if !copies.is_empty() {
                copy(&mut copies)?;
            }
            for (&op, status) in self.ops.iter().zip(copies.statuses()) {
                ops[op].status = status;
            }
            from = to;
            while let Some(op) = ops.get_mut(from).filter(|op| is_local(op)) {
                op.status = local(arena, op);
                from += 1;
            }
        }
        Ok(())
    }
}

fn fail(ops: &mut [CopyOp]) {
    for op in ops {
        op.status = GrantStatus::GENERAL_ERROR;
    }
}

fn is_local(op: &CopyOp) -> bool {
    matches!((op.source, op.dest), (CopySide::Local { .. }, CopySide::Local { .. }))
}

/// Copies within our arena, without any grant. Returns the status.
fn local(arena: &mut [u8], op: &CopyOp) -> GrantStatus {
    let len = usize::from(op.len);
    if len == 0 || len > PAGE_SIZE {
        return GrantStatus::BAD_COPY_ARG;
    }
    let within = |side| match side {
        CopySide::Local { offset } => {
            let start = offset as usize;
            start.checked_add(len).filter(|&end| end <= arena.len()).map(|_| start)
        }
        CopySide::Foreign { .. } => None,
    };
    match (within(op.source), within(op.dest)) {
        (Some(from), Some(to)) => {
            arena.copy_within(from..from + len, to);
            GrantStatus::OKAY
        }
        _ => GrantStatus::BAD_VIRT_ADDR,
    }
}

/// Returns Xen's status for reading each grant: copies one byte of each into a scratch byte, in one
/// batch.
pub fn probe(gntdev: &Gntdev, domain: DomId, grefs: &[u32]) -> Result<Vec<GrantStatus>, Error> {
    let (mut segments, mut arena) = (Vec::with_capacity(grefs.len()), [0]);
    let mut copies = Copies::new(&mut segments, &mut arena);
    for &gref in grefs {
        let source = CopySide::Foreign { domain, gref: GrantRef(gref), offset: 0 };
        // The copy is well formed: a byte of a page, to a byte that is there.
        let _ = copies.push(&CopyOp::new(source, CopySide::Local { offset: 0 }, 1));
    }
    gntdev.copy(&mut copies).map_err(|errno| os_error("a grant copy".to_owned(), errno))?;
    Ok(copies.statuses().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: CopySide = CopySide::Foreign { domain: DomId(5), gref: GrantRef(9), offset: 0 };

    fn at(offset: u32) -> CopySide {
        CopySide::Local { offset }
    }

    #[test]
    fn local_operations_stay_in_their_place() {
        let mut arena = [0u8; 64];
        arena[0] = 1;
        let mut ops = [
            CopyOp::new(at(0), at(8), 1),
            CopyOp::new(PEER, at(0), 4097),
            CopyOp::new(PEER, at(0), 4),
            CopyOp::new(at(16), PEER, 4),
            CopyOp::new(at(8), at(16), 1),
            CopyOp::new(at(0), at(63), 2),
            CopyOp::new(at(0), at(0), 0),
            CopyOp::new(PEER, PEER, 4096),
            CopyOp::new(PEER, at(61), 4),
        ];
        let mut parts = Vec::new();
        let mut scratch = Scratch::default();
        for _ in 0..2 {
            parts.clear();
            let done = scratch.parts(None, &mut arena, &mut ops, |copies| {
                parts.push(copies.statuses().count());
                Ok(())
            });
            assert_eq!(done, Ok(()));
        }
        assert_eq!(parts, [2, 1]);
        assert_eq!((arena[8], arena[16]), (1, 1));
        let statuses = ops.map(|op| op.status);
        // The driver gave no status for its own copies.
        let (okay, said) = (GrantStatus::OKAY, GrantStatus::GENERAL_ERROR);
        let (bad, far) = (GrantStatus::BAD_COPY_ARG, GrantStatus::BAD_VIRT_ADDR);
        assert_eq!(statuses, [okay, bad, said, said, okay, far, bad, said, far]);
    }

    #[test]
    fn after_an_error_nothing_was_okay() {
        let mut arena = [0u8; 64];
        let mut ops = [CopyOp::new(at(0), at(8), 1), CopyOp::new(PEER, at(0), 4)];
        let missing = Device::new("/nowhere/gntdev".into(), "modprobe xen-gntdev", Gntdev::open);
        let done = Scratch::default().copy(&missing, None, &mut arena, &mut ops);
        assert!(done.unwrap_err().to_string().ends_with("modprobe xen-gntdev"));
        assert!(ops.iter().all(|op| op.status == GrantStatus::GENERAL_ERROR));
        // A copy that needs no device is done without one.
        let done = Scratch::default().copy(&missing, None, &mut arena, &mut ops[..1]);
        assert_eq!((done, ops[0].status), (Ok(()), GrantStatus::OKAY));
    }
}

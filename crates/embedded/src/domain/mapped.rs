//! Grant copies of a thread that may not reach into other processes: each page is mapped
//! for as long as its bytes are copied.

use super::copy::{crosses, locate};
use super::foreign::Foreigners;
use grantway_hypervisor::{Access, CopyOp, CopySide, DomId, Error, GrantRef, GrantStatus};
use grantway_ring::{PAGE_SIZE, SharedPage};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    static MAPS: Cell<bool> = const { Cell::new(false) };
}

/// Makes the calling thread copy by mapping pages from now on. This costs more than
/// `process_vm_readv`. A thread that landlock confines needs it, since landlock forbids
/// `process_vm_readv`.
pub fn copy_by_mapping() {
    MAPS.set(true);
}

/// Returns true if the calling thread copies by mapping pages.
pub(super) fn is_chosen() -> bool {
    MAPS.get()
}

/// Does a batch in order, and sets each status.
pub(super) fn copy(peers: &Foreigners, arena: &mut [u8], ops: &mut [CopyOp]) -> Result<(), Error> {
    let mut refused = None;
    for op in ops.iter_mut() {
        op.status = match one(peers, arena, op) {
            Ok(()) => GrantStatus::OKAY,
            Err(Failure::Status(status)) => status,
            Err(Failure::Batch(error)) => {
                refused = Some(error);
                break;
            }
        };
    }
    let Some(error) = refused else { return Ok(()) };
    for op in ops.iter_mut() {
        op.status = GrantStatus::GENERAL_ERROR;
    }
    Err(error)
}

/// Reason why an operation was not done.
enum Failure {
    /// The status of this operation alone.
    Status(GrantStatus),
    /// The error that ends the batch.
    Batch(Error),
}

impl From<GrantStatus> for Failure {
    fn from(status: GrantStatus) -> Self {
        Self::Status(status)
    }
}

fn one(peers: &Foreigners, arena: &mut [u8], op: &CopyOp) -> Result<(), Failure> {
    let mut bounce = [0; PAGE_SIZE];
    let len = usize::from(op.len);
    // Both sides are judged before either is touched.
    let from = Side::of(op.source, op.len, peers, arena.len(), Access::ReadOnly)?;
    let to = Side::of(op.dest, op.len, peers, arena.len(), Access::ReadWrite)?;
    let outside = |_| GrantStatus::BAD_COPY_ARG;
    let bytes = bounce.get_mut(..len).ok_or(GrantStatus::BAD_COPY_ARG)?;
    match from {
        Side::Local(at) => bytes.copy_from_slice(&arena[at..at + len]),
        Side::Foreign(page, offset) => page.read(offset, bytes).map_err(outside)?,
    }
    match to {
        Side::Local(at) => arena[at..at + len].copy_from_slice(bytes),
        Side::Foreign(page, offset) => page.write(offset, bytes).map_err(outside)?,
    }
    Ok(())
}

/// Place that a copy reads or writes.
enum Side {
    /// The bytes from this one of the arena on.
    Local(usize),
    /// The bytes from this one of a mapped page on.
    Foreign(SharedPage, usize),
}

impl Side {
    fn of(
        side: CopySide,
        len: u16,
        peers: &Foreigners,
        arena: usize,
        access: Access,
    ) -> Result<Self, Failure> {
        match side {
            CopySide::Local { .. } => Ok(Self::Local(locate(side, len, arena)?)),
            CopySide::Foreign { domain, gref, offset } => {
                crosses(offset, len)?;
                Ok(Self::Foreign(map(peers, domain, gref, access)?, offset.into()))
            }
        }
    }
}

fn map(
    peers: &Foreigners,
    domain: DomId,
    gref: GrantRef,
    access: Access,
) -> Result<SharedPage, Failure> {
    let mapped = peers.get(domain).and_then(|peer| Arc::clone(&peer).map(&[gref], access));
    let run = mapped.map_err(|error| match error {
        Error::NoDomain { .. } => Failure::Status(GrantStatus::BAD_DOMAIN),
        Error::Grant { status, .. } => Failure::Status(status),
        other => Failure::Batch(other),
    })?;
    Ok(run.page(0).ok_or(GrantStatus::GENERAL_ERROR)?)
}

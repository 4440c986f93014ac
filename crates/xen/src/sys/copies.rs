//! A batch of grant copies, as gntdev takes it.

use crate::arena::Grants;
use crate::uapi::{COPY_DEST_GREF, COPY_SOURCE_GREF, CopyEnd, CopySegment};
use grantway_hypervisor::{CopyOp, CopySide, GrantStatus};
use grantway_ring::PAGE_SIZE;
use std::marker::PhantomData;

/// Copies between grants and an arena. At least one side of each is a grant.
///
/// Every address in a segment is in the arena, which is borrowed mutably for as long as the batch
/// lives. Segments are checked here, because the driver answers a malformed one by dropping others.
#[derive(Debug)]
pub struct Copies<'s, 'a> {
    segments: &'s mut Vec<CopySegment>,
    base: usize,
    bytes: usize,
    /// Grants of the arena's pages, if there are any.
    grants: Option<&'s Grants>,
    arena: PhantomData<&'a mut [u8]>,
}

impl<'s, 'a> Copies<'s, 'a> {
    /// Makes an empty batch; `segments` is scratch memory.
    pub fn new(segments: &'s mut Vec<CopySegment>, arena: &'a mut [u8]) -> Self {
        segments.clear();
        let base = arena.as_mut_ptr().expose_provenance();
        Self { segments, base, bytes: arena.len(), grants: None, arena: PhantomData }
    }

    /// Names bytes of the arena by these grants, if they are in one page.
    pub fn by(mut self, grants: Option<&'s Grants>) -> Self {
        self.grants = grants;
        self
    }

    /// Adds a copy, or returns the status with which it would be refused.
    pub fn push(&mut self, op: &CopyOp) -> Result<(), GrantStatus> {
        let len = usize::from(op.len);
        if len == 0 || len > PAGE_SIZE {
            return Err(GrantStatus::BAD_COPY_ARG);
        }
        let (source, source_flag) = self.end(op.source, len, COPY_SOURCE_GREF)?;
        let (dest, dest_flag) = self.end(op.dest, len, COPY_DEST_GREF)?;
        let flags = source_flag | dest_flag;
        if flags == 0 {
            return Err(GrantStatus::GENERAL_ERROR);
        }
        let status = GrantStatus::GENERAL_ERROR.0;
        self.segments.push(CopySegment { source, dest, len: op.len, flags, status });
        Ok(())
    }

    fn end(&self, side: CopySide, len: usize, flag: u16) -> Result<(CopyEnd, u16), GrantStatus> {
        match side {
            CopySide::Local { offset } => {
                let start = offset as usize;
                if start.checked_add(len).is_none_or(|end| end > self.bytes) {
                    return Err(GrantStatus::BAD_VIRT_ADDR);
                }
                match self.grants.and_then(|grants| grants.find(start, len)) {
                    Some((domain, gref, offset)) => {
                        Ok((CopyEnd::foreign(gref, offset, domain), flag))
                    }
                    None => Ok((CopyEnd::local(self.base + start), 0)),
                }
            }
            CopySide::Foreign { domain, gref, offset } => {
                if usize::from(offset) + len > PAGE_SIZE {
                    return Err(GrantStatus::BAD_COPY_ARG);
                }
                Ok((CopyEnd::foreign(gref.0, offset, domain.0), flag))
            }
        }
    }

    /// Returns true if the batch has no copies.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns the statuses, in the order in which copies were added.
    pub fn statuses(&self) -> impl Iterator<Item = GrantStatus> {
        self.segments.iter().map(|segment| GrantStatus(segment.status))
    }

    /// Returns the segments and their number, for the driver.
    pub(super) fn raw(&mut self) -> (*mut CopySegment, usize) {
        (self.segments.as_mut_ptr(), self.segments.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grantway_hypervisor::{DomId, GrantRef};

    const OUT: CopySide = CopySide::Foreign { domain: DomId(5), gref: GrantRef(9), offset: 4000 };
    const PEER: CopySide =
        CopySide::Foreign { domain: DomId(6), gref: GrantRef(0x0102_0304), offset: 0 };

    fn local(offset: u32) -> CopySide {
        CopySide::Local { offset }
    }

    #[test]
    fn segments_name_the_arena_and_the_grants() {
        let (mut segments, mut arena) = (Vec::new(), [0u8; 128]);
        let base = arena.as_mut_ptr().addr();
        let mut copies = Copies::new(&mut segments, &mut arena);
        copies.push(&CopyOp::new(OUT, local(32), 96)).unwrap();
        copies.push(&CopyOp::new(local(0), PEER, 128)).unwrap();
        copies.push(&CopyOp::new(PEER, OUT, 1)).unwrap();
        assert!(copies.statuses().all(|status| !status.is_okay()));
        let nine = CopyEnd::foreign(9, 4000, 5);
        let peer = CopyEnd::foreign(0x0102_0304, 0, 6);
        let seen: Vec<_> = segments.iter().map(|s| (s.source, s.dest, s.len, s.flags)).collect();
        assert_eq!(
            seen,
            [
                (nine, CopyEnd::local(base + 32), 96, 1),
                (CopyEnd::local(base), peer, 128, 2),
                (peer, nine, 1, 3),
            ]
        );
    }

    #[test]
    fn requests_that_the_driver_would_refuse_are_not_sent() {
        let (mut segments, mut arena) = (Vec::new(), [0u8; 128]);
        let mut copies = Copies::new(&mut segments, &mut arena);
        let mut push = |from, to, len| copies.push(&CopyOp::new(from, to, len));
        for len in [0, 4097, u16::MAX] {
            assert_eq!(push(PEER, local(0), len), Err(GrantStatus::BAD_COPY_ARG));
        }
        assert_eq!(push(OUT, local(0), 97), Err(GrantStatus::BAD_COPY_ARG));
        assert_eq!(push(local(0), OUT, 97), Err(GrantStatus::BAD_COPY_ARG));
        assert_eq!(push(PEER, local(100), 29), Err(GrantStatus::BAD_VIRT_ADDR));
        assert_eq!(push(PEER, local(u32::MAX), 1), Err(GrantStatus::BAD_VIRT_ADDR));
        assert_eq!(push(local(0), local(64), 1), Err(GrantStatus::GENERAL_ERROR));
        assert!(copies.is_empty());
        assert_eq!(push_max_offset(), Err(GrantStatus::BAD_COPY_ARG));
    }

    fn push_max_offset() -> Result<(), GrantStatus> {
        let far = CopySide::Foreign { domain: DomId(5), gref: GrantRef(9), offset: u16::MAX };
        Copies::new(&mut Vec::new(), &mut [0]).push(&CopyOp::new(far, local(0), 1))
    }
}

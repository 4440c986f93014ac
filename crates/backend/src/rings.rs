//! The pages of a guest's rings.

use crate::VifError;
use grantway_hypervisor::{Access, DomId, GrantRef, Mapper};
use grantway_ring::RingPage;

/// Maps the page of a ring, and returns the ring's memory.
pub(crate) fn map_ring<const W: usize>(
    mapper: &(impl Mapper + ?Sized),
    peer: DomId,
    gref: GrantRef,
) -> Result<RingPage<W>, VifError> {
    let run = mapper.map(peer, &[gref], Access::ReadWrite)?;
    let page = run.page(0).ok_or(VifError::Internal("a mapped run without a page"))?;
    Ok(RingPage::new(page))
}

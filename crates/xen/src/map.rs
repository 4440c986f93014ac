//! Pages of peers, mapped by gntdev.
//!
//! The driver maps a list with one mmap(2), whole or not at all. It fails with `EINVAL` for any
//! fault of any grant. The fault is found afterwards by one batch of copies, which Xen answers with
//! a status each and which map nothing. A grant that may be read but not written is found by
//! mapping parts of the list, each reference about once more. So a refused list costs at most about
//! twice as much as one that is mapped.

use crate::copy::probe;
use crate::device::os_error;
use crate::sys::{Gntdev, Pages};
use grantway_hypervisor::{Access, Counters, DomId, Error, GrantRef, GrantStatus};
use grantway_ring::SharedRun;
use rustix::io::Errno;
use std::sync::Arc;

/// Default limit of gntdev: grants that are mapped at a time. Its module parameter `limit` changes
/// it.
pub const GNTDEV_GRANTS: u64 = 65_536;

/// Maps grants, as [`grantway_hypervisor::Mapper::map`] does. `limit` is the driver's parameter of
/// that name.
pub fn map(
    gntdev: impl FnOnce() -> Result<Arc<Gntdev>, Error>,
    limit: u64,
    counters: &Arc<Counters>,
    peer: DomId,
    grefs: &[GrantRef],
    access: Access,
) -> Result<SharedRun, Error> {
    if grefs.is_empty() {
        return Err(Error::Protocol {
            what: "a list of grants to map",
            found: "an empty one".to_owned(),
            expected: "at least one",
        });
    }
    let gntdev = gntdev()?;
    let numbers: Vec<u32> = grefs.iter().map(|gref| gref.0).collect();
    let attempts =
        Attempts { gntdev: &gntdev, limit, mapped: counters.snapshot().mapped, peer, access };
    let Some((index, pages)) = attempts.map(&numbers, access)? else {
        return Err(attempts.diagnose(&numbers));
    };
    let count = grefs.len() as u64;
    Counters::add(&counters.maps, count);
    Counters::add(&counters.map_batches, 1);
    Counters::add(&counters.mapped, count);
    let counters = Arc::clone(counters);
    Ok(pages.share(move || {
        // The driver knows the list, since it took it. If this failed nevertheless, closing the
        // device would do the same.
        let _ = gntdev.forget(index, numbers.len());
        Counters::add(&counters.unmaps, count);
        Counters::add(&counters.unmap_batches, 1);
        Counters::sub(&counters.mapped, count);
    }))
}

/// Maps of one peer's grants.
struct Attempts<'a> {
    gntdev: &'a Gntdev,
    limit: u64,
    mapped: u64,
    peer: DomId,
    access: Access,
}

impl Attempts<'_> {
    /// Maps a list. Returns `None` if a grant of the list, or Xen's table, does not allow it.
    fn map(&self, grefs: &[u32], access: Access) -> Result<Option<(u64, Pages)>, Error> {
        let failed = |call: &str, errno| {
            os_error(format!("{call} {} grants of domain {}", grefs.len(), self.peer), errno)
        };
        let index = self.gntdev.announce(self.peer.0, grefs).map_err(|errno| match errno {
            Errno::INVAL => Error::Exhausted {
                what: "the number of grants that gntdev maps at a time",
                limit: self.limit,
                remedy: "map fewer at a time, or write more to \
                         /sys/module/xen_gntdev/parameters/limit",
            },
            errno => failed("mapping", errno),
        })?;
        let mapped = self.gntdev.map(index, grefs.len(), access == Access::ReadWrite);
        if mapped.is_err() {
            // The driver keeps a list even if its mmap failed.
            let _ = self.gntdev.forget(index, grefs.len());
        }
        match mapped {
            Ok(pages) => Ok(Some((index, pages))),
            Err(Errno::INVAL) => Ok(None),
            Err(errno) => Err(failed("mmap of", errno)),
        }
    }

    /// Returns the fault of a list that did not map.
    fn diagnose(&self, grefs: &[u32]) -> Error {
        match first_bad(self, grefs, self.access) {
            Ok(Some((gref, status))) => {
                Error::Grant { domain: self.peer, gref: GrantRef(gref), status }
            }
            Ok(None) => Error::Exhausted {
                // A domain cannot read the size of this table.
                what: "Xen's maptrack (grants that this process has and wants mapped counted)",
                limit: self.mapped + grefs.len() as u64,
                remedy: "map less, or give Xen gnttab_max_maptrack_frames=N (its default is 1024)",
            },
            Err(error) => error,
        }
    }
}

/// Questions about grants.
trait Asked {
    /// Returns true if a list maps.
    fn can_map(&self, grefs: &[u32], access: Access) -> Result<bool, Error>;

    /// Returns a status for each grant of a list: okay if it may be read.
    fn can_read(&self, grefs: &[u32]) -> Result<Vec<GrantStatus>, Error>;
}

impl Asked for Attempts<'_> {
    fn can_map(&self, grefs: &[u32], access: Access) -> Result<bool, Error> {
        let Some((index, pages)) = self.map(grefs, access)? else {
            return Ok(false);
        };
        drop(pages);
        let _ = self.gntdev.forget(index, grefs.len());
        Ok(true)
    }

    fn can_read(&self, grefs: &[u32]) -> Result<Vec<GrantStatus>, Error> {
        probe(self.gntdev, self.peer, grefs)
    }
}

/// Returns the first bad grant of a list that did not map, and its status. Returns `None` if none
/// of the grants is at fault.
fn first_bad(
    asked: &impl Asked,
    grefs: &[u32],
    access: Access,
) -> Result<Option<(u32, GrantStatus)>, Error> {
    // Xen answers a copy with a status, while mmap hides it.
    let statuses = asked.can_read(grefs)?;
    let mut bad = grefs.iter().copied().zip(statuses).filter(|(_, status)| !status.is_okay());
    if let Some(found) = bad.next() {
        return Ok(Some(found));
    }
    if access == Access::ReadOnly {
        return Ok(None);
    }
    let first = first_refused(grefs, |part| asked.can_map(part, access))?;
    let read_only =
        !asked.can_map(&[first], access)? && asked.can_map(&[first], Access::ReadOnly)?;
    Ok(read_only.then_some((first, GrantStatus::PERMISSION_DENIED)))
}

/// Returns the first refused grant of a list that does not map as a whole: the shortest part from
/// the start that does not map ends with it. Maps each reference about once.
fn first_refused(
    grefs: &[u32],
    mut can_map: impl FnMut(&[u32]) -> Result<bool, Error>,
) -> Result<u32, Error> {
    let mut rest = grefs;
    while rest.len() > 1 {
        let (before, after) = rest.split_at(rest.len() / 2);
        rest = if can_map(before)? { after } else { before };
    }
    Ok(rest.first().copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Grants of which some are bad, and some may only be read; counts the questions.
    struct Guest {
        bad: Vec<u32>,
        read_only: Vec<u32>,
        /// Number of calls that map, of their pages, and of calls that copy.
        asked: Cell<[usize; 3]>,
    }

    impl Asked for Guest {
        fn can_map(&self, grefs: &[u32], access: Access) -> Result<bool, Error> {
            let [calls, pages, copies] = self.asked.get();
            self.asked.set([calls + 1, pages + grefs.len(), copies]);
            let may = |gref| access == Access::ReadOnly || !self.read_only.contains(gref);
            Ok(grefs.iter().all(|gref| !self.bad.contains(gref) && may(gref)))
        }

        fn can_read(&self, grefs: &[u32]) -> Result<Vec<GrantStatus>, Error> {
            let [calls, pages, copies] = self.asked.get();
            self.asked.set([calls, pages, copies + 1]);
            let status = |gref| match self.bad.contains(gref) {
                true => GrantStatus::BAD_GNTREF,
                false => GrantStatus::OKAY,
            };
            Ok(grefs.iter().map(status).collect())
        }
    }

    #[test]
    fn a_list_that_is_refused_is_not_mapped_again() {
        let list: Vec<u32> = (100..612).collect();
        let found = |bad: &[u32], read_only: &[u32], access| {
            let asked = Cell::default();
            let guest = Guest { bad: bad.to_vec(), read_only: read_only.to_vec(), asked };
            (first_bad(&guest, &list, access).unwrap(), guest.asked.get())
        };
        for access in [Access::ReadOnly, Access::ReadWrite] {
            for (bad, first) in [(&[611][..], 611), (&[300, 611], 300), (&[100], 100)] {
                let bad = found(bad, &[611], access);
                assert_eq!(bad, (Some((first, GrantStatus::BAD_GNTREF)), [0, 0, 1]));
            }
        }
        // A grant that may only be read needs some more calls, and about as many pages again.
        let (first, [calls, pages, copies]) = found(&[], &[611], Access::ReadWrite);
        assert_eq!(first, Some((611, GrantStatus::PERMISSION_DENIED)));
        assert!(calls <= 11 && pages <= 511 + 2 && copies == 1, "{calls} calls, {pages} pages");
        // If no grant is bad, Xen's table has no room.
        assert_eq!(found(&[], &[], Access::ReadOnly), (None, [0, 0, 1]));
        assert_eq!(found(&[], &[], Access::ReadWrite).0, None);
    }

    #[test]
    fn the_first_bad_reference_is_found_at_every_place() {
        for len in 1..40_u32 {
            let list: Vec<u32> = (100..100 + len).collect();
            for bad in 0..len {
                for other in bad..len {
                    let (mut calls, mut mapped) = (0, 0);
                    let found = first_refused(&list, |part| {
                        calls += 1;
                        mapped += part.len();
                        Ok(!part.contains(&(100 + bad)) && !part.contains(&(100 + other)))
                    });
                    assert_eq!(found, Ok(100 + bad));
                    assert!(calls <= len.ilog2() + 1 && mapped <= list.len());
                }
            }
        }
    }
}

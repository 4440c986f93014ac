//! Our own pages, granted by gntalloc.
//!
//! The driver keeps a page, and the grant of it, until it is mapped neither here nor at the peer,
//! and reports neither. So a page is never used for a second purpose: it is granted once, and given
//! back once, with the last handle of its run.

use crate::device::{Device, os_error};
use crate::sys::Gntalloc;
use grantway_hypervisor::{Access, Counters, DomId, Error, GrantRef, Granted, Released};
use rustix::io::Errno;
use std::sync::Arc;

/// Default limit of gntalloc: pages for all processes of a domain. Its module parameter `limit`
/// changes it.
pub const GNTALLOC_PAGES: u64 = 1024;

/// Grants pages, as [`grantway_hypervisor::FrontendPlatform::grant`] does. `limit` is the driver's
/// parameter of that name.
pub fn grant(
    device: &Device<Gntalloc>,
    limit: u64,
    counters: &Arc<Counters>,
    peer: DomId,
    pages: usize,
    access: Access,
) -> Result<Granted, Error> {
    if pages == 0 {
        return Err(Error::Protocol {
            what: "a grant",
            found: "0 pages".to_owned(),
            expected: "at least one",
        });
    }
    let gntalloc = device.get()?;
    let writable = access == Access::ReadWrite;
    let (index, grefs) = gntalloc.alloc(peer.0, writable, pages).map_err(|errno| match errno {
        Errno::NOSPC => exhausted(limit),
        errno => os_error(format!("granting {pages} pages by {}", device.path().display()), errno),
    })?;
    let mapped = gntalloc.map(index, pages).map_err(|errno| {
        // The first error is reported.
        let _ = gntalloc.dealloc(index, pages);
        os_error(format!("mmap of {pages} pages of {}", device.path().display()), errno)
    })?;
    let count = pages as u64;
    Counters::add(&counters.granted, count);
    let (gntalloc, counters) = (Arc::clone(gntalloc), Arc::clone(counters));
    let run = mapped.share(move || {
        // The driver knows the list, since it gave it. If this failed nevertheless, closing the
        // device would do the same.
        let _ = gntalloc.dealloc(index, pages);
        Counters::sub(&counters.granted, count);
        Counters::add(&counters.deferred, count);
    });
    Ok(Granted { run, grefs: grefs.into_iter().map(GrantRef).collect(), peer })
}

/// Releases a run, as [`grantway_hypervisor::FrontendPlatform::release`] does.
pub fn release(granted: Granted) -> Released {
    Released { revoked: 0, deferred: granted.grefs.len() }
}

fn exhausted(limit: u64) -> Error {
    Error::Exhausted {
        what: "gntalloc's store of pages (or this domain's grant table)",
        limit,
        remedy: "write more to /sys/module/xen_gntalloc/parameters/limit, load it with \
                 modprobe xen-gntalloc limit=N, or use fewer queues",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_store_of_pages_names_its_parameter() {
        let text = exhausted(4096).to_string();
        assert!(text.contains("full at 4096;") && text.contains("modprobe xen-gntalloc limit=N"));
        assert!(!text.contains('\n') && !text.contains("  "), "{text}");
    }
}

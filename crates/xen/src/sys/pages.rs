//! Adjacent pages of a device, in one mapping.

use grantway_ring::{PAGE_SIZE, SharedRun};
use rustix::fd::AsFd;
use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// A shared mapping of pages, which is unmapped as a whole when dropped.
#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    count: usize,
}

// SAFETY: the value is only an address range, which its only owner unmaps.
unsafe impl Send for Pages {}
// SAFETY: as for `Send`; the value gives out nothing but the address.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `count` pages of `fd` from `offset` on.
    pub fn map(fd: impl AsFd, offset: u64, count: usize, writable: bool) -> Result<Self> {
        let bytes = count.checked_mul(PAGE_SIZE).filter(|&bytes| bytes > 0).ok_or(Errno::INVAL)?;
        let mut prot = ProtFlags::READ;
        prot.set(ProtFlags::WRITE, writable);
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory that is in
        // use.
        let at = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, prot, MapFlags::SHARED, fd, offset)?
        };
        let base = NonNull::new(at.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, count })
    }

    /// Makes the mapping a run that is shared with a peer. `after` runs after the unmapping, when
    /// the last handle of the run is gone.
    pub fn share(self, after: impl FnOnce() + Send + Sync + 'static) -> SharedRun {
        let (base, count) = (self.base, self.count);
        let kept = Kept { pages: Some(self), after: Some(Box::new(after)) };
        // SAFETY: `pages` has `count` pages mapped at `base` until `kept` is dropped (for reading
        // only if that was asked for), and gives out no reference to them.
        unsafe { SharedRun::new(base, count, Arc::new(kept)) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let bytes = self.count * PAGE_SIZE;
        // SAFETY: this is exactly the range that `map` made. A holder of pointers into it holds
        // this value, too.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), bytes) };
    }
}

/// Memory of pages that only this mapping reaches, and calls that borrow it.
#[derive(Debug)]
pub struct Own(Pages);

impl Pages {
    /// Makes memory of the mapping.
    ///
    /// # Safety
    ///
    /// The mapping must be writable. Nothing but this mapping, and the kernel and Xen on behalf of
    /// calls that borrow it, may read or write its pages.
    pub unsafe fn own(self) -> Own {
        Own(self)
    }
}

impl Deref for Own {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self.0.count * PAGE_SIZE;
        // SAFETY: this many bytes are mapped for as long as the value lives, and were zeroed by the
        // kernel at first. The caller of `own` promised that nothing else writes them.
        unsafe { std::slice::from_raw_parts(self.0.base.as_ptr(), bytes) }
    }
}

impl DerefMut for Own {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes = self.0.count * PAGE_SIZE;
        // SAFETY: as in `deref`; the pages were mapped writable.
        unsafe { std::slice::from_raw_parts_mut(self.0.base.as_ptr(), bytes) }
    }
}

/// A mapping, and a function to call once it is unmapped.
struct Kept {
    pages: Option<Pages>,
    after: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.pages).finish()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.pages.take());
        if let Some(after) = self.after.take() {
            after();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_end_of_a_run_is_reported_once_after_the_last_handle() {
        let fd = rustix::fs::memfd_create("pages", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, 2 * PAGE_SIZE as u64).unwrap();
        let gone = Arc::new(AtomicUsize::new(0));
        let after = Arc::clone(&gone);
        let pages = Pages::map(&fd, 0, 2, true).unwrap();
        let run = pages.share(move || {
            after.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(run.pages(), 2);
        let page = run.page(1).unwrap();
        drop(run);
        page.write(4095, &[7]).unwrap();
        assert_eq!(gone.load(Ordering::Relaxed), 0);
        drop(page);
        assert_eq!(gone.load(Ordering::Relaxed), 1);
        let again = Pages::map(&fd, PAGE_SIZE as u64, 1, false).unwrap().share(|| {});
        let mut byte = [0];
        again.page(0).unwrap().read(4095, &mut byte).unwrap();
        assert_eq!(byte, [7]);
    }

    #[test]
    fn a_mapping_without_pages_is_refused() {
        let fd = rustix::fs::memfd_create("pages", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(Pages::map(&fd, 0, 0, true).unwrap_err(), Errno::INVAL);
        assert_eq!(Pages::map(&fd, 0, usize::MAX, true).unwrap_err(), Errno::INVAL);
    }
}

//! Pages that are not mapped: the first one, so that a null pointer ends the guest, and one below
//! the stack, so that a stack that is full does, before it reaches other memory.

use core::arch::asm;
use core::cell::UnsafeCell;

/// Entries of a table of pages, and bytes of a page and of what a table maps.
const ENTRIES: usize = 512;
const PAGE: usize = 4096;
const SPAN: usize = ENTRIES * PAGE;
/// Bits of an entry: present, writable.
const MAPPED: u64 = 3;

/// A table of pages of 4 KiB.
#[repr(C, align(4096))]
struct Table(UnsafeCell<[u64; ENTRIES]>);

// SAFETY: written once, before the processor knows it.
unsafe impl Sync for Table {}

impl Table {
    const fn new() -> Self {
        Self(UnsafeCell::new([0; ENTRIES]))
    }
}

/// Tables for the first 2 MiB, and for those with the end of the stack.
static LOW: Table = Table::new();
static STACK: Table = Table::new();

unsafe extern "C" {
    /// Table of pages of 2 MiB (`entry`).
    static mut grantway_pd: [u64; 4 * ENTRIES];
    /// The page below the stack.
    static grantway_guard: u8;
}

/// Takes the pages out of the tables.
pub(super) fn begin() {
    let guard = core::ptr::addr_of!(grantway_guard) as usize;
    for (table, span) in [(&LOW, 0), (&STACK, guard / SPAN)] {
        let kept = |page: &usize| *page != 0 && *page != guard / PAGE;
        let mut entries = [0; ENTRIES];
        for (entry, page) in entries.iter_mut().zip(span * ENTRIES..) {
            *entry = if kept(&page) { (page * PAGE) as u64 | MAPPED } else { 0 };
        }
        let directory = core::ptr::addr_of_mut!(grantway_pd);
        // SAFETY: nothing has a reference to either table, and the new one maps the same memory as
        // the page of 2 MiB did, but for pages that nothing uses.
        unsafe {
            table.0.get().write(entries);
            (*directory)[span % (4 * ENTRIES)] = table.0.get() as u64 | MAPPED;
        }
    }
    // SAFETY: the tables are the same ones; the processor forgets what it knows of them.
    unsafe { asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack)) };
}

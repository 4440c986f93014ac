//! Hypercalls, by the page that Xen fills in.

pub mod count;
pub mod events;
#[cfg(test)]
pub mod fake;
pub mod run;

#[cfg(not(test))]
use core::cell::UnsafeCell;

/// Number of the own domain in hypercalls (`DOMID_SELF`).
pub const SELF: u16 = 0x7ff0;

const MEMORY_OP: u64 = 12;
const GRANT_TABLE_OP: u64 = 20;
const VCPU_OP: u64 = 24;
const SCHED_OP: u64 = 29;
pub(super) const EVENT_CHANNEL_OP: u64 = 32;
const HVM_OP: u64 = 34;

/// Bytes of the page, and of each entry in it.
const PAGE_BYTES: usize = 4096;
const ENTRY_BYTES: usize = 32;

/// The page that Xen writes its entries to.
#[cfg(not(test))]
#[repr(align(4096))]
struct Page(UnsafeCell<[u8; PAGE_BYTES]>);

// SAFETY: Xen writes the page once, before anything calls into it.
#[cfg(not(test))]
unsafe impl Sync for Page {}

#[cfg(not(test))]
static PAGE: Page = Page(UnsafeCell::new(refusals()));

/// Returns the page as it is before Xen fills it in: each entry refuses the call with ENOSYS, so
/// that an exception at the very beginning ends the guest, and causes no further one.
const fn refusals() -> [u8; PAGE_BYTES] {
    // mov rax, -38; ret
    const REFUSAL: [u8; 8] = [0x48, 0xc7, 0xc0, 0xda, 0xff, 0xff, 0xff, 0xc3];
    let mut page = [0xcc; PAGE_BYTES];
    let mut at = 0;
    while at < PAGE_BYTES {
        page[at] = REFUSAL[at % ENTRY_BYTES];
        at +=
            if at % ENTRY_BYTES == REFUSAL.len() - 1 { ENTRY_BYTES - REFUSAL.len() + 1 } else { 1 };
    }
    page
}

/// Has Xen fill in the page. Returns false if this is no guest of Xen's.
#[cfg(not(test))]
pub(super) fn install() -> bool {
    use core::arch::x86_64::__cpuid;
    let bases = (0x4000_0000..0x4001_0000).step_by(0x100);
    for base in bases {
        let leaf = __cpuid(base);
        let name = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes);
        if name.as_flattened() != b"XenVMMXenVMM" {
            continue;
        }
        let msr = __cpuid(base + 2).ebx;
        let address = PAGE.0.get() as u64;
        // SAFETY: this register is for that: Xen writes the page at the address, which is its own
        // physical one, and ours for nothing else.
        unsafe {
            core::arch::asm!("wrmsr", in("ecx") msr, in("eax") address as u32,
                in("edx") (address >> 32) as u32, options(nostack));
        }
        return true;
    }
    false
}

/// Returns true if the instruction of a hypercall is AMD's `vmmcall`, and not Intel's `vmcall`. An
/// entry of the page is: mov eax, NUMBER; the instruction, whose last byte tells the two apart; ret.
#[cfg(not(test))]
#[inline(always)]
pub(super) fn is_vmmcall() -> bool {
    const LAST: usize = EVENT_CHANNEL_OP as usize * ENTRY_BYTES + 7;
    // SAFETY: a byte of the page, to which nobody writes any more.
    unsafe { PAGE.0.get().cast::<u8>().add(LAST).read_volatile() == 0xd9 }
}

/// Makes a hypercall of three arguments at most.
///
/// # Safety
///
/// The memory that the arguments point to is as the hypercall expects it.
#[cfg(not(test))]
unsafe fn call(number: u64, first: u64, second: u64, third: u64) -> i64 {
    count::note(number);
    let entry = PAGE.0.get() as u64 + number * ENTRY_BYTES as u64;
    let result;
    // SAFETY: the caller's promise. Xen keeps all registers but those named.
    unsafe {
        core::arch::asm!("call {entry}", entry = in(reg) entry,
            lateout("rax") result,
            inlateout("rdi") first => _, inlateout("rsi") second => _, inlateout("rdx") third => _,
            out("r10") _, out("r8") _, out("rcx") _, out("r11") _);
    }
    result
}

/// Calls the Xen of tests, which have no other.
#[cfg(test)]
unsafe fn call(number: u64, first: u64, second: u64, third: u64) -> i64 {
    count::note(number);
    fake::call(number, first, second, third)
}

/// Makes a hypercall about a structure.
///
/// # Safety
///
/// The structure is that of the command, and what it points to is as the command expects it.
unsafe fn on<T>(number: u64, command: u64, argument: &mut T) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { call(number, command, core::ptr::from_mut(argument) as u64, 0) }
}

/// `xen_hvm_param`.
#[repr(C)]
struct Param {
    domid: u16,
    index: u32,
    value: u64,
}

/// Returns a parameter of this guest (`HVM_PARAM_*`); none if it is not set.
pub fn parameter(index: u32) -> Option<u64> {
    let mut param = Param { domid: SELF, index, value: 0 };
    // SAFETY: HVMOP_get_param is 1, and this is xen_hvm_param.
    let status = unsafe { on(HVM_OP, 1, &mut param) };
    (status == 0 && param.value != 0).then_some(param.value)
}

/// Names the interrupt by which Xen makes an upcall (`HVM_PARAM_CALLBACK_IRQ`). Returns false if
/// Xen refuses it.
///
/// Every guest names one, also one that polls: the toolstack writes the outcome of
/// [`run::suspend`] into a guest that has one, and into no other. The interrupt goes past the
/// local APIC, so none has to be set up, and nothing is to be acknowledged to it: Xen raises it
/// again until `evtchn_upcall_pending` is cleared.
pub(crate) fn take_upcalls() -> bool {
    const CALLBACK: u32 = 0;
    /// Kind of a value that is a vector.
    const VECTOR: u64 = 2 << 56;
    let value = VECTOR | super::upcall::VECTOR as u64;
    let mut param = Param { domid: SELF, index: CALLBACK, value };
    // SAFETY: HVMOP_set_param is 0, and this is xen_hvm_param.
    unsafe { on(HVM_OP, 0, &mut param) == 0 }
}

/// Kind of a page of Xen's that is to be put among the guest's (`XENMAPSPACE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    SharedInfo = 0,
    GrantTable = 1,
}

/// Puts page `index` of Xen's at the frame number `frame`. Returns Xen's status.
pub(super) fn add_page(space: Space, index: usize, frame: u64) -> i64 {
    #[repr(C)]
    struct AddToPhysmap {
        domid: u16,
        size: u16,
        space: u32,
        index: u64,
        frame: u64,
    }
    let index = index as u64;
    let mut add = AddToPhysmap { domid: SELF, size: 0, space: space as u32, index, frame };
    // SAFETY: XENMEM_add_to_physmap is 7, and this is xen_add_to_physmap.
    unsafe { on(MEMORY_OP, 7, &mut add) }
}

/// Returns the most pages that the guest's grant table may have.
pub(super) fn grant_frames() -> usize {
    #[repr(C)]
    struct QuerySize {
        domid: u16,
        frames: u32,
        most: u32,
        status: i16,
    }
    let mut query = QuerySize { domid: SELF, frames: 0, most: 0, status: -1 };
    let address = core::ptr::from_mut(&mut query) as u64;
    // SAFETY: GNTTABOP_query_size is 6, of one gnttab_query_size.
    let status = unsafe { call(GRANT_TABLE_OP, 6, address, 1) };
    if status == 0 && query.status == 0 { query.most as usize } else { 0 }
}

/// Has Xen use entries of the first version, for which a guest that was not asked is set up.
pub(super) fn use_first_version() -> i64 {
    let mut version: u32 = 1;
    let address = core::ptr::from_mut(&mut version) as u64;
    // SAFETY: GNTTABOP_set_version is 8, of one gnttab_set_version, a word.
    unsafe { call(GRANT_TABLE_OP, 8, address, 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_refuses_the_call_until_xen_has_filled_the_page_in() {
        let page = refusals();
        for entry in page.chunks_exact(ENTRY_BYTES) {
            assert_eq!(entry[..8], [0x48, 0xc7, 0xc0, 0xda, 0xff, 0xff, 0xff, 0xc3]);
            assert_eq!(entry[8..], [0xcc; 24]);
        }
        // The four bytes behind the opcode are the number that the call returns: ENOSYS.
        assert_eq!(i32::from_le_bytes(page[3..7].try_into().unwrap()), -38);
    }
}

//! Hypercalls, by the page that Xen fills in.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::time::Duration;
use grantway_hypervisor::{DomId, Port};

/// This domain, as hypercalls name it.
const SELF: u16 = 0x7ff0;

const MEMORY_OP: u64 = 12;
const GRANT_TABLE_OP: u64 = 20;
const SCHED_OP: u64 = 29;
const EVENT_CHANNEL_OP: u64 = 32;
const HVM_OP: u64 = 34;

/// The page that Xen writes its entries to, 32 bytes each.
#[repr(align(4096))]
struct Page(UnsafeCell<[u8; 4096]>);

// SAFETY: Xen writes the page once, before anything calls into it.
unsafe impl Sync for Page {}

static PAGE: Page = Page(UnsafeCell::new([0xcc; 4096]));

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
            asm!("wrmsr", in("ecx") msr, in("eax") address as u32, in("edx") (address >> 32) as u32,
                options(nostack));
        }
        return true;
    }
    false
}

/// Makes a hypercall of three arguments at most.
///
/// # Safety
///
/// Whatever the arguments point to is as the hypercall expects it.
unsafe fn call(number: u64, first: u64, second: u64, third: u64) -> i64 {
    let entry = PAGE.0.get() as u64 + number * 32;
    let result;
    // SAFETY: the caller's promise. Xen keeps all registers but those named.
    unsafe {
        asm!("call {entry}", entry = in(reg) entry,
            lateout("rax") result,
            inlateout("rdi") first => _, inlateout("rsi") second => _, inlateout("rdx") third => _,
            out("r10") _, out("r8") _, out("rcx") _, out("r11") _);
    }
    result
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

/// Makes a port to which `remote` may bind. Returns Xen's status if it does not.
pub fn alloc_unbound(remote: DomId) -> Result<Port, i64> {
    #[repr(C)]
    struct AllocUnbound {
        domid: u16,
        remote: u16,
        port: u32,
    }
    let mut alloc = AllocUnbound { domid: SELF, remote: remote.0, port: 0 };
    // SAFETY: EVTCHNOP_alloc_unbound is 6, and this is evtchn_alloc_unbound.
    match unsafe { on(EVENT_CHANNEL_OP, 6, &mut alloc) } {
        0 => Ok(Port(alloc.port)),
        status => Err(status),
    }
}

/// Closes a port.
pub fn close(port: Port) {
    let mut number = port.0;
    // SAFETY: EVTCHNOP_close is 3, of evtchn_close, a word.
    let _ = unsafe { on(EVENT_CHANNEL_OP, 3, &mut number) };
}

/// Signals a port's other end. Returns Xen's status.
pub fn send(port: Port) -> i64 {
    let mut number = port.0;
    // SAFETY: EVTCHNOP_send is 4, of evtchn_send, a word.
    unsafe { on(EVENT_CHANNEL_OP, 4, &mut number) }
}

/// Most ports that one wait is for.
pub const POLLED: usize = 128;

/// Gives the processor away until one of the ports is pending, of which the first [`POLLED`] count,
/// or until the host's clock says `until`. It may come back sooner.
pub fn poll(ports: &[u32], until: Option<Duration>) {
    #[repr(C)]
    struct Poll {
        ports: u64,
        count: u32,
        until: u64,
    }
    let ports = ports.get(..POLLED).unwrap_or(ports);
    // Xen takes 0 for no limit.
    let until = until.map_or(0, |until| (until.as_nanos() as u64).max(1));
    let mut poll = Poll { ports: ports.as_ptr() as u64, count: ports.len() as u32, until };
    // SAFETY: SCHEDOP_poll is 3, and this is sched_poll, which has the list's address and length.
    let _ = unsafe { on(SCHED_OP, 3, &mut poll) };
}

/// Gives the processor to other domains for a moment.
pub fn pause() {
    // SAFETY: SCHEDOP_yield is 0, and takes nothing.
    let _ = unsafe { call(SCHED_OP, 0, 0, 0) };
}

/// Tells Xen that this guest takes part in a save. The toolstack writes the outcome of
/// [`suspend`] into a guest that has a vector for event channels, and into no other. Nothing is
/// delivered by it: interrupts are off, and all event channels are masked.
pub(crate) fn take_part_in_saves() -> bool {
    /// `HVM_PARAM_CALLBACK_IRQ`, and a vector as its value.
    const CALLBACK: u32 = 0;
    const VECTOR: u64 = 2 << 56 | 0xf3;
    let mut param = Param { domid: SELF, index: CALLBACK, value: VECTOR };
    // SAFETY: HVMOP_set_param is 0, and this is xen_hvm_param.
    unsafe { on(HVM_OP, 0, &mut param) == 0 }
}

/// Has the guest saved. Returns once it goes on: true if it was restored, in a domain that may be a
/// new one, and false if the save was given up (see [`take_part_in_saves`]).
pub fn suspend() -> bool {
    let mut reason: u32 = 2;
    // SAFETY: SCHEDOP_shutdown is 2, of sched_shutdown, a word; SHUTDOWN_suspend is 2.
    let given_up = unsafe { on(SCHED_OP, 2, &mut reason) };
    given_up == 0
}

/// Reason for which a guest ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// It has done its work.
    PowerOff = 0,
    /// It is to be started anew.
    Reboot = 1,
    /// It cannot go on.
    Crash = 3,
}

/// Ends the guest.
pub fn shutdown(reason: Shutdown) -> ! {
    let mut reason = reason as u32;
    loop {
        // SAFETY: SCHEDOP_shutdown is 2, of sched_shutdown, a word. The guest is not run again.
        let _ = unsafe { on(SCHED_OP, 2, &mut reason) };
    }
}

//! Hypercalls about the guest's processor: when it runs, and how the guest ends.

use super::{SCHED_OP, VCPU_OP, call, on};
use core::time::Duration;

/// Most ports that one [`poll`] is for.
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

/// Has Xen signal the port of [`super::events::bind_timer`] when the host's clock says so many
/// nanoseconds: at once, if that time is over. A timer that was set before is forgotten.
pub fn set_timer(at: u64) {
    #[repr(C)]
    struct SetTimer {
        at: u64,
        flags: u32,
    }
    let mut set = SetTimer { at, flags: 0 };
    let address = core::ptr::from_mut(&mut set) as u64;
    // SAFETY: VCPUOP_set_singleshot_timer is 8, of processor 0 and a vcpu_set_singleshot_timer.
    let _ = unsafe { call(VCPU_OP, 8, 0, address) };
}

/// Returns the time for which Xen has run the guest's processor since the domain was made. It
/// includes Xen's work for the guest, and excludes waits. Returns zero if Xen does not report it.
#[must_use]
pub fn ran() -> Duration {
    #[repr(C)]
    struct RunState {
        state: i32,
        since: u64,
        /// Nanoseconds in each state: running, runnable, blocked, offline.
        times: [u64; 4],
    }
    let mut state = RunState { state: 0, since: 0, times: [0; 4] };
    let address = core::ptr::from_mut(&mut state) as u64;
    // SAFETY: VCPUOP_get_runstate_info is 4, of processor 0 and a vcpu_runstate_info.
    let status = unsafe { call(VCPU_OP, 4, 0, address) };
    Duration::from_nanos(if status == 0 { state.times[0] } else { 0 })
}

/// Has the guest saved. Returns once it goes on: true if it was restored, in a domain that may be a
/// new one, and false if the save was given up (see [`super::take_upcalls`]).
pub fn suspend() -> bool {
    let mut reason: u32 = 2;
    // SAFETY: SCHEDOP_shutdown is 2, of sched_shutdown, a word; SHUTDOWN_suspend is 2.
    let given_up = unsafe { on(SCHED_OP, 2, &mut reason) };
    given_up == 0
}

/// Reason of a shutdown (`SHUTDOWN_*` of Xen's `sched.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// The guest has done its work.
    PowerOff = 0,
    /// The toolstack should start the guest again.
    Reboot = 1,
    /// The guest has failed.
    Crash = 3,
}

/// Ends the guest.
///
/// Before the guest can make hypercalls, this halts the processor with interrupts off. Xen treats
/// that as a power-off. A machine without Xen stops.
pub fn shutdown(reason: Shutdown) -> ! {
    let mut reason = reason as u32;
    // SAFETY: SCHEDOP_shutdown is 2, of sched_shutdown, a word. The guest is not run again.
    let _ = unsafe { on(SCHED_OP, 2, &mut reason) };
    crate::sys::halt()
}

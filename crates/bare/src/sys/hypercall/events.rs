//! Hypercalls about event channels.

use super::{EVENT_CHANNEL_OP, SELF, on};
use grantway_hypervisor::{DomId, Port};

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

/// Makes a port that this guest's processor signals to itself. Returns Xen's status if it does not.
pub fn bind_own() -> Result<Port, i64> {
    #[repr(C)]
    struct BindIpi {
        processor: u32,
        port: u32,
    }
    let mut bind = BindIpi { processor: 0, port: 0 };
    // SAFETY: EVTCHNOP_bind_ipi is 7, and this is evtchn_bind_ipi.
    match unsafe { on(EVENT_CHANNEL_OP, 7, &mut bind) } {
        0 => Ok(Port(bind.port)),
        status => Err(status),
    }
}

/// Makes a port for the timer of this guest's processor. Returns Xen's status if it does not.
pub fn bind_timer() -> Result<Port, i64> {
    #[repr(C)]
    struct BindVirq {
        virq: u32,
        processor: u32,
        port: u32,
    }
    let mut bind = BindVirq { virq: 0, processor: 0, port: 0 };
    // SAFETY: EVTCHNOP_bind_virq is 1, and this is evtchn_bind_virq; VIRQ_TIMER is 0.
    match unsafe { on(EVENT_CHANNEL_OP, 1, &mut bind) } {
        0 => Ok(Port(bind.port)),
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

/// Has Xen unmask a port, and deliver it if it is pending.
pub fn unmask(port: Port) {
    let mut number = port.0;
    // SAFETY: EVTCHNOP_unmask is 9, of evtchn_unmask, a word.
    let _ = unsafe { on(EVENT_CHANNEL_OP, 9, &mut number) };
}

/// Goes over to event channels in queues, whose control block is the page of this frame number.
/// Returns Xen's status.
pub(in crate::sys) fn init_control(frame: u64) -> i64 {
    #[repr(C)]
    struct InitControl {
        frame: u64,
        offset: u32,
        processor: u32,
        link_bits: u8,
        pad: [u8; 7],
    }
    let mut init = InitControl { frame, offset: 0, processor: 0, link_bits: 0, pad: [0; 7] };
    // SAFETY: EVTCHNOP_init_control is 11, and this is evtchn_init_control.
    unsafe { on(EVENT_CHANNEL_OP, 11, &mut init) }
}

/// Adds a page of event words, that of this frame number. Returns Xen's status.
pub(in crate::sys) fn expand_array(frame: u64) -> i64 {
    let mut number = frame;
    // SAFETY: EVTCHNOP_expand_array is 12, of evtchn_expand_array, one long word.
    unsafe { on(EVENT_CHANNEL_OP, 12, &mut number) }
}

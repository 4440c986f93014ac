//! Giving up capabilities.

use crate::error::SandboxError;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// The calling thread, and those that it starts later, keep at most these.
///
/// A thread that has none keeps none; that is no error.
pub(crate) fn keep(kept: CapabilitySet) -> Result<(), SandboxError> {
    let failed =
        |call| move |errno: Errno| SandboxError::Capabilities { call, source: errno.into() };
    let own = capabilities(None).map_err(failed("capget"))?;
    if own.effective.contains(CapabilitySet::SETPCAP) {
        bound(kept).map_err(failed("PR_CAPBSET_DROP"))?;
    }
    let sets = CapabilitySets {
        effective: own.effective & kept,
        permitted: own.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    // The ambient set follows: nothing is in it that is not in both others.
    set_capabilities(None, sets).map_err(failed("capset"))
}

/// No program that is run later gets any but these.
fn bound(kept: CapabilitySet) -> Result<(), Errno> {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match capability_is_in_bounding_set(capability) {
            Ok(true) if !kept.contains(capability) => {
                remove_capability_from_bounding_set(capability)?;
            }
            Ok(_) => {}
            // Beyond the last one that this kernel has.
            Err(Errno::INVAL) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

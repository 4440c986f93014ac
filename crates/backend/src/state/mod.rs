//! State that the queues of one vif share, whichever workers they belong to.

pub(crate) mod checksums;
pub(crate) mod credit;
pub(crate) mod guest;
pub(crate) mod multicast;
pub(crate) mod shared;
pub(crate) mod stats;
pub(crate) mod steer;
pub(crate) mod trace;

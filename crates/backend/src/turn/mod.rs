//! A turn of one queue: packets from the guest to an outlet, and frames to the guest.

pub(crate) mod delivery;
pub(crate) mod filter;
pub(crate) mod lists;
pub(crate) mod merge;
pub(crate) mod outlet;
pub(crate) mod plain;
pub(crate) mod queue;
pub(crate) mod receive;
pub(crate) mod scratch;
pub(crate) mod taken;
pub(crate) mod transmit;
pub(crate) mod waiting;
pub(crate) mod work;

//! The control thread: the store, the state machine of each vif, control rings, and takeovers. The
//! control thread touches no packet. Workers tell it by notices, and answer when it asks.

pub(crate) mod backend;
pub(crate) mod ctrl;
pub(crate) mod negotiate;
pub(crate) mod refusals;
pub(crate) mod succession;
pub(crate) mod surroundings;
pub(crate) mod vif;
pub(crate) mod voice;

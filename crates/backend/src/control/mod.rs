//! What runs on the control thread: the store, the state machine of each vif, control rings, and
//! takeovers. It touches no packet, and knows the workers by what it tells them.

pub(crate) mod backend;
pub(crate) mod ctrl;
pub(crate) mod negotiate;
pub(crate) mod refusals;
pub(crate) mod succession;
pub(crate) mod surroundings;
pub(crate) mod vif;
pub(crate) mod voice;

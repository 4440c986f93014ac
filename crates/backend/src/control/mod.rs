//! The control thread: the store, the state machine of each vif, control rings, and takeovers; or,
//! without a store, the rings that it is handed. The control thread touches no packet. Workers tell it by notices, and answer when it asks.

pub(crate) mod asked;
pub(crate) mod backend;
pub(crate) mod config;
pub(crate) mod ctrl;
pub(crate) mod engine;
pub(crate) mod handed;
pub(crate) mod link;
pub(crate) mod negotiate;
pub(crate) mod published;
pub(crate) mod refusals;
pub(crate) mod report;
pub(crate) mod succession;
pub(crate) mod surroundings;
pub(crate) mod vif;
pub(crate) mod voice;

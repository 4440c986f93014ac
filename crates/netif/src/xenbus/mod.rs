//! The handshake of both ends over xenstore, as state machines without I/O.
//!
//! The caller watches both `state` nodes. A backend also watches `online` and `hotplug-status`.
//! When a watch fires, the caller reads the node *again*, passes its present content to the
//! machine, and carries out the returned actions in order. The machines use levels, not edges: a
//! state that was missed or seen twice does no harm. They follow stock netfront and stock netback,
//! and are tested jointly with models of both.
//!
//! The caller must keep these rules:
//!
//! - Carry out all actions of one event, and pass their answers ([`BackendEvent::Connected`] and
//!   the like), before the next event.
//! - Write a state in a transaction that first reads the node. Otherwise the write may bring back a
//!   directory that the toolstack has just removed. Neither machine deletes a node: the directories
//!   belong to the toolstack (mirage-net-xen #121).
//!
//! Levels have one weakness: an end that closes and reconnects quickly may look unchanged. The new
//! rings of a frontend then show only in its keys: [`BackendEvent::KeysChanged`] reports them.

pub mod backend;
pub mod frontend;

pub use backend::{BackendAction, BackendActions, BackendEvent, BackendMachine};
pub use frontend::{FrontendAction, FrontendActions, FrontendEvent, FrontendMachine, Reopen};

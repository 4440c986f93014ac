//! The handshake of the two ends through the store, as state machines without
//! I/O.
//!
//! A caller watches both `state` nodes (and, as a backend, `online` and
//! `hotplug-status`), reads the node *again* whenever a watch fires, hands over
//! what it holds now, and carries out the returned actions in order. The
//! machines judge levels, not edges: a state that was missed, or is seen twice,
//! does no harm. They are written against stock netfront and stock netback, and
//! tested jointly with models of both.
//!
//! The caller's side of the bargain: all actions of one event are carried out,
//! and their answers ([`BackendEvent::Connected`] and the like) handed over,
//! before the next event is. Neither machine ever deletes a node: directories
//! are the toolstack's (mirage-net-xen #121). A caller writes a state in a
//! transaction that first sees the node there, or the write brings a directory
//! back that the toolstack has just removed.
//!
//! Levels have one weakness: an end that goes round quickly looks as if it had
//! not moved. A frontend's new rings then show only in its keys, which is what
//! [`BackendEvent::KeysChanged`] is for.

pub mod backend;
pub mod frontend;

pub use backend::{BackendAction, BackendActions, BackendEvent, BackendMachine};
pub use frontend::{FrontendAction, FrontendActions, FrontendEvent, FrontendMachine, Reopen};

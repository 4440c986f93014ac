//! The embedded host: domains, grant tables, event channels and a xenstore on
//! any Linux machine, without Xen and without root.
//!
//! - [`Host`] holds what the hypervisor and xenstored would hold, behind two
//!   sockets in a folder: `control`, and `xenstored/socket`, which speaks the
//!   real wire protocol (`XENSTORED_PATH=DIR/xenstored/socket xenstore-ls`).
//! - [`Domain`] is a domain from inside: a [`grantway_hypervisor::Platform`]
//!   for one process.
//! - [`store`] is the xenstore, with no I/O in it.
//!
//! Costs are real ones of the same kind as Xen's, never sleeps:
//!
//! - a grant copy is one `process_vm_readv` or `process_vm_writev` per batch;
//! - a map is an `mmap` of the granter's page, and an unmap a `munmap` with its TLB shootdown;
//! - a notification is a write to an eventfd, and a blocked wait a `poll`.
//!
//! A thread that the kernel does not let reach into other processes copies by mapping
//! ([`copy_by_mapping`]).
//!
//! The host is no isolation boundary: domains are processes of one user, which may reach each
//! other's memory anyway. The host keeps apart what keeps a test honest. Nothing that a process
//! writes makes the host or a peer panic. When a process dies, in whatever way, the host takes back
//! what it held.

mod domain;
mod entry;
mod host;
mod pending;
mod protocol;
mod state;
pub mod store;
mod sys;
mod tables;

pub use domain::{ConnectError, Domain, Revoke, Role, copy_by_mapping};
pub use host::{Host, HostConfig, HostError, HostGuard, PortTable, raise_descriptor_limit};
pub use tables::{DomainTable, Tables};

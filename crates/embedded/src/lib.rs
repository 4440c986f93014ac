//! An embedded host: domains, grants, event channels and a xenstore on any Linux machine, without
//! Xen and without root.
//!
//! # When to use it
//!
//! - To test and develop frontends and backends on a machine without Xen.
//! - To connect a frontend and a backend in two processes of one machine.
//!
//! # Example
//!
//! ```
//! use grantway_embedded::{Domain, Host, Role};
//! use grantway_hypervisor::{Access, DomId, FrontendPlatform, Mapper};
//!
//! let dir = tempfile::tempdir()?;
//! let _host = Host::spawn(dir.path())?;
//!
//! // Domain 0 makes domain 7. The guest grants a page to domain 0.
//! let back = Domain::connect(dir.path(), DomId(0), Role::Service)?;
//! back.create_domain(DomId(7), "guest")?;
//! let guest = Domain::connect(dir.path(), DomId(7), Role::Guest)?;
//! let granted = guest.grant(DomId(0), 1, Access::ReadOnly)?;
//! granted.run.page(0).expect("a run of one page").write(0, b"hello")?;
//!
//! // Domain 0 maps the page and reads it.
//! let run = back.map(DomId(7), &granted.grefs, Access::ReadOnly)?;
//! let mut bytes = [0; 5];
//! run.page(0).expect("a run of one page").read(0, &mut bytes)?;
//! assert_eq!(&bytes, b"hello");
//!
//! // The guest cannot revoke a page that is mapped.
//! assert_eq!(guest.release(granted).deferred, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules and types
//!
//! | Item | Content |
//! |---|---|
//! | [`Host`], [`HostGuard`] | the part of the hypervisor and of xenstored, behind two sockets in a folder |
//! | [`Domain`] | a domain, from inside: a [`grantway_hypervisor::Platform`] for one process |
//! | [`store`] | a xenstore server without I/O |
//! | [`Tables`] | everything that a host holds at one moment |
//!
//! The two sockets are `control` and `xenstored/socket`. The latter has the real wire protocol:
//! `XENSTORED_PATH=DIR/xenstored/socket xenstore-ls` works.
//!
//! # Guarantees and limits
//!
//! - Nothing that a process writes makes the host or a peer panic.
//! - When a process dies in any way, the host takes back what the process held.
//! - Operations do real work of the same kind as Xen's. None sleeps to imitate a cost. A grant copy
//!   is one `process_vm_readv` or `process_vm_writev` per batch. A map is an `mmap` of the
//!   granter's page. An unmap is a `munmap`, with its TLB shootdown. A notification is a write to
//!   an eventfd. A blocked wait is a `poll`.
//! - A thread that may not access other processes copies by mapping instead ([`copy_by_mapping`]).
//! - It needs Linux.
//!
//! # What it is not
//!
//! - It is not an isolation boundary. Its domains are processes of one user, which may access each
//!   other's memory anyway. The host separates only what a test depends on.
//! - It is not a model of Xen's costs: its operations take other times.
//! - It runs no virtual machines.

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

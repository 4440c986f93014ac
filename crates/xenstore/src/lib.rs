//! The xenstore wire protocol, and a client for it.
//!
//! - [`wire`]: messages as bytes, and bytes as messages. Both sides use it: the
//!   client here, and the server of the embedded host.
//! - [`path`]: which paths there are, and what they are relative to.
//! - [`permission`]: a node's permissions as text (`n0`, `r7`).
//! - [`Client`]: a connection that blocks for its answers, over any [`Transport`]: a Unix
//!   socket (xenstored's, or the embedded host's), `/dev/xen/xenbus`, or a unikernel's page.
//!
//! The protocol's facts are those of Xen's `xs_wire.h` and `xenstore.txt`.
#![no_std]
#![forbid(unsafe_code)]

#[cfg_attr(test, macro_use)]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod client;
mod events;
pub mod path;
pub mod permission;
mod transport;
pub mod wire;

pub use client::{Client, DEFAULT_SOCKET};
pub use events::MAX_QUEUED_BYTES;
pub use transport::{Ready, Transport, TransportError};

//! The xenstore wire protocol, and a client for it.
//!
//! - [`wire`]: messages as bytes, and bytes as messages. Both sides use it: the
//!   client here, and the server of the embedded host.
//! - [`path`]: which paths there are, and what they are relative to.
//! - [`permission`]: a node's permissions as text (`n0`, `r7`).
//! - [`Client`]: a connection that blocks for its answers, over a Unix socket
//!   (xenstored's, or the embedded host's) or over `/dev/xen/xenbus`.
//!
//! The protocol's facts are those of Xen's `xs_wire.h` and `xenstore.txt`.
#![forbid(unsafe_code)]

mod client;
mod events;
pub mod path;
pub mod permission;
pub mod wire;

pub use client::{Client, DEFAULT_SOCKET};
pub use events::MAX_QUEUED_EVENTS;

//! The wire protocol of xenstore, and a client for it.
//!
//! # When to use it
//!
//! - To read, write and watch nodes of a store: over xenstored's Unix socket, over
//!   `/dev/xen/xenbus`, or over a transport of your own ([`Transport`]).
//! - To write a server, a proxy or a fuzzer of the protocol ([`wire`]).
//!
//! # Example
//!
//! With the feature `std`, [`Client`] connects to a socket. A store that has to exist makes this
//! example one that is compiled and not run:
//!
//! ```no_run
//! # #[cfg(feature = "std")] {
//! use grantway_hypervisor::{FrontendStore, StoreOps};
//! use grantway_xenstore::{Client, DEFAULT_SOCKET};
//!
//! let mut store = Client::connect(DEFAULT_SOCKET)?;
//! for name in store.list("/local/domain")? {
//!     println!("{name}");
//! }
//! store.watch("/local/domain/0/backend/vif", "my-token")?;
//! # }
//! # Ok::<(), grantway_hypervisor::Error>(())
//! ```
//!
//! The messages need no store:
//!
//! ```
//! use grantway_xenstore::wire::{Decoder, MessageType, encode};
//!
//! let read = MessageType::Read.number();
//! let bytes = encode(read, 1, 0, &[b"/local/domain/0/name\0"])?;
//!
//! // Bytes may arrive in any pieces.
//! let mut decoder = Decoder::new();
//! decoder.push(&bytes[..10]);
//! assert_eq!(decoder.next_message()?, None);
//! decoder.push(&bytes[10..]);
//! let message = decoder.next_message()?.expect("a whole message");
//! assert_eq!(MessageType::from_wire(message.header.kind), Some(MessageType::Read));
//! assert_eq!(message.strings(), Some(vec![&b"/local/domain/0/name"[..]]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules and types
//!
//! | Item | Content |
//! |---|---|
//! | [`Client`] | a connection that blocks until its answer comes |
//! | [`Transport`] | the byte streams below a client |
//! | [`wire`] | messages, to and from bytes, for clients and servers |
//! | [`path`] | validation of paths |
//! | [`permission`] | permissions of a node as text, such as `n0` or `r7` |
//!
//! # Guarantees and limits
//!
//! - Answers of the store are validated. A store that breaks the protocol ends the connection.
//! - Watch events that wait are bounded in bytes ([`MAX_QUEUED_BYTES`]).
//! - A conflict of a transaction is an error value (`EAGAIN`), so that the caller can try again.
//! - `no_std` with `alloc`. The feature `std` adds transports over sockets and files.
//! - The source of the protocol is Xen's `xs_wire.h` and `xenstore.txt`.
//!
//! # What it is not
//!
//! - It is not a server. `grantway-embedded` has one.
//! - It is not asynchronous: a call blocks until its answer comes.
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

//! The wire protocol of Xen's virtual network interface (netif), without I/O.
//!
//! # When to use it
//!
//! - To write a netif frontend or backend, a fuzzer, or a tool that decodes rings.
//! - To read Ethernet, IP, TCP and UDP headers of untrusted frames ([`headers`]).
//!
//! # Example
//!
//! A frontend writes a packet as slots. A backend reads it from its private copies.
//!
//! ```
//! use arrayvec::ArrayVec;
//! use grantway_netif::slots::{Outcome, TxFragment, parse_tx, write_tx};
//! use grantway_netif::tx::status;
//! use grantway_netif::Offload;
//!
//! // A frame of 1514 bytes in two granted pages.
//! let parts = [
//!     TxFragment { gref: 8, offset: 4000, size: 96, id: 0 },
//!     TxFragment { gref: 9, offset: 0, size: 1418, id: 1 },
//! ];
//! let mut slots = ArrayVec::new();
//! write_tx(&parts, 1514, Offload::default(), None, None, &mut slots)?;
//!
//! // The backend has copied these slots out of the ring.
//! let parsed = parse_tx(&slots)?.expect("a packet");
//! let Outcome::Packet(packet) = &parsed.outcome else { panic!("refused") };
//! assert_eq!((packet.len, packet.slots()), (1514, 2));
//! assert!(packet.fragments().eq(parts));
//! assert_eq!(parsed.responses(status::OKAY).count(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | Module | Content |
//! |---|---|
//! | [`tx`], [`rx`], [`ctrl`], [`extra`] | single slots, to and from values |
//! | [`slots`] | chains of slots, to and from packets |
//! | [`headers`] | the headers of a frame, up to TCP and UDP |
//! | [`offload`] | state of a checksum, and segmentation |
//! | [`flow`] | the queue of a frame, by its flow |
//! | [`hashing`], [`toeplitz`] | the queue of a frame, by the hash that a frontend configures |
//! | [`keys`] | names of the xenstore nodes |
//! | [`state`], [`xenbus`] | the handshake of both ends, as state machines |
//!
//! # Guarantees and limits
//!
//! - No function panics on any input.
//! - It never reads shared memory. A caller copies a slot out of the ring once, as little-endian
//!   32-bit words, and passes the copy. So a double fetch (XSA-155) is impossible with these types.
//! - Each layout is that of Xen's public header `xen/io/netif.h`. The test `header` compiles a C
//!   program with this header, and compares.
//! - `no_std`. It allocates no memory. It supports little-endian machines only, as Xen does.
//! - Transmit (TX) and receive (RX) are named from the side of the guest.
//!
//! # What it is not
//!
//! - It is not a driver. It has no ring (`grantway-ring`), no grants (`grantway-hypervisor`), and
//!   never waits. `grantway-frontend` and `grantway-backend` are the drivers.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(not(target_endian = "little"))]
compile_error!("the netif slots are handled as little-endian words: no big-endian Xen exists");

mod colour;
pub mod ctrl;
pub mod extra;
pub mod flow;
pub mod hashing;
pub mod headers;
pub mod keys;
pub mod offload;
mod policy;
pub mod rx;
pub mod slots;
pub mod state;
pub mod toeplitz;
pub mod tx;
pub mod xenbus;

pub use colour::colour;
pub use extra::{Extra, Hash};
pub use offload::{Checksum, Gso, GsoKind, NotTcp, Offload, TcpGso};
pub use policy::{Policy, PolicyFeatures};
pub use state::XenbusState;

/// Bytes of a page on the wire. The page size of the machine does not matter.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of a ring page before its first slot (`ring.h`).
pub const RING_HEADER_BYTES: usize = 64;

/// Bytes of an Ethernet header. A shorter packet is invalid.
pub const ETH_HEADER_BYTES: u16 = 14;

/// Returns the number of slots of `slot_bytes` bytes in one ring page: the largest power of two
/// that fits behind the header (`__CONST_RING_SIZE` of `ring.h`). Returns 0 if `slot_bytes` is 0 or
/// larger than the space.
pub const fn ring_entries(slot_bytes: usize) -> usize {
    if slot_bytes == 0 {
        return 0;
    }
    let fit = (PAGE_BYTES - RING_HEADER_BYTES) / slot_bytes;
    if fit == 0 { 0 } else { 1 << fit.ilog2() }
}

/// Returns true if `[offset, offset + size)` lies inside one page.
pub(crate) const fn in_page(offset: u16, size: u16) -> bool {
    offset as usize + size as usize <= PAGE_BYTES
}

const _: () = assert!(ring_entries(tx::TX_SLOT_BYTES) == tx::TX_RING_ENTRIES);
const _: () = assert!(ring_entries(rx::RX_SLOT_BYTES) == rx::RX_RING_ENTRIES);
const _: () = assert!(ring_entries(ctrl::CTRL_SLOT_BYTES) == ctrl::CTRL_RING_ENTRIES);

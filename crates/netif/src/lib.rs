//! The Xen netif wire, without any I/O.
//!
//! Everything here is a pure function or a pure state machine over owned
//! values. A caller copies a slot out of the shared ring once, as
//! little-endian 32-bit words, and hands over that copy: what a peer can still
//! change is never looked at, so a double fetch (XSA-155) cannot be written
//! against these types.
//!
//! Who lives here:
//!
//! - [`tx`], [`rx`], [`extra`] and [`ctrl`]: one slot to one value, and back;
//! - [`slots`]: chains of slots to packets, and back;
//! - [`headers`]: the headers of a frame, down to TCP and UDP;
//! - [`flow`]: which queue a frame goes by; [`toeplitz`] and [`hashing`]: what a
//!   frontend may ask for instead;
//! - [`keys`]: the names of the xenstore nodes;
//! - [`state`] and [`xenbus`]: the handshake of the two ends.
//!
//! The source of each layout is Xen's public header `xen/io/netif.h`; the
//! integration test `header` compiles a C program against it and compares.
//! Transmit (TX) and receive (RX) are named as the guest sees them.
//!
//! No function of this crate panics on any input.
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

/// Bytes of a page on the wire, whatever the machine's own page size is.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of a ring page that come before its first slot (`ring.h`).
pub const RING_HEADER_BYTES: usize = 64;

/// Bytes of an Ethernet header; a shorter packet is none.
pub const ETH_HEADER_BYTES: u16 = 14;

/// Slots of `slot_bytes` in one ring page: the largest power of two that fits
/// behind the header (`__CONST_RING_SIZE` of `ring.h`). 0 for a slot that is
/// empty or does not fit.
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

//! TCP and UDP in user space over one vif: [smoltcp] on a queue of the frontend.
//!
//! [`Stack`] is what a guest without a kernel links: it runs the queue of a
//! [`Vif`](grantway_frontend::Vif), and has the sockets. Nothing here blocks, starts a
//! thread or reads a clock: the caller polls, arms, and waits on the descriptor.
//!
//! [`Device`] is smoltcp's device over a [`Link`], and does what a network card does
//! for a kernel, by the backend where that offers it, and in software where not:
//!
//! - Checksums of TCP and UDP are left out of what is sent (`csum_blank`), and looked at
//!   only in received frames for which nobody vouches (`outgoing`, `incoming`).
//! - TCP sends up to 64 KiB at once, which the backend cuts where somebody needs it to
//!   (GSO, IPv4 and IPv6), and takes such frames whole. smoltcp makes segments as long as
//!   the other end says that it takes; so each SYN that comes in is made to say more, and
//!   what it said is what the large frame is later cut into (`sizes`).
//!
//! Frames are copied out of the backend's reach once, before anybody reads them; only
//! those copies are changed and judged. A frame that finds the ring full waits in order,
//! and no other is made meanwhile: nothing is dropped for want of room.
#![forbid(unsafe_code)]

mod device;
mod incoming;
mod link;
mod outgoing;
mod sizes;
mod stack;
mod stats;

pub use device::{Device, RxToken, TxToken};
pub use link::Link;
pub use smoltcp;
pub use stack::{Address, Stack, StackConfig, tcp_socket};
pub use stats::DeviceStats;

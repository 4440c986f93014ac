//! TCP and UDP in user space over one vif: [smoltcp] on a queue of the frontend.
//!
//! [`Stack`] is the part that a guest without a kernel links. It runs the queue of a
//! [`Vif`](grantway_frontend::Vif), and has the sockets. Nothing here blocks, starts a thread or
//! reads a clock: the caller polls, arms, and waits on the descriptor.
//!
//! [`Device`] is smoltcp's device over a [`Link`]. It does the work that a network card does for a
//! kernel: by the backend if that offers it, and in software if not.
//!
//! - Checksums of TCP and UDP are left out of frames that are sent (`csum_blank`). They are looked
//!   at only in received frames that no one vouches for (`outgoing`, `incoming`).
//! - TCP sends up to 64 KiB at once, and accepts such frames whole. The backend cuts them if a
//!   receiver needs that (GSO, IPv4 and IPv6). smoltcp is told that the device cuts, and its
//!   congestion control counts in segments. Each is as long as the other end accepts (`sizes`).
//! - Losses are found by what acknowledgements say, where smoltcp would wait for its timer
//!   (`recovery`).
//! - Segments say times (RFC 7323), and acknowledgements name what came behind holes and what came twice
//!   (RFC 2018, RFC 2883). So the other end finds out that it sent again in vain (`options`, `blocks`).
//! - A segment that was sent so long ago that its numbers have come round is known by its time, and only
//!   acknowledged (`clock`).
//!
//! Frames are copied out of the backend's reach once, before anything reads them. Only those copies
//! are changed and judged. smoltcp reads a header's fields several times, so a frame in a page that
//! the backend can still write is never given to it. A frame that finds the ring full waits in order, and no other is made
//! meanwhile: no frame is dropped for want of room.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod announce;
mod blocks;
mod clock;
mod device;
mod dhcp;
mod flows;
mod incoming;
mod line;
mod link;
mod log;
mod options;
mod outgoing;
mod recovery;
mod segment;
mod sizes;
mod stack;
mod stats;

pub use device::{Device, RxToken, TxToken};
pub use dhcp::{Dhcp, Lease};
pub use line::FlowLine;
pub use link::Link;
pub use log::FlowState;
pub use smoltcp;
pub use stack::{Address, ConfigError, Stack, StackConfig, tcp_socket};
pub use stats::DeviceStats;

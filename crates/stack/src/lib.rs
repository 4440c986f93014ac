//! TCP and UDP in user space over one vif: [smoltcp] on a queue of the frontend.
//!
//! # When to use it
//!
//! - To give a unikernel TCP and UDP.
//! - To give a program on Linux an address of its own on a vif, without the kernel's network stack.
//!
//! # Example
//!
//! A server that sends back the bytes that it receives. `unikernel/` has a whole guest.
//!
//! ```
//! use grantway_frontend::VifError;
//! use grantway_stack::smoltcp::iface::SocketHandle;
//! use grantway_stack::smoltcp::socket::tcp;
//! use grantway_stack::smoltcp::time::{Duration, Instant};
//! use grantway_stack::smoltcp::wire::{IpAddress, IpCidr};
//! use grantway_stack::{Stack, StackConfig, tcp_socket};
//!
//! /// Returns true if anything moved. Otherwise the caller arms, and waits.
//! fn turn(stack: &mut Stack, server: SocketHandle, now: Instant) -> Result<bool, VifError> {
//!     let came = stack.receive(now)?;
//!     let socket = stack.sockets().get_mut::<tcp::Socket>(server);
//!     let room = socket.send_capacity() - socket.send_queue();
//!     let mut bytes = [0; 4096];
//!     if let Ok(len) = socket.recv_slice(&mut bytes[..room.min(4096)]) {
//!         let _ = socket.send_slice(&bytes[..len]);
//!     }
//!     Ok(stack.send(now)? | came)
//! }
//!
//! let config = StackConfig {
//!     addresses: vec![IpCidr::new(IpAddress::v4(192, 0, 2, 2), 24)],
//!     ..StackConfig::new(0x5eed) // a random number in a real program
//! };
//! let mut stack = Stack::new(&config, Instant::ZERO)?;
//! let room = tcp::SocketBuffer::new(vec![0; 65_536]);
//! let server = stack.sockets().add(tcp_socket(65_536, room, Duration::from_secs(60)));
//! stack.sockets().get_mut::<tcp::Socket>(server).listen(7)?;
//!
//! // With a platform, Vif::open_with(platform, 0, wishes, stack) connects the stack. Without a vif,
//! // nothing is sent or received.
//! assert!(!turn(&mut stack, server, Instant::ZERO)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Types
//!
//! | Type | Content |
//! |---|---|
//! | [`Stack`], [`StackConfig`] | sockets, an interface, and the queue of a vif: the vif's [`Runner`](grantway_frontend::Runner) |
//! | [`tcp_socket`] | a TCP socket whose window and timers fit a stack |
//! | [`Device`] | smoltcp's device over a [`Link`], for an interface of your own |
//! | [`Dhcp`], [`Lease`] | a DHCP client |
//! | [`FlowLine`], [`FlowState`] | the log of TCP flows |
//! | [`smoltcp`] | the version of smoltcp that this crate uses |
//!
//! # How it works
//!
//! [`Device`] does the work of a network card. The backend does the work if it offers that, and the
//! device does it in software if not.
//!
//! - TCP and UDP frames are sent with blank checksums. The checksum of a received frame is checked
//!   only if the backend did not mark the frame as checked (`outgoing`, `incoming`).
//! - TCP sends frames of up to 64 KiB, and accepts such frames whole. The backend cuts them for
//!   receivers that need it (GSO over IPv4 and IPv6). smoltcp's congestion control counts segments,
//!   and each has the length that the other end accepts (`sizes`).
//! - Losses are found by acknowledgements in cases in which smoltcp would wait for its timer
//!   (`recovery`).
//! - Segments have timestamps (RFC 7323). Acknowledgements name data that came behind a gap, and
//!   data that came twice (RFC 2018, RFC 2883). So the sender learns that it sent again in vain
//!   (`options`, `blocks`).
//! - A very late segment, whose sequence numbers are in use again, is recognized by its timestamp.
//!   It is only acknowledged (`clock`).
//!
//! # Guarantees and limits
//!
//! - Each frame is copied out of the backend's reach once, before it is read. Only the copy is
//!   judged. smoltcp reads fields of a header more than once, so it never gets a page that the
//!   backend can write.
//! - No frame is dropped because the ring is full. It waits, and no other frame is made meanwhile.
//! - No call waits, starts a thread or reads a clock. The caller passes the time.
//! - A stack uses one queue of its vif, and has up to eight addresses.
//! - `no_std` with `alloc`. The feature `std` adds descriptors, and CUBIC as congestion control.
//!
//! # What it is not
//!
//! - It is not a sockets API for threads: the caller polls.
//! - It is not a new TCP. smoltcp's sockets are the API, so a new version of smoltcp may break it.
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

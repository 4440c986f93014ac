//! Headers of iperf 2, and the datagram counts of its server.
//!
//! # When to use it
//!
//! To write a client or a server that works with iperf 2, on an operating system or without one.
//! The command `grantway iperf` and Grantway's unikernel use it.
//!
//! # Example
//!
//! A server counts the datagrams of a client, and answers the last one with a report.
//!
//! ```
//! use core::time::Duration;
//! use grantway_iperf2::{Datagram, Report, Tally};
//!
//! let mut tally = Tally::new(Duration::ZERO);
//! for (id, ms) in [(1, 0), (2, 10), (-4, 30)] {
//!     // The client sends this. The number of the last datagram is negative.
//!     let sent = Duration::from_millis(ms);
//!     let bytes = Datagram { id, sent }.bytes();
//!
//!     // The server counts it: 100 bytes that came after 1 ms.
//!     let datagram = Datagram::parse(&bytes).expect("a header");
//!     let now = sent + Duration::from_millis(1);
//!     tally.take(datagram, 100, now, now);
//! }
//! let report = Report::parse(&tally.report().bytes()).expect("a report");
//! assert_eq!((report.datagrams, report.lost, report.bytes), (4, 1, 300));
//! ```
//!
//! # Types
//!
//! | Type | Content |
//! |---|---|
//! | [`Test`] | a client's description of its test, over TCP and over UDP |
//! | [`Datagram`] | the header of each datagram |
//! | [`Tally`] | the server's counts of one sender |
//! | [`Report`] | the server's answer to the last datagram |
//!
//! # Guarantees and limits
//!
//! - No function panics on received bytes.
//! - `no_std`. It allocates no memory and has no clock: the caller passes the time.
//! - The bytes are those of iperf 2.1.8, from recorded tests.
//!
//! # What it is not
//!
//! - It has no sockets. The caller sends and receives.
//! - It does not know iperf 3, which has another protocol.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod datagrams;
mod header;

pub use datagrams::Tally;
pub use header::{Amount, DATAGRAM_LEN, Datagram, REPORT_LEN, Report, TEST_LEN, Test};

/// The port of iperf 2's servers.
pub const PORT: u16 = 5001;

//! iperf 2's headers, and its server's counts of datagrams: for the command `grantway iperf`, and for
//! a guest without an operating system. There are no sockets here.
//!
//! - [`Test`] is a client's description of its test, by TCP and by UDP.
//! - [`Datagram`] begins each datagram, and [`Tally`] counts them.
//! - [`Report`] is the server's answer to the last datagram.
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

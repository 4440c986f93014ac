//! Analysis of TCP flows: the behaviour of each, and the causes of its stalls.
//!
//! [`Flows`] takes the packets of a capture or of a live node, one after the other. For each flow
//! it keeps round trips, bytes under way, windows, retransmissions, and [stalls](Stall) with their
//! [`Cause`]. Time comes with the packets: there is no clock here, and no file. Memory is bounded
//! ([`Limits`]) and nothing panics, whatever packets come.
//!
//! Modules:
//!
//! - [`segment`]: a frame read as a TCP segment;
//! - `direction`: data of one sender, with `unacked` (round trips) and `holes` (data that came out
//!   of order); `flow`: two directions; [`flows`]: all flows;
//! - [`stall`]: times without data; [`rings`]: what only a backend knows of them;
//! - [`series`]: values over time; [`report`]: the result;
//! - [`stack`]: the account that a stack in user space keeps of its own flows.
//!
//! A live node gives a frame's time, first bytes, length and ring. Its backend gives the events of
//! rings.
//!
//! ```
//! use grantway_flows::{Cause, Event, Flows, Limits, Packet, Ring, Way};
//!
//! let mut flows = Flows::new(Limits::default());
//! let ring = Ring { interface: 3, queue: 0, way: Some(Way::Transmit) };
//! # let head = [0; 128];
//! flows.packet(&Packet { time: 1_000, head: &head, length: 1514, point: 0, ring });
//! flows.event(2_000, ring, Event::RingFull);
//! flows.event(9_000_000, ring, Event::RingDrained);
//! flows.event(400_000_000, ring, Event::Woken);
//! // Advance the time before a report: a stall that goes on lasts until now.
//! flows.advance(500_000_000);
//! let late = |stall: &&grantway_flows::report::StallReport| stall.cause == Cause::WakeUp;
//! let report = flows.report();
//! println!("{}", report.flows.iter().flat_map(|flow| &flow.stalls).filter(late).count());
//! ```
//!
//! The point at which packets were seen limits the causes. At the sender or on a vif, all causes
//! can be found. At the receiver, data that was lost before is not known to have been sent.
#![forbid(unsafe_code)]

pub mod count;
mod direction;
mod flow;
pub mod flows;
mod holes;
mod limits;
pub mod report;
pub mod rings;
pub mod segment;
pub mod series;
pub mod stack;
pub mod stall;
mod unacked;

pub use flows::{Flows, NAMES_MAX, Packet};
pub use limits::Limits;
pub use report::{FlowReport, Report};
pub use rings::{Event, Ring, Way};
pub use stack::StackLog;
pub use stall::{Cause, Stall};

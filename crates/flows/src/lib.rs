//! Analysis of TCP flows: round trips, retransmissions, windows, and stalls with their causes.
//!
//! # When to use it
//!
//! - To find the reason why a TCP connection is slow, from the packets of a capture.
//! - To follow the flows of a live node, with the ring events of its backend.
//!
//! # Example
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
//! # Modules
//!
//! | Module | Content |
//! |---|---|
//! | [`flows`] | all flows: takes packets and events, makes reports |
//! | [`segment`] | a frame, read as a TCP segment |
//! | [`stall`] | times without data, and their causes |
//! | [`rings`] | states of rings, which only a backend knows |
//! | [`series`] | values over time, in bounded memory |
//! | [`report`], [`count`] | the result |
//! | [`stack`] | the log that a TCP stack in user space keeps of its own flows |
//!
//! [`Flows`] takes the packets one after the other. A live node gives the time, the first bytes,
//! the length and the ring of each frame. Its backend gives the events of the rings. If segments of
//! one time were merged to one packet, [`Flows::merged`] counts them as if each had come by itself.
//!
//! # Guarantees and limits
//!
//! - Memory is bounded ([`Limits`]), and no packet makes it panic.
//! - It has no clock. Time comes with the packets, so results repeat.
//! - The point at which packets were seen limits the causes. At the sender or on a vif, all causes
//!   can be found. At the receiver, data that was lost on its way is not known to have been sent.
//!
//! # What it is not
//!
//! - It captures nothing, and it reads no capture files: the command `grantway flows` does both.
//! - It analyses TCP only. Other packets are counted.
#![forbid(unsafe_code)]

pub mod count;
mod direction;
mod flow;
pub mod flows;
mod holes;
mod limits;
mod merged;
pub mod report;
pub mod rings;
pub mod segment;
pub mod series;
pub mod stack;
pub mod stall;
mod unacked;

pub use flows::{Flows, NAMES_MAX, Packet};
pub use limits::Limits;
pub use merged::Merged;
pub use report::{FlowReport, Report};
pub use rings::{Event, Ring, Way};
pub use stack::StackLog;
pub use stall::{Cause, Stall};

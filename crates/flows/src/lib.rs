//! What each TCP flow did, and why it stood still.
//!
//! [`Flows`] takes packets, of a capture or of a live node, one after the other, and
//! keeps for each flow what it takes to tell: round trips, bytes under way, windows,
//! what was sent again, and [stalls](Stall) by their [`Cause`]. Time comes in with the
//! packets; there is no clock here and no file. Whatever comes, memory is bounded
//! ([`Limits`]) and nothing panics.
//!
//! Who lives here:
//!
//! - [`segment`]: a frame read as a TCP segment;
//! - `direction`: data of one sender, with `unacked` (round trips) and `holes` (what
//!   came out of order); `flow`: two of them; [`flows`]: all flows;
//! - [`stall`]: times for which nothing came; [`rings`]: what only a backend knows of
//!   them;
//! - [`series`]: values over time; [`report`]: what there is to say.
//!
//! A live node gives what it has of each frame: when, the first bytes, the length, and
//! which ring it crosses; and what its backend knows of rings.
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
//! // Before anybody asks: what goes on, goes on until now.
//! flows.advance(500_000_000);
//! let late = |stall: &&grantway_flows::report::StallReport| stall.cause == Cause::WakeUp;
//! let report = flows.report();
//! println!("{}", report.flows.iter().flat_map(|flow| &flow.stalls).filter(late).count());
//! ```
//!
//! A stall is told by where the packets were seen. At the sender, or on a vif, all
//! causes can be told; at the receiver, data that was lost before is not known to have
//! been sent.
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
pub mod stall;
mod unacked;

pub use flows::{Flows, NAMES_MAX, Packet};
pub use limits::Limits;
pub use report::{FlowReport, Report};
pub use rings::{Event, Ring, Way};
pub use stall::{Cause, Stall};

//! A packet processor: batches of frames pass through a graph of nodes, such as a bridge, a
//! firewall, or a rate limit.
//!
//! # When to use it
//!
//! - To decide for many frames at once where each one goes.
//! - To extend Grantway's backend by a node of your own ([`Node`], or [`node::Single`] for one
//!   frame at a time).
//!
//! # Example
//!
//! A node that drops short frames, for a reason of its own. [`Graph::run`] passes the whole batch to
//! it in one call.
//!
//! ```
//! use grantway_vector::node::{Context, Node, Out};
//! use grantway_vector::{Batch, Frame, Graph, PortId, Reason, Set, Verdict};
//!
//! struct LongOnly {
//!     short: Reason,
//! }
//!
//! impl Node for LongOnly {
//!     fn name(&self) -> &'static str {
//!         "long-only"
//!     }
//!     fn process(&mut self, list: &Set, context: &mut Context<'_>, _: &mut Out) {
//!         for number in list.iter() {
//!             match context.batch.frame(number).len {
//!                 0..60 => context.drop(number, self.short),
//!                 _ => context.batch.decide(number, Verdict::To(PortId(1))),
//!             }
//!         }
//!     }
//! }
//!
//! let short = Reason::own("below-60-bytes")?;
//! let mut graph = Graph::new(|| 0);
//! graph.add(LongOnly { short }, &[])?;
//! let mut arena = vec![0; 2048];
//! let mut batch = Batch::new();
//! batch.push(Frame { at: 0, head: 42, len: 42, ..Frame::default() }).expect("room");
//! batch.push(Frame { at: 42, head: 1514, len: 1514, ..Frame::default() }).expect("room");
//! graph.run(&mut batch, &mut arena, 0);
//! assert_eq!(batch.verdict(0), Verdict::Drop(short));
//! assert_eq!(batch.verdict(1), Verdict::To(PortId(1)));
//! assert_eq!(graph.drops().iter().next(), Some((short, 1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! A [`Batch`] of up to 256 frames passes through a [`Graph`]. Each [`Node`] processes a whole list
//! of frames before the next node begins. If frames take different ways, the list is split. It is
//! joined again in the original order. A [`Frame`] is a handle: its first bytes are private, and
//! the rest is where the buffer policy has it. Nodes never read the rest. After the run, the batch
//! has a [`Verdict`] for each frame. The caller that filled the batch carries the verdicts out.
//!
//! # Nodes of your own in a backend
//!
//! [`path::Nodes::Own`] gives a backend graphs of yours: [`path::bridge`] or [`path::graph`], with your
//! nodes in front ([`Graph::entry`]). Their drops are counted for the vif as drops by rules. The
//! reasons ([`Reason::own`]) stand beside those of this crate in [`Graph::drops`], in the backend's
//! report, and in what the command makes of it: `show drops`, `top` and the metrics. An own reason
//! costs a frame what any other reason costs.
//!
//! # Modules
//!
//! | Module | Content |
//! |---|---|
//! | [`batch`], [`set`], [`headers`] | frames, lists of frames, and headers of frames |
//! | [`node`], [`graph`], [`reason`] | the interface of nodes, their order, and reasons to drop a frame |
//! | [`nodes`], [`path`] | the nodes of the backend, and its graphs |
//! | [`rules`] | rules for the nodes, and their file |
//! | [`report`] | counters of the nodes |
//! | [`deliver`], [`receivers`] | delivery by verdicts, and the frames that each port accepts |
//! | [`merger`] | segments and datagrams merged for a port that accepts large frames |
//!
//! # Guarantees and limits
//!
//! - No input makes it panic. No frame makes it allocate memory.
//! - A node reads private bytes only, so no sender can change a byte after its validation.
//! - The result does not depend on how frames were cut into lists.
//! - The work for a batch is at most the number of nodes times the number of frames.
//!
//! # What it is not
//!
//! - It moves no bytes and owns no ports: `grantway-ports` and `grantway-backend` do.
//! - It is not a programmable classifier such as eBPF: a new node is Rust code.
#![forbid(unsafe_code)]

pub mod batch;
mod bucket;
pub mod deliver;
pub mod graph;
pub mod headers;
pub mod merger;
mod news;
pub mod node;
pub mod nodes;
pub mod path;
mod prefix;
pub mod reason;
pub mod receivers;
pub mod report;
pub mod rules;
mod secret;
pub mod set;
mod wire;

pub use batch::{Batch, Frame, Nanos, PortId, Verdict};
pub use bucket::{Buckets, Rate};
pub use graph::Graph;
pub use merger::Merger;
pub use news::News;
pub use node::Node;
pub use prefix::Prefix;
pub use reason::Reason;
pub use rules::Rules;
pub use secret::Secret;
pub use set::{BATCH_MAX, Set};

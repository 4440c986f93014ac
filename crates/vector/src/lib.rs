//! Many packets at each stage: batches of frames through a graph of nodes.
//!
//! A [`Batch`] of up to 256 frames goes through a [`Graph`]. Each [`Node`] takes its step for a
//! whole list before the next begins. If frames go different ways, the list splits, and comes
//! together again in order. A frame is a handle: its first bytes are private, and the rest is where
//! the buffer policy has it. No node looks at the rest. Afterwards the batch has a verdict for each
//! frame, and the caller that filled the batch carries it out.
//!
//! The modules are:
//!
//! - [`batch`], [`set`], [`headers`]: frames, lists of them, and their headers;
//! - [`node`], [`graph`], [`reason`]: steps, their order, and reasons to drop a frame;
//! - [`nodes`]: the steps; [`path`]: the graphs that a backend has;
//! - [`rules`]: the rules of the nodes, and their file; [`report`]: the counters of the nodes;
//! - [`deliver`]: delivery by verdicts, with frames cut and finished if a receiver needs that;
//!   [`receivers`]: the frames that each port accepts as they are; [`merger`]: segments and
//!   datagrams merged for a port that accepts large frames.
//!
//! No input makes any of this panic, and no frame makes it allocate.
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

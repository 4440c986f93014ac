//! Many packets at each stage: batches of frames through a graph of nodes.
//!
//! A [`Batch`] of up to 256 frames goes through a [`Graph`]; each [`Node`] takes its
//! step for a whole list before the next begins. Where frames go different ways the
//! list splits, and comes together again in order. A frame is a handle: its first
//! bytes are private, the rest is wherever the buffer policy has it, and no node
//! looks there. What becomes of each frame stands in the batch afterwards, and
//! whoever filled it carries that out.
//!
//! Who lives here:
//!
//! - [`batch`], [`set`], [`headers`]: frames, lists of them, what was read of them;
//! - [`node`], [`graph`], [`reason`]: steps, their order, why a frame ends;
//! - [`nodes`]: the steps; [`path`]: all of them, as a backend has them;
//! - [`rules`]: what they go by, and the file that it is read from; [`report`]: what
//!   they know;
//! - [`deliver`]: verdicts carried out, frames cut and finished for who needs that;
//!   [`receivers`]: who does not; [`merger`]: segments merged for a port that takes
//!   large frames.
//!
//! No input makes any of this panic, and no frame makes it allocate.
#![forbid(unsafe_code)]

pub mod batch;
mod bucket;
pub mod deliver;
pub mod graph;
pub mod headers;
pub mod merger;
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
pub use bucket::Rate;
pub use graph::Graph;
pub use merger::Merger;
pub use node::Node;
pub use prefix::Prefix;
pub use reason::Reason;
pub use rules::Rules;
pub use secret::Secret;
pub use set::{BATCH_MAX, Set};

//! News that a graph's nodes have for their twins: the same nodes in the graphs of other workers.
//!
//! Each worker has a graph of its own, so that nothing in it is locked. A frame teaches the graph
//! of its sender's worker only: where a station is, and that a connection began. The twins hear of
//! it before the frame reaches its receiver, so that they know it when the receiver answers.

use crate::batch::PortId;
use crate::nodes::firewall::connection::Change;

/// One fact that a frame taught.
#[derive(Debug, Clone, Copy)]
pub struct News(pub(crate) Fact);

#[derive(Debug, Clone, Copy)]
pub(crate) enum Fact {
    /// A station was heard at a port.
    Station(u64, PortId),
    /// A connection began, or is in another state, or lasts longer.
    Connection(Change),
}

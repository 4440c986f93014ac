//! Filters, and the treatment of frames that match a filter.

use super::key::Pattern;
use crate::batch::PortId;
use crate::bucket::Rate;

/// Treatment of a frame that matches a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// The frame goes on.
    Pass,
    /// The frame is dropped.
    Drop,
    /// The frame uses this queue of its receiver.
    Queue(u16),
    /// The frame is copied to the capture, and goes on.
    Mirror,
    /// The frame is dropped if it exceeds the rate.
    Police(Rate),
    /// The frame goes to this port, whatever its destination.
    Redirect(PortId),
}

/// A filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Name of the filter in reports.
    pub name: String,
    /// Pattern that a frame has to match.
    pub pattern: Pattern,
    /// Treatment of a matching frame.
    pub treatment: Treatment,
}

//! Filters, and the treatment of frames that one fits.

use super::key::Pattern;
use crate::batch::PortId;
use crate::bucket::Rate;

/// Treatment of a frame that a filter fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// The frame goes on.
    Pass,
    /// The frame is dropped.
    Drop,
    /// The frame goes by this queue of its receiver.
    Queue(u16),
    /// The frame is copied to the capture, and goes on.
    Mirror,
    /// The frame is dropped if it is beyond a rate.
    Police(Rate),
    /// The frame goes to this port, whatever its destination.
    Redirect(PortId),
}

/// A filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Name of the filter in reports.
    pub name: String,
    /// Pattern that a frame has to fit.
    pub pattern: Pattern,
    /// Treatment of a frame that fits.
    pub treatment: Treatment,
}

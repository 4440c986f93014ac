//! Filters, and the treatment of frames that one fits.

use super::key::Pattern;
use crate::batch::PortId;
use crate::bucket::Rate;

/// What is done with a frame that a filter fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// It goes on.
    Pass,
    /// It is dropped.
    Drop,
    /// It goes by this queue of its receiver.
    Queue(u16),
    /// It is copied to the capture, and goes on.
    Mirror,
    /// It is dropped beyond a rate.
    Police(Rate),
    /// It goes there, whatever its destination.
    Redirect(PortId),
}

/// A filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Its name in reports.
    pub name: String,
    /// What a frame has to be like.
    pub pattern: Pattern,
    /// What is done with it then.
    pub treatment: Treatment,
}

//! The seam between the control ring and a queue's table of staged grants.

use crate::policy::StagingError;
use grantway_netif::ctrl::{GrefEntry, Status};

/// The table of one queue's staged grants, as the control ring reaches it.
///
/// Called on the control thread, never on a worker: whoever implements it hands
/// a new table to the worker that looks grants up, and keeps the packet path free
/// of locks. Dropped when the connection ends, which unmaps whatever is left.
///
/// `index` is that of the request, by which a successor knows whether it was
/// answered: what one did that was not is carried out again, and must find things
/// as the first did.
///
/// A backend without staging has no tables, and answers the three messages with
/// [`Status::NotSupported`]. One that has them has one for each queue.
pub(crate) trait StagedTable: Send {
    /// Most grants that the table can hold.
    fn capacity(&self) -> u32;

    /// Maps a list and keeps it mapped, all of it or nothing. The list is a
    /// private copy of 1 to 512 entries; nothing else of it was judged.
    ///
    /// # Errors
    ///
    /// What the message is to be answered with, nothing staged: a list that is
    /// wrong in itself, more entries than are free, a grant that is staged on any
    /// queue of the vif already, or one that cannot be mapped.
    fn add(&mut self, index: u32, entries: &[GrefEntry]) -> Result<(), Status>;

    /// Unmaps what the list names, 1 to 512 entries. Each comes with
    /// [`Status::InvalidParameter`], and is to be given [`Status::Success`] where
    /// it was unmapped: not where it was never added, and not while a packet in
    /// flight uses it.
    fn del(&mut self, index: u32, entries: &mut [GrefEntry]);

    /// Maps what a killed process had staged, a list of it at a time and not all that could
    /// be; whether there may be more. Before there is none nothing else is asked for.
    fn take_up(&mut self) -> bool {
        false
    }

    /// Pages that were mapped and unmapped since this was asked, or tried to be.
    fn take_work(&mut self) -> usize {
        0
    }

    /// Why a list was refused, for the log: once, the first time.
    fn refusal(&mut self) -> Option<StagingError> {
        None
    }
}

//! The seam between the control ring and a queue's table of staged grants.

use crate::policy::StagingError;
use grantway_netif::ctrl::{GrefEntry, Status};

/// The table of one queue's staged grants, as the control ring reaches it.
///
/// The methods are called on the control thread, never on a worker. An implementation hands a new
/// table to the worker that looks grants up, and keeps the packet path free of locks. The table is
/// dropped when the connection ends, which unmaps all that is left.
///
/// `index` is the index of a request, by which a successor knows if the request was answered. A
/// request that was not answered is carried out again, and must find things as the first time.
///
/// A backend without staging has no tables, and answers the three messages with
/// [`Status::NotSupported`]. A backend with staging has a table for each queue, and so has one
/// without that took over staged pages from it: there the guest can take them back.
pub(crate) trait StagedTable: Send {
    /// Returns the most grants that the table can hold.
    ///
    /// # Errors
    ///
    /// The status of the answer.
    fn capacity(&self) -> Result<u32, Status>;

    /// Maps a list and keeps it mapped, all of it or nothing. The list is a private copy of 1 to
    /// 512 entries; nothing else of it was judged.
    ///
    /// # Errors
    ///
    /// The status of the answer, with nothing staged. The list is wrong in itself, or has more
    /// entries than are free. Or a grant of it is staged on any queue of the vif already, or cannot
    /// be mapped.
    fn add(&mut self, index: u32, entries: &[GrefEntry]) -> Result<(), Status>;

    /// Unmaps the grants that the list names, 1 to 512 entries. Each entry comes with
    /// [`Status::InvalidParameter`], and gets [`Status::Success`] if its grant was unmapped. A
    /// grant that was never added, or that a packet in flight uses, is not unmapped.
    fn del(&mut self, index: u32, entries: &mut [GrefEntry]);

    /// Maps a list that a killed process had staged, but for grants that cannot be mapped. Returns
    /// true if there may be more. Nothing else is asked for before that is false.
    fn take_up(&mut self) -> bool {
        false
    }

    /// Returns the number of pages that were mapped and unmapped, or tried to be, since the last
    /// call.
    fn take_work(&mut self) -> usize {
        0
    }

    /// Returns the reason of the first list that was refused, for the log: once.
    fn refusal(&mut self) -> Option<StagingError> {
        None
    }
}

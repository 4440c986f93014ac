//! Errors on a ring: faults of the peer, and our own.

/// The peer's producer index cannot be true: the peer is broken or hostile,
/// and the vif is to be disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The peer claims more entries than there can be. On a backend: more
    /// requests than the slots not yet owed a response (XSA-39). On a frontend:
    /// more responses than requests are outstanding (XSA-376). An index that
    /// went back behind what was already consumed shows as this, too.
    #[error("the peer's index claims {found} entries where at most {limit} can be")]
    Overflow {
        /// Entries claimed, counted from the last one consumed.
        found: u32,
        /// The most that could be claimed.
        limit: u32,
    },
    /// The peer took back entries that it had already published.
    #[error("the peer's index went back: {found} entries where {known} were published")]
    Retreat {
        /// Entries claimed now, counted from the last one consumed.
        found: u32,
        /// Entries that had been published.
        known: u32,
    },
}

/// No slot is free for another request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("all slots of the ring are taken")]
pub struct Full;

/// A response was pushed for a request that was not consumed yet: our own bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("response at index {index} answers a request that was not consumed")]
pub struct Unconsumed {
    /// Free-running index at which the response would have been written.
    pub index: u32,
}

/// More entries were consumed than the peer is known to have published: our
/// own bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{asked} entries consumed of {known} that were seen")]
pub struct Unseen {
    /// Entries that were to be consumed.
    pub asked: u32,
    /// Entries known to be there.
    pub known: u32,
}

/// Indices given to `attach` lie further apart than the ring is long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("indices are {found} entries apart on a ring of {slots} slots")]
pub struct BadIndices {
    /// Distance between the two indices.
    pub found: u32,
    /// Slots in the ring.
    pub slots: u32,
}

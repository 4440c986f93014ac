//! Errors of a ring: faults of the peer, and faults of the caller.

/// Error for a producer index that no honest peer can have written. The caller must stop using the
/// ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The peer claims more entries than are possible. On a backend: more requests than slots
    /// without an owed response (XSA-39). On a frontend: more responses than outstanding requests
    /// (XSA-376). An index that went back past consumed entries also gives this error.
    #[error("the peer's index claims {found} entries where at most {limit} can be")]
    Overflow {
        /// Entries claimed, counted from the last one consumed.
        found: u32,
        /// Largest number of entries that is possible.
        limit: u32,
    },
    /// The peer's index went back: it withdrew entries that it had published.
    #[error("the peer's index went back: {found} entries where {known} were published")]
    Retreat {
        /// Entries claimed now, counted from the last one consumed.
        found: u32,
        /// Entries published before.
        known: u32,
    },
}

/// Error of a frontend that pushes a request while no slot is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("all slots of the ring are taken")]
pub struct Full;

/// Error of a backend that pushes a response to a request that it has not consumed: a bug of the
/// caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("response at index {index} answers a request that was not consumed")]
pub struct Unconsumed {
    /// Free-running index at which the response would have been written.
    pub index: u32,
}

/// Error of an end that consumes more entries than the peer is known to have published: a bug of
/// the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{asked} entries consumed of {known} that were seen")]
pub struct Unseen {
    /// Entries that were to be consumed.
    pub asked: u32,
    /// Entries that are known to be published.
    pub known: u32,
}

/// Error of `attach` for two indices whose distance is greater than the number of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("indices are {found} entries apart on a ring of {slots} slots")]
pub struct BadIndices {
    /// Distance between the two indices.
    pub found: u32,
    /// Slots in the ring.
    pub slots: u32,
}

//! A connection, and a change of it that other tables have to know.

use crate::batch::{Nanos, PortId};
use crate::headers::Network;

/// Time that a connection is remembered which is not answered.
pub(super) const BEGUN: Nanos = 60_000_000_000;

/// Both ends of a connection, the same for either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub ends: [(u128, u16); 2],
    pub protocol: u8,
    pub network: Network,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Connection {
    /// True if the lower end began the connection.
    pub by_lower: bool,
    pub answered: bool,
    pub ending: bool,
    pub port: PortId,
    pub until: Nanos,
    /// The value of `until` that the last change had.
    pub told: Nanos,
}

impl Connection {
    pub fn begun(by_lower: bool, port: PortId, now: Nanos) -> Self {
        let until = now.saturating_add(BEGUN);
        Self { by_lower, answered: false, ending: false, port, until, told: until }
    }
}

/// A change of a connection, for the tables of other workers. There it lasts a quarter longer: it
/// may be used for so long before they are told again.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    pub(super) key: Key,
    pub(super) connection: Connection,
    /// True if the connection began with this change.
    pub(super) begins: bool,
}

impl Change {
    pub(super) fn of(key: Key, known: Connection, (begins, time): (bool, Nanos)) -> Self {
        let until = known.until.saturating_add(time / 4);
        Self { key, connection: Connection { until, ..known }, begins }
    }
}

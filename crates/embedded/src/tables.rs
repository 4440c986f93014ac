//! Everything that the host holds at one moment, for tests and for `grantway list`.

use serde::{Deserialize, Serialize};

/// Everything that the host holds.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tables {
    /// Process id of the host.
    pub host_pid: u32,
    /// Control connections, including that of the caller.
    pub connections: u32,
    /// Store connections.
    pub store_connections: u32,
    /// Sets of event channels.
    pub event_sets: u32,
    /// Domains, by number.
    pub domains: Vec<DomainTable>,
}

impl Tables {
    /// Returns the domain of that number.
    #[must_use]
    pub fn domain(&self, domid: u16) -> Option<&DomainTable> {
        self.domains.iter().find(|domain| domain.domid == domid)
    }
}

/// Everything that the host holds of one domain.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DomainTable {
    /// The domain's number.
    pub domid: u16,
    /// Its name.
    pub name: String,
    /// The process that holds its memory and its grant table, while it runs.
    pub pid: Option<u32>,
    /// Number of its present boot, counted over all domains of the host (0 while it does not run).
    pub boot: u32,
    /// Other processes of the domain (a backend, a toolstack).
    pub services: Vec<u32>,
    /// Ports without a peer.
    pub ports_unbound: u32,
    /// Ports with a peer.
    pub ports_bound: u32,
    /// Valid grants.
    pub grants: u32,
    /// Grants that a peer holds (`reading` or `writing` set).
    pub grants_held: u32,
    /// Processes that may map and copy its grants: domain and process id.
    pub leases: Vec<(u16, u32)>,
    /// Its store connections; those of domain 0 include the ones through the socket file.
    pub store_connections: u32,
    /// Store nodes that it owns.
    pub store_nodes: u32,
    /// Store watches that it has set.
    pub store_watches: u32,
    /// Store transactions that it has under way.
    pub store_transactions: u32,
}

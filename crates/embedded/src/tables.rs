//! State of a host at one moment, for tests and for `grantway list`.

use serde::{Deserialize, Serialize};

/// State of a host at one moment.
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

/// State of one domain at a host.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DomainTable {
    /// Number of the domain.
    pub domid: u16,
    /// Name of the domain.
    pub name: String,
    /// Process that has the memory and the grant table of the domain; `None` while the domain does
    /// not run.
    pub pid: Option<u32>,
    /// Number of the present boot, counted over all domains of the host; 0 while the domain does
    /// not run.
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
    /// Processes that may map and copy grants of the domain: their domains and process ids.
    pub leases: Vec<(u16, u32)>,
    /// Store connections of the domain. Those of domain 0 include connections through the socket
    /// file.
    pub store_connections: u32,
    /// Store nodes that the domain owns.
    pub store_nodes: u32,
    /// Store watches that the domain has set.
    pub store_watches: u32,
    /// Open store transactions of the domain.
    pub store_transactions: u32,
}

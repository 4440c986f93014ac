//! Quotas of the store, and each domain's usage.

use grantway_hypervisor::DomId;
use std::collections::BTreeMap;

/// Limits of an unprivileged domain; the defaults are xenstored's. Domain 0 has no quotas, except
/// for the depth.
///
/// The wire has no `EQUOTA`, and a guest's driver takes an errno that it does not know for
/// `EINVAL`. So the refusals are those of xenstored: `E2BIG` for one watch too many, `ENOSPC` for
/// all else, and `EINVAL` for a path that is too deep or too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    /// Nodes that a domain owns.
    pub nodes: usize,
    /// Bytes of a node's value.
    pub node_size: usize,
    /// Watches of a domain, over all its connections.
    pub watches: usize,
    /// Transactions of a domain that are under way at once.
    pub transactions: usize,
    /// Nodes that one transaction may look at or change.
    pub transaction_nodes: usize,
    /// Entries of a node's permissions.
    pub permissions: usize,
    /// Names in a path. This quota is our own: xenstored has only the path's length. At most
    /// [`Quotas::MAX_DEPTH`] takes effect, for all domains.
    pub depth: usize,
}

impl Quotas {
    /// Most names in any path.
    pub const MAX_DEPTH: usize = 128;
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            nodes: 1000,
            node_size: 2048,
            watches: 128,
            transactions: 10,
            transaction_nodes: 1024,
            permissions: 5,
            depth: 64,
        }
    }
}

/// Present usage of a domain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Nodes that the domain owns.
    pub nodes: usize,
    /// Watches that the domain has set.
    pub watches: usize,
    /// Transactions of the domain that are open.
    pub transactions: usize,
}

/// The usage of every domain that uses anything.
#[derive(Debug, Default)]
pub(super) struct Ledger(BTreeMap<DomId, Usage>);

impl Ledger {
    pub(super) fn of(&self, domain: DomId) -> Usage {
        self.0.get(&domain).copied().unwrap_or_default()
    }

    pub(super) fn change(&mut self, domain: DomId, change: impl FnOnce(&mut Usage)) {
        let usage = self.0.entry(domain).or_default();
        change(usage);
        if *usage == Usage::default() {
            self.0.remove(&domain);
        }
    }

    /// Counts nodes up or down.
    pub(super) fn nodes(&mut self, domain: DomId, delta: isize) {
        self.change(domain, |u| u.nodes = u.nodes.saturating_add_signed(delta));
    }
}

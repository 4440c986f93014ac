//! Reads and changes that become the store's all at once, or not at all.
//!
//! Every request outside a transaction is one of its own, which cannot lose.

use super::tree::{Node, lookup, lookup_mut, put, take};
use grantway_hypervisor::{DomId, StoreErrno};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Changes of a path.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Touch {
    /// True if the path's watches fire. They do not for the parents that a write makes.
    pub(super) fires: bool,
    /// True if the path was removed with all below it; it may be there again.
    pub(super) replaced: bool,
}

/// Knowledge of a path, beside its node's, that must hold still at the end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    /// True if the names of its children were looked at.
    pub(super) children: bool,
    /// True if all below it counts.
    pub(super) subtree: bool,
}

/// A transaction under way.
#[derive(Debug)]
pub(super) struct Transaction {
    /// The store when it began.
    pub(super) base: Arc<Node>,
    /// The store as it would be.
    pub(super) root: Arc<Node>,
    pub(super) touched: BTreeMap<String, Touch>,
    /// Paths that were looked at, there or not. Value, permissions and existence of each always
    /// count. `None` if nobody can come between.
    pub(super) seen: Option<BTreeMap<String, Seen>>,
    /// Nodes made less nodes removed, by owner.
    pub(super) nodes: BTreeMap<DomId, isize>,
}

/// Changes of a transaction, for the watches.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) old: Arc<Node>,
    pub(super) new: Arc<Node>,
    pub(super) touched: BTreeMap<String, Touch>,
}

impl Transaction {
    /// Begins a transaction that a client ends.
    pub(super) fn begin(root: &Arc<Node>) -> Self {
        Self { seen: Some(BTreeMap::new()), ..Self::at_once(root) }
    }

    /// Begins a transaction that ends before anybody else has a turn.
    pub(super) fn at_once(root: &Arc<Node>) -> Self {
        Self {
            base: Arc::clone(root),
            root: Arc::clone(root),
            touched: BTreeMap::new(),
            seen: None,
            nodes: BTreeMap::new(),
        }
    }

    /// Returns the store with this transaction's changes; `current` is the store without.
    ///
    /// A transaction that changed nothing never loses: all that it read was true together, when it
    /// began. Otherwise the error is `EAGAIN` if a node that was looked at or changed is not the
    /// one it was then.
    pub(super) fn onto(
        &self,
        current: &Arc<Node>,
        clock: &mut u64,
    ) -> Result<Arc<Node>, StoreErrno> {
        if self.touched.is_empty() {
            return Ok(Arc::clone(current));
        }
        if Arc::ptr_eq(&self.base, current) {
            return Ok(Arc::clone(&self.root));
        }
        let mut seen = self.seen.iter().flatten();
        if seen.any(|(path, seen)| self.is_stale(current, path, *seen)) {
            return Err(StoreErrno::Eagain);
        }
        let mut new = Arc::clone(current);
        // Parents come before their children in this order.
        for (path, touch) in &self.touched {
            *clock += 1;
            let mine = lookup(&self.root, path);
            let done = match (mine, lookup_mut(&mut new, path)) {
                (Some(mine), _) if touch.replaced => put(&mut new, path, Arc::clone(mine), *clock),
                (None, Some(_)) if touch.replaced => take(&mut new, path, *clock).is_some(),
                // The node went with something above it, or was never there.
                (None, _) => true,
                (Some(mine), Some(there)) => {
                    there.value = Arc::clone(&mine.value);
                    there.permissions = Arc::clone(&mine.permissions);
                    there.generation = mine.generation;
                    true
                }
                (Some(mine), None) => put(&mut new, path, Arc::new(mine.alone()), *clock),
            };
            if !done {
                return Err(StoreErrno::Eagain);
            }
        }
        Ok(new)
    }

    fn is_stale(&self, current: &Arc<Node>, path: &str, seen: Seen) -> bool {
        match (lookup(&self.base, path), lookup(current, path)) {
            (None, None) => false,
            (Some(then), Some(now)) => {
                then.generation != now.generation
                    || (seen.children && then.children_generation != now.children_generation)
                    || (seen.subtree && !Arc::ptr_eq(then, now))
            }
            _ => true,
        }
    }
}

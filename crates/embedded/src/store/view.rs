//! Operations on nodes, as one domain may do them in one transaction.
//!
//! Each checks everything before it changes anything, so an operation that fails has changed
//! nothing.

use super::access::{Want, may};
use super::quota::{Ledger, Quotas};
use super::transaction::{Seen, Transaction};
use super::tree::{Node, below, lookup, lookup_mut, names, nearest, parent, put, take, walk};
use grantway_hypervisor::{DomId, Permission, StoreErrno};
use std::sync::Arc;

/// A transaction in the hands of a domain.
pub(super) struct View<'a> {
    pub(super) transaction: &'a mut Transaction,
    pub(super) caller: DomId,
    pub(super) quotas: &'a Quotas,
    pub(super) ledger: &'a Ledger,
    pub(super) clock: &'a mut u64,
}

impl View<'_> {
    pub(super) fn read(&mut self, path: &str) -> Result<Arc<[u8]>, StoreErrno> {
        Ok(Arc::clone(&self.there(path, Want::Read)?.value))
    }

    pub(super) fn permissions(&mut self, path: &str) -> Result<Arc<[Permission]>, StoreErrno> {
        Ok(Arc::clone(&self.there(path, Want::Read)?.permissions))
    }

    /// Returns the node, for its children's names and their generation.
    pub(super) fn list(&mut self, path: &str) -> Result<Arc<Node>, StoreErrno> {
        let node = self.there(path, Want::Read)?;
        let children = true;
        let subtree = false;
        self.see(path, Seen { children, subtree })?;
        Ok(node)
    }

    pub(super) fn write(&mut self, path: &str, value: &[u8]) -> Result<(), StoreErrno> {
        if !self.privileged() && value.len() > self.quotas.node_size {
            return Err(StoreErrno::Enospc);
        }
        if self.find(path, Want::Write)?.is_none() {
            return self.create(path, value);
        }
        let generation = self.tick();
        if let Some(node) = lookup_mut(&mut self.transaction.root, path) {
            node.value = value.into();
            node.generation = generation;
        }
        self.touch(path, true, false);
        Ok(())
    }

    pub(super) fn make(&mut self, path: &str) -> Result<(), StoreErrno> {
        match self.find(path, Want::Write)? {
            Some(_) => Ok(()),
            None => self.create(path, b""),
        }
    }

    /// Removes a node with all nodes below it. If the node is missing and its parent exists, this
    /// does nothing.
    pub(super) fn remove(&mut self, path: &str) -> Result<(), StoreErrno> {
        let Some(above) = parent(path) else {
            return Err(StoreErrno::Einval);
        };
        let Some(node) = self.find(path, Want::Write)? else {
            return match lookup(&self.transaction.root, above) {
                Some(_) => Ok(()),
                None => Err(StoreErrno::Enoent),
            };
        };
        let children = true;
        let subtree = true;
        self.see(path, Seen { children, subtree })?;
        walk(path, &node, &mut |_, node| self.count(node.owner(), -1));
        let generation = self.tick();
        take(&mut self.transaction.root, path, generation);
        self.touch(path, true, true);
        Ok(())
    }

    pub(super) fn set_permissions(
        &mut self,
        path: &str,
        permissions: &[Permission],
    ) -> Result<(), StoreErrno> {
        let Some(first) = permissions.first() else {
            return Err(StoreErrno::Einval);
        };
        if !self.privileged() && permissions.len() > self.quotas.permissions {
            return Err(StoreErrno::Enospc);
        }
        let owner = self.there(path, Want::Own)?.owner();
        if !self.privileged() && first.domain != owner {
            return Err(StoreErrno::Eperm);
        }
        self.count(owner, -1);
        self.count(first.domain, 1);
        let generation = self.tick();
        if let Some(node) = lookup_mut(&mut self.transaction.root, path) {
            node.permissions = permissions.into();
            node.generation = generation;
        }
        self.touch(path, true, false);
        Ok(())
    }

    fn there(&mut self, path: &str, want: Want) -> Result<Arc<Node>, StoreErrno> {
        self.find(path, want)?.ok_or(StoreErrno::Enoent)
    }

    /// Returns the node if it is there. A caller learns that it is missing only if it may do the
    /// same with the nearest node above; others get `EACCES`.
    fn find(&mut self, path: &str, want: Want) -> Result<Option<Arc<Node>>, StoreErrno> {
        let (at, node, missing, first_missing) = nearest(&self.transaction.root, path);
        let node = Arc::clone(node);
        self.see(at, Seen::default())?;
        if missing > 0 {
            self.see(first_missing, Seen::default())?;
        }
        if !may(self.caller, &node.permissions, want) {
            return Err(StoreErrno::Eacces);
        }
        Ok((missing == 0).then_some(node))
    }

    /// Makes a node and the parents that it lacks. They have the permissions of the nearest node
    /// above, but their maker as owner, unless that is domain 0.
    fn create(&mut self, path: &str, value: &[u8]) -> Result<(), StoreErrno> {
        let (at, node, missing, _) = nearest(&self.transaction.root, path);
        let mut at = at.to_owned();
        let mut permissions = Arc::clone(&node.permissions);
        // The quotas are checked before anything is made.
        if !self.privileged() {
            let sooner = self.ledger.of(self.caller).nodes;
            let delta = self.transaction.nodes.get(&self.caller).copied();
            let now = sooner.saturating_add_signed(delta.unwrap_or(0));
            if now.saturating_add(missing) > self.quotas.nodes {
                return Err(StoreErrno::Enospc);
            }
            let touched = self.transaction.touched.len().saturating_add(missing);
            if self.transaction.seen.is_some() && touched > self.quotas.transaction_nodes {
                return Err(StoreErrno::Enospc);
            }
            if let Some(first) = Arc::make_mut(&mut permissions).first_mut() {
                first.domain = self.caller;
            }
        }
        // Parents are made first, and empty; only the node itself fires watches.
        let there = names(path).count().saturating_sub(missing);
        for (left, name) in (0..missing).rev().zip(names(path).skip(there)) {
            at = below(&at, name);
            let value = if left == 0 { value } else { b"" };
            let generation = self.tick();
            let node = Node::new(value, Arc::clone(&permissions), generation);
            self.count(node.owner(), 1);
            put(&mut self.transaction.root, &at, Arc::new(node), generation);
            self.touch(&at, left == 0, false);
        }
        Ok(())
    }

    fn privileged(&self) -> bool {
        self.caller == DomId::ZERO
    }

    fn tick(&mut self) -> u64 {
        *self.clock += 1;
        *self.clock
    }

    fn count(&mut self, owner: DomId, delta: isize) {
        *self.transaction.nodes.entry(owner).or_default() += delta;
    }

    fn touch(&mut self, path: &str, fires: bool, replaced: bool) {
        let touch = self.transaction.touched.entry(path.to_owned()).or_default();
        touch.fires |= fires;
        touch.replaced |= replaced;
    }

    fn see(&mut self, path: &str, what: Seen) -> Result<(), StoreErrno> {
        let privileged = self.privileged();
        let Some(seen) = &mut self.transaction.seen else {
            return Ok(());
        };
        let full = !privileged && seen.len() >= self.quotas.transaction_nodes;
        if full && !seen.contains_key(path) {
            return Err(StoreErrno::Enospc);
        }
        let known = seen.entry(path.to_owned()).or_default();
        known.children |= what.children;
        known.subtree |= what.subtree;
        Ok(())
    }
}

//! Operations of the host itself on the store, as domain 0: its toolstack's part.

use super::quota::Quotas;
use super::{INTRODUCE, RELEASE, Server, tree};
use grantway_hypervisor::{DomId, Error, Permission, StoreErrno, StoreOps};
use std::sync::Arc;

impl Server {
    /// Makes a domain known, and fires `@introduceDomain` if it was not.
    pub fn introduce(&mut self, domain: DomId) {
        if domain != DomId::ZERO && self.introduced.insert(domain) {
            self.tell_special(INTRODUCE);
        }
    }

    /// Notes that a domain's process is gone and may boot again: its nodes stay, and
    /// `@releaseDomain` fires if the domain was known. End its connections first.
    pub fn retire(&mut self, domain: DomId) {
        if self.introduced.remove(&domain) {
            self.tell_special(RELEASE);
        }
    }

    /// Forgets a domain that has died. Its nodes go with all below them, its entries go from the
    /// permissions of others, and `@releaseDomain` fires if the domain was known. End its
    /// connections first.
    pub fn release(&mut self, domain: DomId) {
        if domain == DomId::ZERO {
            return;
        }
        // The nodes are collected first: the tree changes below.
        let mut owned: Vec<String> = Vec::new();
        let mut named: Vec<(String, Vec<Permission>)> = Vec::new();
        tree::walk("/", &self.root, &mut |path, node| {
            if node.owner() == domain {
                owned.push(path.to_owned());
            } else if node.permissions.iter().any(|p| p.domain == domain) {
                named.push((path.to_owned(), without(domain, &node.permissions)));
            }
        });
        let change = self.at_once(DomId::ZERO, |view| {
            for (path, permissions) in &named {
                view.set_permissions(path, permissions)?;
            }
            for path in &owned {
                // The root cannot go, so domain 0 takes it back.
                if path == "/" {
                    view.set_permissions(path, &tree::only_dom0())?;
                } else if !matches!(view.remove(path), Ok(()) | Err(StoreErrno::Enoent)) {
                    return Err(StoreErrno::Eio);
                }
            }
            Ok(())
        });
        // Watches fire for the change as a whole.
        if let Ok(((), Some(change))) = change {
            self.fire(&change);
        }
        for permissions in self.special.values_mut() {
            if permissions.iter().any(|p| p.domain == domain) {
                *permissions = without(domain, permissions).into();
            }
        }
        self.retire(domain);
    }

    /// Returns true if a domain is known. Domain 0 always is.
    #[must_use]
    pub fn is_introduced(&self, domain: DomId) -> bool {
        domain == DomId::ZERO || self.introduced.contains(&domain)
    }

    /// Returns true if a node exists. Returns false for an invalid path.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.node_path(DomId::ZERO, path.as_bytes())
            .is_ok_and(|path| tree::lookup(&self.root, &path).is_some())
    }

    /// Returns a node's permissions, or those of `@introduceDomain` or `@releaseDomain`. The first
    /// names the owner.
    ///
    /// # Errors
    ///
    /// [`Error::Store`]: `ENOENT`, or `EINVAL` for a path that is not valid.
    pub fn permissions(&self, path: &str) -> Result<Vec<Permission>, Error> {
        let found = self.resolve(DomId::ZERO, path.as_bytes()).and_then(|(full, _)| {
            let special = self.special.get(full.as_str());
            let node = tree::lookup(&self.root, &full).filter(|_| full.starts_with('/'));
            special
                .or(node.map(|node| &node.permissions))
                .map(|permissions| permissions.to_vec())
                .ok_or(StoreErrno::Enoent)
        });
        found.map_err(|errno| refused("get-perms", path, errno))
    }

    /// Returns the quotas of the store.
    #[must_use]
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    fn as_dom0<T>(
        &mut self,
        what: &'static str,
        path: &str,
        body: impl FnOnce(&mut super::View<'_>, &str) -> Result<T, StoreErrno>,
    ) -> Result<T, Error> {
        let done = self
            .node_path(DomId::ZERO, path.as_bytes())
            .and_then(|full| self.at_once(DomId::ZERO, |view| body(view, &full)));
        let (value, change) = done.map_err(|errno| refused(what, path, errno))?;
        if let Some(change) = change {
            self.fire(&change);
        }
        Ok(value)
    }

    /// Sets a node's permissions, as domain 0.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub fn set_permissions(&mut self, path: &str, permissions: &[Permission]) -> Result<(), Error> {
        if let Some(there) = self.special.get_mut(path) {
            if permissions.is_empty() {
                return Err(refused("set-perms", path, StoreErrno::Einval));
            }
            *there = Arc::from(permissions);
            return Ok(());
        }
        self.as_dom0("set-perms", path, |view, path| view.set_permissions(path, permissions))
    }
}

/// Operations of domain 0, at once and firing watches. Relative paths are below `/local/domain/0`.
impl StoreOps for Server {
    fn read(&mut self, path: &str) -> Result<Vec<u8>, Error> {
        self.as_dom0("read", path, |view, path| Ok(view.read(path)?.to_vec()))
    }

    fn write(&mut self, path: &str, value: &[u8]) -> Result<(), Error> {
        // The value is no longer than a client could write, so that a client can read it.
        if value.len() > grantway_xenstore::wire::PAYLOAD_MAX {
            return Err(refused("write", path, StoreErrno::E2big));
        }
        self.as_dom0("write", path, |view, path| view.write(path, value))
    }

    fn remove(&mut self, path: &str) -> Result<(), Error> {
        self.as_dom0("rm", path, |view, path| view.remove(path))
    }

    fn list(&mut self, path: &str) -> Result<Vec<String>, Error> {
        self.as_dom0("directory", path, |view, path| {
            let node = view.list(path)?;
            Ok(node.children.names().map(str::to_owned).collect())
        })
    }
}

/// Returns the permissions without a domain's. If it was the owner, domain 0 is instead.
fn without(domain: DomId, permissions: &[Permission]) -> Vec<Permission> {
    let others = permissions.iter().skip(1).filter(|p| p.domain != domain);
    let first = permissions.first().filter(|p| p.domain != domain);
    let first = first
        .copied()
        .unwrap_or(Permission { domain: DomId::ZERO, rights: grantway_hypervisor::Rights::None });
    std::iter::once(first).chain(others.copied()).collect()
}

fn refused(what: &'static str, path: &str, errno: StoreErrno) -> Error {
    Error::Store { what, path: path.to_owned(), errno }
}

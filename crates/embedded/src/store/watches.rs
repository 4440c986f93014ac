//! Watches, by path and by connection.

use super::ConnId;
use super::tree::upwards;
use grantway_hypervisor::DomId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One watch.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) connection: ConnId,
    pub(super) domain: DomId,
    pub(super) token: Arc<[u8]>,
    /// Bytes at the front of a path that are not told: the domain's own folder, if the watch was
    /// set with a relative path.
    pub(super) hidden: usize,
}

/// All watches.
#[derive(Debug, Default)]
pub(super) struct Watches {
    /// Watches by the path that they watch.
    by_path: BTreeMap<String, Vec<Watcher>>,
    /// Paths that each connection watches.
    paths: BTreeMap<ConnId, BTreeSet<String>>,
}

impl Watches {
    /// Returns true if that connection has a watch with that path and token.
    pub(super) fn has(&self, path: &str, watcher: &Watcher) -> bool {
        let same = |w: &Watcher| w.connection == watcher.connection && w.token == watcher.token;
        self.by_path.get(path).is_some_and(|there| there.iter().any(same))
    }

    /// Adds a watch. Returns false if there is one already.
    pub(super) fn add(&mut self, path: &str, watcher: Watcher) -> bool {
        if self.has(path, &watcher) {
            return false;
        }
        self.paths.entry(watcher.connection).or_default().insert(path.to_owned());
        self.by_path.entry(path.to_owned()).or_default().push(watcher);
        true
    }

    /// Removes a watch. Returns false if there is none.
    pub(super) fn remove(&mut self, path: &str, connection: ConnId, token: &[u8]) -> bool {
        let Some(there) = self.by_path.get_mut(path) else {
            return false;
        };
        let same = |w: &Watcher| w.connection == connection && *w.token == *token;
        let Some(at) = there.iter().position(same) else {
            return false;
        };
        there.remove(at);
        let watches_still = there.iter().any(|w| w.connection == connection);
        if there.is_empty() {
            self.by_path.remove(path);
        }
        if !watches_still && let Some(paths) = self.paths.get_mut(&connection) {
            paths.remove(path);
        }
        true
    }

    /// Removes a connection's watches, and returns their number.
    pub(super) fn remove_all(&mut self, connection: ConnId) -> usize {
        let mut removed = 0;
        for path in self.paths.remove(&connection).unwrap_or_default() {
            let Some(there) = self.by_path.get_mut(&path) else { continue };
            let before = there.len();
            there.retain(|w| w.connection != connection);
            removed += before - there.len();
            if there.is_empty() {
                self.by_path.remove(&path);
            }
        }
        removed
    }

    /// Returns the watches that a change of `path` fires, each with the path that it watches: those
    /// of the path, and unless `exact` those of all above it.
    pub(super) fn of<'a>(
        &'a self,
        path: &'a str,
        exact: bool,
    ) -> impl Iterator<Item = (&'a str, &'a Watcher)> {
        let depth = if exact { 1 } else { usize::MAX };
        upwards(path)
            .take(depth)
            .filter_map(|above| self.by_path.get_key_value(above))
            .flat_map(|(top, there)| there.iter().map(move |w| (top.as_str(), w)))
    }
}

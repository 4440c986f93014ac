//! The tree of nodes. The tree is persistent: a copy of its root is a snapshot, and a change copies
//! only the nodes on the way to the changed one.

use super::children::Children;
use grantway_hypervisor::{DomId, Permission, Rights};
use std::sync::Arc;

/// A node. Paths given to the functions here are absolute and valid.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Arc<[u8]>,
    /// The permissions, never empty: the first names the owner.
    pub(super) permissions: Arc<[Permission]>,
    pub(super) children: Children,
    /// Number that changes with the value and the permissions; no two nodes ever share one.
    pub(super) generation: u64,
    /// Number that changes with the names of the children.
    pub(super) children_generation: u64,
}

impl Node {
    pub(super) fn new(value: &[u8], permissions: Arc<[Permission]>, generation: u64) -> Self {
        Self {
            value: value.into(),
            permissions,
            children: Children::default(),
            generation,
            children_generation: generation,
        }
    }

    pub(super) fn owner(&self) -> DomId {
        self.permissions.first().map_or(DomId::ZERO, |p| p.domain)
    }

    /// Returns this node without children.
    pub(super) fn alone(&self) -> Self {
        Self { children: Children::default(), ..self.clone() }
    }
}

/// Returns the permissions of a node that is domain 0's alone.
pub(super) fn only_dom0() -> Arc<[Permission]> {
    [Permission { domain: DomId::ZERO, rights: Rights::None }].into()
}

/// Returns the names in a path, from the root on.
pub(super) fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

/// Returns the path of the node above; none above the root.
pub(super) fn parent(path: &str) -> Option<&str> {
    match path.rsplit_once('/')? {
        ("", "") => None,
        ("", _) => Some("/"),
        (parent, _) => Some(parent),
    }
}

/// Returns the path itself and all above it, the root last.
pub(super) fn upwards(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| parent(path))
}

/// Returns a child's path.
pub(super) fn below(path: &str, name: &str) -> String {
    let path = path.strip_suffix('/').unwrap_or(path);
    format!("{path}/{name}")
}

/// Returns the node of a path.
pub(super) fn lookup<'a>(root: &'a Arc<Node>, path: &str) -> Option<&'a Arc<Node>> {
    names(path).try_fold(root, |node, name| node.children.get(name))
}

/// Finds the deepest node on the way to `path` that is there. Returns its path, the node, the
/// number of names missing below it, and the path of the first of those.
pub(super) fn nearest<'a, 'p>(
    root: &'a Arc<Node>,
    path: &'p str,
) -> (&'p str, &'a Arc<Node>, usize, &'p str) {
    let mut node = root;
    let mut end = 0;
    let upto = |end: usize| path.get(..end).filter(|p| !p.is_empty()).unwrap_or("/");
    for (depth, name) in names(path).enumerate() {
        let next = end + 1 + name.len();
        match node.children.get(name) {
            Some(child) => (node, end) = (child, next),
            None => {
                let missing = names(path).count() - depth;
                return (upto(end), node, missing, upto(next));
            }
        }
    }
    (path, node, 0, path)
}

/// Returns the node of a path, to be changed.
pub(super) fn lookup_mut<'a>(root: &'a mut Arc<Node>, path: &str) -> Option<&'a mut Node> {
    lookup(root, path)?;
    let mut node = Arc::make_mut(root);
    for name in names(path) {
        node = Arc::make_mut(node.children.get_mut(name)?);
    }
    Some(node)
}

/// Puts a node, in place of one that may be there. Returns false if there is no parent for it.
pub(super) fn put(root: &mut Arc<Node>, path: &str, node: Arc<Node>, generation: u64) -> bool {
    let Some((above, name)) = place(path) else {
        return false;
    };
    let Some(above) = lookup_mut(root, above) else {
        return false;
    };
    above.children.insert(name, node);
    above.children_generation = generation;
    true
}

/// Takes a node out, with all below it, and returns it.
pub(super) fn take(root: &mut Arc<Node>, path: &str, generation: u64) -> Option<Arc<Node>> {
    lookup(root, path)?;
    let (above, name) = place(path)?;
    let above = lookup_mut(root, above)?;
    above.children_generation = generation;
    above.children.remove(name)
}

fn place(path: &str) -> Option<(&str, &str)> {
    let above = parent(path)?;
    Some((above, path.rsplit_once('/')?.1))
}

/// Calls `visit` with every node from `node` on, itself first. Paths are no deeper than
/// [`super::Quotas::MAX_DEPTH`], so the recursion is bounded.
pub(super) fn walk(path: &str, node: &Arc<Node>, visit: &mut dyn FnMut(&str, &Arc<Node>)) {
    visit(path, node);
    for (name, child) in node.children.iter() {
        walk(&below(path, name), child, visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(generation: u64) -> Arc<Node> {
        Arc::new(Node::new(b"", only_dom0(), generation))
    }

    #[test]
    fn ways_up() {
        let up = |path| upwards(path).collect::<Vec<_>>();
        assert_eq!(up("/"), ["/"]);
        assert_eq!(up("/a"), ["/a", "/"]);
        assert_eq!(up("/a/b"), ["/a/b", "/a", "/"]);
        assert_eq!(below("/", "a"), "/a");
        assert_eq!(below("/a", "b"), "/a/b");
    }

    #[test]
    fn a_snapshot_stays() {
        let mut root = plain(1);
        assert!(put(&mut root, "/a", plain(2), 2));
        assert!(put(&mut root, "/a/b", plain(3), 3));
        assert!(put(&mut root, "/c", plain(4), 4));
        assert!(!put(&mut root, "/x/y", plain(5), 5));
        let before = Arc::clone(&root);
        assert!(take(&mut root, "/a/b", 6).is_some());
        assert!(take(&mut root, "/a/b", 7).is_none());
        assert!(lookup(&before, "/a/b").is_some());
        assert!(lookup(&root, "/a/b").is_none());
        let same = |path| Arc::ptr_eq(lookup(&before, path).unwrap(), lookup(&root, path).unwrap());
        assert!(same("/c") && !same("/a") && !same("/"));
    }

    #[test]
    fn what_is_nearest() {
        let mut root = plain(1);
        assert!(put(&mut root, "/a", plain(2), 2));
        let (at, node, missing, first) = nearest(&root, "/a/b/c");
        assert_eq!((at, node.generation, missing, first), ("/a", 2, 2, "/a/b"));
        let (at, _, missing, first) = nearest(&root, "/x");
        assert_eq!((at, missing, first), ("/", 1, "/x"));
    }
}

//! The children of a node, in the order of their names. They are persistent, as the tree is: a copy
//! shares them in blocks, and a change copies one block. So neither costs much, even with many
//! children.

use super::tree::Node;
use std::sync::Arc;

/// Most children of a block.
const BLOCK: usize = 64;

type Child = (Arc<str>, Arc<Node>);

/// Children by their names.
#[derive(Debug, Clone, Default)]
pub(super) struct Children {
    /// Blocks in order, none of them empty.
    blocks: Vec<Arc<Vec<Child>>>,
}

impl Children {
    /// Returns the block that a name is in or would be, and its place there.
    fn place(&self, name: &str) -> (usize, Result<usize, usize>) {
        let begins_before =
            |block: &Arc<Vec<Child>>| block.first().is_some_and(|(first, _)| **first <= *name);
        let block = self.blocks.partition_point(begins_before).saturating_sub(1);
        let at = self
            .blocks
            .get(block)
            .map_or(Err(0), |block| block.binary_search_by(|(other, _)| (**other).cmp(name)));
        (block, at)
    }

    /// Returns the child of a name.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Node>> {
        let (block, at) = self.place(name);
        self.blocks.get(block)?.get(at.ok()?).map(|(_, node)| node)
    }

    /// Returns the child of a name, to be changed.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Arc<Node>> {
        let (block, at) = self.place(name);
        let at = at.ok()?;
        let block = Arc::make_mut(self.blocks.get_mut(block)?);
        block.get_mut(at).map(|(_, node)| node)
    }

    /// Puts a child, in place of one of that name if there is one.
    pub(super) fn insert(&mut self, name: &str, node: Arc<Node>) {
        let (number, at) = self.place(name);
        let Some(block) = self.blocks.get_mut(number) else {
            self.blocks.push(Arc::new(vec![(name.into(), node)]));
            return;
        };
        let block = Arc::make_mut(block);
        match at {
            Ok(at) => {
                if let Some((_, there)) = block.get_mut(at) {
                    *there = node;
                }
            }
            Err(at) => block.insert(at, (name.into(), node)),
        }
        if block.len() > BLOCK {
            let rest = block.split_off(BLOCK / 2);
            self.blocks.insert(number + 1, Arc::new(rest));
        }
    }

    /// Takes a child out, and returns it.
    pub(super) fn remove(&mut self, name: &str) -> Option<Arc<Node>> {
        let (number, at) = self.place(name);
        let at = at.ok()?;
        let block = Arc::make_mut(self.blocks.get_mut(number)?);
        let (_, node) = block.remove(at);
        if block.is_empty() {
            self.blocks.remove(number);
        }
        Some(node)
    }

    /// Returns all children, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Node>)> {
        self.blocks.iter().flat_map(|block| block.iter()).map(|(name, node)| (&**name, node))
    }

    /// Returns the children's names, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tree::only_dom0;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn node(generation: u64) -> Arc<Node> {
        Arc::new(Node::new(b"", only_dom0(), generation))
    }

    fn listed(children: &Children) -> Vec<(String, u64)> {
        children.iter().map(|(name, node)| (name.to_owned(), node.generation)).collect()
    }

    proptest! {
        #[test]
        fn they_are_a_map_and_a_copy_stays(steps in prop::collection::vec((0..300u32, 0..4u8), 0..900)) {
            let (mut children, mut plain) = (Children::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for (step, (name, what)) in (0u64..).zip(steps) {
                let name = name.to_string();
                match what {
                    0 => {
                        let removed = children.remove(&name).map(|node| node.generation);
                        prop_assert_eq!(removed, plain.remove(&name));
                    }
                    1 => {
                        if let Some(there) = children.get_mut(&name) {
                            *there = node(step);
                            plain.insert(name.clone(), step);
                        }
                    }
                    _ => {
                        children.insert(&name, node(step));
                        plain.insert(name.clone(), step);
                    }
                }
                let found = children.get(&name).map(|node| node.generation);
                prop_assert_eq!(found, plain.get(&name).copied());
                if step % 100 == 0 {
                    copies.push((children.clone(), plain.clone()));
                }
            }
            copies.push((children, plain));
            for (children, plain) in copies {
                prop_assert_eq!(listed(&children), plain.into_iter().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_change_copies_one_block_only() {
        let mut children = Children::default();
        (0..1000).for_each(|n| children.insert(&n.to_string(), node(n)));
        assert!(children.blocks.iter().all(|block| block.len() <= BLOCK));
        let copy = children.clone();
        children.insert("500", node(5000));
        let pairs = children.blocks.iter().zip(&copy.blocks);
        assert_eq!(pairs.filter(|(one, other)| !Arc::ptr_eq(one, other)).count(), 1);
    }
}

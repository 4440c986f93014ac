//! Watch events that came while nobody asked for them.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use grantway_hypervisor::WatchEvent;

/// The most distinct events that wait in a client. Past it an event is told as
/// one of the watch itself.
pub const MAX_QUEUED_EVENTS: usize = 4096;

/// A queue that a flood of events cannot fill (XSA-349).
///
/// An event says "look again" and nothing more, so one that already waits need
/// not wait twice: equal events are merged. Past [`MAX_QUEUED_EVENTS`] distinct
/// ones, an event below a watched path is told as one of the watched path,
/// which says "look again at all of it"; there is at most one of those for each
/// watch that is set.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    waiting: VecDeque<WatchEvent>,
    known: BTreeSet<(String, String)>,
    /// The watches that are set, as they were asked for.
    watches: Vec<(String, String)>,
}

impl EventQueue {
    /// Learns of a watch.
    pub(crate) fn watch(&mut self, path: &str, token: &str) {
        self.watches.push((path.to_owned(), token.to_owned()));
    }

    /// Forgets a watch. Its events that wait stay, as some may be on their way
    /// anyhow.
    pub(crate) fn unwatch(&mut self, path: &str, token: &str) {
        let same = |(p, t): &(String, String)| p == path && t == token;
        if let Some(at) = self.watches.iter().position(same) {
            self.watches.swap_remove(at);
        }
    }

    /// Forgets all watches.
    pub(crate) fn unwatch_all(&mut self) {
        self.watches.clear();
    }

    /// Takes an event in.
    pub(crate) fn push(&mut self, path: String, token: String) {
        let mut key = (path, token);
        if self.waiting.len() >= MAX_QUEUED_EVENTS && !self.known.contains(&key) {
            // One that fits no watch of ours was for a watch that is gone.
            let fits = |w: &&(String, String)| w.1 == key.1 && is_at_or_below(&key.0, &w.0);
            match self.watches.iter().find(fits) {
                Some(watch) => key = watch.clone(),
                None => return,
            }
        }
        if self.known.insert(key.clone()) {
            let (path, token) = key;
            self.waiting.push_back(WatchEvent { path, token });
        }
    }

    /// Gives the oldest event out.
    pub(crate) fn pop(&mut self) -> Option<WatchEvent> {
        let event = self.waiting.pop_front()?;
        self.known.remove(&(event.path.clone(), event.token.clone()));
        Some(event)
    }

    /// Returns true if no event waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

fn is_at_or_below(path: &str, top: &str) -> bool {
    match path.strip_prefix(top) {
        Some(rest) => rest.is_empty() || rest.starts_with('/') || top == "/",
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_events_are_merged_while_they_wait() {
        let mut queue = EventQueue::default();
        for _ in 0..3 {
            queue.push("/a".into(), "t".into());
            queue.push("/a".into(), "u".into());
        }
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.pop().unwrap().token, "t");
        queue.push("/a".into(), "t".into());
        assert_eq!(queue.pop().unwrap().token, "u");
        assert_eq!(queue.pop().unwrap().token, "t");
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn xsa_349_watch_flood() {
        let mut queue = EventQueue::default();
        queue.watch("/x", "t");
        queue.watch("/", "t2");
        for n in 0..100_000 {
            queue.push(format!("/x/{n}"), "t".into());
            queue.push(format!("/x/{n}"), "nobody".into());
        }
        queue.push("/y".into(), "t2".into());
        assert_eq!(queue.len(), MAX_QUEUED_EVENTS + 2);
        let all: Vec<_> = core::iter::from_fn(|| queue.pop()).collect();
        let last = &all[MAX_QUEUED_EVENTS..];
        assert_eq!((last[0].path.as_str(), last[0].token.as_str()), ("/x", "t"));
        assert_eq!((last[1].path.as_str(), last[1].token.as_str()), ("/", "t2"));
    }
}

//! Watch events that wait in a client.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use grantway_hypervisor::WatchEvent;

/// Default limit of the memory for events that wait in a client, in bytes.
/// [`Client::events_within`](crate::Client::events_within) sets another limit. Past the limit, an
/// event for a path below a watch is reported as an event for the watched path.
pub const MAX_QUEUED_BYTES: usize = 1 << 20;

/// Bytes that an event takes besides its texts, which are kept twice.
const EVENT_BYTES: usize = 160;

/// A queue that a flood of events cannot fill (XSA-349).
///
/// An event says "look again" and nothing more, so one that already waits need
/// not wait twice: equal events are merged. Past a limit of bytes, an event below
/// a watched path is told as one of the watched path, which says "look again at
/// all of it"; there is at most one of those for each watch that is set.
#[derive(Debug)]
pub(crate) struct EventQueue {
    waiting: VecDeque<WatchEvent>,
    known: BTreeSet<(String, String)>,
    /// Bytes that the waiting events take, and their limit.
    bytes: usize,
    limit: usize,
    /// The watches that are set, as they were asked for.
    watches: Vec<(String, String)>,
}

impl Default for EventQueue {
    fn default() -> Self {
        Self::within(MAX_QUEUED_BYTES)
    }
}

impl EventQueue {
    /// Makes an empty queue with this limit of bytes.
    pub(crate) fn within(limit: usize) -> Self {
        let (waiting, known, watches) = Default::default();
        Self { waiting, known, bytes: 0, limit, watches }
    }

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
        if self.bytes + bytes(&key) > self.limit && !self.known.contains(&key) {
            // One that fits no watch of ours was for a watch that is gone.
            let fits = |w: &&(String, String)| w.1 == key.1 && is_at_or_below(&key.0, &w.0);
            match self.watches.iter().find(fits) {
                Some(watch) => key = watch.clone(),
                None => return,
            }
        }
        if self.known.insert(key.clone()) {
            self.bytes += bytes(&key);
            let (path, token) = key;
            self.waiting.push_back(WatchEvent { path, token });
        }
    }

    /// Gives the oldest event out.
    pub(crate) fn pop(&mut self) -> Option<WatchEvent> {
        let event = self.waiting.pop_front()?;
        let key = (event.path.clone(), event.token.clone());
        self.known.remove(&key);
        self.bytes -= bytes(&key);
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

/// Returns the bytes that an event takes.
fn bytes((path, token): &(String, String)) -> usize {
    EVENT_BYTES + 2 * (path.len() + token.len())
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
        // A limit of a guest's, and longest paths: few events fit.
        let cases =
            [(MAX_QUEUED_BYTES, String::new(), 100_000), (32 << 10, "n".repeat(3000), 1000)];
        for (limit, name, events) in cases {
            let mut queue = EventQueue::within(limit);
            queue.watch("/x", "t");
            queue.watch("/", "t2");
            for n in 0..events {
                queue.push(format!("/x/{n}{name}"), "t".into());
                queue.push(format!("/x/{n}{name}"), "nobody".into());
            }
            queue.push(format!("/y/99999{name}"), "t2".into());
            let whole = 2 * (EVENT_BYTES + 2 * 4);
            assert!(queue.bytes <= limit + whole, "{} bytes", queue.bytes);
            let all: Vec<_> = core::iter::from_fn(|| queue.pop()).collect();
            assert_eq!(queue.bytes, 0);
            // As many as there is room for, and the two watches themselves behind them.
            let longest = bytes(&(format!("/x/99999{name}"), "nobody".into()));
            assert!(all.len() > limit / longest, "{} of {limit} bytes", all.len());
            let last = &all[all.len() - 2..];
            assert_eq!((last[0].path.as_str(), last[0].token.as_str()), ("/x", "t"));
            assert_eq!((last[1].path.as_str(), last[1].token.as_str()), ("/", "t2"));
        }
    }
}

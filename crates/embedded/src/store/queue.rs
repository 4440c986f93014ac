//! Output that waits for one connection.

use grantway_xenstore::wire::{HEADER_LEN, MessageType, PAYLOAD_MAX, encode};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// Bytes that are made ready for writing at a time. Events among them can no longer be merged.
const READY: usize = 16 * 1024;

/// An event that waits.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Event {
    path: Box<str>,
    token: Arc<[u8]>,
}

impl Event {
    fn wire_len(&self) -> usize {
        HEADER_LEN + self.path.len() + self.token.len() + 2
    }
}

#[derive(Debug)]
enum Item {
    Answer(Vec<u8>),
    Event(Arc<Event>),
}

/// Answers and events in their order.
///
/// The queue is bounded. No request is taken in while it is long (see
/// [`super::Server::wants_input`]). An event that already waits does not wait twice. Past
/// `max_events` an event is told as one of the watched path itself, of which there is one per
/// watch.
#[derive(Debug)]
pub(super) struct OutputQueue {
    ready: Vec<u8>,
    /// Bytes at the front of `ready` that were written.
    written: usize,
    items: VecDeque<Item>,
    events: HashSet<Arc<Event>>,
    /// Bytes of `items` on the wire.
    waiting: usize,
    max_events: usize,
}

impl OutputQueue {
    pub(super) fn new(max_events: usize) -> Self {
        Self {
            ready: Vec::new(),
            written: 0,
            items: VecDeque::new(),
            events: HashSet::new(),
            waiting: 0,
            max_events,
        }
    }

    /// Returns the number of bytes in all.
    pub(super) fn bytes(&self) -> usize {
        self.ready.len() - self.written + self.waiting
    }

    pub(super) fn answer(&mut self, bytes: Vec<u8>) {
        self.waiting += bytes.len();
        self.items.push_back(Item::Answer(bytes));
    }

    /// Queues an event of `path`, below or at the watched path `top`. Both are written as the
    /// watcher wants them told.
    pub(super) fn event(&mut self, path: &str, token: &Arc<[u8]>, top: &str) {
        let make = |path: &str| Event { path: path.into(), token: Arc::clone(token) };
        let mut event = make(path);
        if self.events.contains(&event) {
            return;
        }
        let full = self.events.len() >= self.max_events;
        if full || event.wire_len() > HEADER_LEN + PAYLOAD_MAX {
            event = make(top);
            if self.events.contains(&event) {
                return;
            }
        }
        self.waiting += event.wire_len();
        let event = Arc::new(event);
        self.events.insert(Arc::clone(&event));
        self.items.push_back(Item::Event(event));
    }

    /// Returns the next bytes to write; empty if there are none.
    pub(super) fn front(&mut self) -> &[u8] {
        if self.written == self.ready.len() {
            self.ready.clear();
            self.written = 0;
            while self.ready.len() < READY {
                match self.items.pop_front() {
                    None => break,
                    Some(Item::Answer(bytes)) => {
                        self.waiting -= bytes.len();
                        self.ready.extend(bytes);
                    }
                    Some(Item::Event(event)) => {
                        self.waiting -= event.wire_len();
                        self.events.remove(&event);
                        let parts = [event.path.as_bytes(), b"\0", &event.token, b"\0"];
                        let kind = MessageType::WatchEvent.number();
                        // The event fits: a longer one was never let in.
                        self.ready.extend(encode(kind, 0, 0, &parts).unwrap_or_default());
                    }
                }
            }
        }
        self.ready.get(self.written..).unwrap_or_default()
    }

    /// Notes that `count` bytes of [`OutputQueue::front`] were written.
    pub(super) fn advance(&mut self, count: usize) {
        self.written = self.written.saturating_add(count).min(self.ready.len());
    }
}

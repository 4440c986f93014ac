//! One connection of a handwritten guest: its rings, its control ring, and its requests that
//! were not answered yet.

use super::super::support::rings::Rings;
use super::super::xen::Domain;
use grantway_hypervisor::{Access, DomId, EventChannels, FrontendPlatform, Granted, Port};
use grantway_netif::ctrl::{CtrlResponse, GREF_LIST_ENTRIES, GrefEntry, Message};
use grantway_ring::{Front, RingPage};
use std::collections::VecDeque;

/// Pages for lists, each of one request at a time; the last may only be read.
pub const LIST_PAGES: usize = 4;

/// A slot that was sent.
pub struct Sent {
    pub id: u16,
    /// The page in the pool.
    pub page: usize,
    pub good: bool,
    /// Kills of the backend when it was sent.
    pub kills: u64,
}

/// A page that was posted.
pub struct Posted {
    pub id: u16,
    pub page: usize,
    /// True if the backend may be able to write to this page: lists under way decide. `refused`
    /// is true if the backend may be unable to.
    pub writable: bool,
    pub refused: bool,
    pub kills: u64,
}

/// A request of the control ring.
pub struct Asked {
    pub id: u16,
    pub kind: u16,
    /// None if the request is no valid message.
    pub message: Option<Message>,
    pub list: Vec<GrefEntry>,
    /// The page of the list.
    pub page: Option<usize>,
}

pub struct Queue {
    pub rings: Rings,
    pub out: VecDeque<Sent>,
    pub posted: VecDeque<Posted>,
}

pub struct Link {
    pub queues: Vec<Queue>,
    pub ctrl: Front<RingPage<4>, 4>,
    pub event: Port,
    ring: Granted,
    lists: Vec<Granted>,
    pub asked: VecDeque<Asked>,
    /// Id of the last request. Each request adds to it, so that no id is used again soon.
    pub last_id: u16,
}

impl Link {
    pub fn new(
        domain: &Domain,
        events: &mut dyn EventChannels,
        backend: DomId,
        queues: usize,
    ) -> Self {
        let ring = domain.grant(backend, 1, Access::ReadWrite).unwrap();
        let list = |n| {
            let access = if n + 1 == LIST_PAGES { Access::ReadOnly } else { Access::ReadWrite };
            domain.grant(backend, 1, access).unwrap()
        };
        let queue = |_| Queue {
            rings: Rings::new(domain, events, backend),
            out: VecDeque::new(),
            posted: VecDeque::new(),
        };
        Self {
            queues: (0..queues).map(queue).collect(),
            ctrl: Front::init(RingPage::new(ring.run.page(0).unwrap())),
            event: events.alloc_unbound(backend).unwrap(),
            ring,
            lists: (0..LIST_PAGES).map(list).collect(),
            asked: VecDeque::new(),
            last_id: 0,
        }
    }

    /// The keys that publish it.
    pub fn keys(&self, persistent: bool) -> Vec<(String, String)> {
        let mut keys = vec![
            ("ctrl-ring-ref".to_owned(), self.ring.grefs[0].to_string()),
            ("event-channel-ctrl".to_owned(), self.event.to_string()),
            ("feature-persistent".to_owned(), u8::from(persistent).to_string()),
        ];
        for key in ["request-rx-copy", "feature-rx-notify", "feature-sg"] {
            keys.push((key.to_owned(), "1".to_owned()));
        }
        if self.queues.len() > 1 {
            keys.push(("multi-queue-num-queues".to_owned(), self.queues.len().to_string()));
        }
        for (number, Queue { rings, .. }) in self.queues.iter().enumerate() {
            let folder = if self.queues.len() > 1 { format!("queue-{number}/") } else { "".into() };
            for (key, value) in [
                ("tx-ring-ref", rings.tx_ring.grefs[0].to_string()),
                ("rx-ring-ref", rings.rx_ring.grefs[0].to_string()),
                ("event-channel-tx", rings.tx_event.to_string()),
                ("event-channel-rx", rings.rx_event.to_string()),
            ] {
                keys.push((format!("{folder}{key}"), value));
            }
        }
        keys
    }

    /// References that are mapped as long as it is connected.
    pub fn rings(&self) -> impl Iterator<Item = u32> + '_ {
        let queues = self.queues.iter().map(|queue| &queue.rings);
        let rings = queues.flat_map(|rings| [&rings.tx_ring, &rings.rx_ring]);
        rings.chain([&self.ring]).map(|granted| granted.grefs[0].0)
    }

    /// A page for a list that no request names.
    pub fn free_list(&self) -> Option<usize> {
        (0..LIST_PAGES).find(|&n| self.asked.iter().all(|asked| asked.page != Some(n)))
    }

    /// Its reference.
    pub fn list_gref(&self, page: usize) -> u32 {
        self.lists[page].grefs[0].0
    }

    pub fn write_list(&self, page: usize, list: &[GrefEntry]) {
        let words = list.iter().take(GREF_LIST_ENTRIES).flat_map(|entry| entry.to_words());
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        self.lists[page].run.page(0).unwrap().write(0, &bytes).unwrap();
    }

    pub fn read_list(&self, page: usize, count: usize) -> Vec<GrefEntry> {
        let mut bytes = vec![0; count * 8];
        self.lists[page].run.page(0).unwrap().read(0, &mut bytes).unwrap();
        let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let entries = bytes.chunks_exact(8);
        entries.map(|entry| GrefEntry::from_words([word(entry), word(&entry[4..])])).collect()
    }

    /// The next answer of the control ring, whole.
    pub fn next_answer(&mut self) -> Option<CtrlResponse> {
        let (_, words) = self.ctrl.pop().expect("no more answers than requests")?;
        assert_eq!(words[3], 0, "XSA-216");
        Some(CtrlResponse::from_words(words))
    }

    /// Gives all of it back.
    pub fn end(self, domain: &Domain, events: &mut dyn EventChannels) {
        let Self { queues, event, ring, lists, .. } = self;
        for Queue { rings, .. } in queues {
            events.close(rings.tx_event);
            events.close(rings.rx_event);
            domain.release(rings.tx_ring);
            domain.release(rings.rx_ring);
        }
        events.close(event);
        domain.release(ring);
        for list in lists {
            domain.release(list);
        }
    }
}

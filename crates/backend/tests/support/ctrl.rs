//! A control ring by hand, and frames whose hashes are published.

use super::PROMPT;
use super::hostile::Hostile;
use super::rings::Rings;
use grantway_hypervisor::{Access, FrontendPlatform, GrantRef, Granted, Port};
use grantway_netif::ctrl::{CtrlRequest, CtrlResponse, GrefEntry, HashTypes, Message, Status};
use grantway_ring::{Front, RingPage};
use std::net::Ipv4Addr;
use std::time::Instant;

/// The key of Microsoft's RSS verification vectors.
pub const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

type Station = (&'static str, u16);

/// Source, destination, hash of the addresses, hash of addresses and TCP ports.
pub const VECTORS: [(Station, Station, u32, u32); 5] = [
    (("66.9.149.187", 2794), ("161.142.100.80", 1766), 0x323e_8fc2, 0x51cc_c178),
    (("199.92.111.2", 14230), ("65.69.140.83", 4739), 0xd718_262a, 0xc626_b0ea),
    (("24.19.198.95", 12898), ("12.22.207.184", 38024), 0xd2d0_a5de, 0x5c2b_394a),
    (("38.27.205.30", 48228), ("209.142.163.6", 2217), 0x8298_9176, 0xafc7_327f),
    (("153.39.163.191", 44251), ("202.188.127.2", 1303), 0x5d18_09c5, 0x10e8_28a2),
];

/// A frame of a vector, of TCP or UDP.
pub fn frame_of(vector: usize, protocol: u8) -> Vec<u8> {
    let (from, to, ..) = VECTORS[vector];
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, 0, 46, 0, 1, 0, 0, 64, protocol, 0, 0]);
    for (address, _) in [from, to] {
        frame.extend(address.parse::<Ipv4Addr>().unwrap().octets());
    }
    for (_, port) in [from, to] {
        frame.extend(port.to_be_bytes());
    }
    frame.resize(60, 0);
    frame
}

pub struct CtrlRing {
    pub page: Granted,
    pub front: Front<RingPage<4>, 4>,
    pub event: Port,
}

impl CtrlRing {
    /// Makes one and publishes it; to be connected with the queues.
    pub fn publish(guest: &mut Hostile) -> Self {
        let page = guest.domain.grant(guest.backend, 1, Access::ReadWrite).unwrap();
        let event = guest.events.alloc_unbound(guest.backend).unwrap();
        guest.key("ctrl-ring-ref", &page.grefs[0].to_string());
        guest.key("event-channel-ctrl", &event.to_string());
        let front = Front::init(RingPage::new(page.run.page(0).unwrap()));
        Self { page, front, event }
    }

    pub fn memory(&self) -> &RingPage<4> {
        self.front.memory()
    }

    /// Puts requests, without a signal.
    pub fn put(&mut self, requests: &[CtrlRequest]) {
        for request in requests {
            self.front.push(request.to_words()).unwrap();
        }
        let _ = self.front.publish();
    }

    /// Returns the answers to `count` requests, in their order.
    #[track_caller]
    pub fn answers(&mut self, guest: &mut Hostile, count: usize) -> Vec<CtrlResponse> {
        let mut answers = Vec::new();
        let start = Instant::now();
        while answers.len() < count {
            while let Some((_, words)) = self.front.pop().unwrap() {
                assert_eq!(words[3], 0, "XSA-216");
                answers.push(CtrlResponse::from_words(words));
            }
            assert!(
                start.elapsed() < PROMPT,
                "{} answers, expected {count}; the backend says {:?}",
                answers.len(),
                guest.backend_key("error"),
            );
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        answers
    }

    /// Asks and waits: the answers' statuses and data.
    #[track_caller]
    pub fn ask_all(
        &mut self,
        guest: &mut Hostile,
        messages: &[Message],
    ) -> Vec<Result<u32, Status>> {
        let requests: Vec<_> =
            (7000..).zip(messages).map(|(id, message)| message.request(id)).collect();
        self.put(&requests);
        guest.kick(self.event);
        let answers = self.answers(guest, messages.len());
        for (answer, request) in answers.iter().zip(&requests) {
            assert_eq!((answer.id, answer.kind), (request.id, request.kind));
        }
        let done = |answer: &CtrlResponse| match answer.status().unwrap() {
            Status::Success => Ok(answer.data),
            status => Err(status),
        };
        answers.iter().map(done).collect()
    }

    #[track_caller]
    pub fn ask(&mut self, guest: &mut Hostile, message: Message) -> Result<u32, Status> {
        self.ask_all(guest, &[message])[0]
    }

    /// Sets the published key, every type, and a table.
    #[track_caller]
    pub fn set_hash(&mut self, guest: &mut Hostile, table: &[u32]) {
        let (_key, key) = words_page(guest, &[]);
        _key.run.page(0).unwrap().write(0, &KEY).unwrap();
        let (_table, gref) = words_page(guest, table);
        let entries = table.len() as u32;
        let done = self.ask_all(
            guest,
            &[
                Message::SetHashAlgorithm { algorithm: 1 },
                Message::SetHashFlags { types: HashTypes::all() },
                Message::SetHashKey { gref: key.0, bytes: 40 },
                Message::SetHashMappingSize { entries },
                Message::SetHashMapping { gref: gref.0, entries, offset: 0 },
            ],
        );
        assert_eq!(done, [Ok(0); 5]);
    }
}

/// A control ring, and a page for lists of what is to be staged.
pub struct Lists {
    pub ring: CtrlRing,
    pub page: Granted,
}

impl Lists {
    /// Publishes a ring and connects a guest of one queue.
    #[track_caller]
    pub fn connect(guest: &mut Hostile) -> (Self, Rings) {
        Self::connect_as(guest, &[])
    }

    /// And with other keys than a stock frontend's.
    #[track_caller]
    pub fn connect_as(guest: &mut Hostile, keys: &[(&str, &str)]) -> (Self, Rings) {
        let ring = CtrlRing::publish(guest);
        let page = guest.pages(1, Access::ReadWrite);
        (Self { ring, page }, guest.connect_as(keys))
    }

    pub fn write(&self, entries: &[GrefEntry]) {
        let words = entries.iter().flat_map(|entry| entry.to_words());
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        self.page.run.page(0).unwrap().write(0, &bytes).unwrap();
    }

    pub fn statuses(&self, count: usize) -> Vec<u16> {
        let mut bytes = vec![0; count * 8];
        self.page.run.page(0).unwrap().read(0, &mut bytes).unwrap();
        let (entries, _) = bytes.as_chunks::<8>();
        entries.iter().map(|entry| u16::from_le_bytes([entry[6], entry[7]])).collect()
    }

    pub fn to_add(&self, queue: u32, entries: &[GrefEntry]) -> Message {
        self.write(entries);
        let (list, entries) = (self.page.grefs[0].0, entries.len() as u32);
        Message::AddGrefMapping { queue, list, entries }
    }

    pub fn to_del(&self, queue: u32, entries: &[GrefEntry]) -> Message {
        self.write(entries);
        let (list, entries) = (self.page.grefs[0].0, entries.len() as u32);
        Message::DelGrefMapping { queue, list, entries }
    }

    #[track_caller]
    pub fn add(&mut self, guest: &mut Hostile, entries: &[GrefEntry]) -> Result<u32, Status> {
        let message = self.to_add(0, entries);
        self.ring.ask(guest, message)
    }

    #[track_caller]
    pub fn del(&mut self, guest: &mut Hostile, entries: &[GrefEntry]) -> Result<u32, Status> {
        let message = self.to_del(0, entries);
        self.ring.ask(guest, message)
    }
}

/// A read-only page that holds these words.
pub fn words_page(guest: &Hostile, words: &[u32]) -> (Granted, GrantRef) {
    let page = guest.pages(1, Access::ReadOnly);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    page.run.page(0).unwrap().write(0, &bytes).unwrap();
    let gref = page.grefs[0];
    (page, gref)
}

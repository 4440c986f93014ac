//! A change of the hash, request by request. Each request is sent when the one before is answered:
//! all requests use one page, and the next one depends on the backend's answer.
//!
//! The types are set last. If nothing was hashed before, nothing is hashed until all is set. If the
//! backend refuses a request, the change ends, and hashing is switched off.

use super::Ticket;
use alloc::vec::Vec;
use grantway_netif::ctrl::{HASH_MAPPING_ENTRIES, HashTypes, Message, Status, algorithm};
use grantway_netif::toeplitz::KEY_BYTES;
use grantway_ring::SharedPage;

/// Wish for the backend to hash frames by Toeplitz (netif.h), and to choose queues by the hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashWish {
    /// Types of packets that are hashed. The most specific type that fits a frame is used.
    pub types: HashTypes,
    /// The key. A sender that knows the key can choose frames that all go to one queue.
    pub key: [u8; KEY_BYTES],
    /// Queue for each remainder of the hash divided by the length of this table. With an empty
    /// table, the queue is the remainder of the division by the number of queues.
    pub mapping: Vec<u16>,
}

/// State of a change of the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashState {
    /// There is no wish. The backend chooses the queues.
    Unset,
    /// The change waits for the vif to be connected.
    Waiting,
    /// The change is under way.
    Setting,
    /// The wish is in force.
    Set,
    /// The backend has no control ring.
    NoRing,
    /// The change is not possible. The backend chooses the queues.
    Refused(HashRefusal),
}

/// Reason why a change of the hash cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HashRefusal {
    /// The backend refused a request.
    #[error("the backend refused to {what}: {status:?}")]
    Request {
        /// The request, as a verb.
        what: &'static str,
        /// The backend's answer.
        status: Status,
    },
    /// The backend cannot calculate some types.
    #[error("the backend hashes types {offered:?}, asked were {asked:?}")]
    Types {
        /// Types that were asked for.
        asked: HashTypes,
        /// Types that the backend can calculate.
        offered: HashTypes,
    },
    /// The table is longer than the backend accepts.
    #[error("the backend takes a table of {most} entries, asked were {asked}")]
    Mapping {
        /// Entries that were asked for.
        asked: usize,
        /// The most entries that the backend accepts.
        most: u32,
    },
    /// The table names a queue that the vif does not have.
    #[error("the table names queue {found}, and the vif has {queues}, counted from 0")]
    Queue {
        /// The queue.
        found: u16,
        /// Queues of the vif.
        queues: u16,
    },
}

/// The next request, or the one that is not answered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Rest,
    Algorithm,
    Offer,
    Key,
    Most,
    Size,
    /// The table from this entry on.
    Part(usize),
    Types,
    /// Hashing is switched off, for this reason if any.
    Off(Option<HashRefusal>),
}

/// A change of the hash.
pub(super) struct HashChange {
    queues: u16,
    step: Step,
    wish: Option<HashWish>,
    /// The wish after the change that is under way.
    next: Option<Option<HashWish>>,
    waiting: Option<Ticket>,
    state: HashState,
}

impl HashChange {
    pub fn new(queues: u16) -> Self {
        let (step, state) = (Step::Rest, HashState::Unset);
        Self { queues, step, wish: None, next: None, waiting: None, state }
    }

    pub fn want(&mut self, wish: Option<HashWish>) {
        self.next = Some(wish);
        self.state = HashState::Setting;
    }

    pub fn state(&self) -> HashState {
        match self.next {
            Some(_) => HashState::Setting,
            None => self.state,
        }
    }

    pub fn is_waiting_for(&self, ticket: Ticket) -> bool {
        self.waiting == Some(ticket)
    }

    /// Notes that the request of [`HashChange::next_message`] was sent.
    pub fn asked(&mut self, ticket: Ticket) {
        self.waiting = Some(ticket);
    }

    /// Returns the next request, if one is to be sent now. `page` gets the data of the request.
    pub fn next_message(&mut self, page: &SharedPage, gref: u32) -> Option<Message> {
        if self.waiting.is_some() {
            return None;
        }
        if self.step == Step::Rest {
            self.wish = self.next.take()?;
            self.step = self.first_step();
        }
        let wish = self.wish.as_ref();
        let mapping = wish.map_or(&[][..], |wish| &wish.mapping);
        // Data goes to the page first, so that it is there before the request.
        Some(match self.step {
            Step::Rest => return None,
            Step::Algorithm => Message::SetHashAlgorithm { algorithm: algorithm::TOEPLITZ.into() },
            Step::Offer => Message::GetHashFlags,
            Step::Key => {
                // A key fits a page.
                let _ = page.write(0, &wish?.key);
                Message::SetHashKey { gref, bytes: KEY_BYTES as u32 }
            }
            Step::Most => Message::GetHashMappingSize,
            // The backend said that it accepts as many entries.
            Step::Size => Message::SetHashMappingSize { entries: mapping.len() as u32 },
            Step::Part(at) => {
                let part = mapping.get(at..)?;
                let part = part.get(..HASH_MAPPING_ENTRIES).unwrap_or(part);
                for (place, &queue) in part.iter().enumerate() {
                    let _ = page.write(place * 4, &u32::from(queue).to_le_bytes());
                }
                Message::SetHashMapping { gref, entries: part.len() as u32, offset: at as u32 }
            }
            Step::Types => Message::SetHashFlags { types: wish?.types },
            Step::Off(_) => Message::SetHashAlgorithm { algorithm: algorithm::NONE.into() },
        })
    }

    fn first_step(&self) -> Step {
        let Some(wish) = &self.wish else { return Step::Off(None) };
        match wish.mapping.iter().find(|&&queue| queue >= self.queues) {
            Some(&found) => Step::Off(Some(HashRefusal::Queue { found, queues: self.queues })),
            None => Step::Algorithm,
        }
    }

    /// Takes in the answer to the request that was sent, and chooses the next step.
    pub fn answered(&mut self, result: Result<u32, Status>) {
        self.waiting = None;
        self.step = match (self.step, result) {
            (Step::Off(None), Err(status)) => {
                let what = "switch hashing off";
                self.ended(HashState::Refused(HashRefusal::Request { what, status }))
            }
            (Step::Off(refusal), _) => {
                self.ended(refusal.map_or(HashState::Unset, HashState::Refused))
            }
            (step, Err(status)) => {
                Step::Off(Some(HashRefusal::Request { what: step.what(), status }))
            }
            (step, Ok(data)) => self.follows(step, data),
        };
    }

    fn ended(&mut self, state: HashState) -> Step {
        self.state = state;
        Step::Rest
    }

    fn follows(&mut self, step: Step, data: u32) -> Step {
        let Some(wish) = &self.wish else { return Step::Off(None) };
        let asked = wish.mapping.len();
        match step {
            Step::Rest | Step::Off(_) => step,
            Step::Algorithm => Step::Offer,
            Step::Offer => {
                let offered = HashTypes::from_bits_truncate(data);
                match offered.contains(wish.types) {
                    true => Step::Key,
                    false => Step::Off(Some(HashRefusal::Types { asked: wish.types, offered })),
                }
            }
            Step::Key if asked == 0 => Step::Size,
            Step::Key => Step::Most,
            Step::Most if asked > data as usize => {
                Step::Off(Some(HashRefusal::Mapping { asked, most: data }))
            }
            Step::Most => Step::Size,
            Step::Size if asked == 0 => Step::Types,
            Step::Size => Step::Part(0),
            Step::Part(at) if at + HASH_MAPPING_ENTRIES < asked => {
                Step::Part(at + HASH_MAPPING_ENTRIES)
            }
            Step::Part(_) => Step::Types,
            Step::Types => self.ended(HashState::Set),
        }
    }
}

impl Step {
    fn what(self) -> &'static str {
        match self {
            Self::Rest => "do nothing",
            Self::Algorithm => "hash by Toeplitz",
            Self::Offer => "tell what it can hash",
            Self::Key => "take the key",
            Self::Most => "tell how long a table it takes",
            Self::Size => "make the table",
            Self::Part(_) => "fill the table",
            Self::Types => "take the types",
            Self::Off(_) => "switch hashing off",
        }
    }
}

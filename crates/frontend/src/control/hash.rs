//! A change of the hash, request by request: each is made once the one before is
//! answered, since they use one page, and what comes next depends on what the
//! backend can.
//!
//! The types come last, so that where nothing was hashed before nothing is until
//! all is set. A change that is refused under way switches hashing off.

use super::Ticket;
use alloc::vec::Vec;
use grantway_netif::ctrl::{HASH_MAPPING_ENTRIES, HashTypes, Message, Status, algorithm};
use grantway_netif::toeplitz::KEY_BYTES;
use grantway_ring::SharedPage;

/// How the backend is to hash frames by Toeplitz, and where they are to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashWish {
    /// What is hashed; the most specific type that fits a frame wins.
    pub types: HashTypes,
    /// The key. Whoever knows it can choose frames that all go to one queue.
    pub key: [u8; KEY_BYTES],
    /// The queue for each remainder of the hash by this table's length; where it
    /// is empty the queue is the remainder by the number of queues.
    pub mapping: Vec<u16>,
}

/// How a change of the hash stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashState {
    /// The backend steers as it likes.
    Unset,
    /// Wished for, and to be set once the vif is connected.
    Waiting,
    /// Under way.
    Setting,
    /// In force.
    Set,
    /// The backend has no control ring.
    NoRing,
    /// It cannot be; the backend steers as it likes.
    Refused(HashRefusal),
}

/// Why a change of the hash cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HashRefusal {
    /// The backend refused a request.
    #[error("the backend refused to {what}: {status:?}")]
    Request {
        /// What was asked.
        what: &'static str,
        /// Its answer.
        status: Status,
    },
    /// The backend cannot calculate some types.
    #[error("the backend hashes types {offered:?}, asked were {asked:?}")]
    Types {
        /// What was asked for.
        asked: HashTypes,
        /// What it can.
        offered: HashTypes,
    },
    /// The table is longer than the backend takes.
    #[error("the backend takes a table of {most} entries, asked were {asked}")]
    Mapping {
        /// Entries that were asked for.
        asked: usize,
        /// The most that it takes.
        most: u32,
    },
    /// The table names a queue that the vif has not.
    #[error("the table names queue {found}, and the vif has {queues}, counted from 0")]
    Queue {
        /// The queue.
        found: u16,
        /// Queues of the vif.
        queues: u16,
    },
}

/// What is asked next, or is being asked.
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
    /// What comes behind the change that is under way.
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

    /// The request that [`HashChange::next_message`] gave is out.
    pub fn asked(&mut self, ticket: Ticket) {
        self.waiting = Some(ticket);
    }

    /// What is to be asked now, if anything; `page` gets what it points to.
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
            // The backend said that it takes as many.
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

    /// The request that was out is answered.
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

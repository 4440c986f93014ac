//! The journal: state of a queue that a successor needs if this process is killed. It is one page
//! per queue that outlives the process, and is written before the ring is. The first queue's page
//! also has the state of the vif.
//!
//! The ring alone does not have enough. It has the number of published responses, but not the
//! number of consumed requests, and a response overwrites its request. So before a request is acted
//! on, the journal notes that the request is consumed, and what its answer needs. Before responses
//! are published, the journal notes the index up to which they will be.
//!
//! A process is killed between two instructions, and everything that it wrote before is in memory.
//! So only the order of writes in the program counts, and the copies of [`SharedPage`] keep that
//! order.

mod layout;
mod staged;

pub use layout::JournalError;
pub(crate) use layout::{Boot, Layout};
pub(crate) use staged::StagedJournal;

use self::layout::LAYOUT_BYTES;
use crate::ids::CtrlRefs;
use crate::ids::LISTED_MAX;
use crate::ids::QueueRefs;
use grantway_hypervisor::{GrantRef, Port};
use grantway_netif::ctrl::HashTypes;
use grantway_netif::hashing::{Hashing, MAPPING_MAX};
use grantway_netif::rx::RxRequest;
use grantway_netif::toeplitz::KEY_BYTES;
use grantway_netif::tx::{TxResponse, status};
use grantway_ring::{PAGE_SIZE, SharedPage};

/// Slots of either ring.
const SLOTS: usize = 256;

const MAGIC: u32 = u32::from_le_bytes(*b"GWj1");
const AT_IDENTITY: usize = 4;
const AT_INTERFACE: usize = 56;
const AT_IN_SERVICE: usize = 60;
const AT_TRANSMIT: usize = 64;
const AT_RECEIVE: usize = 128;
const AT_MULTICAST: usize = 256;
const AT_CTRL: usize = 776;
const AT_CTRL_ANSWERED: usize = AT_CTRL + 12;
const AT_CTRL_ANSWER: usize = AT_CTRL + 16;
const AT_HASHING: usize = AT_CTRL + 28;
const AT_HASH_KEY: usize = AT_HASHING + 4;
const AT_HASH_MAPPING: usize = AT_HASH_KEY + KEY_BYTES;
const AT_LAYOUT: usize = 976;
const AT_TX_SLOTS: usize = 1024;
const AT_RX_SLOTS: usize = 2048;
const _: () = assert!(AT_MULTICAST + 4 + LISTED_MAX * 8 <= AT_CTRL);
const _: () = assert!(AT_HASH_MAPPING + MAPPING_MAX <= AT_LAYOUT);
const _: () = assert!(AT_LAYOUT + LAYOUT_BYTES <= AT_TX_SLOTS);
const _: () = assert!(AT_TX_SLOTS + SLOTS * 4 <= AT_RX_SLOTS);
const _: () = assert!(AT_RX_SLOTS + SLOTS * 8 <= PAGE_SIZE);

/// Mark of an extra in a transmit slot of the journal. An extra is answered without an id.
const EXTRA: u32 = 1 << 16;
/// Mark in a transmit slot, beside the id, of a request that changes the multicast list.
const CHANGE: u32 = 1 << 17;
/// Number in place of an event channel that does not exist.
const NONE: u32 = u32::MAX;

/// The memory of a journal. It is a trait so that tests can cut a run after any write.
pub(crate) trait JournalMemory: Send {
    /// Writes bytes at an offset of the page, in any steps. They must not count before a word says
    /// so.
    fn put(&self, offset: usize, bytes: &[u8]);
    /// Writes a word at an offset of the page that is a multiple of 4, in one step.
    fn put_word(&self, offset: usize, word: u32);
    /// Reads bytes at an offset of the page.
    fn get(&self, offset: usize, bytes: &mut [u8]);
}

impl JournalMemory for SharedPage {
    fn put(&self, offset: usize, bytes: &[u8]) {
        let done = self.write(offset, bytes);
        debug_assert!(done.is_ok(), "every offset is below a page by construction");
    }

    fn put_word(&self, offset: usize, word: u32) {
        let done = self.write_word(offset, word);
        debug_assert!(done.is_ok(), "every offset is below a page by construction");
    }

    fn get(&self, offset: usize, bytes: &mut [u8]) {
        let done = self.read(offset, bytes);
        debug_assert!(done.is_ok(), "every offset is below a page by construction");
    }
}

/// Returns the words that identify a journal: the refs that the frontend published for the queue.
fn identity_words(refs: QueueRefs) -> [u32; 4] {
    let rx_event = refs.rx_event.map_or(NONE, |port| port.0);
    [refs.tx_ring.0, refs.rx_ring.0, refs.tx_event.0, rx_event]
}

fn identity_of([tx_ring, rx_ring, tx_event, rx_event]: [u32; 4]) -> QueueRefs {
    QueueRefs {
        tx_ring: GrantRef(tx_ring),
        rx_ring: GrantRef(rx_ring),
        tx_event: Port(tx_event),
        rx_event: (rx_event != NONE).then_some(Port(rx_event)),
    }
}

/// One consumed guest transmit slot, as far as its answer needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TxOwed {
    /// A request, by its id.
    Request(u16),
    /// A request that changes the multicast list, by its id.
    Change(u16),
    /// An extra.
    Extra,
}

/// Bytes of a consumed guest transmit slot.
pub(crate) type TxOwedBytes = [u8; 4];

/// Bytes of a consumed guest receive request.
pub(crate) type RxOwedBytes = [[u8; 4]; 2];

/// Returns a consumed guest receive request as the journal has it.
#[inline]
pub(crate) fn rx_owed_bytes(request: RxRequest) -> RxOwedBytes {
    [u32::from(request.id).to_ne_bytes(), request.gref.to_ne_bytes()]
}

impl TxOwed {
    /// Marks a request as one that changes the multicast list. Returns an extra as it is.
    pub fn changing(self) -> Self {
        match self {
            Self::Request(id) => Self::Change(id),
            other => other,
        }
    }

    /// Returns the slot as the journal has it.
    #[inline]
    pub fn to_bytes(self) -> TxOwedBytes {
        match self {
            Self::Request(id) => u32::from(id),
            Self::Change(id) => CHANGE | u32::from(id),
            Self::Extra => EXTRA,
        }
        .to_ne_bytes()
    }

    /// Returns the response that answers the slot.
    #[inline]
    pub fn response(self, status: i16) -> TxResponse {
        match self {
            Self::Request(id) | Self::Change(id) => TxResponse { id, status },
            Self::Extra => TxResponse::NULL,
        }
    }
}

impl From<TxResponse> for TxOwed {
    #[inline]
    fn from(response: TxResponse) -> Self {
        match response.status {
            status::NULL => Self::Extra,
            _ => Self::Request(response.id),
        }
    }
}

/// Indices of one ring at the time when its process was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Indices {
    /// Requests consumed.
    consumed: u32,
    /// Responses published before the last publication, and after it. The ring shows one of the
    /// two, or it was tampered with.
    published: [u32; 2],
}

/// The state from which a successor takes a ring up: requests consumed, responses published, and
/// the answers owed in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resume<T> {
    /// Requests consumed.
    pub consumed: u32,
    /// Responses published, as the ring shows.
    pub published: u32,
    /// The consumed and unanswered slots, in ring order.
    pub owed: Vec<T>,
}

/// The state from which a successor takes the control ring up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CtrlResume {
    /// Requests that were answered.
    pub answered: u32,
    /// The words of the last answer, if the ring does not show it yet.
    pub owed: Option<[u32; 3]>,
}

/// The journal does not fit the state of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the ring shows {found} responses published, and the journal allows {} or {}",
    allowed[0], allowed[1]
)]
pub struct Tampered {
    /// Responses published, as the ring shows.
    pub found: u32,
    /// Responses published before the last publication, and after it.
    pub allowed: [u32; 2],
}

/// The journal of one queue.
pub(crate) struct Journal<J = SharedPage> {
    memory: J,
}

impl<J: JournalMemory> Journal<J> {
    /// Makes a journal in this page, whatever the page holds.
    pub fn new(memory: J) -> Self {
        Self { memory }
    }

    fn word(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        self.memory.get(at, &mut bytes);
        u32::from_ne_bytes(bytes)
    }

    fn set_word(&self, at: usize, value: u32) {
        self.memory.put_word(at, value);
    }

    /// Notes that the vif has this interface behind it, by its index, or 0 for none. That holds
    /// whether or not the vif is connected, and as long as the machine runs.
    pub fn opened(&self, interface: u32, boot: Boot) {
        self.claim();
        for (at, word) in Layout::ours(boot).words().into_iter().enumerate() {
            self.set_word(AT_LAYOUT + 4 * at, word);
        }
        self.set_word(AT_INTERFACE, interface);
    }

    /// Returns the layout of the vif's pages, or `None` if this page is no journal.
    pub fn layout(&self) -> Option<Layout> {
        let word = |at| self.word(AT_LAYOUT + 4 * at);
        (self.word(0) == MAGIC).then(|| Layout::of(std::array::from_fn(word)))
    }

    /// Returns the index of the interface behind the vif, whatever its name is by now, or 0 for
    /// none.
    pub fn interface(&self) -> u32 {
        if self.word(0) == MAGIC { self.word(AT_INTERFACE) } else { 0 }
    }

    /// Notes the multicast addresses that the vif's guest listed, at most [`LISTED_MAX`].
    pub fn set_multicast(&self, addresses: &[[u8; 6]]) {
        // A cut loses no address that was listed before and is listed now. A new address is written
        // before it counts. For a removed one, the last address is written in its place, and counts
        // in its old place, too, until the count is written.
        for (n, &[a, b, c, d, e, f]) in addresses.iter().take(LISTED_MAX).enumerate() {
            let words = [[a, b, c, d], [e, f, 0, 0]].map(u32::from_ne_bytes);
            for (at, word) in (AT_MULTICAST + 4 + 8 * n..).step_by(4).zip(words) {
                if self.word(at) != word {
                    self.set_word(at, word);
                }
            }
        }
        self.set_word(AT_MULTICAST, addresses.len().min(LISTED_MAX) as u32);
    }

    /// Returns the multicast addresses that the vif's guest listed.
    pub fn multicast(&self) -> Vec<[u8; 6]> {
        let count = (self.word(AT_MULTICAST) as usize).min(LISTED_MAX);
        let address = |n| {
            let mut address = [0; 6];
            self.memory.get(AT_MULTICAST + 4 + 8 * n, &mut address);
            address
        };
        (0..count).map(address).collect()
    }

    /// Begins a connection with this control ring and the index of its answers, or with none. To be
    /// called before [`Journal::begin`].
    pub fn begin_ctrl(&self, ctrl: Option<(CtrlRefs, u32)>) {
        self.set_word(AT_CTRL, 0);
        if let Some((refs, answered)) = ctrl {
            self.set_word(AT_CTRL + 4, refs.ring.0);
            self.set_word(AT_CTRL + 8, refs.event.0);
            self.set_word(AT_CTRL_ANSWERED, answered);
            self.set_word(AT_CTRL, 1);
        }
    }

    /// Returns the control ring of the connection, if it has one.
    pub fn ctrl(&self) -> Option<CtrlRefs> {
        let (ring, event) = (self.word(AT_CTRL + 4), self.word(AT_CTRL + 8));
        (self.word(AT_CTRL) == 1).then_some(CtrlRefs { ring: GrantRef(ring), event: Port(event) })
    }

    /// Notes that the request before this index is answered by these words. There is one answer at
    /// a time: the one before is published by now.
    pub fn ctrl_answered(&self, index: u32, words: [u32; 3]) {
        for (at, word) in words.into_iter().enumerate() {
            self.set_word(AT_CTRL_ANSWER + 4 * at, word);
        }
        self.set_word(AT_CTRL_ANSWERED, index);
    }

    /// Returns the number of control requests that were answered.
    pub fn ctrl_index(&self) -> u32 {
        self.word(AT_CTRL_ANSWERED)
    }

    /// Returns the state from which to take the control ring up, if the ring shows `published`.
    ///
    /// # Errors
    ///
    /// [`Tampered`], if the ring shows another index than the journal allows.
    pub fn resume_ctrl(&self, published: u32) -> Result<CtrlResume, Tampered> {
        let answered = self.ctrl_index();
        let answer = || std::array::from_fn(|at| self.word(AT_CTRL_ANSWER + 4 * at));
        match answered.wrapping_sub(published) {
            0 => Ok(CtrlResume { answered, owed: None }),
            1 => Ok(CtrlResume { answered, owed: Some(answer()) }),
            _ => Err(Tampered { found: published, allowed: [answered.wrapping_sub(1), answered] }),
        }
    }

    /// Notes the hash settings of the vif's guest. After a cut each entry is the old or the new
    /// one, and the request that is not answered yet is served again.
    pub fn set_hashing(&self, hashing: &Hashing) {
        let mut mapping = [0; MAPPING_MAX];
        for (entry, &queue) in mapping.iter_mut().zip(hashing.mapping()) {
            // A queue's number fits a byte: no vif has so many queues.
            *entry = queue as u8;
        }
        // Each of the two fits a byte: four types, at most 128 entries.
        let (types, size) = (hashing.types().bits() as u8, hashing.mapping().len() as u8);
        self.memory.put(AT_HASH_KEY, hashing.key());
        self.memory.put(AT_HASH_MAPPING, &mapping);
        self.set_word(AT_HASHING, u32::from_ne_bytes([hashing.algorithm(), types, size, 0]));
    }

    /// Returns the hash settings of the guest of a vif with `queues` queues.
    pub fn hashing(&self, queues: u16) -> Hashing {
        let (mut head, mut key, mut mapping) = ([0; 4], [0; KEY_BYTES], [0; MAPPING_MAX]);
        self.memory.get(AT_HASHING, &mut head);
        self.memory.get(AT_HASH_KEY, &mut key);
        self.memory.get(AT_HASH_MAPPING, &mut mapping);
        let [algorithm, types, size, _] = head;
        let mut hashing = Hashing::new(queues);
        let part: Vec<u32> = mapping.iter().take(size.into()).map(|&q| q.into()).collect();
        // A setting that is refused stays unset, as if the guest had not made it yet. The types are
        // set before the algorithm goes.
        let _ = hashing.set_algorithm(1);
        let _ = hashing.set_types(HashTypes::from_bits_retain(types.into()));
        let _ = hashing.set_algorithm(algorithm.into());
        let _ = hashing.set_key(&key);
        let _ = hashing.set_mapping_size(size.into());
        let _ = hashing.set_mapping(0, &part);
        hashing
    }

    /// Makes the page a journal, if it is not one yet.
    fn claim(&self) {
        if self.word(0) != MAGIC {
            self.set_word(AT_IN_SERVICE, 0);
            self.set_word(AT_INTERFACE, 0);
            self.set_word(0, MAGIC);
        }
    }

    /// Begins a connection whose rings stand at these indices.
    pub fn begin(&self, refs: QueueRefs, transmit: u32, receive: u32) {
        self.claim();
        self.set_word(AT_IN_SERVICE, 0);
        for (at, word) in identity_words(refs).into_iter().enumerate() {
            self.set_word(AT_IDENTITY + 4 * at, word);
        }
        for (base, index) in [(AT_TRANSMIT, transmit), (AT_RECEIVE, receive)] {
            for at in 0..3 {
                self.set_word(base + 4 * at, index);
            }
        }
        self.set_word(AT_IN_SERVICE, 1);
    }

    /// Ends a connection: no successor may take it up any more.
    pub fn end(&self) {
        self.set_word(AT_IN_SERVICE, 0);
    }

    /// Returns the refs that identify the journal's queue, if a connection was in service.
    pub fn identity(&self) -> Option<QueueRefs> {
        let in_service = self.word(0) == MAGIC && self.word(AT_IN_SERVICE) == 1;
        let words = std::array::from_fn(|at| self.word(AT_IDENTITY + 4 * at));
        in_service.then(|| identity_of(words))
    }

    /// Notes that these guest transmit slots are consumed, from index `first` on, at most a ring of
    /// them.
    #[inline]
    pub fn tx_consumed(&self, first: u32, slots: &[TxOwedBytes]) {
        self.put_slots(AT_TX_SLOTS, size_of::<TxOwedBytes>(), first, slots.as_flattened());
        self.set_word(AT_TRANSMIT, first.wrapping_add(slots.len() as u32));
    }

    /// Notes that these guest receive requests are consumed, from index `first` on, at most a ring
    /// of them.
    #[inline]
    pub fn rx_consumed(&self, first: u32, requests: &[RxOwedBytes]) {
        self.put_slots(
            AT_RX_SLOTS,
            size_of::<RxOwedBytes>(),
            first,
            requests.as_flattened().as_flattened(),
        );
        self.set_word(AT_RECEIVE, first.wrapping_add(requests.len() as u32));
    }

    /// Writes the bytes of slots, in two stretches if they go past the end of the ring.
    #[inline(always)]
    fn put_slots(&self, base: usize, size: usize, first: u32, bytes: &[u8]) {
        let at = first as usize % SLOTS;
        let (here, behind) = bytes.split_at(bytes.len().min((SLOTS - at) * size));
        self.memory.put(base + size * at, here);
        if !behind.is_empty() {
            self.memory.put(base, behind);
        }
    }

    /// Notes that guest transmit responses are about to be published up to `to`.
    pub fn tx_publishing(&self, from: u32, to: u32) {
        self.publishing(AT_TRANSMIT, from, to);
    }

    /// Notes that guest receive responses are about to be published up to `to`.
    pub fn rx_publishing(&self, from: u32, to: u32) {
        self.publishing(AT_RECEIVE, from, to);
    }

    fn publishing(&self, base: usize, from: u32, to: u32) {
        // The ring shows `from` until both words are written.
        self.set_word(base + 4, from);
        self.set_word(base + 8, to);
    }

    fn indices(&self, base: usize) -> Indices {
        Indices { consumed: self.word(base), published: [self.word(base + 4), self.word(base + 8)] }
    }

    /// Returns the state from which to take the guest transmit ring up, if the ring shows
    /// `published`.
    ///
    /// # Errors
    ///
    /// [`Tampered`], if the ring shows another index than the journal allows.
    pub fn resume_transmit(&self, published: u32) -> Result<Resume<TxOwed>, Tampered> {
        self.resume(AT_TRANSMIT, published, |index| {
            match self.word(AT_TX_SLOTS + 4 * (index as usize % SLOTS)) {
                EXTRA => TxOwed::Extra,
                id if id & CHANGE != 0 => TxOwed::Change(id as u16),
                id => TxOwed::Request(id as u16),
            }
        })
    }

    /// Returns the state from which to take the guest receive ring up, if the ring shows
    /// `published`.
    ///
    /// # Errors
    ///
    /// [`Tampered`], if the ring shows another index than the journal allows.
    pub fn resume_receive(&self, published: u32) -> Result<Resume<RxRequest>, Tampered> {
        self.resume(AT_RECEIVE, published, |index| {
            let at = AT_RX_SLOTS + 8 * (index as usize % SLOTS);
            RxRequest { id: self.word(at) as u16, gref: self.word(at + 4) }
        })
    }

    fn resume<T>(
        &self,
        base: usize,
        published: u32,
        slot: impl Fn(u32) -> T,
    ) -> Result<Resume<T>, Tampered> {
        let indices = self.indices(base);
        let owed = indices.consumed.wrapping_sub(published);
        if !indices.published.contains(&published) || owed as usize > SLOTS {
            return Err(Tampered { found: published, allowed: indices.published });
        }
        let owed = (0..owed).map(|n| slot(published.wrapping_add(n))).collect();
        Ok(Resume { consumed: indices.consumed, published, owed })
    }
}

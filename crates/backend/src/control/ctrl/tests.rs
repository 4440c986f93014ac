//! The control ring without a platform: random requests against a model of plain lists, and a kill
//! after every single write.

mod staging;

use super::Ctrl;
use super::messages::Pages;
use crate::journal::{Journal, JournalMemory};
use crate::policy::StagedTable;
use crate::state::shared::Shared;
use crate::state::trace::Tap;
use grantway_hypervisor::{Error, GrantRef};
use grantway_netif::ctrl::{
    CtrlRequest, CtrlResponse, GrefEntry, Message, Status, check_added, kind,
};
use grantway_netif::hashing::{Hashing, MAPPING_MAX};
use grantway_ring::{Front, Index, PAGE_SIZE, RingMemory, SharedPage, SharedRun};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

const SLOTS: u32 = 128;
const QUEUES: u16 = 3;
/// Grants that a table holds.
const CAPACITY: u32 = 600;
/// Reference of a page that a packet in flight uses.
const BUSY: u32 = 11;

#[derive(Clone)]
struct Memory {
    indices: [u32; 4],
    slots: Vec<[u32; 4]>,
    journal: Vec<u8>,
}

#[derive(Clone)]
enum Write {
    Slot(u32, [u32; 4]),
    Index(usize, u32),
    Journal(usize, Vec<u8>),
}

impl Memory {
    fn new() -> Self {
        let slots = vec![[0; 4]; SLOTS as usize];
        Self { indices: [0; 4], slots, journal: vec![0; PAGE_SIZE] }
    }

    fn apply(&mut self, write: &Write) {
        match write {
            Write::Slot(index, words) => self.slots[(index % SLOTS) as usize] = *words,
            Write::Index(which, value) => self.indices[*which] = *value,
            Write::Journal(at, bytes) => {
                self.journal[*at..*at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

/// Memory and the log of all writes to it, shared by its users.
#[derive(Clone)]
struct Logged(Arc<Mutex<(Memory, Vec<Write>)>>);

impl Logged {
    fn over(memory: Memory) -> Self {
        Self(Arc::new(Mutex::new((memory, Vec::new()))))
    }

    fn write(&self, write: Write) {
        let mut inner = self.0.lock().unwrap();
        inner.0.apply(&write);
        inner.1.push(write);
    }

    fn memory(&self) -> Memory {
        self.0.lock().unwrap().0.clone()
    }
}

impl RingMemory<4> for Logged {
    fn slots(&self) -> u32 {
        SLOTS
    }

    fn load(&self, index: Index) -> u32 {
        self.0.lock().unwrap().0.indices[place(index)]
    }

    fn store(&self, index: Index, value: u32) {
        self.write(Write::Index(place(index), value));
    }

    fn read_slot(&self, index: u32) -> [u32; 4] {
        self.0.lock().unwrap().0.slots[(index % SLOTS) as usize]
    }

    fn write_slot(&self, index: u32, words: [u32; 4]) {
        self.write(Write::Slot(index, words));
    }

    fn clear(&self) {
        *self.0.lock().unwrap() = (Memory::new(), Vec::new());
    }
}

impl JournalMemory for Logged {
    fn put(&self, offset: usize, bytes: &[u8]) {
        for (at, &byte) in (offset..).zip(bytes) {
            self.write(Write::Journal(at, vec![byte]));
        }
    }

    fn put_word(&self, offset: usize, word: u32) {
        assert!(offset.is_multiple_of(4), "{offset}: no single store");
        self.write(Write::Journal(offset, word.to_ne_bytes().to_vec()));
    }

    fn get(&self, offset: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0.lock().unwrap().0.journal[offset..offset + bytes.len()]);
    }
}

fn place(index: Index) -> usize {
    match index {
        Index::ReqProd => 0,
        Index::ReqEvent => 1,
        Index::RspProd => 2,
        Index::RspEvent => 3,
    }
}

/// The guest's pages: for each, true if it may be written, and its bytes.
#[derive(Default, Clone)]
struct Granted(BTreeMap<u32, (bool, SharedRun)>);

impl Granted {
    fn put(&mut self, gref: u32, writable: bool, words: &[u32]) {
        let run = SharedRun::private(1);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        run.page(0).unwrap().write(0, &bytes).unwrap();
        self.0.insert(gref, (writable, run));
    }

    fn words(&self, gref: u32, count: usize) -> Vec<u32> {
        let mut bytes = vec![0; count * 4];
        self.0[&gref].1.page(0).unwrap().read(0, &mut bytes).unwrap();
        bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
    }
}

impl Pages for Granted {
    fn read(&self, gref: GrantRef, bytes: &mut [u8]) -> Result<bool, Error> {
        assert!(bytes.len() <= PAGE_SIZE, "more than a page");
        let page = self.0.get(&gref.0).map(|(_, run)| run.page(0).unwrap());
        Ok(bytes.is_empty() || page.is_some_and(|page| page.read(0, bytes).is_ok()))
    }

    fn map(&self, gref: GrantRef) -> Result<Option<SharedPage>, Error> {
        let page = self.0.get(&gref.0).filter(|(writable, _)| *writable);
        Ok(page.and_then(|(_, run)| run.page(0)))
    }
}

/// References that are staged on the queues of a vif.
type Staged = Arc<Mutex<Vec<BTreeSet<u32>>>>;

struct Table {
    number: usize,
    staged: Staged,
}

impl StagedTable for Table {
    fn capacity(&self) -> Result<u32, Status> {
        Ok(CAPACITY)
    }

    fn add(&mut self, _: u32, entries: &[GrefEntry]) -> Result<(), Status> {
        assert!((1..=512).contains(&entries.len()));
        check_added(entries, GrantRef::FIRST_FREE).map_err(|_| Status::InvalidParameter)?;
        let mut all = self.staged.lock().unwrap();
        let known = |entry: &GrefEntry| all.iter().any(|queue| queue.contains(&entry.gref));
        if all[self.number].len() + entries.len() > CAPACITY as usize || entries.iter().any(known) {
            return Err(Status::InvalidParameter);
        }
        all[self.number].extend(entries.iter().map(|entry| entry.gref));
        Ok(())
    }

    fn del(&mut self, _: u32, entries: &mut [GrefEntry]) {
        let mut all = self.staged.lock().unwrap();
        for entry in entries {
            assert_eq!(entry.status, Status::InvalidParameter.to_u16());
            if entry.gref != BUSY && all[self.number].remove(&entry.gref) {
                entry.status = Status::Success.to_u16();
            }
        }
    }
}

fn tables(staged: &Staged) -> Vec<Box<dyn StagedTable>> {
    let table =
        |number| -> Box<dyn StagedTable> { Box::new(Table { number, staged: Arc::clone(staged) }) };
    (0..staged.lock().unwrap().len()).map(table).collect()
}

/// Model of the answers that the backend must give.
struct Model {
    hashing: Hashing,
    staging: bool,
    staged: Vec<BTreeSet<u32>>,
}

impl Model {
    fn answer(&mut self, request: CtrlRequest, pages: &mut Granted) -> Result<u32, Status> {
        let [first, second, third] = request.data;
        let invalid = Err(Status::InvalidParameter);
        let copied = |gref, count| {
            let there = count == 0 || pages.0.contains_key(&gref);
            there.then(|| if count == 0 { Vec::new() } else { pages.words(gref, count) })
        };
        match request.kind {
            kind::GET_HASH_FLAGS => self.hashing.offered().map(|types| types.bits()),
            kind::SET_HASH_FLAGS => {
                let Ok(Message::SetHashFlags { types }) = request.message() else { panic!() };
                self.hashing.set_types(types).map(|()| 0)
            }
            kind::SET_HASH_KEY if second > 40 => Err(Status::BufferOverflow),
            kind::SET_HASH_KEY => {
                let Some(words) = copied(first, second.div_ceil(4) as usize) else {
                    return invalid;
                };
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                self.hashing.set_key(&bytes[..second as usize]).map(|()| 0)
            }
            kind::GET_HASH_MAPPING_SIZE => Ok(MAPPING_MAX as u32),
            kind::SET_HASH_MAPPING_SIZE => self.hashing.set_mapping_size(first).map(|()| 0),
            kind::SET_HASH_MAPPING => {
                let end = u64::from(second) + u64::from(third);
                if second == 0 || end > self.hashing.mapping().len() as u64 {
                    return invalid;
                }
                let Some(words) = copied(first, second as usize) else { return invalid };
                self.hashing.set_mapping(third as usize, &words).map(|()| 0)
            }
            kind::SET_HASH_ALGORITHM => self.hashing.set_algorithm(first).map(|()| 0),
            kind::GET_GREF_MAPPING_SIZE..=kind::DEL_GREF_MAPPING if !self.staging => {
                Err(Status::NotSupported)
            }
            kind::GET_GREF_MAPPING_SIZE..=kind::DEL_GREF_MAPPING if first >= u32::from(QUEUES) => {
                invalid
            }
            kind::GET_GREF_MAPPING_SIZE => Ok(CAPACITY),
            kind::ADD_GREF_MAPPING | kind::DEL_GREF_MAPPING if third == 0 || third > 512 => invalid,
            kind::ADD_GREF_MAPPING => {
                let Some(words) = copied(second, third as usize * 2) else { return invalid };
                self.add(first as usize, &words).map(|()| 0)
            }
            kind::DEL_GREF_MAPPING => {
                if pages.0.get(&second).is_none_or(|(writable, _)| !writable) {
                    return invalid;
                }
                let mut words = pages.words(second, PAGE_SIZE / 4);
                let queue = &mut self.staged[first as usize];
                let mut unmapped = 0;
                for pair in words.chunks_mut(2).take(third as usize) {
                    let done = pair[0] != BUSY && queue.remove(&pair[0]);
                    unmapped += u32::from(done);
                    pair[1] = pair[1] & 0xffff | if done { 0 } else { 2 << 16 };
                }
                // A request that names this page next finds the statuses there.
                pages.put(second, true, &words);
                Ok(unmapped)
            }
            _ => Err(Status::NotSupported),
        }
    }

    fn add(&mut self, queue: usize, words: &[u32]) -> Result<(), Status> {
        let grefs: Vec<u32> = words.chunks(2).map(|pair| pair[0]).collect();
        let once: BTreeSet<u32> = grefs.iter().copied().collect();
        let flags = words.chunks(2).all(|pair| pair[1] as u16 <= 1);
        let fresh = grefs
            .iter()
            .all(|gref| *gref >= 8 && !self.staged.iter().any(|staged| staged.contains(gref)));
        let room = self.staged[queue].len() + grefs.len() <= CAPACITY as usize;
        if !flags || !fresh || !room || once.len() != grefs.len() {
            return Err(Status::InvalidParameter);
        }
        self.staged[queue].extend(once);
        Ok(())
    }
}

/// Returns pages by their references: 20 is a key or a table of small numbers, 21 a table with a
/// queue that is too high, 22 to 24 are lists, 25 is a read-only list.
fn pages(lists: &[Vec<u32>]) -> Granted {
    let mut pages = Granted::default();
    pages.put(20, false, &[2, 1, 0, 2, 1, 0, 2, 1, 0, 2, 1, 0]);
    pages.put(21, true, &[0, 0, 0, 3, 0, 0, 0, 0]);
    for (gref, list) in (22..).zip(lists) {
        let words: Vec<u32> = list.iter().flat_map(|gref| [*gref, 0]).collect();
        pages.put(gref, gref != 25, &words);
    }
    pages
}

fn request() -> impl Strategy<Value = CtrlRequest> {
    let near = prop_oneof![
        4 => 0u32..6,
        2 => 8u32..14,
        3 => 20u32..27,
        1 => 36u32..44,
        1 => 126u32..131,
        1 => 510u32..515,
        1 => (0u32..4).prop_map(|n| u32::MAX - n),
        1 => any::<u32>(),
    ];
    let kind = prop_oneof![9 => 1u16..=10, 1 => any::<u16>()];
    (any::<u16>(), kind, prop::array::uniform3(near)).prop_map(|(id, kind, data)| CtrlRequest {
        id,
        kind,
        data,
    })
}

proptest! {
    #[test]
    fn random_requests_are_answered_as_the_model_says(
        requests in prop::collection::vec(request(), 1..120),
        lists in prop::collection::vec(prop::collection::vec(6u32..40, 0..20), 4),
        staging in any::<bool>(),
        most in 1usize..20,
    ) {
        let (pages, mut modelled) = (pages(&lists), pages(&lists));
        let staged: Staged = Arc::default();
        *staged.lock().unwrap() = vec![BTreeSet::new(); if staging { QUEUES.into() } else { 0 }];
        let memory = Logged::over(Memory::new());
        let mut front = Front::init(memory.clone());
        let journal = || Some(Journal::new(memory.clone()));
        let made = Ctrl::new(memory.clone(), QUEUES, tables(&staged), journal(), false);
        let (mut ctrl, _) = made.unwrap();
        let mut model = Model {
            hashing: Hashing::new(QUEUES),
            staging,
            staged: vec![BTreeSet::new(); QUEUES.into()],
        };
        for &request in &requests {
            front.push(request.to_words()).unwrap();
        }
        let _ = front.publish();
        let shared = Shared::new(std::time::Instant::now, Tap::nowhere());
        while ctrl.serve(most, &pages, &shared).unwrap().requests > 0 {}
        for request in &requests {
            let (_, words) = front.pop().unwrap().expect("each is answered");
            let answer = CtrlResponse::from_words(words);
            prop_assert_eq!(words[3], 0, "XSA-216");
            prop_assert_eq!((answer.id, answer.kind), (request.id, request.kind));
            let expected = model.answer(*request, &mut modelled);
            let found = match answer.status() {
                Some(Status::Success) => Ok(answer.data),
                status => Err(status.unwrap()),
            };
            prop_assert_eq!(found, expected, "{:?}", request);
        }
        // Nothing else was answered, and the settings are the model's.
        prop_assert_eq!(front.pop().unwrap(), None);
        prop_assert_eq!(&ctrl.hashing, &model.hashing);
        if staging {
            prop_assert_eq!(&*staged.lock().unwrap(), &model.staged);
        }
        // A successor finds the same settings.
        prop_assert_eq!(Journal::new(memory).hashing(QUEUES), model.hashing);
    }
}

#[test]
fn each_entry_of_a_del_gets_its_own_status() {
    let mut pages = pages(&[vec![8, 9, BUSY], vec![9, 30, BUSY, 8, 8]]);
    let staged: Staged = Arc::new(Mutex::new(vec![BTreeSet::new()]));
    let memory = Logged::over(Memory::new());
    let mut front = Front::init(memory.clone());
    let (mut ctrl, _) = Ctrl::<_, Logged>::new(memory, 1, tables(&staged), None, false).unwrap();
    pages.put(30, true, &[]);
    let add = Message::AddGrefMapping { queue: 0, list: 22, entries: 3 };
    let del = Message::DelGrefMapping { queue: 0, list: 23, entries: 5 };
    for (id, message) in (0..).zip([add, del]) {
        front.push(message.request(id).to_words()).unwrap();
    }
    let _ = front.publish();
    ctrl.serve(9, &pages, &Shared::new(std::time::Instant::now, Tap::nowhere())).unwrap();
    let mut data = || {
        let answer = CtrlResponse::from_words(front.pop().unwrap().unwrap().1);
        (answer.status(), answer.data)
    };
    assert_eq!(data(), (Some(Status::Success), 0));
    assert_eq!(data(), (Some(Status::Success), 2));
    let invalid = u32::from(Status::InvalidParameter.to_u16()) << 16;
    let expected = [9, 0, 30, invalid, BUSY, invalid, 8, 0, 8, invalid];
    assert_eq!(pages.words(23, 10), expected);
}

/// Returns requests that set everything, and some that are refused.
fn settings() -> Vec<Message> {
    vec![
        Message::SetHashAlgorithm { algorithm: 1 },
        Message::SetHashFlags { types: grantway_netif::ctrl::HashTypes::all() },
        Message::SetHashKey { gref: 20, bytes: 40 },
        Message::GetHashMappingSize,
        Message::SetHashMappingSize { entries: 12 },
        Message::SetHashMapping { gref: 20, entries: 12, offset: 0 },
        Message::SetHashMapping { gref: 21, entries: 8, offset: 0 },
        Message::GetGrefMappingSize { queue: 0 },
        Message::SetHashFlags { types: grantway_netif::ctrl::HashTypes::IPV4_TCP },
    ]
}

#[test]
fn a_kill_after_any_write_answers_each_request_once_and_keeps_the_settings() {
    let pages = pages(&[]);
    let memory = Logged::over(Memory::new());
    let mut front = Front::init(memory.clone());
    let start = |memory: &Logged, resume| {
        let journal = Some(Journal::new(memory.clone()));
        let made = Ctrl::new(memory.clone(), QUEUES, Vec::new(), journal, resume);
        made.unwrap().0
    };
    let mut ctrl = start(&memory, false);
    for (id, message) in (100..).zip(settings()) {
        front.push(message.request(id).to_words()).unwrap();
    }
    let _ = front.publish();
    let before = memory.memory();
    memory.0.lock().unwrap().1.clear();
    ctrl.serve(99, &pages, &Shared::new(std::time::Instant::now, Tap::nowhere())).unwrap();
    let settled = ctrl.hashing.clone();
    let expected = memory.memory().slots;
    let log = memory.0.lock().unwrap().1.clone();
    assert!(log.len() > 60, "{} writes", log.len());
    // A successor starts from the memory as it was after each write, and finishes the work.
    for cut in 0..=log.len() {
        let mut left = before.clone();
        log[..cut].iter().for_each(|write| left.apply(write));
        let published = left.indices[2];
        let memory = Logged::over(left);
        let shown: Vec<_> = memory.memory().slots[..published as usize].to_vec();
        let mut successor = start(&memory, true);
        successor.serve(99, &pages, &Shared::new(std::time::Instant::now, Tap::nowhere())).unwrap();
        let after = memory.memory();
        assert_eq!(after.indices[2], settings().len() as u32, "cut at {cut}");
        assert_eq!(shown, after.slots[..published as usize], "changed what was shown");
        assert_eq!(after.slots, expected, "cut at {cut}");
        assert_eq!(successor.hashing, settled, "cut at {cut}");
        assert_eq!(Journal::new(memory).hashing(QUEUES), settled, "cut at {cut}");
    }
}

#[test]
fn a_ring_that_does_not_fit_the_journal_is_not_taken_up() {
    let pages = pages(&[]);
    let memory = Logged::over(Memory::new());
    let mut front = Front::init(memory.clone());
    let journal = || Some(Journal::new(memory.clone()));
    let made = Ctrl::new(memory.clone(), QUEUES, Vec::new(), journal(), false);
    let mut ctrl = made.unwrap().0;
    for (id, message) in (0..).zip(settings()) {
        front.push(message.request(id).to_words()).unwrap();
    }
    let _ = front.publish();
    ctrl.serve(5, &pages, &Shared::new(std::time::Instant::now, Tap::nowhere())).unwrap();
    for published in [0, 3, 6, 500, u32::MAX] {
        RingMemory::<4>::store(&memory, Index::RspProd, published);
        let made = Ctrl::new(memory.clone(), QUEUES, Vec::new(), journal(), true);
        assert!(matches!(made.err(), Some(crate::VifError::Tampered(_))), "{published}");
    }
}

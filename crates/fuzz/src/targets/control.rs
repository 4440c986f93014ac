//! Target: the slots of the control ring and the bounds of their requests, and the effect of a
//! whole ring of them. The hash is checked against a model, and lists against rules that are
//! written down again here.

use super::Bytes;
use grantway_netif::ctrl::{
    BadList, CtrlRequest, CtrlResponse, GREF_LIST_ENTRIES, GrefEntry, GrefFlags,
    HASH_MAPPING_ENTRIES, HashTypes, Message, Status, check_added, gref_list_entries, kind,
    mapping_range,
};
use grantway_netif::hashing::{Hashing, MAPPING_MAX};

pub(super) fn run(data: &[u8]) {
    let queues = data.first().map_or(1, |byte| u16::from(byte % 5));
    let mut hash = Hash::new(queues);
    for chunk in data.chunks(16) {
        let mut bytes = Bytes(chunk);
        let words = [bytes.u32(), bytes.u32(), bytes.u32(), bytes.u32()];
        slot(words);
        if let Ok(message) = CtrlRequest::from_words(words).message() {
            // The bytes behind the slot are what a request points to.
            let behind = data.get(16..).unwrap_or_default();
            hash.carry_out(message, behind);
        }
    }
    list(data);
}

/// The hash settings, and a model of them.
struct Hash {
    real: Hashing,
    queues: u16,
    toeplitz: bool,
    types: u32,
    key: Vec<u8>,
    table: Vec<u16>,
}

impl Hash {
    fn new(queues: u16) -> Self {
        let real = Hashing::new(queues);
        let queues = queues.max(1);
        Self { real, queues, toeplitz: false, types: 0, key: vec![0; 40], table: Vec::new() }
    }

    /// Does what a message asks for, in the model and in the real settings, and compares.
    fn carry_out(&mut self, message: Message, behind: &[u8]) {
        const INVALID: Result<(), Status> = Err(Status::InvalidParameter);
        // Each message has a right answer, which the model knows.
        let before = self.real.clone();
        let (done, right) = match message {
            Message::SetHashAlgorithm { algorithm } => {
                let right = algorithm <= 1;
                if right {
                    self.toeplitz = algorithm == 1;
                }
                (self.real.set_algorithm(algorithm), if right { Ok(()) } else { INVALID })
            }
            Message::SetHashFlags { types } => {
                let right = self.toeplitz && types.bits() < 16;
                if right {
                    self.types = types.bits();
                }
                (self.real.set_types(types), if right { Ok(()) } else { INVALID })
            }
            Message::SetHashKey { bytes, .. } => {
                let right = bytes <= 40;
                let done = Hashing::key_length(bytes).and_then(|len| {
                    let mut key = behind.to_vec();
                    key.resize(len, 0xa5);
                    let done = self.real.set_key(&key);
                    key.resize(40, 0);
                    self.key = key;
                    done
                });
                (done, if right { Ok(()) } else { Err(Status::BufferOverflow) })
            }
            Message::SetHashMappingSize { entries } => {
                let right = entries as usize <= MAPPING_MAX;
                if right {
                    self.table = vec![0; entries as usize];
                }
                (self.real.set_mapping_size(entries), if right { Ok(()) } else { INVALID })
            }
            Message::SetHashMapping { entries, offset, .. } => self.fill(entries, offset, behind),
            _ => return,
        };
        // The real answer is the right one, and a refused message has no effect.
        assert_eq!(done, right, "{message:?}");
        assert!(done.is_ok() || self.real == before, "what is refused changes nothing");
        self.compare(behind);
    }

    /// Fills a part of the table. Returns the real answer and the right one.
    fn fill(
        &mut self,
        entries: u32,
        offset: u32,
        behind: &[u8],
    ) -> (Result<(), Status>, Result<(), Status>) {
        let end = u64::from(entries) + u64::from(offset);
        let inside = entries > 0 && end <= self.table.len() as u64;
        let mut bytes = Bytes(behind);
        let mut words = Vec::new();
        let done = self.real.mapping_part(entries, offset).and_then(|part| {
            // Most of these queues exist.
            words.extend(part.clone().map(|_| u32::from(bytes.u8() % 7)));
            self.real.set_mapping(part.start, &words)
        });
        let right = inside && words.iter().all(|&queue| queue < self.queues.into());
        if right {
            for (entry, &word) in self.table[offset as usize..].iter_mut().zip(&words) {
                *entry = word as u16;
            }
        }
        // The table is never larger than a page, so there is no other error.
        (done, if right { Ok(()) } else { Err(Status::InvalidParameter) })
    }

    /// Checks that all settings are those of the model, and that frames go to existing queues.
    fn compare(&self, frame: &[u8]) {
        assert_eq!(self.real.algorithm() == 1, self.toeplitz);
        assert_eq!(self.real.types().bits(), self.types);
        assert_eq!(self.real.key()[..], self.key);
        assert_eq!(self.real.mapping(), self.table);
        let offered = self.toeplitz.then_some(HashTypes::all());
        assert_eq!(self.real.offered(), offered.ok_or(Status::NotSupported));
        let steering = self.real.steering();
        assert_eq!(steering.is_some(), self.toeplitz && self.types != 0);
        if let Some(steering) = steering {
            let hash = steering.hash(frame);
            assert!(hash.is_none_or(|hash| self.types >> hash.kind & 1 == 1));
            let value = hash.map_or(0, |hash| hash.value) as usize;
            let expected = match self.table.len() {
                0 => value % usize::from(self.queues),
                len => self.table[value % len].into(),
            };
            assert_eq!(usize::from(steering.queue(hash)), expected);
        }
    }
}

/// Checks a list of pages to be staged, with more entries by the first byte.
fn list(data: &[u8]) {
    let Some((&again, rest)) = data.split_first() else { return };
    let entry = |chunk: &[u8]| {
        let mut bytes = Bytes(chunk);
        // References are near each other, so that some come twice.
        let (gref, flags) = (u32::from(bytes.u16()), bytes.u16());
        GrefEntry { gref, flags: GrefFlags::from_bits_retain(flags), status: 0 }
    };
    let mut entries: Vec<GrefEntry> = rest.chunks_exact(4).map(entry).collect();
    // More entries than an input has make lists of more than a page.
    for n in 0..u32::from(again) * 3 {
        entries.push(GrefEntry { gref: 0x1_0000 + n, ..GrefEntry::default() });
    }
    let count = entries.len();
    // The answer has to be right for the list.
    let twice = |at: usize| entries[..at].iter().any(|e| e.gref == entries[at].gref);
    match check_added(&entries, 8) {
        Ok(()) => {
            assert!((1..=512).contains(&count));
            assert!(entries.iter().all(|e| e.gref >= 8 && e.flags.bits() <= 1));
            assert!(!(0..count).any(twice));
        }
        Err(BadList::Length { found }) => assert!(found == count && !(1..=512).contains(&count)),
        Err(BadList::Flags { entry, found }) => {
            assert!(entries[entry].flags.bits() == found && found > 1);
        }
        Err(BadList::Reserved { entry, gref, first_free }) => {
            assert!(entries[entry].gref == gref && gref < 8 && first_free == 8);
        }
        Err(BadList::Twice { entry, gref }) => {
            assert!(entries[entry].gref == gref && twice(entry));
        }
    }
}

/// Checks the message in a slot, its bounds, and its answers.
fn slot(words: [u32; 4]) {
    let request = CtrlRequest::from_words(words);
    assert_eq!(request.to_words(), words);
    let known = (kind::GET_HASH_FLAGS..=kind::DEL_GREF_MAPPING).contains(&request.kind);
    match request.message() {
        Ok(message) => {
            assert!(known);
            let again = message.request(request.id);
            assert_eq!((again.id, again.kind), (request.id, request.kind));
            assert_eq!(again.message(), Ok(message));
            // Words that a message uses are kept, and the others are zero.
            for (ours, theirs) in again.data.iter().zip(request.data) {
                assert!(*ours == theirs || *ours == 0);
            }
            bounds(message);
        }
        Err(unknown) => assert!(!known && unknown.found == request.kind),
    }
    // Every status comes back from a slot.
    let statuses =
        [Status::Success, Status::NotSupported, Status::InvalidParameter, Status::BufferOverflow];
    for status in statuses {
        let answer = request.answer(status, words[3]);
        let slot = answer.to_words();
        assert_eq!(slot, [words[0], status.to_u32(), words[3], 0]);
        assert_eq!(CtrlResponse::from_words(slot), answer);
        assert_eq!(answer.status(), Some(status));
        assert_eq!(u32::from(status.to_u16()), status.to_u32());
    }
    let response = CtrlResponse::from_words(words);
    assert_eq!(response.to_words(), [words[0], words[1], words[2], 0]);
    assert_eq!(response.status().map(Status::to_u32), (words[1] < 4).then_some(words[1]));
    let entry = [words[0], words[1]];
    assert_eq!(GrefEntry::from_words(entry).to_words(), entry);
}

/// Checks bounds whose sums no 32 bits hold (XSA-270). The grant is used as the other bound:
/// entries of the table, or queues.
fn bounds(message: Message) {
    match message {
        Message::SetHashMapping { gref: table, entries, offset } => {
            let end = u128::from(entries) + u128::from(offset);
            let inside = entries > 0 && end <= u128::from(table);
            match mapping_range(entries, offset, table) {
                Ok(range) => {
                    assert!(inside && range.len() <= HASH_MAPPING_ENTRIES);
                    assert!(range.start == offset as usize && range.len() == entries as usize);
                }
                Err(Status::BufferOverflow) => {
                    assert!(inside && entries as usize > HASH_MAPPING_ENTRIES);
                }
                Err(status) => assert!(!inside && status == Status::InvalidParameter),
            }
        }
        Message::AddGrefMapping { queue, list: queues, entries }
        | Message::DelGrefMapping { queue, list: queues, entries } => {
            let taken = gref_list_entries(queue, queues, entries);
            let right = queue < queues && entries > 0 && entries as usize <= GREF_LIST_ENTRIES;
            assert_eq!(taken, right.then_some(entries as usize).ok_or(Status::InvalidParameter));
        }
        _ => {}
    }
}

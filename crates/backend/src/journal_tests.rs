//! A kill after each single write - to the journal, to a slot, to an index - and a successor that
//! takes over from the memory at that moment.
//!
//! A turn runs against memory that logs its writes. For every prefix of the log, the memory after
//! that prefix is rebuilt, a successor takes over, and both ends go on. Every request must be
//! answered exactly once, by its own id. No packet may be sent twice, and no bytes may be taken
//! from anything but a request. Here turns have packets of several slots, which are copied, mapped,
//! or in pages that stay mapped. The tests of `plain` have packets of one slot each, which take a
//! shorter way.

mod multicast;
mod plain;
mod receive;

use crate::ids::QueueRefs;
use crate::journal::{Journal, JournalMemory};
use crate::policy::{Buffers, Map, Quota};
use crate::state::guest::Guest;
use crate::state::guest::Patience;
use crate::state::shared::QueueState;
use crate::state::trace::Tap;
use crate::turn::scratch::Scratch;
use crate::turn::sink::ToPort;
use crate::turn::stages::Stages;
use crate::turn::stretches::Stretches;
use crate::turn::transmit::{InPlace, Mapped, Pause, Transmit};
use grantway_hypervisor::{
    Access, CopyOp, CopySide, DomId, Error, GrantRef, GrantStatus, Mapper, Port as EventPort,
};
use grantway_netif::slots::tx::{TxFragment, write_tx};
use grantway_netif::tx::{TxResponse, status};
use grantway_netif::{Checksum, Gso, GsoKind, Offload};
use grantway_ports::{
    Counters, FrameMeta, Port, PortCaps, PortControl, PortError, PortReport, Probe, Readiness,
    SendError, SplitFrame, TapOffloads,
};
use grantway_ring::{Back, Front, Index, PAGE_SIZE, RingMemory, SharedRun};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

const SLOTS: u32 = 256;

#[derive(Debug, Clone)]
struct Memory {
    indices: [u32; 4],
    slots: Vec<[u32; 3]>,
    journal: Vec<u8>,
    /// Bytes that a guest's pages were given, by grant.
    pages: BTreeMap<u32, Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq)]
enum Write {
    Slot(u32, [u32; 3]),
    Index(usize, u32),
    Journal(usize, Vec<u8>),
    /// A guest's page, by its grant.
    Page(u32, Vec<u8>),
    /// No memory, but a point in the order: a frame left through the port.
    Sent(Vec<u8>),
    /// No memory, but a point in the order: the pages mapped for packets on their way are unmapped.
    Unmapped,
}

impl Memory {
    fn new() -> Self {
        let slots = vec![[0; 3]; SLOTS as usize];
        Self { indices: [0; 4], slots, journal: vec![0; PAGE_SIZE], pages: BTreeMap::new() }
    }

    /// Memory with a ring that stands at this index, and has no request.
    fn at(start: u32) -> Self {
        let next = start.wrapping_add(1);
        Self { indices: [start, next, start, next], ..Self::new() }
    }

    /// Returns the memory after these writes.
    fn after(&self, writes: &[Write]) -> Self {
        let mut memory = self.clone();
        writes.iter().for_each(|write| memory.apply(write));
        memory
    }

    fn apply(&mut self, write: &Write) {
        match write {
            Write::Slot(index, words) => self.slots[(index % SLOTS) as usize] = *words,
            Write::Index(which, value) => self.indices[*which] = *value,
            Write::Journal(at, bytes) => {
                self.journal[*at..*at + bytes.len()].copy_from_slice(bytes);
            }
            Write::Page(gref, bytes) => drop(self.pages.insert(*gref, bytes.clone())),
            Write::Sent(_) | Write::Unmapped => {}
        }
    }
}

/// Memory and the log of writes to it, shared by all its users.
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

    fn take_log(&self) -> Vec<Write> {
        std::mem::take(&mut self.0.lock().unwrap().1)
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

impl<const W: usize> RingMemory<W> for Logged {
    fn slots(&self) -> u32 {
        SLOTS
    }

    fn load(&self, index: Index) -> u32 {
        self.0.lock().unwrap().0.indices[place(index)]
    }

    fn store(&self, index: Index, value: u32) {
        self.write(Write::Index(place(index), value));
    }

    fn read_slot(&self, index: u32) -> [u32; W] {
        let slot = self.0.lock().unwrap().0.slots[(index % SLOTS) as usize];
        std::array::from_fn(|word| slot[word])
    }

    fn write_slot(&self, index: u32, words: [u32; W]) {
        let slot = std::array::from_fn(|word| words.get(word).copied().unwrap_or(0));
        self.write(Write::Slot(index, slot));
    }

    fn clear(&self) {
        self.0.lock().unwrap().0 = Memory::new();
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

/// A guest's pages, as the platform reaches them: page `gref` is filled with the gref's low
/// byte.
struct Granted {
    granted: BTreeSet<u32>,
    /// Granted pages that cannot be reached.
    holes: BTreeSet<u32>,
    /// Frames that were stored, or would have been.
    stored: Mutex<usize>,
    log: Logged,
}

impl Granted {
    /// Returns the result of a grant copy of this page.
    fn status(&self, gref: GrantRef) -> GrantStatus {
        assert!(self.granted.contains(&gref.0), "{gref} is of no request");
        let hole = self.holes.contains(&gref.0);
        if hole { GrantStatus::BAD_GNTREF } else { GrantStatus::OKAY }
    }
}

/// Logs that a run of pages is unmapped.
struct Unmaps(Logged);

impl Drop for Unmaps {
    fn drop(&mut self) {
        self.0.write(Write::Unmapped);
    }
}

impl Mapper for Granted {
    fn map(&self, _: DomId, grefs: &[GrantRef], _: Access) -> Result<SharedRun, Error> {
        let page = |&gref: &GrantRef| {
            assert!(self.granted.contains(&gref.0), "mapped {gref}");
            let page = SharedRun::private(1).page(0).unwrap();
            page.write(0, &[gref.0 as u8; PAGE_SIZE]).unwrap();
            page
        };
        let pages = grefs.iter().map(page).collect();
        Ok(SharedRun::gathered(pages, Unmaps(self.log.clone())))
    }

    fn copy(&self, arena: &mut [u8], ops: &mut [CopyOp]) -> Result<(), Error> {
        for op in ops {
            let len = usize::from(op.len);
            op.status = match (op.source, op.dest) {
                (CopySide::Foreign { gref, .. }, CopySide::Local { offset }) => {
                    arena[offset as usize..][..len].fill(gref.0 as u8);
                    self.status(gref)
                }
                (CopySide::Local { offset }, CopySide::Foreign { gref, .. }) => {
                    let status = self.status(gref);
                    if status.is_okay() {
                        let bytes = arena[offset as usize..][..len].to_vec();
                        self.log.write(Write::Page(gref.0, bytes));
                    }
                    *self.stored.lock().unwrap() += 1;
                    status
                }
                sides => panic!("nothing crosses without a bridge: {sides:?}"),
            };
        }
        Ok(())
    }
}

/// The ways in which a queue reaches the guest's pages: by grant copy, and by mappings, if it maps.
struct Pages {
    guest: Arc<Granted>,
    buffers: Buffers,
    mapped: Option<Stretches>,
    /// True if large packets are sent in place.
    in_place: bool,
}

impl Pages {
    fn new(granted: BTreeSet<u32>, holes: BTreeSet<u32>, log: &Logged) -> Self {
        let (stored, log) = (Mutex::new(0), log.clone());
        let guest = Arc::new(Granted { granted, holes, stored, log });
        let buffers = Buffers::copy(Arc::clone(&guest) as _, DomId(9));
        Self { guest, buffers, mapped: None, in_place: false }
    }

    /// Maps pages for the port, but not all pages of a turn.
    fn mapping(self) -> Self {
        let map = Map::new(Arc::clone(&self.guest) as _, DomId(9), Quota::new(20));
        Self { mapped: Some(Stretches::new(map)), ..self }
    }

    /// Keeps pages mapped that were seen, and sends large packets in them.
    fn in_place(self) -> Self {
        let guest = Arc::clone(&self.guest) as _;
        let buffers = Buffers::persistent(guest, DomId(9), Quota::new(200));
        Self { buffers, in_place: true, ..self }
    }

    /// Returns the number of pages that are mapped.
    fn mapped(&self) -> usize {
        self.mapped.as_ref().map_or(0, Stretches::mapped)
    }
}

/// Logs what is sent, and has frames to receive.
struct Wire {
    log: Logged,
    frames: VecDeque<Vec<u8>>,
    /// True if the port says that each of its frames fits a page.
    short: bool,
    /// Frames that were sent in the guest's pages.
    in_place: usize,
    counters: Counters,
}

impl Port for Wire {
    fn send(&mut self, frame: &[u8], _: Offload) -> Result<(), SendError> {
        self.log.write(Write::Sent(frame.to_vec()));
        Ok(())
    }

    fn send_split(
        &mut self,
        frame: &SplitFrame<'_>,
        offload: Offload,
        room: &mut [u8],
    ) -> Result<(), SendError> {
        self.in_place += 1;
        self.send(frame.gather(room).unwrap(), offload)
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        let Some(frame) = self.frames.pop_front() else { return Ok(None) };
        buf[..frame.len()].copy_from_slice(&frame);
        Ok(Some(FrameMeta { len: frame.len(), offload: Offload::default() }))
    }

    fn readiness(&self) -> Readiness<'_> {
        match self.frames.is_empty() {
            true => Readiness::Idle,
            false => Readiness::Now,
        }
    }

    fn caps(&self) -> PortCaps {
        PortCaps { short: self.short, ..PortCaps::default() }
    }
}

impl PortControl for Wire {}

impl Probe for Wire {
    fn name(&self) -> &str {
        "wire"
    }

    fn report(&self) -> PortReport {
        PortReport::new(self.name(), &self.counters)
    }
}

fn wire(log: &Logged, frames: Vec<Vec<u8>>) -> Wire {
    let (log, frames, counters) = (log.clone(), frames.into(), Counters::default());
    Wire { log, frames, short: false, in_place: 0, counters }
}

const GUEST: Guest = Guest {
    scatter_gather: true,
    checksum_ipv6: true,
    offloads: TapOffloads::ALL,
    headroom: 0,
    patience: Patience::LINUX,
};

fn identity() -> QueueRefs {
    QueueRefs { tx_ring: GrantRef(8), rx_ring: GrantRef(9), tx_event: EventPort(1), rx_event: None }
}

/// Pushes packets of 1, 2 and 3 slots, some with an extra, with `size` bytes for each slot, in the
/// first `granted` pages.
fn transmit_requests(
    front: &mut Front<Logged, 3>,
    ids: std::ops::Range<u16>,
    size: u16,
    granted: u16,
) {
    let mut ids = ids.peekable();
    let mut pages = 1;
    while ids.peek().is_some() {
        let fragments: Vec<TxFragment> = ids
            .by_ref()
            .take(pages)
            .map(|id| TxFragment { gref: 1000 + u32::from(id % granted), offset: 0, size, id })
            .collect();
        let gso = (pages == 2).then_some(Gso { kind: GsoKind::Tcpv4, size: 50 });
        let checksum = if gso.is_some() { Checksum::Partial } else { Checksum::Unknown };
        let mut slots = arrayvec::ArrayVec::new();
        let len = size * fragments.len() as u16;
        write_tx(&fragments, len, Offload { checksum, gso }, None, None, &mut slots).unwrap();
        assert_eq!(front.push_batch(&slots), slots.len());
        pages = pages % 3 + 1;
    }
}

/// Returns the moment at which all of a test happens.
fn moment() -> Instant {
    static NOW: OnceLock<Instant> = OnceLock::new();
    *NOW.get_or_init(Instant::now)
}

/// Serves one turn of guest transmit, by mappings if `pages` maps.
fn turn(
    transmit: &mut Transmit<Logged, Logged>,
    scratch: &mut Scratch,
    pages: &mut Pages,
    port: &mut Wire,
) {
    let shared = QueueState::alone(moment, Tap::nowhere());
    let (buffers, shared) = (&mut pages.buffers, &shared);
    let done = match &mut pages.mapped {
        None if pages.in_place => {
            let pause = &mut Pause::default();
            let sink = &mut InPlace { sink: ToPort { port, merger: None }, pause };
            let done = transmit.turn(scratch, Stages { buffers, rules: None, sink, shared });
            pages.buffers.end_turn(false, &moment, &shared.stats);
            done
        }
        Some(stretches) => {
            let sink = &mut Mapped { port, stretches, alone: true };
            transmit.turn(scratch, Stages { buffers, rules: None, sink, shared })
        }
        None => {
            let sink = &mut ToPort { port, merger: None };
            transmit.turn(scratch, Stages { buffers, rules: None, sink, shared })
        }
    };
    done.unwrap();
}

#[test]
fn transmit_taken_over_after_any_write() {
    transmit_taken_over(100, |pages| pages);
}

#[test]
fn transmit_with_answers_that_wait_taken_over_after_any_write() {
    transmit_taken_over(100, Pages::mapping);
}

#[test]
fn transmit_in_place_taken_over_after_any_write() {
    transmit_taken_over(1500, Pages::in_place);
}

fn transmit_taken_over(size: u16, way: impl Fn(Pages) -> Pages) {
    const START: u32 = u32::MAX - 40;
    const FIRST: u16 = 30;
    const ALL: u16 = 60;
    let logged = Logged::over(Memory::at(START));
    let journal = Journal::new(logged.clone());
    journal.begin(identity(), START, 0);
    let mut front = Front::<_, 3>::attach(logged.clone(), START, START).unwrap();
    let back = Back::<_, 3>::attach(logged.clone(), START, START).unwrap();
    let mut transmit = Transmit::new(back, 0, Some(Journal::new(logged.clone())));
    let granted: BTreeSet<u32> = (0..ALL).map(|id| 1000 + u32::from(id)).collect();
    let pages = |log: &Logged| way(Pages::new(granted.clone(), BTreeSet::new(), log));
    let (mut scratch, mut policy) = (Scratch::new(None), pages(&logged));
    let (maps, in_place) = (policy.mapped.is_some(), policy.in_place);
    // Pages are sent in place once they were seen.
    let reused = if in_place { FIRST } else { ALL };
    let mut port = wire(&logged, Vec::new());
    // One burst goes well first, so that the journal is not fresh.
    transmit_requests(&mut front, 0..FIRST, size, reused);
    let _ = front.publish();
    turn(&mut transmit, &mut scratch, &mut policy, &mut port);
    turn(&mut transmit, &mut scratch, &mut policy, &mut port);
    transmit_requests(&mut front, FIRST..ALL, size, reused);
    let _ = front.publish();
    let before = logged.memory();
    logged.take_log();
    port.in_place = 0;
    turn(&mut transmit, &mut scratch, &mut policy, &mut port);
    let in_pages = if maps { 10 } else { 5 * usize::from(in_place) };
    assert_eq!(port.in_place, in_pages);
    let published = RingMemory::<3>::load(&logged, Index::RspProd);
    assert_eq!((policy.mapped() > 0, published == before.indices[2]), (maps, maps));
    // No request came since: all answers that waited are given.
    turn(&mut transmit, &mut scratch, &mut policy, &mut port);
    assert_eq!(policy.mapped(), 0);
    let log = logged.take_log();
    let first_answer = log.iter().position(|write| matches!(write, Write::Slot(..)));
    let unmapped = log.iter().position(|write| *write == Write::Unmapped);
    assert!(unmapped.is_some() == maps && unmapped < first_answer, "answered, then unmapped");
    assert!(log.len() > 50, "the turn wrote {} times", log.len());

    let front_at = (front.req_prod_published(), START);
    let packets = sent(&log).len();
    // A successor of each cut serves the rest.
    for cut in 0..=log.len() {
        let then = Logged::over(before.after(&log[..cut]));
        let journal = Journal::new(then.clone());
        assert_eq!(journal.identity(), Some(identity()));
        let published = RingMemory::<3>::load(&then, Index::RspProd);
        let resume = journal.resume_transmit(published).unwrap();
        let back = Back::<_, 3>::attach(then.clone(), resume.consumed, published).unwrap();
        let mut successor = Transmit::new(back, 0, Some(journal));
        successor.answer_owed(&resume.owed).unwrap();
        let mut port = wire(&then, Vec::new());
        let mut policy = pages(&then);
        turn(&mut successor, &mut scratch, &mut policy, &mut port);
        turn(&mut successor, &mut scratch, &mut policy, &mut port);
        assert_eq!(policy.mapped(), 0);

        // The guest sees each request answered once, and no frame went out twice.
        let mut front = Front::<_, 3>::attach(then.clone(), front_at.0, front_at.1).unwrap();
        let mut answered = Vec::new();
        let mut extras = 0;
        while let Some((_, words)) = front.pop().unwrap() {
            let response = TxResponse::from_words(words);
            match response.status {
                status::NULL => extras += 1,
                status::OKAY => answered.push(response.id),
                other => panic!("status {other} after a cut at {cut}"),
            }
        }
        answered.sort_unstable();
        assert_eq!(answered, (0..ALL).collect::<Vec<_>>(), "cut at {cut}");
        assert_eq!(extras, 10, "cut at {cut}");
        let mut frames = sent(&log[..cut]);
        frames.extend(sent(&then.take_log()));
        let distinct: BTreeSet<_> = frames.iter().cloned().collect();
        assert_eq!(distinct.len(), frames.len(), "a frame went out twice, cut at {cut}");
        assert!(frames.len() <= packets);
    }
}

fn sent(log: &[Write]) -> Vec<Vec<u8>> {
    log.iter()
        .filter_map(|write| match write {
            Write::Sent(frame) => Some(frame.clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_ring_that_was_tampered_with_is_refused() {
    let logged = Logged::over(Memory::new());
    let journal = Journal::new(logged);
    journal.begin(identity(), 100, 100);
    journal.tx_publishing(100, 110);
    for published in [99, 101, 109, 111, 0, u32::MAX] {
        assert!(journal.resume_transmit(published).is_err(), "{published}");
    }
    assert!(journal.resume_transmit(100).is_ok());
}

#[test]
fn an_ended_journal_is_not_taken_over() {
    let journal = Journal::new(Logged::over(Memory::new()));
    assert_eq!(journal.identity(), None);
    assert_eq!(journal.interface(), 0);
    journal.opened(7, [1; 16]);
    assert_eq!((journal.identity(), journal.interface()), (None, 7));
    journal.begin(identity(), 5, 6);
    assert_eq!(journal.identity(), Some(identity()));
    journal.opened(8, [1; 16]);
    assert_eq!(journal.identity(), Some(identity()));
    journal.end();
    assert_eq!(journal.identity(), None);
    assert_eq!(journal.interface(), 8);
}

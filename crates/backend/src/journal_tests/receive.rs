//! A turn of guest receive whose frames have several pages, cut after any write.

use super::{GUEST, Logged, Memory, Pages, SLOTS, identity, wire};
use crate::VifError;
use crate::journal::Journal;
use crate::state::shared::QueueState;
use crate::state::trace::Tap;
use crate::turn::receive::Receive;
use crate::turn::scratch::Scratch;
use grantway_netif::rx::{RxRequest, RxResponse};
use grantway_netif::slots::rx::{RxOutcome, parse_rx};
use grantway_ring::{Back, Front, Index, PAGE_SIZE, RingError, RingMemory};
use std::collections::BTreeSet;
use std::time::Instant;

/// Returns frames of 1, 2 and 3 pages. Each byte is the frame's number.
fn frames(numbers: std::ops::Range<u8>) -> Vec<Vec<u8>> {
    numbers.map(|n| vec![n; 100 + PAGE_SIZE * (usize::from(n) % 3)]).collect()
}

#[test]
fn receive_taken_over_after_any_write() {
    const START: u32 = u32::MAX - 40;
    const POSTED: u16 = 120;
    let logged = Logged::over(Memory::at(START));
    Journal::new(logged.clone()).begin(identity(), 0, START);
    // A first turn fills the journal, and the second turn is the one that is cut.
    let mut front = Front::<_, 2>::attach(logged.clone(), START, START).unwrap();
    for id in 0..POSTED {
        front.push(RxRequest { id, gref: 1000 + u32::from(id) }.to_words()).unwrap();
    }
    let _ = front.publish();
    let granted: BTreeSet<u32> = (0..POSTED).map(|id| 1000 + u32::from(id)).collect();
    let pages = || Pages::new(granted.clone(), BTreeSet::new(), &logged);
    let back = Back::<_, 2>::attach(logged.clone(), START, START).unwrap();
    let journal = Some(Journal::new(logged.clone()));
    let mut receive = Receive::new(back, 0, GUEST, journal, Vec::new(), Instant::now());
    let (mut scratch, shared) =
        (Scratch::new(None), QueueState::alone(Instant::now, Tap::nowhere()));
    receive
        .turn(
            &mut scratch,
            &mut pages().buffers,
            &mut wire(&logged, frames(0..9)),
            None,
            &shared,
            true,
        )
        .unwrap();
    let before = logged.memory();
    logged.take_log();
    receive
        .turn(
            &mut scratch,
            &mut pages().buffers,
            &mut wire(&logged, frames(9..21)),
            None,
            &shared,
            true,
        )
        .unwrap();
    let log = logged.take_log();
    assert!(log.len() > 25, "the turn wrote {} times", log.len());

    for cut in 0..=log.len() {
        // A successor of each cut serves a third turn.
        let then = Logged::over(before.after(&log[..cut]));
        let journal = Journal::new(then.clone());
        let published = RingMemory::<2>::load(&then, Index::RspProd);
        let resume = journal.resume_receive(published).unwrap();
        let back = Back::<_, 2>::attach(then.clone(), resume.consumed, published).unwrap();
        let mut successor =
            Receive::new(back, 0, GUEST, Some(journal), resume.owed, Instant::now());
        let mut later = pages();
        successor
            .turn(
                &mut scratch,
                &mut later.buffers,
                &mut wire(&then, frames(21..40)),
                None,
                &shared,
                true,
            )
            .unwrap();

        // The guest sees whole frames, in pages that it posted, each page at the index where it was
        // posted.
        let prod = RingMemory::<2>::load(&then, Index::ReqProd);
        let mut front = Front::<_, 2>::attach(then.clone(), prod, START).unwrap();
        let mut words = [[0; 2]; SLOTS as usize];
        let seen = front.peek_batch(&mut words).unwrap();
        let mut at = 0;
        let mut lengths = Vec::new();
        while let Some(parsed) = parse_rx(&words[at..seen]).unwrap() {
            let RxOutcome::Packet(packet) = parsed.outcome else {
                panic!("a refused frame after a cut at {cut}");
            };
            for fragment in packet.fragments() {
                assert_eq!(usize::from(fragment.id), at + fragment.slot, "cut at {cut}");
            }
            lengths.push(packet.len);
            at += parsed.slots;
        }
        let published_before = published != START.wrapping_add(18);
        let first: Vec<usize> = frames(0..9).iter().map(Vec::len).collect();
        assert_eq!(lengths[..9], first[..], "cut at {cut}");
        let mut rest: Vec<usize> = Vec::new();
        if published_before {
            rest.extend(frames(9..21).iter().map(Vec::len));
        }
        rest.extend(frames(21..40).iter().map(Vec::len));
        assert_eq!(lengths[9..], rest[..], "cut at {cut}");
        assert_eq!(
            *later.guest.stored.lock().unwrap(),
            frames(21..40).iter().map(|f| f.len().div_ceil(PAGE_SIZE)).sum()
        );
    }
}

/// Frames that come one a turn until turns may show their answers together.
const ROW: u8 = 64;

#[test]
fn answers_of_frames_that_come_one_by_one_are_shown_together() {
    let mut queue = OneByOne::new();
    for turn in 1..=ROW {
        assert_eq!(queue.turn(1), 1, "turn {turn}");
    }
    // Eight at once. One turn without a frame changes nothing.
    for round in 0..3 {
        let shown: Vec<u32> = (0..8).map(|_| queue.turn(1)).collect();
        assert_eq!(shown, [0, 0, 0, 0, 0, 0, 0, 8], "round {round}");
        assert_eq!(queue.turn(0), 0);
    }
    // No answer waits for a frame: a second turn without one shows all.
    assert_eq!([queue.turn(1), queue.turn(1)], [0, 0]);
    assert_eq!([queue.turn(0), queue.turn(0)], [0, 2]);
    // The row is over.
    assert_eq!(queue.turn(1), 1);
}

#[test]
fn frames_that_are_dropped_keep_no_answer_from_the_guest() {
    let mut queue = OneByOne::new();
    queue.turns(ROW + 3);
    // Too short for an Ethernet frame.
    assert_eq!([queue.turn_of(vec![vec![1; 5]]), queue.turn_of(vec![vec![1; 5]])], [0, 3]);
}

#[test]
fn answers_that_may_not_wait_are_shown_in_their_turn() {
    let mut queue = OneByOne::new();
    queue.may_wait = false;
    for turn in 0..ROW + 8 {
        assert_eq!(queue.turn(1), 1, "turn {turn}");
    }
    queue.may_wait = true;
    assert_eq!([queue.turn(1), queue.turn(1)], [0, 0]);
    queue.may_wait = false;
    assert_eq!(queue.turn(0), 2);
}

#[test]
fn a_guest_that_asks_for_signals_ends_the_row() {
    let mut queue = OneByOne::new();
    queue.turns(ROW + 8);
    queue.ask();
    let shown: Vec<(u32, bool)> = (0..9).map(|_| (queue.turn(1), queue.signalled)).collect();
    assert_eq!(shown[..7], [(0, false); 7]);
    assert_eq!(shown[7..], [(8, true), (1, false)]);
    queue.ask();
    assert_eq!((queue.turn(1), queue.signalled), (1, true));
}

#[test]
fn answers_that_wait_are_shown_on_demand() {
    let mut queue = OneByOne::new();
    queue.turns(ROW + 3);
    queue.ask();
    let before = queue.shown();
    assert!(queue.receive.has_unshown());
    assert!(queue.receive.show(), "the guest asked");
    assert_eq!(queue.shown() - before, 3);
    assert!(!queue.receive.has_unshown());
    assert!(!queue.receive.show());
}

#[test]
fn a_guest_that_posts_a_page_for_each_answer_gets_all_frames() {
    for pages in 1..12u32 {
        let mut queue = OneByOne::with(pages);
        let (mut shown, mut without) = (0, 0);
        while shown < 1000 {
            let now = queue.turn(1);
            shown += now;
            queue.post(now);
            without = if now > 0 { 0 } else { without + 1 };
            // Eight answers, or two turns after the last page is used.
            assert!(without <= pages.min(8) + 2, "{pages} pages, {without} turns");
        }
    }
}

#[test]
fn requests_beyond_the_answers_that_the_guest_sees_are_refused() {
    let mut queue = OneByOne::new();
    queue.turns(ROW + 7);
    // A guest that obeys cannot have posted more than a ring from the last answer that it sees.
    queue.post(SLOTS + u32::from(ROW) - queue.posted);
    let answered = queue.turn(1);
    assert_eq!(answered, 8);
    queue.turns(7);
    queue.post(8);
    assert_eq!(queue.turn(0), 0);
    queue.post(1);
    let (mut pages, mut port) =
        (queue.pages(), wire(&queue.logged, vec![vec![1; 16 * PAGE_SIZE]; 16]));
    let refused = queue.receive.turn(
        &mut queue.scratch,
        &mut pages.buffers,
        &mut port,
        None,
        &queue.shared,
        true,
    );
    assert!(matches!(refused, Err(VifError::Ring { source: RingError::Overflow { .. }, .. })));
}

#[test]
fn a_kill_while_answers_wait_loses_no_page() {
    let mut queue = OneByOne::new();
    queue.turns(ROW + 6);
    let before = queue.logged.memory();
    queue.logged.take_log();
    assert_eq!([queue.turn(1), queue.turn(1)], [0, 8]);
    let log = queue.logged.take_log();
    for cut in 0..=log.len() {
        let then = Logged::over(before.after(&log[..cut]));
        let journal = Journal::new(then.clone());
        let published = RingMemory::<2>::load(&then, Index::RspProd);
        let resume = journal.resume_receive(published).unwrap();
        let back = Back::<_, 2>::attach(then.clone(), resume.consumed, published).unwrap();
        let mut successor =
            Receive::new(back, 0, GUEST, Some(journal), resume.owed, Instant::now());
        let buffers = &mut queue.pages().buffers;
        let mut port = wire(&then, vec![vec![7; 200]; 20]);
        let (scratch, shared) = (&mut queue.scratch, &queue.shared);
        successor.turn(scratch, buffers, &mut port, None, shared, true).unwrap();

        let prod = RingMemory::<2>::load(&then, Index::ReqProd);
        let mut front = Front::<_, 2>::attach(then.clone(), prod, 0).unwrap();
        let mut words = [[0; 2]; SLOTS as usize];
        let seen = front.peek_batch(&mut words).unwrap();
        // What was shown stays, and the pages behind it hold what the successor got.
        let first = if published == u32::from(ROW) { ROW } else { ROW + 8 };
        assert_eq!(seen, usize::from(first) + 20, "cut at {cut}");
        for (at, words) in words[..seen].iter().enumerate() {
            let answer = RxResponse::from_words(*words);
            let len = if at < usize::from(first) { 100 } else { 200 };
            assert_eq!((usize::from(answer.id), answer.status), (at, len), "cut at {cut}");
        }
    }
}

/// A queue whose port gives frames of 100 bytes.
struct OneByOne {
    logged: Logged,
    receive: Receive<Logged, Logged>,
    scratch: Scratch,
    shared: QueueState,
    /// Pages that were posted.
    posted: u32,
    /// True if answers may wait.
    may_wait: bool,
    /// True if the last turn was to signal the guest.
    signalled: bool,
}

impl OneByOne {
    /// Pages that the guest has. It posts them in turn.
    const PAGES: u32 = 200;

    fn new() -> Self {
        Self::with(Self::PAGES)
    }

    /// A queue with so many posted pages, whose guest polls.
    fn with(pages: u32) -> Self {
        let logged = Logged::over(Memory::at(0));
        Journal::new(logged.clone()).begin(identity(), 0, 0);
        // In the past.
        RingMemory::<2>::store(&logged, Index::RspEvent, u32::MAX);
        let back = Back::<_, 2>::attach(logged.clone(), 0, 0).unwrap();
        let journal = Some(Journal::new(logged.clone()));
        let mut queue = Self {
            receive: Receive::new(back, 0, GUEST, journal, Vec::new(), Instant::now()),
            scratch: Scratch::new(None),
            shared: QueueState::alone(Instant::now, Tap::nowhere()),
            logged,
            posted: 0,
            may_wait: true,
            signalled: false,
        };
        queue.post(pages);
        queue
    }

    fn pages(&self) -> Pages {
        let granted = (0..Self::PAGES).map(|page| 1000 + page).collect();
        Pages::new(granted, BTreeSet::new(), &self.logged)
    }

    /// Posts further pages, whatever the ring has room for.
    fn post(&mut self, count: u32) {
        for _ in 0..count {
            let (id, gref) = (self.posted as u16, 1000 + self.posted % Self::PAGES);
            let words = RxRequest { id, gref }.to_words();
            RingMemory::<2>::write_slot(&self.logged, self.posted, words);
            self.posted += 1;
        }
        RingMemory::<2>::store(&self.logged, Index::ReqProd, self.posted);
    }

    /// Answers that the guest sees.
    fn shown(&self) -> u32 {
        RingMemory::<2>::load(&self.logged, Index::RspProd)
    }

    /// The guest asks for a signal at the next answer.
    fn ask(&self) {
        RingMemory::<2>::store(&self.logged, Index::RspEvent, self.shown() + 1);
    }

    /// Turns with one frame each.
    fn turns(&mut self, count: u8) {
        for _ in 0..count {
            self.turn(1);
        }
    }

    /// A turn with so many frames. Returns the number of answers that it showed.
    fn turn(&mut self, frames: usize) -> u32 {
        self.turn_of(vec![vec![1; 100]; frames])
    }

    /// A turn with these frames. Returns the number of answers that it showed.
    fn turn_of(&mut self, frames: Vec<Vec<u8>>) -> u32 {
        let before = self.shown();
        let (mut pages, mut port) = (self.pages(), wire(&self.logged, frames));
        let (scratch, shared) = (&mut self.scratch, &self.shared);
        let moved =
            self.receive.turn(scratch, &mut pages.buffers, &mut port, None, shared, self.may_wait);
        self.signalled = moved.unwrap().notify;
        self.shown() - before
    }
}

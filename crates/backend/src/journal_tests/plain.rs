//! The short way: packets of one slot each and frames of one page each, which are nearly all
//! packets in practice. A turn of them is cut after each write, the turns of its successor are cut
//! again, and a third process goes on to the end.

use super::{GUEST, Logged, Memory, Pages, Wire, identity, moment, sent, wire};
use crate::journal::{Journal, TxOwed};
use crate::state::shared::QueueState;
use crate::state::trace::Tap;
use crate::turn::receive::Receive;
use crate::turn::scratch::Scratch;
use crate::turn::sink::ToPort;
use crate::turn::stages::Stages;
use crate::turn::transmit::Transmit;
use grantway_hypervisor::GrantRef;
use grantway_netif::rx::{RxRequest, RxResponse};
use grantway_netif::tx::{TxFlags, TxRequest, TxResponse, status};
use grantway_ring::{Back, Front, Index, RingMemory};
use std::collections::BTreeSet;
use std::ops::Range;

/// The grant of the page of the request with id 0.
const FIRST_GREF: u32 = 1000;
/// Slots of a ring.
const RING: u16 = 256;

/// A case: the ring's start, packets of a burst, and the spacing of pages that cannot be reached.
/// By its start a burst goes past the ring's end at some slot, or ends with it.
#[derive(Debug, Clone, Copy)]
struct Case {
    start: u32,
    burst: u16,
    holes: u16,
}

impl Case {
    fn pages(self, log: &Logged) -> Pages {
        let gref = |id: u16| FIRST_GREF + u32::from(id);
        let holes = (0..RING).filter(|&id| self.is_hole(id)).map(gref).collect();
        Pages::new((0..RING).map(gref).collect(), holes, log)
    }

    fn is_hole(self, id: u16) -> bool {
        self.holes > 0 && id % self.holes == self.holes / 2
    }

    /// Returns the ids of the burst of this number.
    fn ids(self, number: u16) -> Range<u16> {
        number * self.burst..(number + 1) * self.burst
    }
}

/// Cases in which the turns of one successor are not cut again.
const LARGE: [Case; 5] = [
    Case { start: u32::MAX - 63 - 40, burst: 64, holes: 0 },
    Case { start: u32::MAX - 127, burst: 64, holes: 5 },
    Case { start: 192, burst: 64, holes: 0 },
    Case { start: 255 - 17, burst: 17, holes: 4 },
    Case { start: 7, burst: 1, holes: 0 },
];
/// Cases in which the turns of one successor are cut again.
const SMALL: [Case; 3] = [
    Case { start: u32::MAX - 6, burst: 5, holes: 3 },
    Case { start: 256 - 5, burst: 3, holes: 0 },
    Case { start: 20, burst: 1, holes: 0 },
];

/// Guest transmit by one process, or by its successor.
struct Sender {
    transmit: Transmit<Logged, Logged>,
    log: Logged,
    case: Case,
}

impl Sender {
    /// Takes over from the memory. Returns the ids that were owed there, too.
    fn takes_over(case: Case, log: &Logged) -> (Self, Vec<u16>) {
        let journal = Journal::new(log.clone());
        assert_eq!(journal.identity(), Some(identity()));
        let published = RingMemory::<3>::load(log, Index::RspProd);
        let resume = journal.resume_transmit(published).unwrap();
        let back = Back::<_, 3>::attach(log.clone(), resume.consumed, published).unwrap();
        let mut transmit = Transmit::new(back, 0, Some(journal));
        transmit.answer_owed(&resume.owed).unwrap();
        let id = |owed: &TxOwed| match *owed {
            TxOwed::Request(id) => id,
            other => panic!("{other:?} is owed"),
        };
        (Self { transmit, log: log.clone(), case }, resume.owed.iter().map(id).collect())
    }

    /// Serves turns until nothing is left, each of them by the short way.
    fn turns(&mut self, scratch: &mut Scratch) {
        let shared = QueueState::alone(moment, Tap::nowhere());
        let (mut pages, mut port) = (self.case.pages(&self.log), wire(&self.log, Vec::new()));
        loop {
            // The long way lists packets there.
            scratch.tx.packets.clear();
            let (buffers, sink) =
                (&mut pages.buffers, &mut ToPort { port: &mut port, merger: None });
            let stages = Stages { buffers, rules: None, sink, shared: &shared };
            let moved = self.transmit.turn(scratch, stages).unwrap();
            if moved.packets == 0 {
                return;
            }
            assert!(scratch.tx.packets.is_empty(), "another way was taken");
        }
    }
}

/// Sends a burst as the guest, whether or not a backend serves it.
fn sends(log: &Logged, case: Case, number: u16) {
    let prod = RingMemory::<3>::load(log, Index::ReqProd);
    // The number of answers that the guest has taken does not matter here.
    let taken = prod.wrapping_sub(u32::from(number * case.burst));
    let mut front = Front::<_, 3>::attach(log.clone(), prod, taken).unwrap();
    for id in case.ids(number) {
        let gref = FIRST_GREF + u32::from(id);
        let request = TxRequest { gref, offset: 0, flags: TxFlags::empty(), id, size: 60 + id };
        front.push(request.to_words()).unwrap();
    }
    let _ = front.publish();
    log.take_log();
}

/// Checks the guest's view in the end. Each request is answered once and in its place, and each
/// packet is sent once, except those that a killed process owed.
fn judge_sent(log: &Logged, case: Case, bursts: u16, frames: &[Vec<u8>], owed: &BTreeSet<u16>) {
    let prod = RingMemory::<3>::load(log, Index::ReqProd);
    let mut front = Front::<_, 3>::attach(log.clone(), prod, case.start).unwrap();
    let all = 0..case.burst * bursts;
    for id in all.clone() {
        let (_, words) = front.pop().unwrap().unwrap_or_else(|| panic!("{id} is not answered"));
        let answer = TxResponse::from_words(words);
        assert_eq!(answer.id, id);
        match case.is_hole(id) && !owed.contains(&id) {
            true => assert_eq!(answer.status, status::ERROR, "{id}"),
            false if case.is_hole(id) => assert!(answer.status <= status::OKAY, "{answer:?}"),
            false => assert_eq!(answer.status, status::OKAY, "{id}"),
        }
    }
    assert_eq!(front.pop().unwrap(), None, "an answer to no request");
    let id_of = |frame: &Vec<u8>| {
        let id = frame.len() as u16 - 60;
        assert!(frame.iter().all(|&byte| byte == (FIRST_GREF + u32::from(id)) as u8), "{id}");
        id
    };
    let went: Vec<u16> = frames.iter().map(id_of).collect();
    assert!(went.is_sorted_by(|one, next| one < next), "twice, or out of order: {went:?}");
    for id in all {
        let there = went.contains(&id);
        assert!(!(there && case.is_hole(id)), "{id} was read of nothing");
        assert!(there || case.is_hole(id) || owed.contains(&id), "{id} is lost");
    }
}

#[test]
fn plain_transmit_taken_over_after_any_write() {
    let mut scratch = Scratch::new(None);
    for (case, twice) in cases() {
        // The turn that is cut is the second, so that the journal is not fresh.
        let logged = Logged::over(Memory::at(case.start));
        Journal::new(logged.clone()).begin(identity(), case.start, 0);
        let (mut first, _) = Sender::takes_over(case, &logged);
        sends(&logged, case, 0);
        first.turns(&mut scratch);
        let began = sent(&logged.take_log());
        sends(&logged, case, 1);
        let before = logged.memory();
        first.turns(&mut scratch);
        let log = logged.take_log();
        assert!(log.len() > 4 * usize::from(case.burst), "the turn wrote {} times", log.len());
        for cut in 0..=log.len() {
            // A second process takes over from each cut, and a third from the cuts of the second.
            let then = Logged::over(before.after(&log[..cut]));
            sends(&then, case, 2);
            let between = then.memory();
            let (mut second, owed) = Sender::takes_over(case, &then);
            second.turns(&mut scratch);
            let more = then.take_log();
            for again in if twice { 0..=more.len() } else { more.len()..=more.len() } {
                let last = Logged::over(between.after(&more[..again]));
                sends(&last, case, 3);
                let (mut third, also) = Sender::takes_over(case, &last);
                third.turns(&mut scratch);
                let rest = last.take_log();
                let (mut frames, mut lost) = (began.clone(), BTreeSet::new());
                for part in [&log[..cut], &more[..again], &rest] {
                    frames.extend(sent(part));
                }
                lost.extend(owed.iter().chain(&also).copied());
                let told = std::panic::AssertUnwindSafe(|| {
                    judge_sent(&last, case, 4, &frames, &lost);
                });
                told_where(case, cut, again, told);
            }
        }
    }
}

fn cases() -> impl Iterator<Item = (Case, bool)> {
    LARGE.map(|case| (case, false)).into_iter().chain(SMALL.map(|case| (case, true)))
}

/// Runs a check. On a panic says at which cuts it failed.
fn told_where(case: Case, cut: usize, again: usize, judge: impl FnOnce() + std::panic::UnwindSafe) {
    if let Err(panic) = std::panic::catch_unwind(judge) {
        eprintln!("{case:?}, cut at {cut}, and the successor at {again}");
        std::panic::resume_unwind(panic);
    }
}

/// Returns the frame of a number, by which its length goes, too.
fn frame(number: u16) -> Vec<u8> {
    vec![number as u8; 60 + usize::from(number)]
}

/// Guest receive by one process.
struct Receiver {
    receive: Receive<Logged, Logged>,
    log: Logged,
    case: Case,
}

impl Receiver {
    fn takes_over(case: Case, log: &Logged) -> Self {
        let journal = Journal::new(log.clone());
        assert_eq!(journal.identity(), Some(identity()));
        let published = RingMemory::<2>::load(log, Index::RspProd);
        let resume = journal.resume_receive(published).unwrap();
        let back = Back::<_, 2>::attach(log.clone(), resume.consumed, published).unwrap();
        let receive = Receive::new(back, 0, GUEST, Some(journal), resume.owed, moment());
        Self { receive, log: log.clone(), case }
    }

    /// Serves a turn that gives a burst. Returns true if it went by the short way.
    fn gives(&mut self, scratch: &mut Scratch, number: u16) -> bool {
        let shared = QueueState::alone(moment, Tap::nowhere());
        let mut pages = self.case.pages(&self.log);
        let frames = self.case.ids(number).map(frame).collect();
        let mut port = Wire { short: true, ..wire(&self.log, frames) };
        // The long way lists frames there.
        scratch.delivery.clear();
        let buffers = &mut pages.buffers;
        let moved = self.receive.turn(scratch, buffers, &mut port, None, &shared, true).unwrap();
        assert_eq!(moved.packets, usize::from(self.case.burst));
        scratch.delivery.frames.is_empty()
    }
}

/// Returns the frames that the guest was shown. Checks that they are whole, each in the page that
/// was posted at its place, with an error if that page cannot be reached.
fn seen(log: &Logged, case: Case) -> Vec<Option<Vec<u8>>> {
    let prod = RingMemory::<2>::load(log, Index::ReqProd);
    let mut front = Front::<_, 2>::attach(log.clone(), prod, case.start).unwrap();
    let (mut seen, memory) = (Vec::new(), log.memory());
    while let Some((_, words)) = front.pop().unwrap() {
        let answer = RxResponse::from_words(words);
        let id = seen.len() as u16;
        assert_eq!(answer.id, id, "another page's answer");
        let page = memory.pages.get(&GrantRef(FIRST_GREF + u32::from(id)).0);
        seen.push(match case.is_hole(id) {
            true => {
                assert_eq!((answer.status, page), (status::ERROR, None));
                None
            }
            false => {
                let page = page.unwrap_or_else(|| panic!("page {id} was not written"));
                assert_eq!(answer.status, page.len() as i16, "page {id}");
                Some(page.clone())
            }
        });
    }
    seen
}

#[test]
fn plain_receive_taken_over_after_any_write() {
    let mut scratch = Scratch::new(None);
    for (case, twice) in cases() {
        // The guest posts all pages, and the turn that is cut is the second.
        let logged = Logged::over(Memory::at(case.start));
        Journal::new(logged.clone()).begin(identity(), 0, case.start);
        let mut front = Front::<_, 2>::attach(logged.clone(), case.start, case.start).unwrap();
        for id in 0..RING {
            front.push(RxRequest { id, gref: FIRST_GREF + u32::from(id) }.to_words()).unwrap();
        }
        let _ = front.publish();
        let mut first = Receiver::takes_over(case, &logged);
        assert!(first.gives(&mut scratch, 0), "another way was taken");
        let before = logged.memory();
        logged.take_log();
        assert!(first.gives(&mut scratch, 1), "another way was taken");
        let log = logged.take_log();
        assert!(log.len() > 5 * usize::from(case.burst), "the turn wrote {} times", log.len());
        for cut in 0..=log.len() {
            let between = before.after(&log[..cut]);
            let then = Logged::over(between.clone());
            let mut second = Receiver::takes_over(case, &then);
            // A page of the killed process may be owed at first, so the turn may take the long way.
            let shown = seen(&then, case).len();
            second.gives(&mut scratch, 2);
            let first_turn = then.take_log();
            let short = second.gives(&mut scratch, 3);
            assert!(short, "another way was taken");
            let more = [first_turn.clone(), then.take_log()].concat();
            for again in if twice { 0..=more.len() } else { more.len()..=more.len() } {
                let last = Logged::over(between.after(&more[..again]));
                let shown_again = seen(&last, case).len();
                let mut rest = Vec::new();
                if case.burst < 64 {
                    let mut third = Receiver::takes_over(case, &last);
                    third.gives(&mut scratch, 4);
                    rest.push(4);
                }
                // A turn was shown to the guest as a whole, or not at all.
                let burst = usize::from(case.burst);
                let mut bursts = vec![0];
                bursts.extend((shown == 2 * burst).then_some(1));
                let whole = (shown_again - shown) / burst;
                bursts.extend([2, 3].into_iter().take(whole));
                bursts.extend(rest);
                let frames = bursts.into_iter().flat_map(|number| case.ids(number)).map(frame);
                let told = std::panic::AssertUnwindSafe(|| {
                    assert!(
                        [shown, shown_again].iter().all(|n| n.is_multiple_of(burst)),
                        "half a turn"
                    );
                    let found = seen(&last, case);
                    for (id, (found, given)) in found.iter().zip(frames.clone()).enumerate() {
                        let given = (!case.is_hole(id as u16)).then_some(given);
                        assert!(*found == given, "page {id}: {found:?}");
                    }
                    assert_eq!(found.len(), frames.count());
                });
                told_where(case, cut, again, told);
            }
        }
    }
}

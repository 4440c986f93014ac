//! A turn of guest receive whose frames have several pages, cut after any write.

use super::{GUEST, Logged, Memory, Pages, SLOTS, identity, wire};
use crate::journal::Journal;
use crate::state::shared::QueueState;
use crate::state::trace::Tap;
use crate::turn::receive::Receive;
use crate::turn::scratch::Scratch;
use grantway_netif::rx::RxRequest;
use grantway_netif::slots::rx::{RxOutcome, parse_rx};
use grantway_ring::{Back, Front, Index, PAGE_SIZE, RingMemory};
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
        .turn(&mut scratch, &mut pages().buffers, &mut wire(&logged, frames(0..9)), None, &shared)
        .unwrap();
    let before = logged.memory();
    logged.take_log();
    receive
        .turn(&mut scratch, &mut pages().buffers, &mut wire(&logged, frames(9..21)), None, &shared)
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
            .turn(&mut scratch, &mut later.buffers, &mut wire(&then, frames(21..40)), None, &shared)
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

//! Peers that write what they like: no panic, no endless loop, a typed error.
#![cfg(not(loom))]
#![allow(missing_docs)]

mod small;

use grantway_ring::{Back, BadIndices, Front, Index, RingError, RingMemory, Unconsumed, Unseen};
use proptest::prelude::*;
use small::{Small, W};

const SLOTS: u32 = 8;

#[test]
fn xsa_39_absurd_req_prod_disables() {
    for start in [0, 5, u32::MAX - 3] {
        for beyond in [SLOTS + 1, SLOTS * 2, 1 << 31, u32::MAX] {
            let mem = Small::new(SLOTS, start);
            let mut back = Back::attach(mem.clone(), start, start).unwrap();
            mem.store(Index::ReqProd, start.wrapping_add(beyond));
            let overflow = RingError::Overflow { found: beyond, limit: SLOTS };
            assert_eq!(back.available(), Err(overflow));
            assert_eq!(back.has(1), Err(overflow));
            assert_eq!(back.pop(), Err(overflow));
            assert_eq!(back.peek_batch(&mut [[0; W]; 4]), Err(overflow));
            assert_eq!(back.arm(), Err(overflow));
            assert_eq!(back.req_cons(), start);
        }
    }
}

#[test]
fn xsa_39_requests_over_responses_owed_disable() {
    let mem = Small::new(SLOTS, 0);
    let mut back = Back::new(mem.clone());
    mem.store(Index::ReqProd, SLOTS);
    assert_eq!(back.peek_batch(&mut [[0; W]; 16]), Ok(SLOTS as usize));
    back.consume(3).unwrap();
    // A full ring, of which three are owed: not one more fits.
    mem.store(Index::ReqProd, SLOTS + 1);
    assert_eq!(back.available(), Err(RingError::Overflow { found: 6, limit: 5 }));
    // Answering one makes room for one as soon as the frontend can see the answer. ring.h counts
    // from the moment when it is written.
    back.push_response([0; W]).unwrap();
    assert_eq!(back.available(), Err(RingError::Overflow { found: 6, limit: 5 }));
    let _ = back.publish();
    assert_eq!(back.available(), Ok(6));
}

#[test]
fn xsa_376_more_responses_than_requests_are_refused() {
    for start in [0, u32::MAX - 1] {
        let mem = Small::new(SLOTS, start);
        let mut front = Front::attach(mem.clone(), start, start).unwrap();
        for _ in 0..4 {
            front.push([1; W]).unwrap();
        }
        // Written but not published: the backend cannot know of them.
        mem.store(Index::RspProd, start.wrapping_add(1));
        assert_eq!(front.available(), Err(RingError::Overflow { found: 1, limit: 0 }));
        let _ = front.publish();
        assert_eq!(front.available(), Ok(1));
        mem.store(Index::RspProd, start.wrapping_add(5));
        let overflow = RingError::Overflow { found: 5, limit: 4 };
        assert_eq!(front.available(), Err(overflow));
        assert_eq!(front.pop_batch(&mut [[0; W]; 8]), Err(overflow));
        assert_eq!(front.arm_after(4), Err(overflow));
    }
}

#[test]
fn indices_that_go_back_are_refused() {
    let mem = Small::new(SLOTS, 100);
    let mut back = Back::attach(mem.clone(), 100, 100).unwrap();
    mem.store(Index::ReqProd, 106);
    assert_eq!(back.available(), Ok(6));
    mem.store(Index::ReqProd, 104);
    assert_eq!(back.available(), Err(RingError::Retreat { found: 4, known: 6 }));
    mem.store(Index::ReqProd, 99);
    assert_eq!(back.available(), Err(RingError::Overflow { found: u32::MAX, limit: SLOTS }));

    let mut front = Front::attach(mem.clone(), 106, 100).unwrap();
    mem.store(Index::RspProd, 104);
    assert_eq!(front.available(), Ok(4));
    mem.store(Index::RspProd, 103);
    assert_eq!(front.available(), Err(RingError::Retreat { found: 3, known: 4 }));
}

#[test]
fn our_own_mistakes_are_typed() {
    let mem = Small::new(SLOTS, 0);
    let mut back = Back::new(mem.clone());
    assert_eq!(back.push_response([0; W]), Err(Unconsumed { index: 0 }));
    assert_eq!(back.consume(1), Err(Unseen { asked: 1, known: 0 }));
    let mut front = Front::attach(mem.clone(), 0, 0).unwrap();
    assert_eq!(front.consume(u32::MAX), Err(Unseen { asked: u32::MAX, known: 0 }));

    let bad = |found| BadIndices { found, slots: SLOTS };
    assert_eq!(Front::attach(mem.clone(), 9, 0).unwrap_err(), bad(9));
    assert_eq!(Front::attach(mem.clone(), 0, 1).unwrap_err(), bad(u32::MAX));
    assert_eq!(Back::attach(mem, 9, 0).unwrap_err(), bad(9));
}

#[derive(Debug, Clone)]
enum Step {
    Write(usize, u32),
    Nudge(usize, i32),
    Slot(usize, [u32; W]),
    Push(u8),
    PublishFront,
    Pop,
    PopBatch(usize),
    ArmFront(u32),
    Take,
    Peek(usize, u32),
    Answer(u8),
    PublishBack,
    ArmBack(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4usize, any::<u32>()).prop_map(|(index, value)| Step::Write(index, value)),
        (0..4usize, -20..20i32).prop_map(|(index, by)| Step::Nudge(index, by)),
        (0..SLOTS as usize, any::<[u32; W]>()).prop_map(|(slot, words)| Step::Slot(slot, words)),
        any::<u8>().prop_map(Step::Push),
        Just(Step::PublishFront),
        Just(Step::Pop),
        (0..40usize).prop_map(Step::PopBatch),
        any::<u32>().prop_map(Step::ArmFront),
        Just(Step::Take),
        (0..40usize, any::<u32>()).prop_map(|(peek, consume)| Step::Peek(peek, consume)),
        any::<u8>().prop_map(Step::Answer),
        Just(Step::PublishBack),
        any::<u32>().prop_map(Step::ArmBack),
    ]
}

/// Checks what must hold of each end for any content of the page.
fn sane(front: &Front<Small, W>, back: &Back<Small, W>) {
    assert!(front.free() <= SLOTS);
    assert!(front.outstanding() <= SLOTS);
    assert!(back.owed() <= SLOTS);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_written_to_the_page_harms(
        start in any::<u32>(),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mem = Small::new(SLOTS, start);
        let mut front = Front::attach(mem.clone(), start, start).unwrap();
        let mut back = Back::attach(mem.clone(), start, start).unwrap();
        for step in steps {
            match step {
                Step::Write(index, value) => mem.indices[index].set(value),
                Step::Nudge(index, by) => {
                    let value = mem.indices[index].get();
                    mem.indices[index].set(value.wrapping_add_signed(by));
                }
                Step::Slot(slot, words) => mem.slots[slot].set(words),
                Step::Push(count) => {
                    let pushed = (0..count).take_while(|_| front.push([1; W]).is_ok()).count();
                    prop_assert!(pushed <= SLOTS as usize);
                }
                Step::PublishFront => drop(front.publish()),
                Step::Pop => drop(front.pop()),
                Step::PopBatch(count) => {
                    let mut out = vec![[0; W]; count];
                    if let Ok(popped) = front.pop_batch(&mut out) {
                        prop_assert!(popped <= count.min(SLOTS as usize));
                    }
                }
                Step::ArmFront(count) => drop(front.arm_after(count)),
                Step::Take => drop(back.pop()),
                Step::Peek(count, consume) => {
                    let mut out = vec![[0; W]; count];
                    if let Ok(peeked) = back.peek_batch(&mut out) {
                        prop_assert!(peeked <= count.min(SLOTS as usize));
                    }
                    let _ = back.consume(consume % (SLOTS + 2));
                }
                Step::Answer(count) => {
                    let answered =
                        (0..count).take_while(|_| back.push_response([2; W]).is_ok()).count();
                    prop_assert!(answered <= SLOTS as usize);
                }
                Step::PublishBack => drop(back.publish()),
                Step::ArmBack(count) => drop(back.arm_after(count)),
            }
            sane(&front, &back);
        }
    }

    #[test]
    fn attach_takes_just_the_indices_that_fit(at in any::<u32>(), apart in 0..=2 * SLOTS) {
        let mem = Small::new(SLOTS, at);
        let ahead = at.wrapping_add(apart);
        let fits = apart <= SLOTS;
        let front = Front::attach(mem.clone(), ahead, at);
        prop_assert_eq!(front.is_ok(), fits);
        if let Ok(front) = front {
            prop_assert_eq!((front.req_prod_published(), front.rsp_cons()), (ahead, at));
            prop_assert_eq!(front.free(), SLOTS - apart);
        }
        let back = Back::attach(mem, ahead, at);
        prop_assert_eq!(back.is_ok(), fits);
        if let Ok(back) = back {
            prop_assert_eq!(back.req_cons(), ahead);
            prop_assert_eq!((back.rsp_prod_pvt(), back.rsp_prod_published()), (at, at));
            prop_assert_eq!(back.owed(), apart);
        }
    }
}

//! Both ends of a ring against a model of queues, by random operations.
#![cfg(not(loom))]
#![allow(missing_docs)]

mod small;

use std::collections::VecDeque;

use grantway_ring::{Back, Front, Full, Unconsumed, Unseen};
use proptest::prelude::*;
use small::{Small, W};

#[derive(Debug, Clone)]
enum Step {
    PushRequests(usize),
    PushRequestBatch(usize),
    PublishRequests,
    PopRequests(usize),
    PeekRequests { peek: usize, consume: u32 },
    PushResponses(usize),
    PushResponsesTogether(usize),
    PublishResponses,
    PopResponses(usize),
    PopResponseBatch(usize),
    ArmFront(u32),
    ArmBack(u32),
    ReattachFront,
    ReattachBack,
}

fn step() -> impl Strategy<Value = Step> {
    let few = 0..12usize;
    prop_oneof![
        few.clone().prop_map(Step::PushRequests),
        few.clone().prop_map(Step::PushRequestBatch),
        Just(Step::PublishRequests),
        few.clone().prop_map(Step::PopRequests),
        (few.clone(), 0..12u32).prop_map(|(peek, consume)| Step::PeekRequests { peek, consume }),
        few.clone().prop_map(Step::PushResponses),
        few.clone().prop_map(Step::PushResponsesTogether),
        Just(Step::PublishResponses),
        few.clone().prop_map(Step::PopResponses),
        few.prop_map(Step::PopResponseBatch),
        (0..12u32).prop_map(Step::ArmFront),
        (0..12u32).prop_map(Step::ArmBack),
        Just(Step::ReattachFront),
        Just(Step::ReattachBack),
    ]
}

/// Starts anywhere, and often just before the indices wrap.
fn start() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), (0..20u32).prop_map(|back| u32::MAX - back)]
}

fn request(index: u32) -> [u32; W] {
    [index, !index]
}

fn response(index: u32) -> [u32; W] {
    [index ^ 0xaaaa_aaaa, index]
}

/// Expected places of entries, which are known by their index.
struct Model {
    slots: u32,
    next: u32,
    written: VecDeque<u32>,
    published: VecDeque<u32>,
    owed: VecDeque<u32>,
    answered: VecDeque<u32>,
    waiting: VecDeque<u32>,
    /// Responses waiting at which a sleeping frontend must be woken.
    front_asleep: Option<u32>,
    /// Requests waiting at which a sleeping backend must be woken.
    back_asleep: Option<u32>,
}

impl Model {
    fn free(&self) -> u32 {
        let taken = [&self.written, &self.published, &self.owed, &self.answered, &self.waiting];
        self.slots - taken.iter().map(|queue| queue.len() as u32).sum::<u32>()
    }

    fn pushed(&mut self) -> u32 {
        let index = self.next;
        self.next = index.wrapping_add(1);
        self.written.push_back(index);
        index
    }
}

/// A sleeper who asked for `wanted` entries must be woken by the publication
/// that completes them, and is awake after any event.
fn judge(notify: bool, asleep: &mut Option<u32>, before: usize, after: usize) {
    if before == after {
        assert!(!notify, "nothing was published");
        return;
    }
    if let Some(wanted) = *asleep {
        let due = before < wanted as usize && after >= wanted as usize;
        assert_eq!(notify, due, "asked for {wanted}, had {before}, have {after}");
        if due {
            *asleep = None;
        }
    }
}

fn run(slots: u32, start: u32, steps: Vec<Step>) {
    let mem = Small::new(slots, start);
    let mut front = Front::attach(mem.clone(), start, start).unwrap();
    let mut back = Back::attach(mem.clone(), start, start).unwrap();
    let mut model = Model {
        slots,
        next: start,
        written: VecDeque::new(),
        published: VecDeque::new(),
        owed: VecDeque::new(),
        answered: VecDeque::new(),
        waiting: VecDeque::new(),
        front_asleep: None,
        back_asleep: None,
    };
    for step in steps {
        match step {
            Step::PushRequests(count) => {
                for _ in 0..count {
                    if model.free() == 0 {
                        assert_eq!(front.push(request(0)), Err(Full));
                    } else {
                        let index = model.pushed();
                        assert_eq!(front.push(request(index)), Ok(index));
                    }
                }
            }
            Step::PushRequestBatch(count) => {
                let base = front.req_prod_pvt();
                let requests: Vec<_> =
                    (0..count as u32).map(|at| request(base.wrapping_add(at))).collect();
                let fit = count.min(model.free() as usize);
                assert_eq!(front.push_batch(&requests), fit);
                for _ in 0..fit {
                    model.pushed();
                }
            }
            Step::PublishRequests => {
                let before = model.published.len();
                model.published.append(&mut model.written);
                judge(front.publish(), &mut model.back_asleep, before, model.published.len());
            }
            Step::PopRequests(count) => {
                for _ in 0..count {
                    let expected = model.published.pop_front();
                    assert_eq!(back.pop().unwrap(), expected.map(|index| (index, request(index))));
                    model.owed.extend(expected);
                    model.back_asleep = None;
                }
            }
            Step::PeekRequests { peek, consume } => {
                let mut out = vec![[0; W]; peek];
                let count = back.peek_batch(&mut out).unwrap();
                assert_eq!(count, peek.min(model.published.len()));
                for (words, index) in out.iter().zip(&model.published).take(count) {
                    assert_eq!(*words, request(*index));
                }
                let waiting = back.available().unwrap();
                assert_eq!(waiting as usize, model.published.len());
                assert_eq!(back.has(consume).unwrap(), waiting >= consume);
                if waiting >= consume {
                    back.consume(consume).unwrap();
                    model.owed.extend(model.published.drain(..consume as usize));
                    model.back_asleep = model.back_asleep.filter(|_| consume == 0);
                } else {
                    let unseen = Unseen { asked: consume, known: waiting };
                    assert_eq!(back.consume(consume), Err(unseen));
                }
            }
            Step::PushResponses(count) => {
                for _ in 0..count {
                    if let Some(index) = model.owed.pop_front() {
                        assert_eq!(back.push_response(response(index)), Ok(index));
                        model.answered.push_back(index);
                    } else {
                        let index = back.req_cons();
                        assert_eq!(back.push_response(response(0)), Err(Unconsumed { index }));
                    }
                }
            }
            Step::PushResponsesTogether(count) => {
                let owed = model.owed.iter().take(count).copied();
                let mut words: Vec<_> = owed.map(response).collect();
                let few = words.len() < count;
                words.resize(count, response(0));
                let index = back.req_cons();
                let pushed = back.push_responses(&words);
                if few {
                    assert_eq!(pushed, Err(Unconsumed { index }));
                } else {
                    assert_eq!(pushed, Ok(()));
                    model.answered.extend(model.owed.drain(..count));
                }
            }
            Step::PublishResponses => {
                let before = model.waiting.len();
                model.waiting.append(&mut model.answered);
                judge(back.publish(), &mut model.front_asleep, before, model.waiting.len());
            }
            Step::PopResponses(count) => {
                for _ in 0..count {
                    let expected = model.waiting.pop_front();
                    assert_eq!(
                        front.pop().unwrap(),
                        expected.map(|index| (index, response(index)))
                    );
                    model.front_asleep = None;
                }
            }
            Step::PopResponseBatch(count) => {
                let mut out = vec![[0; W]; count];
                let first = front.rsp_cons();
                let popped = front.pop_batch(&mut out).unwrap();
                assert_eq!(popped, count.min(model.waiting.len()));
                for (at, index) in model.waiting.drain(..popped).enumerate() {
                    assert_eq!(index, first.wrapping_add(at as u32));
                    assert_eq!(out[at], response(index));
                }
                model.front_asleep = model.front_asleep.filter(|_| popped == 0);
            }
            Step::ArmFront(wanted) => {
                let wanted = wanted.min(front.outstanding()).max(1);
                let there = model.waiting.len() as u32 >= wanted;
                assert_eq!(front.arm_after(wanted).unwrap(), there);
                if !there {
                    model.front_asleep = Some(wanted);
                }
            }
            Step::ArmBack(wanted) => {
                let wanted = wanted.min(slots - back.owed()).max(1);
                let there = model.published.len() as u32 >= wanted;
                assert_eq!(back.arm_after(wanted).unwrap(), there);
                if !there {
                    model.back_asleep = Some(wanted);
                }
            }
            Step::ReattachFront => {
                // What was written and not published is gone with its writer.
                for _ in model.written.drain(..) {
                    model.next = model.next.wrapping_sub(1);
                }
                let (prod, cons) = (front.req_prod_published(), front.rsp_cons());
                front = Front::attach(mem.clone(), prod, cons).unwrap();
            }
            Step::ReattachBack => {
                // What was answered and not published is owed again.
                while let Some(index) = model.answered.pop_back() {
                    model.owed.push_front(index);
                }
                let (cons, prod) = (back.req_cons(), back.rsp_prod_published());
                back = Back::attach(mem.clone(), cons, prod).unwrap();
            }
        }
        assert_eq!(front.free(), model.free());
        assert_eq!(back.owed() as usize, model.owed.len());
        assert_eq!(front.available().unwrap() as usize, model.waiting.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_ends_agree_with_queues(
        order in 0..4u32,
        start in start(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(1 << order, start, steps);
    }
}

//! The ring under loom: every interleaving, and every stale value that relaxed
//! memory allows.
//!
//! Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p grantway-ring --test loom --release`.
//!
//! The ends are the ones that ship; only the memory is loom's. Slots are cells
//! whose accesses loom tracks, so that a slot read while it is written, or
//! read before the write that should precede it, fails the model: that is a
//! torn slot. A sleeper that nobody wakes deadlocks the model: that is a lost
//! wake-up. Each `without_*` test removes one fence and demands the failure;
//! the same model with all fences must pass.
//!
//! The small models, in which the fences are removed, are explored whole; the
//! conversations up to five preemptions per execution, beyond the switches
//! that blocking forces.
#![cfg(loom)]
#![allow(missing_docs)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use grantway_ring::{Back, Fence, Front, Index, RingMemory};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

const W: usize = 2;

/// A ring in loom's memory, with one fence left out at most.
struct Page {
    indices: [AtomicU32; 4],
    slots: Vec<UnsafeCell<[u32; W]>>,
    skip: Option<Fence>,
}

// SAFETY: loom watches every access to the cells, and fails the model on a race.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

#[derive(Clone)]
struct Memory(Arc<Page>);

impl Memory {
    /// A ring of `slots` slots on which both ends stand at `start`, and nobody
    /// asked for an event.
    fn new(slots: u32, start: u32, skip: Option<Fence>) -> Self {
        Self(Arc::new(Page {
            indices: core::array::from_fn(|_| AtomicU32::new(start)),
            slots: (0..slots).map(|_| UnsafeCell::new([0; W])).collect(),
            skip,
        }))
    }

    fn cell(&self, index: u32) -> &UnsafeCell<[u32; W]> {
        &self.0.slots[(index & (self.slots() - 1)) as usize]
    }
}

impl RingMemory<W> for Memory {
    fn slots(&self) -> u32 {
        self.0.slots.len() as u32
    }

    fn load(&self, index: Index) -> u32 {
        self.0.indices[index as usize].load(Ordering::Relaxed)
    }

    fn store(&self, index: Index, value: u32) {
        self.0.indices[index as usize].store(value, Ordering::Relaxed);
    }

    fn read_slot(&self, index: u32) -> [u32; W] {
        // SAFETY: loom fails the model if anyone writes meanwhile.
        self.cell(index).with(|words| unsafe { *words })
    }

    fn write_slot(&self, index: u32, words: [u32; W]) {
        // SAFETY: loom fails the model if anyone accesses the cell meanwhile.
        self.cell(index).with_mut(|at| unsafe { *at = words });
    }

    fn clear(&self) {
        for index in [Index::ReqProd, Index::ReqEvent, Index::RspProd, Index::RspEvent] {
            self.store(index, 0);
        }
        for index in 0..self.slots() {
            self.write_slot(index, [0; W]);
        }
    }

    fn fence(&self, which: Fence) {
        if self.0.skip != Some(which) {
            which.issue();
        }
    }
}

/// An event channel: a counter of signals, on which a waiter sleeps until it is
/// past what he has seen. No wake-up is spurious: loom's condition variable has
/// none, so that a lost signal is a deadlock.
struct Port {
    count: Mutex<u32>,
    rung: Condvar,
}

impl Port {
    fn new() -> Arc<Self> {
        Arc::new(Self { count: Mutex::new(0), rung: Condvar::new() })
    }

    fn notify(&self) {
        *self.count.lock().unwrap() += 1;
        self.rung.notify_one();
    }

    fn wait(&self, seen: &mut u32) {
        let mut count = self.count.lock().unwrap();
        while *count == *seen {
            count = self.rung.wait(count).unwrap();
        }
        *seen = *count;
    }
}

fn request(number: u32) -> [u32; W] {
    [number, !number]
}

fn response(number: u32) -> [u32; W] {
    [number ^ 0x5555_5555, number]
}

/// Explores `model`, up to `preemptions` an execution or without bound.
fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

/// Failure that a model with one fence too few must show.
enum Failure {
    Torn,
    Asleep,
}

/// Demands that `model` passes whole and fails, in the way given, without
/// `fence`.
fn needs(fence: Fence, failure: Failure, model: fn(Option<Fence>)) {
    check(None, move || model(None));
    let panic = catch_unwind(AssertUnwindSafe(|| check(None, move || model(Some(fence)))))
        .expect_err("the model passed without the fence");
    let message = panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default();
    let expected = match failure {
        Failure::Torn => "ausality violation",
        Failure::Asleep => "deadlock",
    };
    assert!(message.contains(expected), "failed otherwise than expected: {message}");
}

/// One request crosses while the backend polls.
fn one_request(skip: Option<Fence>) {
    let mem = Memory::new(2, 0, skip);
    let mut front = Front::attach(mem.clone(), 0, 0).unwrap();
    let mut back = Back::new(mem);
    let frontend = thread::spawn(move || {
        front.push(request(1)).unwrap();
        let _ = front.publish();
    });
    if let Some(popped) = back.pop().unwrap() {
        assert_eq!(popped, (0, request(1)));
    }
    frontend.join().unwrap();
}

/// One response crosses while the frontend polls.
fn one_response(skip: Option<Fence>) {
    let mem = Memory::new(2, 0, skip);
    mem.store(Index::ReqProd, 1);
    let mut front = Front::attach(mem.clone(), 1, 0).unwrap();
    let mut back = Back::attach(mem, 1, 0).unwrap();
    let backend = thread::spawn(move || {
        back.push_response(response(1)).unwrap();
        let _ = back.publish();
    });
    if let Some(popped) = front.pop().unwrap() {
        assert_eq!(popped, (0, response(1)));
    }
    backend.join().unwrap();
}

/// A slot of a ring of one is read as a request by the backend, overwritten
/// with the response, and overwritten again by the frontend's next request.
/// All reads must come before the writes that replace what they read.
fn slot_reused(skip: Option<Fence>) {
    let mem = Memory::new(1, 0, skip);
    let mut front = Front::attach(mem.clone(), 0, 0).unwrap();
    front.push(request(1)).unwrap();
    let _ = front.publish();
    let mut back = Back::new(mem);
    let backend = thread::spawn(move || {
        assert_eq!(back.pop().unwrap(), Some((0, request(1))));
        back.push_response(response(1)).unwrap();
        let _ = back.publish();
        if let Some(popped) = back.pop().unwrap() {
            assert_eq!(popped, (1, request(2)));
        }
    });
    if let Some(popped) = front.pop().unwrap() {
        assert_eq!(popped, (0, response(1)));
        front.push(request(2)).unwrap();
        let _ = front.publish();
    }
    backend.join().unwrap();
}

/// The backend sleeps until a request is there; nobody has asked for an event
/// before.
fn backend_sleeps(skip: Option<Fence>) {
    let mem = Memory::new(2, 0, skip);
    let mut front = Front::attach(mem.clone(), 0, 0).unwrap();
    let mut back = Back::new(mem);
    let port = Port::new();
    let bell = port.clone();
    let frontend = thread::spawn(move || {
        front.push(request(1)).unwrap();
        if front.publish() {
            bell.notify();
        }
    });
    let mut seen = 0;
    while !back.arm().unwrap() {
        port.wait(&mut seen);
    }
    assert_eq!(back.pop().unwrap(), Some((0, request(1))));
    frontend.join().unwrap();
}

/// The frontend sleeps until a response is there.
fn frontend_sleeps(skip: Option<Fence>) {
    let mem = Memory::new(2, 0, skip);
    mem.store(Index::ReqProd, 1);
    let mut front = Front::attach(mem.clone(), 1, 0).unwrap();
    let mut back = Back::attach(mem, 1, 0).unwrap();
    let port = Port::new();
    let bell = port.clone();
    let backend = thread::spawn(move || {
        back.push_response(response(1)).unwrap();
        if back.publish() {
            bell.notify();
        }
    });
    let mut seen = 0;
    while !front.arm().unwrap() {
        port.wait(&mut seen);
    }
    assert_eq!(front.pop().unwrap(), Some((0, response(1))));
    backend.join().unwrap();
}

#[test]
fn without_requests_written_a_request_is_torn() {
    needs(Fence::RequestsWritten, Failure::Torn, one_request);
}

#[test]
fn without_requests_seen_a_request_is_torn() {
    needs(Fence::RequestsSeen, Failure::Torn, one_request);
}

#[test]
fn without_responses_written_a_response_is_torn() {
    needs(Fence::ResponsesWritten, Failure::Torn, one_response);
}

#[test]
fn without_responses_seen_a_response_is_torn() {
    needs(Fence::ResponsesSeen, Failure::Torn, one_response);
}

#[test]
fn without_responses_written_a_reused_slot_is_torn() {
    needs(Fence::ResponsesWritten, Failure::Torn, slot_reused);
}

#[test]
fn without_responses_seen_a_reused_slot_is_torn() {
    needs(Fence::ResponsesSeen, Failure::Torn, slot_reused);
}

#[test]
fn without_requests_published_a_wakeup_is_lost() {
    needs(Fence::RequestsPublished, Failure::Asleep, backend_sleeps);
}

#[test]
fn without_requests_armed_a_wakeup_is_lost() {
    needs(Fence::RequestsArmed, Failure::Asleep, backend_sleeps);
}

#[test]
fn without_responses_published_a_wakeup_is_lost() {
    needs(Fence::ResponsesPublished, Failure::Asleep, frontend_sleeps);
}

#[test]
fn without_responses_armed_a_wakeup_is_lost() {
    needs(Fence::ResponsesArmed, Failure::Asleep, frontend_sleeps);
}

/// A backend that sleeps whenever nothing is there and answers each request as
/// it comes, `count` in all.
fn serve(mut back: Back<Memory, W>, count: u32, port: &Port, bell: &Port) {
    let start = back.req_cons();
    let mut seen = 0;
    while back.req_cons().wrapping_sub(start) < count {
        while let Some((index, words)) = back.pop().unwrap() {
            assert_eq!(words, request(index));
            back.push_response(response(index)).unwrap();
        }
        if back.publish() {
            bell.notify();
        }
        if back.req_cons().wrapping_sub(start) < count && !back.arm().unwrap() {
            port.wait(&mut seen);
        }
    }
}

/// `count` requests and responses over a ring of `slots`, both ends asleep
/// whenever they have nothing to do; `lazy` asks for one event for all that is
/// outstanding.
fn conversation(slots: u32, start: u32, count: u32, lazy: bool) {
    let mem = Memory::new(slots, start, None);
    let mut front = Front::attach(mem.clone(), start, start).unwrap();
    let back = Back::attach(mem, start, start).unwrap();
    let to_back = Port::new();
    let to_front = Port::new();
    let (port, bell) = (to_back.clone(), to_front.clone());
    let backend = thread::spawn(move || serve(back, count, &port, &bell));

    let pushed = |front: &Front<Memory, W>| front.req_prod_pvt().wrapping_sub(start);
    let popped = |front: &Front<Memory, W>| front.rsp_cons().wrapping_sub(start);
    let mut seen = 0;
    while popped(&front) < count {
        while pushed(&front) < count && front.free() > 0 {
            front.push(request(front.req_prod_pvt())).unwrap();
        }
        if front.publish() {
            to_back.notify();
        }
        while let Some((index, words)) = front.pop().unwrap() {
            assert_eq!(words, response(index));
        }
        if popped(&front) < count && front.outstanding() > 0 {
            let wanted = if lazy { front.outstanding() } else { 1 };
            if !front.arm_after(wanted).unwrap() {
                to_front.wait(&mut seen);
            }
        }
    }
    backend.join().unwrap();
}

#[test]
fn both_ends_sleep_and_none_is_forgotten() {
    check(Some(5), || conversation(2, 0, 2, false));
}

#[test]
fn both_ends_sleep_over_the_end_of_the_indices() {
    check(Some(5), || conversation(2, u32::MAX, 2, false));
}

#[test]
fn a_ring_of_one_is_reused_over_the_end_of_the_indices() {
    check(Some(5), || conversation(1, u32::MAX, 2, false));
}

#[test]
fn one_event_for_several_responses_still_comes() {
    check(Some(5), || conversation(2, u32::MAX - 1, 2, true));
}

#[test]
fn three_messages_over_two_slots() {
    check(Some(5), || conversation(2, u32::MAX - 1, 3, false));
}

#[test]
fn four_messages_over_two_slots_on_one_event_each_way() {
    check(Some(4), || conversation(2, u32::MAX - 1, 4, true));
}

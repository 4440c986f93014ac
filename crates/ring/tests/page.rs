//! The ring page: its layout, and two threads over a real one.
#![cfg(not(loom))]
#![allow(missing_docs)]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use grantway_ring::{Back, Front, Index, PAGE_SIZE, RingMemory, RingPage, SharedPage, SharedRun};

fn page() -> SharedPage {
    SharedRun::private(1).page(0).unwrap()
}

fn words(page: &SharedPage) -> Vec<u32> {
    let mut bytes = [0; PAGE_SIZE];
    page.read(0, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn slots_are_as_many_as_ring_h_fits() {
    assert_eq!(RingPage::<2>::SLOTS, 256);
    assert_eq!(RingPage::<3>::SLOTS, 256);
    assert_eq!(RingPage::<4>::SLOTS, 128);
}

#[test]
fn init_zeroes_the_page_and_asks_for_the_first_events() {
    let page = page();
    page.write(0, &[0xa5; PAGE_SIZE]).unwrap();
    let front = Front::<_, 3>::init(RingPage::new(page.clone()));
    assert_eq!(front.free(), 256);
    let words = words(&page);
    assert_eq!(words[..4], [0, 1, 0, 1]);
    assert!(words[4..].iter().all(|&word| word == 0));
}

#[test]
fn words_lie_where_ring_h_puts_them() {
    let page = page();
    let ring = RingPage::<3>::new(page.clone());
    ring.store(Index::ReqProd, 1);
    ring.store(Index::ReqEvent, 2);
    ring.store(Index::RspProd, 3);
    ring.store(Index::RspEvent, 4);
    ring.write_slot(0, [10, 11, 12]);
    ring.write_slot(256 + 1, [20, 21, 22]);
    ring.write_slot(u32::MAX, [30, 31, 32]);
    let words = words(&page);
    assert_eq!(words[..4], [1, 2, 3, 4]);
    assert_eq!(words[16..22], [10, 11, 12, 20, 21, 22]);
    assert_eq!(words[16 + 255 * 3..16 + 256 * 3], [30, 31, 32]);
    assert!(words[16 + 256 * 3..].iter().all(|&word| word == 0));
    assert_eq!(ring.read_slot(255), [30, 31, 32]);
    assert_eq!(ring.read_slot(256), [10, 11, 12]);
    assert_eq!(ring.load(Index::RspProd), 3);
}

#[test]
fn a_first_request_notifies_and_a_second_does_not() {
    let page = page();
    let mut front = Front::<_, 2>::init(RingPage::new(page.clone()));
    let mut back = Back::<_, 2>::new(RingPage::new(page));
    assert!(!front.publish());
    front.push([1, 2]).unwrap();
    assert!(front.publish());
    front.push([3, 4]).unwrap();
    assert!(!front.publish());
    assert_eq!(back.pop(), Ok(Some((0, [1, 2]))));
    back.push_response([5, 6]).unwrap();
    assert!(back.publish());
    assert!(!back.publish());
    assert_eq!(front.pop(), Ok(Some((0, [5, 6]))));
    assert_eq!(back.arm(), Ok(true));
    back.consume(1).unwrap();
    assert_eq!(back.arm(), Ok(false));
    front.push([7, 8]).unwrap();
    assert!(front.publish());
}

const MESSAGES: u32 = if cfg!(miri) { 600 } else { 200_000 };
const START: u32 = u32::MAX - 1000;
/// Guards against hanging, and decides nothing else.
const GUARD: Duration = Duration::from_secs(120);

fn backend(mem: RingPage<3>, port: &Receiver<()>, bell: &Sender<()>) {
    let mut back = Back::attach(mem, START, START).unwrap();
    let mut out = [[0; 3]; 32];
    let mut served = 0;
    while served < MESSAGES {
        let count = back.peek_batch(&mut out).unwrap();
        for (at, words) in out.iter().take(count).enumerate() {
            let index = back.req_cons().wrapping_add(at as u32);
            assert_eq!(*words, [index, !index, index ^ 7]);
        }
        back.consume(count as u32).unwrap();
        for (words, index) in out.iter_mut().zip(0..).take(count) {
            let index = back.rsp_prod_pvt().wrapping_add(index);
            *words = [!index, index, 0];
        }
        back.push_responses(&out[..count]).unwrap();
        served += count as u32;
        if back.publish() {
            bell.send(()).unwrap();
        }
        if served < MESSAGES && !back.arm().unwrap() {
            port.recv_timeout(GUARD).expect("a signal from the front, as requests wait");
        }
    }
}

#[test]
fn two_threads_converse_and_sleep() {
    let page = page();
    let ring = RingPage::<3>::new(page.clone());
    for index in [Index::ReqProd, Index::ReqEvent, Index::RspProd, Index::RspEvent] {
        ring.store(index, START);
    }
    let (to_back, port) = channel();
    let (bell, to_front) = channel();
    let other = ring.clone();
    let backend = std::thread::spawn(move || backend(other, &port, &bell));
    let mut front = Front::attach(ring, START, START).unwrap();
    let mut answered = 0;
    while answered < MESSAGES {
        while front.free() > 0 && front.req_prod_pvt().wrapping_sub(START) < MESSAGES {
            let index = front.req_prod_pvt();
            front.push([index, !index, index ^ 7]).unwrap();
        }
        if front.publish() {
            // The backend may have served its last message and gone.
            let _ = to_back.send(());
        }
        while let Some((index, words)) = front.pop().unwrap() {
            assert_eq!(words, [!index, index, 0]);
            answered += 1;
        }
        // Ask for the event when half of what is outstanding was answered; with
        // nothing outstanding there is something to push instead.
        if front.outstanding() > 0 && !front.arm_after(front.outstanding() / 2).unwrap() {
            to_front.recv_timeout(GUARD).expect("a signal from the back, as responses wait");
        }
    }
    backend.join().unwrap();
}

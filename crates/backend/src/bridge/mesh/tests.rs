//! Bundles arrive in order and wake whoever sleeps, and whoever has too much under way waits.

use super::*;
use crate::bell::drain;
use crate::bridge::bundle::To;
use grantway_netif::Offload;
use grantway_ports::{FrameMeta, FramePlace};
use grantway_vector::PortId;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use std::time::Duration;

fn bells(workers: usize) -> Vec<Arc<Bell>> {
    (0..workers).map(|_| Arc::new(Bell::new().unwrap())).collect()
}

/// A bundle of one frame that says this number, and has so many bytes.
fn bundle(number: u64, len: usize) -> Bundle {
    let mut bytes = vec![0; len.max(8)];
    bytes[..8].copy_from_slice(&number.to_ne_bytes());
    let mut bundle = Bundle::default();
    let meta = FrameMeta { len: bytes.len(), offload: Offload::default() };
    bundle.add(&[FramePlace { at: 0, meta }], To::Port(PortId(1), None), &bytes);
    bundle
}

fn number(bundle: &Bundle) -> u64 {
    bundle.first_word()
}

fn rings(bell: &Bell) -> bool {
    let mut fds = [PollFd::new(bell, PollFlags::IN)];
    let rings = poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() > 0;
    drain(bell.as_fd());
    rings
}

#[test]
fn bundles_arrive_in_the_order_in_which_they_were_pushed_whoever_pushed_them() {
    let bells = bells(3);
    let all = mesh(&bells);
    for n in 0..100 {
        all[n as usize % 2].push(2, &mut bundle(n, 60), 1);
    }
    assert!(all[2].has_bundles() && !all[0].has_bundles() && !all[1].has_bundles());
    let came: Vec<u64> =
        std::iter::from_fn(|| all[2].pop()).map(|(_, _, came)| number(&came)).collect();
    assert_eq!(came, (0..100).collect::<Vec<_>>());
    assert!(!all[2].has_bundles() && all[2].pop().is_none());
    assert!(bells.iter().all(|bell| !rings(bell)), "nobody slept");
}

#[test]
fn a_worker_that_is_alone_has_no_mesh() {
    let all = mesh(&bells(1));
    assert!(!all[0].is_shared() && !all[0].is_full() && all[0].falls_asleep());
    assert!(all[0].pop().is_none() && !all[0].has_news());
}

#[test]
fn only_a_sender_to_a_full_inbox_waits_until_it_is_woken() {
    let bells = bells(3);
    let all = mesh(&bells);
    let mut pushed = 0;
    while !all[0].is_full() {
        all[0].push(2, &mut bundle(pushed, 60_000), 1);
        pushed += 1;
        assert!(pushed < 100);
    }
    // Each takes its bytes and room for them to begin with a page.
    assert!(pushed as usize >= BYTES_MAX / 130_000, "{pushed}");
    assert!(!all[1].is_full(), "another has a share of its own");
    assert!(all[0].waits_for_room());
    let mut taken = 0;
    while !rings(&bells[0]) {
        taken += 1;
        assert!(all[2].pop().is_some(), "nobody rang");
    }
    assert!(!all[0].is_full() && taken < pushed, "{taken} of {pushed}");
    // It rings once for those that asked.
    assert!(std::iter::from_fn(|| all[2].pop()).count() > 0);
    assert!(!rings(&bells[0]));
    assert!(!all[0].waits_for_room(), "there is room already");
}

/// Returns news of a station of this number.
fn news() -> impl FnMut(u32) -> Vec<News> {
    let mut graph = grantway_vector::path::bridge(grantway_vector::Secret(1, 2), || 0).unwrap();
    graph.has_twins();
    let mut arena = vec![0; 64];
    move |n| {
        arena[6..12].copy_from_slice(&[&[2, 0][..], &n.to_be_bytes()].concat());
        let (len, from) = (60, PortId((n / 50) as u16));
        let frame = grantway_vector::Frame { len, head: len, from, ..Default::default() };
        let mut batch = grantway_vector::Batch::new();
        batch.push(frame).unwrap();
        graph.run(&mut batch, &mut arena, 0);
        graph.news().collect()
    }
}

#[test]
fn small_frames_that_are_much_work_fill_an_inbox_as_large_ones_do() {
    let bells = bells(3);
    let all = mesh(&bells);
    for n in 0..3 {
        assert!(!all[0].is_full());
        all[0].push(2, &mut bundle(n, 60), WORK_MAX as u32 / 3 + 1);
    }
    assert!(all[0].waits_for_room() && !all[1].is_full());
    let mut taken = 0;
    while !rings(&bells[0]) {
        taken += 1;
        assert!(all[2].pop().is_some(), "nobody rang");
    }
    assert_eq!((taken, all[0].is_full()), (2, false));
}

#[test]
fn a_sender_woken_while_another_inbox_is_full_waits_for_that_inbox() {
    let bells = bells(3);
    let (all, mut one, mut room) = (mesh(&bells), news(), Vec::new());
    while !all[0].is_full() {
        all[0].push(1, &mut bundle(0, 60_000), 1);
    }
    assert!(all[0].waits_for_room());
    // Another worker fills the third one's inbox, and the first one has no part in it.
    (0..NEWS_MAX as u32).for_each(|n| all[1].tell(&one(n)));
    while all[1].pop().is_some() {}
    assert!(rings(&bells[0]));
    all[0].hear(&mut room);
    assert!(all[0].is_full() && all[0].waits_for_room() && all[0].falls_asleep());
    all[2].hear(&mut room);
    assert!(!all[0].is_full() && rings(&bells[0]));
}

#[test]
fn news_arrive_at_once_and_many_of_them_wake_their_reader() {
    let bells = bells(2);
    let (all, mut one) = (mesh(&bells), news());
    all[0].tell(&one(0));
    assert!(all[1].has_news() && !all[0].has_news());
    assert!(all[1].falls_asleep(), "it hears that before its next turn");
    let mut told = 1;
    while !all[0].is_full() {
        all[0].tell(&one(told));
        told += 1;
        assert!(told as usize <= NEWS_MAX);
    }
    assert!(rings(&bells[1]) && !all[1].falls_asleep());
    assert!(all[0].waits_for_room());
    let mut room = Vec::new();
    all[1].hear(&mut room);
    assert_eq!(room.len(), told as usize);
    assert!(!all[1].has_news() && !all[0].is_full() && rings(&bells[0]));
}

/// Each waits for the other's next bundle, asleep: a wake-up that is lost ends it.
#[test]
fn no_bundle_finds_a_worker_asleep_for_good() {
    const BUNDLES: u64 = 20_000;
    let bells = bells(2);
    std::thread::scope(|scope| {
        for (own, mesh) in mesh(&bells).into_iter().enumerate() {
            let bell = Arc::clone(&bells[own]);
            scope.spawn(move || {
                let other = 1 - own;
                if own == 0 {
                    mesh.push(other, &mut bundle(0, 60), 1);
                }
                for n in 0..BUNDLES {
                    let came = loop {
                        if let Some(came) = mesh.pop() {
                            break came;
                        }
                        if mesh.falls_asleep() {
                            let mut fds = [PollFd::new(&bell, PollFlags::IN)];
                            let long = crate::bell::timespec(Duration::from_secs(60));
                            assert!(poll(&mut fds, Some(&long)).unwrap() > 0, "it slept for good");
                            drain(bell.as_fd());
                            mesh.wakes();
                        }
                    };
                    assert_eq!((came.0, number(&came.2)), (other, n));
                    mesh.give_back(other, came.2);
                    let next = if own == 0 { n + 1 } else { n };
                    if own == 1 || next < BUNDLES {
                        mesh.push(other, &mut bundle(next, 60), 1);
                    }
                }
            });
        }
    });
}

//! Frames that are lent in the pages that they came in.

use crate::support::hostile::frame;
use crate::support::world::{GUEST, World};
use crate::support::{PROMPT, eventually};
use grantway_frontend::{LentFrame, Policy, SendError, TxMeta, Vif, VifStatus, Wishes};
use grantway_netif::Offload;
use std::time::Instant;

/// A frontend of ours, connected.
fn connect(world: &mut World, trusted: Option<&str>) -> Vif {
    use grantway_hypervisor::Platform;
    let domain = world.boot(GUEST.domain);
    world.attach(GUEST, &[]);
    world.expects(GUEST);
    if let Some(value) = trusted {
        let path = format!("{}/trusted", world.toolstack.front(GUEST));
        world.tools.store().unwrap().write(&path, value.as_bytes()).unwrap();
    }
    let wishes = Wishes { policy: Policy::Persistent, ..Wishes::default() };
    let mut vif = Vif::open(domain, 0, wishes).unwrap();
    eventually("the connection", || {
        (vif.store_changed().unwrap() == VifStatus::Connected).then_some(())
    });
    vif
}

fn receives(vif: &mut Vif) -> LentFrame {
    let start = Instant::now();
    loop {
        let queue = &mut vif.queues()[0];
        queue.take_events().unwrap();
        if let Some(frame) = queue.recv_lent().unwrap() {
            return frame;
        }
        queue.arm().unwrap();
        assert!(start.elapsed() < PROMPT, "no frame came");
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
}

fn numbered(n: usize, len: usize) -> Vec<u8> {
    let mut bytes = frame(len);
    bytes[14..18].copy_from_slice(&(n as u32).to_be_bytes());
    bytes
}

fn bytes(frame: &LentFrame) -> Vec<u8> {
    let mut bytes = vec![0; frame.len()];
    assert_eq!(frame.copy_to(&mut bytes), bytes.len());
    bytes
}

#[test]
fn frames_stay_as_they_are_for_as_long_as_they_are_lent() {
    let mut world = World::new();
    let mut vif = connect(&mut world, None);
    // Half of the pages, two a frame; then, after a copy, half of twice as many, since the queue is
    // busy; from then on in copies.
    let mut kept = Vec::new();
    for n in 0..100 {
        world.behind(GUEST).give(numbered(n, 5000), Offload::default());
        kept.push(receives(&mut vif));
    }
    let lent = kept.iter().filter(|frame| frame.slices().count() == 2).count();
    let copied = kept.iter().filter(|frame| frame.bytes().is_some()).count();
    assert_eq!((lent, copied, vif.stats().rx_copied), (64, 36, 36));
    // All pages that are not lent are used many times over.
    for n in 0..600 {
        world.behind(GUEST).give(numbered(1000 + n, 1500), Offload::default());
        assert_eq!(bytes(&receives(&mut vif)), numbered(1000 + n, 1500));
    }
    for (n, frame) in kept.iter().enumerate() {
        assert_eq!(bytes(frame), numbered(n, 5000), "frame {n}");
        let whole: usize = frame.slices().map(|slice| slice.len()).sum();
        assert!(whole == 5000 || frame.bytes().is_some());
    }
    // Given back, on whatever thread, they serve again.
    std::thread::spawn(move || drop(kept)).join().unwrap();
    let before = vif.stats().rx_copied;
    for n in 0..300 {
        world.behind(GUEST).give(numbered(n, 9000), Offload::default());
        assert_eq!(bytes(&receives(&mut vif)), numbered(n, 9000));
    }
    assert_eq!(vif.stats().rx_copied, before);
    drop(vif);
    world.stands();
}

#[test]
fn sixteen_pages_are_enough_for_a_ring_of_short_frames() {
    let mut world = World::new();
    let mut vif = connect(&mut world, None);
    let mut sent = 0;
    let start = Instant::now();
    while sent < 2000 {
        match vif.send(&numbered(sent, 18 + sent % 239), Offload::default()) {
            Ok(()) => sent += 1,
            Err(e) => {
                assert_eq!(e, SendError::Full);
                vif.flush().unwrap();
                vif.reap().unwrap();
                assert!(start.elapsed() < PROMPT, "{sent} frames");
            }
        }
    }
    vif.flush().unwrap();
    eventually("all frames to arrive", || (world.behind(GUEST).look().sent == 2000).then_some(()));
    for (n, (bytes, _)) in world.behind(GUEST).look().taken.iter().enumerate() {
        assert_eq!(*bytes, numbered(n, 18 + n % 239), "frame {n}");
    }
    let report = world.control().report_of(GUEST).unwrap();
    assert_eq!((report.mapped, report.stats.tx_packets), (16, 2000));
    drop(vif);
    world.stands();
}

#[test]
fn frames_written_in_place_arrive_unchanged() {
    let mut world = World::new();
    let mut vif = connect(&mut world, None);
    // Short ones, those of a page, those of several, by turns.
    let sizes: Vec<usize> = (0..500).map(|n| [60, 256, 257, 4096, 4097, 9000][n % 6]).collect();
    let items: Vec<(usize, usize)> = sizes.iter().copied().enumerate().collect();
    let meta = |&(_, len): &(usize, usize)| TxMeta { len, offload: Offload::default() };
    let start = Instant::now();
    let mut sent = 0;
    while sent < items.len() {
        let queue = &mut vif.queues()[0];
        let (taken, why_not) = queue.lend_burst(&items[sent..], meta, |&(n, len), at, mut room| {
            let bytes = numbered(n, len);
            // In two pieces, as who has headers and payload apart.
            let (first, second) = bytes[at..at + room.len()].split_at(room.len().min(20));
            room.write(0, first).unwrap();
            room.write(first.len(), second).unwrap();
            assert!(room.write(1, &bytes[..room.len()]).is_err());
        });
        sent += taken;
        queue.flush().unwrap();
        if why_not == Some(SendError::Full) {
            queue.reap().unwrap();
            assert!(start.elapsed() < PROMPT, "{sent} frames");
        } else {
            assert_eq!(why_not, None);
        }
    }
    let all = || (world.behind(GUEST).look().sent == 500).then_some(());
    eventually("all frames to arrive", all);
    for (n, (bytes, _)) in world.behind(GUEST).look().taken.iter().enumerate() {
        assert_eq!(*bytes, numbered(n, sizes[n]), "frame {n}");
    }
    drop(vif);
    world.stands();
}

#[test]
fn a_burst_is_read_in_place_only_from_a_trusted_backend() {
    for trusted in [None, Some("0")] {
        let mut world = World::new();
        let mut vif = connect(&mut world, trusted);
        let mut next = 0;
        for n in 0..400 {
            let len = [60, 1500, 9000][n % 3];
            world.behind(GUEST).give(numbered(n, len), Offload::default());
        }
        let start = Instant::now();
        while next < 400 {
            let queue = &mut vif.queues()[0];
            queue.take_events().unwrap();
            let looked = queue.recv_lent_burst(|frame| {
                let mut bytes = vec![0; frame.len()];
                assert_eq!(frame.copy_to(&mut bytes), bytes.len());
                assert_eq!(bytes, numbered(next, [60, 1500, 9000][next % 3]));
                assert_eq!(frame.bytes().is_some(), trusted.is_some());
                next += 1;
            });
            if looked.unwrap() == 0 {
                queue.arm().unwrap();
                assert!(start.elapsed() < PROMPT, "{next} frames");
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
            queue.repost().unwrap();
        }
        assert_eq!(vif.stats().rx_copied, if trusted.is_some() { 400 } else { 0 });
        drop(vif);
        world.stands();
    }
}

#[test]
fn an_untrusted_backend_cannot_change_a_received_frame() {
    let mut world = World::new();
    let mut vif = connect(&mut world, Some("0"));
    for n in 0..20 {
        world.behind(GUEST).give(numbered(n, 3000), Offload::default());
        let frame = receives(&mut vif);
        assert_eq!(frame.bytes(), Some(&numbered(n, 3000)[..]));
        assert_eq!(frame.slices().count(), 0);
    }
    assert_eq!(vif.stats().rx_copied, 20);
    drop(vif);
    world.stands();
}

#[test]
fn lent_pages_outlive_the_connection_and_are_not_used_again() {
    let mut world = World::new();
    let mut vif = connect(&mut world, None);
    world.behind(GUEST).give(numbered(7, 5000), Offload::default());
    let kept = receives(&mut vif);
    vif.shutdown().unwrap();
    eventually("its end", || (vif.store_changed().unwrap() == VifStatus::Gone).then_some(()));
    drop(vif);
    // The pool it belongs to is kept as a whole.
    assert!(world.table(GUEST.domain).grants >= 128);
    assert_eq!(bytes(&kept), numbered(7, 5000));
    drop(kept);
    assert_eq!(world.table(GUEST.domain).grants, 0);
    world.stands();
}

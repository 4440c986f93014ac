//! The rings against a device that is part of the test: a plain reader and writer of the virtqueue,
//! which works only while it was woken, and wakes only where it is asked to.

mod device;
mod properties;
mod threads;

use rustix::io::Errno;

use super::device::Rings;
use super::error::opening;
use super::receive::{BUFFER, ENTRIES};
use super::ring::{Broken, Layout, wakes};
use super::transmit;
use crate::port::RECV_BUFFER;
use device::Kernel;

#[test]
fn tables_of_a_ring_are_apart_and_aligned() {
    for (at, entries) in [(0, 1), (1, 256), (100, 1024)] {
        let ring = Layout::new(at, entries);
        let many = usize::from(entries);
        assert!(ring.descriptors >= at && ring.descriptors.is_multiple_of(16));
        assert!(ring.available >= ring.descriptors + 16 * many);
        assert_eq!(ring.used_event(), ring.available + 4 + 2 * many);
        assert!(ring.used >= ring.used_event() + 2 && ring.used.is_multiple_of(4));
        assert_eq!(ring.available_event(), ring.used + 4 + 8 * many);
        assert!(ring.end >= ring.available_event() + 2);
    }
}

#[test]
fn a_step_wakes_waiters_for_an_index_within_it() {
    for old in [0, 5, u16::MAX - 1] {
        for step in 0..6 {
            for ahead in 0..6 {
                let event = old.wrapping_add(ahead);
                // One who waits at an index is woken by the buffer of that index.
                assert_eq!(wakes(event, old, old.wrapping_add(step)), ahead < step);
            }
        }
    }
}

#[test]
fn a_frame_takes_as_many_buffers_as_it_fills() {
    let mut rings = Rings::new().unwrap();
    let mut kernel = Kernel::new(&rings);
    let mut buf = vec![0; RECV_BUFFER];
    // Several times around the ring, so that frames lie across its end.
    for len in [14, 4084, 4085, 8180, 8181, 65_557, RECV_BUFFER].repeat(40) {
        let frame: Vec<u8> = (0..len).map(|n| (n * 7 + len) as u8).collect();
        assert!(kernel.give(&frame));
        let received = rings.receive.recv(&mut buf).unwrap().unwrap();
        assert_eq!((received.len, received.header), (len, Kernel::HEADER));
        assert!(buf[..len] == frame);
        assert_eq!(rings.receive.recv(&mut buf), Ok(None));
        rings.receive.show().unwrap();
    }
}

#[test]
fn a_frame_that_is_longer_than_the_memory_for_it_is_cut_and_the_next_one_comes() {
    let mut rings = Rings::new().unwrap();
    let mut kernel = Kernel::new(&rings);
    assert!(kernel.give(&[1; 9000]) && kernel.give(&[2; 60]));
    let mut buf = [0; 5000];
    assert_eq!(rings.receive.recv(&mut buf).unwrap().unwrap().len, 9000);
    assert_eq!(buf, [1; 5000]);
    assert_eq!(rings.receive.recv(&mut buf).unwrap().unwrap().len, 60);
    assert_eq!(buf[..60], [2; 60]);
}

#[test]
fn a_turn_finds_room_behind_a_port_that_is_not_full() {
    // Large frames, segments of them, and short frames that are merged with nothing.
    for (frames, len) in [(16, RECV_BUFFER), (740, 1514), (64, 4096)] {
        let mut rings = Rings::new().unwrap();
        let mut kernel = Kernel::new(&rings);
        let (frame, mut turns) = (vec![7; len], 0);
        while !rings.transmit.is_full().unwrap() {
            for _ in 0..frames {
                assert!(rings.transmit.send([0; 10], &frame).unwrap(), "{frames} of {len} bytes");
            }
            rings.transmit.show().unwrap();
            turns += 1;
        }
        // The kernel takes some, and is behind again: the frames lie anywhere in the ring.
        for _ in 0..50 {
            while rings.transmit.is_full().unwrap() {
                assert_eq!(kernel.take(1).len(), 1);
            }
            for _ in 0..frames {
                assert!(rings.transmit.send([0; 10], &frame).unwrap(), "{frames} of {len} bytes");
            }
            rings.transmit.show().unwrap();
        }
        assert!(turns > 0);
    }
}

#[test]
fn a_ring_that_is_full_refuses_and_loses_nothing() {
    let mut rings = Rings::new().unwrap();
    let mut kernel = Kernel::new(&rings);
    let mut sent = 0u32;
    while rings.transmit.send([0; 10], &sent.to_le_bytes()).unwrap() {
        sent += 1;
    }
    assert_eq!(sent, transmit::ENTRIES.into());
    // What was not shown is not the kernel's.
    assert!(kernel.take(usize::MAX).is_empty());
    rings.transmit.show().unwrap();
    let taken = kernel.take(usize::MAX);
    assert!(taken.iter().zip(0u32..).all(|(frame, n)| *frame == n.to_le_bytes()));
    assert_eq!(taken.len(), sent as usize);
    assert!(rings.transmit.send([0; 10], &[0; 60]).unwrap());
}

#[test]
fn impossible_ring_entries_are_errors() {
    let broken = |spoil: &dyn Fn(&mut Kernel)| {
        let mut rings = Rings::new().unwrap();
        let mut kernel = Kernel::new(&rings);
        assert!(kernel.give(&[1; 60]));
        assert!(rings.transmit.send([0; 10], &[0; 60]).unwrap());
        rings.transmit.show().unwrap();
        assert_eq!(kernel.take(1).len(), 1);
        spoil(&mut kernel);
        let received = rings.receive.recv(&mut [0; 100]).map(drop);
        let sent = (0..=transmit::ENTRIES).try_for_each(|_| {
            rings.transmit.send([0; 10], &[0; 60])?;
            rings.transmit.show().unwrap();
            Ok(())
        });
        (received, sent)
    };
    assert_eq!(broken(&|_| {}), (Ok(()), Ok(())));
    let (received, sent) = broken(&|kernel| {
        kernel.receive.set_used(ENTRIES + 1);
        kernel.transmit.set_used(u16::MAX);
    });
    let surplus = Broken::Surplus { found: ENTRIES + 1, outstanding: ENTRIES };
    assert_eq!(received, Err(surplus));
    assert!(matches!(sent, Err(Broken::Surplus { found: u16::MAX, .. })), "{sent:?}");
    let (received, sent) = broken(&|kernel| {
        kernel.receive.set_entry(0, 3, 72);
        kernel.transmit.set_entry(0, 9, 0);
    });
    assert_eq!(received, Err(Broken::Order { found: 3, expected: 0 }));
    assert_eq!(sent, Err(Broken::Order { found: 9, expected: 0 }));
    for len in [0, 11, BUFFER as u32 + 1, u32::MAX] {
        let (received, _) = broken(&|kernel| kernel.receive.set_entry(0, 0, len));
        assert_eq!(received, Err(Broken::Length { found: len, most: BUFFER }));
    }
    for count in [0, ENTRIES + 1] {
        let (received, _) = broken(&|kernel| kernel.set_count(count));
        assert_eq!(received, Err(Broken::Surplus { found: count, outstanding: ENTRIES }));
    }
    // The rest of a frame may come later.
    assert_eq!(broken(&|kernel| kernel.set_count(2)).0, Ok(()));
}

#[test]
fn the_device_may_be_missing_or_shut() {
    let says = |errno| opening("gw0", errno).to_string();
    assert!(says(Errno::NOENT).contains("modprobe vhost_net"));
    assert!(says(Errno::NODEV).contains("modprobe vhost_net"));
    assert!(says(Errno::ACCESS).contains("no permission for /dev/vhost-net"));
    assert_eq!(
        says(Errno::NFILE).split(" (").next(),
        Some("TAP gw0, /dev/vhost-net: opening it failed: Too many open files in system"),
    );
}

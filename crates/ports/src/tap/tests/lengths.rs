//! Frames of all lengths. Short and longer ones cross by different calls.

use std::net::UdpSocket;

use grantway_netif::Offload;

use super::conversation::Wire;
use super::{GUARD, ip, receive_into, tap_test};
use crate::port::{DropReason, Port, Probe, RECV_BUFFER};
use crate::tap::io::{SHORT, SHORT_ROW};

/// Bytes of headers of a datagram's frame.
const HEADERS: usize = 42;

/// Lengths of frames: the least, and those near the longest short one.
const LENGTHS: [usize; 8] = [60, 61, 1514, SHORT - 1, SHORT, SHORT + 1, 9000, 60];

fn payload(frame: usize) -> Vec<u8> {
    (0..frame - HEADERS).map(|at| (at % 251) as u8).collect()
}

/// A wire whose frames have up to 9014 bytes.
fn wire() -> Wire {
    let wire = Wire::new(false);
    ip("link set gw0 mtu 9000");
    wire
}

tap_test! {
    fn frames_of_all_lengths_reach_the_kernel() {
        let mut wire = wire();
        let socket = UdpSocket::bind(wire.at(5000)).unwrap();
        socket.set_read_timeout(Some(GUARD)).unwrap();
        let mut buf = vec![0; RECV_BUFFER];
        for length in LENGTHS {
            let mut frame = Vec::new();
            wire.builder().udp(6000, 5000).write(&mut frame, &payload(length)).unwrap();
            assert_eq!(frame.len(), length);
            wire.tap.send(&frame, Offload::default()).unwrap();
            let received = socket.recv(&mut buf).unwrap();
            assert!(buf[..received] == payload(length), "{length} bytes");
        }
        let bytes: usize = LENGTHS.iter().sum();
        let counters = wire.tap.report().counters;
        assert_eq!((counters.sent, counters.sent_bytes), (8, bytes as u64));
    }
}

/// Sends datagrams whose frames have these lengths, and checks that all of them arrive, in `buf`.
fn arrive(wire: &mut Wire, socket: &UdpSocket, buf: &mut [u8], lengths: &[usize]) {
    for &length in lengths {
        socket.send_to(&payload(length), "10.9.0.2:9").unwrap();
        let arrived = receive_into(&mut wire.tap, buf, |frame, _| {
            (frame[12..14] == [8, 0] && frame[23] == 17).then(|| frame.to_vec())
        });
        assert_eq!(arrived.len(), length);
        assert!(arrived[HEADERS..] == payload(length), "{length} bytes");
    }
}

tap_test! {
    fn frames_of_all_lengths_arrive_after_short_and_after_longer_ones() {
        let mut wire = wire();
        let socket = UdpSocket::bind(wire.at(0)).unwrap();
        let mut buf = vec![0xff; RECV_BUFFER];
        for length in LENGTHS {
            // The frame is expected to be short, and is then expected to be longer.
            arrive(&mut wire, &socket, &mut buf, &[60; SHORT_ROW as usize + 1]);
            assert!(wire.tap.joined.expects_short());
            arrive(&mut wire, &socket, &mut buf, &[length]);
            arrive(&mut wire, &socket, &mut buf, &[9000]);
            assert!(!wire.tap.joined.expects_short());
            arrive(&mut wire, &socket, &mut buf, &[length]);
        }
        assert_eq!(wire.tap.report().counters.dropped_total(), 0);
    }
}

tap_test! {
    fn a_buffer_that_is_smaller_than_usual_has_room_for_a_frame_of_its_length() {
        let mut wire = wire();
        let socket = UdpSocket::bind(wire.at(0)).unwrap();
        arrive(&mut wire, &socket, &mut vec![0; RECV_BUFFER], &[60; SHORT_ROW as usize + 1]);
        assert!(wire.tap.joined.expects_short());
        socket.send_to(&payload(601), "10.9.0.2:9").unwrap();
        arrive(&mut wire, &socket, &mut [0; 600], &[600]);
        assert_eq!(wire.tap.report().counters.dropped(DropReason::TooLong), 1);
    }
}

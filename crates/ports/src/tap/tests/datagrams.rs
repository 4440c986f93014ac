//! Frames of several datagrams against the kernel's sockets, both ways.

use std::net::UdpSocket;
use std::process::Command;

use grantway_needs::{Need, met};
use grantway_netif::headers::{self, Protocol};
use grantway_netif::{Checksum, Gso, GsoKind, Offload};

use super::conversation::{Wire, make_partial};
use super::{GUARD, receive, tap_test};
use crate::port::{Port, PortControl, Probe};
use crate::tap::TapOffloads;

/// Bytes of each datagram, and of the last one.
const SIZE: usize = 100;
const LAST: usize = 30;
/// Datagrams of a frame.
const COUNT: usize = 64;

/// Returns true if the kernel has segmentation of UDP; if not, says that the test is skipped.
fn has_uso(wire: &Wire) -> bool {
    let has = wire.tap.caps().wants_merged_udp;
    if !has {
        println!("skipped: the kernel has no segmentation of UDP (Linux 6.2 has it)");
    }
    has
}

fn payload() -> Vec<u8> {
    (0..SIZE * (COUNT - 1) + LAST).map(|n| (n * 31 + n / 256) as u8).collect()
}

fn a_frame_arrives_as_datagrams(v6: bool) {
    let mut wire = Wire::new(v6);
    if !has_uso(&wire) {
        return;
    }
    let socket = UdpSocket::bind(wire.at(5000)).unwrap();
    socket.set_read_timeout(Some(GUARD)).unwrap();
    let (payload, mut frame) = (payload(), Vec::new());
    wire.builder().udp(6000, 5000).write(&mut frame, &payload).unwrap();
    make_partial(&mut frame);
    let gso = Some(Gso { kind: GsoKind::Udp, size: SIZE as u16 });
    let offload = Offload { checksum: Checksum::Partial, gso };
    // In one piece, and in as many as there are datagrams.
    wire.tap.send(&frame, offload).unwrap();
    let (first, rest) = frame.split_at(frame.len() - payload.len() + SIZE);
    let pieces: Vec<&[u8]> = std::iter::once(first).chain(rest.chunks(SIZE)).collect();
    wire.tap.send_pieces(&pieces, offload, &mut []).unwrap();
    let mut buf = [0; 2 * SIZE];
    for (n, part) in payload.chunks(SIZE).chain(payload.chunks(SIZE)).enumerate() {
        let len = socket.recv(&mut buf).unwrap();
        assert!(buf[..len] == *part, "datagram {n} of {len} bytes");
    }
    assert_eq!(wire.tap.report().counters.sent, 1 + COUNT as u64);
}

tap_test! { fn a_frame_arrives_as_datagrams_over_ipv4() { a_frame_arrives_as_datagrams(false) } }
tap_test! { fn a_frame_arrives_as_datagrams_over_ipv6() { a_frame_arrives_as_datagrams(true) } }

/// A sender with UDP_SEGMENT (103 of SOL_UDP, which is 17).
const SENDER: &str = "
import socket, sys
host, size, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
family = socket.AF_INET6 if ':' in host else socket.AF_INET
to = socket.socket(family, socket.SOCK_DGRAM)
to.connect((host, 6000))
to.setsockopt(17, 103, size)
to.send(bytes((n * 31 + n // 256) % 256 for n in range(length)))
";

fn the_kernel_gives_datagrams_in_one_frame(v6: bool) {
    let mut wire = Wire::new(v6);
    if !has_uso(&wire) || !met(&[Need::Program("python3", "python3")]) {
        return;
    }
    let (payload, to) = (payload(), if v6 { "fd09::2" } else { "10.9.0.2" });
    for takes in [TapOffloads::ALL, TapOffloads::NETIF, TapOffloads::NONE] {
        wire.tap.set_offloads(takes).unwrap();
        let args = ["-c", SENDER, to, &SIZE.to_string(), &payload.len().to_string()];
        assert!(Command::new("python3").args(args).status().unwrap().success());
        let mut came = Vec::new();
        let mut frames = 0;
        while came.len() < payload.len() {
            let (part, offload) = receive(&mut wire.tap, |frame, offload| {
                let found = headers::read(frame, frame.len()).ok()?;
                let is =
                    found.protocol == Protocol::Udp && frame[found.start + 2..][..2] == [23, 112];
                is.then(|| (frame[found.header_end..found.end].to_vec(), offload))
            });
            let gso = takes.uso.then_some(Gso { kind: GsoKind::Udp, size: SIZE as u16 });
            assert_eq!(offload.gso, gso);
            assert_eq!(offload.checksum == Checksum::Partial, takes.checksum);
            came.extend(part);
            frames += 1;
        }
        assert!(came == payload, "{takes:?}");
        assert_eq!(frames, if takes.uso { 1 } else { COUNT });
    }
}

tap_test! {
    fn the_kernel_gives_datagrams_in_one_frame_over_ipv4() {
        the_kernel_gives_datagrams_in_one_frame(false)
    }
}

tap_test! {
    fn the_kernel_gives_datagrams_in_one_frame_over_ipv6() {
        the_kernel_gives_datagrams_in_one_frame(true)
    }
}

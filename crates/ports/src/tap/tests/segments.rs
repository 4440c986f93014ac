//! The kernel's segments against ours. A frame goes to a bridge of the kernel, behind which a TAP
//! accepts no large frames.

use grantway_netif::{Checksum, Gso, GsoKind, Offload};

use super::{ip, open, receive, tap_test};
use crate::{
    finish::{
        SegmentChecksum, Segments,
        tests::frames::{DONT_FRAGMENT, Shape},
    },
    port::{Port, PortControl},
    tap::{Tap, TapOffloads},
};

/// A bridge between two TAPs: a frame goes in at one and comes out of the other.
struct Bridge {
    from: Tap,
    to: Tap,
}

impl Bridge {
    fn new() -> Self {
        ip("link add br0 type bridge");
        let (from, to) = (open("gw0"), open("gw1"));
        ip("link set gw0 master br0");
        ip("link set gw1 master br0");
        ip("link set br0 up");
        Self { from, to }
    }
}

fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 + n / 256) as u8).collect()
}

/// Returns frames of both families with all that their headers can have.
fn cases() -> Vec<(Shape, usize, u16)> {
    let padding = |number: u8| (number, vec![0, 0, 1, 4, 0, 0, 0, 0]);
    let sizes = [(5000, 1000), (5001, 1448), (4000, 1000), (1001, 1000), (60_000, 1448), (300, 9)];
    let mut cases = Vec::new();
    for (n, (length, size)) in sizes.into_iter().enumerate() {
        for tags in 0..3 {
            for v6 in [false, true] {
                cases.push((
                    Shape {
                        tags,
                        v6,
                        // The flags are all, ACK, ACK with PSH, and those with CWR and FIN.
                        flags: [0xff, 0x10, 0x18, 0x99][n % 4],
                        fragment: if n % 2 == 0 { DONT_FRAGMENT } else { 0 },
                        extensions: match v6 && n % 3 == 0 {
                            true => vec![padding(0), padding(60)],
                            false => Vec::new(),
                        },
                        ip_options: if v6 { 0 } else { n % 3 },
                        tcp_options: [0, 3, 10][n % 3],
                        sequence: u32::MAX - 2500,
                        id: u16::MAX - 1,
                        port: 4000 + cases.len() as u16,
                        ..Shape::default()
                    },
                    length,
                    size,
                ));
            }
        }
    }
    cases
}

/// Returns frames of several datagrams, of both families. A kernel cuts none with extensions, whose
/// checksum it does not finish.
fn udp_cases() -> Vec<(Shape, usize, u16)> {
    let shapes = cases().into_iter().filter(|(shape, ..)| shape.extensions.is_empty());
    let udp = |(shape, length, size): (Shape, usize, u16)| {
        let ip_options = 0;
        // At most 64 datagrams.
        (Shape { tcp: false, ip_options, ..shape }, length.min(64 * usize::from(size)), size)
    };
    shapes.map(udp).collect()
}

fn compare(takes: TapOffloads, checksum: SegmentChecksum) {
    compare_all(cases(), takes, checksum);
    if open("gw2").caps().wants_merged_udp {
        compare_all(udp_cases(), takes, checksum);
    } else {
        println!("skipped for UDP: the kernel has no segmentation of UDP (Linux 6.2 has it)");
    }
}

fn compare_all(cases: Vec<(Shape, usize, u16)>, takes: TapOffloads, checksum: SegmentChecksum) {
    let mut bridge = Bridge::new();
    bridge.to.set_offloads(takes).unwrap();
    for (shape, length, size) in cases {
        let frame = shape.frame(&payload(length));
        let kind = match (shape.tcp, shape.v6) {
            (false, _) => GsoKind::Udp,
            (true, false) => GsoKind::Tcpv4,
            (true, true) => GsoKind::Tcpv6,
        };
        let gso = Gso { kind, size };
        let offload = Offload { checksum: Checksum::Partial, gso: Some(gso) };
        bridge.from.send(&frame, offload).unwrap();
        let mut segments = Segments::new(&frame, gso, checksum).unwrap();
        let mut buf = vec![0; segments.longest()];
        let mut n = 0;
        while let Some(ours) = segments.next_into(&mut buf).unwrap() {
            let at = shape.transport();
            let kernels = receive(&mut bridge.to, |frame, offload| {
                let same = frame.get(at..at + 2)? == shape.port.to_be_bytes();
                same.then(|| (frame.to_vec(), offload))
            });
            assert_eq!(kernels.0, buf[..ours.len], "segment {n} of {shape:?}");
            assert_eq!(kernels.1.gso, None);
            let partial = kernels.1.checksum == Checksum::Partial;
            assert_eq!(partial, ours.offload.checksum == Checksum::Partial);
            n += 1;
        }
        assert!(n > 1, "{shape:?}");
    }
    ip("link del br0");
}

tap_test! {
    fn the_kernel_cuts_the_same_whole_segments() {
        compare(TapOffloads::NONE, SegmentChecksum::Whole);
    }
}

tap_test! {
    fn the_kernel_cuts_the_same_segments_with_unfinished_checksums() {
        let takes = TapOffloads { checksum: true, ..TapOffloads::NONE };
        compare(takes, SegmentChecksum::Partial);
    }
}

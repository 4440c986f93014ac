//! Conversations with the kernel's own network stack.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use etherparse::{
    ArpPacket, EtherType, PacketBuilder, SlicedPacket, TcpOptionElement, TransportSlice,
    checksum::Sum16BitWords,
};
use grantway_netif::headers::{self, Family, Protocol};
use grantway_netif::{Checksum, Gso, GsoKind, Offload};

use grantway_ring::{SharedPage, SharedRun, VolatileSlice, VolatileSliceMut};

use super::{GUARD, ip, open, receive, tap_test, until};
use crate::{
    port::{DropReason, Port, PortControl, Probe, RECV_BUFFER, SendError},
    split::{FRAME_PAGES, SplitFrame, SplitMeta, SplitRoom},
    tap::{Tap, TapOffloads},
};

const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const PARTIAL: Offload = Offload { checksum: Checksum::Partial, gso: None };

/// A TAP at 10.9.0.1 and fd09::1, and a neighbour, which the test plays.
pub(super) struct Wire {
    pub(super) tap: Tap,
    mac: [u8; 6],
    v6: bool,
}

impl Wire {
    pub(super) fn new(v6: bool) -> Wire {
        let mut tap = open("gw0");
        ip("addr add 10.9.0.1/24 dev gw0");
        ip("addr add fd09::1/64 dev gw0 nodad");
        // The kernel accepts packets to the address only after a moment.
        let local = ["-6", "route", "show", "table", "local", "fd09::1"];
        until("fd09::1 to be local", || {
            let shown = Command::new("ip").args(local).output().unwrap();
            String::from_utf8_lossy(&shown.stdout).contains("fd09::1")
        });
        ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev gw0");
        ip("neigh add fd09::2 lladdr 02:00:00:00:00:02 dev gw0");
        let mac = tap.mac().unwrap();
        Wire { tap, mac, v6 }
    }

    pub(super) fn builder(&self) -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
        let eth = PacketBuilder::ethernet2(PEER_MAC, self.mac);
        if self.v6 {
            eth.ipv6(v6_address(2), v6_address(1), 64)
        } else {
            eth.ipv4([10, 9, 0, 2], [10, 9, 0, 1], 64)
        }
    }

    pub(super) fn at(&self, port: u16) -> String {
        if self.v6 { format!("[fd09::1]:{port}") } else { format!("10.9.0.1:{port}") }
    }

    fn peer(&self, port: u16) -> String {
        if self.v6 { format!("[fd09::2]:{port}") } else { format!("10.9.0.2:{port}") }
    }
}

fn v6_address(last: u8) -> [u8; 16] {
    let mut address = [0; 16];
    address[..2].copy_from_slice(&[0xfd, 9]);
    address[15] = last;
    address
}

/// Returns the sum over the pseudo-header, as in an unfinished checksum.
fn pseudo_sum(frame: &[u8]) -> [u8; 2] {
    let found = headers::read(frame, frame.len()).unwrap();
    let (from, to) = match found.family {
        Family::V4 => (found.ip + 12, found.ip + 20),
        Family::V6 => (found.ip + 8, found.ip + 40),
    };
    let protocol = match found.protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
    };
    let sum = Sum16BitWords::new()
        .add_slice(&frame[from..to])
        .add_2bytes([0, protocol])
        .add_4bytes(((found.end - found.start) as u32).to_be_bytes());
    (!sum.ones_complement()).to_ne_bytes()
}

pub(super) fn make_partial(frame: &mut [u8]) {
    let at = headers::read(frame, frame.len()).unwrap().checksum_at();
    let sum = pseudo_sum(frame);
    frame[at..at + 2].copy_from_slice(&sum);
}

fn checksum_is_right(frame: &[u8]) -> bool {
    let found = headers::read(frame, frame.len()).unwrap();
    let sum = Sum16BitWords::new()
        .add_2bytes(pseudo_sum(frame))
        .add_slice(&frame[found.start..found.end]);
    sum.ones_complement() == 0
}

tap_test! {
    fn the_kernel_answers_arp_and_ping() {
        let mut wire = Wire::new(false);
        let ask = ArpPacket::new(
            etherparse::ArpHardwareId::ETHERNET,
            EtherType::IPV4,
            etherparse::ArpOperation::REQUEST,
            &PEER_MAC, &[10, 9, 0, 2], &[0; 6], &[10, 9, 0, 1],
        ).unwrap();
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(PEER_MAC, [0xff; 6]).arp(ask).write(&mut frame).unwrap();
        frame.resize(60, 0);
        wire.tap.send(&frame, Offload::default()).unwrap();
        let mac = wire.mac;
        receive(&mut wire.tap, |frame, _| {
            let reply = frame[12..14] == [8, 6] && frame[20..22] == [0, 2];
            (reply && frame[22..28] == mac && frame[28..32] == [10, 9, 0, 1]).then_some(())
        });

        let mut frame = Vec::new();
        wire.builder().icmpv4_echo_request(7, 1).write(&mut frame, b"is anyone there").unwrap();
        wire.tap.send(&frame, Offload::default()).unwrap();
        receive(&mut wire.tap, |frame, _| {
            let echo = frame[12..14] == [8, 0] && frame[23] == 1 && frame[34] == 0;
            (echo && frame.ends_with(b"is anyone there")).then_some(())
        });
        assert_eq!(wire.tap.report().counters.sent, 2);
        assert!(wire.tap.report().counters.received >= 2);
    }
}

/// Checks that the kernel believes an unfinished checksum, and verifies one of unknown state.
fn unfinished_udp_arrives(v6: bool) {
    let mut wire = Wire::new(v6);
    let socket = UdpSocket::bind(wire.at(5000)).unwrap();
    socket.set_read_timeout(Some(GUARD)).unwrap();
    let mut send = |payload: &[u8], offload, padding: &[u8]| {
        let mut frame = Vec::new();
        let udp = wire.builder().udp(6000, 5000);
        udp.write(&mut frame, payload).unwrap();
        make_partial(&mut frame);
        frame.extend_from_slice(padding);
        wire.tap.send(&frame, offload).unwrap();
    };
    let mut buf = [0; 100];
    send(b"unfinished", PARTIAL, b"");
    assert_eq!(socket.recv(&mut buf).unwrap(), 10);
    assert_eq!(&buf[..10], b"unfinished");
    // The frame with a wrong checksum does not arrive: the frame after it is the next.
    send(b"wrong", Offload::default(), b"");
    // Padding is not summed.
    send(b"padded", PARTIAL, &[0xff; 7]);
    assert_eq!(socket.recv(&mut buf).unwrap(), 6);
    assert_eq!(&buf[..6], b"padded");
}

tap_test! { fn unfinished_udp_over_ipv4_arrives() { unfinished_udp_arrives(false) } }
tap_test! { fn unfinished_udp_over_ipv6_arrives() { unfinished_udp_arrives(true) } }

/// Checks that the kernel's frames follow the offloads that are set at the moment.
fn offloads_can_change(v6: bool) {
    let mut wire = Wire::new(v6);
    let socket = UdpSocket::bind(wire.at(5000)).unwrap();
    let peer = wire.peer(6000);
    let round = |tap: &mut Tap, offloads, expected| {
        tap.set_offloads(offloads).unwrap();
        socket.send_to(b"from the kernel", &peer).unwrap();
        receive(tap, |frame, offload| {
            let found =
                headers::read(frame, frame.len()).ok().filter(|t| t.protocol == Protocol::Udp)?;
            frame.ends_with(b"from the kernel").then_some(())?;
            assert_eq!(offload.checksum, expected);
            if expected == Checksum::Partial {
                assert_eq!(frame[found.checksum_at()..][..2], pseudo_sum(frame));
            } else {
                assert!(checksum_is_right(frame));
            }
            Some(())
        });
    };
    round(&mut wire.tap, TapOffloads::ALL, Checksum::Partial);
    round(&mut wire.tap, TapOffloads::NONE, Checksum::Unknown);
    round(&mut wire.tap, TapOffloads::ALL, Checksum::Partial);

    // A frame that waits while the offloads go away is finished here.
    while wire.tap.recv(&mut vec![0; RECV_BUFFER]).unwrap().is_some() {}
    socket.send_to(b"from the kernel", &peer).unwrap();
    let event = rustix::event::PollFlags::IN;
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(
        wire.tap.readiness().descriptor().unwrap(),
        event,
    )];
    let guard = rustix::event::Timespec { tv_sec: GUARD.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut fds, Some(&guard)), Ok(1), "no frame within {GUARD:?}");
    round(&mut wire.tap, TapOffloads::NONE, Checksum::Complete);
    assert!(wire.tap.report().counters.checksummed >= 1);
}

tap_test! { fn offloads_can_change_with_ipv4() { offloads_can_change(false) } }
tap_test! { fn offloads_can_change_with_ipv6() { offloads_can_change(true) } }

/// A minimal TCP peer: handshake, then what the test asks for.
struct Peer {
    wire: Wire,
    stream: TcpStream,
    sequence: u32,
    acknowledged: u32,
}

const MSS: u16 = 1000;

impl Peer {
    fn connect(v6: bool) -> Peer {
        let mut wire = Wire::new(v6);
        let listener = TcpListener::bind(wire.at(7000)).unwrap();
        let mut syn = Vec::new();
        wire.builder()
            .tcp(6000, 7000, 99, 65_000)
            .syn()
            .options(&[TcpOptionElement::MaximumSegmentSize(MSS)])
            .unwrap()
            .write(&mut syn, &[])
            .unwrap();
        make_partial(&mut syn);
        wire.tap.send(&syn, PARTIAL).unwrap();
        let acknowledged = receive(&mut wire.tap, |frame, _| {
            let packet = SlicedPacket::from_ethernet(frame).ok()?;
            let Some(TransportSlice::Tcp(tcp)) = packet.transport else {
                return None;
            };
            (tcp.syn() && tcp.ack()).then(|| tcp.sequence_number() + 1)
        });
        let accepting = thread::spawn(move || listener.accept().unwrap().0);
        let mut peer = Peer {
            stream: {
                let mut ack = Vec::new();
                let tcp = wire.builder().tcp(6000, 7000, 100, 65_000);
                tcp.ack(acknowledged).write(&mut ack, &[]).unwrap();
                wire.tap.send(&ack, Offload::default()).unwrap();
                accepting.join().unwrap()
            },
            wire,
            sequence: 100,
            acknowledged,
        };
        peer.stream.set_read_timeout(Some(GUARD)).unwrap();
        peer.stream.flush().unwrap();
        peer
    }

    fn segment(&self, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        let tcp = self.wire.builder().tcp(6000, 7000, self.sequence, 65_000);
        tcp.psh().ack(self.acknowledged).write(&mut frame, payload).unwrap();
        make_partial(&mut frame);
        frame
    }

    /// Receives the next payload of the stream, and acknowledges it.
    fn next_payload(&mut self) -> (Vec<u8>, Offload) {
        let wanted = self.acknowledged;
        let found = receive(&mut self.wire.tap, |frame, offload| {
            let packet = SlicedPacket::from_ethernet(frame).ok()?;
            let Some(TransportSlice::Tcp(tcp)) = packet.transport else {
                return None;
            };
            let next = !tcp.payload().is_empty() && tcp.sequence_number() == wanted;
            next.then(|| (tcp.payload().to_vec(), offload))
        });
        self.acknowledged = wanted.wrapping_add(found.0.len() as u32);
        let mut ack = Vec::new();
        let tcp = self.wire.builder().tcp(6000, 7000, self.sequence, 65_000);
        tcp.ack(self.acknowledged).write(&mut ack, &[]).unwrap();
        self.wire.tap.send(&ack, Offload::default()).unwrap();
        found
    }

    fn kind(&self) -> GsoKind {
        if self.wire.v6 { GsoKind::Tcpv6 } else { GsoKind::Tcpv4 }
    }
}

fn large_frames_cross_both_ways(v6: bool) {
    let mut peer = Peer::connect(v6);
    let kind = peer.kind();
    let sent: Vec<u8> = (0..30_001u32).map(|n| (n % 251) as u8).collect();
    let frame = peer.segment(&sent);
    let offload = Offload { checksum: Checksum::Partial, gso: Some(Gso { kind, size: MSS }) };
    peer.wire.tap.send(&frame, offload).unwrap();
    let mut got = vec![0; sent.len()];
    peer.stream.read_exact(&mut got).unwrap();
    assert_eq!(got, sent);

    // The kernel chooses the number of segments that it begins with (one, if the handshake was
    // slow). So it is answered until its frames are large.
    peer.sequence += sent.len() as u32;
    let reply = &sent[..8000];
    let mut largest = 0;
    for _ in 0..100 {
        peer.stream.write_all(reply).unwrap();
        let mut got: Vec<u8> = Vec::new();
        while got.len() < reply.len() {
            let (payload, offload) = peer.next_payload();
            if payload.len() > usize::from(MSS) {
                assert_eq!(offload.gso, Some(Gso { kind, size: MSS }));
                assert_eq!(offload.checksum, Checksum::Partial);
            }
            largest = largest.max(payload.len());
            got.extend_from_slice(&payload);
        }
        assert_eq!(got, reply);
        if largest > usize::from(MSS) {
            return;
        }
    }
    panic!("no GSO frame was seen: {largest}");
}

tap_test! { fn large_frames_cross_both_ways_over_ipv4() { large_frames_cross_both_ways(false) } }
tap_test! { fn large_frames_cross_both_ways_over_ipv6() { large_frames_cross_both_ways(true) } }

tap_test! {
    /// With segmentation off the kernel cuts the frames.
    fn without_segmentation_no_frame_exceeds_the_mss() {
        let mut peer = Peer::connect(false);
        let only_checksum = TapOffloads { checksum: true, ..TapOffloads::NONE };
        peer.wire.tap.set_offloads(only_checksum).unwrap();
        peer.stream.write_all(&[7; 5000]).unwrap();
        let mut got = 0;
        while got < 5000 {
            let (payload, offload) = peer.next_payload();
            assert_eq!(offload.gso, None);
            assert!(payload.len() <= usize::from(MSS));
            got += payload.len();
        }
    }
}

/// Calls `look` until it finds something.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + GUARD;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited {GUARD:?} for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Receives a frame whose rest goes to the pages of `run`, and returns all of it.
fn recv_split(tap: &mut Tap, run: &SharedRun) -> Option<(Vec<u8>, SplitMeta)> {
    let pages: Vec<_> = (0..run.pages()).map(|n| run.page(n).unwrap()).collect();
    let mut room = SplitRoom::new(128);
    for page in &pages {
        assert!(room.push(VolatileSliceMut::new(page, 0, 4096).unwrap()));
    }
    let mut buf = vec![0; RECV_BUFFER];
    let split = tap.recv_split(&mut buf, &mut room).unwrap()?;
    assert!(split.private == split.meta.len || split.private == 128);
    let frame = &mut buf[..split.meta.len];
    assert!(split.private == frame.len() || room.gather(frame));
    Some((frame.to_vec(), split))
}

tap_test! {
    fn frames_received_into_pages_are_those_that_were_sent() {
        let mut wire = Wire::new(false);
        wire.tap.set_mtu(65_000).unwrap();
        let (socket, peer) = (UdpSocket::bind(wire.at(5000)).unwrap(), wire.peer(4000));
        let run = SharedRun::private(FRAME_PAGES);
        for (offloads, size) in [TapOffloads::ALL, TapOffloads::NONE]
            .into_iter()
            .flat_map(|offloads| [10, 86, 87, 1400, 9000, 60_000].map(|size| (offloads, size)))
        {
            wire.tap.set_offloads(offloads).unwrap();
            let payload: Vec<u8> = (0..size).map(|n| (n * 7 + n / 251) as u8).collect();
            socket.send_to(&payload, &peer).unwrap();
            let (frame, split) = wait_for("the frame", || {
                let (frame, split) = recv_split(&mut wire.tap, &run)?;
                frame.ends_with(&payload).then_some((frame, split))
            });
            assert_eq!(split.private, if frame.len() > 128 { 128 } else { frame.len() });
            if split.meta.offload.checksum != Checksum::Partial {
                assert!(checksum_is_right(&frame));
            }
        }
        // Nothing is there now.
        wait_for("the last frame", || recv_split(&mut wire.tap, &run).is_none().then_some(()));
    }
}

tap_test! {
    /// The checksum is finished in private memory, and no byte is judged in a page.
    fn a_frame_that_is_to_be_finished_is_copied_out_of_its_pages() {
        let mut wire = Wire::new(false);
        let (socket, peer) = (UdpSocket::bind(wire.at(5000)).unwrap(), wire.peer(4000));
        let run = SharedRun::private(FRAME_PAGES);
        while wire.tap.recv(&mut vec![0; RECV_BUFFER]).unwrap().is_some() {}
        socket.send_to(&[7; 1000], &peer).unwrap();
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(
            wire.tap.readiness().descriptor().unwrap(),
            rustix::event::PollFlags::IN,
        )];
        let guard = rustix::event::Timespec { tv_sec: GUARD.as_secs() as i64, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&guard)), Ok(1), "no frame within {GUARD:?}");
        // The frame waits with a blank checksum, which nobody accepts any more.
        wire.tap.set_offloads(TapOffloads::NONE).unwrap();
        let (frame, split) = wait_for("the frame", || {
            let (frame, split) = recv_split(&mut wire.tap, &run)?;
            frame.ends_with(&[7; 1000]).then_some((frame, split))
        });
        assert_eq!((split.private, split.meta.offload.checksum), (frame.len(), Checksum::Complete));
        assert!(checksum_is_right(&frame));
    }
}

tap_test! {
    fn a_frame_that_finds_too_few_pages_is_dropped_and_leaves_nothing_in_them() {
        let mut wire = Wire::new(false);
        wire.tap.set_mtu(9000).unwrap();
        let (socket, peer) = (UdpSocket::bind(wire.at(5000)).unwrap(), wire.peer(4000));
        let run = SharedRun::private(1);
        let before = wire.tap.report().counters;
        socket.send_to(&[7; 8000], &peer).unwrap();
        wait_for("the frame to be dropped", || {
            while recv_split(&mut wire.tap, &run).is_some() {}
            let counters = wire.tap.report().counters;
            (counters.dropped(DropReason::TooLong) > before.dropped(DropReason::TooLong)).then_some(())
        });
        let mut left = [1; 4096];
        run.page(0).unwrap().read(0, &mut left).unwrap();
        assert!(!left.contains(&7));
    }
}

/// Puts the last bytes of a frame into pages of another owner, at odd offsets.
fn in_pages(rest: &[u8]) -> Vec<(SharedPage, u16, u16)> {
    let parts: Vec<&[u8]> = rest.chunks(4001).collect();
    let run = SharedRun::private(parts.len());
    let lay = |(n, part): (usize, &&[u8])| {
        let page = run.page(n).unwrap();
        page.write(7 + n, part).unwrap();
        (page, 7 + n as u16, part.len() as u16)
    };
    parts.iter().enumerate().map(lay).collect()
}

fn send_split(tap: &mut Tap, frame: &[u8], private: usize, offload: Offload) {
    let pages = in_pages(&frame[private..]);
    let slices: Vec<_> = pages
        .iter()
        .map(|(page, offset, len)| VolatileSlice::new(page, *offset, *len).unwrap())
        .collect();
    let split = SplitFrame::new(&frame[..private], &slices);
    tap.send_split(&split, offload, &mut vec![0; frame.len()]).unwrap();
}

tap_test! {
    fn frames_in_pages_arrive_as_if_they_were_whole() {
        let mut wire = Wire::new(false);
        wire.tap.set_mtu(65_000).unwrap();
        let socket = UdpSocket::bind(wire.at(5000)).unwrap();
        socket.set_read_timeout(Some(GUARD)).unwrap();
        let mut received = vec![0; 65_536];
        for size in [87, 100, 1400, 4096, 9000, 60_000] {
            let payload: Vec<u8> = (0..size).map(|n| (n * 7 + n / 251) as u8).collect();
            let mut frame = Vec::new();
            wire.builder().udp(4000, 5000).write(&mut frame, &payload).unwrap();
            for partial in [false, true] {
                if partial {
                    make_partial(&mut frame);
                }
                let offload = if partial { PARTIAL } else { Offload::default() };
                // Some heads are so short that the headers go on behind them.
                for private in [128, 60, 42, 41, 14] {
                    let whole = frame.len();
                    // Padding stays out of an unfinished checksum.
                    frame.extend([0xee; 9]);
                    send_split(&mut wire.tap, &frame, private, offload);
                    frame.truncate(whole);
                    let len = socket.recv(&mut received).unwrap();
                    assert!(received[..len] == payload, "{size} bytes, {private} private, {partial}");
                }
            }
        }
        // A frame with more stretches than any packet has is copied.
        let payload = [1; 200];
        let mut frame = Vec::new();
        wire.builder().udp(4000, 5000).write(&mut frame, &payload).unwrap();
        let run = SharedRun::private(1);
        let page = run.page(0).unwrap();
        page.write(0, &frame).unwrap();
        let slices: Vec<_> = (100..frame.len() as u16)
            .map(|at| VolatileSlice::new(&page, at, 1).unwrap())
            .collect();
        let split = SplitFrame::new(&frame[..100], &slices);
        wire.tap.send_split(&split, Offload::default(), &mut [0; 2000]).unwrap();
        assert_eq!(socket.recv(&mut received).unwrap(), 200);
        let refused = wire.tap.send_split(
            &SplitFrame::new(&frame[..13], &[]), Offload::default(), &mut [],
        );
        assert!(matches!(refused, Err(SendError::Dropped(DropReason::TooShort))));
    }
}

//! The socket on a veth of a network namespace, and the judgement of errors.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{fs::File, process::Command};

use etherparse::PacketBuilder;
use grantway_needs::{Need, met};
use grantway_netif::{Checksum, Gso, GsoKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::*;

/// Longest wait for what the kernel does by itself.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn every_error_has_a_fate() {
    for (errno, fate) in [
        (Errno::INTR, Unsent::Again),
        (Errno::AGAIN, Unsent::Busy),
        (Errno::NETDOWN, Unsent::AllDropped(DropReason::InterfaceDown)),
        (Errno::NXIO, Unsent::AllDropped(DropReason::InterfaceGone)),
        (Errno::NOBUFS, Unsent::Dropped(DropReason::QueueFull)),
        (Errno::MSGSIZE, Unsent::Dropped(DropReason::LongerThanMtu)),
        (Errno::INVAL, Unsent::Dropped(DropReason::Rejected)),
        (Errno::BADF, Unsent::Failed),
        (Errno::NOSYS, Unsent::Failed),
    ] {
        assert_eq!(unsent(errno), fate, "{errno}");
    }
    for (errno, meaning) in [
        (Errno::AGAIN, Unreceived::None),
        (Errno::NETDOWN, Unreceived::Again),
        (Errno::INVAL, Unreceived::Lost),
        (Errno::BADF, Unreceived::Failed),
    ] {
        assert_eq!(unreceived(errno), meaning, "{errno}");
    }
}

fn available() -> bool {
    met(&[Need::Root, Need::Program("ip", "iproute2")])
}

fn ip(args: &[&str]) {
    let status = Command::new("ip").args(args).status().expect("ip runs");
    assert!(status.success(), "ip {args:?}");
}

/// A namespace with a veth from gwa to gwb, in which the calling thread lives.
struct Wire {
    name: String,
}

impl Wire {
    fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("gwp{}n{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        ip(&["netns", "add", &name]);
        let place = File::open(format!("/run/netns/{name}")).expect("a namespace");
        move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network)).expect("entry");
        let wire = Self { name };
        wire.connect();
        wire
    }

    fn ip(&self, args: &[&str]) {
        ip(&[&["-n", &self.name], args].concat());
    }

    /// Makes the veth, and sets it up.
    fn connect(&self) {
        self.ip(&["link", "add", "gwa", "mtu", "1500", "type", "veth", "peer", "name", "gwb"]);
        for end in ["gwa", "gwb"] {
            // The namespace has no other traffic: no address, and so no questions for neighbours.
            self.ip(&["link", "set", end, "addrgenmode", "none"]);
            self.ip(&["link", "set", end, "up"]);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).status();
    }
}

/// Opens a port on an interface, and waits until frames can cross.
fn open(name: &str) -> (Packet, PacketLink) {
    let (mut port, mut link) = Packet::open(name).expect("a port");
    port.set_offloads(TapOffloads::ALL).expect("offloads");
    settles(&mut link, LinkState::Up);
    (port, link)
}

/// Waits until an interface is in a state: the kernel tells of a carrier a moment later.
fn settles(link: &mut PacketLink, state: LinkState) {
    let until = Instant::now() + PATIENCE;
    while link.state() != state {
        assert!(Instant::now() < until, "{} is {}, and not {state}", link.name(), link.state());
        std::thread::sleep(Duration::from_millis(1));
        link.look().expect("a look");
    }
}

fn frame(len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..].iter_mut().enumerate().for_each(|(n, byte)| *byte = n as u8);
    frame
}

/// TCP over IPv4 with its checksum begun.
fn tcp(payload: usize) -> Vec<u8> {
    let eth = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let builder = eth.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1, 2, 3, 4);
    let mut out = Vec::new();
    builder.write(&mut out, &vec![0x5a; payload]).expect("a frame");
    begin_checksum(&mut out).expect("headers");
    out
}

/// Receives one frame.
fn receive(port: &mut Packet) -> Option<(Vec<u8>, Offload)> {
    let mut buf = vec![0; RECV_BUFFER];
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if let Some(meta) = port.recv(&mut buf).expect("a sound port") {
            buf.truncate(meta.len);
            return Some((buf, meta.offload));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

fn sent(port: &mut Packet, frames: &[(&[u8], Offload)]) -> SentBurst {
    let (mut arena, mut places) = (Vec::new(), Vec::new());
    for (frame, offload) in frames {
        let meta = FrameMeta { len: frame.len(), offload: *offload };
        places.push(FramePlace { at: arena.len(), meta });
        arena.extend_from_slice(frame);
    }
    port.send_burst(&arena, &places).expect("a sound port")
}

const FINISHED: Offload = Offload { checksum: Checksum::Unknown, gso: None };
const LARGE: Offload =
    Offload { checksum: Checksum::Partial, gso: Some(Gso { kind: GsoKind::Tcpv4, size: 1448 }) };

#[test]
fn bursts_cross_in_order_and_large_frames_whole() {
    if !available() {
        return;
    }
    let _wire = Wire::new();
    let ((mut a, _), (mut b, _)) = (open("gwa"), open("gwb"));
    let small: Vec<Vec<u8>> = (0..100).map(|n| frame(60 + n)).collect();
    let large = tcp(60_000);
    for _ in 0..3 {
        let frames: Vec<_> = small.iter().map(|frame| (frame.as_slice(), FINISHED)).collect();
        assert_eq!(sent(&mut a, &frames).taken, 100);
        assert_eq!(sent(&mut a, &[(&large, LARGE), (&small[0], FINISHED)]).taken, 2);
        for expected in &small {
            assert_eq!(receive(&mut b).expect("a small frame").0, *expected);
        }
        let (found, offload) = receive(&mut b).expect("the large frame");
        assert_eq!((found.len(), offload), (large.len(), LARGE));
        assert!(found == large, "the large frame's bytes");
        assert_eq!(receive(&mut b).expect("the last frame").0, small[0]);
        assert!(!b.readiness().is_now());
    }
    // No port receives what it sent, and none receives it twice.
    let mut buf = vec![0; RECV_BUFFER];
    assert_eq!(a.recv(&mut buf).expect("a sound port"), None);
    assert_eq!(b.recv(&mut buf).expect("a sound port"), None);
    assert_eq!((a.report().counters.sent, b.report().counters.received), (306, 306));
}

/// Waits until a port's descriptor is readable.
fn readable(port: &Packet) {
    let Readiness::Readable(fd) = port.readiness() else { panic!("{:?}", port.readiness()) };
    let patience = Timespec::try_from(PATIENCE).expect("a time");
    let found = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&patience));
    assert_eq!(found, Ok(1), "a frame within the limit");
}

#[test]
fn a_batch_with_room_for_more_is_the_last_one_until_the_next_poll() {
    if !available() {
        return;
    }
    let _wire = Wire::new();
    let ((mut a, _), (mut b, _)) = (open("gwa"), open("gwb"));
    // From here on frames come in batches.
    for n in 0..SMALL_RUN.into() {
        assert_eq!(sent(&mut a, &[(&frame(60 + n), FINISHED)]).taken, 1);
        assert_eq!(receive(&mut b).expect("a frame").0, frame(60 + n));
    }
    let mut buf = vec![0; RECV_BUFFER];
    let mut given = |b: &mut Packet| b.recv(&mut buf).expect("a sound port").map(|meta| meta.len);
    for n in 0..3 {
        assert_eq!(sent(&mut a, &[(&frame(60 + n), FINISHED)]).taken, 1);
        readable(&b);
        assert_eq!(given(&mut b), Some(60 + n));
        // The batch had no other frame. The next one is there, and is given after the next poll.
        assert_eq!(sent(&mut a, &[(&frame(70 + n), FINISHED)]).taken, 1);
        readable(&b);
        assert_eq!(given(&mut b), None);
        readable(&b);
        assert_eq!(given(&mut b), Some(70 + n));
        assert_eq!(given(&mut b), None);
    }
}

#[test]
fn tags_are_put_back_in_small_and_large_frames() {
    if !available() {
        return;
    }
    let _wire = Wire::new();
    // The kernel takes the tag out of each frame that it receives, and gives it beside the frame.
    let ((mut a, _), (mut b, _)) = (open("gwa"), open("gwb"));
    let with_tag = |frame: &[u8], kind: u8| {
        let mut tagged = frame.to_vec();
        tagged.splice(12..12, [kind, if kind == 0x88 { 0xa8 } else { 0 }, 0x60, 5]);
        tagged
    };
    // Small frames are received one at a time first, and in batches later.
    for (n, len) in [60, 60, 1514, 60].into_iter().chain([60; 40]).enumerate() {
        let plain = frame(len);
        let tagged = with_tag(&plain, if n % 2 == 0 { 0x81 } else { 0x88 });
        let frames = [&tagged, &plain, &tagged, &tagged, &plain];
        let burst: Vec<_> = frames.iter().map(|frame| (frame.as_slice(), FINISHED)).collect();
        assert_eq!(sent(&mut a, &burst).taken, 5);
        for expected in frames {
            assert_eq!(receive(&mut b).expect("a frame").0, *expected, "frame {n}");
        }
    }
    let (large, tagged) = (tcp(50_000), with_tag(&tcp(50_000), 0x81));
    for expected in [&tagged, &tagged, &large, &tagged] {
        assert_eq!(sent(&mut a, &[(expected, LARGE)]).taken, 1);
        let (found, offload) = receive(&mut b).expect("the large frame");
        assert!(found == *expected);
        assert_eq!(offload, LARGE);
    }
}

#[test]
fn frames_that_do_not_fit_are_counted_by_reason() {
    if !available() {
        return;
    }
    let _wire = Wire::new();
    let ((mut a, _), (mut b, _)) = (open("gwa"), open("gwb"));
    let (long, short) = (frame(1519), frame(60)[..13].to_vec());
    let burst: [(&[u8], Offload); 4] =
        [(&long, FINISHED), (&short, FINISHED), (&frame(60), LARGE), (&frame(61), FINISHED)];
    let sent = sent(&mut a, &burst);
    assert_eq!((sent.taken, sent.bytes, sent.dropped), (1, 61, 3));
    let counters = a.report().counters;
    for reason in [DropReason::LongerThanMtu, DropReason::TooShort, DropReason::NotIp] {
        assert_eq!(counters.dropped(reason), 1, "{reason}");
    }
    assert_eq!(receive(&mut b).expect("the last frame").0, frame(61));
    let refused = a.send(&long, FINISHED).expect_err("a refusal");
    assert!(matches!(refused, SendError::Dropped(DropReason::LongerThanMtu)), "{refused}");
}

#[test]
fn an_interface_that_goes_down_or_away_is_found_again() {
    if !available() {
        return;
    }
    let wire = Wire::new();
    let ((mut a, mut link), (mut b, mut far)) = (open("gwa"), open("gwb"));
    assert_eq!((link.state(), link.look().expect("a look")), (LinkState::Up, None));
    let crosses = |a: &mut Packet, b: &mut Packet| {
        assert_eq!(sent(a, &[(&frame(60), FINISHED)]).taken, 1);
        assert_eq!(receive(b).expect("a frame").0, frame(60));
    };
    crosses(&mut a, &mut b);
    wire.ip(&["link", "set", "gwa", "down"]);
    settles(&mut link, LinkState::Down);
    settles(&mut far, LinkState::NoCarrier);
    assert_eq!(sent(&mut a, &[(&frame(60), FINISHED), (&frame(61), FINISHED)]).dropped, 2);
    assert_eq!(a.report().counters.dropped(DropReason::InterfaceDown), 2);
    let mut buf = vec![0; RECV_BUFFER];
    assert_eq!(a.recv(&mut buf).expect("a sound port"), None);
    wire.ip(&["link", "set", "gwa", "up"]);
    settles(&mut link, LinkState::Up);
    crosses(&mut a, &mut b);
    crosses(&mut b, &mut a);
    wire.ip(&["link", "delete", "gwa"]);
    settles(&mut link, LinkState::Gone);
    settles(&mut far, LinkState::Gone);
    assert_eq!(link.look().expect("a look"), None);
    assert_eq!(sent(&mut a, &[(&frame(60), FINISHED)]).dropped, 1);
    assert_eq!(a.report().counters.dropped(DropReason::InterfaceGone), 1);
    assert_eq!(a.recv(&mut buf).expect("a sound port"), None);
    wire.connect();
    settles(&mut link, LinkState::Up);
    settles(&mut far, LinkState::Up);
    crosses(&mut a, &mut b);
    crosses(&mut b, &mut a);
}

#[test]
fn frames_without_room_are_counted() {
    if !available() {
        return;
    }
    let _wire = Wire::new();
    let ((mut a, _), (mut b, mut far)) = (open("gwa"), open("gwb"));
    let frame = frame(1514);
    let burst = vec![(frame.as_slice(), FINISHED); 64];
    let mut all = 0;
    while far.missed() == 0 {
        all += sent(&mut a, &burst).taken as u64;
        assert!(all < 100_000, "the queue has an end");
    }
    let mut buf = vec![0; RECV_BUFFER];
    let mut received = 0;
    while b.recv(&mut buf).expect("a sound port").is_some() {
        received += 1;
    }
    // The veth has a queue, too, that may drop.
    assert!(received > 0 && received + far.missed() <= all, "{received} of {all}");
}

#[test]
fn errors_say_what_was_found_and_expected() {
    if !available() {
        return;
    }
    let _wire = Wire::new();
    for (name, parts) in [
        ("gwnone", &["packet:gwnone", "no interface of this name", "`ip link`"][..]),
        ("lo", &["packet:lo", "kind 772", "expected an Ethernet interface"]),
    ] {
        let message = Packet::open(name).map(drop).expect_err("a refusal").to_string();
        for part in parts {
            assert!(message.contains(part), "{name}: {message}");
        }
    }
}

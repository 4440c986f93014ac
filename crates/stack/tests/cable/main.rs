//! Tests of two stacks on a cable of the test's own, by its own clock: the bytes that cross, and
//! the frames that they cross in.

mod old;
mod third;

use grantway_frontend::{BackendFeatures, Received, SendError, VifError};
use grantway_netif::headers::{self, Protocol};
use grantway_netif::{Checksum, GsoKind, Offload};
use grantway_ports::finish::finish_checksum;
use grantway_stack::smoltcp::iface::PollIngressSingleResult as Ingress;
use grantway_stack::smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use grantway_stack::smoltcp::socket::tcp::{self, CongestionControl};
use grantway_stack::smoltcp::time::{Duration, Instant};
use grantway_stack::smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use grantway_stack::{Device, Link, tcp_socket};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

const MTU: usize = 1500;
const PORT: u16 = 5001;

/// A frame as it crosses.
#[derive(Clone)]
struct Frame {
    bytes: Vec<u8>,
    offload: Offload,
}

/// One way of a cable: the frames on it, and all frames that it ever had.
#[derive(Default)]
struct Way {
    under_way: VecDeque<Frame>,
    passed: Vec<Frame>,
}

/// One end of a cable.
struct End {
    out: Rc<RefCell<Way>>,
    back: Rc<RefCell<Way>>,
    features: BackendFeatures,
    /// Frames that the way out has room for.
    room: Cell<usize>,
    /// Longest frame that the other end accepts, in bytes.
    longest: Cell<usize>,
}

impl Link for End {
    fn features(&self) -> BackendFeatures {
        self.features
    }

    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        let mut way = self.out.borrow_mut();
        if way.under_way.len() >= self.room.get() {
            return Err(SendError::Full);
        }
        let (found, longest) = (frame.len(), self.longest.get());
        if found > longest {
            return Err(SendError::Length { found, longest });
        }
        let frame = Frame { bytes: frame.to_vec(), offload };
        way.under_way.push_back(frame.clone());
        way.passed.push(frame);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), VifError> {
        Ok(())
    }

    fn reap(&mut self) -> Result<usize, VifError> {
        Ok(0)
    }

    fn recv_burst(
        &mut self,
        arena: &mut [u8],
        took: &mut dyn FnMut(usize, Received),
    ) -> Result<usize, VifError> {
        let (mut at, mut count) = (0, 0);
        while at + 65_535 <= arena.len() {
            let Some(frame) = self.back.borrow_mut().under_way.pop_front() else { break };
            let len = frame.bytes.len();
            arena[at..at + len].copy_from_slice(&frame.bytes);
            took(at, Received { len, offload: frame.offload, hash: None });
            at += len;
            count += 1;
        }
        Ok(count)
    }
}

/// A stack at one end.
struct Host {
    device: Device<End>,
    interface: Interface,
    sockets: SocketSet<'static>,
    congestion: CongestionControl,
}

impl Host {
    fn new(number: u8, end: End) -> Self {
        let mut device = Device::new(MTU);
        device.connect(end);
        let mac = HardwareAddress::Ethernet(EthernetAddress([0, 0x16, 0x3e, 0, 0, number]));
        let mut interface = Interface::new(Config::new(mac), &mut device, Instant::ZERO);
        interface.update_ip_addrs(|list| {
            list.push(IpCidr::new(v4(number), 24)).unwrap();
            list.push(IpCidr::new(v6(number), 64)).unwrap();
        });
        let (sockets, congestion) = (SocketSet::new(Vec::new()), CongestionControl::Reno);
        Self { device, interface, sockets, congestion }
    }

    fn socket(&mut self, window: usize) -> SocketHandle {
        let buffer = tcp::SocketBuffer::new(vec![0; window]);
        let mut socket = tcp_socket(window, buffer, Duration::from_secs(60));
        socket.set_congestion_control(self.congestion);
        self.sockets.add(socket)
    }

    fn get(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }

    /// Receives a burst. Returns true if the stack got any frame.
    fn receive(&mut self, now: Instant) -> bool {
        self.device.begin();
        let Self { interface, device, sockets, .. } = self;
        let before = device.stats().rx_frames;
        while interface.poll_ingress_single(now, device, sockets) != Ingress::None {}
        device.stats().rx_frames > before
    }

    fn send(&mut self, now: Instant) -> bool {
        let mut went = self.device.flush().expect("no faults");
        while self.interface.poll_egress(now, &mut self.device, &mut self.sockets)
            != PollResult::None
        {
            went = true;
        }
        went
    }
}

fn v4(number: u8) -> IpAddress {
    IpAddress::v4(10, 0, 0, number)
}

fn v6(number: u8) -> IpAddress {
    IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, number.into())
}

const ALL: BackendFeatures = BackendFeatures {
    scatter_gather: true,
    gso_tcpv4: true,
    gso_tcpv6: true,
    checksum_ipv4: true,
    checksum_ipv6: true,
    split_events: true,
    queues: 1,
    control: false,
    policy: grantway_frontend::Policy::Copy,
    trusted: true,
};

fn nothing() -> BackendFeatures {
    BackendFeatures { queues: 1, ..BackendFeatures::default() }
}

/// Makes two hosts on a cable. Returns them, and the way from the first to the second.
fn cable(features: BackendFeatures, room: usize) -> (Host, Host, Rc<RefCell<Way>>) {
    let ways = [Rc::<RefCell<Way>>::default(), Rc::default()];
    let [there, back] = &ways;
    let end = |out: &Rc<RefCell<Way>>, back: &Rc<RefCell<Way>>| End {
        out: Rc::clone(out),
        back: Rc::clone(back),
        features,
        room: Cell::new(room),
        longest: Cell::new(usize::MAX),
    };
    (Host::new(1, end(there, back)), Host::new(2, end(back, there)), Rc::clone(there))
}

/// Sends bytes from one host to the other. Checks that all come as they were sent, within 20,000
/// turns.
fn transfer(one: &mut Host, other: &mut Host, to: IpAddress, bytes: usize) {
    let (sender, receiver) = (one.socket(200_000), other.socket(200_000));
    other.get(receiver).listen(PORT).unwrap();
    let socket: &mut tcp::Socket<'_> = one.sockets.get_mut(sender);
    socket.connect(one.interface.context(), (to, PORT), 40_000).unwrap();
    let (mut wrote, mut read) = (0_usize, 0_usize);
    for turn in 0..2_000_000 / 100 {
        let now = Instant::from_micros(turn * 100);
        let mut moved = one.receive(now);
        let sent = one.get(sender).send(|room| {
            let len = room.len().min(bytes - wrote);
            room[..len].iter_mut().zip(wrote..).for_each(|(byte, n)| *byte = (n % 251) as u8);
            (len, len)
        });
        wrote += sent.unwrap_or(0);
        moved |= one.send(now);
        moved |= other.receive(now);
        let got = other.get(receiver).recv(|bytes| {
            assert!(bytes.iter().zip(read..).all(|(&byte, n)| byte == (n % 251) as u8));
            (bytes.len(), bytes.len())
        });
        read += got.unwrap_or(0);
        moved |= other.send(now);
        if read == bytes {
            assert!(turn > 0 && moved);
            return;
        }
    }
    panic!("{read} of {bytes} bytes came, {wrote} were written");
}

/// Returns payload and offload of the data segments among the frames.
fn segments(way: &RefCell<Way>) -> Vec<(usize, Offload)> {
    let found = |frame: &Frame| {
        let found = headers::read(&frame.bytes, frame.bytes.len())
            .ok()
            .filter(|found| found.protocol == Protocol::Tcp)?;
        Some((found.end - found.header_end, frame.offload))
    };
    way.borrow().passed.iter().filter_map(found).filter(|(payload, _)| *payload > 0).collect()
}

#[test]
fn large_frames_say_what_they_are_to_be_cut_into() {
    for (to, kind, size) in [(v4(2), GsoKind::Tcpv4, 1448), (v6(2), GsoKind::Tcpv6, 1428)] {
        let (mut one, mut other, there) = cable(ALL, 256);
        transfer(&mut one, &mut other, to, 3_000_000);
        let segments = segments(&there);
        assert!(segments.len() < 200, "{} frames of 3 MB", segments.len());
        for (payload, offload) in &segments {
            assert_eq!(offload.checksum, Checksum::Partial);
            match offload.gso {
                Some(gso) => assert_eq!((gso.kind, gso.size), (kind, size)),
                None => assert!(*payload <= usize::from(size), "{payload}"),
            }
        }
        let longest = segments.iter().map(|(payload, _)| *payload).max().unwrap();
        assert_eq!(longest, 45 * usize::from(size));
        assert_eq!(other.device.stats().rx_large, one.device.stats().tx_large);
        assert_eq!(one.device.stats().tx_cut, 0);
    }
}

#[test]
fn a_backend_that_offers_nothing_gets_finished_segments() {
    for to in [v4(2), v6(2)] {
        let (mut one, mut other, there) = cable(nothing(), 256);
        transfer(&mut one, &mut other, to, 1_000_000);
        for frame in &there.borrow().passed {
            assert!(frame.bytes.len() <= MTU + 14 && frame.offload.gso.is_none());
            let mut again = frame.bytes.clone();
            if finish_checksum(&mut again).is_ok() {
                assert_eq!(frame.offload.checksum, Checksum::Complete);
                assert_eq!(again, frame.bytes, "a checksum was wrong");
            }
        }
        assert!(one.device.stats().tx_cut > 600, "{:?}", one.device.stats());
        assert_eq!(other.device.stats().rx_bad_checksum, 0);
    }
}

#[test]
fn nothing_is_lost_where_there_is_hardly_any_room() {
    for features in [ALL, nothing()] {
        let (mut one, mut other, there) = cable(features, 2);
        // The sender has to find the cable full.
        one.congestion = CongestionControl::None;
        transfer(&mut one, &mut other, v4(2), 500_000);
        let sent: usize = segments(&there).iter().map(|(payload, _)| payload).sum();
        assert_eq!(sent, 500_000, "something was sent twice");
        assert!(one.device.stats().tx_waited > 0);
    }
}

#[test]
fn an_unverified_checksum_is_checked() {
    let (mut one, mut other, _) = cable(nothing(), 256);
    transfer(&mut one, &mut other, v4(2), 1000);
    let good = other.device.link().unwrap().back.borrow().passed.clone();
    let data = good.iter().find(|frame| frame.bytes.len() > 500).unwrap();
    let mut give = |byte: u8, checksum: Checksum| {
        let before = *other.device.stats();
        let mut frame = data.clone();
        let last = frame.bytes.len() - 1;
        frame.bytes[last] ^= byte;
        frame.offload.checksum = checksum;
        other.device.link_mut().unwrap().back.borrow_mut().under_way.push_back(frame);
        other.receive(Instant::from_secs(10));
        let after = other.device.stats();
        (after.rx_frames - before.rx_frames, after.rx_bad_checksum - before.rx_bad_checksum)
    };
    assert_eq!(give(0, Checksum::Unknown), (1, 0));
    assert_eq!(give(1, Checksum::Unknown), (0, 1));
    assert_eq!(give(1, Checksum::Partial), (1, 0));
    assert_eq!(give(1, Checksum::Complete), (1, 0));
}

#[test]
fn a_burst_beyond_the_window_of_the_handshake_is_not_taken() {
    // The windows of SYNs are not scaled, and smoltcp scales what it remembers of them.
    for window in [60_000, 65_535, 65_536, 100_000, 131_070, 131_071, 200_000, 1 << 20] {
        let (mut one, _other, there) = cable(ALL, 256);
        let scaled = [2, 4, 5, 180, 1, 3, 3, 7];
        let (called, number) = third::greet(&mut one, &there, window, &scaled);
        let back = Rc::clone(&one.device.link().unwrap().back);
        // A burst comes before anything can be acknowledged.
        let payload = [7; 20_000];
        for n in 0..60 {
            let frame =
                third::segment(7, [2 + n * payload.len() as u32, number], 16, &[], &payload);
            back.borrow_mut().under_way.push_back(frame);
        }
        for _ in 0..8 {
            one.receive(Instant::from_secs(5));
        }
        let (got, room) = (one.get(called).recv_queue(), one.get(called).recv_capacity());
        assert!(got > 0 && got <= room && room <= window && room > window / 2, "{got} of {room}");
    }
}

#[test]
fn a_flood_of_connections_makes_segments_short_only_of_flows_that_sent_none_yet() {
    let (mut one, mut other, there) = cable(ALL, 256);
    transfer(&mut one, &mut other, v4(2), 10_000);
    let back = Rc::clone(&one.device.link().unwrap().back);
    for n in 0..10_000_u16 {
        for (way, host) in [(&back, &mut one), (&there, &mut other)] {
            way.borrow_mut().under_way.push_back(third::syn(n, n));
            host.receive(Instant::from_secs(1));
        }
        there.borrow_mut().under_way.clear();
        back.borrow_mut().under_way.clear();
    }
    for (way, host, size) in [(&there, &mut one, 1448), (&back, &mut other, 524)] {
        let before = way.borrow().passed.len();
        let (sender, _) = host.sockets.iter().next().unwrap();
        assert_eq!(host.get(sender).send_slice(&[7; 1500]), Ok(1500));
        host.send(Instant::from_secs(1));
        let way = way.borrow();
        let last = way.passed[before..].iter().rfind(|frame| frame.bytes.len() > 1500).unwrap();
        assert_eq!(last.offload.gso.map(|gso| gso.size), Some(size));
    }
}

#[test]
fn a_waiting_frame_that_is_refused_is_counted() {
    let (mut one, _other, there) = cable(ALL, 0);
    let caller = one.socket(4096);
    let socket: &mut tcp::Socket<'_> = one.sockets.get_mut(caller);
    socket.connect(one.interface.context(), (v4(2), PORT), 40_000).unwrap();
    one.send(Instant::ZERO);
    let waited = one.device.stats().tx_waited;
    assert!(waited > 0 && one.device.is_blocked());
    let link = one.device.link().unwrap();
    link.room.set(256);
    link.longest.set(0);
    assert!(one.device.flush().unwrap() && !one.device.is_blocked());
    assert_eq!(one.device.stats().tx_too_long, waited);
    assert!(there.borrow().passed.is_empty());
}

//! Target: a stack in user space, with frames from a peer that shakes hands and says anything.

use super::Bytes;
use grantway_frontend::{BackendFeatures, Received, SendError, VifError};
use grantway_netif::headers::{self, Protocol};
use grantway_netif::{Checksum, Offload};
use grantway_ports::finish::{begin_checksum, finish_checksum};
use grantway_stack::smoltcp::iface::{Config, Interface, SocketSet};
use grantway_stack::smoltcp::iface::{PollIngressSingleResult as Ingress, PollResult};
use grantway_stack::smoltcp::socket::{tcp, udp};
use grantway_stack::smoltcp::time::{Duration, Instant};
use grantway_stack::smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use grantway_stack::{Device, Link, tcp_socket};

const MTU: usize = 1500;
/// Number of frames that the link has room for before it is emptied.
const ROOM: usize = 70;
/// Most polls in which sockets send, for each frame that they were given.
const TURNS: usize = 8;

const OURS: ([u8; 6], [u8; 4]) = ([0, 0x16, 0x3e, 0, 0, 1], [10, 0, 0, 1]);
const PEER: ([u8; 6], [u8; 4]) = ([0, 0x16, 0x3e, 0, 0, 2], [10, 0, 0, 2]);

/// Peer of the stack: the frame that it sends, and a check of those that it gets.
struct Peer {
    frame: Option<(Vec<u8>, Offload)>,
    features: BackendFeatures,
    sent: usize,
    /// Sequence and acknowledgement that the peer's next segment should have, by the last segment
    /// that it got.
    heard: [u32; 2],
}

impl Link for Peer {
    fn features(&self) -> BackendFeatures {
        self.features
    }

    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        if self.sent == ROOM {
            return Err(SendError::Full);
        }
        self.sent += 1;
        self.check(frame, offload);
        if let Ok(found) = headers::read(frame, frame.len())
            && found.protocol == Protocol::Tcp
        {
            let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|n| frame[at + n]));
            let flags = u32::from(frame[found.start + 13] & 3 != 0);
            let length = (found.end - found.header_end) as u32 + flags;
            let next = word(found.start + 4).wrapping_add(length);
            self.heard = [word(found.start + 8), next];
        }
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
        let Some((frame, offload)) = self.frame.take() else { return Ok(0) };
        arena[..frame.len()].copy_from_slice(&frame);
        took(0, Received { len: frame.len(), offload, hash: None });
        Ok(1)
    }
}

impl Peer {
    /// Checks the rules for every frame, whatever it answers.
    fn check(&self, frame: &[u8], offload: Offload) {
        assert!(frame.len() >= 14 && frame.len() <= 65_535);
        match offload.gso {
            Some(gso) => {
                assert!(self.features.gso_tcpv4 && gso.size > 0);
                assert_eq!(offload.checksum, Checksum::Partial);
            }
            None => assert!(frame.len() <= MTU + 14),
        }
        let mut again = frame.to_vec();
        match offload.checksum {
            Checksum::Partial => {
                assert!(self.features.checksum_ipv4 && begin_checksum(&mut again).is_ok())
            }
            Checksum::Complete => assert!(finish_checksum(&mut again).is_ok()),
            Checksum::Unknown => return assert!(headers::read(frame, frame.len()).is_err()),
        }
        assert_eq!(again, frame, "a checksum is wrong");
    }
}

pub(super) fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let what = bytes.u8();
    // The backend offers everything, or nothing.
    let offers = what & 1 != 0;
    let features = BackendFeatures {
        scatter_gather: offers,
        gso_tcpv4: offers,
        gso_tcpv6: offers,
        checksum_ipv4: offers,
        checksum_ipv6: offers,
        ..BackendFeatures::default()
    };
    // An interface with two connections, one called and one calling, and a socket for datagrams.
    let mut device = Device::new(MTU);
    device.connect(Peer { frame: None, features, sent: 0, heard: [0; 2] });
    device.log_flows(true);
    let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(OURS.0)));
    config.random_seed = 1;
    let mut interface = Interface::new(config, &mut device, Instant::ZERO);
    interface.update_ip_addrs(|list| {
        let own = [address(OURS.1), IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, 1)];
        for (own, bits) in own.into_iter().zip([24, 64]) {
            let _ = list.push(IpCidr::new(own, bits));
        }
    });
    let mut sockets = SocketSet::new(Vec::new());
    let buffer = || tcp::SocketBuffer::new(vec![0; 20_000]);
    let [listener, caller] =
        std::array::from_fn(|_| sockets.add(tcp_socket(20_000, buffer(), Duration::from_secs(60))));
    let _ = sockets.get_mut::<tcp::Socket<'_>>(listener).listen(1);
    let call = sockets.get_mut::<tcp::Socket<'_>>(caller);
    let _ = call.connect(interface.context(), (address(PEER.1), 2), 1000);
    let packets = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 4], vec![0; 4096]);
    let datagrams = sockets.add(udp::Socket::new(packets(), packets()));
    let _ = sockets.get_mut::<udp::Socket<'_>>(datagrams).bind(3);

    let mut now = Instant::ZERO;
    let mut given = 0;
    while !bytes.0.is_empty() {
        let heard = device.link().map_or([0; 2], |peer| peer.heard);
        let frame = frame(&mut bytes, heard);
        // The time is a power of two, so that one byte can make microseconds or half an hour.
        now += Duration::from_micros(1 << (bytes.u8() & 31));
        given += 1;
        if let Some(peer) = device.link_mut() {
            (peer.frame, peer.sent) = (Some(frame), 0);
        }
        // The stack takes the frame. The sockets read all, and send as much as they can.
        device.begin();
        while interface.poll_ingress_single(now, &mut device, &mut sockets) != Ingress::None {}
        for handle in [listener, caller] {
            let socket: &mut tcp::Socket<'_> = sockets.get_mut(handle);
            let _ = socket.recv(|bytes| (bytes.len(), ()));
            let _ = socket.send(|room| (room.len(), ()));
        }
        let socket: &mut udp::Socket<'_> = sockets.get_mut(datagrams);
        while let Ok((bytes, meta)) = socket.recv() {
            let answer = bytes.to_vec();
            let _ = socket.send_slice(&answer, meta.endpoint);
        }
        for _ in 0..TURNS {
            let went = interface.poll_egress(now, &mut device, &mut sockets);
            assert!(device.flush().is_ok() && device.take_fault().is_none());
            if went == PollResult::None {
                break;
            }
        }
        device.flow_states(|_| None, &mut |state| {
            assert!(state.acked <= state.sent && state.congestion.is_none())
        });
        let stats = device.stats();
        let refused = stats.rx_bad_checksum + stats.rx_malformed;
        // A frame that waits for room may hold the next frame back, which is then lost with the
        // test.
        assert!(stats.rx_frames + refused <= given);
    }
}

fn address([a, b, c, d]: [u8; 4]) -> IpAddress {
    IpAddress::v4(a, b, c, d)
}

/// Returns a frame of the peer, with its offload.
fn frame(bytes: &mut Bytes<'_>, heard: [u32; 2]) -> (Vec<u8>, Offload) {
    let what = bytes.u8();
    let checksum = [Checksum::Unknown, Checksum::Partial, Checksum::Complete, Checksum::Partial];
    let offload = Offload { checksum: checksum[usize::from(what >> 6)], gso: None };
    let mut frame = [OURS.0, PEER.0].concat();
    match what & 7 {
        0 => {
            // Any bytes follow the addresses.
            let len = usize::from(bytes.u8());
            frame.extend((0..len).map(|_| bytes.u8()));
        }
        1 => {
            frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1 + (what >> 3 & 1)]);
            frame.extend([&PEER.0[..], &PEER.1, &OURS.0, &OURS.1].concat());
        }
        kind => {
            let udp = kind == 2;
            ipv4(&mut frame, if udp { 17 } else { 6 });
            match udp {
                true => frame.extend([0, 9, 0, 3, 0, 0, 0, 0]),
                false => segment(&mut frame, bytes, what, heard),
            }
            let payload = usize::from(bytes.u8()) << (bytes.u8() & 7);
            frame.extend((0..payload).map(|n| n as u8));
            finish(&mut frame, udp);
        }
    }
    (frame, offload)
}

fn ipv4(frame: &mut Vec<u8>, protocol: u8) {
    frame.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0]);
    frame.extend([PEER.1, OURS.1].concat());
}

/// Adds a TCP header whose numbers are near the expected ones.
fn segment(frame: &mut Vec<u8>, bytes: &mut Bytes<'_>, what: u8, heard: [u32; 2]) {
    let ports = if what & 8 == 0 { [0, 5, 0, 1] } else { [0, 2, 3, 232] };
    let (flags, options) = (bytes.u8(), usize::from(bytes.u8() & 3) * 4);
    // The difference is at most what a signed byte holds.
    let near = |number: u32, off: u8| number.wrapping_add((i32::from(off as i8)) as u32);
    let [sequence, acknowledged] = heard.map(|number| near(number, bytes.u8()));
    frame.extend(ports);
    frame.extend(sequence.to_be_bytes());
    frame.extend(acknowledged.to_be_bytes());
    frame.extend([(5 + options as u8 / 4) << 4, flags]);
    frame.extend(bytes.u16().to_be_bytes());
    frame.extend([0; 4]);
    frame.extend((0..options).map(|_| bytes.u8()));
}

/// Fills in the lengths, and the checksums that are read.
fn finish(frame: &mut [u8], udp: bool) {
    let total = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    if udp {
        frame[38..40].copy_from_slice(&(total - 20).to_be_bytes());
    }
    let words = frame[14..34].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
    let sum: u32 = words.sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let _ = finish_checksum(frame);
}

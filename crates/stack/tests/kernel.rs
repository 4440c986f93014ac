//! The kernel's TCP sends to a stack through a TAP, and a relay between them lets segments be overtaken. The
//! kernel sends such a segment again, and has to find out that it did so in vain.
//!
//! The relay decides by what it sees, not by time: it holds a segment until the kernel has sent it again.

use grantway_frontend::{BackendFeatures, Received, SendError, VifError};
use grantway_needs::{Need, met};
use grantway_netif::headers::{self, Headers, Protocol};
use grantway_netif::{Checksum, Offload};
use grantway_ports::tap::{Tap, TapConfig};
use grantway_ports::{Port, RECV_BUFFER};
use grantway_stack::smoltcp::iface::PollIngressSingleResult as Ingress;
use grantway_stack::smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use grantway_stack::smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use grantway_stack::smoltcp::time::{Duration, Instant};
use grantway_stack::smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use grantway_stack::{Device, Link, tcp_socket};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};

const INSIDE: &str = "GRANTWAY_TEST_NAMESPACE";
const PORT: u16 = 5001;
const BYTES: usize = 2_000_000;
/// One of so many segments is held.
const HELD: u64 = 100;
/// The kernel's times are in milliseconds. A segment is sent again later than it was sent at first if its
/// sender hears that much later that it is missing.
const LATER: std::time::Duration = std::time::Duration::from_millis(3);

/// The stack's end of the relay.
#[derive(Default)]
struct End {
    received: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
}

impl Link for End {
    fn features(&self) -> BackendFeatures {
        BackendFeatures { queues: 1, ..BackendFeatures::default() }
    }

    fn send(&mut self, frame: &[u8], _offload: Offload) -> Result<(), SendError> {
        self.sent.push(frame.to_vec());
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
        let Some(frame) = self.received.pop_front() else { return Ok(0) };
        arena[..frame.len()].copy_from_slice(&frame);
        let offload = Offload { checksum: Checksum::Unknown, gso: None };
        took(0, Received { len: frame.len(), offload, hash: None });
        Ok(1)
    }
}

/// A stack that takes what one connection sends.
struct Taker {
    device: Device<End>,
    interface: Interface,
    sockets: SocketSet<'static>,
    called: SocketHandle,
    begun: std::time::Instant,
    bytes: usize,
}

impl Taker {
    fn new() -> Self {
        let mut device = Device::new(1500);
        device.connect(End::default());
        let station = EthernetAddress([0, 0x16, 0x3e, 0, 0, 2]);
        let config = Config::new(HardwareAddress::Ethernet(station));
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        let address = IpCidr::new(IpAddress::v4(10, 9, 0, 2), 24);
        interface.update_ip_addrs(|list| list.push(address).unwrap());
        let mut sockets = SocketSet::new(Vec::new());
        let send = SocketBuffer::new(vec![0; 4096]);
        let called = sockets.add(tcp_socket(1 << 20, send, Duration::from_secs(600)));
        sockets.get_mut::<Socket<'_>>(called).listen(PORT).unwrap();
        Self { device, interface, sockets, called, begun: std::time::Instant::now(), bytes: 0 }
    }

    /// Gives the stack a frame, if there is one, and returns what it sends.
    fn turn(&mut self, frame: Option<Vec<u8>>) -> Vec<Vec<u8>> {
        let now = Instant::from_micros(self.begun.elapsed().as_micros() as i64);
        let Self { device, interface, sockets, .. } = self;
        device.link_mut().unwrap().received.extend(frame);
        device.begin();
        while interface.poll_ingress_single(now, device, sockets) != Ingress::None {}
        let socket = sockets.get_mut::<Socket<'_>>(self.called);
        while let Ok(bytes @ 1..) = socket.recv(|bytes| (bytes.len(), bytes.len())) {
            self.bytes += bytes;
        }
        if socket.state() == State::CloseWait {
            socket.close();
        }
        while interface.poll_egress(now, device, sockets) != PollResult::None {}
        std::mem::take(&mut device.link_mut().unwrap().sent)
    }
}

/// A relay that lets segments be overtaken.
#[derive(Default)]
struct Relay {
    /// The segment that is held, and its number.
    held: Option<(u32, Vec<u8>)>,
    /// True if it is held since the last frame.
    just_held: bool,
    /// The number behind all that passed.
    next: Option<u32>,
    segments: u64,
    /// Segments that were held.
    overtaken: u64,
    /// Segments that were sent again.
    again: u64,
}

impl Relay {
    /// Takes a frame of the kernel's. Returns those that go on.
    fn pass(&mut self, frame: Vec<u8>) -> Vec<Vec<u8>> {
        let is_data =
            |found: &Headers| found.protocol == Protocol::Tcp && found.end > found.header_end;
        let Some(found) = headers::read(&frame, frame.len()).ok().filter(is_data) else {
            return vec![frame];
        };
        let field = frame[found.start + 4..].first_chunk().copied().unwrap();
        let number = u32::from_be_bytes(field);
        let is_new = self.next.is_none_or(|next| number.wrapping_sub(next) < 1 << 31);
        if !is_new {
            self.again += 1;
            return match self.held.take_if(|(held, _)| *held == number) {
                Some((_, first)) => vec![first, frame],
                None => vec![frame],
            };
        }
        self.next = Some(number.wrapping_add((found.end - found.header_end) as u32));
        self.segments += 1;
        if self.held.is_none() && self.segments.is_multiple_of(HELD) {
            self.held = Some((number, frame));
            self.overtaken += 1;
            self.just_held = true;
            return vec![];
        }
        vec![frame]
    }
}

/// Returns the sum of counters of the kernel's TCP in this namespace.
fn count(names: &[&str]) -> u64 {
    let text = std::fs::read_to_string("/proc/net/netstat").unwrap();
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("TcpExt:")).collect();
    let values = lines[0].split(' ').zip(lines[1].split(' '));
    values.filter(|(name, _)| names.contains(name)).map(|(_, n)| n.parse::<u64>().unwrap()).sum()
}

fn kernel_sends() {
    let config = TapConfig { up: true, ..TapConfig::named("gwkernel") };
    let mut tap = Tap::open(&config).unwrap();
    let address = ["addr", "add", "10.9.0.1/24", "dev", "gwkernel"];
    assert!(Command::new("ip").args(address).status().unwrap().success());
    let sender = std::thread::spawn(|| {
        let mut stream = TcpStream::connect(("10.9.0.2", PORT)).unwrap();
        stream.write_all(&vec![7; BYTES]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    });
    let (mut taker, mut relay) = (Taker::new(), Relay::default());
    let mut buffer = vec![0; RECV_BUFFER];
    while !sender.is_finished() {
        let came = tap.recv(&mut buffer).unwrap().map(|meta| buffer[..meta.len].to_vec());
        let idle = came.is_none();
        let passed: Vec<_> = came.into_iter().flat_map(|frame| relay.pass(frame)).collect();
        for frame in passed.into_iter().map(Some).chain([None]) {
            let answers = taker.turn(frame);
            if std::mem::take(&mut relay.just_held) {
                std::thread::sleep(LATER);
            }
            for answer in answers {
                let offload = Offload { checksum: Checksum::Unknown, gso: None };
                tap.send(&answer, offload).unwrap();
            }
        }
        if idle {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }
    sender.join().unwrap();
    // By the times of acknowledgements, before any says what came twice.
    let undone = count(&["TCPFullUndo", "TCPPartialUndo"]);
    let twice = count(&["TCPDSACKRecvSegs"]);
    let Relay { overtaken, again, .. } = relay;
    assert_eq!(taker.bytes, BYTES);
    assert!(overtaken >= 5, "{overtaken}");
    // Nothing is lost, so each that was sent again came twice, and the kernel hears of each. It may send
    // one again without slowing down, to probe, and has nothing to take back then.
    let text = format!("{overtaken} overtaken, {again} again, {twice} twice, {undone} undone");
    assert!(again >= overtaken && twice == again && 2 * undone >= overtaken, "{text}");
}

#[test]
fn the_kernel_finds_out_what_it_sent_again_in_vain() {
    if std::env::var_os(INSIDE).is_some() {
        return kernel_sends();
    }
    let needs = [
        Need::Root,
        Need::File("/dev/net/tun", "modprobe tun"),
        Need::Program("unshare", "util-linux"),
        Need::Program("ip", "iproute2"),
    ];
    if !met(&needs) {
        return;
    }
    let output = Command::new("unshare")
        .args(["--net"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "the_kernel_finds_out_what_it_sent_again_in_vain", "--nocapture"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}

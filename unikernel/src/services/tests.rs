//! Tests of the services and their peers in one stack, on smoltcp's loopback device, by a clock of
//! their own.

use super::*;
use crate::places::SILENCE;
use crate::words::instant;
use grantway_stack::FlowState;
use grantway_stack::smoltcp::iface::{Config, Interface, SocketHandle};
use grantway_stack::smoltcp::phy::{Loopback, Medium};
use grantway_stack::smoltcp::wire::{
    EthernetAddress, HardwareAddress, IpAddress, IpCidr, IpEndpoint,
};

const OWN: IpAddress = IpAddress::v4(10, 0, 0, 2);
const STEP: Duration = Duration::from_millis(10);

struct Host {
    device: Loopback,
    interface: Interface,
    sockets: SocketSet<'static>,
    services: Services,
    log: Option<FlowsLog>,
    now: Duration,
    port: u16,
}

impl Host {
    fn new() -> Self {
        let mut device = Loopback::new(Medium::Ethernet);
        let mac = HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, 1]));
        let now = Duration::from_secs(1000);
        let mut interface = Interface::new(Config::new(mac), &mut device, instant(now));
        interface.update_ip_addrs(|list| list.push(IpCidr::new(OWN, 24)).unwrap());
        let mut sockets = SocketSet::new(Vec::new());
        let services = Services::open(&mut sockets, 4 << 20).unwrap();
        Self { device, interface, sockets, services, log: None, now, port: 40_000 }
    }

    /// Lets a peer ask for a connection.
    fn connect(&mut self, port: u16) -> SocketHandle {
        let mut socket = tcp_socket(4096, SocketBuffer::new(vec![0; 4096]), PATIENCE.into());
        self.port += 1;
        socket.connect(self.interface.context(), (OWN, port), self.port).unwrap();
        self.sockets.add(socket)
    }

    fn peer(&mut self, handle: SocketHandle) -> &mut Socket<'static> {
        self.sockets.get_mut(handle)
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.interface.poll(instant(self.now), &mut self.device, &mut self.sockets);
            let figures = Figures {
                host: self.now,
                staged: 0,
                iperf: iperf::Counts::default(),
                device: DeviceStats::default(),
                own: Vec::new,
                log: self.log.as_ref(),
            };
            if !self.services.turn(&mut self.sockets, &figures) {
                self.now += STEP;
            }
        }
    }
}

#[test]
fn silent_peers_keep_no_other_peer_out() {
    for (_, port) in KINDS {
        let mut host = Host::new();
        let silent: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let peer = host.connect(port);
                host.pass(Duration::from_millis(100));
                peer
            })
            .collect();
        assert!(silent.iter().all(|&peer| host.peer(peer).state() == State::Established));
        // All places are taken, and none is silent for so long.
        host.pass(SILENCE / 2);
        let early = host.connect(port);
        host.pass(Duration::from_millis(100));
        assert_eq!(host.peer(early).state(), State::Closed);
        assert_eq!(host.services.counts.given_up, 0);
        // The first of them gives its place up, and only that one.
        host.pass(SILENCE);
        let open = |host: &mut Host| silent.iter().filter(|&&p| host.peer(p).is_open()).count();
        assert!(!host.peer(silent[0]).is_open());
        assert_eq!((host.services.counts.given_up, open(&mut host)), (1, CONNECTIONS - 1));
        let late = host.connect(port);
        host.pass(Duration::from_millis(100));
        assert_eq!(host.peer(late).state(), State::Established, "port {port}");
    }
}

#[test]
fn connections_that_move_bytes_keep_their_places() {
    let mut host = Host::new();
    let peers: Vec<_> = (0..CONNECTIONS).map(|_| host.connect(7)).collect();
    host.pass(Duration::from_millis(100));
    for _ in 0..20 {
        for &peer in &peers {
            let socket = host.peer(peer);
            assert_eq!(socket.send_slice(b"word"), Ok(4));
        }
        host.pass(SILENCE / 2);
        for &peer in &peers {
            assert_eq!(
                host.peer(peer).recv(|bytes| (bytes.len(), bytes.to_vec())).unwrap(),
                b"word"
            );
        }
    }
    assert_eq!(host.services.counts.given_up, 0);
}

#[test]
fn silent_peers_stay_while_there_is_a_place() {
    let mut host = Host::new();
    let peers: Vec<_> = (1..CONNECTIONS).map(|_| host.connect(9)).collect();
    host.pass(Duration::from_millis(100));
    host.pass(10 * PATIENCE);
    assert!(peers.iter().all(|&peer| host.peer(peer).state() == State::Established));
}

#[test]
fn a_request_names_the_page_or_the_log() {
    let mut host = Host::new();
    let mut log = FlowsLog::default();
    let ends = (IpEndpoint::new(OWN, 7), IpEndpoint::new(OWN, 40_000));
    log.note(FlowState::new(ends.0, ends.1), Duration::from_nanos(1_700_000_000_000_000_001));
    let asks = |host: &mut Host, parts: &[&str]| {
        let peer = host.connect(80);
        host.pass(Duration::from_millis(100));
        for part in parts {
            assert_eq!(host.peer(peer).send_slice(part.as_bytes()), Ok(part.len()));
            host.pass(Duration::from_millis(100));
        }
        let text = host.peer(peer).recv(|bytes| (bytes.len(), bytes.to_vec())).unwrap();
        host.peer(peer).close();
        host.pass(Duration::from_millis(100));
        String::from_utf8(text).unwrap()
    };
    let (page, line) =
        ("host_seconds 100", "{\"t_ns\":1700000000000000001,\"local\":\"10.0.0.2:7\"");
    // Without a log there is the page alone.
    let text = asks(&mut host, &["GET /stack-log HTTP/1.0\r\n\r\n"]);
    assert!(text.contains(page) && !text.contains(line), "{text}");
    host.log = Some(log);
    for (parts, expected) in [
        (&["GET /stack-log HTTP/1.0\r\n\r\n"][..], line),
        // However the request is cut.
        (&["G", "ET /sta", "ck-log HTTP/1.1\r\nHost: a\r\n", "\r\n"], line),
        (&["GET / HTTP/1.0\r\n\r\n"], page),
        (&["GET /stack-logs HTTP/1.0\r\n\r\n"], page),
        (&["\r\n\r\n"], page),
    ] {
        let text = asks(&mut host, parts);
        assert!(text.starts_with("HTTP/1.0 200 OK\r\n"), "{text}");
        let others = [page, line].iter().filter(|part| text.contains(**part)).count();
        assert!(text.contains(expected) && others == 1, "{parts:?}: {text}");
    }
}

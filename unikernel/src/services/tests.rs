//! Tests of the services and their peers in one stack, on smoltcp's loopback device, by a clock of
//! their own.

use super::*;
use crate::places::SILENCE;
use crate::words::instant;
use grantway_stack::smoltcp::iface::{Config, Interface, SocketHandle};
use grantway_stack::smoltcp::phy::{Loopback, Medium};
use grantway_stack::smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};

const OWN: IpAddress = IpAddress::v4(10, 0, 0, 2);
const STEP: Duration = Duration::from_millis(10);

struct Host {
    device: Loopback,
    interface: Interface,
    sockets: SocketSet<'static>,
    services: Services,
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
        Self { device, interface, sockets, services, now, port: 40_000 }
    }

    /// Has a peer ask for a connection.
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
            };
            if !self.services.turn(&mut self.sockets, &figures) {
                self.now += STEP;
            }
        }
    }
}

#[test]
fn peers_that_say_nothing_keep_nobody_out() {
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

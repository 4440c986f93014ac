//! Tests of both ends in one stack, on smoltcp's loopback device, by a clock of their own.

use super::*;
use grantway_stack::smoltcp::iface::{Config, Interface};
use grantway_stack::smoltcp::phy::{Loopback, Medium};
use grantway_stack::smoltcp::socket::{AnySocket, tcp, udp};
use grantway_stack::smoltcp::time::Instant;
use grantway_stack::smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use std::vec;

const OWN: IpAddress = IpAddress::v4(10, 0, 0, 2);
const MEMORY: usize = 4 << 20;
/// The clock goes on by this much in each step in which nothing moves.
const STEP: Duration = Duration::from_millis(1);

struct Host {
    device: Loopback,
    interface: Interface,
    sockets: SocketSet<'static>,
    now: Duration,
}

impl Host {
    fn new() -> Self {
        let mut device = Loopback::new(Medium::Ethernet);
        let mac = HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, 1]));
        let mut interface = Interface::new(Config::new(mac), &mut device, Instant::ZERO);
        interface.update_ip_addrs(|list| list.push(IpCidr::new(OWN, 24)).unwrap());
        let sockets = SocketSet::new(Vec::new());
        Self { device, interface, sockets, now: Duration::from_secs(1000) }
    }

    fn open(&mut self, wanted: Wanted) -> Iperf {
        let mut end = Iperf::open(wanted, &mut self.sockets, MEMORY, 7).unwrap();
        end.connected(self.now);
        end
    }

    /// Goes on until that holds of the ends' counts and lines, or until that much time has passed.
    fn run(
        &mut self,
        ends: &mut [&mut Iperf],
        within: Duration,
        done: impl Fn(&[&mut Iperf]) -> bool,
    ) -> bool {
        let until = self.now + within;
        while self.now < until {
            let at = Instant::from_micros(self.now.as_micros() as i64);
            self.interface.poll(at, &mut self.device, &mut self.sockets);
            let mut moved = false;
            for end in &mut *ends {
                moved |= end.turn(&mut self.sockets, self.interface.context(), self.now);
            }
            if done(ends) {
                return true;
            }
            if !moved {
                self.now += STEP;
            }
        }
        false
    }
}

fn client(bytes: u64, udp: Option<u64>) -> Wanted {
    Wanted::Client { server: IpEndpoint::new(OWN, 5001), bytes, udp }
}

fn all_ended(ends: &[&mut Iperf]) -> bool {
    ends.iter().all(|end| end.counts().tests > 0)
}

#[test]
fn each_number_of_bytes_arrives_by_tcp() {
    // Less than the description of the test, as much, more, and more than all buffers.
    for bytes in [1, 59, 60, 61, 100_000, 3 << 20] {
        let mut host = Host::new();
        let (mut server, mut sender) = (host.open(Wanted::Server), host.open(client(bytes, None)));
        assert!(host.run(&mut [&mut server, &mut sender], Duration::from_secs(60), all_ended));
        assert_eq!(server.counts(), Counts { tests: 1, received: bytes, sent: 0 });
        assert_eq!(sender.counts(), Counts { tests: 1, received: 0, sent: bytes });
        let (came, went) = (server.lines().concat(), sender.lines().concat());
        assert!(came.starts_with(&format!("iperf: {bytes} bytes from 10.0.0.2:")), "{came}");
        assert!(went.starts_with(&format!("iperf: {bytes} bytes to 10.0.0.2:5001 in ")), "{went}");
        assert!(server.lines().is_empty(), "lines are shown once");
    }
}

#[test]
fn datagrams_are_counted_and_the_server_reports() {
    let mut host = Host::new();
    // 51 datagrams, 4 ms apart.
    let wanted = client(50 * 1470 + 1, Some(1470 * 8 * 250));
    let (mut server, mut sender) = (host.open(Wanted::Server), host.open(wanted));
    let began = host.now;
    assert!(host.run(&mut [&mut server, &mut sender], Duration::from_secs(60), all_ended));
    let took = host.now - began;
    assert!(took >= Duration::from_millis(200), "{took:?}: sooner than by the rate");
    assert_eq!(server.counts(), Counts { tests: 1, received: 51 * 1470, sent: 0 });
    assert_eq!(sender.counts(), Counts { tests: 1, received: 0, sent: 51 * 1470 });
    for line in [server.lines().concat(), sender.lines().concat()] {
        assert!(line.ends_with(", lost 0 of 51 datagrams"), "{line}");
    }
}

#[test]
fn a_client_asks_until_a_server_is_there() {
    let mut host = Host::new();
    let mut sender = host.open(client(1000, None));
    assert!(!host.run(&mut [&mut sender], Duration::from_secs(5), all_ended));
    let lines = sender.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("10.0.0.2:5001 takes no connection"), "{lines:?}");
    let wait = sender.delay(host.now).expect("it asks again");
    assert!(wait <= Duration::from_secs(1), "{wait:?}");
    let mut server = host.open(Wanted::Server);
    assert!(host.run(&mut [&mut server, &mut sender], Duration::from_secs(5), all_ended));
    assert_eq!(server.counts().received, 1000);
}

#[test]
fn a_udp_test_without_a_report_ends() {
    let mut host = Host::new();
    let mut sender = host.open(client(1, Some(1 << 20)));
    assert!(!host.run(&mut [&mut sender], Duration::from_secs(29), all_ended));
    assert!(host.run(&mut [&mut sender], Duration::from_secs(3), all_ended));
    assert!(sender.lines()[0].ends_with(", without a report"));
    assert_eq!(sender.counts().sent, 2 * 1470, "the last one is counted once");
}

#[test]
fn a_server_serves_one_client_after_the_other_and_several_at_once() {
    let mut host = Host::new();
    let mut server = host.open(Wanted::Server);
    for seed in 0..3 {
        let mut open = |seed| {
            let wanted = client(200_000, None);
            let mut end = Iperf::open(wanted, &mut host.sockets, MEMORY, seed).unwrap();
            end.connected(host.now);
            end
        };
        let (mut one, mut other) = (open(10 + seed), open(100 + seed));
        let tests = 2 * (seed + 1);
        let done = |ends: &[&mut Iperf]| all_ended(ends) && ends[0].counts().tests == tests;
        let ends = &mut [&mut server, &mut one, &mut other];
        assert!(host.run(ends, Duration::from_secs(60), done), "round {seed}");
        assert_eq!(server.counts().received, tests * 200_000);
    }
    assert_eq!(server.lines().len(), 6);
}

#[test]
fn a_connection_that_breaks_ends_the_test() {
    let mut host = Host::new();
    let (mut server, mut sender) = (host.open(Wanted::Server), host.open(client(1 << 30, None)));
    let some = |ends: &[&mut Iperf]| ends[0].counts().received > 1 << 20;
    assert!(host.run(&mut [&mut server, &mut sender], Duration::from_secs(60), some));
    let aborted = host.sockets.iter_mut().filter_map(|(_, socket)| {
        let socket = tcp::Socket::downcast_mut(socket)?;
        (socket.local_endpoint()?.port == 5001).then(|| socket.abort())
    });
    assert_eq!(aborted.count(), 1, "connections of the server");
    let told = |ends: &[&mut Iperf]| ends[0].told.lines.len() + ends[1].told.lines.len() >= 2;
    assert!(host.run(&mut [&mut server, &mut sender], Duration::from_secs(60), told));
    let line = sender.lines().concat();
    assert!(line.contains("ended the connection after"), "{line}");
    assert!(line.contains(&format!("of {} bytes", 1u64 << 30)), "{line}");
}

#[test]
fn peers_that_end_tests_all_the_time_fill_no_console() {
    let mut host = Host::new();
    let mut server = host.open(Wanted::Server);
    let took = Duration::from_secs(20);
    // One datagram is a test that has ended. Another port is another sender.
    let buffer = |count| {
        let metas = vec![udp::PacketMetadata::EMPTY; count];
        udp::PacketBuffer::new(metas, vec![0; count * 2048])
    };
    let mut socket = udp::Socket::new(buffer(4), buffer(4));
    let last = |id| grantway_iperf2::Datagram { id, sent: Duration::ZERO }.bytes();
    socket.bind(9000).unwrap();
    let handle = host.sockets.add(socket);
    let (began, mut port, mut lines) = (host.now, 9000, Vec::new());
    while host.now < began + took {
        let socket = host.sockets.get_mut::<udp::Socket<'_>>(handle);
        socket.close();
        port = 9000 + (port + 1) % 1000;
        socket.bind(port).unwrap();
        for id in [1, -2] {
            socket.send_slice(&last(id), IpEndpoint::new(OWN, 5001)).unwrap();
        }
        host.run(&mut [&mut server], Duration::from_millis(10), |_| false);
        lines.extend(server.lines());
    }
    let tests = server.counts().tests;
    assert!(tests > 1000, "{tests}");
    let most = LINES as usize + (took.as_millis() / A_LINE.as_millis()) as usize + 1;
    assert!((LINES as usize..=most).contains(&lines.len()), "{} of {most} lines", lines.len());
    let left_out: u64 = lines
        .iter()
        .filter_map(|line| line.split_once('('))
        .map(|(_, rest)| {
            rest.split(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap()
        })
        .sum();
    assert_eq!(lines.len() as u64 + left_out + server.told.left_out, tests, "each is counted");
}

#[test]
fn silent_senders_keep_no_other_sender_out() {
    let mut host = Host::new();
    let mut server = host.open(Wanted::Server);
    for port in 0..4 {
        let mut socket = tcp::Socket::new(
            tcp::SocketBuffer::new(vec![0; 4096]),
            tcp::SocketBuffer::new(vec![0; 4096]),
        );
        socket.connect(host.interface.context(), (OWN, 5001), 40_000 + port).unwrap();
        host.sockets.add(socket);
    }
    host.run(&mut [&mut server], Duration::from_millis(100), |_| false);
    let mut sender = host.open(client(1000, None));
    let done = |ends: &[&mut Iperf]| ends[1].counts().tests > 0;
    assert!(host.run(&mut [&mut server, &mut sender], Duration::from_secs(10), done));
    assert!(server.lines()[0].starts_with("iperf: 0 bytes from 10.0.0.2:40000 in "));
}

#[test]
fn a_client_by_udp_shows_that_its_server_is_not_found() {
    // One on its own network that is silent, and one beyond a gateway that it does not have.
    for (address, addresses) in [("10.0.0.9", true), ("10.0.1.9", true), ("10.0.0.9", false)] {
        let mut host = Host::new();
        if !addresses {
            host.interface.update_ip_addrs(|list| list.clear());
        }
        let server = IpEndpoint::new(address.parse().unwrap(), 5001);
        let mut sender = host.open(Wanted::Client { server, bytes: 1 << 20, udp: Some(1 << 20) });
        host.run(&mut [&mut sender], Duration::from_secs(4), all_ended);
        assert!(sender.lines().is_empty());
        let due = sender.delay(host.now).expect("a sleeping guest wakes for the line");
        assert!(due <= Duration::from_secs(2), "{due:?}");
        host.run(&mut [&mut sender], Duration::from_secs(60), all_ended);
        let lines = sender.lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(&format!("{address}:5001 is not found")), "{lines:?}");
        assert_eq!(sender.counts().tests, 0);
        // It goes on once the server is there.
        host.interface.update_ip_addrs(|list| {
            list.clear();
            list.push(IpCidr::new(server.addr, 24)).unwrap();
        });
        let mut end = host.open(Wanted::Server);
        assert!(host.run(&mut [&mut end, &mut sender], Duration::from_secs(60), all_ended));
        let line = sender.lines().concat();
        assert!(line.ends_with("lost 0 of 714 datagrams"), "{line}");
    }
}

//! Tests of an address by DHCP: a server of the test's own, by a clock of the test's own.

use grantway_frontend::{BackendFeatures, Received, SendError, VifError};
use grantway_netif::Offload;
use grantway_ports::finish::finish_checksum;
use grantway_stack::smoltcp::iface::PollIngressSingleResult as Ingress;
use grantway_stack::smoltcp::iface::{Config, Interface, PollResult, SocketSet};
use grantway_stack::smoltcp::phy::ChecksumCapabilities;
use grantway_stack::smoltcp::time::{Duration, Instant};
use grantway_stack::smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, DhcpMessageType, DhcpPacket, DhcpRepr, EthernetAddress,
    EthernetFrame, EthernetProtocol, EthernetRepr, HardwareAddress, IpAddress, IpCidr, IpProtocol,
    Ipv4Address, Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr,
};
use grantway_stack::{Device, Dhcp, Lease, Link};
use std::collections::VecDeque;

const STATION: EthernetAddress = EthernetAddress([0, 0x16, 0x3e, 0, 0, 1]);
const SERVER: (EthernetAddress, Ipv4Address) =
    (EthernetAddress([0, 0x16, 0x3e, 0, 0, 9]), Ipv4Address::new(10, 0, 0, 9));
const ADDRESS: Ipv4Address = Ipv4Address::new(10, 0, 0, 77);
const GATEWAY: Ipv4Address = Ipv4Address::new(10, 0, 0, 254);
/// Seconds of a lease.
const LEASE: u32 = 600;

/// A server, and the link to it.
struct Server {
    /// The address that it gives, and none if it is silent.
    gives: Option<Ipv4Address>,
    gateway: Option<Ipv4Address>,
    /// True if it refuses requests.
    refuses: bool,
    /// Seconds of its leases, and of the times for renewing and rebinding if it names them.
    lease: u32,
    times: Option<[u32; 2]>,
    answers: VecDeque<Vec<u8>>,
    /// Messages that came, and the address from which each came.
    heard: Vec<(DhcpMessageType, Ipv4Address)>,
}

impl Server {
    fn hear(&mut self, frame: &[u8]) {
        let ethernet = EthernetFrame::new_checked(frame).unwrap();
        if ethernet.ethertype() == EthernetProtocol::Arp {
            return self.resolve(ethernet.payload());
        }
        let ip = Ipv4Packet::new_checked(ethernet.payload()).unwrap();
        let udp = UdpPacket::new_checked(ip.payload()).unwrap();
        assert_eq!((udp.src_port(), udp.dst_port()), (68, 67));
        let packet = DhcpPacket::new_checked(udp.payload()).unwrap();
        let asked = DhcpRepr::parse(&packet).unwrap();
        self.heard.push((asked.message_type, ip.src_addr()));
        let Some(your_ip) = self.gives else { return };
        let message_type = match asked.message_type {
            DhcpMessageType::Discover => DhcpMessageType::Offer,
            DhcpMessageType::Request if self.refuses => DhcpMessageType::Nak,
            DhcpMessageType::Request => DhcpMessageType::Ack,
            other => panic!("{other:?} from a client"),
        };
        let answer = DhcpRepr {
            message_type,
            your_ip,
            server_ip: SERVER.1,
            server_identifier: Some(SERVER.1),
            subnet_mask: Some(Ipv4Address::new(255, 255, 255, 0)),
            router: self.gateway,
            lease_duration: Some(self.lease),
            renew_duration: self.times.map(|[renew, _]| renew),
            rebind_duration: self.times.map(|[_, rebind]| rebind),
            client_ip: Ipv4Address::UNSPECIFIED,
            requested_ip: None,
            client_identifier: None,
            parameter_request_list: None,
            max_size: None,
            ..asked
        };
        self.answers.push_back(framed(&answer));
    }

    /// Answers a question for the server's own address. A client that renews asks it directly.
    fn resolve(&mut self, question: &[u8]) {
        let asked = ArpRepr::parse(&ArpPacket::new_checked(question).unwrap()).unwrap();
        let ArpRepr::EthernetIpv4 { target_protocol_addr, source_protocol_addr, .. } = asked else {
            panic!("{asked:?} from a client");
        };
        if target_protocol_addr != SERVER.1 || self.gives.is_none() {
            return;
        }
        let answer = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Reply,
            source_hardware_addr: SERVER.0,
            source_protocol_addr: SERVER.1,
            target_hardware_addr: STATION,
            target_protocol_addr: source_protocol_addr,
        };
        let mut frame = vec![0; 14 + answer.buffer_len()];
        let ethernet = EthernetRepr {
            src_addr: SERVER.0,
            dst_addr: STATION,
            ethertype: EthernetProtocol::Arp,
        };
        ethernet.emit(&mut EthernetFrame::new_unchecked(&mut frame[..]));
        answer.emit(&mut ArpPacket::new_unchecked(&mut frame[14..]));
        self.answers.push_back(frame);
    }
}

/// Returns the frame in which a server answers.
fn framed(answer: &DhcpRepr<'_>) -> Vec<u8> {
    let (udp_len, checks) = (8 + answer.buffer_len(), ChecksumCapabilities::default());
    let mut frame = vec![0; 14 + 20 + udp_len];
    let ethernet =
        EthernetRepr { src_addr: SERVER.0, dst_addr: STATION, ethertype: EthernetProtocol::Ipv4 };
    ethernet.emit(&mut EthernetFrame::new_unchecked(&mut frame[..]));
    let ip = Ipv4Repr {
        src_addr: SERVER.1,
        dst_addr: Ipv4Address::BROADCAST,
        next_header: IpProtocol::Udp,
        payload_len: udp_len,
        hop_limit: 64,
    };
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut frame[14..]), &checks);
    let (from, to) = (IpAddress::from(SERVER.1), IpAddress::from(Ipv4Address::BROADCAST));
    let udp = UdpRepr { src_port: 67, dst_port: 68 };
    let mut packet = UdpPacket::new_unchecked(&mut frame[34..]);
    udp.emit(
        &mut packet,
        &from,
        &to,
        answer.buffer_len(),
        |payload| answer.emit(&mut DhcpPacket::new_unchecked(payload)).unwrap(),
        &checks,
    );
    frame
}

impl Link for Server {
    fn features(&self) -> BackendFeatures {
        BackendFeatures { queues: 1, ..BackendFeatures::default() }
    }

    fn send(&mut self, frame: &[u8], _: Offload) -> Result<(), SendError> {
        let mut again = frame.to_vec();
        if finish_checksum(&mut again).is_ok() {
            assert_eq!(again, frame, "a checksum is wrong");
        }
        self.hear(frame);
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
        let Some(frame) = self.answers.pop_front() else { return Ok(0) };
        arena[..frame.len()].copy_from_slice(&frame);
        took(0, Received { len: frame.len(), offload: Offload::default(), hash: None });
        Ok(1)
    }
}

/// A client, with an address of IPv6 that it has by itself.
struct Client {
    device: Device<Server>,
    interface: Interface,
    sockets: SocketSet<'static>,
    dhcp: Dhcp,
    now: Instant,
    /// Times at which the lease became another one.
    changes: Vec<i64>,
}

fn own() -> IpCidr {
    IpCidr::new(IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, 1), 64)
}

impl Client {
    fn new(gives: Option<Ipv4Address>) -> Self {
        let mut device = Device::new(1500);
        device.connect(Server {
            gives,
            gateway: Some(GATEWAY),
            refuses: false,
            lease: LEASE,
            times: None,
            answers: VecDeque::new(),
            heard: Vec::new(),
        });
        let config = Config::new(HardwareAddress::Ethernet(STATION));
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        interface.update_ip_addrs(|list| list.push(own()).unwrap());
        let mut sockets = SocketSet::new(Vec::new());
        let dhcp = Dhcp::new(&mut sockets);
        Self { device, interface, sockets, dhcp, now: Instant::ZERO, changes: Vec::new() }
    }

    fn server(&mut self) -> &mut Server {
        self.device.link_mut().unwrap()
    }

    /// Lets seconds pass, each in four turns.
    fn pass(&mut self, seconds: u32) {
        for _ in 0..seconds * 4 {
            self.device.begin();
            let Self { device, interface, sockets, .. } = self;
            while interface.poll_ingress_single(self.now, device, sockets) != Ingress::None {}
            while interface.poll_egress(self.now, device, sockets) != PollResult::None {}
            if self.dhcp.poll(interface, sockets) {
                self.changes.push(self.now.secs());
            }
            self.now += Duration::from_millis(250);
        }
    }

    fn check(&self, lease: Option<Lease>) {
        assert_eq!(self.dhcp.lease().copied(), lease);
        let expected: Vec<IpCidr> =
            lease.iter().map(|lease| lease.address.into()).chain([own()]).collect();
        assert_eq!(self.interface.ip_addrs(), expected);
        let route = self.interface.routes().get_default_ipv4_route();
        let gateway = lease.and_then(|lease| lease.gateway);
        assert_eq!(route.map(|route| route.via_router), gateway.map(IpAddress::from));
    }
}

fn lease(address: Ipv4Address) -> Option<Lease> {
    let address = grantway_stack::smoltcp::wire::Ipv4Cidr::new(address, 24);
    Some(Lease { address, gateway: Some(GATEWAY) })
}

#[test]
fn a_lease_is_taken_and_renewed_by_its_own_address() {
    use DhcpMessageType::{Discover, Request};
    let mut client = Client::new(Some(ADDRESS));
    client.pass(2);
    client.check(lease(ADDRESS));
    let nobody = Ipv4Address::UNSPECIFIED;
    assert_eq!(client.server().heard, [(Discover, nobody), (Request, nobody)]);
    // Twice the time of a lease passes, and the server is asked at half of each.
    client.server().heard.clear();
    client.pass(2 * LEASE);
    client.check(lease(ADDRESS));
    assert!(client.changes.len() == 1, "{:?}", client.changes);
    let heard = &client.server().heard;
    assert!((3..=4).contains(&heard.len()), "{heard:?}");
    assert!(heard.iter().all(|&message| message == (Request, ADDRESS)), "{heard:?}");
}

#[test]
fn an_address_whose_lease_has_ended_is_taken_away() {
    let mut client = Client::new(Some(ADDRESS));
    client.pass(2);
    client.server().gives = None;
    client.pass(LEASE - 10);
    client.check(lease(ADDRESS));
    client.pass(20);
    client.check(None);
    // Another server has another address and no gateway.
    client.server().gives = Some(Ipv4Address::new(10, 0, 0, 78));
    client.server().gateway = None;
    client.pass(20);
    let next = lease(Ipv4Address::new(10, 0, 0, 78)).map(|next| Lease { gateway: None, ..next });
    client.check(next);
    assert_eq!(client.changes.len(), 3);
}

#[test]
fn a_refused_request_is_begun_anew() {
    let mut client = Client::new(Some(ADDRESS));
    client.server().refuses = true;
    client.pass(30);
    client.check(None);
    assert!(client.server().heard.len() > 4);
    client.server().refuses = false;
    client.pass(30);
    client.check(lease(ADDRESS));
}

#[test]
fn a_server_that_comes_late_is_found() {
    let mut client = Client::new(None);
    client.pass(100);
    client.check(None);
    let asked = client.server().heard.len();
    assert!((5..=20).contains(&asked), "{asked} messages in 100 s");
    client.server().gives = Some(ADDRESS);
    client.pass(20);
    client.check(lease(ADDRESS));
}

/// smoltcp's client would send as many messages as it had answers.
#[test]
fn a_server_that_has_the_client_ask_at_once_gets_few_messages() {
    for (lease, times, refuses) in
        [(0, None, false), (1, None, false), (LEASE, Some([0, 1]), false), (LEASE, None, true)]
    {
        let mut client = Client::new(Some(ADDRESS));
        let server = client.server();
        (server.lease, server.times, server.refuses) = (lease, times, refuses);
        client.pass(10 * 60);
        let heard = client.server().heard.len();
        // Eight at once, and one per five seconds.
        assert!(
            heard <= 8 + 10 * 60 / 5,
            "{heard} messages, lease {lease} s, {times:?}, {refuses}"
        );
        assert!(client.changes.len() <= heard + 1, "{:?}", client.changes);
        // A server that is right again is heard.
        let server = client.server();
        (server.lease, server.times, server.refuses) = (LEASE, None, false);
        client.pass(2 * LEASE);
        client.check(self::lease(ADDRESS));
        client.changes.clear();
        client.server().heard.clear();
        client.pass(LEASE);
        assert!(client.changes.is_empty() && client.server().heard.len() <= 3);
    }
}

/// A server gives the address that was configured, and another gateway. Then its lease ends.
#[test]
fn configured_addresses_come_back_when_a_lease_has_ended() {
    let configured: IpCidr = lease(ADDRESS).unwrap().address.into();
    let gateway = Ipv4Address::new(10, 0, 0, 254);
    for full in [false, true] {
        let mut client = Client::new(Some(ADDRESS));
        // With eight addresses there is no room for another one.
        let given = if full { Ipv4Address::new(10, 0, 0, 78) } else { ADDRESS };
        client.server().gives = Some(given);
        client.interface.update_ip_addrs(|list| {
            list.insert(0, configured).unwrap();
            while full && !list.is_full() {
                let number = list.len() as u16;
                list.push(IpCidr::new(IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 1, number), 64))
                    .unwrap();
            }
        });
        let mut before = client.interface.ip_addrs().to_vec();
        client.interface.routes_mut().add_default_ipv4_route(gateway).unwrap();
        client.pass(2);
        assert_eq!(client.dhcp.lease().copied(), lease(given));
        client.server().gives = None;
        client.pass(LEASE + 10);
        assert_eq!(client.dhcp.lease(), None);
        let mut after = client.interface.ip_addrs().to_vec();
        before.sort();
        after.sort();
        assert_eq!(after, before, "full: {full}");
        let route = client.interface.routes().get_default_ipv4_route();
        assert_eq!(route.map(|route| route.via_router), Some(gateway.into()));
    }
}

//! Tests which frames share a queue, and that any bytes do no harm.

use grantway_netif::flow::{flow_hash, queue_of};
use grantway_netif::headers::{Payload, payload};
use proptest::prelude::*;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// One flow, as frames are made of it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Flow {
    v6: bool,
    protocol: u8,
    addresses: [u32; 2],
    ports: [u16; 2],
    tags: usize,
}

const ONE: Flow = Flow {
    v6: false,
    protocol: TCP,
    addresses: [0x0a63_0101, 0x0a63_0102],
    ports: [40_000, 5201],
    tags: 0,
};

impl Flow {
    fn back(self) -> Self {
        let ([a, b], [p, q]) = (self.addresses, self.ports);
        Self { addresses: [b, a], ports: [q, p], ..self }
    }

    /// Ethernet and tags; the addresses are those of two stations.
    fn link(self, kind: u16) -> Vec<u8> {
        let mut frame = Vec::new();
        for address in [self.addresses[1], self.addresses[0]] {
            frame.extend([2, 0]);
            frame.extend(address.to_be_bytes());
        }
        for tag in 0..self.tags {
            let outer = if tag == 0 && self.tags == 2 { 0x88a8_u16 } else { 0x8100 };
            frame.extend(outer.to_be_bytes());
            frame.extend([0, 7]);
        }
        frame.extend(kind.to_be_bytes());
        frame
    }

    /// A frame with options or extensions before the ports.
    fn frame_with(self, fragment: u16, between: &[u8], next: u8, body: &[u8]) -> Vec<u8> {
        let mut frame = self.link(if self.v6 { 0x86dd } else { 0x0800 });
        if self.v6 {
            frame.extend([0x60, 0, 0, 0, 1, 0, next, 64]);
            for address in self.addresses {
                frame.extend([0xfd, 0x99, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
                frame.extend(address.to_be_bytes());
            }
        } else {
            let words = 5 + between.len() as u8 / 4;
            frame.extend([0x40 | words, 0, 1, 0, 9, 9]);
            frame.extend(fragment.to_be_bytes());
            frame.extend([64, next, 0, 0]);
            frame.extend(self.addresses.iter().flat_map(|address| address.to_be_bytes()));
        }
        frame.extend(between);
        frame.extend(self.ports.iter().flat_map(|port| port.to_be_bytes()));
        frame.extend(body);
        frame
    }

    fn frame(self) -> Vec<u8> {
        self.frame_with(0, &[], self.protocol, b"what it carries")
    }

    fn hash(self) -> u32 {
        flow_hash(&self.frame())
    }
}

fn kinds() -> impl Iterator<Item = Flow> {
    let kinds = [(false, TCP), (false, UDP), (true, TCP), (true, UDP)];
    kinds
        .into_iter()
        .flat_map(|(v6, protocol)| (0..=2).map(move |tags| Flow { v6, protocol, tags, ..ONE }))
}

#[test]
fn both_directions_are_one_flow() {
    for flow in kinds() {
        assert_eq!(flow.hash(), flow.back().hash(), "{flow:?}");
    }
    let arp = ONE.link(0x0806);
    assert_eq!(flow_hash(&arp), flow_hash(&ONE.back().link(0x0806)));
}

#[test]
fn what_tells_flows_apart() {
    for flow in kinds() {
        let [a, b] = flow.addresses;
        let [p, q] = flow.ports;
        let others = [
            Flow { addresses: [a, b + 1], ..flow },
            Flow { addresses: [a + 1, b], ..flow },
            Flow { ports: [p + 1, q], ..flow },
            Flow { ports: [p, q + 1], ..flow },
            Flow { protocol: if flow.protocol == TCP { UDP } else { TCP }, ..flow },
            Flow { v6: !flow.v6, ..flow },
        ];
        for other in others {
            assert_ne!(flow.hash(), other.hash(), "{flow:?} {other:?}");
        }
        // Not these: one flow may carry tags in one place and none in another.
        assert_eq!(flow.hash(), Flow { tags: 2 - flow.tags, ..flow }.hash(), "{flow:?}");
    }
}

#[test]
fn all_that_an_end_sends_keeps_to_the_flow() {
    for flow in kinds() {
        let hash = flow.hash();
        for body in [&b""[..], b"x", &[0xff; 1500]] {
            let frame = flow.frame_with(0, &[], flow.protocol, body);
            assert_eq!(flow_hash(&frame), hash, "{flow:?}");
        }
        let frame = if flow.v6 {
            // Hop by hop, then authentication, then destination options.
            let mut between = vec![51, 0, 0, 0, 0, 0, 0, 0];
            between.extend([60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            between.extend([flow.protocol, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            flow.frame_with(0, &between, 0, b"")
        } else {
            flow.frame_with(0, &[1; 12], flow.protocol, b"")
        };
        assert_eq!(flow_hash(&frame), hash, "{flow:?}: options");
    }
}

#[test]
fn fragments_go_by_their_addresses() {
    for flow in kinds().filter(|flow| !flow.v6) {
        let other_ports = Flow { ports: [1, 2], ..flow };
        let first = flow_hash(&flow.frame_with(0x2000, &[], flow.protocol, b""));
        let later = flow_hash(&other_ports.frame_with(0x00b9, &[], flow.protocol, b""));
        assert_eq!(first, later, "{flow:?}");
        // "Do not fragment" makes no fragment.
        let whole = flow_hash(&flow.frame_with(0x4000, &[], flow.protocol, b""));
        assert_eq!(whole, flow.hash(), "{flow:?}");
    }
    for flow in kinds().filter(|flow| flow.v6) {
        let other_ports = Flow { ports: [1, 2], ..flow };
        let header = |offset: u8| [flow.protocol, 0, 0, offset, 0, 0, 0, 9];
        let first = flow_hash(&flow.frame_with(0, &header(1), 44, b""));
        let later = flow_hash(&other_ports.frame_with(0, &header(8), 44, b""));
        assert_eq!(first, later, "{flow:?}");
        assert_ne!(first, flow.hash(), "{flow:?}");
    }
}

#[test]
fn other_protocols_go_by_their_addresses() {
    for flow in kinds() {
        for protocol in [1, 2, 47, 50, 58, 132, 255] {
            let of = |flow: Flow| flow_hash(&flow.frame_with(0, &[], protocol, b""));
            assert_eq!(of(flow), of(Flow { ports: [1, 2], ..flow }), "{flow:?} {protocol}");
            let [a, b] = flow.addresses;
            let other = Flow { addresses: [a, b + 1], ..flow };
            assert_ne!(of(flow), of(other), "{flow:?} {protocol}");
        }
    }
}

#[test]
fn what_is_not_ip_goes_by_its_stations() {
    let other = Flow { addresses: [1, 2], ..ONE };
    for kind in [0x0806, 0x88b5, 0x0000, 0x9100] {
        let of = |flow: Flow| flow_hash(&[flow.link(kind), vec![9; 40]].concat());
        assert_eq!(of(ONE), of(Flow { ports: [1, 2], ..ONE }));
        assert_ne!(of(ONE), of(other), "{kind:x}");
    }
    // More tags than are passed over, and headers that are none.
    let stations = flow_hash(&ONE.link(0x0806));
    assert_eq!(flow_hash(&Flow { tags: 3, ..ONE }.frame()), stations);
    let mut frame = ONE.frame();
    for version in [0x65, 0x44, 0x40] {
        frame[14] = version;
        assert_eq!(flow_hash(&frame), stations, "{version:x}");
    }
}

#[test]
fn cut_at_every_byte_it_goes_by_what_is_whole() {
    for flow in kinds() {
        let frame = flow.frame();
        let network = 14 + 4 * flow.tags;
        let ports = network + if flow.v6 { 40 } else { 20 };
        let stations = flow_hash(&flow.link(0x0806));
        let addresses = flow_hash(&frame[..ports]);
        for length in 0..=frame.len() {
            let hash = flow_hash(&frame[..length]);
            match length {
                0..12 => assert_eq!(hash, flow_hash(&[])),
                _ if length < ports => assert_eq!(hash, stations, "{flow:?} {length}"),
                _ if length < ports + 4 => assert_eq!(hash, addresses, "{flow:?} {length}"),
                _ => assert_eq!(hash, flow.hash(), "{flow:?} {length}"),
            }
        }
    }
}

#[test]
fn a_chain_of_extensions_without_an_end_is_given_up() {
    let flow = Flow { v6: true, ..ONE };
    let endless = [0u8; 8].repeat(1000);
    let addresses = flow_hash(&flow.frame_with(0, &[], 59, b""));
    assert_eq!(flow_hash(&flow.frame_with(0, &endless, 0, b"")), addresses);
}

#[test]
fn flows_spread_over_the_queues() {
    // As they come: ports one after another, or hosts of one network, the
    // other end always the same.
    for v6 in [false, true] {
        let ports = (0..4000).map(|n| Flow { v6, ports: [32_768 + n, 443], ..ONE });
        let hosts =
            (0..4000).map(|n| Flow { v6, addresses: [0x0a00_0000 + n, 0x0a63_0102], ..ONE });
        let (ports, hosts): (Vec<_>, Vec<_>) = (ports.collect(), hosts.collect());
        for flows in [ports, hosts] {
            for queues in [2, 3, 4, 8, 16] {
                let mut counts = vec![0_usize; queues];
                for flow in &flows {
                    counts[queue_of(flow.hash(), queues)] += 1;
                }
                let fair = flows.len() / queues;
                // Five standard deviations of 4000 flows over 16 queues.
                let near = |&count: &usize| count.abs_diff(fair) < 80.max(fair / 8);
                assert!(counts.iter().all(near), "{queues} queues: {counts:?}");
            }
        }
    }
}

#[test]
fn a_queue_is_one_of_those_that_there_are() {
    for queues in [1, 2, 3, 4, 7, 16, 65_535] {
        assert_eq!(queue_of(0, queues), 0);
        assert_eq!(queue_of(u32::MAX, queues), queues - 1);
    }
    assert_eq!(queue_of(u32::MAX, 0), 0);
}

#[test]
fn payloads_behind_their_tags() {
    for tags in 0..=2 {
        let flow = Flow { tags, ..ONE };
        let at = 14 + 4 * tags;
        assert_eq!(payload(&flow.frame()), Payload::Ipv4(at));
        assert_eq!(payload(&Flow { v6: true, ..flow }.frame()), Payload::Ipv6(at));
        assert_eq!(payload(&flow.link(0x0806)), Payload::Other);
        for length in 0..at {
            assert_eq!(payload(&flow.frame()[..length]), Payload::Truncated, "{tags} {length}");
        }
    }
    assert_eq!(payload(&Flow { tags: 3, ..ONE }.frame()), Payload::Other);
}

proptest! {
    #[test]
    fn any_bytes_do_no_harm(
        mut frame in proptest::collection::vec(any::<u8>(), 0..200),
        kind in prop_oneof![Just(0x0800_u16), Just(0x86dd), Just(0x8100), Just(0x88a8), any::<u16>()],
        version in prop_oneof![Just(0x45_u8), Just(0x4f), Just(0x60), any::<u8>()],
    ) {
        if frame.len() > 14 {
            frame[12..14].copy_from_slice(&kind.to_be_bytes());
            frame[14] = version;
        }
        let hash = flow_hash(&frame);
        prop_assert_eq!(hash, flow_hash(&frame));
        prop_assert!(queue_of(hash, 5) < 5);
    }

    #[test]
    fn only_what_names_the_flow_counts(
        addresses: [u32; 2],
        ports: [u16; 2],
        v6: bool,
        body in proptest::collection::vec(any::<u8>(), 0..100),
        noise: [u8; 4],
    ) {
        let flow = Flow { v6, addresses, ports, ..ONE };
        let mut frame = flow.frame_with(0, &[], TCP, &body);
        // Service, identification, time to live, checksum; or label and hops.
        let places = if v6 { [16, 17, 20, 21] } else { [15, 18, 22, 24] };
        for (place, byte) in places.into_iter().zip(noise) {
            if !v6 || place != 20 {
                frame[place] = byte;
            }
        }
        prop_assert_eq!(flow_hash(&frame), flow.hash());
        prop_assert_eq!(flow.hash(), flow.back().hash());
    }
}

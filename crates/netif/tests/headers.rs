//! Reading headers: what is there, what is not, and what a guest may invent.

use etherparse::{IpNumber, Ipv4Options, PacketBuilder, SlicedPacket, TransportSlice, VlanId};
use grantway_netif::headers::protocol::{AUTHENTICATION, DESTINATION, FRAGMENT};
use grantway_netif::headers::protocol::{HOP_BY_HOP, ROUTING, TCP, UDP};
use grantway_netif::headers::{
    Family, Headers, Ipv4, Ipv6, Link, MAX_EXTENSIONS, Part, Protocol, Tcp, Udp, Why, ethertype,
    ports, read,
};
use proptest::prelude::*;

/// Reads a frame that is all there.
fn locate(frame: &[u8]) -> Result<Headers, Why> {
    read(frame, frame.len())
}

const PAYLOAD: &[u8] = b"sixteen and odd bytes";

#[derive(Debug, Clone, Copy)]
struct Shape {
    tags: usize,
    v6: bool,
    tcp: bool,
}

fn shapes() -> impl Iterator<Item = Shape> {
    (0..12).map(|n| Shape { tags: n % 3, v6: n / 3 % 2 == 1, tcp: n / 6 == 1 })
}

/// A whole frame with a right checksum, and where its transport header starts.
fn build(shape: Shape, payload: &[u8]) -> (Vec<u8>, usize) {
    let eth = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let id = VlanId::try_new(7).unwrap();
    let mut out = Vec::new();
    macro_rules! rest {
        ($step:expr) => {{
            let ip = if shape.v6 {
                $step.ipv6([1; 16], [2; 16], 64)
            } else {
                $step.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            };
            if shape.tcp {
                let tcp = ip.tcp(1000, 2000, 77, 900).cwr();
                tcp.write(&mut out, payload).unwrap();
            } else {
                ip.udp(1000, 2000).write(&mut out, payload).unwrap();
            }
        }};
    }
    match shape.tags {
        0 => rest!(eth),
        1 => rest!(eth.single_vlan(id)),
        _ => rest!(eth.double_vlan(id, id)),
    }
    let start = 14 + 4 * shape.tags + if shape.v6 { 40 } else { 20 };
    (out, start)
}

#[test]
fn finds_tcp_and_udp_behind_tags_of_both_families() {
    for shape in shapes() {
        let (frame, start) = build(shape, PAYLOAD);
        let found = locate(&frame).unwrap();
        assert_eq!(found.start, start, "{shape:?}");
        assert_eq!(found.end, frame.len());
        assert_eq!(found.family == Family::V6, shape.v6);
        assert_eq!(found.protocol == Protocol::Tcp, shape.tcp);
        assert_eq!(found.header_end, start + if shape.tcp { 20 } else { 8 });
        assert_eq!(found.cwr, shape.tcp);
        assert_eq!(found.vlan, if shape.tags == 0 { 0 } else { 7 });
    }
}

#[test]
fn padding_is_not_part_of_the_packet() {
    for shape in shapes() {
        let (mut frame, _) = build(shape, b"x");
        let end = frame.len();
        frame.extend_from_slice(&[0xee; 9]);
        assert_eq!(locate(&frame).unwrap().end, end, "{shape:?}");
    }
}

#[test]
fn a_length_of_zero_means_the_frames_end() {
    for shape in shapes() {
        let (mut frame, _) = build(shape, PAYLOAD);
        let at = 14 + 4 * shape.tags + if shape.v6 { 4 } else { 2 };
        frame[at..at + 2].fill(0);
        assert_eq!(locate(&frame).unwrap().end, frame.len(), "{shape:?}");
    }
}

#[test]
fn truncated_at_every_byte_is_an_error() {
    for shape in shapes() {
        let (frame, _) = build(shape, PAYLOAD);
        for length in 0..frame.len() {
            let reason = locate(&frame[..length]).unwrap_err();
            let expected = if length < 14 { Why::TooShort } else { Why::Truncated };
            assert_eq!(reason, expected, "{shape:?} {length}");
        }
    }
}

#[test]
fn each_reason_has_its_own_variant() {
    let v4 = |tcp| {
        let shape = Shape { tags: 0, v6: false, tcp };
        build(shape, PAYLOAD).0
    };
    let with = |tcp, at: usize, value: u8| {
        let mut frame = v4(tcp);
        frame[at] = value;
        locate(&frame).unwrap_err()
    };
    assert_eq!(with(true, 13, 6), Why::NotIp);
    assert_eq!(with(true, 14, 0x65), Why::Version);
    assert_eq!(with(true, 14, 0x44), Why::HeaderLength);
    assert_eq!(with(true, 20, 0x20), Why::Fragment);
    assert_eq!(with(true, 21, 1), Why::Fragment);
    assert_eq!(with(true, 23, 1), Why::OtherTransport);
    assert_eq!(with(true, 14 + 20 + 12, 0x40), Why::HeaderLength);
    assert_eq!(with(true, 14 + 20 + 12, 0xf0), Why::Truncated);
    assert_eq!(with(true, 16, 0xff), Why::Truncated);
    let mut frame = v4(true);
    frame[16..18].copy_from_slice(&[0, 19]);
    assert_eq!(locate(&frame), Err(Why::TotalLength));
    let mut frame = v4(false);
    // "Do not fragment" is no fragment.
    frame[20] = 0x40;
    assert!(locate(&frame).is_ok());
}

#[test]
fn a_third_tag_is_not_looked_behind() {
    let (mut frame, _) = build(Shape { tags: 2, v6: false, tcp: true }, PAYLOAD);
    frame.splice(12..12, [0x81, 0, 0, 1]);
    assert_eq!(locate(&frame), Err(Why::NotIp));
}

/// An IPv6 UDP frame behind the given extension headers, each (number, bytes).
fn with_extensions(extensions: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let (plain, start) = build(Shape { tags: 0, v6: true, tcp: false }, PAYLOAD);
    let mut frame = plain[..start].to_vec();
    frame[20] = extensions.first().map_or(UDP, |e| e.0);
    for (n, (_, bytes)) in extensions.iter().enumerate() {
        let at = frame.len();
        frame.extend_from_slice(bytes);
        frame[at] = extensions.get(n + 1).map_or(UDP, |e| e.0);
    }
    frame.extend_from_slice(&plain[start..]);
    let payload = (frame.len() - start) as u16;
    frame[18..20].copy_from_slice(&payload.to_be_bytes());
    frame
}

#[test]
fn walks_extension_headers_within_a_bound() {
    let plain = |number| (number, vec![0; 8]);
    let long = (DESTINATION, [vec![0, 2], vec![0; 22]].concat());
    let authentication = (AUTHENTICATION, [vec![0, 4], vec![0; 22]].concat());
    let chain = [plain(HOP_BY_HOP), plain(ROUTING), long, authentication, plain(FRAGMENT)];
    for n in 0..=chain.len() {
        let frame = with_extensions(&chain[..n]);
        let bytes: usize = chain[..n].iter().map(|e| e.1.len()).sum();
        assert_eq!(locate(&frame).unwrap().start, 54 + bytes, "{n}");
        for cut in 0..frame.len() {
            assert!(locate(&frame[..cut]).is_err());
        }
    }
    let eight = vec![plain(DESTINATION); MAX_EXTENSIONS];
    assert!(locate(&with_extensions(&eight)).is_ok());
    let nine = vec![plain(DESTINATION); MAX_EXTENSIONS + 1];
    assert_eq!(locate(&with_extensions(&nine)), Err(Why::Extensions));
    for fragment in [[0, 0, 0, 1], [0, 0, 0, 8], [0, 0, 1, 0]] {
        let bytes = [fragment.to_vec(), vec![0; 4]].concat();
        let frame = with_extensions(&[(FRAGMENT, bytes)]);
        assert_eq!(locate(&frame), Err(Why::Fragment));
    }
}

#[test]
fn a_destination_that_may_not_be_the_last_is_marked() {
    let routing = |left| (ROUTING, vec![0, 0, 0, left, 0, 0, 0, 0]);
    assert!(!locate(&with_extensions(&[])).unwrap().routed);
    assert!(!locate(&with_extensions(&[routing(0)])).unwrap().routed);
    assert!(locate(&with_extensions(&[routing(1)])).unwrap().routed);
    let (mut frame, start) = build(Shape { tags: 0, v6: false, tcp: true }, PAYLOAD);
    assert!(!locate(&frame).unwrap().routed);
    frame.splice(start..start, [1; 4]);
    frame[14] += 1;
    frame[16..18].fill(0);
    assert!(locate(&frame).unwrap().routed);
}

#[test]
fn an_extension_that_runs_past_the_packet_is_truncated() {
    let mut frame = with_extensions(&[(DESTINATION, vec![0; 8])]);
    frame[54 + 1] = 255;
    assert_eq!(locate(&frame), Err(Why::Truncated));
}

#[test]
fn a_ninth_extension_header_is_refused_before_it_is_read() {
    let mut chain = vec![(DESTINATION, vec![0; 8]); MAX_EXTENSIONS];
    chain.push((FRAGMENT, vec![0, 0, 0, 1, 0, 0, 0, 0]));
    let frame = with_extensions(&chain);
    assert_eq!(locate(&frame), Err(Why::Extensions));
    assert_eq!(read(&frame[..54 + 8 * MAX_EXTENSIONS], frame.len()), Err(Why::Extensions));
}

#[test]
fn a_head_is_judged_by_the_length_of_its_frame() {
    for shape in shapes() {
        let (frame, start) = build(shape, PAYLOAD);
        let whole = locate(&frame).unwrap();
        let header_end = start + if shape.tcp { 20 } else { 8 };
        for cut in 0..frame.len() {
            let expected = if cut < header_end { Err(Why::Truncated) } else { Ok(whole) };
            assert_eq!(read(&frame[..cut], frame.len()), expected, "{shape:?} {cut}");
        }
    }
}

#[test]
fn the_layers_say_what_the_wire_holds() {
    let (frame, _) = build(Shape { tags: 1, v6: false, tcp: true }, PAYLOAD);
    let link = Link::read(&frame).unwrap();
    assert_eq!(link, Link { ethertype: ethertype::IPV4, vlan: 7, at: 18 });
    let mut frame = frame;
    frame[22..24].copy_from_slice(&[0xab, 0xcd]);
    frame[24..26].copy_from_slice(&[0x20, 0x03]);
    let ip = Ipv4::read(&frame, 18).unwrap();
    assert_eq!((ip.header_len(), ip.total_len()), (20, frame.len() - 18));
    assert_eq!((ip.id(), ip.protocol()), (0xabcd, TCP));
    assert_eq!(ip.part(), Part { at: 24, more: true });
    assert_eq!(*ip.addresses(), [10, 0, 0, 1, 10, 0, 0, 2]);
    let tcp = Tcp::read(&frame, 38).unwrap();
    assert_eq!((tcp.header_len(), tcp.flags()), (20, 0x80));
    assert_eq!(tcp.ports(), [3, 0xe8, 7, 0xd0]);
    assert_eq!(ports(&frame, TCP, 38), Some(tcp.ports()));
    assert_eq!(ports(&frame, 1, 38), None);

    let fragment = vec![0, 0, 1, 1, 9, 8, 7, 6];
    let frame = with_extensions(&[(FRAGMENT, fragment)]);
    let ip = Ipv6::read(&frame, 14).unwrap();
    assert_eq!(ip.payload_len(), frame.len() - 54);
    assert_eq!(*ip.addresses(), [[1; 16], [2; 16]].concat()[..]);
    let mut chain = ip.extensions(14);
    let found = chain.step(&frame).unwrap().unwrap();
    assert_eq!((found.kind, found.at, found.len), (FRAGMENT, 54, 8));
    assert_eq!(found.part(&frame), Ok(Part { at: 256, more: true }));
    assert_eq!(found.fragment_id(&frame), Ok(0x0908_0706));
    assert_eq!((chain.next_header(), chain.at()), (UDP, 62));
    assert_eq!(chain.step(&frame), Ok(None));
    let udp = Udp::read(&frame, 62).unwrap();
    assert_eq!((udp.ports(), udp.datagram_len()), ([3, 0xe8, 7, 0xd0], 8 + PAYLOAD.len()));
}

/// Returns etherparse's view of a frame: IP version, protocol, start of the transport header and
/// start of its payload. `None` if etherparse refuses the frame, or finds neither TCP nor UDP.
fn etherparse(frame: &[u8]) -> Option<(Family, Protocol, usize, usize)> {
    let sliced = SlicedPacket::from_ethernet(frame).ok()?;
    let family = match sliced.net? {
        etherparse::NetSlice::Ipv4(_) => Family::V4,
        etherparse::NetSlice::Ipv6(_) => Family::V6,
        etherparse::NetSlice::Arp(_) => return None,
    };
    let offset = |part: &[u8]| part.as_ptr() as usize - frame.as_ptr() as usize;
    match sliced.transport? {
        TransportSlice::Tcp(tcp) => {
            let start = offset(tcp.slice());
            Some((family, Protocol::Tcp, start, start + tcp.header_slice().len()))
        }
        TransportSlice::Udp(udp) => {
            let start = offset(udp.slice());
            Some((family, Protocol::Udp, start, start + 8))
        }
        _ => None,
    }
}

fn ours(found: Headers) -> (Family, Protocol, usize, usize) {
    (found.family, found.protocol, found.start, found.header_end)
}

/// Extension headers in the order of RFC 8200, 4.1, some left out; number and bytes.
fn chains() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    let long = |unit: usize, number: u8| {
        (any::<bool>(), 0u8..4).prop_map(move |(there, units)| {
            let mut bytes = vec![0; 8 + unit * usize::from(units)];
            bytes[1] = units;
            there.then_some((number, bytes))
        })
    };
    // An authentication header counts in units of 8 bytes within IPv6 (RFC 4302, 2.2).
    let authentication = (any::<bool>(), 0u8..3).prop_map(|(there, units)| {
        let mut bytes = vec![0; 16 + 8 * usize::from(units)];
        bytes[1] = 2 + 2 * units;
        there.then_some((AUTHENTICATION, bytes))
    });
    let atomic = any::<bool>().prop_map(|there| there.then(|| (FRAGMENT, vec![0; 8])));
    let all = (
        long(8, HOP_BY_HOP),
        long(8, DESTINATION),
        long(8, ROUTING),
        atomic,
        authentication,
        long(8, DESTINATION),
    );
    all.prop_map(|(a, b, c, d, e, f)| [a, b, c, d, e, f].into_iter().flatten().collect())
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = locate(&bytes);
    }

    /// Whole frames with a few bytes changed get further than noise does.
    #[test]
    fn damaged_frames_never_panic_and_stay_within_bounds(
        n in 0usize..12,
        changes in proptest::collection::vec((0usize..120, any::<u8>()), 0..6),
        cut in 0usize..140,
    ) {
        let (mut frame, _) = build(shapes().nth(n).unwrap(), PAYLOAD);
        let length = frame.len();
        for (at, value) in changes {
            frame[at % length] = value;
        }
        frame.truncate(cut);
        if let Ok(found) = locate(&frame) {
            prop_assert!(found.ip < found.start && found.start < found.header_end);
            prop_assert!(found.header_end <= found.end && found.end <= frame.len());
            prop_assert!(found.checksum_at() + 2 <= found.end);
        }
    }

    /// IPv4 with options and TCP with options, as etherparse builds and reads them.
    #[test]
    fn ipv4_is_read_as_etherparse_reads_it(
        ip_words in 0usize..=10,
        tcp_words in 0usize..=10,
        tcp: bool,
        padding in 0usize..30,
    ) {
        let options = vec![1; 4 * ip_words];
        let mut header = etherparse::Ipv4Header::new(
            0,
            64,
            if tcp { IpNumber::TCP } else { IpNumber::UDP },
            [10, 0, 0, 1],
            [10, 0, 0, 2],
        ).unwrap();
        header.options = Ipv4Options::try_from(&options[..]).unwrap();
        let ip = etherparse::IpHeaders::Ipv4(header, Default::default());
        let eth = PacketBuilder::ethernet2([2; 6], [4; 6]).ip(ip);
        let mut frame = Vec::new();
        if tcp {
            let nops = vec![1; 4 * tcp_words];
            eth.tcp(1, 2, 3, 4).options_raw(&nops).unwrap().write(&mut frame, PAYLOAD).unwrap();
        } else {
            eth.udp(1, 2).write(&mut frame, PAYLOAD).unwrap();
        }
        let end = frame.len();
        frame.extend(vec![0xee; padding]);
        let found = locate(&frame).unwrap();
        prop_assert_eq!(Some(ours(found)), etherparse(&frame));
        prop_assert_eq!(found.end, end);
        prop_assert_eq!(found.routed, ip_words > 0);
        let start = 34 + 4 * ip_words;
        prop_assert_eq!(found.start, start);
    }

    /// IPv6 behind any valid chain of extension headers.
    #[test]
    fn extension_headers_are_read_as_etherparse_reads_them(chain in chains()) {
        let frame = with_extensions(&chain);
        prop_assert_eq!(locate(&frame).ok().map(ours), etherparse(&frame));
        prop_assert!(locate(&frame).is_ok());
    }

    /// A damaged frame may be refused by one reader alone. If both read it, they agree.
    #[test]
    fn damaged_frames_are_read_as_etherparse_reads_them(
        n in 0usize..12,
        chain in chains(),
        changes in proptest::collection::vec((12usize..110, any::<u8>()), 0..4),
    ) {
        let mut frame = match n {
            0..6 => with_extensions(&chain),
            _ => build(shapes().nth(n).unwrap(), PAYLOAD).0,
        };
        let length = frame.len();
        for (at, value) in changes {
            frame[at % length] = value;
        }
        if let (Ok(found), Some(theirs)) = (locate(&frame), etherparse(&frame)) {
            prop_assert_eq!(ours(found), theirs);
        }
    }
}

//! Frames that no honest sender makes: none panics, and each is dropped under a
//! counter of its own.

mod common;

use common::{Bench, Kind, Packet, ipv4, mac, to_be_cut, v4};
use etherparse::checksum::Sum16BitWords;
use grantway_netif::{Checksum, Gso, GsoKind, Offload};
use grantway_vector::nodes::Checks;
use grantway_vector::nodes::firewall::{Action, Rule};
use grantway_vector::rules::{FirewallRules, Rules};
use grantway_vector::{PortId, Reason};
use std::sync::Arc;

fn bench() -> Bench {
    Bench::new(Arc::default(), 2, Checks::Leave)
}

fn plain(kind: Kind, is_v6: bool) -> Packet {
    Packet { from: 0, stations: [1, 2], vlan: None, v6: is_v6, hosts: [1, 2], kind, payload: 20 }
}

const TCP: Kind = Kind::Tcp { ports: [1000, 80], flags: 0x10 };
const UDP: Kind = Kind::Udp { ports: [1000, 53] };

/// Returns the reason why a frame is dropped, or none if it goes on.
fn verdict(bench: &mut Bench, bytes: &[u8], offload: Offload) -> Option<Reason> {
    let before = bench.graph.drops().clone();
    let given = bench.run(&[(0, bytes.to_vec(), offload)], 1, 0);
    let after = bench.graph.drops();
    let mut reasons =
        Reason::ALL.iter().filter(|&&reason| after.of(reason) != before.of(reason)).copied();
    let reason = reasons.next();
    assert_eq!(reasons.next(), None, "one counter a frame");
    assert_eq!(given.is_empty(), reason.is_some(), "it goes on, or it is counted");
    reason
}

fn dropped(bytes: &[u8]) -> Option<Reason> {
    verdict(&mut bench(), bytes, Offload::default())
}

#[test]
fn packets_truncated_at_every_byte_are_dropped() {
    let echo = Kind::Echo { id: 5, answer: false };
    let mut seen = std::collections::BTreeSet::new();
    for kind in [TCP, UDP, echo, Kind::Arp, Kind::Other] {
        for (is_v6, vlan) in [(false, None), (true, None), (false, Some(5)), (true, Some(5))] {
            let whole = Packet { vlan, ..plain(kind, is_v6) }.bytes();
            assert_eq!(dropped(&whole), None);
            let mut bench = bench();
            for end in 0..whole.len() {
                let reason = verdict(&mut bench, &whole[..end], Offload::default());
                let may_end = kind == Kind::Other && end >= if vlan.is_some() { 18 } else { 14 };
                assert_eq!(reason.is_none(), may_end, "{kind:?} {end}");
                seen.extend(reason);
            }
        }
    }
    for reason in [
        Reason::EthernetTruncated,
        Reason::VlanTruncated,
        Reason::Ipv4Truncated,
        Reason::Ipv6Truncated,
        Reason::Arp,
    ] {
        assert!(seen.contains(&reason), "{reason}");
    }
}

/// Returns an IPv4 frame with these options, and with as much of a TCP packet as its header
/// says.
fn with_options(options: &[u8]) -> Vec<u8> {
    let inner = &plain(TCP, false).bytes()[34..];
    let mut frame = [mac(2).as_slice(), &mac(1), &[8, 0]].concat();
    frame.extend(ipv4(&[v4(1), v4(2)], 6, options, inner.len(), 0));
    frame.extend(inner);
    frame
}

#[test]
fn ipv4_headers_and_options_to_their_limits() {
    assert_eq!(dropped(&with_options(&[1; 40])), None, "forty times nothing");
    let timestamp = [&[68, 36, 5, 0][..], &[0; 32], &[0; 4]].concat();
    assert_eq!(dropped(&with_options(&timestamp)), None);
    for (options, reason) in [
        ([7, 0, 0, 0], Reason::Ipv4Option),
        ([7, 1, 0, 0], Reason::Ipv4Option),
        ([7, 5, 0, 0], Reason::Ipv4Option),
        ([1, 1, 1, 7], Reason::Ipv4Option),
        ([131, 3, 4, 0], Reason::Ipv4SourceRoute),
        ([1, 137, 3, 4], Reason::Ipv4SourceRoute),
    ] {
        assert_eq!(dropped(&with_options(&options)), Some(reason), "{options:?}");
    }
    assert_eq!(dropped(&with_options(&[0, 7, 99, 99])), None, "behind the end is nothing");
    let with = |at: usize, value: u8| {
        let mut frame = plain(TCP, false).bytes();
        frame[at] = value;
        dropped(&frame)
    };
    assert_eq!(with(14, 0x65), Some(Reason::Ipv4Version));
    assert_eq!(with(14, 0x44), Some(Reason::Ipv4HeaderLength));
    assert_eq!(with(16, 0xff), Some(Reason::Ipv4Truncated));
    assert_eq!(with(17, 19), Some(Reason::Ipv4TotalLength));
    assert_eq!(with(22, 63), Some(Reason::Ipv4Checksum));
    assert_eq!(with(6, 3), Some(Reason::EthernetSource));
    let mut multicast = with_options(&[]);
    multicast.truncate(14);
    multicast.extend(ipv4(&[[224, 0, 0, 1], v4(2)], 99, &[], 0, 0));
    assert_eq!(dropped(&multicast), Some(Reason::Ipv4Source));
    let mut tagged = plain(TCP, false).bytes();
    tagged.splice(12..12, [0x81, 0, 0, 1, 0x88, 0xa8, 0, 2]);
    assert_eq!(dropped(&tagged), None);
    tagged.splice(12..12, [0x81, 0, 0, 1]);
    assert_eq!(dropped(&tagged), Some(Reason::VlanDepth));
}

/// An IPv6 UDP frame behind the given extension headers, each (number, bytes).
fn with_extensions(extensions: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let whole = plain(UDP, true).bytes();
    let mut frame = whole[..54].to_vec();
    frame[20] = extensions.first().map_or(17, |e| e.0);
    for (n, (_, bytes)) in extensions.iter().enumerate() {
        let at = frame.len();
        frame.extend(bytes);
        frame[at] = extensions.get(n + 1).map_or(17, |e| e.0);
    }
    frame.extend(&whole[54..]);
    let payload = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&payload.to_be_bytes());
    frame
}

#[test]
fn ipv6_chains_to_their_limits() {
    let plain = |number| (number, vec![0; 8]);
    let long = |number| (number, [vec![0, 255], vec![0; 2046]].concat());
    let authentication = (51, [vec![0, 4], vec![0; 22]].concat());
    let all = [plain(0), plain(60), plain(43), plain(44), authentication.clone(), plain(60)];
    for n in 0..=all.len() {
        let frame = with_extensions(&all[..n]);
        assert_eq!(dropped(&frame), None, "{n}");
        for end in 14..frame.len() {
            assert_eq!(dropped(&frame[..end]), Some(Reason::Ipv6Truncated));
        }
    }
    assert_eq!(dropped(&with_extensions(&[long(0), long(60), long(43), long(60)])), None);
    for (chain, reason) in [
        (vec![plain(60); 3], Reason::Ipv6Order),
        (vec![plain(60), plain(0)], Reason::Ipv6Order),
        (vec![plain(43); 2], Reason::Ipv6Order),
        (vec![plain(44); 2], Reason::Ipv6Order),
        (vec![plain(0); 9], Reason::Ipv6Order),
        (vec![(43, vec![0, 0, 0, 1, 0, 0, 0, 0])], Reason::Ipv6Route),
        (vec![(0, vec![0, 0, 0xc2, 4, 0, 1, 0, 0])], Reason::Ipv6Jumbo),
        (vec![(0, vec![0, 0, 5, 9, 0, 0, 0, 0])], Reason::Ipv6Extension),
        (vec![(60, vec![0, 255, 0, 0, 0, 0, 0, 0])], Reason::Ipv6Extension),
    ] {
        assert_eq!(dropped(&with_extensions(&chain)), Some(reason), "{chain:?}");
    }
    let mut frame = with_extensions(&[]);
    frame[22] = 0xff;
    assert_eq!(dropped(&frame), Some(Reason::Ipv6Source));
    frame[14] = 0x40;
    assert_eq!(dropped(&frame), Some(Reason::Ipv6Version));
}

#[test]
fn invalid_transport_headers_are_dropped_for_their_reason() {
    let with = |kind, at: usize, value: u8| {
        let mut frame = plain(kind, false).bytes();
        frame[at] = value;
        dropped(&frame)
    };
    assert_eq!(with(TCP, 46, 0x40), Some(Reason::TcpHeaderLength));
    assert_eq!(with(TCP, 46, 0xf0), Some(Reason::TcpTruncated));
    for flags in [0, 3, 6, 7, 1, 0x29] {
        assert_eq!(with(TCP, 47, flags), Some(Reason::TcpFlags), "{flags:x}");
    }
    assert_eq!(with(UDP, 38, 0xff), Some(Reason::UdpLength));
    assert_eq!(with(UDP, 39, 7), Some(Reason::UdpLength));
    for (protocol, reason) in
        [(6, Reason::TcpTruncated), (17, Reason::UdpTruncated), (1, Reason::IcmpTruncated)]
    {
        let mut frame = [mac(2).as_slice(), &mac(1), &[8, 0]].concat();
        frame.extend(ipv4(&[v4(1), v4(2)], protocol, &[], 7, 0));
        frame.extend([0; 7]);
        assert_eq!(dropped(&frame), Some(reason));
    }
    for is_v6 in [false, true] {
        for (kind, reason) in [(TCP, Reason::TcpChecksum), (UDP, Reason::UdpChecksum)] {
            let mut frame = plain(kind, is_v6).bytes();
            let mut checked = Bench::new(Arc::default(), 2, Checks::Verify);
            assert_eq!(verdict(&mut checked, &frame, Offload::default()), None);
            *frame.last_mut().unwrap() ^= 1;
            assert_eq!(dropped(&frame), None, "the receiver's affair");
            let partial = Offload { checksum: Checksum::Partial, gso: None };
            assert_eq!(verdict(&mut checked, &frame, Offload::default()), Some(reason));
            assert_eq!(verdict(&mut checked, &frame, partial), None, "it is not finished yet");
        }
    }
}

#[test]
fn tcp_segmentation_of_other_protocols_is_dropped() {
    let gso = |kind| to_be_cut(Gso { kind, size: 8 });
    for (kind, is_v6, ok) in [
        (TCP, false, Some(GsoKind::Tcpv4)),
        (TCP, true, Some(GsoKind::Tcpv6)),
        (UDP, false, None),
        (UDP, true, None),
        (Kind::Arp, false, None),
        (Kind::Other, false, None),
        (Kind::Echo { id: 1, answer: true }, false, None),
    ] {
        for asked in [GsoKind::Tcpv4, GsoKind::Tcpv6] {
            let reason = verdict(&mut bench(), &plain(kind, is_v6).bytes(), gso(asked));
            assert_eq!(reason, (ok != Some(asked)).then_some(Reason::Gso), "{kind:?} {asked:?}");
        }
    }
}

/// Returns a fragment of an IPv4 UDP packet: `length` bytes from `at` on.
fn fragment(at: u16, length: usize, more: bool) -> Vec<u8> {
    let mut frame = [mac(2).as_slice(), &mac(1), &[8, 0]].concat();
    let place = (at / 8) | if more { 0x2000 } else { 0 };
    frame.extend(ipv4(&[v4(1), v4(2)], 17, &[], length, place));
    let udp = [0x03, 0xe8, 0, 53, 4, 0, 0, 0];
    let first = udp.iter().copied().chain(std::iter::repeat(1));
    frame.extend(first.skip(at.into()).take(length));
    frame
}

/// Returns for each fragment of one packet the reason why it is dropped, or none.
fn fragments(pieces: &[(u16, usize, bool)]) -> Vec<Option<Reason>> {
    let mut bench = bench();
    let one = |&(at, length, more): &_| {
        verdict(&mut bench, &fragment(at, length, more), Offload::default())
    };
    pieces.iter().map(one).collect()
}

#[test]
fn fragments_that_overlap() {
    use Reason::{FragmentBeyond, FragmentLength, FragmentOverlap, FragmentPieces, FragmentTiny};
    let ok = None;
    let overlap = Some(FragmentOverlap);
    assert_eq!(fragments(&[(0, 64, true), (64, 64, true), (128, 9, false)]), [ok; 3]);
    assert_eq!(fragments(&[(128, 9, false), (0, 64, true), (64, 64, true)]), [ok; 3]);
    assert_eq!(
        fragments(&[(0, 64, true), (56, 64, true), (120, 8, false)]),
        [ok, overlap, overlap]
    );
    assert_eq!(fragments(&[(0, 64, true), (8, 8, false)]), [ok, overlap], "the header's ports");
    assert_eq!(fragments(&[(0, 64, true), (0, 64, true)]), [ok, overlap]);
    assert_eq!(fragments(&[(64, 8, false), (128, 8, true)]), [ok, overlap], "behind the last");
    assert_eq!(fragments(&[(64, 8, false), (128, 8, false)]), [ok, overlap], "two last ones");
    assert_eq!(fragments(&[(128, 8, true), (64, 8, false)]), [ok, overlap]);
    assert_eq!(fragments(&[(0, 0, true)]), [Some(FragmentLength)]);
    assert_eq!(fragments(&[(0, 12, true)]), [Some(FragmentLength)]);
    assert_eq!(fragments(&[(65_528, 8, false)]), [Some(FragmentBeyond)]);
    let holes: Vec<_> = (1..=18).map(|n| (16 * n, 8, true)).collect();
    let mut expected = vec![ok; 16];
    expected.extend([Some(FragmentPieces); 2]);
    assert_eq!(fragments(&holes), expected);
    // The first ends within the transport's header.
    let mut tiny = [mac(2).as_slice(), &mac(1), &[8, 0]].concat();
    tiny.extend(ipv4(&[v4(1), v4(2)], 6, &[], 8, 0x2000));
    tiny.extend([0; 8]);
    assert_eq!(dropped(&tiny), Some(FragmentTiny));
}

#[test]
fn ipv6_fragments_that_overlap() {
    let piece = |at: u16, more: bool| {
        let place = (at | u16::from(more)).to_be_bytes();
        let header = vec![0, 0, place[0], place[1], 0, 0, 0, 9];
        let mut frame = with_extensions(&[(44, header)]);
        // A multiple of eight bytes: the UDP header and sixteen of its payload.
        frame.truncate(frame.len() - 4);
        frame[18..20].copy_from_slice(&(8 + 24u16).to_be_bytes());
        frame
    };
    let mut bench = bench();
    let mut say = |frame: &[u8]| verdict(&mut bench, frame, Offload::default());
    assert_eq!(say(&piece(0, true)), None);
    assert_eq!(say(&piece(24, true)), None);
    assert_eq!(say(&piece(40, true)), Some(Reason::FragmentOverlap));
    assert_eq!(say(&piece(48, false)), Some(Reason::FragmentOverlap), "nothing more of it");
    let first_without_chain = {
        let mut frame = piece(0, true);
        frame[54] = 60;
        frame[62..64].copy_from_slice(&[17, 200]);
        frame
    };
    assert_eq!(say(&first_without_chain), Some(Reason::Ipv6Extension));
}

#[test]
fn rules_about_ports_hold_for_later_fragments() {
    let dns = Rule { action: Action::Drop, target_ports: Some(53..=53), ..Rule::default() };
    let firewall = FirewallRules::new(vec![dns], Action::Accept).unwrap();
    let mut bench = Bench::new(Arc::new(Rules { firewall, ..Rules::default() }), 2, Checks::Leave);
    for (at, more) in [(0, true), (64, true), (128, false)] {
        let reason = verdict(&mut bench, &fragment(at, 64, more), Offload::default());
        assert_eq!(reason, Some(Reason::Firewall), "{at}");
    }
}

#[test]
fn fragments_of_one_port_do_not_push_out_those_of_another() {
    let dns = Rule { action: Action::Accept, target_ports: Some(53..=53), ..Rule::default() };
    let firewall = FirewallRules::new(vec![dns], Action::Drop).unwrap();
    let mut bench = Bench::new(Arc::new(Rules { firewall, ..Rules::default() }), 2, Checks::Leave);
    let mut passes = |from: u16, frame: Vec<u8>| {
        !bench.run(&[(from, frame, Offload::default())], 1, 0).is_empty()
    };
    assert!(passes(0, fragment(0, 64, true)));
    // First fragments of many other packets, from another port.
    for id in 1..5000u16 {
        let mut frame = fragment(0, 64, true);
        frame[18..20].copy_from_slice(&id.to_be_bytes());
        let sum = Sum16BitWords::new().add_slice(&frame[14..24]).add_slice(&frame[26..34]);
        frame[24..26].copy_from_slice(&sum.ones_complement().to_ne_bytes());
        assert!(passes(1, frame), "{id}");
    }
    assert!(passes(0, fragment(64, 64, false)), "the ports of the first are still known");
}

#[test]
fn frames_that_claim_missing_private_bytes_are_dropped() {
    use grantway_vector::{Batch, Frame};
    let mut bench = bench();
    let bytes = plain(TCP, false).bytes();
    let mut batch = Batch::new();
    let len = bytes.len() as u32;
    for (at, head, len) in [
        (0, len, len),
        (0, 20, len),
        (u32::MAX, u32::MAX, u32::MAX),
        (len, 1, 1),
        (0, u32::MAX, 14),
        (0, 0, 0),
    ] {
        let from = PortId(u16::MAX);
        batch.push(Frame { at, head, len, from, ..Frame::default() }).unwrap();
    }
    bench.graph.run(&mut batch, &mut bytes.clone(), u64::MAX);
    assert_eq!(bench.graph.drops().total(), 5);
}

//! The bytes of the header, and every judgement of it.

use etherparse::PacketBuilder;
use proptest::prelude::*;

use super::*;

fn frame(v6: bool, tcp: bool, payload: usize) -> Vec<u8> {
    let eth = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let ip = if v6 {
        eth.ipv6([1; 16], [2; 16], 64)
    } else {
        eth.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
    };
    let mut out = Vec::new();
    let payload = vec![0x5a; payload];
    if tcp {
        ip.tcp(1, 2, 3, 4).write(&mut out, &payload).unwrap();
    } else {
        ip.udp(1, 2).write(&mut out, &payload).unwrap();
    }
    out
}

const PARTIAL: Offload = Offload { checksum: Checksum::Partial, gso: None };

fn gso(kind: GsoKind, size: u16) -> Offload {
    Offload { checksum: Checksum::Partial, gso: Some(Gso { kind, size }) }
}

#[test]
fn bytes_are_those_of_the_header_file() {
    let header = VnetHeader {
        flags: 1,
        gso_type: 4,
        hdr_len: 0x0102,
        gso_size: 0x0304,
        csum_start: 0x0506,
        csum_offset: 0x0708,
    };
    let bytes = [1, 4, 2, 1, 4, 3, 6, 5, 8, 7];
    assert_eq!(header.encode(), bytes);
    assert_eq!(VnetHeader::decode(bytes), header);
}

#[test]
fn finished_frames_need_no_headers() {
    let garbage = [0xff; 60];
    let unknown = Offload::default();
    assert_eq!(outgoing(&garbage, garbage.len(), unknown), Ok((VnetHeader::default(), 60)));
    let complete = Offload { checksum: Checksum::Complete, gso: None };
    let (header, len) = outgoing(&garbage, garbage.len(), complete).unwrap();
    assert_eq!((header.flags, len), (DATA_VALID, 60));
}

#[test]
fn unfinished_frames_say_where_the_checksum_is() {
    for (v6, tcp, start, offset, end) in [
        (false, false, 34, 6, 42),
        (false, true, 34, 16, 54),
        (true, false, 54, 6, 62),
        (true, true, 54, 16, 74),
    ] {
        let mut frame = frame(v6, tcp, 9);
        let packet = frame.len();
        frame.extend_from_slice(&[0; 8]);
        let (header, len) = outgoing(&frame, frame.len(), PARTIAL).unwrap();
        let expected = VnetHeader {
            flags: NEEDS_CSUM,
            csum_start: start,
            csum_offset: offset,
            hdr_len: end,
            ..VnetHeader::default()
        };
        assert_eq!((header, len), (expected, packet));
    }
}

#[test]
fn segmentation_must_fit_the_frame() {
    let (v4, v6) = (frame(false, true, 3000), frame(true, true, 3000));
    let (header, _) = outgoing(&v4, v4.len(), gso(GsoKind::Tcpv4, 1448)).unwrap();
    assert_eq!((header.gso_type, header.gso_size), (GSO_TCPV4, 1448));
    let (header, _) = outgoing(&v6, v6.len(), gso(GsoKind::Tcpv6, 1428)).unwrap();
    assert_eq!((header.gso_type, header.gso_size), (GSO_TCPV6, 1428));

    let refused = |frame: &[u8], offload| outgoing(frame, frame.len(), offload).unwrap_err();
    let tcp4 = |size| gso(GsoKind::Tcpv4, size);
    assert_eq!(refused(&v6, tcp4(1448)), DropReason::GsoWrongFamily);
    assert_eq!(refused(&v4, tcp4(0)), DropReason::GsoZeroSize);
    let udp = frame(false, false, 3000);
    assert_eq!(refused(&udp, tcp4(1448)), DropReason::GsoNotTcp);
    let lone = Offload { checksum: Checksum::Complete, ..tcp4(1448) };
    assert_eq!(refused(&v4, lone), DropReason::GsoNotPartial);
    assert_eq!(refused(&[0; 60], PARTIAL), DropReason::NotIp);
}

#[test]
fn segmentation_of_udp_has_one_type_for_both_versions_of_ip() {
    for v6 in [false, true] {
        let mut udp = frame(v6, false, 3000);
        let offload = gso(GsoKind::Udp, 100);
        let (header, len) = outgoing(&udp, udp.len(), offload).unwrap();
        assert_eq!((header.gso_type, header.gso_size, len), (GSO_UDP_L4, 100, udp.len()));
        assert_eq!((header.flags, header.csum_offset), (NEEDS_CSUM, 6));
        let arrival = incoming(header, &mut udp, TapOffloads::ALL).unwrap();
        assert_eq!(arrival.offload, offload);
        let refused = incoming(header, &mut udp, TapOffloads::NETIF);
        assert_eq!(refused, Err(DropReason::GsoNotWanted));
        let lone = Offload { checksum: Checksum::Complete, ..offload };
        assert_eq!(outgoing(&udp, udp.len(), lone), Err(DropReason::GsoNotPartial));

        let mut tcp = frame(v6, true, 3000);
        assert_eq!(outgoing(&tcp, tcp.len(), offload), Err(DropReason::GsoNotUdp));
        let refused = incoming(header, &mut tcp, TapOffloads::ALL);
        assert_eq!(refused, Err(DropReason::GsoNotUdp));
    }
}

/// The thread that gives the kernel a frame waits until that has cut it.
#[test]
fn segments_that_are_too_many_for_the_kernel_are_refused() {
    for v6 in [false, true] {
        let kind = if v6 { GsoKind::Tcpv6 } else { GsoKind::Tcpv4 };
        let large = frame(v6, true, 65_000);
        assert!(outgoing(&large, large.len(), gso(kind, 48)).is_ok(), "Linux's smallest");
        for size in [1, 8, 47] {
            let refused = outgoing(&large, large.len(), gso(kind, size));
            assert_eq!(refused, Err(DropReason::GsoTooMany), "{size}");
        }
    }
}

#[test]
fn congestion_window_reduced_travels_with_segmentation() {
    let mut v4 = frame(false, true, 3000);
    v4[34 + 13] |= 0x80;
    let (header, _) = outgoing(&v4, v4.len(), gso(GsoKind::Tcpv4, 1448)).unwrap();
    assert_eq!(header.gso_type, GSO_TCPV4 | GSO_ECN);
    let arrival = incoming(header, &mut v4, TapOffloads::ALL).unwrap();
    assert_eq!(arrival.offload, gso(GsoKind::Tcpv4, 1448));
}

#[test]
fn the_kernels_checksum_state_is_kept() {
    let mut bytes = frame(false, true, 10);
    let judge = |flags, bytes: &mut [u8]| {
        let header = VnetHeader { flags, ..VnetHeader::default() };
        let arrival = incoming(header, bytes, TapOffloads::ALL).unwrap();
        arrival.offload.checksum
    };
    assert_eq!(judge(0, &mut bytes), Checksum::Unknown);
    assert_eq!(judge(DATA_VALID, &mut bytes), Checksum::Complete);
    let (header, _) = outgoing(&bytes, bytes.len(), PARTIAL).unwrap();
    let arrival = incoming(header, &mut bytes, TapOffloads::ALL).unwrap();
    assert_eq!((arrival.offload, arrival.finished), (PARTIAL, false));
}

#[test]
fn frames_that_the_frontend_does_not_accept_are_finished_or_refused() {
    let whole = frame(false, true, 10);
    let mut bytes = whole.clone();
    let (header, _) = outgoing(&bytes, bytes.len(), PARTIAL).unwrap();
    // The pseudo-header's sum is there, as the kernel leaves it.
    let sum = etherparse::checksum::Sum16BitWords::new()
        .add_slice(&bytes[26..34])
        .add_4bytes([0, 6, 0, 30]);
    bytes[50..52].copy_from_slice(&(!sum.ones_complement()).to_ne_bytes());
    let arrival = incoming(header, &mut bytes, TapOffloads::NONE).unwrap();
    assert!(arrival.finished);
    assert_eq!(arrival.offload.checksum, Checksum::Complete);
    assert_eq!(bytes, whole);

    let mut large = frame(false, true, 3000);
    let (header, _) = outgoing(&large, large.len(), gso(GsoKind::Tcpv4, 1000)).unwrap();
    let only_checksum = TapOffloads { checksum: true, ..TapOffloads::NONE };
    let refused = incoming(header, &mut large, only_checksum);
    assert_eq!(refused, Err(DropReason::GsoNotWanted));
}

/// A tunnel of the host: the unfinished checksum is the inner one, which netif cannot express.
#[test]
fn an_inner_checksum_is_finished_here() {
    let inner = frame(false, true, 10);
    let mut bytes = frame(false, false, 0);
    bytes.extend_from_slice(&inner);
    let total = (bytes.len() - 14) as u16;
    bytes[16..18].copy_from_slice(&total.to_be_bytes());
    let expected = bytes.clone();
    let header = VnetHeader {
        flags: NEEDS_CSUM,
        csum_start: 42 + 34,
        csum_offset: 16,
        ..VnetHeader::default()
    };
    let sum = etherparse::checksum::Sum16BitWords::new()
        .add_slice(&inner[26..34])
        .add_4bytes([0, 6, 0, 30]);
    bytes[42 + 50..42 + 52].copy_from_slice(&(!sum.ones_complement()).to_ne_bytes());
    let arrival = incoming(header, &mut bytes, TapOffloads::ALL).unwrap();
    assert!(arrival.finished);
    assert_eq!(bytes, expected);
}

#[test]
fn unknown_segmentation_is_refused() {
    for gso_type in [2, 3, 6, 0x83, 0x85, 0x7f] {
        let header = VnetHeader { flags: NEEDS_CSUM, gso_type, ..VnetHeader::default() };
        let refused = incoming(header, &mut [0; 60], TapOffloads::ALL);
        assert_eq!(refused, Err(DropReason::GsoUnknown), "{gso_type}");
    }
    let header = VnetHeader { gso_type: GSO_TCPV4, gso_size: 1, ..VnetHeader::default() };
    let refused = incoming(header, &mut [0; 60], TapOffloads::ALL);
    assert_eq!(refused, Err(DropReason::GsoNotPartial));
}

proptest! {
    #[test]
    fn any_header_over_any_frame_never_panics(
        header in any::<[u8; 10]>(),
        mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
        checksum: bool, tso4: bool, tso6: bool, uso: bool,
    ) {
        let offloads = TapOffloads { checksum, tso4, tso6, uso };
        let _ = incoming(VnetHeader::decode(header), &mut bytes, offloads.effective());
        prop_assert_eq!(VnetHeader::decode(header).encode(), header);
    }

    /// Outgoing offloads come back in unchanged.
    #[test]
    fn offloads_survive_the_header(v6: bool, tcp: bool, large: bool, size in 1u16..) {
        let kind = match (tcp, v6) {
            (false, _) => GsoKind::Udp,
            (true, false) => GsoKind::Tcpv4,
            (true, true) => GsoKind::Tcpv6,
        };
        let offload = if large { gso(kind, size) } else { PARTIAL };
        let mut bytes = frame(v6, tcp, 500);
        let (header, len) = outgoing(&bytes, bytes.len(), offload).unwrap();
        prop_assert_eq!(len, bytes.len());
        let arrival = incoming(header, &mut bytes, TapOffloads::ALL).unwrap();
        prop_assert_eq!(arrival.offload, offload);
    }
}

#[test]
fn segments_that_a_card_merged_are_begun_anew() {
    use crate::finish::begin_checksum;
    let mut bytes = frame(false, true, 30_000);
    let mut header = VnetHeader {
        flags: DATA_VALID,
        gso_type: GSO_TCPV4,
        gso_size: 1448,
        ..VnetHeader::default()
    };
    let refused = incoming(header, &mut bytes.clone(), TapOffloads::ALL);
    assert_eq!(refused, Err(DropReason::GsoNotPartial));
    assert!(header.is_merged_and_complete());
    header.begin(&begin_checksum(&mut bytes).unwrap()).unwrap();
    assert!(!header.is_merged_and_complete());
    let arrival = incoming(header, &mut bytes, TapOffloads::ALL).unwrap();
    assert_eq!(arrival.offload, gso(GsoKind::Tcpv4, 1448));
    // Without a word about the checksum, nobody has checked it.
    let unchecked = VnetHeader { flags: 0, ..header };
    assert!(!unchecked.is_merged_and_complete());
}

#[test]
fn offsets_move_with_a_tag_and_do_not_wrap() {
    let mut header = VnetHeader { csum_start: 34, hdr_len: 54, ..VnetHeader::default() };
    header.move_by(4).unwrap();
    assert_eq!((header.csum_start, header.hdr_len), (38, 58));
    for header in [
        VnetHeader { csum_start: u16::MAX - 3, ..VnetHeader::default() },
        VnetHeader { hdr_len: u16::MAX, ..VnetHeader::default() },
    ] {
        assert_eq!({ header }.move_by(4), Err(DropReason::TooLong));
    }
}

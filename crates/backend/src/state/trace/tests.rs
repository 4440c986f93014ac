//! Records of packets, runs and events.

use super::*;
use grantway_hypervisor::DomId;
use grantway_netif::Offload;
use grantway_ports::FrameMeta;
use proptest::prelude::*;

fn frame(at: usize, len: usize) -> FramePlace {
    FramePlace { at, meta: FrameMeta { len, offload: Offload::default() } }
}

fn read(reader: &TraceReader) -> TraceBatch {
    // Nothing of a batch stays when it is filled again.
    let mut batch = TraceBatch { records: Vec::new(), lost: 77 };
    reader.read(&mut batch, Duration::ZERO);
    batch
}

#[test]
fn a_trace_reader_gets_heads_and_events_in_order() {
    let trace = Arc::<Trace>::default();
    let vif = VifId { domain: DomId(7), devid: 3 };
    let tap = Tap::new(Arc::clone(&trace), vif);
    let arena: Vec<u8> = (0..3000).map(|n| (n % 251) as u8).collect();
    assert!(!tap.is_on());
    tap.packets(0, TraceRing::Transmit, &arena, &[frame(0, 60)]);

    let reader = TraceReader::new(&trace).unwrap();
    assert!(TraceReader::new(&trace).is_none());
    tap.packets(2, TraceRing::Transmit, &arena, &[frame(64, 60), frame(128, 1500)]);
    tap.event(2, TraceRing::Receive, TraceKind::RingFull);
    let TraceBatch { records, lost } = read(&reader);
    assert_eq!((records.len(), lost), (3, 0));
    assert_eq!((records[0].vif, records[0].queue, records[0].len), (vif, 2, 60));
    assert_eq!(records[0].head(), &arena[64..124]);
    assert_eq!((records[1].len, records[1].head()), (1500, &arena[128..256]));
    assert_eq!(records[2].kind, TraceKind::RingFull);
    assert_eq!(records[2].head(), b"");
    assert!(records.is_sorted_by_key(|record| record.time));
    drop(reader);

    tap.event(2, TraceRing::Receive, TraceKind::RingDrained);
    let reader = TraceReader::new(&trace).unwrap();
    assert!(read(&reader).records.is_empty());
}

#[test]
fn records_without_room_are_counted() {
    let trace = Arc::<Trace>::default();
    let tap = Tap::new(Arc::clone(&trace), VifId { domain: DomId(1), devid: 0 });
    let reader = TraceReader::new(&trace).unwrap();
    for _ in 0..RECORDS_MAX + 10 {
        tap.event(0, TraceRing::Transmit, TraceKind::Woken);
    }
    let batch = read(&reader);
    assert_eq!((batch.records.len(), batch.lost), (RECORDS_MAX, 10));
    tap.event(0, TraceRing::Transmit, TraceKind::Woken);
    let batch = read(&reader);
    assert_eq!((batch.records.len(), batch.lost), (1, 0));
}

/// A lost signal would leave a reader waiting for a day. Most of the readers wait already when the
/// last record comes.
#[test]
fn a_waiting_reader_is_woken_when_there_are_enough_records() {
    for _ in 0..50 {
        let trace = Arc::<Trace>::default();
        let tap = Tap::new(Arc::clone(&trace), VifId { domain: DomId(1), devid: 0 });
        let reader = TraceReader::new(&trace).unwrap();
        for _ in 1..RECORDS_WORTH {
            tap.event(0, TraceRing::Transmit, TraceKind::Woken);
        }
        let (send, received) = std::sync::mpsc::channel();
        let (begins, begun) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut batch = TraceBatch::default();
            begins.send(()).unwrap();
            reader.read(&mut batch, Duration::from_secs(86_400));
            send.send(batch)
        });
        begun.recv().unwrap();
        std::thread::sleep(Duration::from_millis(1));
        tap.event(0, TraceRing::Transmit, TraceKind::Woken);
        let batch = received.recv_timeout(Duration::from_secs(120)).expect("it is woken");
        assert_eq!(batch.records.len(), RECORDS_WORTH);
    }
}

/// Bytes of the headers of IPv4 and TCP behind Ethernet, with twelve bytes of options.
const HEADERS: usize = 14 + 20 + 32;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// Returns a segment of TCP over IPv4 with its bytes of payload, number and flags.
fn segment(payload: usize, number: u32, flags: u8) -> Vec<u8> {
    let mut frame = [[2; 6], [4; 6]].concat();
    let total = (HEADERS - 14 + payload) as u16;
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(total.to_be_bytes());
    // The identification counts, as that of most senders does.
    frame.extend((number as u16).to_be_bytes());
    frame.extend([0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x9c, 0x40, 0x14, 0x51]);
    frame.extend(number.to_be_bytes());
    frame.extend([0, 0, 0, 7, 8 << 4, flags, 1, 0, 0xab, number as u8, 0, 0]);
    frame.extend([1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6]);
    let sum = sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.resize(HEADERS + payload, 7);
    frame
}

/// Returns the same segment over IPv6.
fn over_ipv6(segment: &[u8]) -> Vec<u8> {
    let length = (segment.len() - 34) as u16;
    let mut frame = [&segment[..12], &[0x86, 0xdd, 0x60, 0, 0, 9][..]].concat();
    frame.extend(length.to_be_bytes());
    frame.extend([6, 64]);
    frame.extend([[0xfd; 16], [0xfe; 16]].concat());
    frame.extend(&segment[34..]);
    frame
}

/// Returns the checksum that makes an IPv4 header sound; 0 of one that has it.
fn sum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
    let sum: u32 = words.sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    !((sum >> 16) + sum) as u16
}

/// Returns the records of these frames, which cross a ring in one burst.
fn records(frames: &[Vec<u8>]) -> Vec<TraceRecord> {
    let trace = Arc::<Trace>::default();
    let tap = Tap::new(Arc::clone(&trace), VifId { domain: DomId(1), devid: 0 });
    let reader = TraceReader::new(&trace).unwrap();
    cross(&tap, frames);
    let batch = read(&reader);
    assert_eq!(batch.lost, 0);
    batch.records
}

fn cross(tap: &Tap, frames: &[Vec<u8>]) {
    let mut at = 0;
    let places = frames.iter().map(|bytes| {
        let place = frame(at, bytes.len());
        at += bytes.len();
        place
    });
    let places: Vec<_> = places.collect();
    tap.packets(0, TraceRing::Transmit, &frames.concat(), &places);
}

fn counts(records: &[TraceRecord]) -> Vec<u32> {
    records.iter().map(|record| record.segments).collect()
}

/// Returns four segments of a flow that follow on each other.
fn four() -> Vec<Vec<u8>> {
    // The numbers wrap.
    (0..4).map(|n| segment(1000, (u32::MAX - 2000).wrapping_add(n * 1000), ACK)).collect()
}

#[test]
fn segments_that_follow_on_each_other_share_a_record() {
    let mut frames = four();
    // The last one is shorter and is to be passed on. The first of another flow follows.
    let end = u32::from_be_bytes(frames[3][38..42].try_into().unwrap());
    frames[3] = segment(10, end, ACK | PSH);
    let first = frames[0].clone();
    frames.push(segment(500, 1, ACK));
    let found = records(&frames);
    assert_eq!(counts(&found), [4, 1]);
    assert_eq!((found[0].len as usize, found[0].segment_bytes), (HEADERS + 3010, 1000));
    assert_eq!((found[1].len as usize, found[1].segment_bytes), (HEADERS + 500, 0));
    assert_eq!(found[1].head(), &frames[4][..TRACE_HEAD]);
    // The head is the first one's, with the length of all, and the flag of the last.
    let head = found[0].head();
    assert_eq!(head[16..18], (HEADERS as u16 - 14 + 3010).to_be_bytes());
    assert_eq!(sum(&head[14..34]), 0);
    assert_eq!(head[47], ACK | PSH);
    for (at, (byte, before)) in head.iter().zip(&first).enumerate() {
        assert!([16, 17, 24, 25, 47].contains(&at) || byte == before, "byte {at}");
    }

    let found = records(&frames.iter().map(|frame| over_ipv6(frame)).collect::<Vec<_>>());
    assert_eq!(counts(&found), [4, 1]);
    assert_eq!(found[0].len as usize, HEADERS + 20 + 3010);
    assert_eq!(found[0].head()[18..20], (HEADERS as u16 - 34 + 3010).to_be_bytes());
    assert_eq!(found[0].head()[..18], over_ipv6(&first)[..18]);
}

#[test]
fn a_run_that_no_ip_packet_can_hold_has_the_length_zero() {
    let frames: Vec<_> = (0..3).map(|n| segment(60_000, n * 60_000, ACK)).collect();
    for (frames, at) in
        [(frames.clone(), 16), (frames.iter().map(|frame| over_ipv6(frame)).collect(), 18)]
    {
        let found = records(&frames);
        assert_eq!((counts(&found), found[0].segment_bytes), (vec![3], 60_000));
        assert_eq!(found[0].len as usize, frames[0].len() + 120_000);
        assert_eq!(found[0].head()[at..at + 2], [0, 0]);
        if at == 16 {
            assert_eq!(sum(&found[0].head()[14..34]), 0);
        }
    }
}

/// Change that a test makes to a segment.
type Change<'a> = &'a dyn Fn(&mut Vec<u8>);

/// Each change makes the third of four segments one that an analysis has to see by itself.
#[test]
fn a_segment_that_differs_in_more_than_its_number_has_its_own_record() {
    let change = |at: usize, value: u8| {
        move |frame: &mut Vec<u8>| frame[at] = if frame[at] == value { !value } else { value }
    };
    let again: Change<'_> = &|frame| {
        let number = u32::from_be_bytes(frame[38..42].try_into().unwrap());
        frame[38..42].copy_from_slice(&number.wrapping_sub(1000).to_be_bytes());
    };
    let gap: Change<'_> = &|frame| {
        let number = u32::from_be_bytes(frame[38..42].try_into().unwrap());
        frame[38..42].copy_from_slice(&number.wrapping_add(1).to_be_bytes());
    };
    let padded: Change<'_> = &|frame| frame.push(0);
    let cut: Change<'_> = &|frame| frame.truncate(HEADERS + 999);
    let shapes: [(&str, Change<'_>); 22] = [
        ("sent again", again),
        ("a gap", gap),
        ("longer than its IP packet", padded),
        ("shorter than its IP packet", cut),
        ("target", &change(0, 1)),
        ("source", &change(6, 1)),
        ("traffic class", &change(15, 1)),
        ("fragment", &change(21, 1)),
        ("hops", &change(22, 1)),
        ("protocol", &change(23, 17)),
        ("source address", &change(29, 1)),
        ("target address", &change(33, 1)),
        ("source port", &change(35, 1)),
        ("target port", &change(37, 1)),
        ("acknowledgement", &change(45, 1)),
        ("header", &change(46, 7 << 4)),
        ("end", &change(47, ACK | 1)),
        ("start", &change(47, ACK | 2)),
        ("reset", &change(47, ACK | 4)),
        ("window", &change(49, 1)),
        ("urgent", &change(53, 1)),
        ("timestamp", &change(61, 1)),
    ];
    for (what, change) in shapes {
        let mut frames = four();
        change(&mut frames[2]);
        let found = records(&frames);
        assert_eq!(counts(&found), [2, 1, 1], "{what}");
        let third = &found[1];
        let kept = frames[2].len().min(TRACE_HEAD);
        assert_eq!(third.head()[..16], frames[2][..16], "{what}");
        assert_eq!(third.head()[20..24], frames[2][20..24], "{what}");
        assert_eq!(third.head()[26..kept], frames[2][26..kept], "{what}");
    }
}

#[test]
fn a_run_ends_with_a_shorter_segment() {
    let sizes = |sizes: &[usize]| {
        let mut number = 0;
        let frames = sizes.iter().map(|&size| {
            number += size as u32;
            segment(size, number - size as u32, ACK)
        });
        counts(&records(&frames.collect::<Vec<_>>()))
    };
    assert_eq!(sizes(&[500, 500, 500]), [3]);
    assert_eq!(sizes(&[500, 499, 499, 499]), [2, 2]);
    assert_eq!(sizes(&[500, 501, 501]), [1, 2]);
    // An acknowledgement, and what may be a probe.
    assert_eq!(sizes(&[0, 0, 0]), [1, 1, 1]);
    assert_eq!(sizes(&[1, 1, 1]), [1, 1, 1]);
    assert_eq!(sizes(&[500, 1]), [1, 1]);
    assert_eq!(sizes(&[500, 0]), [1, 1]);
    // Headers that are not whole in the head of a record are not compared.
    assert_eq!(sizes(&[2, 2]), [1, 1]);
}

#[test]
fn segments_that_begin_or_end_a_flow_are_in_no_run() {
    for flag in [1, 2, 4, 0x20, 0x40, 0x80] {
        let with = |flags| (0..3).map(|n| segment(100, n * 100, flags)).collect::<Vec<_>>();
        assert_eq!(counts(&records(&with(ACK | flag))), [1, 1, 1], "{flag:x}");
    }
    let without: Vec<_> = (0..3).map(|n| segment(100, n * 100, PSH)).collect();
    assert_eq!(counts(&records(&without)), [1, 1, 1]);
}

#[test]
fn a_batch_is_filled_again() {
    let trace = Arc::<Trace>::default();
    let tap = Tap::new(Arc::clone(&trace), VifId { domain: DomId(1), devid: 0 });
    let reader = TraceReader::new(&trace).unwrap();
    let mut batch = TraceBatch::default();
    for round in 1..4 {
        let numbers = (0..round).map(|n| segment(100, 1000 * n, ACK));
        cross(&tap, &numbers.collect::<Vec<_>>());
        reader.read(&mut batch, Duration::ZERO);
        assert_eq!(batch.records.len(), round as usize);
    }
    reader.read(&mut batch, Duration::ZERO);
    assert!(batch.records.is_empty());
}

#[test]
fn each_burst_has_records_of_its_own() {
    let trace = Arc::<Trace>::default();
    let tap = Tap::new(Arc::clone(&trace), VifId { domain: DomId(1), devid: 0 });
    let reader = TraceReader::new(&trace).unwrap();
    let frames = four();
    cross(&tap, &frames[..2]);
    cross(&tap, &frames[2..]);
    assert_eq!(counts(&read(&reader).records), [2, 2]);
}

#[test]
fn packets_without_room_are_counted_each() {
    let trace = Arc::<Trace>::default();
    let tap = Tap::new(Arc::clone(&trace), VifId { domain: DomId(1), devid: 0 });
    let reader = TraceReader::new(&trace).unwrap();
    for _ in 0..RECORDS_MAX - 1 {
        tap.event(0, TraceRing::Transmit, TraceKind::Woken);
    }
    // The last place is for a run. A packet that does not continue it is lost, and so is a segment
    // that would have: an order with gaps in it is not kept.
    let [one, two, three, four] = &four()[..] else { unreachable!("there are four") };
    let other = segment(40, 1, ACK);
    cross(&tap, &[one.clone(), two.clone(), other, three.clone(), four.clone()]);
    cross(&tap, &[one.clone(), two.clone()]);
    let batch = read(&reader);
    assert_eq!((batch.records.len(), batch.lost), (RECORDS_MAX, 5));
    let last = batch.records.last().unwrap();
    assert_eq!((last.segments, last.len as usize), (2, HEADERS + 2000));
    cross(&tap, &[one.clone(), two.clone()]);
    let batch = read(&reader);
    assert_eq!((counts(&batch.records), batch.lost), (vec![2], 0));
}

proptest! {
    /// Each of any packets is in one record or counted as lost, and all bytes of payload are there.
    #[test]
    fn no_packet_and_no_byte_is_counted_twice_or_not_at_all(
        bursts in proptest::collection::vec(
            proptest::collection::vec((0..4u8, 0..2000usize, any::<bool>()), 1..64),
            1..20,
        ),
    ) {
        let trace = Arc::<Trace>::default();
        let tap = Tap::new(Arc::clone(&trace), VifId { domain: DomId(1), devid: 0 });
        let reader = TraceReader::new(&trace).unwrap();
        let (mut number, mut packets, mut bytes) = (0_u32, 0, 0);
        for burst in bursts {
            let frames = burst.iter().map(|&(kind, size, push)| {
                let size = if kind < 3 { 700 } else { size };
                let frame = segment(size, number, if push { ACK | PSH } else { ACK });
                number = number.wrapping_add(size as u32 + u32::from(kind == 0));
                (packets, bytes) = (packets + 1, bytes + size as u64);
                frame
            });
            cross(&tap, &frames.collect::<Vec<_>>());
        }
        let batch = read(&reader);
        let payload = |record: &TraceRecord| u64::from(record.len) - HEADERS as u64;
        prop_assert_eq!(batch.lost, 0);
        prop_assert_eq!(batch.records.iter().map(|r| r.segments).sum::<u32>(), packets);
        prop_assert_eq!(batch.records.iter().map(payload).sum::<u64>(), bytes);
        for record in batch.records.iter().filter(|record| record.segments > 1) {
            let (payload, most) = (payload(record) as u32, record.segments * record.segment_bytes);
            prop_assert!(payload <= most && payload > most - record.segment_bytes);
        }
    }
}

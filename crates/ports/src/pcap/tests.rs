//! Captures that are written and read again, and captures that lie.

mod records;

use grantway_needs::{Need, met};
use std::{
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use etherparse::PacketBuilder;
use grantway_netif::{Checksum, Gso, GsoKind, Offload};
use proptest::prelude::*;

use super::*;
use crate::{
    clock::Clock,
    finish::tests::frames::Shape,
    port::{DropReason, Port, Probe, RECV_BUFFER, SendError},
};

const FORMATS: [CaptureFormat; 2] = [CaptureFormat::Pcap, CaptureFormat::PcapNg];

fn path() -> &'static Path {
    Path::new("test.pcap")
}

/// Returns a clock that is one millisecond and one nanosecond later at each reading.
fn ticking() -> Clock {
    let readings = AtomicU64::new(0);
    Arc::new(move || {
        let reading = 1 + readings.fetch_add(1, SeqCst);
        Duration::from_secs(1_700_000_000) + Duration::from_nanos(1_000_001 * reading)
    })
}

fn written(format: CaptureFormat, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = CaptureWriter::new(&mut bytes, path(), format).unwrap();
    let clock = ticking();
    for (n, frame) in frames.iter().enumerate() {
        let direction = [None, Some(Direction::Inbound), Some(Direction::Outbound)][n % 3];
        let finished = writer.write(clock(), frame, Offload::default(), direction);
        assert!(!finished.unwrap());
    }
    writer.flush().unwrap();
    drop(writer);
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<Vec<u8>>, CaptureError> {
    let mut reader = CaptureReader::new(bytes, path())?;
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame()? {
        frames.push(frame.to_vec());
    }
    Ok(frames)
}

fn sample() -> Vec<Vec<u8>> {
    [0, 1, 13, 14, 60, 61, 62, 63, 1514]
        .iter()
        .map(|&n: &usize| (0..n).map(|b| b as u8).collect())
        .collect()
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(1, 2)
        .write(&mut frame, payload)
        .unwrap();
    frame
}

/// Returns the frame with only the pseudo-header's sum in its checksum.
fn unfinished(whole: &[u8]) -> Vec<u8> {
    let mut frame = whole.to_vec();
    let length = (whole.len() - 34) as u16;
    let sum = etherparse::checksum::Sum16BitWords::new()
        .add_slice(&whole[26..34])
        .add_2bytes([0, 17])
        .add_2bytes(length.to_be_bytes());
    frame[40..42].copy_from_slice(&(!sum.ones_complement()).to_ne_bytes());
    frame
}

/// Returns a pcapng of the given blocks, each (type, body), in either byte order.
fn blocks(big_endian: bool, blocks: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let word = |n: u32| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
    let mut out = Vec::new();
    for (kind, body) in blocks {
        let mut body = body.clone();
        body.resize(body.len().next_multiple_of(4), 0);
        let total = word(body.len() as u32 + 12);
        out.extend_from_slice(&word(*kind));
        out.extend_from_slice(&total);
        out.extend_from_slice(&body);
        out.extend_from_slice(&total);
    }
    out
}

fn words(big_endian: bool, words: &[u32]) -> Vec<u8> {
    let word = |n: &u32| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
    words.iter().flat_map(word).collect()
}

fn section(big_endian: bool) -> (u32, Vec<u8>) {
    let mut body = words(big_endian, &[0x1a2b_3c4d]);
    let version = if big_endian { [0, 1, 0, 0] } else { [1, 0, 0, 0] };
    body.extend_from_slice(&version);
    body.extend_from_slice(&[0xff; 8]);
    (0x0a0d_0d0a, body)
}

fn interface(big_endian: bool, link: u16, snaplen: u32) -> (u32, Vec<u8>) {
    let link = if big_endian { link.to_be_bytes() } else { link.to_le_bytes() };
    (1, [link.to_vec(), vec![0; 2], words(big_endian, &[snaplen])].concat())
}

fn enhanced(big_endian: bool, interface: u32, frame: &[u8]) -> (u32, Vec<u8>) {
    let length = frame.len() as u32;
    let head = words(big_endian, &[interface, 0, 0, length, length]);
    (6, [head, frame.to_vec()].concat())
}

#[test]
fn frames_come_back_as_they_were_in_their_order() {
    for format in FORMATS {
        let bytes = written(format, &sample());
        assert_eq!(read(&bytes).unwrap(), sample(), "{format}");
        let reader = CaptureReader::new(&bytes[..], path()).unwrap();
        assert_eq!(reader.format(), format);
    }
}

#[test]
fn files_as_ports() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.pcap", "a.PCAPNG"] {
        let file = folder.path().join(name);
        let mut output = PcapPort::open(None, Some(&file), ticking()).unwrap();
        for frame in sample() {
            output.send(&frame, Offload::default()).unwrap();
        }
        assert_eq!(output.recv(&mut [0; 100]).unwrap(), None);
        output.flush().unwrap();
        // The program is killed here: bytes that flush has not written are missing.
        std::mem::forget(output);
        let mut input = PcapPort::open(Some(&file), None, ticking()).unwrap();
        let mut buf = vec![0; RECV_BUFFER];
        for frame in sample() {
            assert!(input.readiness().is_now());
            let meta = input.recv(&mut buf).unwrap().unwrap();
            assert_eq!(buf[..meta.len], frame);
            assert_eq!(meta.offload, Offload::default());
        }
        assert_eq!(input.recv(&mut buf).unwrap(), None);
        assert!(!input.readiness().is_now());
        assert_eq!(input.report().counters.received, sample().len() as u64);
        let refused = input.send(&sample()[5], Offload::default());
        let reason = DropReason::ReceiveOnly;
        assert!(matches!(refused, Err(SendError::Dropped(r)) if r == reason));
        assert_eq!(input.report().counters.dropped(reason), 1);
    }
}

#[test]
fn a_dropped_output_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pcap");
    let mut output = PcapPort::open(None, Some(&file), ticking()).unwrap();
    output.send(&[7; 60], Offload::default()).unwrap();
    drop(output);
    assert_eq!(read(&std::fs::read(&file).unwrap()).unwrap(), [vec![7; 60]]);
}

#[test]
fn a_missing_input_costs_no_old_output() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    std::fs::write(&out, "precious").unwrap();
    let missing = folder.path().join("missing.pcap");
    assert!(PcapPort::open(Some(&missing), Some(&out), ticking()).is_err());
    assert_eq!(std::fs::read(&out).unwrap(), b"precious");
}

#[test]
fn frames_too_long_for_the_buffer_are_counted_and_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pcap");
    std::fs::write(&file, written(CaptureFormat::Pcap, &sample())).unwrap();
    let mut input = PcapPort::open(Some(&file), None, ticking()).unwrap();
    let mut buf = [0; 60];
    let mut got = 0;
    while input.recv(&mut buf).unwrap().is_some() {
        got += 1;
    }
    assert_eq!(got, 5);
    assert_eq!(input.report().counters.dropped(DropReason::TooLong), 4);
}

#[test]
fn unfinished_checksums_are_finished_in_the_file() {
    let whole = udp(b"payload!?");
    let partial = unfinished(&whole);
    assert_ne!(partial, whole);
    let offload = Offload { checksum: Checksum::Partial, gso: None };
    for format in FORMATS {
        let mut bytes = Vec::new();
        let mut writer = CaptureWriter::new(&mut bytes, path(), format).unwrap();
        assert!(writer.write(Duration::ZERO, &partial, offload, None).unwrap());
        // No headers are found: the frame is written unchanged, and the answer says so.
        assert!(!writer.write(Duration::ZERO, &[9; 60], offload, None).unwrap());
        drop(writer);
        assert_eq!(read(&bytes).unwrap(), [whole.clone(), vec![9; 60]]);
    }
}

#[test]
fn large_frames_are_cut_in_the_file() {
    let shape = Shape::default();
    let frame = shape.frame(&[7; 2500]);
    let gso = |size| Some(Gso { kind: GsoKind::Tcpv4, size });
    for format in FORMATS {
        let mut bytes = Vec::new();
        let mut writer = CaptureWriter::new(&mut bytes, path(), format).unwrap();
        let mut write = |frame: &[u8], gso| {
            let offload = Offload { checksum: Checksum::Partial, gso };
            writer.write(Duration::ZERO, frame, offload, None).unwrap()
        };
        assert!(write(&frame, gso(1000)));
        // The first frame cannot be cut, but its checksum can be finished; the second not even
        // that.
        assert!(write(&frame, gso(0)));
        assert!(!write(&[9; 60], gso(1000)));
        drop(writer);
        let frames = read(&bytes).unwrap();
        for (frame, length) in frames.iter().zip([1000, 1000, 500, 2500]) {
            assert_eq!(frame.len(), shape.payload() + length);
            shape.check_sum(frame);
        }
        assert_eq!(frames[4..], [vec![9; 60]]);
    }
}

#[test]
fn tcpdump_reads_what_is_written() {
    if !met(&[Need::Program("tcpdump", "tcpdump")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let offload = Offload { checksum: Checksum::Partial, gso: None };
    for name in ["a.pcap", "a.pcapng"] {
        let file = folder.path().join(name);
        let mut output = PcapPort::open(None, Some(&file), ticking()).unwrap();
        output.send(&unfinished(&udp(b"12345")), offload).unwrap();
        output.send(&udp(b"1234"), Offload::default()).unwrap();
        drop(output);
        let arguments = ["-nn", "-vv", "-tt", "--nano", "-r"];
        let run = Command::new("tcpdump").args(arguments).arg(&file).output();
        let text = String::from_utf8(run.unwrap().stdout).unwrap();
        assert_eq!(text.matches("udp sum ok").count(), 2, "{text}");
        assert!(text.contains("1700000000.001000001"), "{text}");
        assert!(text.contains("1700000000.002000002"), "{text}");
        assert!(!text.contains("bad"), "{text}");
    }
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file() {
    if !met(&[Need::File("/dev/full", "the kernel")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let full = folder.path().join("full.pcap");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let refused = PcapPort::open(None, Some(&full), ticking()).unwrap_err();
    assert!(refused.to_string().contains("full.pcap: writing it failed"), "{refused}");
}

#[test]
fn the_other_byte_order_and_microseconds_are_read() {
    let mut big = words(true, &[0xa1b2_c3d4, 0x0002_0004, 0, 0, 65535, 1]);
    big.extend(words(true, &[1, 2, 3, 3]));
    big.extend([1, 2, 3]);
    assert_eq!(read(&big).unwrap(), [vec![1, 2, 3]]);

    for big_endian in [false, true] {
        let mut simple = words(big_endian, &[5]);
        simple.extend([1, 2, 3, 4, 5]);
        let cut = [words(big_endian, &[90]), (0..8).collect()].concat();
        let bytes = blocks(
            big_endian,
            &[
                section(big_endian),
                (5, vec![0; 64]),
                interface(big_endian, 1, 6),
                enhanced(big_endian, 0, &[9; 7]),
                (0x0bad, vec![1; 300_000]),
                (3, simple),
                (3, cut),
            ],
        );
        let frames = [vec![9; 7], vec![1, 2, 3, 4, 5], vec![0, 1, 2, 3, 4, 5]];
        assert_eq!(read(&bytes).unwrap(), frames);
        // Two sections of different byte order are read, each in its own.
        let mut two = bytes;
        let other = !big_endian;
        two.extend(blocks(
            other,
            &[section(other), interface(other, 1, 0), enhanced(other, 0, &[8; 4])],
        ));
        assert_eq!(read(&two).unwrap()[3], [8; 4]);
    }
}

/// Returns the description of an interface with this name.
fn named(big_endian: bool, name: &[u8]) -> (u32, Vec<u8>) {
    let (kind, mut body) = interface(big_endian, 1, 0);
    for half in [2, name.len() as u16] {
        body.extend(if big_endian { half.to_be_bytes() } else { half.to_le_bytes() });
    }
    body.extend(name);
    body.resize(body.len().next_multiple_of(4) + 4, 0);
    (kind, body)
}

#[test]
fn a_record_has_the_name_of_its_interface() {
    for big_endian in [false, true] {
        let other = !big_endian;
        let mut bytes = blocks(
            big_endian,
            &[
                section(big_endian),
                named(big_endian, b"vif1.0"),
                interface(big_endian, 1, 0),
                named(big_endian, b"\x1b[2J\nx\xff"),
                named(big_endian, &[b'n'; 300]),
                enhanced(big_endian, 0, &[9; 7]),
                enhanced(big_endian, 1, &[9; 7]),
                enhanced(big_endian, 2, &[9; 7]),
                enhanced(big_endian, 3, &[9; 7]),
            ],
        );
        // The next section counts its interfaces from 0 again.
        let next = [section(other), named(other, b"eth0"), enhanced(other, 0, &[8; 4])];
        bytes.extend(blocks(other, &next));
        let mut reader = CaptureReader::new(&bytes[..], Path::new("x")).unwrap();
        let mut found = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            found.push((record.interface, record.name.map(str::to_owned)));
        }
        let long = "n".repeat(64);
        let names = [Some("vif1.0"), None, Some("?[2J?x?"), Some(&long), Some("eth0")];
        let expected = (0..).zip(names.map(|name| name.map(str::to_owned)));
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
}

#[test]
fn a_file_truncated_at_any_byte_is_an_error_with_its_offset() {
    for format in FORMATS {
        let frames = &sample()[3..6];
        let bytes = written(format, frames);
        let (mut ends, mut whole) = (0, 0);
        for length in 0..bytes.len() {
            match read(&bytes[..length]) {
                Ok(got) => {
                    assert_eq!(got, frames[..got.len()]);
                    ends += 1;
                    whole = length;
                }
                Err(CaptureError::Truncated { offset, expected, found, .. }) => {
                    assert!(offset as usize >= whole || whole == 0);
                    assert_eq!(offset + found, length as u64);
                    assert!(found < expected && expected <= 2000);
                }
                Err(CaptureError::Magic { found, .. }) => assert_eq!(found, bytes[..length]),
                Err(other) => panic!("{length}: {other}"),
            }
        }
        // A cut between records is an end of the file: after pcap's header and two frames, and
        // after pcapng's two header blocks besides.
        assert_eq!(ends, if format == CaptureFormat::Pcap { 3 } else { 4 });
    }
}

fn refused(bytes: &[u8]) -> String {
    read(bytes).unwrap_err().to_string()
}

#[test]
fn errors_name_file_offset_and_remedy() {
    let says = |bytes: &[u8], parts: &[&str]| {
        let message = refused(bytes);
        for part in parts.iter().chain(&["test.pcap"]) {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(!message.contains('\n'));
    };
    says(b"", &["[]", "editcap"]);
    says(b"#!/bin/sh", &["23", "neither pcap nor pcapng"]);

    let header = words(false, &[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535]);
    let pcap = |rest: &[u32]| [header.clone(), words(false, rest)].concat();
    says(&pcap(&[101]), &["offset 0", "link type 101", "only Ethernet"]);
    let huge = pcap(&[1, 0, 0, u32::MAX, u32::MAX]);
    says(&huge, &["offset 24", "4294967311 bytes"]);
    let over = pcap(&[1, 0, 0, 1 << 20, 1 << 20]);
    says(&over, &["offset 24", "1048592 bytes"]);
    says(&pcap(&[1, 0, 0, 100, 100]), &["offset 24", "116 bytes", "after 16"]);
    let mut version = pcap(&[1]);
    version[4] = 3;
    says(&version, &["version"]);

    let ng = |list: &[(u32, Vec<u8>)]| {
        let mut all = vec![section(false)];
        all.extend_from_slice(list);
        blocks(false, &all)
    };
    says(&ng(&[enhanced(false, 0, &[0; 60])]), &["offset 28", "interface not described"]);
    let wifi = [interface(false, 105, 0), enhanced(false, 0, &[0; 60])];
    says(&ng(&wifi), &["offset 48", "link type 105"]);
    // A packet larger than its block.
    let mut liar = enhanced(false, 0, &[0; 60]);
    liar.1[12..16].copy_from_slice(&1000u32.to_le_bytes());
    says(&ng(&[interface(false, 1, 0), liar]), &["offset 48", "damaged"]);
    says(&ng(&[interface(false, 1, 0), (2, vec![0; 40])]), &["obsolete"]);
    let many = vec![interface(false, 1, 0); 4097];
    says(&ng(&many), &["4096 interfaces"]);
    let mut lengths = ng(&[interface(false, 1, 0)]);
    let last = lengths.len() - 4;
    lengths[last] ^= 4;
    says(&lengths, &["offset 28", "lengths differ"]);
    let mut odd = ng(&[(9, vec![0; 8])]);
    odd[32] = 13;
    says(&odd, &["offset 28", "multiple of 4"]);
    // A block that is skipped may claim gigabytes, and costs no memory.
    let mut long = ng(&[(9, vec![0; 8])]);
    long[32..36].copy_from_slice(&0xffff_fffcu32.to_le_bytes());
    says(&long, &["offset 28", "4294967292 bytes", "after 20"]);
    long[28] = 6;
    says(&long, &["offset 28", "4294967292 bytes", "at most 1048576"]);

    let extension = PcapPort::open(None, Some(Path::new("x.cap")), ticking()).unwrap_err();
    assert!(extension.to_string().contains(".pcapng"), "{extension}");
}

#[test]
fn times_past_2106_need_pcapng() {
    let late = Duration::from_secs(u64::from(u32::MAX) + 1);
    for format in FORMATS {
        let mut writer = CaptureWriter::new(Vec::new(), path(), format).unwrap();
        let result = writer.write(late, &[0; 60], Offload::default(), None);
        assert_eq!(result.is_ok(), format == CaptureFormat::PcapNg);
    }
}

proptest! {
    #[test]
    fn roundtrip(frames in proptest::collection::vec(
        prop_oneof![
            9 => proptest::collection::vec(any::<u8>(), 0..300),
            1 => (0usize..70_000).prop_map(|n| vec![0x5a; n]),
        ], 0..30)) {
        for format in FORMATS {
            prop_assert_eq!(&read(&written(format, &frames)).unwrap(), &frames);
        }
    }

    /// Any bytes behind a right magic give frames or an error, in bounded memory.
    #[test]
    fn hostile_files_never_panic(
        pick in 0usize..2,
        changes in proptest::collection::vec((0usize..4000, any::<u8>()), 0..12),
        tail in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut bytes = written(FORMATS[pick], &sample());
        let length = bytes.len();
        for (at, value) in changes {
            bytes[at % length] = value;
        }
        bytes.extend(tail);
        let mut reader = match CaptureReader::new(&bytes[..], path()) {
            Ok(reader) => reader,
            Err(_) => return Ok(()),
        };
        let mut total = 0;
        while let Ok(Some(frame)) = reader.next_frame() {
            total += frame.len();
        }
        prop_assert!(total <= bytes.len());
    }

    #[test]
    fn noise_never_panics(
        magic in prop_oneof![
            Just([0x0a, 0x0d, 0x0d, 0x0a]),
            Just([0xd4, 0xc3, 0xb2, 0xa1]),
            Just([0xa1, 0xb2, 0x3c, 0x4d]),
        ],
        rest in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = read(&[magic.to_vec(), rest].concat());
    }
}

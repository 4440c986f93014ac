//! Records: the times, interfaces and options of a capture's frames.

use super::*;

/// Returns an option of a block, padded.
fn option(big_endian: bool, code: u16, value: &[u8]) -> Vec<u8> {
    let half = |n: u16| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
    let mut all = [&half(code)[..], &half(value.len() as u16), value].concat();
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

/// Returns an interface that counts in `resolution` from `offset` seconds on.
fn counting(big_endian: bool, resolution: u8, offset: i64) -> (u32, Vec<u8>) {
    let (kind, body) = interface(big_endian, 1, 0);
    let offset = if big_endian { offset.to_be_bytes() } else { offset.to_le_bytes() };
    let options = [option(big_endian, 9, &[resolution]), option(big_endian, 14, &offset)];
    (kind, [body, options.concat(), vec![0; 4]].concat())
}

fn timed(big_endian: bool, interface: u32, ticks: u64, options: &[u8]) -> (u32, Vec<u8>) {
    let head = [interface, (ticks >> 32) as u32, ticks as u32, 5, 1500];
    (6, [&words(big_endian, &head)[..], &[1, 2, 3, 4, 5, 0, 0, 0], options].concat())
}

/// Times, interfaces, directions and first comments.
type Said = (Option<u64>, u32, u32, Option<Direction>, Vec<Vec<u8>>);

fn records(bytes: &[u8]) -> Result<Vec<Said>, CaptureError> {
    let mut reader = CaptureReader::new(bytes, path())?;
    let mut all = Vec::new();
    while let Some(record) = reader.next_record()? {
        assert!(record.length as usize >= record.frame.len());
        let comments = record.comments().map(<[u8]>::to_vec).collect();
        all.push((record.time, record.length, record.interface, record.direction(), comments));
    }
    Ok(all)
}

#[test]
fn records_have_times_interfaces_directions_and_comments() {
    for big_endian in [false, true] {
        let said = [
            option(big_endian, 1, b"one"),
            option(big_endian, 2, &if big_endian { [0, 0, 0, 2] } else { [2, 0, 0, 0] }),
            option(big_endian, 1, b"second"),
            vec![0; 4],
        ];
        let bytes = blocks(
            big_endian,
            &[
                section(big_endian),
                counting(big_endian, 9, 0),
                counting(big_endian, 0x80 | 10, -1),
                timed(big_endian, 0, 1 << 60, &said.concat()),
                timed(big_endian, 1, 3 << 10 | 1 << 9, &[]),
                // Damaged options count as none.
                timed(big_endian, 0, 7, &[1, 1, 0xff, 0xff]),
                section(big_endian),
                interface(big_endian, 1, 0),
                timed(big_endian, 0, 5, &[]),
                (3, words(big_endian, &[4, 9])),
            ],
        );
        let comments = vec![b"one".to_vec(), b"second".to_vec()];
        let expected = [
            (Some(1 << 60), 1500, 0, Some(Direction::Outbound), comments),
            (Some(2_500_000_000), 1500, 1, None, Vec::new()),
            (Some(7), 1500, 0, None, Vec::new()),
            (Some(5000), 1500, 2, None, Vec::new()),
            (None, 4, 2, None, Vec::new()),
        ];
        assert_eq!(records(&bytes).unwrap(), expected, "big-endian: {big_endian}");
    }
    for (magic, nanos) in [(0xa1b2_c3d4, 3_000_004_000), (0xa1b2_3c4d, 3_000_000_004)] {
        let file = [magic, 0x0004_0002, 0, 0, 65535, 1, 3, 4, 4, 60, 0];
        let expected = (Some(nanos), 60, 0, None, Vec::new());
        assert_eq!(records(&words(false, &file)).unwrap(), [expected]);
    }
    let frames = [vec![7; 60]];
    let time = Duration::from_millis(1_700_000_000_001) + Duration::from_nanos(1);
    for format in FORMATS {
        let read = records(&written(format, &frames)).unwrap();
        assert_eq!(u128::from(read[0].0.unwrap()), time.as_nanos());
    }
}

#[test]
fn impossible_times_are_errors_with_their_place() {
    let of = |resolution, offset, ticks| {
        let list =
            [section(false), counting(false, resolution, offset), timed(false, 0, ticks, &[])];
        records(&blocks(false, &list)).map(|said| said[0].0.unwrap()).map_err(|e| e.to_string())
    };
    assert_eq!(of(9, 0, u64::MAX), Ok(u64::MAX));
    assert_eq!(of(127, 1, u64::MAX), Ok(1_000_000_000));
    assert_eq!(of(0xff, 0, u64::MAX), Ok(0));
    assert_eq!(of(0, -5, 6), Ok(1_000_000_000));
    for (resolution, offset, ticks) in
        [(0, 0, u64::MAX), (9, -1, 5), (9, i64::MIN, 0), (9, i64::MAX, 0), (0x80, 0, u64::MAX)]
    {
        let refused = of(resolution, offset, ticks).unwrap_err();
        assert!(refused.contains("offset 72") && refused.contains("1970"), "{refused}");
    }
}

#[test]
fn records_cut_at_every_byte_are_errors_with_their_place() {
    for big_endian in [false, true] {
        let comment = [option(big_endian, 1, b"one"), vec![0; 4]].concat();
        let list = [
            section(big_endian),
            counting(big_endian, 6, 0),
            timed(big_endian, 0, 7, &comment),
            (3, words(big_endian, &[4, 9])),
            (0x0bad, vec![1; 40]),
            timed(big_endian, 0, 8, &[]),
        ];
        let bytes = blocks(big_endian, &list);
        let whole = records(&bytes).unwrap();
        assert_eq!(whole.len(), 3);
        let mut ends = 0;
        for length in 1..bytes.len() {
            match records(&bytes[..length]) {
                Ok(said) => {
                    assert_eq!(said, whole[..said.len()]);
                    ends += 1;
                }
                Err(CaptureError::Truncated { offset, expected, found, .. }) => {
                    assert!(offset + found == length as u64 && found < expected);
                    assert!(expected <= 100, "{expected}");
                }
                Err(CaptureError::Magic { found, .. }) => assert_eq!(found, bytes[..length]),
                Err(other) => panic!("{length}: {other}"),
            }
        }
        assert_eq!(ends, list.len() - 1, "between blocks");
    }
}

#[test]
fn heads_are_read_as_they_were_written() {
    let mut bytes = Vec::new();
    let mut writer = HeadsWriter::new(&mut bytes).unwrap();
    let names = ["vif1.0", "", "a name that is longer than a word"];
    for (number, name) in (0..).zip(names) {
        assert_eq!(writer.interface(name).unwrap(), number);
    }
    let frame: Vec<u8> = (0..128).collect();
    let heads = [(0, 60, "", 0), (1, 128, "grantway:ring-full", 0), (2, 0, "grantway:woken", 77)];
    let written = heads.map(|(interface, kept, comment, lost)| Head {
        time: Duration::new(1_700_000_000, 7 + interface),
        interface,
        queue: 9 * interface,
        direction: [Direction::Inbound, Direction::Outbound][interface as usize % 2],
        bytes: &frame[..kept],
        length: if kept == 0 { 0 } else { 1500 },
        comment,
        lost,
    });
    written.iter().for_each(|head| writer.write(head).unwrap());
    writer.flush().unwrap();
    let mut reader = CaptureReader::new(&bytes[..], path()).unwrap();
    for head in &written {
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!(record.time, Some(head.time.as_nanos() as u64));
        assert_eq!((record.interface, record.queue()), (head.interface, Some(head.queue)));
        assert_eq!(record.direction(), Some(head.direction));
        assert_eq!((record.frame, record.length), (head.bytes, head.length));
        assert_eq!(record.lost(), head.lost);
        let comments: Vec<_> = record.comments().collect();
        assert_eq!(comments.concat(), head.comment.as_bytes());
    }
    assert!(reader.next_record().unwrap().is_none());
}

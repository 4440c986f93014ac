use super::*;
use proptest::prelude::*;

#[test]
fn numbers_are_those_of_xs_wire_h() {
    let mut expected: Vec<u32> = (0..=22).collect();
    expected.retain(|n| *n != 20);
    let found: Vec<u32> = MessageType::ALL.iter().map(|t| t.number()).collect();
    assert_eq!(found, expected);
    for n in 0..100 {
        let known = MessageType::from_wire(n);
        assert_eq!(known.map(MessageType::number), expected.contains(&n).then_some(n));
    }
    assert_eq!(MessageType::from_wire(0xffff), None);
}

#[test]
fn a_header_is_four_little_endian_words() {
    let header = Header { kind: 11, req_id: 0x0102_0304, tx_id: 5, len: 6 };
    let bytes = [11, 0, 0, 0, 4, 3, 2, 1, 5, 0, 0, 0, 6, 0, 0, 0];
    assert_eq!(header.to_bytes(), bytes);
    assert_eq!(Header::from_bytes(&bytes), header);
}

#[test]
fn strings_need_their_nuls() {
    assert_eq!(strings(b""), Some(vec![]));
    assert_eq!(strings(b"\0"), Some(vec![&b""[..]]));
    assert_eq!(strings(b"a\0\0"), Some(vec![&b"a"[..], b""]));
    assert_eq!(strings(b"a\0b"), None);
}

#[test]
fn a_long_payload_is_refused_on_both_sides() {
    let long = vec![0; PAYLOAD_MAX + 1];
    assert_eq!(encode(11, 0, 0, &[&long]), Err(TooLong { found: PAYLOAD_MAX + 1 }));
    assert!(encode(11, 0, 0, &[&long[1..]]).is_ok());

    let mut decoder = Decoder::new();
    let header = Header { kind: 2, req_id: 0, tx_id: 0, len: u32::MAX };
    decoder.push(&header.to_bytes()[..15]);
    assert_eq!(decoder.next_message(), Ok(None));
    decoder.push(&header.to_bytes()[15..]);
    assert!(decoder.next_message().is_err());
    decoder.push(&[0; 64]);
    assert_eq!(decoder.held(), 0);
    assert!(decoder.next_message().is_err());
}

fn messages() -> impl Strategy<Value = Vec<(u32, u32, u32, Vec<u8>)>> {
    let payload = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        prop::collection::vec(any::<u8>(), PAYLOAD_MAX - 2..=PAYLOAD_MAX),
    ];
    prop::collection::vec((0_u32..30, any::<u32>(), any::<u32>(), payload), 0..8)
}

proptest! {
    #[test]
    fn any_split_gives_the_same_messages(
        sent in messages(),
        cuts in prop::collection::vec(1_usize..5000, 1..50),
    ) {
        let mut stream = Vec::new();
        for (kind, req, tx, payload) in &sent {
            stream.extend(encode(*kind, *req, *tx, &[payload]).unwrap());
        }
        let mut decoder = Decoder::new();
        let mut found = Vec::new();
        let mut rest = &stream[..];
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let at = (*cuts.next().unwrap()).min(rest.len());
            let (now, later) = rest.split_at(at);
            rest = later;
            decoder.push(now);
            while let Some(m) = decoder.next_message().unwrap() {
                prop_assert_eq!(m.header.len as usize, m.payload.len());
                found.push((m.header.kind, m.header.req_id, m.header.tx_id, m.payload));
            }
            prop_assert!(decoder.held() < HEADER_LEN + PAYLOAD_MAX);
        }
        prop_assert_eq!(found, sent);
        prop_assert_eq!(decoder.held(), 0);
    }

    #[test]
    fn hostile_bytes_neither_panic_nor_pile_up(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..20),
    ) {
        let mut decoder = Decoder::new();
        for chunk in chunks {
            decoder.push(&chunk);
            while let Ok(Some(_)) = decoder.next_message() {}
            prop_assert!(decoder.held() < HEADER_LEN + PAYLOAD_MAX);
        }
    }
}

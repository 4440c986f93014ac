//! One slot, one value: nothing is lost, nothing leaks.

use grantway_netif::ctrl::{
    CtrlRequest, CtrlResponse, GrefEntry, GrefFlags, HashTypes, Message, Status, UnknownMessage,
    kind,
};
use grantway_netif::extra::{self, Extra, Hash};
use grantway_netif::keys::{self, QueueKey, queue_key, queue_path};
use grantway_netif::rx::{RxFlags, RxRequest, RxResponse};
use grantway_netif::state::XenbusState;
use grantway_netif::tx::{TxFlags, TxRequest, TxResponse, status};
use grantway_netif::{Gso, GsoKind, ring_entries};
use proptest::prelude::*;

proptest! {
    #[test]
    fn full_slots_come_back(words in any::<[u32; 4]>()) {
        let [a, b, c, _] = words;
        prop_assert_eq!(TxRequest::from_words([a, b, c]).to_words(), [a, b, c]);
        prop_assert_eq!(RxResponse::from_words([a, b]).to_words(), [a, b]);
        prop_assert_eq!(CtrlRequest::from_words(words).to_words(), words);
        prop_assert_eq!(GrefEntry::from_words([a, b]).to_words(), [a, b]);
    }

    #[test]
    fn padding_is_zero_whatever_was_there(words in any::<[u32; 4]>()) {
        // XSA-216: whole zeroed slots, nothing of ours in the unused part.
        let [a, b, c, _] = words;
        prop_assert_eq!(TxResponse::from_words([a, b, c]).to_words(), [a, 0, 0]);
        prop_assert_eq!(CtrlResponse::from_words(words).to_words(), [a, b, c, 0]);
        prop_assert_eq!(RxRequest::from_words([a, b]).to_words(), [a & 0xffff, b]);
    }

    #[test]
    fn extras_come_back(words in any::<[u32; 2]>(), found in 0u32..8, gso in 0u32..4) {
        for words in [words, [words[0] & !0xff | found, words[1] & !0xff | gso]] {
            let Ok((value, more)) = Extra::from_words(words) else { continue };
            prop_assert_eq!(Extra::from_words(value.to_rx_words(more)), Ok((value, more)));
            prop_assert_eq!(Extra::from_tx_words(value.to_tx_words(more)), Ok((value, more)));
            prop_assert_eq!(value.to_tx_words(more)[2], 0);
            prop_assert_eq!(extra::has_more(words), more);
        }
    }

    #[test]
    fn messages_come_back(id in any::<u16>(), kind in 0u16..12, data in any::<[u32; 3]>()) {
        let request = CtrlRequest { id, kind, data };
        match request.message() {
            Ok(message) => {
                let again = message.request(id);
                prop_assert_eq!((again.id, again.kind), (id, kind));
                prop_assert_eq!(again.message(), Ok(message));
            }
            Err(error) => {
                prop_assert!(kind == 0 || kind > 10);
                prop_assert_eq!(error, UnknownMessage { found: kind });
            }
        }
    }

    #[test]
    fn any_state_node_is_read_without_harm(text in any::<Vec<u8>>()) {
        if let Ok(state) = XenbusState::from_store(&text) {
            prop_assert_eq!(XenbusState::from_store(state.as_str().as_bytes()), Ok(state));
        }
    }
}

#[test]
fn extras_have_their_bytes_in_place() {
    let gso = Gso { kind: GsoKind::Tcpv6, size: 0x0201 };
    let bytes = |words: [u32; 2]| {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&words[0].to_le_bytes());
        bytes[4..].copy_from_slice(&words[1].to_le_bytes());
        bytes
    };
    let words = Extra::Gso(gso.try_into().unwrap(), 0x0403).to_rx_words(true);
    assert_eq!(bytes(words), [1, 1, 1, 2, 2, 0, 3, 4]);
    let words = Extra::McastAdd([10, 11, 12, 13, 14, 15]).to_rx_words(false);
    assert_eq!(bytes(words), [2, 0, 10, 11, 12, 13, 14, 15]);
    let words = Extra::McastDel([10, 11, 12, 13, 14, 15]).to_rx_words(true);
    assert_eq!(bytes(words), [3, 1, 10, 11, 12, 13, 14, 15]);
    let hash = Hash { kind: 3, algorithm: 1, value: 0x0403_0201 };
    let words = Extra::Hash(hash).to_rx_words(false);
    assert_eq!(bytes(words), [4, 0, 3, 1, 1, 2, 3, 4]);
    let words = Extra::Xdp { headroom: 0x0100 }.to_rx_words(false);
    assert_eq!(bytes(words), [5, 0, 0, 1, 0, 0, 0, 0]);
}

#[test]
fn statuses_are_signed() {
    for status in [status::OKAY, status::ERROR, status::DROPPED, status::NULL] {
        let response = TxResponse { id: 0xffff, status };
        assert_eq!(TxResponse::from_words(response.to_words()), response);
    }
    let response =
        RxResponse { status: status::DROPPED, flags: RxFlags::all(), ..RxResponse::default() };
    assert_eq!(RxResponse::from_words(response.to_words()), response);
}

#[test]
fn unknown_flags_are_kept() {
    let flags = TxFlags::from_bits_retain(0x8001);
    let request = TxRequest { flags, ..TxRequest::default() };
    let again = TxRequest::from_words(request.to_words());
    assert!(again.flags.contains(TxFlags::CSUM_BLANK));
    assert_eq!(again.flags.bits(), 0x8001);
    let flags = GrefFlags::from_bits_retain(3);
    let entry = GrefEntry { flags, ..GrefEntry::default() };
    assert_eq!(GrefEntry::from_words(entry.to_words()).flags, flags);
    assert!(!GrefFlags::all().contains(flags), "so it can be refused");
    let message = Message::SetHashFlags { types: HashTypes::from_bits_retain(0x10) };
    assert_eq!(message.request(1).message(), Ok(message));
}

#[test]
fn control_answers_name_their_request() {
    let request = Message::AddGrefMapping { queue: 1, list: 2, entries: 3 }.request(9);
    assert_eq!((request.kind, request.data), (kind::ADD_GREF_MAPPING, [1, 2, 3]));
    let answer = request.answer(Status::InvalidParameter, 0);
    assert_eq!((answer.id, answer.kind, answer.status), (9, 9, 2));
    assert_eq!(answer.status(), Some(Status::InvalidParameter));
    assert_eq!(Status::from_u32(4), None);
    for number in 0..4 {
        assert_eq!(Status::from_u32(number).map(Status::to_u32), Some(number));
    }
}

#[test]
fn rings_have_a_power_of_two() {
    let entries = [0, 1, 8, 12, 16, 4032, 4033, usize::MAX].map(ring_entries);
    assert_eq!(entries, [0, 2048, 256, 256, 128, 1, 0, 0]);
}

#[test]
fn queue_paths() {
    assert_eq!(queue_key(3).as_str(), "queue-3");
    assert_eq!(queue_key(u32::MAX).as_str(), "queue-4294967295");
    for key in QueueKey::ALL {
        assert_eq!(queue_path(0, 1, key).as_str(), key.as_str());
        let long = format!("queue-{}/{}", u32::MAX, key.as_str());
        assert_eq!(queue_path(u32::MAX, 2, key).as_str(), long);
    }
    assert_eq!(queue_path(3, 4, QueueKey::TxRingRef).as_str(), "queue-3/tx-ring-ref");
    assert_eq!(keys::FEATURE_PERSISTENT, "feature-persistent");
    assert_eq!(keys::FEATURE_STAGING, "feature-staging");
}

#[test]
fn states_are_read_and_written() {
    for (number, state) in XenbusState::ALL.into_iter().enumerate() {
        assert_eq!(state as usize, number);
        assert_eq!(state.as_str(), number.to_string());
        for text in [format!("{number}"), format!(" {number}\n"), format!("00{number}\0")] {
            assert_eq!(XenbusState::from_store(text.as_bytes()), Ok(state));
        }
    }
    for text in ["", " ", "\0", "9", "-1", "4x", "44444444444444444444444", "٤"] {
        let error = XenbusState::from_store(text.as_bytes()).unwrap_err();
        assert_eq!(error.length, text.len());
    }
    assert_eq!(XenbusState::InitWait.to_string(), "InitWait");
}

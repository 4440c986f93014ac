//! Target: single slots of both rings, and the content of a `state` node.

use grantway_netif::XenbusState;
use grantway_netif::extra::{Extra, ExtraError, has_more, kind};
use grantway_netif::rx::{RxRequest, RxResponse};
use grantway_netif::tx::{TxRequest, TxResponse};

pub(super) fn run(data: &[u8]) {
    for chunk in data.chunks_exact(8) {
        let word = |at: usize| {
            u32::from_le_bytes([chunk[at], chunk[at + 1], chunk[at + 2], chunk[at + 3]])
        };
        slot([word(0), word(4)]);
    }
    state(data);
}

/// Checks that a slot is parsed, and comes back when it is written.
fn slot(words: [u32; 2]) {
    let [first, second] = words;
    let found = first as u8;
    match Extra::from_words(words) {
        Ok((extra, more)) => {
            assert_eq!(more, has_more(words));
            assert!((kind::GSO..=kind::XDP).contains(&found));
            // Bits with a meaning come back, and all others are zero.
            let meant = match found {
                kind::GSO => 0xffff_00ff,
                kind::XDP => 0,
                _ => u32::MAX,
            };
            assert_eq!(extra.to_rx_words(more), [first & 0xffff_01ff, second & meant]);
            let tx = extra.to_tx_words(more);
            assert_eq!(tx[2], 0);
            assert_eq!(Extra::from_tx_words(tx), Ok((extra, more)));
            if let Extra::Gso(gso, _) = extra {
                assert!(gso.size > 0);
            }
        }
        Err(ExtraError::UnknownType { found: said }) => {
            assert!(said == found && !(kind::GSO..=kind::XDP).contains(&found));
        }
        Err(ExtraError::ZeroGsoSize) => assert!(found == kind::GSO && first >> 16 == 0),
        Err(ExtraError::UnknownGsoKind { found: said }) => {
            assert!(found == kind::GSO && said == second as u8 && !(1..=2).contains(&said));
        }
    }
    // Requests and answers come back, without the bits that have no meaning.
    let tx = [first, second, first.rotate_left(7)];
    assert_eq!(TxRequest::from_words(tx).to_words(), tx);
    assert_eq!(TxResponse::from_words(tx).to_words(), [first, 0, 0]);
    assert_eq!(RxRequest::from_words(words).to_words(), [first & 0xffff, second]);
    assert_eq!(RxResponse::from_words(words).to_words(), words);
}

fn state(text: &[u8]) {
    let number = std::str::from_utf8(text.strip_suffix(b"\0").unwrap_or(text))
        .ok()
        .map(|text| text.trim_matches(|c: char| c.is_ascii_whitespace()))
        // The standard library would accept a sign.
        .filter(|text| !text.starts_with('+'))
        .and_then(|text| text.parse::<u128>().ok());
    let expected = number.and_then(|n| XenbusState::ALL.get(usize::try_from(n).ok()?)).copied();
    match XenbusState::from_store(text) {
        Ok(state) => {
            assert_eq!(expected, Some(state));
            assert_eq!(XenbusState::from_store(state.as_str().as_bytes()), Ok(state));
        }
        Err(error) => {
            assert_eq!((error.length, expected), (text.len(), None));
        }
    }
}

//! The hash against the vectors that Microsoft publishes for RSS, against a
//! hash that goes bit by bit, and against frames of every kind.

use grantway_netif::Hash;
use grantway_netif::ctrl::{HashTypes, algorithm};
use grantway_netif::toeplitz::{INPUT_BYTES, KEY_BYTES, Toeplitz};
use proptest::prelude::*;
use std::net::IpAddr;

/// The key of the published vectors.
const KEY: [u8; KEY_BYTES] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// Destination, source, hash of the addresses, hash of addresses and ports
/// ("Verifying the RSS Hash Calculation", Windows driver documentation).
const VECTORS: [(&str, u16, &str, u16, u32, u32); 8] = [
    ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e_8fc2, 0x51cc_c178),
    ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718_262a, 0xc626_b0ea),
    ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0_a5de, 0x5c2b_394a),
    ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x8298_9176, 0xafc7_327f),
    ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d18_09c5, 0x10e8_28a2),
    ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
    ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
    (
        "fe80::200:f8ff:fe21:67cf",
        38024,
        "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
        44251,
        0x4b61_e985,
        0x02d1_feef,
    ),
];

fn bytes(address: &str) -> Vec<u8> {
    match address.parse().unwrap() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A frame of a vector, of this protocol.
fn frame(vector: usize, protocol: u8, tags: usize, fragment: bool) -> Vec<u8> {
    let (to, to_port, from, from_port, ..) = VECTORS[vector];
    let (to, from) = (bytes(to), bytes(from));
    let mut frame = vec![2; 12];
    frame.extend([0x81, 0, 0, 7].repeat(tags));
    if to.len() == 4 {
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 1, if fragment { 0x20 } else { 0 }, 0]);
        frame.extend([64, protocol, 0, 0]);
    } else if fragment {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 28, 44, 64]);
    } else {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, protocol, 64]);
    }
    frame.extend(from.iter().chain(&to));
    if to.len() == 16 && fragment {
        frame.extend([protocol, 0, 0, 1, 0, 0, 0, 9]);
    }
    frame.extend(from_port.to_be_bytes());
    frame.extend(to_port.to_be_bytes());
    frame.resize(frame.len() + 16, 0);
    frame
}

#[test]
fn the_published_vectors() {
    let toeplitz = Toeplitz::new(&KEY);
    for (to, to_port, from, from_port, plain, tcp) in VECTORS {
        let mut input = bytes(from);
        input.extend(bytes(to));
        assert_eq!(toeplitz.hash(&input), plain, "{from} to {to}");
        input.extend(from_port.to_be_bytes());
        input.extend(to_port.to_be_bytes());
        assert_eq!(toeplitz.hash(&input), tcp, "{from}:{from_port} to {to}:{to_port}");
    }
}

#[test]
fn the_most_specific_enabled_type_wins() {
    let toeplitz = Toeplitz::new(&KEY);
    for (number, (.., plain, tcp)) in VECTORS.into_iter().enumerate() {
        let v6 = number >= 5;
        let (kind_plain, kind_tcp) = if v6 { (2, 3) } else { (0, 1) };
        let (bit_plain, bit_tcp) = match v6 {
            false => (HashTypes::IPV4, HashTypes::IPV4_TCP),
            true => (HashTypes::IPV6, HashTypes::IPV6_TCP),
        };
        let of = |kind, value| Some(Hash { kind, algorithm: algorithm::TOEPLITZ, value });
        let (tcp_hash, plain_hash) = (of(kind_tcp, tcp), of(kind_plain, plain));
        for tags in 0..3 {
            let hash = |protocol, fragment, types| {
                toeplitz.hash_frame(&frame(number, protocol, tags, fragment), types)
            };
            assert_eq!(hash(6, false, HashTypes::all()), tcp_hash);
            assert_eq!(hash(6, false, bit_tcp), tcp_hash);
            assert_eq!(hash(6, false, bit_plain), plain_hash);
            for (protocol, fragment) in [(17, false), (6, true), (1, false)] {
                assert_eq!(hash(protocol, fragment, HashTypes::all()), plain_hash);
                assert_eq!(hash(protocol, fragment, bit_tcp), None);
            }
            let others = HashTypes::all().difference(bit_plain | bit_tcp);
            assert_eq!(hash(6, false, others), None);
        }
    }
    let arp = [&[0xff; 12][..], &[8, 6], &[0; 46]].concat();
    assert_eq!(toeplitz.hash_frame(&arp, HashTypes::all()), None);
}

/// Calculates the hash as the definition reads: bit by bit.
fn by_bits(key: &[u8], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], at: usize| {
        bytes.get(at / 8).is_some_and(|byte| byte & (0x80 >> (at % 8)) != 0)
    };
    let window = |at: usize| (at..at + 32).fold(0, |sum, at| sum << 1 | u32::from(bit(key, at)));
    (0..input.len() * 8).filter(|&at| bit(input, at)).fold(0, |sum, at| sum ^ window(at))
}

proptest! {
    #[test]
    fn as_the_definition_for_any_key(
        key in prop::collection::vec(any::<u8>(), 0..=KEY_BYTES),
        input in prop::collection::vec(any::<u8>(), 0..=INPUT_BYTES),
    ) {
        let toeplitz = Toeplitz::new(&key);
        prop_assert_eq!(toeplitz.hash(&input), by_bits(&key, &input));
        // What is too long is cut, in key and input.
        let long = [&input[..], &[0xff; INPUT_BYTES]].concat();
        let cut = &long[..INPUT_BYTES];
        prop_assert_eq!(toeplitz.hash(&long), by_bits(&key, cut));
        let mut padded = key.clone();
        padded.resize(KEY_BYTES, 0);
        padded.extend([0xff; 8]);
        prop_assert_eq!(&Toeplitz::new(&padded), &toeplitz);
        prop_assert_eq!(Toeplitz::new(&[]).hash(&input), 0);
    }

    #[test]
    fn any_frame_is_hashed_without_harm(
        number in 0..VECTORS.len(),
        cut in 0usize..100,
        at in 12usize..70,
        byte in any::<u8>(),
        types in 0u32..16,
    ) {
        let mut frame = frame(number, 6, 0, false);
        frame.truncate(cut);
        if let Some(place) = frame.get_mut(at) {
            *place = byte;
        }
        let types = HashTypes::from_bits_retain(types);
        if let Some(hash) = Toeplitz::new(&KEY).hash_frame(&frame, types) {
            prop_assert!(hash.kind < 4 && types.bits() & 1 << hash.kind != 0);
        }
    }
}

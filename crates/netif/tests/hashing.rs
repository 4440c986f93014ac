//! Hash settings of a frontend, against a model that is plain lists.

use grantway_netif::Hash;
use grantway_netif::ctrl::{BadList, GrefEntry, GrefFlags, HashTypes, Status, check_added};
use grantway_netif::hashing::{Hashing, MAPPING_MAX};
use grantway_netif::toeplitz::{KEY_BYTES, Toeplitz};
use proptest::prelude::*;

const INVALID: Result<(), Status> = Err(Status::InvalidParameter);

#[test]
fn nothing_is_hashed_until_algorithm_and_types_are_set() {
    let mut hashing = Hashing::new(4);
    assert_eq!(hashing.offered(), Err(Status::NotSupported));
    assert_eq!(hashing.set_types(HashTypes::IPV4), INVALID);
    assert_eq!(hashing.set_algorithm(2), INVALID);
    assert_eq!(hashing.set_algorithm(256), INVALID);
    assert_eq!(hashing.set_algorithm(1), Ok(()));
    assert_eq!(hashing.offered(), Ok(HashTypes::all()));
    assert_eq!(hashing.steering(), None);
    assert_eq!(hashing.set_types(HashTypes::from_bits_retain(0x11)), INVALID);
    assert_eq!(hashing.set_types(HashTypes::all()), Ok(()));
    assert!(hashing.steering().is_some());
    hashing.set_algorithm(0).unwrap();
    assert_eq!((hashing.steering(), hashing.offered()), (None, Err(Status::NotSupported)));
}

#[test]
fn xsa_270_a_table_is_judged_whole_before_it_is_committed() {
    let mut hashing = Hashing::new(4);
    hashing.set_mapping_size(8).unwrap();
    hashing.set_mapping(0, &[1, 2, 3, 0, 1, 2, 3, 0]).unwrap();
    let before = hashing.clone();
    assert_eq!(hashing.set_mapping(2, &[0, 0, 4]), INVALID);
    assert_eq!(hashing.set_mapping(2, &[0, u32::MAX]), INVALID);
    assert_eq!(hashing.set_mapping(7, &[0, 0]), INVALID);
    assert_eq!(hashing.set_mapping(usize::MAX, &[0, 0]), INVALID);
    assert_eq!(hashing.mapping_part(u32::MAX, 2), Err(Status::InvalidParameter));
    assert_eq!(hashing.mapping_part(2, u32::MAX), Err(Status::InvalidParameter));
    assert_eq!(hashing.set_mapping_size(MAPPING_MAX as u32 + 1), INVALID);
    assert_eq!(hashing, before);
    hashing.set_mapping_size(3).unwrap();
    assert_eq!(hashing.mapping(), [0, 0, 0], "a new table is zero-filled");
}

#[test]
fn lists_of_grants_are_judged_before_anything_is_mapped() {
    let entry = |gref| GrefEntry { gref, ..GrefEntry::default() };
    let list: Vec<_> = (8..520).map(entry).collect();
    assert_eq!(check_added(&list, 8), Ok(()));
    assert_eq!(check_added(&list[..0], 8), Err(BadList::Length { found: 0 }));
    let long: Vec<_> = (8..521).map(entry).collect();
    assert_eq!(check_added(&long, 8), Err(BadList::Length { found: 513 }));
    let reserved = BadList::Reserved { entry: 1, gref: 7, first_free: 8 };
    assert_eq!(check_added(&[entry(8), entry(7)], 8), Err(reserved));
    let twice = BadList::Twice { entry: 2, gref: 9 };
    assert_eq!(check_added(&[entry(9), entry(10), entry(9)], 8), Err(twice));
    let flags = |bits| GrefEntry { flags: GrefFlags::from_bits_retain(bits), ..entry(9) };
    assert_eq!(check_added(&[flags(1)], 8), Ok(()));
    assert_eq!(check_added(&[flags(3)], 8), Err(BadList::Flags { entry: 0, found: 3 }));
}

#[derive(Debug, Clone)]
enum Change {
    Algorithm(u32),
    Types(u32),
    Key(Vec<u8>),
    Size(u32),
    Part(usize, Vec<u32>),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0u32..3).prop_map(Change::Algorithm),
        (0u32..20).prop_map(Change::Types),
        prop::collection::vec(any::<u8>(), 0..=KEY_BYTES + 2).prop_map(Change::Key),
        (0u32..=MAPPING_MAX as u32 + 2).prop_map(Change::Size),
        (0usize..20, prop::collection::vec(0u32..6, 0..20))
            .prop_map(|(at, part)| Change::Part(at, part)),
    ]
}

proptest! {
    #[test]
    fn refused_changes_change_nothing(
        queues in 1u16..6,
        changes in prop::collection::vec(change(), 0..30),
        value in any::<u32>(),
    ) {
        let mut hashing = Hashing::new(queues);
        let (mut toeplitz, mut types, mut key, mut table) = (false, 0, Vec::new(), Vec::new());
        for change in changes {
            let before = hashing.clone();
            let done = match change.clone() {
                Change::Algorithm(number) => {
                    if number < 2 {
                        toeplitz = number == 1;
                    }
                    hashing.set_algorithm(number)
                }
                Change::Types(bits) => {
                    if toeplitz && bits < 16 {
                        types = bits;
                    }
                    hashing.set_types(HashTypes::from_bits_retain(bits))
                }
                Change::Key(bytes) => {
                    if bytes.len() <= KEY_BYTES {
                        key = bytes.clone();
                    }
                    prop_assert_eq!(
                        Hashing::key_length(bytes.len() as u32).is_ok(),
                        bytes.len() <= KEY_BYTES
                    );
                    hashing.set_key(&bytes)
                }
                Change::Size(entries) => {
                    if entries as usize <= MAPPING_MAX {
                        table = vec![0; entries as usize];
                    }
                    hashing.set_mapping_size(entries)
                }
                Change::Part(at, part) => {
                    let fits = at + part.len() <= table.len();
                    let asked = hashing.mapping_part(part.len() as u32, at as u32);
                    prop_assert_eq!(asked.is_ok(), fits && !part.is_empty());
                    if fits && part.iter().all(|&queue| queue < u32::from(queues)) {
                        table[at..at + part.len()].copy_from_slice(&part);
                    }
                    hashing.set_mapping(at, &part)
                }
            };
            if done.is_err() {
                prop_assert_eq!(&hashing, &before, "{:?}", change);
            }
        }
        let mut whole = key.clone();
        whole.resize(KEY_BYTES, 0);
        prop_assert_eq!(hashing.key()[..].to_vec(), whole);
        prop_assert_eq!(u32::from(hashing.algorithm()), u32::from(toeplitz));
        prop_assert_eq!(hashing.types().bits(), types);
        let mapping: Vec<u32> = hashing.mapping().iter().map(|&queue| queue.into()).collect();
        prop_assert_eq!(&mapping, &table);
        let steering = hashing.steering();
        prop_assert_eq!(steering.is_some(), toeplitz && types != 0);
        if let Some(steering) = steering {
            let queue = steering.queue(Some(Hash { value, ..Hash::default() }));
            let expected = match table.len() {
                0 => value % u32::from(queues),
                len => table[value as usize % len],
            };
            prop_assert_eq!(u32::from(queue), expected);
            let of_none = if table.is_empty() { 0 } else { table[0] };
            prop_assert_eq!(u32::from(steering.queue(None)), of_none);
            let frame = [&[0; 12][..], &[8, 0, 0x45], &[1; 40]].concat();
            let hash = steering.hash(&frame).map(|hash| hash.value);
            prop_assert!(hash.is_none_or(|hash| hash == Toeplitz::new(&key).hash(&[1; 8])));
        }
    }
}

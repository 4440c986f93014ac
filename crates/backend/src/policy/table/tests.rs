//! Tests against a model, and against references that a guest chose to do harm.

use super::*;
use grantway_ring::SharedRun;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn mapping(run: u32) -> Mapping {
    let page = SharedRun::private(1).page(0).unwrap();
    Mapping::new(page, Access::ReadWrite, run, 0)
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u32, u32),
    Remove(u32),
    Find(u32),
    Drain,
}

/// Returns references near each other, far apart, reserved ones and the last.
fn gref() -> impl Strategy<Value = u32> {
    prop_oneof![0..80u32, (0..80u32).prop_map(|n| n << 16), (0..4u32).prop_map(|n| u32::MAX - n)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (gref(), any::<u32>()).prop_map(|(gref, run)| Step::Insert(gref, run)),
        4 => gref().prop_map(Step::Remove),
        4 => gref().prop_map(Step::Find),
        1 => Just(Step::Drain),
    ]
}

proptest! {
    #[test]
    fn the_table_behaves_like_a_map(limit in 1..60usize, secret: u64, steps in prop::collection::vec(step(), 1..300)) {
        let mut table = GrefTable::new(limit, secret);
        let mut model: BTreeMap<u32, u32> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Insert(gref, run) => {
                    let known = model.contains_key(&gref);
                    let took = table.insert(GrantRef(gref), mapping(run));
                    let fits = gref >= 8 && (known || model.len() < limit);
                    prop_assert_eq!(took.is_ok(), fits);
                    if let Ok(old) = took {
                        prop_assert_eq!(old.map(|m| m.run), model.insert(gref, run));
                    }
                }
                Step::Remove(gref) => {
                    let removed = table.remove(GrantRef(gref)).map(|m| m.run);
                    prop_assert_eq!(removed, model.remove(&gref));
                }
                Step::Find(gref) => {
                    let found = table.find(GrantRef(gref)).map(|m| m.run);
                    prop_assert_eq!(found, model.get(&gref).copied());
                }
                Step::Drain => {
                    let mut runs: Vec<_> = table.drain().into_iter().map(|m| m.run).collect();
                    let mut expected: Vec<_> = std::mem::take(&mut model).into_values().collect();
                    runs.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(runs, expected);
                }
            }
            prop_assert_eq!((table.len(), table.room()), (model.len(), limit - model.len()));
        }
        // Everything that is left is found.
        for (&gref, &run) in &model {
            prop_assert_eq!(table.peek(GrantRef(gref)).map(|m| m.run), Some(run));
        }
    }
}

#[test]
fn any_references_fit_into_the_table() {
    let patterns: [fn(u32) -> u32; 6] = [
        |n| 8 + n,
        |n| 8 + n * 16,
        |n| 8 + n * 4096,
        |n| (n + 1) << 20,
        |n| u32::MAX - n * 257,
        |n| (n + 1).wrapping_mul(0x9e37_79b9) | 8,
    ];
    for (which, pattern) in patterns.into_iter().enumerate() {
        for secret in [0, 1, u64::MAX, secret(), secret()] {
            let mut table = GrefTable::new(1024, secret);
            for n in 0..1024 {
                let took = table.insert(GrantRef(pattern(n)), mapping(n));
                assert!(took.is_ok_and(|old| old.is_none()), "pattern {which}, number {n}");
            }
            for n in 0..1024 {
                let found = table.find(GrantRef(pattern(n))).map(|mapping| mapping.run);
                assert_eq!(found, Some(n), "pattern {which}");
            }
            assert!(table.insert(GrantRef(0x7777_7777), mapping(0)).is_err(), "it was full");
        }
    }
}

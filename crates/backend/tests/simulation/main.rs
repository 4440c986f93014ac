//! Whole conversations in one thread: the real backend and the real frontends,
//! over a hypervisor and a store that are stepped, in an order that a seed
//! chooses. Processes are killed between any two calls, vifs are taken away and
//! come back, time passes. Whatever happens, no frame comes twice or damaged;
//! who was not disturbed loses none; in the end everybody is served, and when
//! all have gone nothing is left. In every third conversation two or three guests are
//! hostile: to the others nothing changes by it.
//!
//! `GRANTWAY_SEED=N cargo test -p grantway-backend --test simulation` repeats a
//! conversation, and `GRANTWAY_SEEDS=N` says how many there are: ten thousand by default.

#[path = "../support/mod.rs"]
mod support;

mod backend;
mod conversation;
mod enemy;
mod guest;
mod held;
mod lists;
mod port;
mod stalls;
mod told;
mod xen;

use conversation::Conversation;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use support::toolstack;
use told::Told;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number")))
}

/// Runs conversations by their seeds on all processors, and returns their number. Prints the
/// story and the seed of the first that fails.
fn run_all<C>(
    usual: u64,
    new: impl Fn(u64) -> C + Sync,
    run: impl Fn(&mut C) + Sync,
    story: impl Fn(&C) -> String + Sync,
) -> u64 {
    let asked = setting("GRANTWAY_SEEDS");
    let (first, count) = match setting("GRANTWAY_SEED") {
        Some(seed) => (seed, 1),
        None => (1, asked.unwrap_or(usual)),
    };
    let done = AtomicU64::new(0);
    let next = AtomicU64::new(first);
    let failed = AtomicBool::new(false);
    let work = || {
        while !failed.load(SeqCst) {
            let seed = next.fetch_add(1, SeqCst);
            if seed >= first + count {
                return;
            }
            done.fetch_add(1, SeqCst);
            let mut conversation = new(seed);
            let run = std::panic::AssertUnwindSafe(|| run(&mut conversation));
            if std::panic::catch_unwind(run).is_err() {
                failed.store(true, SeqCst);
                eprintln!("{}", story(&conversation));
                eprintln!("GRANTWAY_SEED={seed}");
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    assert!(!failed.load(SeqCst), "see above");
    done.into_inner()
}

#[test]
fn conversations() {
    let told = Mutex::new(Told::default());
    let run = |conversation: &mut Conversation| {
        let this = conversation.run();
        told.lock().unwrap().add(&this);
    };
    let count = run_all(10_000, Conversation::new, run, Conversation::story);
    let told = told.into_inner().unwrap();
    println!("{count} conversations: {told:?}");
    if count >= 1000 {
        told.holds_enough(count);
    }
}

#[test]
fn lists_against_a_model() {
    let told = Mutex::new(lists::Told::default());
    let run = |conversation: &mut lists::Conversation| {
        let this = conversation.run();
        told.lock().unwrap().add(&this);
    };
    let count = run_all(600, lists::Conversation::new, run, lists::Conversation::story);
    let told = told.into_inner().unwrap();
    println!("{count} conversations about lists: {told:?}");
    if count >= 500 {
        told.holds_enough(count);
    }
}

#[test]
fn a_seed_gives_the_same_conversation_each_time() {
    for seed in 1..20 {
        let [one, other] = [(); 2].map(|()| {
            let mut conversation = Conversation::new(seed);
            conversation.run();
            conversation.story()
        });
        assert_eq!(one, other, "seed {seed}");
    }
}

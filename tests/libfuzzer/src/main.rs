//! libFuzzer with one of the targets of `grantway-fuzz`, which `GRANTWAY_FUZZ_TARGET` names.
//! The other arguments are libFuzzer's own. `scripts/fuzz` builds this program with counters,
//! and calls it.
#![no_main]
#![forbid(unsafe_code)]

use grantway_fuzz::targets::{self, Tally, Target};
use libfuzzer_sys::fuzz_target;
use rustix::process::{Signal, getpid, kill_process};
use std::sync::{LazyLock, Once};
use std::time::{Duration, Instant};

/// Target that this process fuzzes.
static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("GRANTWAY_FUZZ_TARGET").unwrap_or_default();
    let names = || targets::ALL.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    targets::find(&name).unwrap_or_else(|| {
        eprintln!("fuzz: GRANTWAY_FUZZ_TARGET={name:?} is no target; there are {}", names());
        std::process::exit(2)
    })
});

/// End of a run whose frames are counted, if the environment sets one.
static END: LazyLock<Option<End>> = LazyLock::new(|| {
    let set = |name: &str| std::env::var(name).ok()?.parse().ok();
    let frames = set("GRANTWAY_FUZZ_FRAMES").map(End::Frames);
    let seconds = || set("GRANTWAY_FUZZ_SECONDS").map(Duration::from_secs);
    frames.or_else(|| seconds().map(|time| End::At(Instant::now() + time)))
});

/// Point at which a run ends.
enum End {
    At(Instant),
    Frames(u64),
}

impl End {
    fn is_reached(&self, tally: fn() -> Tally) -> bool {
        match *self {
            Self::At(time) => Instant::now() >= time,
            Self::Frames(most) => tally().frames >= most,
        }
    }
}

/// Prints what became of frames, also each reason that never occurred.
fn account(tally: &Tally) {
    let dropped: u64 = tally.drops.iter().map(|(_, times)| times).sum();
    println!("{}: {} frames, {dropped} of them dropped:", TARGET.name, tally.frames);
    tally.drops.iter().for_each(|(reason, times)| println!("{times:12} {reason}"));
}

/// Reads the environment before the first input.
fn begin() {
    if let (None, Some(End::Frames(_))) = (TARGET.tally, &*END) {
        eprintln!(
            "fuzz: GRANTWAY_FUZZ_FRAMES is set, and {} counts no frames; unset it",
            TARGET.name
        );
        std::process::exit(2)
    }
}

/// Prints the account of all frames, and has libFuzzer end in order, which takes an exit from
/// within a target for a crash. A few more inputs may follow.
fn finish(tally: &Tally) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        account(tally);
        let _ = kill_process(getpid(), Signal::USR1);
    });
}

fuzz_target!(init: begin(), |data: &[u8]| {
    (TARGET.run)(data);
    if let (Some(tally), Some(end)) = (TARGET.tally, &*END)
        && end.is_reached(tally)
    {
        finish(&tally());
    }
});

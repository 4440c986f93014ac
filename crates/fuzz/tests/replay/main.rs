//! Every input that is kept, against its target: what fuzzing found once stays found, without
//! libFuzzer.

mod mutate;

use grantway_fuzz::corpus::{MAX_INPUT, MAX_KEPT, decode, encode, kept, read};
use grantway_fuzz::targets::{self, Target};
use grantway_testkit::Numbers;
use mutate::mutate;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Guard against an input that a target does not come back from.
const LONGEST: Duration = Duration::from_secs(120);

/// Number of inputs before the one that is being tried, and that one.
type Tried = (u64, Vec<u8>);

/// Runs a target, and names the input that it panics for or does not come back from.
struct Runner {
    target: Target,
    tried: Arc<Mutex<Tried>>,
}

impl Runner {
    fn new(target: Target) -> Self {
        let tried = Arc::<Mutex<Tried>>::default();
        let watched = Arc::downgrade(&tried);
        std::thread::spawn(move || {
            let mut before = 0;
            loop {
                std::thread::sleep(LONGEST);
                // Without a runner nothing is tried any more.
                let Some(tried) = watched.upgrade() else { return };
                let (number, input) = tried.lock().unwrap().clone();
                if number == before {
                    give_up(target, &input);
                }
                before = number;
            }
        });
        Self { target, tried }
    }

    fn try_input(&self, input: &[u8]) {
        {
            let (number, tried) = &mut *self.tried.lock().unwrap();
            *number += 1;
            input.clone_into(tried);
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.target.run)(input))) {
            eprintln!("{}: for the input {}", self.target.name, encode(input));
            resume_unwind(panic);
        }
    }
}

/// Ends the process. A test would keep to itself what a macro prints.
fn give_up(target: Target, input: &[u8]) -> ! {
    let (name, input) = (target.name, encode(input));
    let _ = writeln!(std::io::stderr(), "{name}: no end in {LONGEST:?} for the input {input}");
    std::process::exit(1)
}

#[test]
fn every_kept_input_keeps_the_promises() {
    for &target in targets::ALL {
        let inputs = read(&kept(target.name)).unwrap();
        assert!(!inputs.is_empty(), "{}: no inputs", target.name);
        assert!(inputs.len() <= MAX_KEPT, "{}: {} inputs", target.name, inputs.len());
        let runner = Runner::new(target);
        runner.try_input(&[]);
        inputs.iter().for_each(|input| runner.try_input(input));
    }
}

/// Returns the number of inputs of a target that are tried: a second's, 50,000 at the most.
fn neighbours(target: &str) -> u64 {
    match target {
        "capture" => 2_800,
        "segments" => 4_300,
        "vector" => 11_000,
        "stack" => 27_000,
        "control" => 43_000,
        _ => 50_000,
    }
}

/// Values at the edges need no new place in the code; they are mostly next to
/// what reached one.
#[test]
fn so_do_their_neighbours() {
    for &target in targets::ALL {
        let inputs = read(&kept(target.name)).unwrap();
        let (runner, mut numbers) = (Runner::new(target), Numbers::new(1));
        let pick = |numbers: &mut Numbers| match numbers.once_in(16) {
            true => &[],
            false => inputs[numbers.below(inputs.len())].as_slice(),
        };
        for _ in 0..neighbours(target.name) {
            let (mut input, other) = (pick(&mut numbers).to_vec(), pick(&mut numbers));
            mutate(&mut input, other, target.unit, &mut numbers);
            runner.try_input(&input);
        }
    }
}

#[test]
fn every_corpus_has_its_target() {
    for entry in std::fs::read_dir(kept("any").parent().unwrap()).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_stem().and_then(|name| name.to_str()).unwrap();
        assert!(targets::find(name).is_some(), "{}", file.display());
    }
}

#[test]
fn lines_are_inputs() {
    assert_eq!(decode("00ff1a"), Some(vec![0, 255, 26]));
    assert_eq!(encode(&[0, 255, 26]), "00ff1a");
    for bad in ["0", "0g", "+1", "ä", &"00".repeat(MAX_INPUT + 1)] {
        assert_eq!(decode(bad), None, "{bad}");
    }
}

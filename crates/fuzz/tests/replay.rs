//! Every input that is kept, against its target: what fuzzing found once stays
//! found, without an engine.

use grantway_fuzz::corpus::{MAX_INPUT, MAX_KEPT, decode, encode, kept, read};
use grantway_fuzz::engine::{Coverage, Engine};
use grantway_fuzz::targets::{self, Target};

/// Counts nothing.
struct Unseen;

impl Coverage for Unseen {
    fn clear(&mut self) {}

    fn read(&mut self, _: &mut Vec<u8>) {}
}

fn engine(target: &Target) -> Engine<Unseen> {
    Engine::new(*target, Unseen, 1, false)
}

#[test]
fn every_kept_input_keeps_the_promises() {
    for target in targets::ALL {
        let inputs = read(&kept(target.name)).unwrap();
        assert!(!inputs.is_empty(), "{}: no inputs", target.name);
        assert!(inputs.len() <= MAX_KEPT, "{}: {} inputs", target.name, inputs.len());
        let mut engine = engine(target);
        for input in std::iter::once(Vec::new()).chain(inputs) {
            if let Err(failure) = engine.add(&input) {
                panic!("{}: {}, for the input {}", target.name, failure.message, encode(&input));
            }
        }
    }
}

/// Inputs of a target: as many as it tries in about a second, 50,000 at the most.
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
    for target in targets::ALL {
        let mut engine = engine(target);
        for input in read(&kept(target.name)).unwrap() {
            engine.know(&input);
        }
        while engine.runs() < neighbours(target.name) {
            let input = engine.next_input();
            if let Err(failure) = engine.add(&input) {
                let failure = engine.shorten(failure);
                let input = encode(&failure.input);
                panic!("{}: {}, for the input {input}", target.name, failure.message);
            }
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

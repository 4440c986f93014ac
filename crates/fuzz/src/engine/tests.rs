//! The engine finds its way by what it is told was reached, and by nothing
//! else.

use super::*;
use std::cell::RefCell;

thread_local! {
    /// Counts of a program that counts by itself.
    static REACHED: RefCell<[u8; 16]> = const { RefCell::new([0; 16]) };
}

#[derive(Debug)]
struct Counts;

impl Coverage for Counts {
    fn clear(&mut self) {
        REACHED.set([0; 16]);
    }

    fn read(&mut self, counts: &mut Vec<u8>) {
        counts.clear();
        counts.extend(REACHED.with_borrow(|reached| *reached));
    }
}

/// A word that nobody guesses at once, with a fault behind it.
fn maze(input: &[u8]) {
    for (n, expected) in b"gates!".iter().enumerate() {
        if input.get(n) != Some(expected) {
            return;
        }
        REACHED.with_borrow_mut(|reached| reached[n] += 1);
    }
    panic!("at the end of the maze");
}

const MAZE: Target = Target { name: "maze", unit: 1, run: maze, tally: None };

fn walk(engine: &mut Engine<Counts>, runs: u64) -> Option<Failure> {
    while engine.runs() < runs {
        let input = engine.next_input();
        if let Err(failure) = engine.add(&input) {
            return Some(failure);
        }
    }
    None
}

#[test]
fn guided_it_finds_what_blindly_it_does_not() {
    for seed in 0..5 {
        let mut engine = Engine::new(MAZE, Counts, seed, true);
        let failure = walk(&mut engine, 2_000_000).expect("the fault");
        assert!(failure.input.starts_with(b"gates!"));
        assert_eq!(failure.message, "at the end of the maze");
        assert_eq!(engine.features(), 5, "before the fault");
        assert_eq!(engine.shorten(failure).input, b"gates!");

        let mut blind = Engine::new(MAZE, Counts, seed, false);
        assert_eq!(walk(&mut blind, 300_000), None);
        assert!(blind.features() < 3 && blind.corpus().is_empty());
    }
}

#[test]
fn the_same_seed_walks_the_same_way() {
    let walked = |seed| {
        let mut engine = Engine::new(MAZE, Counts, seed, true);
        (walk(&mut engine, 2_000_000), engine.runs())
    };
    assert_eq!(walked(8), walked(8));
    assert_ne!(walked(8), walked(9));
}

fn steps(input: &[u8]) {
    REACHED.with_borrow_mut(|reached| {
        for &byte in input.iter().filter(|&&byte| byte < 16) {
            reached[usize::from(byte)] = reached[usize::from(byte)].saturating_add(1);
        }
    });
}

#[test]
fn reduced_inputs_reach_the_same_with_less() {
    let target = Target { name: "steps", unit: 1, run: steps, tally: None };
    let mut engine = Engine::new(target, Counts, 1, true);
    let inputs =
        [b"\x01zz\x02".to_vec(), b"\x01".to_vec(), b"zzz".to_vec(), b"\x03z\x03z\x03".to_vec()];
    let reduced = engine.reduce(&inputs).unwrap();
    assert_eq!(reduced, [vec![1], vec![2], vec![3, 3, 3]]);
}

#[test]
fn more_often_is_new_by_steps() {
    let mut features = Features::default();
    let new = [1u8, 1, 2, 3, 4, 5, 7, 8, 15, 16, 32, 127, 128, 255].map(|n| features.add(&[0, n]));
    let expected = [1, 0, 1, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0].map(|n| n == 1);
    assert_eq!((new, features.len()), (expected, 8));
    assert!(!features.add(&[0, 0]));
}

#[test]
fn an_input_without_an_end_is_told() {
    use std::sync::mpsc::channel;
    let (sender, late) = channel();
    let ((looked, looks), (go, ticks)) = (channel(), channel::<()>());
    let tick = move || {
        let _ = looked.send(());
        let _ = ticks.recv();
    };
    let watch = Watch::start(4, tick, move |input| drop(sender.send(input.to_vec())));
    // One tick, and the look behind it.
    let passes = || {
        looks.recv().unwrap();
        go.send(()).unwrap();
    };
    for n in 0..20 {
        watch.tries(Some(&[n]));
        (0..3).for_each(|_| passes());
    }
    watch.tries(None);
    (0..20).for_each(|_| passes());
    looks.recv().unwrap();
    assert!(late.try_recv().is_err());
    go.send(()).unwrap();
    watch.tries(Some(b"endless"));
    (0..6).for_each(|_| passes());
    assert_eq!(late.recv().unwrap(), b"endless");
}

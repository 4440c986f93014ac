//! Reasons of nodes of one's own: names, their number, and their counts beside the other reasons.
//!
//! A process has one list of own reasons, so one test goes through it from its start to its end.

use grantway_vector::node::Context;
use grantway_vector::node::{Each, Edge, Single, Step};
use grantway_vector::reason::{OWN_REASONS_MAX, ReasonError};
use grantway_vector::{Batch, Frame, Graph, PortId, Reason, Verdict};
use std::collections::BTreeSet;

/// Drops frames of each length for a reason of its own, and frames of other lengths for one of the
/// crate's.
struct ByLength(Vec<(u32, Reason)>);

impl Single for ByLength {
    fn name(&self) -> &'static str {
        "by-length"
    }

    fn process(&mut self, frame: u8, context: &mut Context<'_>) -> Step {
        let len = context.batch.frame(frame).len;
        match self.0.iter().find(|(length, _)| *length == len) {
            Some((_, reason)) => Step::Drop(*reason),
            None if len > 1000 => Step::Drop(Reason::Filter),
            None => Step::To(Edge(0)),
        }
    }
}

fn batch(lengths: &[u32]) -> Batch {
    let mut batch = Batch::new();
    for &len in lengths {
        batch.push(Frame { at: 0, head: 0, len, from: PortId(0), ..Frame::default() }).unwrap();
    }
    batch
}

#[test]
fn own_reasons_are_named_counted_and_limited() {
    // Names that a report or a page of metrics could not show.
    for name in
        ["", "-short", "9bytes", "Short", "too short", "short\"", "sh\u{f6}rt", &"x".repeat(41)]
    {
        let name: &'static str = name.to_owned().leak();
        let error = Reason::own(name).unwrap_err();
        assert_eq!(error, ReasonError::Name { name });
        assert!(error.to_string().contains("below-60-bytes"), "{error}");
    }
    for reason in Reason::ALL {
        let name = reason.as_str();
        assert_eq!(Reason::own(name), Err(ReasonError::Taken { name }));
    }
    let short = Reason::own("short").unwrap();
    let long = Reason::own("long").unwrap();
    assert_eq!(Reason::own("short"), Err(ReasonError::Taken { name: "short" }));
    assert_eq!((short.as_str(), long.to_string().as_str()), ("short", "long"));
    assert_ne!(short, long);
    // An own reason is no larger than another one, and neither is a verdict.
    assert_eq!((size_of::<Reason>(), size_of::<Verdict>()), (1, 4));

    // Each has a counter of its own, in two graphs and in the sum of both.
    let graph = || {
        let mut graph = Graph::new(|| 0);
        graph.add(Each(ByLength(vec![(10, short), (20, long)])), &[]).unwrap();
        graph
    };
    let (mut one, mut other) = (graph(), graph());
    let mut frames = batch(&[10, 20, 10, 500, 2000]);
    one.run(&mut frames, &mut [], 0);
    assert_eq!(frames.verdict(0), Verdict::Drop(short));
    assert_eq!(frames.verdict(3), Verdict::Open);
    other.run(&mut batch(&[20]), &mut [], 0);
    let mut sum = one.drops().clone();
    sum.join(other.drops());
    let counts: Vec<_> = sum.iter().map(|(reason, n)| (reason.as_str(), n)).collect();
    assert_eq!(counts, [("filter", 1), ("short", 2), ("long", 2)]);
    assert_eq!((sum.of(short), sum.of(Reason::Gso), sum.total()), (2, 0, 5));
    assert_eq!(other.drops().iter().collect::<Vec<_>>(), [(long, 1)]);

    // Threads that make reasons at the same time get different ones, until there is no room.
    let made: Vec<_> = std::thread::scope(|scope| {
        let make = |thread: usize| {
            let names = (0..OWN_REASONS_MAX).map(move |n| format!("r{thread}-{n}").leak() as &str);
            scope.spawn(move || names.map(Reason::own).collect::<Vec<_>>())
        };
        [make(1), make(2)].into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let reasons: BTreeSet<_> = made.iter().filter_map(|made| made.ok()).collect();
    assert_eq!(reasons.len(), OWN_REASONS_MAX - 2);
    assert!(!reasons.contains(&short) && !reasons.contains(&long));
    let names: BTreeSet<_> = reasons.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(names.len(), reasons.len());
    let error = Reason::own("one-more").unwrap_err();
    assert_eq!(error, ReasonError::Full { name: "one-more" });
    assert!(error.to_string().contains("at most 16 own reasons"), "{error}");
    // A name that exists is refused as such also then.
    assert_eq!(Reason::own("long"), Err(ReasonError::Taken { name: "long" }));
}

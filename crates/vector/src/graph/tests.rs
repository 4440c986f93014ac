//! Lists are split and come together, and nothing is lost or turned round.

use super::*;
use crate::batch::{Frame, PortId, Verdict};
use crate::node::{Each, Edge, Single, Step};
use crate::reason::Reason;
use std::sync::{Arc, Mutex};

/// Sends frames on by their port.
struct Split;

impl Single for Split {
    fn name(&self) -> &'static str {
        "split"
    }

    fn process(&mut self, frame: u8, context: &mut Context<'_>) -> Step {
        match context.batch.frame(frame).from.0 % 4 {
            way @ 0..3 => Step::To(Edge(way as u8)),
            _ => Step::Drop(Reason::Filter),
        }
    }
}

struct Pass(&'static str);

impl Node for Pass {
    fn name(&self) -> &'static str {
        self.0
    }

    fn process(&mut self, list: &Set, _: &mut Context<'_>, out: &mut Out) {
        out.all(Edge(0), list);
    }
}

struct End(Arc<Mutex<Vec<Vec<u8>>>>);

impl Node for End {
    fn name(&self) -> &'static str {
        "end"
    }

    fn process(&mut self, list: &Set, context: &mut Context<'_>, _: &mut Out) {
        for frame in list {
            context.batch.decide(frame, Verdict::Flood);
        }
        self.0.lock().unwrap().push(list.iter().collect());
    }
}

#[test]
fn split_lists_come_together_in_order() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut graph = Graph::new(|| 0);
    let end = graph.add(End(seen.clone()), &[]).unwrap();
    let one = graph.add(Pass("one"), &[end]).unwrap();
    let two = graph.add(Pass("two"), &[one]).unwrap();
    let unused = graph.add(Pass("unused"), &[end]).unwrap();
    let _ = unused;
    graph.add(Each(Split), &[end, one, two]).unwrap();
    let mut batch = Batch::new();
    for n in 0..256 {
        let frame = Frame { from: PortId(n * 7 % 13), ..Frame::default() };
        batch.push(frame).unwrap();
    }
    assert!(batch.push(Frame::default()).is_err(), "full");
    graph.run(&mut batch, &mut [], 0);
    let lists = std::mem::take(&mut *seen.lock().unwrap());
    let expected: Vec<u8> = (0..=255).filter(|&n| u16::from(n) * 7 % 13 % 4 != 3).collect();
    assert_eq!((lists.len(), &lists[0]), (1, &expected), "one list, in order");
    assert_eq!(batch.deliveries().count(), expected.len());
    assert_eq!(graph.drops().of(Reason::Filter), 256 - expected.len() as u64);
    let counters: Vec<_> = graph.counters().map(|c| (c.name, c.packets, c.vectors)).collect();
    let by = |way| (0..256).filter(|n| n * 7 % 13 % 4 == way).count() as u64;
    let (ones, twos) = (by(1), by(2));
    let expected = [
        ("split", 256, 1),
        ("unused", 0, 0),
        ("two", twos, 1),
        ("one", ones + twos, 1),
        ("end", expected.len() as u64, 1),
    ];
    assert_eq!(counters, expected);
    batch.clear();
    graph.run(&mut batch, &mut [], 0);
    assert!(graph.counters().all(|c| c.vectors <= 1), "an empty batch is no list");
}

#[test]
fn bounds_are_said() {
    let mut graph = Graph::new(|| 0);
    let end = graph.add(Pass("end"), &[]).unwrap();
    let found = graph.add(Pass("wide"), &[end; EDGES_MAX + 1]);
    assert_eq!(found, Err(GraphError::Edges { node: "wide", found: EDGES_MAX + 1 }));
    for _ in 1..NODES_MAX {
        graph.add(Pass("more"), &[end]).unwrap();
    }
    assert_eq!(graph.add(Pass("more"), &[end]), Err(GraphError::Nodes));
}

//! Nodes of a program of one's own, in front of the bridge and in front of rules.

use crate::guest::{Guest, frame, three};
use crate::rules::{graph, send_list, stats};
use crate::support::control::SECRET;
use crate::support::world::{CREWS, World};
use grantway_vector::node::{Context, Each, Edge, Single, Step};
use grantway_vector::path::{self, MakeGraph, Settings};
use grantway_vector::{Graph, Reason};
use std::sync::{Arc, LazyLock};

/// Length of the frames that the node drops.
const UNLUCKY: u32 = 99;

static REASON: LazyLock<Reason> = LazyLock::new(|| Reason::own("unlucky").expect("a name"));

struct NoUnlucky;

impl Single for NoUnlucky {
    fn name(&self) -> &'static str {
        "no-unlucky"
    }

    fn process(&mut self, frame: u8, context: &mut Context<'_>) -> Step {
        match context.batch.frame(frame).len {
            UNLUCKY => Step::Drop(*REASON),
            _ => Step::To(Edge(0)),
        }
    }
}

/// Returns the graph of a bridge, or of rules, with the node in front.
fn own(by_rules: bool) -> MakeGraph {
    Arc::new(move || {
        let clock = || 0;
        let mut graph: Graph = match by_rules {
            false => path::bridge(SECRET, clock)?,
            true => path::graph(Settings { clock, ..Settings::new(SECRET) })?,
        };
        let entry = graph.entry().expect("a node");
        graph.add(Each(NoUnlucky), &[entry])?;
        Ok(graph)
    })
}

#[test]
fn an_own_node_in_front_of_the_bridge_drops_for_its_own_reason() {
    for workers in CREWS {
        for by_rules in [false, true] {
            let mut world = World::bridged_by(workers);
            (world.setup.own, world.setup.by_rules) = (Some(own(by_rules)), by_rules);
            world.restart();
            let [mut a, mut b, _c]: [Guest; 3] = three(&mut world);
            let of = |len| frame(b.address, a.address, len);
            let (unlucky, other) = (of(UNLUCKY as usize), of(100));
            b.posts(2);
            send_list(&mut a, &[unlucky.clone(), other.clone(), unlucky]);
            assert_eq!(b.gets(), other);
            let report = graph(&world);
            let drops: Vec<_> = report.drops.iter().map(|(why, n)| (why.to_string(), n)).collect();
            assert_eq!(drops, [("unlucky".to_owned(), 2)]);
            assert_eq!(report.nodes[0].name, "no-unlucky");
            assert_eq!(stats(&world, &a).tx_dropped_rules, 2);
        }
    }
}

//! Visits every joint state, and looks for runs that never end.

use crate::world::{Event, World};
use std::collections::HashMap;

/// All reachable joint states, and the steps between them that the two ends
/// take without anything happening from outside.
pub struct Graph {
    worlds: Vec<World>,
    steps: Vec<Vec<usize>>,
}

impl Graph {
    /// Visits everything that can be reached from `start` by the ends' own
    /// steps and by any number of `events`, in any order.
    pub fn explore(start: World, events: &[Event]) -> Self {
        let mut graph = Self { worlds: vec![start.clone()], steps: Vec::new() };
        let mut known = HashMap::from([(start, 0)]);
        while graph.steps.len() < graph.worlds.len() {
            let world = graph.worlds[graph.steps.len()].clone();
            let mut number = |next: World| match known.get(&next) {
                Some(&number) => number,
                None => {
                    let number = graph.worlds.len();
                    known.insert(next.clone(), number);
                    graph.worlds.push(next);
                    number
                }
            };
            let steps = world.steps().into_iter().map(&mut number).collect();
            for &event in events {
                if let Some(next) = world.after(event) {
                    number(next);
                }
            }
            graph.steps.push(steps);
            assert!(graph.worlds.len() < 3_000_000, "the model does not end");
        }
        graph
    }

    pub fn len(&self) -> usize {
        self.worlds.len()
    }

    pub fn rests(&self) -> usize {
        self.steps.iter().filter(|steps| steps.is_empty()).count()
    }

    /// Calls `check` for every state.
    pub fn for_each(&self, check: impl FnMut(&World)) {
        self.worlds.iter().for_each(check);
    }

    /// Calls `check` for every state in which neither end has anything to do.
    pub fn for_each_rest(&self, mut check: impl FnMut(&World)) {
        for (world, steps) in self.worlds.iter().zip(&self.steps) {
            if steps.is_empty() {
                check(world);
            }
        }
    }

    /// From everywhere, the two ends can reach a state of rest by themselves.
    pub fn assert_every_run_can_end(&self) {
        let mut back = vec![Vec::new(); self.worlds.len()];
        for (from, steps) in self.steps.iter().enumerate() {
            for &to in steps {
                back[to].push(from);
            }
        }
        let mut ends = vec![false; self.worlds.len()];
        let mut todo: Vec<usize> = Vec::new();
        for (node, steps) in self.steps.iter().enumerate() {
            if steps.is_empty() {
                ends[node] = true;
                todo.push(node);
            }
        }
        while let Some(node) = todo.pop() {
            for &from in &back[node] {
                if !ends[from] {
                    ends[from] = true;
                    todo.push(from);
                }
            }
        }
        let stuck = ends.iter().position(|ends| !ends);
        assert!(stuck.is_none(), "no rest from {:?}", stuck.map(|at| &self.worlds[at]));
    }

    /// The ends' own steps form no circle: from everywhere, however the two
    /// are scheduled, a state of rest is reached.
    pub fn assert_every_run_ends(&self) {
        // 0 unseen, 1 on the path, 2 done.
        let mut colour = vec![0u8; self.worlds.len()];
        for root in 0..self.worlds.len() {
            if colour[root] != 0 {
                continue;
            }
            colour[root] = 1;
            let mut path = vec![(root, 0)];
            while let Some((node, edge)) = path.last_mut() {
                let Some(&next) = self.steps[*node].get(*edge) else {
                    colour[*node] = 2;
                    path.pop();
                    continue;
                };
                *edge += 1;
                match colour[next] {
                    0 => {
                        colour[next] = 1;
                        path.push((next, 0));
                    }
                    1 => {
                        let from = path.iter().position(|step| step.0 == next);
                        for step in path.iter().skip(from.unwrap_or(0)).take(20) {
                            eprintln!("{:?}", self.worlds[step.0]);
                        }
                        panic!("a run of the two ends goes round for ever");
                    }
                    _ => {}
                }
            }
        }
    }
}

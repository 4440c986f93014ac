//! A graph with a node of one's own: it drops frames below 60 bytes, for a reason of its own, and
//! sends all others to port 1.
//!
//!     cargo run -p grantway-vector --example own_node

use grantway_vector::node::{Context, Node, Out};
use grantway_vector::reason::Reason;
use grantway_vector::set::Set;
use grantway_vector::{Batch, Frame, Graph, PortId, Verdict};

/// The node. It is called once for a whole list of frames.
struct LongOnly {
    /// Reason of its drops.
    short: Reason,
}

impl Node for LongOnly {
    fn name(&self) -> &'static str {
        "long-only"
    }

    fn process(&mut self, list: &Set, context: &mut Context<'_>, _: &mut Out) {
        for number in list.iter() {
            if context.batch.frame(number).len < 60 {
                context.drop(number, self.short);
            } else {
                context.batch.decide(number, Verdict::To(PortId(1)));
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Nodes can be timed by any clock. This one stands still.
    let mut graph = Graph::new(|| 0);
    let short = Reason::own("below-60-bytes")?;
    graph.add(LongOnly { short }, &[])?;

    // The private bytes of all frames are in one arena.
    let mut arena = vec![0; 4096];
    let mut batch = Batch::new();
    let mut at = 0;
    for len in [42, 60, 1514, 20] {
        let frame = Frame { at, head: len, len, from: PortId(0), ..Frame::default() };
        batch.push(frame).map_err(|_| "the batch is full")?;
        at += len;
    }
    graph.run(&mut batch, &mut arena, 0);

    for number in batch.all().iter() {
        println!("{:5} bytes: {:?}", batch.frame(number).len, batch.verdict(number));
    }
    for (reason, frames) in graph.drops().iter() {
        println!("dropped {frames}: {reason}");
    }
    Ok(())
}

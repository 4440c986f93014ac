//! Flows fed by a node of the packet path, as a live view does.

mod talk;

use grantway_flows::{Event, Flows, Limits, Packet, Ring, Way};
use grantway_netif::Offload;
use grantway_vector::node::{Context, Edge, Out};
use grantway_vector::reason::Drops;
use grantway_vector::receivers::Receivers;
use grantway_vector::{Batch, Frame, Node, PortId, Set};
use talk::{Flag, MS, Talk};

/// A node that follows flows and lets frames pass.
struct Follow(Flows);

/// Returns the ring that frames of a vif come from.
fn ring(from: PortId) -> Ring {
    Ring { interface: u32::from(from.0), queue: 0, way: Some(Way::Transmit) }
}

impl Node for Follow {
    fn name(&self) -> &'static str {
        "follow"
    }

    fn process(&mut self, list: &Set, context: &mut Context<'_>, out: &mut Out) {
        for number in list {
            let frame = context.batch.frame(number);
            self.0.packet(&Packet {
                time: context.now,
                head: frame.bytes(context.arena),
                length: frame.len as usize,
                point: 0,
                ring: ring(frame.from),
            });
        }
        out.all(Edge(0), list);
    }
}

/// Runs the node on frames. Each side's frames come from the vif of that number.
fn run(node: &mut Follow, now: u64, frames: &[(usize, Vec<u8>)]) {
    let (mut arena, mut batch) = (Vec::new(), Batch::new());
    for (side, bytes) in frames {
        // A longer frame has only its first bytes in private memory.
        let head = bytes.len().min(128) as u32;
        let at = arena.len() as u32;
        arena.extend(&bytes[..head as usize]);
        let from = PortId(*side as u16);
        let len = bytes.len() as u32;
        let frame = Frame { at, head, len, token: 0, offload: Offload::default(), from };
        batch.push(frame).expect("room for a frame");
    }
    let (receivers, mut drops) = (Receivers::default(), Drops::default());
    let list = batch.all();
    let mut context = Context::new(now, &mut arena, &mut batch, (&receivers, &mut drops));
    node.process(&list, &mut context, &mut Out::default());
}

#[test]
fn a_node_feeds_flows_and_a_backend_its_events() {
    let mut node = Follow(Flows::new(Limits::default()));
    // Only the frames of the talk are used.
    let mut talk = Talk::new();
    let shake = [(0, talk.frame(0, 0, 0, Flag::Syn)), (1, talk.frame(1, 0, 0, Flag::Syn))];
    run(&mut node, MS, &shake);
    let data = |at| (0, talk.frame(0, at, 1400, Flag::None));
    run(&mut node, 2 * MS, &[data(0), data(1400)]);
    node.0.event(2 * MS, ring(PortId(0)), Event::RingFull);
    talk.acked[1] = 2800;
    run(&mut node, 5 * MS, &[(1, talk.frame(1, 0, 0, Flag::None))]);
    node.0.event(6 * MS, ring(PortId(0)), Event::RingDrained);
    run(&mut node, 302 * MS, &[(0, talk.frame(0, 2800, 1400, Flag::None))]);
    node.0.advance(310 * MS);
    let report = node.0.report();
    let [flow] = &report.flows[..] else { panic!("one flow: {report:?}") };
    assert_eq!((flow.packets, flow.directions[0].payload_bytes), (6, 4200));
    let stalls: Vec<_> =
        flow.stalls.iter().map(|stall| (stall.cause.name(), stall.ended)).collect();
    assert_eq!(stalls, [("wake-up", true)]);
    assert!((flow.stalls[0].seconds - 0.3).abs() < 1e-9);
}

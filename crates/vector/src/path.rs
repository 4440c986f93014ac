//! The nodes, as a backend has them.

use crate::batch::Nanos;
use crate::graph::{Graph, GraphError};
use crate::node::{Each, Edge};
use crate::nodes::{
    AntiSpoof, Arp, Bridge, Checks, Classifier, Ethernet, Firewall, Flows, Fragments, Gro, Ipv4,
    Ipv6, Limit, Mirror, Segments, Transport,
};
use crate::secret::Secret;
use grantway_ports::Clock;
use grantway_ports::pcap::CaptureWriter;
use std::fs::File;

/// What the nodes need beside rules.
pub struct Settings {
    /// What nobody outside is to guess.
    pub secret: Secret,
    /// For the nodes' times.
    pub clock: fn() -> Nanos,
    /// Where mirrored frames go.
    pub capture: Option<CaptureWriter<File>>,
    /// Time since 1970, for the capture.
    pub wall: Clock,
    /// What is done about transport checksums.
    pub checks: Checks,
    /// Whether segments are merged: for who delivers frames by
    /// [`Batch::pieces`](crate::Batch::pieces).
    pub merge: bool,
}

/// Makes the graph of a bridge without rules: it says where frames go, and looks at
/// nothing but their addresses.
///
/// # Errors
/// None but for a fault in this function.
pub fn bridge(secret: Secret, clock: fn() -> Nanos) -> Result<Graph, GraphError> {
    let mut graph = Graph::new(clock);
    graph.add(Bridge::new(secret), &[])?;
    Ok(graph)
}

/// Makes the graph of a merger: it links segments that follow each other to large
/// frames for who takes such, and drops nothing.
#[must_use]
pub fn merging(clock: fn() -> Nanos) -> Graph {
    let mut graph = Graph::new(clock);
    // Two are as many as any graph can have, and one without would merge nothing.
    if let Ok(gro) = graph.add(Gro::default(), &[]) {
        let _ = graph.add(Segments, &[gro]);
    }
    graph
}

/// Makes the graph: headers; who may say that a frame is from whom; firewall;
/// classifier; rates; where it goes; flows; merging.
///
/// # Errors
/// None but for a fault in this function.
pub fn graph(settings: Settings) -> Result<Graph, GraphError> {
    let Settings { secret, clock, capture, wall, checks, merge } = settings;
    let mut graph = Graph::new(clock);
    let gro = merge.then(|| graph.add(Gro::default(), &[])).transpose()?;
    let flows = graph.add(Flows::new(secret), gro.as_slice())?;
    let bridge = graph.add(Bridge::new(secret), &[flows])?;
    let limit = graph.add(Each(Limit::default()), &[bridge])?;
    let mirror = graph.add(Mirror::new(capture, wall), &[limit])?;
    let classifier = graph.add(Each(Classifier::default()), &[limit, mirror])?;
    let firewall = graph.add(Firewall::new(secret), &[classifier])?;
    let spoof = graph.add(Each(AntiSpoof::default()), &[firewall])?;
    let fragments = graph.add(Each(Fragments::new(secret)), &[spoof])?;
    let transport = graph.add(Each(Transport { checks }), &[spoof, fragments])?;
    let ipv4 = graph.add(Each(Ipv4), &[transport])?;
    let ipv6 = graph.add(Each(Ipv6), &[transport])?;
    let arp = graph.add(Each(Arp), &[spoof])?;
    graph.add(Ethernet, &[ipv4, ipv6, arp, spoof])?;
    Ok(graph)
}

// The graph above lists ways out in this order.
const _: () = {
    const fn is(edge: Edge, number: u8) -> bool {
        edge.0 == number
    }
    assert!(is(Ethernet::IPV4, 0) && is(Ethernet::IPV6, 1) && is(Ethernet::ARP, 2));
    assert!(is(Ethernet::OTHER, 3) && is(Transport::ON, 0) && is(Transport::FRAGMENT, 1));
    assert!(is(Classifier::ON, 0) && is(Classifier::MIRROR, 1) && is(Segments::ON, 0));
};

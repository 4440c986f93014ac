//! The graphs of a backend.

use crate::batch::Nanos;
use crate::graph::{Graph, GraphError};
use crate::node::{Each, Edge};
use crate::nodes::{
    AntiSpoof, Arp, Bridge, Checks, Classifier, Ethernet, Firewall, Flows, Fragments, Gro, Ipv4,
    Ipv6, Limit, Mirror, Segments, SharedCapture, Transport,
};
use crate::secret::Secret;
use grantway_ports::{Clock, uptime, wall};
use std::fs::File;
use std::sync::Arc;

/// Settings of the nodes, beside the rules. The graphs of several workers have the same settings.
#[derive(Clone)]
pub struct Settings {
    /// Secret that no guest can guess.
    pub secret: Secret,
    /// Clock by which the nodes' steps are timed.
    pub clock: fn() -> Nanos,
    /// Capture for mirrored frames.
    pub capture: Option<SharedCapture<File>>,
    /// Clock with the time since 1970, for the capture.
    pub wall: Clock,
    /// Treatment of transport checksums.
    pub checks: Checks,
    /// True if segments are merged. The caller must then deliver frames by
    /// [`Batch::pieces`](crate::Batch::pieces).
    pub merge: bool,
}

impl Settings {
    /// Makes settings without a capture and without merging, which leave transport checksums to the
    /// receivers. The clocks are the system's.
    ///
    /// ```
    /// use grantway_vector::nodes::Checks;
    /// use grantway_vector::path::{Settings, graph};
    /// use grantway_vector::Secret;
    ///
    /// let graph = graph(Settings { checks: Checks::Verify, ..Settings::new(Secret::random()?) })?;
    /// assert!(graph.entry().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        Self {
            secret,
            clock: nanoseconds,
            capture: None,
            wall: wall(),
            checks: Checks::Leave,
            merge: false,
        }
    }
}

/// Returns the time since the machine booted.
fn nanoseconds() -> Nanos {
    uptime().as_nanos() as u64
}

/// Choice of a graph. Each worker of a backend has its own graph.
#[derive(Clone)]
#[non_exhaustive]
pub enum Nodes {
    /// A bridge without rules: [`bridge`].
    Bridge {
        /// Secret that no guest can guess.
        secret: Secret,
        /// Clock by which the nodes' steps are timed.
        clock: fn() -> Nanos,
    },
    /// All nodes, for rules: [`graph`].
    All(Settings),
    /// A graph of the caller's own. It begins with [`bridge`] or [`graph`], whose nodes find the
    /// receivers of frames, and has further nodes in front of them ([`Graph::entry`]).
    Own {
        /// Makes the graph of each worker. All graphs must have the same nodes.
        make: MakeGraph,
        /// True if the graph has the nodes that apply rules.
        by_rules: bool,
    },
}

/// Function that makes a graph.
pub type MakeGraph = Arc<dyn Fn() -> Result<Graph, GraphError> + Send + Sync>;

impl Nodes {
    /// Chooses a bridge without rules, whose steps are timed by the system's clock.
    #[must_use]
    pub fn bridge(secret: Secret) -> Self {
        Self::Bridge { secret, clock: nanoseconds }
    }

    /// Makes a graph of this kind.
    ///
    /// # Errors
    /// Returns an error only if this function itself has a fault, or a caller's own graph has one.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        match self {
            Self::Bridge { secret, clock } => bridge(*secret, *clock),
            Self::All(settings) => graph(settings.clone()),
            Self::Own { make, .. } => make(),
        }
    }

    /// Returns true if the graph applies rules.
    #[must_use]
    pub fn by_rules(&self) -> bool {
        matches!(self, Self::All(_) | Self::Own { by_rules: true, .. })
    }
}

/// Makes the graph of a bridge without rules. The bridge finds the receivers of frames, and looks
/// only at their addresses.
///
/// # Errors
/// Returns an error only if this function itself has a fault.
pub fn bridge(secret: Secret, clock: fn() -> Nanos) -> Result<Graph, GraphError> {
    let mut graph = Graph::new(clock);
    graph.add(Bridge::new(secret), &[])?;
    Ok(graph)
}

/// Makes the graph of a merger. It links segments that follow each other to large frames, for
/// receivers that accept them. No frame is dropped.
#[must_use]
pub fn merging(clock: fn() -> Nanos) -> Graph {
    let mut graph = Graph::new(clock);
    // Any graph has room for two nodes. With one alone nothing would be merged.
    if let Ok(gro) = graph.add(Gro::default(), &[]) {
        let _ = graph.add(Segments, &[gro]);
    }
    graph
}

/// Makes the graph of a backend with rules. Its steps are headers, senders' addresses, firewall,
/// classifier, rates, receivers, flows and merging.
///
/// # Errors
/// Returns an error only if this function itself has a fault.
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

// The graph above lists ways out in the order of these edges.
const _: () = {
    const fn is(edge: Edge, number: u8) -> bool {
        edge.0 == number
    }
    assert!(is(Ethernet::IPV4, 0) && is(Ethernet::IPV6, 1) && is(Ethernet::ARP, 2));
    assert!(is(Ethernet::OTHER, 3) && is(Transport::ON, 0) && is(Transport::FRAGMENT, 1));
    assert!(is(Classifier::ON, 0) && is(Classifier::MIRROR, 1) && is(Segments::ON, 0));
};

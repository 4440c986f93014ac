//! Cases of the bench: rules, and the frames that go through them.

use super::measure::Subject;
use grantway_command::error::CommandError;
use grantway_netif::Offload;
use grantway_vector::nodes::Checks;
use grantway_vector::nodes::classifier::{Filter, Pattern, Treatment};
use grantway_vector::nodes::firewall::{Action, Rule};
use grantway_vector::nodes::spoof::Allowed;
use grantway_vector::path::{Settings, graph};
use grantway_vector::rules::{FilterRules, FirewallRules, Rules, VifRules};
use grantway_vector::{Batch, Frame, Graph, Nanos, PortId, Prefix, Secret, Verdict};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::Arc;

const SECRET: Secret = Secret(0x6772_616e_7477_6179, 0x7665_6374_6f72_0001);
/// Distance between the starts of two frames, as in pages of sixteen buffers.
const STRIDE: usize = 256;
/// Number of frames between two looks at the clock.
const SOME: usize = 4096;
/// The port that all frames go to.
const UPLINK: PortId = PortId(0);

/// Kinds of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Packets of the given number of flows, from four vifs.
    Flows(usize),
    /// Frames that each differ in kind from the one before.
    Split,
}

/// Rules of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// No rule: the graph finds the receiver, and does nothing else.
    Nothing,
    /// One rule that fits no frame.
    OneRule,
    /// Filters as tc's flower has them. None fits a frame.
    Flower,
    /// The given number of rules, of random networks and ports.
    Rules(usize),
    /// The given number of exact keys.
    Keys(usize),
    /// The given number of masks.
    Masks(usize),
    /// Allowed addresses for each vif that sends frames.
    Addresses,
}

impl Load {
    /// Returns the number of rules or exact keys; `None` for a case without either.
    pub fn size(self) -> Option<usize> {
        match self {
            Self::Rules(count) | Self::Keys(count) => Some(count),
            Self::Nothing | Self::OneRule | Self::Flower | Self::Masks(_) | Self::Addresses => None,
        }
    }
}

/// A case: its rules and its frames.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name of the case.
    pub name: String,
    /// Rules of the case.
    pub load: Load,
    /// Frames of the case.
    pub traffic: Traffic,
    /// Gain of the paper, in percent.
    pub paper: Option<f64>,
}

impl Case {
    /// Makes a case.
    pub fn new(name: &str, load: Load, traffic: Traffic, paper: Option<f64>) -> Self {
        Self { name: name.to_owned(), load, traffic, paper }
    }
}

/// A graph, and the frames that it is fed with.
pub struct Feed {
    graph: Graph,
    batch: Batch,
    arena: Vec<u8>,
    frames: Vec<Frame>,
    next: usize,
    list: usize,
    /// Number of frames so far, which serves as the time.
    went: u64,
}

impl Feed {
    /// Makes the feed of a case, with lists of `list` frames.
    ///
    /// # Errors
    ///
    /// The rules cannot be compiled.
    pub fn new(case: &Case, list: usize) -> Result<Self, CommandError> {
        Self::by(case, list, || grantway_ports::uptime().as_nanos() as u64)
    }

    /// Makes a feed as [`Feed::new`] does, with another clock.
    ///
    /// # Errors
    ///
    /// The rules cannot be compiled.
    pub fn by(case: &Case, list: usize, clock: fn() -> Nanos) -> Result<Self, CommandError> {
        let settings = Settings {
            secret: SECRET,
            clock,
            capture: None,
            wall: grantway_ports::wall(),
            checks: Checks::Leave,
            merge: true,
        };
        let mut graph = graph(settings).map_err(CommandError::failed)?;
        graph.load(&Arc::new(rules(case.load)?));
        let mut feed = Self {
            graph,
            batch: Batch::new(),
            arena: Vec::new(),
            frames: Vec::new(),
            next: 0,
            list,
            went: 0,
        };
        // The bridge learns the uplink's port from this frame, so no frame is flooded.
        feed.add(UPLINK, &[station(0xff), station(0xfe), vec![0x88, 0xb5]].concat());
        feed.turn(1, false);
        (feed.arena, feed.frames, feed.next) = (Vec::new(), Vec::new(), 0);
        for (from, bytes) in frames(case.traffic) {
            feed.add(from, &bytes);
        }
        Ok(feed)
    }

    fn add(&mut self, from: PortId, bytes: &[u8]) {
        let (at, len) = (self.arena.len() as u32, bytes.len() as u32);
        self.arena.extend(bytes);
        self.arena.resize(self.arena.len().next_multiple_of(STRIDE), 0);
        let offload = Offload::default();
        self.frames.push(Frame { at, head: len, len, token: 0, offload, from });
    }

    /// Runs a list through the graph. Returns the number of frames that reach a known receiver.
    pub fn turn(&mut self, now: u64, counted: bool) -> u64 {
        self.batch.clear();
        for _ in 0..self.list {
            let frame = self.frames.get(self.next).copied().unwrap_or_default();
            self.next = if self.next + 1 >= self.frames.len() { 0 } else { self.next + 1 };
            if self.batch.push(frame).is_err() {
                break;
            }
        }
        match counted {
            true => counted_run(&mut self.graph, &mut self.batch, &mut self.arena, now),
            false => self.graph.run(&mut self.batch, &mut self.arena, now),
        }
        let to = |(_, verdict): &(u8, Verdict)| *verdict != Verdict::Flood;
        self.batch.deliveries().filter(to).count() as u64
    }

    /// Returns the number of frames that were dropped so far.
    #[cfg(test)]
    pub fn dropped(&self) -> u64 {
        self.graph.drops().total()
    }

    /// Returns the number of frames that a rule fitted so far.
    pub fn fitted(&self) -> u64 {
        self.graph.report().rules.iter().map(|(_, count)| count.packets).sum()
    }
}

impl Subject for Feed {
    fn some(&mut self) -> Result<u64, CommandError> {
        let mut delivered = 0;
        for _ in 0..SOME.div_ceil(self.list) {
            delivered += self.turn(1_000_000 + self.went, false);
            self.went += self.list as u64;
        }
        std::hint::black_box(delivered);
        Ok((SOME.div_ceil(self.list) * self.list) as u64)
    }
}

/// Runs the graph. Only instructions within this function are counted.
#[inline(never)]
fn counted_run(graph: &mut Graph, batch: &mut Batch, arena: &mut [u8], now: u64) {
    graph.run(batch, arena, now);
}

/// Iterates over the frames of a kind of traffic, each with its vif. There are as many as differ,
/// and at least 256.
pub fn frames(traffic: Traffic) -> impl Iterator<Item = (PortId, Vec<u8>)> {
    let count = match traffic {
        Traffic::Flows(flows) => flows.max(256),
        Traffic::Split => 256,
    };
    let mut next = numbers(7);
    (0..count).map(move |number| {
        let from = PortId(1 + (number % 4) as u16);
        (from, frame(traffic, number, &mut next))
    })
}

fn station(number: u8) -> Vec<u8> {
    vec![2, 0, 0, 0, 0, number]
}

/// Makes a frame: UDP of 60 bytes or, for [`Traffic::Split`], one of six kinds in turn.
fn frame(traffic: Traffic, number: usize, next: &mut impl FnMut() -> u64) -> Vec<u8> {
    let from = station(1 + (number % 4) as u8);
    let mut frame = [station(0xfe), from].concat();
    // The addresses and ports that the flow of the frame has.
    let (flow, kind) = match traffic {
        Traffic::Flows(flows) => (number % flows, 0),
        Traffic::Split => (number, number % 6),
    };
    let address = match traffic {
        Traffic::Flows(flows) if flows > 64 => 0x0a00_0000 | next() as u32 & 0x00ff_ffff,
        _ => 0x0a00_0001 + flow as u32,
    };
    let ports = [10_000 + (flow % 50_000) as u16, 20_000 + (next() % 1000) as u16];
    let mut udp = ports.map(u16::to_be_bytes).concat();
    udp.extend([0, 26, 0, 0]);
    udp.resize(26, 0);
    // Each kind has at least 60 bytes.
    match kind {
        // ARP; IPv6; IPv4 with a tag; a type for experiments; ICMP.
        1 => {
            frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1 + (number % 4) as u8]);
            frame.resize(60, 0);
        }
        2 => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 26, 17, 64, 0xfd]);
            frame.resize(14 + 40, 1);
            frame.extend(udp);
        }
        3 => {
            frame.extend([0x81, 0, 0, 5, 8, 0]);
            frame.extend(ipv4(address, 17, udp.len()));
            frame.extend(udp);
        }
        4 => {
            frame.extend([0x88, 0xb5]);
            frame.resize(60, 0);
        }
        5 => {
            frame.extend([8, 0]);
            frame.extend(ipv4(address, 1, 26));
            frame.push(8);
            frame.resize(60, 0);
        }
        _ => {
            frame.extend([8, 0]);
            frame.extend(ipv4(address, 17, udp.len()));
            frame.extend(udp);
        }
    }
    frame
}

fn ipv4(from: u32, protocol: u8, length: usize) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 20 + length as u8, 0, 0, 0, 0, 64, protocol, 0, 0];
    header.extend(from.to_be_bytes());
    header.extend([192, 168, 0, 1]);
    let words = header.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
    let sum = words.sum::<u32>();
    let sum = !((sum >> 16) + (sum & 0xffff)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// Returns a source of random numbers, equal in every run.
fn numbers(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn rules(load: Load) -> Result<Rules, CommandError> {
    let firewall = match load {
        Load::OneRule => vec![Rule {
            name: "one".to_owned(),
            action: Action::Drop,
            protocol: Some(17),
            target_ports: Some(1..=99),
            ..Rule::default()
        }],
        Load::Rules(count) => drawn(count).enumerate().map(rule).collect(),
        _ => Vec::new(),
    };
    let filters = match load {
        Load::Flower => masks(8, 4),
        Load::Keys(count) => keys(count),
        Load::Masks(count) => masks(count, 8),
        _ => Vec::new(),
    };
    let vifs = match load {
        Load::Addresses => (0..=4).map(addresses).collect(),
        _ => Vec::new(),
    };
    Ok(Rules {
        vifs,
        firewall: FirewallRules::new(firewall, Action::Accept).map_err(CommandError::failed)?,
        filters: FilterRules::new(filters, SECRET).map_err(CommandError::failed)?,
        ..Rules::default()
    })
}

/// Returns the rules of a vif: the addresses that its frames may be from. The uplink may use any
/// address.
fn addresses(vif: u8) -> VifRules {
    let networks = [
        Prefix::new(Ipv4Addr::new(10, 0, 0, 0).into(), 8),
        Prefix::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0).into(), 8),
    ];
    let allowed = match vif {
        0 => Allowed::default(),
        _ => Allowed {
            macs: vec![0x0200_0000_0000 | u64::from(vif)],
            networks: networks.into_iter().flatten().collect(),
        },
    };
    VifRules { allowed, ..VifRules::default() }
}

/// A random rule, which accepts.
pub struct Drawn {
    /// Source of the packets: a network, and the length of its prefix.
    pub source: (Ipv4Addr, u8),
    /// Destination ports of the packets.
    pub ports: RangeInclusive<u16>,
    /// True if the rule is about TCP, not UDP.
    pub tcp: bool,
}

/// Iterates over random rules. The frames are in their networks, and have some of their ports.
pub fn drawn(count: usize) -> impl Iterator<Item = Drawn> {
    let mut next = numbers(11);
    (0..count).map(move |_| {
        let address = 0x0a00_0000 | next() as u32 & 0x00ff_ffff;
        let length = 12 + (next() % 21) as u8;
        let first = 20_000 + (next() % 2000) as u16;
        let tcp = next().is_multiple_of(2);
        let ports = first..=first + (next() % 100) as u16;
        let network = address & u32::MAX << (32 - length);
        Drawn { source: (Ipv4Addr::from_bits(network), length), ports, tcp }
    })
}

fn rule((number, drawn): (usize, Drawn)) -> Rule {
    let (network, length) = drawn.source;
    Rule {
        name: number.to_string(),
        protocol: Some(if drawn.tcp { 6 } else { 17 }),
        sources: Prefix::new(network.into(), length).into_iter().collect(),
        target_ports: Some(drawn.ports),
        ..Rule::default()
    }
}

fn keys(count: usize) -> Vec<Filter> {
    let mut next = numbers(13);
    let filter = |number: usize| {
        let address = Ipv4Addr::from_bits(0x0a00_0000 | next() as u32 & 0x00ff_ffff);
        let mut pattern = Pattern::default().protocol(17);
        if let Some(prefix) = Prefix::new(address.into(), 32) {
            pattern = pattern.source(&prefix);
        }
        let pattern = pattern.source_port(number as u16, 0xffff).target_port(20_000, 0xffff);
        Filter { name: number.to_string(), pattern, treatment: Treatment::Pass }
    };
    (0..count).map(filter).collect()
}

/// Returns filters with `count` different masks, at most `of_each` filters for each mask.
fn masks(count: usize, of_each: usize) -> Vec<Filter> {
    let filter = |number: usize| {
        let (mask, value) = (number / of_each, number % of_each);
        let address = Ipv4Addr::from_bits(0xac10_0000 | (value as u32) << 12);
        let mut pattern = Pattern::default().protocol(17);
        if let Some(prefix) = Prefix::new(address.into(), 20 - (mask % 4) as u8) {
            pattern = pattern.source(&prefix);
        }
        let port = 0xff00u16 << (mask / 4);
        let pattern = pattern.target_port((value as u16 + 1) << 12 & port, port);
        Filter { name: number.to_string(), pattern, treatment: Treatment::Drop }
    };
    let mut found: Vec<Filter> = Vec::new();
    for filter in (0..count * of_each).map(filter) {
        if found.iter().all(|other| other.pattern != filter.pattern) {
            found.push(filter);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_go_where_they_should() {
        for load in [
            Load::Nothing,
            Load::OneRule,
            Load::Flower,
            Load::Rules(100),
            Load::Keys(100),
            Load::Masks(32),
            Load::Addresses,
        ] {
            for traffic in [Traffic::Flows(4), Traffic::Flows(4096), Traffic::Split] {
                let case = Case::new("", load, traffic, None);
                for list in [1, 64] {
                    let mut feed = Feed::new(&case, list).unwrap();
                    let went: u64 = (0..512).map(|n| feed.turn(n, false)).sum();
                    let dropped = feed.dropped();
                    assert_eq!(went + dropped, 512 * list as u64, "{load:?} {traffic:?}");
                    // One of the six kinds is neither IP nor ARP. A vif whose networks are listed
                    // may not send it.
                    let foreign = (load, traffic) == (Load::Addresses, Traffic::Split);
                    assert_eq!(dropped > 0, foreign, "{load:?} {traffic:?}");
                    assert!(dropped * 5 <= 512 * list as u64, "{load:?} {traffic:?}");
                }
            }
        }
    }
}

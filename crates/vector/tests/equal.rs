//! Packets through the graph, in lists of 1 to 256, compared with a plain program that takes
//! one packet after the other and knows its parts.

mod common;

use common::{Bench, Given, Kind, Packet, SECRET, v4, v6};
use grantway_netif::Offload;
use grantway_vector::nodes::Checks;
use grantway_vector::nodes::bridge::Learning;
use grantway_vector::nodes::classifier::{Filter, Pattern, Treatment};
use grantway_vector::nodes::firewall::{Action, Rule, State};
use grantway_vector::nodes::spoof::Allowed;
use grantway_vector::rules::{FilterRules, FirewallRules, Rules, VifRules};
use grantway_vector::{PortId, Prefix, Rate, Reason};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const PORTS: u16 = 4;
const SECOND: u64 = 1_000_000_000;

/// A filter, as the plain program sees it.
#[derive(Debug, Clone)]
struct Wanted {
    source: Option<(bool, u8, u8)>,
    target_port: Option<(u16, u16)>,
    vlan: Option<u16>,
    vif: Option<u16>,
    treatment: Treatment,
}

#[derive(Debug, Clone)]
struct Settings {
    rules: Vec<Rule>,
    default: Action,
    filters: Vec<Wanted>,
    vifs: Vec<VifRules>,
    stations: u32,
}

impl Settings {
    fn compiled(&self) -> Rules {
        let filter = |(n, wanted): (usize, &Wanted)| {
            let mut pattern = Pattern::default();
            if let Some((v6, host, length)) = wanted.source {
                pattern = pattern.source(&prefix(v6, host, length));
            }
            if let Some((port, mask)) = wanted.target_port {
                pattern = pattern.target_port(port, mask);
            }
            if let Some(vlan) = wanted.vlan {
                pattern = pattern.vlan(vlan);
            }
            if let Some(vif) = wanted.vif {
                pattern = pattern.vif(PortId(vif));
            }
            Filter { name: n.to_string(), pattern, treatment: wanted.treatment }
        };
        let mut filters: Vec<Filter> = Vec::new();
        for filter in self.filters.iter().enumerate().map(filter) {
            if filters.iter().all(|other| other.pattern != filter.pattern) {
                filters.push(filter);
            }
        }
        Rules {
            buckets: Default::default(),
            vifs: self.vifs.clone(),
            learning: Learning { age: 300 * SECOND, stations: self.stations },
            firewall: FirewallRules::new(self.rules.clone(), self.default).unwrap(),
            filters: FilterRules::new(filters, SECRET).unwrap(),
            flows: false,
        }
    }
}

fn address(is_v6: bool, host: u8) -> IpAddr {
    match is_v6 {
        false => Ipv4Addr::from(v4(host)).into(),
        true => Ipv6Addr::from(v6(host)).into(),
    }
}

/// A network of hosts, by how much of the address matters.
fn prefix(v6: bool, host: u8, which: u8) -> Prefix {
    let length = match (v6, which) {
        (_, 0) => 0,
        (false, 1) => 16,
        (false, _) => 32,
        (true, 1) => 16,
        (true, _) => 128,
    };
    Prefix::new(address(v6, host), length).unwrap()
}

/// Both ends of a connection, the lower first.
type Ends = [(IpAddr, u16); 2];
/// State of a connection: true if the lower end began it, true if it was answered, true if it
/// is ending, and the time at which it is forgotten.
type Known = (bool, bool, bool, u64);

/// The plain program.
struct Plain<'a> {
    settings: &'a Settings,
    stations: BTreeMap<[u8; 6], (u16, u64)>,
    connections: HashMap<Ends, Known>,
    drops: BTreeMap<Reason, u64>,
    buckets: HashMap<usize, (u128, u64)>,
}

impl Plain<'_> {
    fn drop(&mut self, reason: Reason) {
        *self.drops.entry(reason).or_default() += 1;
    }

    fn bucket(&mut self, key: usize, rate: Rate, bytes: usize, now: u64) -> bool {
        let (left, since) = self.buckets.entry(key).or_insert((rate.burst.into(), 0));
        let more = u128::from(now - *since) * u128::from(rate.bytes) / u128::from(SECOND);
        if more > 0 {
            (*left, *since) = ((*left + more).min(rate.burst.into()), now);
        }
        let fits = *left >= bytes as u128;
        *left -= if fits { bytes as u128 } else { 0 };
        fits
    }

    /// Returns the ports that a packet goes to, and the queue for each. Counts a packet that is
    /// dropped.
    fn take(&mut self, packet: &Packet, now: u64) -> Vec<(u16, Option<u16>)> {
        match self.judge(packet, now) {
            Ok(out) => out,
            Err(reason) => {
                self.drop(reason);
                Vec::new()
            }
        }
    }

    fn judge(&mut self, packet: &Packet, now: u64) -> Result<Vec<(u16, Option<u16>)>, Reason> {
        let bytes = packet.bytes();
        let is_ip = !matches!(packet.kind, Kind::Arp | Kind::Other);
        self.spoofed(packet, is_ip)?;
        self.firewall(packet, is_ip, now)?;
        let mut queue = None;
        let mut to = None;
        let settings = self.settings;
        let fits = |wanted: &Wanted| filter_fits(wanted, packet, is_ip);
        if let Some((at, wanted)) = settings.filters.iter().enumerate().find(|(_, w)| fits(w)) {
            match wanted.treatment {
                Treatment::Pass | Treatment::Mirror => {}
                Treatment::Drop => return Err(Reason::Filter),
                Treatment::Queue(number) => queue = Some(number),
                Treatment::Police(rate) => {
                    if !self.bucket(1000 + at, rate, bytes.len(), now) {
                        return Err(Reason::Policed);
                    }
                }
                Treatment::Redirect(port) if port.0 == packet.from => return Err(Reason::Hairpin),
                Treatment::Redirect(port) => to = Some(port.0),
            }
        }
        if let Some(rate) = settings.vifs[usize::from(packet.from)].rate
            && !self.bucket(packet.from.into(), rate, bytes.len(), now)
        {
            return Err(Reason::Rate);
        }
        let route = self.bridge(packet, &bytes, now);
        if let Some(to) = to {
            return Ok(vec![(to, queue)]);
        }
        let isolated = |port: u16| settings.vifs[usize::from(port)].isolated;
        match route {
            None => {
                let may = |&to: &u16| to != packet.from && !(isolated(packet.from) && isolated(to));
                Ok((0..PORTS).filter(may).map(|to| (to, queue)).collect())
            }
            Some(to) if to == packet.from => Err(Reason::Hairpin),
            Some(to) if isolated(packet.from) && isolated(to) => Err(Reason::Isolated),
            Some(to) => Ok(vec![(to, queue)]),
        }
    }

    fn spoofed(&self, packet: &Packet, is_ip: bool) -> Result<(), Reason> {
        let allowed = &self.settings.vifs[usize::from(packet.from)].allowed;
        let mac = common::mac(packet.stations[0]);
        let number = mac.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        if !allowed.macs.is_empty() && !allowed.macs.contains(&number) {
            return Err(Reason::SpoofedMac);
        }
        let arp = packet.kind == Kind::Arp;
        if allowed.networks.is_empty() {
            return Ok(());
        }
        if !(is_ip || arp) {
            return Err(Reason::SpoofedOther);
        }
        let v6 = is_ip && packet.v6;
        let source = address(v6, packet.hosts[0]);
        let known = allowed.networks.iter().any(|network| network_has(network, source));
        match (known, arp, v6) {
            (true, ..) => Ok(()),
            (_, true, _) => Err(Reason::SpoofedArp),
            (_, _, true) => Err(Reason::SpoofedIpv6),
            _ => Err(Reason::SpoofedIpv4),
        }
    }

    fn firewall(&mut self, packet: &Packet, is_ip: bool, now: u64) -> Result<(), Reason> {
        let settings = self.settings;
        if settings.rules.is_empty() && settings.default == Action::Accept {
            return Ok(());
        }
        let tracks = settings.rules.iter().any(|rule| !rule.states.is_empty());
        let (state, key) =
            if tracks { self.state(packet, is_ip, now) } else { (State::Untracked, None) };
        let fits = |rule: &&Rule| rule_fits(rule, packet, is_ip, state);
        let action = settings.rules.iter().find(fits).map_or(settings.default, |rule| rule.action);
        if action == Action::Drop {
            return Err(Reason::Firewall);
        }
        let Some((ends, lower)) = key else { return Ok(()) };
        let tcp = matches!(packet.kind, Kind::Tcp { .. });
        let flags = if let Kind::Tcp { flags, .. } = packet.kind { flags } else { 0 };
        let fresh = (lower, false, false, now + 60 * SECOND);
        match self.connections.get_mut(&ends) {
            None if state == State::New => {
                self.connections.insert(ends, fresh);
            }
            Some(known) if state == State::New && (known.2 || known.3 < now) => *known = fresh,
            Some((by, answered, ending, until)) if state != State::Invalid => {
                *answered |= *by != lower;
                *ending |= tcp && flags & 5 != 0;
                *until = now
                    + SECOND
                        * match (*ending, *answered, tcp) {
                            (true, ..) => 30,
                            (_, false, _) => 60,
                            (_, _, true) => 7440,
                            _ => 180,
                        };
            }
            _ => {}
        }
        Ok(())
    }

    fn state(&self, packet: &Packet, is_ip: bool, now: u64) -> (State, Option<(Ends, bool)>) {
        let (ports, begins) = match packet.kind {
            Kind::Tcp { ports, flags } => (ports, flags & 0x16 == 2),
            Kind::Udp { ports } => (ports.map(|port| port ^ 0x8000), true),
            Kind::Echo { id, .. } => ([id | 0x4000; 2], true),
            Kind::Arp | Kind::Other => return (State::Untracked, None),
        };
        assert!(is_ip);
        let ends = [0, 1].map(|n| (address(packet.v6, packet.hosts[n]), ports[n]));
        let lower = ends[0] <= ends[1];
        let key = if lower { ends } else { [ends[1], ends[0]] };
        let tcp = matches!(packet.kind, Kind::Tcp { .. });
        let known = self.connections.get(&key).filter(|known| known.3 >= now);
        let state = match known {
            Some((_, _, true, _)) if tcp && begins => State::New,
            Some((by, answered, ..)) if *answered || *by != lower => State::Established,
            Some(_) => State::New,
            None if begins => State::New,
            None => State::Invalid,
        };
        (state, Some((key, lower)))
    }

    fn bridge(&mut self, packet: &Packet, bytes: &[u8], now: u64) -> Option<u16> {
        let (to, from) = (bytes[..6].try_into().unwrap(), bytes[6..12].try_into().unwrap());
        let old = |seen: u64| now - seen > 300 * SECOND;
        match self.stations.get(&from) {
            Some(&(port, _)) if port == packet.from => {
                self.stations.insert(from, (port, now));
            }
            _ => {
                let of_port = |&&(port, _): &&(u16, u64)| port == packet.from;
                // Old ones make room, but not more often than each second: no run
                // here is that long.
                let count = self.stations.values().filter(of_port).count();
                if count < self.settings.stations as usize {
                    self.stations.insert(from, (packet.from, now));
                }
            }
        }
        let &(port, seen) = self.stations.get::<[u8; 6]>(&to)?;
        if old(seen) {
            self.stations.remove(&to);
            return None;
        }
        Some(port)
    }
}

fn network_has(network: &Prefix, address: IpAddr) -> bool {
    let text = network.to_string();
    let (first, length) = text.split_once('/').unwrap();
    let length: u32 = length.parse().unwrap();
    match (first.parse::<IpAddr>().unwrap(), address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            length == 0 || a.to_bits() >> (32 - length) == b.to_bits() >> (32 - length)
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            length == 0 || a.to_bits() >> (128 - length) == b.to_bits() >> (128 - length)
        }
        _ => false,
    }
}

fn ports(packet: &Packet) -> Option<[u16; 2]> {
    match packet.kind {
        Kind::Tcp { ports, .. } | Kind::Udp { ports } => Some(ports),
        _ => None,
    }
}

fn rule_fits(rule: &Rule, packet: &Packet, is_ip: bool, state: State) -> bool {
    use grantway_vector::headers::Network;
    let network = match packet.kind {
        Kind::Arp => Network::Arp,
        Kind::Other => Network::Other,
        _ if packet.v6 => Network::V6,
        _ => Network::V4,
    };
    let within = |list: &[Prefix], host| {
        list.is_empty() || is_ip && list.iter().any(|n| network_has(n, address(packet.v6, host)))
    };
    let range = |wanted: &Option<std::ops::RangeInclusive<u16>>, which: usize| match wanted {
        None => true,
        Some(range) => ports(packet).is_some_and(|ports| range.contains(&ports[which])),
    };
    rule.network.is_none_or(|wanted| wanted == network)
        && rule.protocol.is_none_or(|wanted| is_ip && wanted == packet.protocol())
        && within(&rule.sources, packet.hosts[0])
        && within(&rule.targets, packet.hosts[1])
        && range(&rule.source_ports, 0)
        && range(&rule.target_ports, 1)
        && (rule.vifs.is_empty() || rule.vifs.contains(&PortId(packet.from)))
        && (rule.states.is_empty() || rule.states.contains(&state))
}

fn filter_fits(wanted: &Wanted, packet: &Packet, is_ip: bool) -> bool {
    wanted.source.is_none_or(|(v6, host, which)| {
        is_ip && network_has(&prefix(v6, host, which), address(packet.v6, packet.hosts[0]))
    }) && wanted.target_port.is_none_or(|(port, mask)| {
        ports(packet).is_some_and(|ports| ports[1] & mask == port & mask)
    }) && wanted.vlan.is_none_or(|vlan| packet.vlan.unwrap_or(0) == vlan)
        && wanted.vif.is_none_or(|vif| packet.from == vif)
}

fn packet() -> impl Strategy<Value = Packet> {
    let ports = || [0u16..4, 0u16..4];
    let flags = proptest::sample::select(vec![2u8, 0x12, 0x10, 0x18, 0x11, 4, 0x14]);
    let kind = prop_oneof![
        4 => (ports(), flags).prop_map(|(ports, flags)| Kind::Tcp { ports, flags }),
        4 => ports().prop_map(|ports| Kind::Udp { ports }),
        1 => (0u16..3, any::<bool>()).prop_map(|(id, answer)| Kind::Echo { id, answer }),
        1 => Just(Kind::Arp),
        1 => Just(Kind::Other),
    ];
    (
        0..PORTS,
        (1u8..8, prop_oneof![7 => 1u8..8, 1 => Just(255)]),
        proptest::option::weighted(0.2, 0u16..3),
        any::<bool>(),
        [1u8..12, 1u8..12],
        kind,
        0usize..60,
    )
        .prop_map(|(from, stations, vlan, v6, hosts, kind, payload)| Packet {
            from,
            stations: stations.into(),
            vlan,
            v6,
            hosts,
            kind,
            payload,
        })
}

fn settings() -> impl Strategy<Value = Settings> {
    use grantway_vector::headers::Network;
    let networks = || {
        let one = (any::<bool>(), 1u8..12, 0u8..3).prop_map(|(v6, host, n)| prefix(v6, host, n));
        proptest::collection::vec(one, 0..3)
    };
    let maybe = |of: std::ops::Range<u16>| proptest::option::weighted(0.3, of);
    let rule = (
        any::<bool>(),
        proptest::option::weighted(
            0.2,
            proptest::sample::select(vec![Network::V4, Network::V6, Network::Arp, Network::Other]),
        ),
        proptest::option::weighted(0.3, proptest::sample::select(vec![1u8, 6, 17, 58])),
        [networks(), networks()],
        [maybe(0..4), maybe(0..4)],
        proptest::collection::vec((0..PORTS).prop_map(PortId), 0..2),
        proptest::collection::vec(proptest::sample::select(State::ALL.to_vec()), 0..2),
    )
        .prop_map(|(drop, network, protocol, [sources, targets], [p, q], vifs, states)| Rule {
            action: if drop { Action::Drop } else { Action::Accept },
            network,
            protocol,
            sources,
            targets,
            source_ports: p.map(|port| port..=port + 1),
            target_ports: q.map(|port| port..=port),
            vifs,
            states,
            ..Rule::default()
        });
    let treatment = prop_oneof![
        Just(Treatment::Pass),
        Just(Treatment::Drop),
        Just(Treatment::Mirror),
        (0u16..4).prop_map(Treatment::Queue),
        (0..PORTS).prop_map(|port| Treatment::Redirect(PortId(port))),
        (1u64..100_000).prop_map(|bytes| Treatment::Police(Rate { bytes, burst: 2000 })),
    ];
    let filter = (
        proptest::option::weighted(0.5, (any::<bool>(), 1u8..12, 1u8..3)),
        proptest::option::weighted(0.5, (0u16..4, 1u16..4)),
        maybe(0..3),
        maybe(0..PORTS),
        treatment,
    )
        .prop_map(|(source, target_port, vlan, vif, treatment)| Wanted {
            source,
            target_port,
            vlan,
            vif,
            treatment,
        });
    let vif = (
        proptest::option::weighted(0.3, 1u8..8),
        proptest::option::weighted(0.3, networks()),
        any::<bool>(),
        proptest::option::weighted(0.2, 1u64..100_000),
    )
        .prop_map(|(station, networks, isolated, rate)| VifRules {
            allowed: Allowed {
                macs: station.map(|n| 0x0200_0000_0000 | u64::from(n)).into_iter().collect(),
                networks: networks.unwrap_or_default(),
            },
            isolated,
            stations: None,
            rate: rate.map(|bytes| Rate { bytes, burst: 3000 }),
        });
    (
        proptest::collection::vec(rule, 0..24),
        any::<bool>(),
        proptest::collection::vec(filter, 0..6),
        proptest::collection::vec(vif, usize::from(PORTS)),
        1u32..5,
    )
        .prop_map(|(rules, drop, filters, vifs, stations)| Settings {
            rules,
            default: if drop { Action::Drop } else { Action::Accept },
            filters,
            vifs,
            stations,
        })
}

type Drops = BTreeMap<Reason, u64>;

/// Runs bursts through the graph, in lists of `list` packets. Returns the frames that come out,
/// and the counts of drops.
fn run(rules: &Arc<Rules>, bursts: &[(u64, Vec<Packet>)], list: usize) -> (Vec<Given>, Drops) {
    let mut bench = Bench::new(rules.clone(), PORTS, Checks::Verify);
    let mut given = Vec::new();
    for (now, packets) in bursts {
        let frames: Vec<_> =
            packets.iter().map(|p| (p.from, p.bytes(), Offload::default())).collect();
        given.extend(bench.run(&frames, list, *now));
    }
    (given, bench.graph.drops().iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn lists_give_the_same_results_as_single_packets(
        settings in settings(),
        steps in proptest::collection::vec(
            (0u64..900_000_000, proptest::collection::vec(packet(), 1..256)), 1..4),
    ) {
        let mut now = 0;
        let bursts: Vec<_> = steps
            .into_iter()
            .map(|(step, packets)| {
                // Less than a second in all: see `Plain::bridge`.
                now += step / 4;
                (now, packets)
            })
            .collect();
        let rules = Arc::new(settings.compiled());
        let one = run(&rules, &bursts, 1);
        for list in [2, 7, 64, 256] {
            prop_assert_eq!(&run(&rules, &bursts, list), &one, "lists of {}", list);
        }
        let mut plain = Plain {
            settings: &settings,
            stations: BTreeMap::new(),
            connections: HashMap::new(),
            drops: BTreeMap::new(),
            buckets: HashMap::new(),
        };
        let mut expected = Vec::new();
        for (now, packets) in &bursts {
            for packet in packets {
                for (to, queue) in plain.take(packet, *now) {
                    expected.push((PortId(to), queue, packet.bytes()));
                }
            }
        }
        let given: Vec<_> =
            one.0.into_iter().map(|(to, queue, bytes, _)| (to, queue, bytes)).collect();
        prop_assert_eq!(given, expected);
        prop_assert_eq!(one.1, plain.drops);
    }
}

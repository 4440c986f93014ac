//! Tests that compiled rules say what the rules say one after the other.

use super::*;
use crate::headers::{Headers, Network, Transport};
use crate::prefix::Prefix;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const SECRET: Secret = Secret(0xfeed_f00d, 0xdead_beef_cafe);

fn prefix() -> impl Strategy<Value = Prefix> {
    // Few networks, so that they overlap.
    (any::<bool>(), 0u128..16, 0u8..=4, any::<bool>()).prop_map(|(v6, nibble, length, full)| {
        let (address, bits): (IpAddr, u8) = match v6 {
            true => (Ipv6Addr::from_bits(nibble << 124).into(), 128),
            false => (Ipv4Addr::from_bits((nibble as u32) << 28).into(), 32),
        };
        Prefix::new(address, if full { bits } else { length }).unwrap()
    })
}

fn maybe<T: Clone + std::fmt::Debug>(
    one: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<T>> {
    proptest::option::weighted(0.4, one)
}

fn rule() -> impl Strategy<Value = Rule> {
    let network =
        proptest::sample::select(vec![Network::V4, Network::V6, Network::Arp, Network::Other]);
    let range = (0u16..10, 0u16..10).prop_map(|(a, b)| a.min(b)..=a.max(b));
    let few = |n| proptest::collection::vec(prefix(), 0..n);
    (
        (maybe(network), maybe(6u8..9), few(3), few(2)),
        (maybe(range.clone()), maybe(range)),
        proptest::collection::vec((0u16..4).prop_map(PortId), 0..2),
        proptest::collection::vec(proptest::sample::select(State::ALL.to_vec()), 0..2),
    )
        .prop_map(|((network, protocol, sources, targets), (p, q), vifs, states)| Rule {
            network,
            protocol,
            sources,
            targets,
            source_ports: p,
            target_ports: q,
            vifs,
            states,
            ..Rule::default()
        })
}

fn headers() -> impl Strategy<Value = Headers> {
    let network =
        proptest::sample::select(vec![Network::V4, Network::V6, Network::Arp, Network::Other]);
    (network, 0u128..16, 0u128..16, 0u16..11, 0u16..11, 6u8..9, any::<bool>()).prop_map(
        |(network, a, b, p, q, protocol, has_ports)| {
            let shift = if network == Network::V6 { 124 } else { 28 };
            Headers {
                network,
                source: a << shift,
                target: b << shift,
                ports: [p, q],
                has_ports,
                protocol,
                ..Headers::default()
            }
        },
    )
}

proptest! {
    #[test]
    fn compiled_as_plain(
        rules in proptest::collection::vec(rule(), 0..200),
        frames in proptest::collection::vec(
            (headers(), 0u16..5, proptest::sample::select(State::ALL.to_vec())), 1..100),
    ) {
        let matcher = Matcher::new(&rules).unwrap();
        for (headers, from, state) in frames {
            let from = PortId(from);
            let plain = rules.iter().position(|rule| rule.fits(&headers, from, state));
            prop_assert_eq!(matcher.first(&headers, from, state), plain, "{:?}", headers);
        }
    }
}

/// Returns numbers by chance, the same in every run.
fn numbers(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 24
    }
}

#[test]
fn ten_thousand_rules_and_more_than_one_summary() {
    let mut next = numbers(1);
    let rules: Vec<Rule> = (0..10_000)
        .map(|_| {
            let address = Ipv4Addr::from_bits(next() as u32);
            let source = Prefix::new(address.into(), 8 + (next() % 25) as u8).unwrap();
            let first = next() as u16;
            Rule {
                protocol: Some(if next().is_multiple_of(2) { 6 } else { 17 }),
                sources: vec![source],
                target_ports: Some(first..=first.saturating_add(next() as u16 % 1000)),
                ..Rule::default()
            }
        })
        .collect();
    let matcher = Matcher::new(&rules).unwrap();
    let mut hits = 0;
    for _ in 0..5000 {
        let headers = Headers {
            network: Network::V4,
            source: (next() as u32).into(),
            ports: [1, next() as u16],
            has_ports: true,
            protocol: 6,
            ..Headers::default()
        };
        let plain = rules.iter().position(|r| r.fits(&headers, PortId(0), State::New));
        assert_eq!(matcher.first(&headers, PortId(0), State::New), plain);
        hits += usize::from(plain.is_some());
    }
    assert!(hits > 50, "{hits}");
    let many = vec![Rule::default(); RULES_MAX + 1];
    assert_eq!(Matcher::new(&many).unwrap_err(), MatcherError::Rules { found: RULES_MAX + 1 });
}

fn tcp(ports: [u16; 2], ends: [u128; 2], flags: u8) -> Headers {
    Headers {
        network: Network::V4,
        source: ends[0],
        target: ends[1],
        ports,
        has_ports: true,
        protocol: 6,
        transport: Transport::Tcp,
        tcp_flags: flags,
        ..Headers::default()
    }
}

#[test]
fn a_connection_begins_is_answered_and_ends() {
    let mut connections = Connections::new(SECRET);
    let mut say = |headers: &Headers, now| {
        let found = connections.find(&[], headers, now);
        assert!(connections.note(&found, headers, PortId(1), now).is_ok());
        found.state
    };
    let (there, back) = ([1, 2], [2, 1]);
    let go = |flags| tcp([5, 80], there, flags);
    let come = |flags| tcp([80, 5], back, flags);
    assert_eq!(say(&go(0x10), 0), State::Invalid, "nothing began");
    assert_eq!(say(&go(2), 0), State::New);
    assert_eq!(say(&go(2), 1), State::New, "once more");
    assert_eq!(say(&come(0x12), 2), State::Established);
    assert_eq!(say(&go(0x10), 3), State::Established);
    assert_eq!(say(&come(4), 4), State::Established, "a reset");
    assert_eq!(say(&go(2), 5), State::New, "the same ports again");
    assert_eq!(say(&go(0x10), 61_000_000_000_000), State::Invalid, "too late");
}

/// Begins up to `many` connections by a port's packets. Returns how many were let in.
fn begin(connections: &mut Connections, port: u16, many: u32) -> u32 {
    (0..many)
        .map(|n| {
            let headers = tcp([5, 80], [u128::from(port) << 32 | u128::from(n), 1 << 50], 2);
            let found = connections.find(&[], &headers, 0);
            u32::from(connections.note(&found, &headers, PortId(port), 0).is_ok())
        })
        .sum()
}

#[test]
fn one_port_cannot_take_all_connections() {
    let mut connections = Connections::new(SECRET);
    assert_eq!(connections.len(), 0);
    assert_eq!(begin(&mut connections, 1, 2 * OF_PORT_MAX), OF_PORT_MAX);
    assert_eq!(connections.len(), OF_PORT_MAX as usize);
    assert_eq!(begin(&mut connections, 2, 1), 1, "another port has its own");
    connections.forget_port(PortId(1));
    assert_eq!(connections.len(), 1);
}

#[test]
fn many_ports_together_leave_room_for_one_more() {
    let mut connections = Connections::new(SECRET);
    let most = CONNECTIONS_MAX + 50 * OF_PORT_LEAST;
    let taken: u32 = (1..=50).map(|port| begin(&mut connections, port, 2 * OF_PORT_MAX)).sum();
    assert!(taken <= most, "{taken}");
    let late = begin(&mut connections, 99, 2 * OF_PORT_MAX);
    assert!(late >= OF_PORT_LEAST, "{late}");
    // The connections of forgotten ports are free again, to the last one.
    for port in (1..=50).chain([99]) {
        connections.forget_port(PortId(port));
    }
    assert_eq!(begin(&mut connections, 1, 2 * OF_PORT_MAX), OF_PORT_MAX);
}

#[test]
fn an_icmp_error_longer_than_what_is_private_has_its_connection() {
    let mut connections = Connections::new(SECRET);
    let begun = tcp([5, 80], [1, 2], 2);
    let found = connections.find(&[], &begun, 0);
    assert!(connections.note(&found, &begun, PortId(1), 0).is_ok());
    // The error quotes an IPv4 header and the first bytes of TCP.
    let mut quoted = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2];
    quoted.extend([0, 5, 0, 80, 0, 0, 0, 0]);
    let error = |end| Headers {
        network: Network::V4,
        transport: Transport::Icmp,
        protocol: 1,
        ports: [3 << 8, 0],
        payload_at: 0,
        end,
        ..Headers::default()
    };
    let whole = quoted.len() as u32;
    assert_eq!(connections.find(&quoted, &error(whole), 1).state, State::Established);
    assert_eq!(connections.find(&quoted, &error(whole + 500), 1).state, State::Established);
    assert_eq!(connections.find(&quoted[..20], &error(whole), 1).state, State::Invalid);
}

/// A packet at the first of two tables, whose news the second hears.
fn said_to_both(both: &mut [Connections; 2], at: usize, headers: &Headers, now: Nanos) -> State {
    let found = both[at].find(&[], headers, now);
    if let Ok(Some(change)) = both[at].note(&found, headers, PortId(at as u16), now) {
        both[1 - at].hear(&change, now);
    }
    found.state
}

#[test]
fn a_table_knows_what_another_was_told() {
    const SECOND: Nanos = 1_000_000_000;
    let mut both = [0, 1].map(|_| Connections::new(SECRET));
    let go = |flags| tcp([5, 80], [1, 2], flags);
    let come = |flags| tcp([80, 5], [2, 1], flags);
    // What goes is judged by the first, what comes by the second.
    assert_eq!(said_to_both(&mut both, 1, &come(0x12), 0), State::Invalid, "nothing began");
    assert_eq!(said_to_both(&mut both, 0, &go(2), 1), State::New);
    assert_eq!(said_to_both(&mut both, 1, &come(0x12), 2), State::Established);
    assert_eq!(said_to_both(&mut both, 0, &go(0x10), 3), State::Established);
    // Only one way carries anything, for longer than a table remembers by itself.
    for hour in 1..=6 {
        let now = hour * 3600 * SECOND;
        assert_eq!(said_to_both(&mut both, 0, &go(0x10), now), State::Established);
    }
    assert_eq!(said_to_both(&mut both, 1, &come(0x10), 21_601 * SECOND), State::Established);
    // It ends at one, and so at both; and begins again.
    assert_eq!(said_to_both(&mut both, 1, &come(4), 21_602 * SECOND), State::Established);
    assert_eq!(said_to_both(&mut both, 0, &go(2), 21_603 * SECOND), State::New);
    assert_eq!(said_to_both(&mut both, 1, &come(4), 21_604 * SECOND), State::Established);
    for connections in &mut both {
        assert_eq!(connections.len(), 1);
        assert_eq!(connections.find(&[], &go(0x10), 21_700 * SECOND).state, State::Invalid);
        connections.forget_port(PortId(0));
        assert!(connections.is_empty(), "it counts for who began it");
    }
}

#[test]
fn packets_of_a_known_connection_are_no_news() {
    let mut connections = Connections::new(SECRET);
    let mut news = 0;
    for n in 0..10_000u64 {
        let headers = match n % 2 {
            0 => tcp([5, 80], [1, 2], if n == 0 { 2 } else { 0x10 }),
            _ => tcp([80, 5], [2, 1], 0x10),
        };
        let found = connections.find(&[], &headers, n);
        let change = connections.note(&found, &headers, PortId(1), n).unwrap();
        news += usize::from(change.is_some());
    }
    assert_eq!(news, 2, "it began, and was answered");
}

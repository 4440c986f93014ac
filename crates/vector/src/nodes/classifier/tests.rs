//! Filters, compiled, say what they say one after the other.

use super::*;
use crate::bucket::Rate;
use crate::headers::{Headers, Network};
use crate::node::Each;
use crate::prefix::Prefix;
use crate::rules::FilterRules;
use crate::secret::Secret;
use crate::{Batch, Frame, Graph, PortId};
use proptest::prelude::*;

const SECRET: Secret = Secret(0xfeed_f00d, 0xdead_beef_cafe);

fn prefix(address: u32, length: u8) -> Prefix {
    Prefix::new(std::net::Ipv4Addr::from_bits(address).into(), length).unwrap()
}

fn filter(name: &str, pattern: Pattern) -> Filter {
    Filter { name: name.to_owned(), pattern, treatment: Treatment::Pass }
}

#[test]
fn the_first_that_fits_whatever_it_looks_at() {
    let http = Pattern::default().target_port(80, 0xffff);
    let net = Pattern::default().source(&prefix(0x0a00_0000, 8));
    let both = http.source(&prefix(0x0a01_0000, 16));
    let filters = [filter("a", both), filter("b", net), filter("c", http)];
    let table = Table::new(&filters, SECRET).unwrap();
    let key = |source: u32, port| {
        let headers = Headers {
            network: Network::V4,
            source: source.into(),
            ports: [1, port],
            has_ports: true,
            ..Headers::default()
        };
        Key::of(&crate::batch::Frame::default(), &[], &headers)
    };
    assert_eq!(table.first(&key(0x0a01_0203, 80)), Some(0));
    assert_eq!(table.first(&key(0x0a02_0203, 80)), Some(1));
    assert_eq!(table.first(&key(0x0b01_0203, 80)), Some(2));
    assert_eq!(table.first(&key(0x0b01_0203, 81)), None);
}

#[test]
fn bounds_are_said() {
    let http = Pattern::default().target_port(80, 0xffff);
    let twice = Table::new(&[filter("a", http), filter("b", http)], SECRET).unwrap_err();
    assert_eq!(twice, FilterError::Twice { filter: "b".into(), first: "a".into() });
    let masks = |n: u16| -> Vec<Filter> {
        (1..=n).map(|n| filter(&n.to_string(), Pattern::default().target_port(n, n))).collect()
    };
    assert!(Table::new(&masks(64), SECRET).is_ok());
    let many = Table::new(&masks(65), SECRET).unwrap_err();
    assert_eq!(many, FilterError::Masks { filter: "65".into() });
}

#[test]
fn a_reload_keeps_what_is_left_of_a_rate_that_stays() {
    let rules = |bytes| {
        let rate = Rate { bytes, burst: 1000 };
        let police =
            Filter { treatment: Treatment::Police(rate), ..filter("p", Pattern::default()) };
        let filters = FilterRules::new(vec![filter("new", pattern_of(bytes)), police], SECRET);
        Arc::new(Rules { filters: filters.unwrap(), ..Rules::default() })
    };
    let mut graph = Graph::new(|| 0);
    graph.add(Each(Classifier::default()), &[]).unwrap();
    let mut passes = |rules: &Arc<Rules>| {
        graph.load(rules);
        let (len, from) = (1000, PortId(1));
        let mut batch = Batch::new();
        batch.push(Frame { len, head: len, from, ..Frame::default() }).unwrap();
        graph.run(&mut batch, &mut [0; 1000], 0);
        batch.verdict(0) != Verdict::Drop(Reason::Policed)
    };
    assert!(passes(&rules(1)));
    assert!(!passes(&rules(1)), "the bucket is empty still");
    assert!(passes(&rules(2)), "a new rate begins full");
}

/// Returns a pattern that fits one port.
fn pattern_of(port: u64) -> Pattern {
    Pattern::default().target_port(port as u16, 0xffff)
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let small = 0u16..4;
    (any::<u8>(), any::<[u8; 2]>(), small.clone(), small, 0u8..=2).prop_map(
        |(which, [a, b], port, vlan, length)| {
            let mut pattern = Pattern::default();
            if which & 1 != 0 {
                pattern = pattern.source(&prefix(u32::from(a % 4) << 30, length));
            }
            if which & 2 != 0 {
                pattern = pattern.target(&prefix(u32::from(b % 4) << 30, length));
            }
            if which & 4 != 0 {
                pattern = pattern.target_port(port, 3);
            }
            if which & 8 != 0 {
                pattern = pattern.source_port(port, 1);
            }
            if which & 16 != 0 {
                pattern = pattern.vlan(vlan);
            }
            if which & 32 != 0 {
                pattern = pattern.protocol(6);
            }
            pattern
        },
    )
}

proptest! {
    #[test]
    fn as_one_after_the_other(
        patterns in proptest::collection::vec(pattern(), 0..60),
        frames in proptest::collection::vec(
            (0u32..4, 0u32..4, 0u16..4, 0u16..4, 0u16..4, 6u8..8), 1..60),
    ) {
        let mut filters: Vec<Filter> = Vec::new();
        for pattern in patterns {
            if filters.iter().all(|filter| filter.pattern != pattern) {
                filters.push(filter(&filters.len().to_string(), pattern));
            }
        }
        let Ok(table) = Table::new(&filters, SECRET) else { return Ok(()) };
        for (a, b, p, q, vlan, protocol) in frames {
            let headers = Headers {
                network: Network::V4,
                source: u128::from(a << 30),
                target: u128::from(b << 30),
                ports: [p, q],
                has_ports: true,
                vlan,
                protocol,
                ..Headers::default()
            };
            let key = Key::of(&crate::batch::Frame::default(), &[], &headers);
            let plain = filters.iter().position(|filter| filter.pattern.fits(&key));
            prop_assert_eq!(table.first(&key), plain);
        }
    }
}

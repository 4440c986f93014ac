//! Compiled rules in order. A search returns the first matching rule.

use super::field::{Choices, Class, Field, RULES_MAX, Ranges, SUMMARY};
use super::rule::{Rule, State};
use crate::batch::PortId;
use crate::headers::{Headers, Network};
use crate::prefix::Prefix;
use arrayvec::ArrayVec;
use std::ops::RangeInclusive;

/// Most bytes that a field may take. Rules that overlap without end would take more.
pub const FIELD_BYTES_MAX: usize = 64 << 20;

/// Reason why rules cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MatcherError {
    /// There are too many rules.
    #[error("{found} rules, expected at most {RULES_MAX}; write several addresses into one rule")]
    Rules {
        /// Number of rules found.
        found: usize,
    },
    /// Too many different sets of rules fit the values of a field.
    #[error(
        "the rules' {field} overlap in too many ways: more than {} MiB, expected less; \
         write rules with fewer different networks or ranges",
        FIELD_BYTES_MAX >> 20
    )]
    Memory {
        /// Name of the field.
        field: &'static str,
    },
}

/// Compiled rules in order.
#[derive(Debug, Default)]
pub struct Matcher {
    rules: usize,
    networks: Option<Choices>,
    protocols: Option<Choices>,
    vifs: Option<Choices>,
    states: Option<Choices>,
    v4: Addresses<u32>,
    v6: Addresses<u128>,
    ports: [Option<Ranges<u16>>; 2],
}

/// Ranges of the source, then of the destination; none if no rule names any.
#[derive(Debug)]
struct Addresses<T>([Option<Ranges<T>>; 2]);

impl<T> Default for Addresses<T> {
    fn default() -> Self {
        Self([None, None])
    }
}

type Fields<'a> = ArrayVec<(&'a Field, Class), 8>;

impl Matcher {
    /// Compiles rules.
    ///
    /// # Errors
    /// Returns [`MatcherError`] if there are too many rules, or if they overlap in too many ways.
    pub fn new(rules: &[Rule]) -> Result<Self, MatcherError> {
        if rules.len() > RULES_MAX {
            return Err(MatcherError::Rules { found: rules.len() });
        }
        // A field that no rule names is left out: searches do not look at it then.
        let bounds = |range: &Option<RangeInclusive<u16>>| {
            range.as_ref().map(|range| vec![(*range.start(), *range.end())])
        };
        let vifs = rules.iter().flat_map(|rule| &rule.vifs).map(|vif| usize::from(vif.0) + 1).max();
        Ok(Self {
            rules: rules.len(),
            networks: choices(rules, 7, |rule| rule.network.map(|n| vec![n as usize])),
            protocols: choices(rules, 256, |rule| rule.protocol.map(|p| vec![p.into()])),
            vifs: choices(rules, vifs.unwrap_or(0), |rule| {
                let ports = rule.vifs.iter().map(|vif| vif.0.into()).collect();
                (!rule.vifs.is_empty()).then_some(ports)
            }),
            states: choices(rules, State::ALL.len(), |rule| {
                let states = rule.states.iter().map(|&state| state as usize).collect();
                (!rule.states.is_empty()).then_some(states)
            }),
            v4: Addresses([
                addresses(rules, Network::V4, "source addresses", |r| &r.sources, |a| a as u32)?,
                addresses(rules, Network::V4, "destinations", |r| &r.targets, |a| a as u32)?,
            ]),
            v6: Addresses([
                addresses(rules, Network::V6, "source addresses", |r| &r.sources, |a| a)?,
                addresses(rules, Network::V6, "destinations", |r| &r.targets, |a| a)?,
            ]),
            ports: [
                ranges(rules, "source ports", |rule| bounds(&rule.source_ports))?,
                ranges(rules, "destination ports", |rule| bounds(&rule.target_ports))?,
            ],
        })
    }

    /// Returns true if any rule asks for the state of connections.
    #[must_use]
    pub fn asks_for_state(&self) -> bool {
        self.states.is_some()
    }

    /// Returns the number of the first rule that a frame matches.
    #[inline]
    #[must_use]
    pub fn first(&self, headers: &Headers, from: PortId, state: State) -> Option<usize> {
        let mut fields = Fields::new();
        if let Some(choices) = &self.networks {
            fields.push((&choices.field, choices.class(headers.network as usize)));
        }
        let is_ip = matches!(headers.network, Network::V4 | Network::V6);
        if let Some(choices) = &self.protocols {
            let class =
                if is_ip { choices.class(headers.protocol.into()) } else { Class::default() };
            fields.push((&choices.field, class));
        }
        if let Some(choices) = &self.vifs {
            fields.push((&choices.field, choices.class(from.0.into())));
        }
        if let Some(choices) = &self.states {
            fields.push((&choices.field, choices.class(state as usize)));
        }
        let values = [headers.source, headers.target];
        // Rules about addresses of one family have no bit in the other's field.
        match headers.network {
            Network::V6 => add(&mut fields, &self.v6.0, values),
            Network::V4 => add(&mut fields, &self.v4.0, values.map(|address| address as u32)),
            // No rule about addresses fits.
            _ => {
                for ranges in self.v4.0.iter().flatten() {
                    fields.push((&ranges.field, Class::default()));
                }
            }
        }
        for (ranges, port) in self.ports.iter().zip(headers.ports) {
            if let Some(ranges) = ranges {
                let class = if headers.has_ports { ranges.class(port) } else { Class::default() };
                fields.push((&ranges.field, class));
            }
        }
        search(&fields, self.rules)
    }
}

#[inline]
fn add<'a, T: super::field::Number>(
    fields: &mut Fields<'a>,
    ranges: &'a [Option<Ranges<T>>; 2],
    values: [T; 2],
) {
    for (ranges, value) in ranges.iter().zip(values) {
        if let Some(ranges) = ranges {
            fields.push((&ranges.field, ranges.class(value)));
        }
    }
}

/// Returns the number of the first rule that has its bit in every field.
#[inline]
fn search(fields: &Fields<'_>, rules: usize) -> Option<usize> {
    if fields.is_empty() {
        // No rule names a field, so the first rule fits.
        return (rules > 0).then_some(0);
    }
    for at in 0..rules.div_ceil(64 * 64).min(SUMMARY) {
        let all = |sum: u64, (field, class): &(&Field, Class)| sum & field.summary(class, at);
        let mut words = fields.iter().fold(u64::MAX, all);
        while words != 0 {
            let bit = words.trailing_zeros();
            words &= words - 1;
            let all =
                |word: u64, (field, class): &(&Field, Class)| word & field.word(class, at, bit);
            let word = fields.iter().fold(u64::MAX, all);
            if word != 0 {
                return Some((64 * at + bit as usize) * 64 + word.trailing_zeros() as usize);
            }
        }
    }
    None
}

/// Compiles a field of few values. Returns none if no rule names one.
fn choices(
    rules: &[Rule],
    values: usize,
    of: impl Fn(&Rule) -> Option<Vec<usize>>,
) -> Option<Choices> {
    let (named, open) = split(rules, of);
    (!named.is_empty()).then(|| Choices::new(rules.len(), open.into_iter(), &named, values))
}

fn ranges<T: super::field::Number>(
    rules: &[Rule],
    field: &'static str,
    of: impl Fn(&Rule) -> Option<Vec<(T, T)>>,
) -> Result<Option<Ranges<T>>, MatcherError> {
    let (named, open) = split(rules, of);
    if named.is_empty() {
        return Ok(None);
    }
    let compiled = Ranges::new(rules.len(), open.into_iter(), &named, FIELD_BYTES_MAX);
    compiled.map(Some).ok_or(MatcherError::Memory { field })
}

fn addresses<T: super::field::Number>(
    rules: &[Rule],
    network: Network,
    field: &'static str,
    of: fn(&Rule) -> &Vec<Prefix>,
    narrow: fn(u128) -> T,
) -> Result<Option<Ranges<T>>, MatcherError> {
    ranges(rules, field, |rule| {
        let range = |prefix: &Prefix| {
            let (first, last) = prefix.range();
            (narrow(first), narrow(last))
        };
        let own = of(rule).iter().filter(|prefix| prefix.network() == network);
        (!of(rule).is_empty()).then(|| own.map(range).collect())
    })
}

/// Splits rules into those that name values of a field, with the values, and those that do not.
fn split<T>(rules: &[Rule], of: impl Fn(&Rule) -> Option<T>) -> (Vec<(usize, T)>, Vec<usize>) {
    let mut named = Vec::new();
    let mut open = Vec::new();
    for (number, rule) in rules.iter().enumerate() {
        match of(rule) {
            Some(said) => named.push((number, said)),
            None => open.push(number),
        }
    }
    (named, open)
}

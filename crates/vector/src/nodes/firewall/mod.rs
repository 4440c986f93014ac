//! Firewall: ordered rules, and the connections for rules with states.

mod cache;
pub(crate) mod connection;
mod connections;
mod field;
pub(crate) mod matcher;
pub(crate) mod rule;
#[cfg(test)]
mod tests;

pub use connection::Change;
pub use connections::{CONNECTIONS_MAX, Connections, NoRoom, OF_PORT_LEAST, OF_PORT_MAX};
pub use field::RULES_MAX;
pub use matcher::{FIELD_BYTES_MAX, Matcher, MatcherError};
pub use rule::{Action, Rule, State};

use crate::batch::{Nanos, PortId};
use crate::news::{Fact, News};
use crate::node::{Context, Edge, Node, Out};
use crate::reason::Reason;
use crate::report::{Count, Report, carried};
use crate::rules::Rules;
use crate::secret::Secret;
use crate::set::Set;
use cache::{Cache, Key};
use std::sync::Arc;

/// Number of rules from which it pays to remember the rule that fits a flow.
const CACHED: usize = 16;

/// Accepts or drops a frame by the first matching rule. If no rule matches, the default decides.
#[derive(Debug)]
pub struct Firewall {
    rules: Arc<Rules>,
    secret: Secret,
    /// Connections, kept only if a rule asks for a state.
    connections: Option<Connections>,
    /// Rules that fit flows, kept only if there are many rules.
    cache: Option<Cache>,
    counts: Vec<Count>,
    by_default: Count,
}

impl Firewall {
    /// Frames that may go on.
    pub const ON: Edge = Edge(0);

    /// Makes a firewall without rules.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        Self {
            rules: Arc::default(),
            secret,
            connections: None,
            cache: None,
            counts: Vec::new(),
            by_default: Count::default(),
        }
    }
}

impl Firewall {
    #[inline]
    fn judge(&mut self, number: u8, context: &mut Context<'_>) -> Result<(), Reason> {
        let frame = context.batch.frame(number);
        let headers = context.batch.headers(number);
        let now = context.now;
        // The state of the connection is one of the fields that rules ask for.
        let found = self.connections.as_mut().map(|connections| {
            let bytes = frame.bytes(context.arena);
            connections.find(bytes, headers, now)
        });
        let state = found.map_or(State::Untracked, |found| found.state);
        let rules = &self.rules.firewall;
        let search = || rules.matcher.first(headers, frame.from, state);
        let fits = match &mut self.cache {
            Some(cache) => {
                let key = Key::of(headers, frame.from, state);
                if found.is_some() {
                    cache.find(number, &key);
                }
                cache.first(number, key, search)
            }
            None => search(),
        };
        // The rule that fits decides, and counts the frame.
        let known = fits.and_then(|at| rules.actions.get(at).zip(self.counts.get_mut(at)));
        let (action, count) = known.unwrap_or((&rules.default, &mut self.by_default));
        count.add(frame.len);
        if *action == Action::Drop {
            return Err(Reason::Firewall);
        }
        // Only a frame that goes on begins a connection, or changes one.
        if let (Some(connections), Some(found)) = (&mut self.connections, found) {
            match connections.note(&found, headers, frame.from, now) {
                Ok(None) => {}
                Ok(Some(change)) => context.tell(Fact::Connection(change)),
                Err(NoRoom) => return Err(Reason::Connections),
            }
        }
        Ok(())
    }
}

impl Node for Firewall {
    fn name(&self) -> &'static str {
        "firewall"
    }

    fn process(&mut self, list: &Set, context: &mut Context<'_>, out: &mut Out) {
        // The state of a connection is known only when the frame before went on.
        if let (Some(cache), None) = (&mut self.cache, &self.connections) {
            let find = |sum, number| {
                let from = context.batch.frame(number).from;
                let key = Key::of(context.batch.headers(number), from, State::Untracked);
                sum ^ cache.find(number, &key)
            };
            std::hint::black_box(list.iter().fold(0, find));
        }
        for number in list {
            match self.judge(number, context) {
                Ok(()) => out.to(Self::ON, number),
                Err(reason) => context.drop(number, reason),
            }
        }
    }

    fn idle(&self) -> Option<Edge> {
        let rules = &self.rules.firewall;
        (rules.rules.is_empty() && rules.default == Action::Accept).then_some(Self::ON)
    }

    fn reload(&mut self, rules: &Arc<Rules>) {
        let name = |rule: &Rule| rule.name.clone();
        let (old, new) = (&self.rules.firewall.rules, &rules.firewall.rules);
        self.counts = carried(old, &self.counts, new, name);
        match (rules.firewall.matcher.asks_for_state(), &self.connections) {
            (false, _) => self.connections = None,
            (true, None) => self.connections = Some(Connections::new(self.secret)),
            (true, Some(_)) => {}
        }
        self.cache = (new.len() >= CACHED).then(|| Cache::new(self.secret));
        self.rules = rules.clone();
    }

    fn hear(&mut self, News(fact): &News, now: Nanos) {
        if let (Some(connections), Fact::Connection(change)) = (&mut self.connections, fact) {
            connections.hear(change, now);
        }
    }

    fn forget(&mut self, port: PortId) {
        if let Some(connections) = &mut self.connections {
            connections.forget_port(port);
        }
    }

    fn report(&self, report: &mut Report) {
        let rules = self.rules.firewall.rules.iter().zip(&self.counts);
        report.rules = rules.map(|(rule, &count)| (rule.name.clone(), count)).collect();
        report.by_default = self.by_default;
        report.connections = self.connections.as_ref().map_or(0, Connections::len) as u64;
    }
}

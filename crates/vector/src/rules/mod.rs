//! Rules of the nodes, compiled from a file or made by hand.

mod buckets;
mod faults;
mod file;
mod names;
mod section;
#[cfg(test)]
mod tests;

pub use file::{FAULTS_MAX, check, parse};
pub use grantway_ports::TextFault;
pub use names::{NAMES_MAX, Names};

use crate::batch::PortId;
use crate::bucket::{Buckets, Rate};
use crate::nodes::bridge::table::Learning;
use crate::nodes::classifier::filter::Filter;
use crate::nodes::classifier::table::{FilterError, Table};
use crate::nodes::firewall::matcher::{Matcher, MatcherError};
use crate::nodes::firewall::rule::{Action, Rule};
use crate::nodes::spoof::allowed::Allowed;
use crate::secret::Secret;
use std::sync::OnceLock;

/// Rules for one vif, or for a port beside the vifs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct VifRules {
    /// Addresses that the vif may send from.
    pub allowed: Allowed,
    /// True if the vif reaches no other isolated vif.
    pub isolated: bool,
    /// Most stations that are remembered of the vif, if it has a number of its own.
    pub stations: Option<u32>,
    /// Rate at which the vif may send.
    pub rate: Option<Rate>,
}

/// The firewall's rules.
#[derive(Debug, Default)]
pub struct FirewallRules {
    /// Rules in order.
    pub rules: Vec<Rule>,
    /// Decision about frames that no rule fits.
    pub default: Action,
    pub(crate) matcher: Matcher,
    /// Actions of the rules, closer together.
    pub(crate) actions: Vec<Action>,
}

impl FirewallRules {
    /// Compiles rules.
    ///
    /// # Errors
    /// There are too many rules, or they overlap in too many ways.
    pub fn new(rules: Vec<Rule>, default: Action) -> Result<Self, MatcherError> {
        let actions = rules.iter().map(|rule| rule.action).collect();
        Ok(Self { matcher: Matcher::new(&rules)?, actions, rules, default })
    }
}

/// The classifier's filters.
#[derive(Debug, Default)]
pub struct FilterRules {
    /// Filters in order.
    pub filters: Vec<Filter>,
    pub(crate) table: Table,
}

impl FilterRules {
    /// Compiles filters.
    ///
    /// # Errors
    /// There are too many filters or masks, or a filter never fits.
    pub fn new(filters: Vec<Filter>, secret: Secret) -> Result<Self, FilterError> {
        Ok(Self { table: Table::new(&filters, secret)?, filters })
    }
}

/// All rules.
#[derive(Debug, Default)]
pub struct Rules {
    /// Rules for vifs, by their ports' numbers.
    pub vifs: Vec<VifRules>,
    /// Settings of the bridge's learning.
    pub learning: Learning,
    /// Rules of the firewall.
    pub firewall: FirewallRules,
    /// Filters of the classifier.
    pub filters: FilterRules,
    /// True if flows are counted.
    pub flows: bool,
    /// Bytes that are left of the rates, once a graph that has twins has the rules.
    pub buckets: OnceLock<Buckets>,
}

impl Rules {
    /// Returns true if the rules ask for nothing of the frames between a guest and its port, if no
    /// bridge is between them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let firewall = &self.firewall;
        self.vifs.iter().all(|vif| *vif == VifRules::default())
            && firewall.rules.is_empty()
            && firewall.default == Action::Accept
            && self.filters.filters.is_empty()
            && !self.flows
    }

    /// Returns the rules for a port, to be changed.
    pub fn vif_mut(&mut self, port: PortId) -> Option<&mut VifRules> {
        let at = usize::from(port.0);
        if self.vifs.len() <= at {
            self.vifs.resize(at + 1, VifRules::default());
        }
        self.vifs.get_mut(at)
    }

    /// Returns the rules for a port.
    #[inline]
    #[must_use]
    pub fn vif(&self, port: PortId) -> Option<&VifRules> {
        self.vifs.get(usize::from(port.0))
    }

    /// Returns the most stations that are remembered of a port.
    #[inline]
    #[must_use]
    pub fn stations(&self, port: PortId) -> u32 {
        self.vif(port).and_then(|vif| vif.stations).unwrap_or(self.learning.stations)
    }

    /// Returns true if frames of one port may reach another. From an isolated port to an isolated
    /// one they may not.
    #[inline]
    #[must_use]
    pub fn may_pass(&self, from: PortId, to: PortId) -> bool {
        let isolated = |port| self.vif(port).is_some_and(|vif| vif.isolated);
        !(isolated(from) && isolated(to))
    }
}

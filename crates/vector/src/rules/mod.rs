//! What the nodes go by: compiled from a file, or made by hand.

mod error;
mod file;
mod names;
mod section;
#[cfg(test)]
mod tests;

pub use error::RulesError;
pub use file::parse;
pub use names::{NAMES_MAX, Names};

use crate::batch::PortId;
use crate::bucket::Rate;
use crate::nodes::bridge::table::Learning;
use crate::nodes::classifier::filter::Filter;
use crate::nodes::classifier::table::{FilterError, Table};
use crate::nodes::firewall::matcher::{Matcher, MatcherError};
use crate::nodes::firewall::rule::{Action, Rule};
use crate::nodes::spoof::allowed::Allowed;
use crate::secret::Secret;

/// What is said of one vif, or of a port beside the vifs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct VifRules {
    /// What it may send from.
    pub allowed: Allowed,
    /// Whether it reaches no other that is isolated.
    pub isolated: bool,
    /// Stations that are remembered of it, where it is not as of every port.
    pub stations: Option<u32>,
    /// What it may send.
    pub rate: Option<Rate>,
}

/// The firewall's rules.
#[derive(Debug, Default)]
pub struct FirewallRules {
    /// In order.
    pub rules: Vec<Rule>,
    /// What becomes of what none of them fits.
    pub default: Action,
    pub(crate) matcher: Matcher,
    /// Those of the rules, closer together.
    pub(crate) actions: Vec<Action>,
}

impl FirewallRules {
    /// Compiles rules.
    ///
    /// # Errors
    /// There are too many, or they overlap in too many ways.
    pub fn new(rules: Vec<Rule>, default: Action) -> Result<Self, MatcherError> {
        let actions = rules.iter().map(|rule| rule.action).collect();
        Ok(Self { matcher: Matcher::new(&rules)?, actions, rules, default })
    }
}

/// The classifier's filters.
#[derive(Debug, Default)]
pub struct FilterRules {
    /// In order.
    pub filters: Vec<Filter>,
    pub(crate) table: Table,
}

impl FilterRules {
    /// Compiles filters.
    ///
    /// # Errors
    /// There are too many, or one never fits.
    pub fn new(filters: Vec<Filter>, secret: Secret) -> Result<Self, FilterError> {
        Ok(Self { table: Table::new(&filters, secret)?, filters })
    }
}

/// All rules.
#[derive(Debug, Default)]
pub struct Rules {
    /// By their ports' numbers.
    pub vifs: Vec<VifRules>,
    /// How the bridge learns.
    pub learning: Learning,
    /// The firewall.
    pub firewall: FirewallRules,
    /// The classifier.
    pub filters: FilterRules,
    /// Whether flows are counted.
    pub flows: bool,
}

impl Rules {
    /// Whether they ask for nothing of what a guest sends or is sent, where no bridge
    /// is between it and its port.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let firewall = &self.firewall;
        self.vifs.iter().all(|vif| *vif == VifRules::default())
            && firewall.rules.is_empty()
            && firewall.default == Action::Accept
            && self.filters.filters.is_empty()
            && !self.flows
    }

    /// What is said of a port, to be changed.
    pub fn vif_mut(&mut self, port: PortId) -> Option<&mut VifRules> {
        let at = usize::from(port.0);
        if self.vifs.len() <= at {
            self.vifs.resize(at + 1, VifRules::default());
        }
        self.vifs.get_mut(at)
    }

    /// What is said of a port.
    #[inline]
    #[must_use]
    pub fn vif(&self, port: PortId) -> Option<&VifRules> {
        self.vifs.get(usize::from(port.0))
    }

    /// Stations that are remembered of a port.
    #[inline]
    #[must_use]
    pub fn stations(&self, port: PortId) -> u32 {
        self.vif(port).and_then(|vif| vif.stations).unwrap_or(self.learning.stations)
    }

    /// Whether frames of one port may reach another: not from isolated to isolated.
    #[inline]
    #[must_use]
    pub fn may_pass(&self, from: PortId, to: PortId) -> bool {
        let isolated = |port| self.vif(port).is_some_and(|vif| vif.isolated);
        !(isolated(from) && isolated(to))
    }
}

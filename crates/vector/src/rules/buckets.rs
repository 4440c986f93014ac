//! Buckets of the rates of rules.

use super::Rules;
use crate::bucket::{Buckets, Common, Rate};
use crate::nodes::classifier::filter::{Filter, Treatment};
use crate::report::carried;

impl Rules {
    /// Returns the buckets of the rates that all twins have. The first of them that takes the
    /// rules, in place of `old`, makes the buckets.
    pub(crate) fn common_buckets(&self, old: &Self) -> &Buckets {
        let known = || old.buckets.get().cloned().unwrap_or_default();
        self.buckets.get_or_init(|| self.buckets_after(old, &known()))
    }

    /// Makes the buckets of the rates, in place of those of `old`. A rate that stays as it was, of
    /// a vif or of a filter with the same name, keeps the bytes that are left of it.
    pub(crate) fn buckets_after(&self, old: &Self, known: &Buckets) -> Buckets {
        let kept = |rate: Option<Rate>, known: Option<Common>| {
            let rate = rate?;
            Some(known.filter(|old| old.rate() == rate).unwrap_or_else(|| Common::new(rate)))
        };
        let of_vif = |at| known.vifs.get(at).cloned().flatten();
        let vifs = self.vifs.iter().enumerate();
        let vifs = vifs.map(|(at, vif)| kept(vif.rate, of_vif(at))).collect();
        let (before, filters) = (&old.filters.filters, &self.filters.filters);
        let name = |filter: &Filter| filter.name.clone();
        let known = carried(before, &known.filters, filters, name);
        let filters = filters.iter().zip(known).map(|(filter, known)| match filter.treatment {
            Treatment::Police(rate) => kept(Some(rate), known),
            _ => None,
        });
        Buckets { vifs, filters: filters.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::PortId;
    use std::sync::Arc;

    #[test]
    fn a_rate_is_one_for_all_twins_and_keeps_what_is_left_over_a_reload() {
        let rules = |bytes, burst| {
            let mut rules = Rules::default();
            rules.vif_mut(PortId(1)).unwrap().rate = Some(Rate { bytes, burst });
            Arc::new(rules)
        };
        let none = Arc::new(Rules::default());
        let (first, second, third) = (rules(1, 1000), rules(1, 1000), rules(2, 1000));
        let of = |rules: &Arc<Rules>, old: &Arc<Rules>| {
            rules.common_buckets(old).vifs[1].clone().unwrap()
        };
        let (one, other) = (of(&first, &none), of(&first, &none));
        assert!(one.take(600, 0) && !other.take(600, 0) && other.take(400, 0));
        assert!(!of(&second, &first).take(1, 0), "the same rate");
        // A graph that lags behind two loads has the buckets of the others all the same.
        assert!(of(&third, &second).take(1000, 0), "another one");
        assert!(!of(&second, &first).take(1, 0) && !of(&third, &second).take(1, 0));
    }
}

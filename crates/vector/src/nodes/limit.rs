//! Limit of what a vif may send.

use crate::bucket::Bucket;
use crate::node::{Context, Edge, Single, Step};
use crate::reason::Reason;
use crate::rules::Rules;

/// Drops frames beyond their vif's rate.
#[derive(Debug, Default)]
pub struct Limit {
    vifs: Vec<Option<Bucket>>,
}

impl Limit {
    /// Frames within the rate.
    pub const ON: Edge = Edge(0);
}

impl Single for Limit {
    fn name(&self) -> &'static str {
        "limit"
    }

    fn process(&mut self, number: u8, context: &mut Context<'_>) -> Step {
        let frame = context.batch.frame(number);
        let bucket = self.vifs.get_mut(usize::from(frame.from.0)).and_then(Option::as_mut);
        match bucket.is_none_or(|bucket| bucket.take(frame.len, context.now)) {
            true => Step::To(Self::ON),
            false => Step::Drop(Reason::Rate),
        }
    }

    fn idle(&self) -> Option<Edge> {
        self.vifs.iter().all(Option::is_none).then_some(Self::ON)
    }

    /// Takes the vifs' rates. A rate that stays as it was keeps the bytes that are left of it.
    fn reload(&mut self, rules: &std::sync::Arc<Rules>) {
        let old = std::mem::take(&mut self.vifs);
        let bucket = |(at, vif): (usize, &crate::rules::VifRules)| {
            let same = old.get(at).copied().flatten();
            let rate = vif.rate?;
            Some(same.filter(|old| old.rate() == rate).unwrap_or_else(|| Bucket::new(rate)))
        };
        self.vifs = rules.vifs.iter().enumerate().map(bucket).collect();
    }
}

//! Limit of what a vif may send.

use crate::bucket::{Buckets, Common};
use crate::node::{Context, Edge, Single, Step};
use crate::reason::Reason;

/// Drops frames beyond their vif's rate.
#[derive(Debug, Default)]
pub struct Limit {
    vifs: Vec<Option<Common>>,
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
        let bucket = self.vifs.get(usize::from(frame.from.0)).and_then(Option::as_ref);
        match bucket.is_none_or(|bucket| bucket.take(frame.len, context.now)) {
            true => Step::To(Self::ON),
            false => Step::Drop(Reason::Rate),
        }
    }

    fn idle(&self) -> Option<Edge> {
        self.vifs.iter().all(Option::is_none).then_some(Self::ON)
    }

    fn refill(&mut self, buckets: &Buckets) {
        self.vifs.clone_from(&buckets.vifs);
    }
}

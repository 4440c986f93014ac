//! Classifier: filters with exact and masked keys, like the classifier `flower` of Linux' tc.

pub(crate) mod filter;
pub(crate) mod key;
pub(crate) mod table;
#[cfg(test)]
mod tests;

pub use filter::{Filter, Treatment};
pub use key::{Key, Pattern};
pub use table::{FILTERS_MAX, FilterError, MASKS_MAX, Table};

use crate::batch::Verdict;
use crate::bucket::{Buckets, Common};
use crate::node::{Context, Edge, Single, Step};
use crate::reason::Reason;
use crate::report::{Count, Report, carried};
use crate::rules::Rules;
use std::sync::Arc;

/// Applies the first matching filter to each frame.
#[derive(Debug, Default)]
pub struct Classifier {
    rules: Arc<Rules>,
    counts: Vec<Count>,
    buckets: Vec<Option<Common>>,
}

impl Classifier {
    /// Frames that go on.
    pub const ON: Edge = Edge(0);
    /// Frames that are copied to the capture.
    pub const MIRROR: Edge = Edge(1);
}

impl Single for Classifier {
    fn name(&self) -> &'static str {
        "classifier"
    }

    #[inline]
    fn process(&mut self, number: u8, context: &mut Context<'_>) -> Step {
        let frame = *context.batch.frame(number);
        let key = Key::of(&frame, frame.bytes(context.arena), context.batch.headers(number));
        let filters = &self.rules.filters;
        let Some(at) = filters.table.first(&key) else { return Step::To(Self::ON) };
        let (Some(filter), Some(count)) = (filters.filters.get(at), self.counts.get_mut(at)) else {
            return Step::To(Self::ON);
        };
        count.add(frame.len);
        match filter.treatment {
            Treatment::Pass => {}
            Treatment::Drop => return Step::Drop(Reason::Filter),
            Treatment::Queue(queue) => context.batch.set_queue(number, queue),
            Treatment::Mirror => return Step::To(Self::MIRROR),
            Treatment::Police(_) => {
                let bucket = self.buckets.get(at).and_then(Option::as_ref);
                if bucket.is_some_and(|bucket| !bucket.take(frame.len, context.now)) {
                    return Step::Drop(Reason::Policed);
                }
            }
            Treatment::Redirect(port) if port == frame.from => {
                return Step::Drop(Reason::Hairpin);
            }
            Treatment::Redirect(port) => context.batch.decide(number, Verdict::To(port)),
        }
        Step::To(Self::ON)
    }

    fn idle(&self) -> Option<Edge> {
        self.rules.filters.filters.is_empty().then_some(Self::ON)
    }

    /// Takes the filters. A filter of the same name keeps its count.
    fn reload(&mut self, rules: &Arc<Rules>) {
        let (old, new) = (&self.rules.filters.filters, &rules.filters.filters);
        let name = |filter: &Filter| filter.name.clone();
        self.counts = carried(old, &self.counts, new, name);
        self.rules = rules.clone();
    }

    fn refill(&mut self, buckets: &Buckets) {
        self.buckets.clone_from(&buckets.filters);
    }

    fn report(&self, report: &mut Report) {
        let filters = self.rules.filters.filters.iter().zip(&self.counts);
        report.filters = filters.map(|(filter, &count)| (filter.name.clone(), count)).collect();
    }
}

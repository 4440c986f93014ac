//! The classifier: filters by exact and masked keys, as tc's flower has them.

mod key;
mod table;
#[cfg(test)]
mod tests;

pub use key::{Key, Pattern};
pub use table::{FILTERS_MAX, FilterError, MASKS_MAX, Table};

use crate::batch::{PortId, Verdict};
use crate::bucket::{Bucket, Rate};
use crate::node::{Context, Edge, Single, Step};
use crate::reason::Reason;
use crate::report::{Count, Report, carried};
use crate::rules::Rules;
use std::sync::Arc;

/// What is done with a frame that a filter fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// It goes on.
    Pass,
    /// It is dropped.
    Drop,
    /// It goes by this queue of its receiver.
    Queue(u16),
    /// It is copied to the capture, and goes on.
    Mirror,
    /// It is dropped beyond a rate.
    Police(Rate),
    /// It goes there, whatever its destination.
    Redirect(PortId),
}

/// A filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Its name in reports.
    pub name: String,
    /// What a frame has to be like.
    pub pattern: Pattern,
    /// What is done with it then.
    pub treatment: Treatment,
}

/// Treats frames as the first filter that fits says.
#[derive(Debug, Default)]
pub struct Classifier {
    rules: Arc<Rules>,
    counts: Vec<Count>,
    buckets: Vec<Option<Bucket>>,
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
                let bucket = self.buckets.get_mut(at).and_then(Option::as_mut);
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

    fn reload(&mut self, rules: &Arc<Rules>) {
        let (old, new) = (&self.rules.filters.filters, &rules.filters.filters);
        self.counts = carried(old, &self.counts, new, |filter| filter.name.clone());
        let bucket = |filter: &Filter| match filter.treatment {
            Treatment::Police(rate) => Some(Bucket::new(rate)),
            _ => None,
        };
        self.buckets = new.iter().map(bucket).collect();
        self.rules = rules.clone();
    }

    fn report(&self, report: &mut Report) {
        let filters = self.rules.filters.filters.iter().zip(&self.counts);
        report.filters = filters.map(|(filter, &count)| (filter.name.clone(), count)).collect();
    }
}

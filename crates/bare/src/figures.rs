//! Counters of the guest.

use crate::sys::hypercall::count::Hypercalls;
use crate::sys::hypercall::run;
use crate::sys::upcall;
use core::fmt;
use core::time::Duration;
use spin::Mutex;

/// Cost of a guest's start, from its entry until [`started`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Number of hypercalls.
    pub hypercalls: u64,
    /// Time for which Xen ran the guest's processor ([`ran`](crate::ran)).
    pub ran: Duration,
}

static START: Mutex<Option<Start>> = Mutex::new(None);

/// Marks the guest as ready. The guest chooses the moment. The first call returns the cost of the
/// start, and later calls return `None`.
pub fn started() -> Option<Start> {
    let mut start = START.lock();
    let first = start.is_none();
    let ran = run::ran();
    first.then(|| *start.insert(Start { hypercalls: Hypercalls::now().total(), ran }))
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hypercalls, ran } = self;
        write!(f, "started by {hypercalls} hypercalls and {} ns of its processor", ran.as_nanos())
    }
}

/// Returns the guest's counters by name: the cost of its start if [`started`] was called, its run
/// time in nanoseconds, its upcalls, and its hypercalls by kind.
pub fn figures() -> impl Iterator<Item = (&'static str, u64)> {
    let nanoseconds = |time: Duration| time.as_nanos() as u64;
    let start = *START.lock();
    let start = start.into_iter().flat_map(move |Start { hypercalls, ran }| {
        [("start_hypercalls", hypercalls), ("start_ran_ns", nanoseconds(ran))]
    });
    let now = [("ran_ns", nanoseconds(run::ran())), ("upcalls", upcall::count())];
    start.chain(now).chain(Hypercalls::now().fields())
}

//! Counters of the guest itself.

use crate::sys::hypercall::count::Hypercalls;
use crate::sys::hypercall::run;
use crate::sys::upcall;
use core::fmt;
use core::time::Duration;
use spin::Mutex;

/// Price of a guest's start: from its entry until it was ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Hypercalls.
    pub hypercalls: u64,
    /// Time for which Xen ran the guest's processor ([`ran`](crate::ran)).
    pub ran: Duration,
}

static START: Mutex<Option<Start>> = Mutex::new(None);

/// Notes that the guest is ready, whatever that means to it. Returns the price of its start, the
/// first time.
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

/// Returns the guest's counters by name: the price of its start, the time for which it ran, its
/// upcalls, and its hypercalls by kind.
pub fn figures() -> impl Iterator<Item = (&'static str, u64)> {
    let nanoseconds = |time: Duration| time.as_nanos() as u64;
    let start = *START.lock();
    let start = start.into_iter().flat_map(move |Start { hypercalls, ran }| {
        [("start_hypercalls", hypercalls), ("start_ran_ns", nanoseconds(ran))]
    });
    let now = [("ran_ns", nanoseconds(run::ran())), ("upcalls", upcall::count())];
    start.chain(now).chain(Hypercalls::now().fields())
}

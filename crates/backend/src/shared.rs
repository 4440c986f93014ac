//! What the queues of one vif share.

use crate::credit::Credit;
use crate::multicast::MulticastFilter;
use crate::stats::VifStats;

/// What the queues of one vif share, whichever workers they belong to.
#[derive(Default)]
pub(crate) struct Shared {
    /// What it carried and dropped.
    pub stats: VifStats,
    /// What the guest may send.
    pub credit: Credit,
    /// Which multicast frames the guest wants.
    pub multicast: MulticastFilter,
}

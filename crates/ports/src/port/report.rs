//! Counters of a port, and the report that operators read.

use super::{DropReason, SendError};
use crate::checker::FlowReport;

/// Counters of frames that passed a port, and of frames that it dropped.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counters {
    /// Frames sent. A merged frame counts as its segments.
    pub sent: u64,
    /// Bytes sent, without FCS.
    pub sent_bytes: u64,
    /// Frames received.
    pub received: u64,
    /// Bytes received, without FCS.
    pub received_bytes: u64,
    /// Sends answered with [`SendError::Busy`].
    pub busy: u64,
    /// Unfinished checksums that the port finished in software.
    pub checksummed: u64,
    dropped: [u64; DropReason::ALL.len()],
}

impl Counters {
    /// Returns the number of frames dropped for `reason`, in both directions.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Returns the number of frames dropped for any reason, in both directions.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Returns the reasons that occurred, with their counts.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        let all = DropReason::ALL.iter().map(|&r| (r, self.dropped(r)));
        all.filter(|&(_, n)| n > 0)
    }

    /// Adds the counters of another queue.
    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.busy += other.busy;
        self.checksummed += other.checksummed;
        for (sum, n) in self.dropped.iter_mut().zip(other.dropped) {
            *sum += n;
        }
    }

    pub(crate) fn count_sent(&mut self, len: usize) {
        self.sent += 1;
        self.sent_bytes += len as u64;
    }

    /// Counts `frames` frames of `bytes` bytes together as sent.
    pub(crate) fn count_sent_burst(&mut self, frames: usize, bytes: usize) {
        self.sent += frames as u64;
        self.sent_bytes += bytes as u64;
    }

    pub(crate) fn count_received(&mut self, len: usize) {
        self.received += 1;
        self.received_bytes += len as u64;
    }

    /// Counts `frames` frames of `len` bytes each as received.
    pub(crate) fn count_burst(&mut self, frames: usize, len: usize) {
        self.received += frames as u64;
        self.received_bytes += (frames * len) as u64;
    }

    pub(crate) fn drop_one(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }

    /// Counts a drop, and returns the error that says so.
    pub(crate) fn refuse(&mut self, reason: DropReason) -> SendError {
        self.drop_one(reason);
        SendError::Dropped(reason)
    }
}

/// Findings about the numbered test frames that were sent to a port.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CheckReport {
    /// Sum over all flows.
    pub total: FlowReport,
    /// Frames that were damaged.
    pub corrupt: u64,
    /// Frames that were not the generator's.
    pub foreign: u64,
}

impl CheckReport {
    /// Returns the sum of two queues. Each flow used only one of them.
    fn plus(self, other: Self) -> Self {
        Self {
            total: self.total.plus(other.total),
            corrupt: self.corrupt + other.corrupt,
            foreign: self.foreign + other.foreign,
        }
    }
}

/// A port's name and counters at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortReport {
    /// The name that operators see.
    pub name: String,
    /// Frames that passed, and frames that were dropped.
    pub counters: Counters,
    /// Findings about numbered test frames, if the port checks them.
    pub checked: Option<CheckReport>,
    /// Histogram of the travel time of test frames, if the port checks them: a time in nanoseconds,
    /// and the number of frames with this time.
    pub latency: Vec<(u64, u64)>,
}

impl PortReport {
    /// Returns the report of a port that does not check frames.
    #[must_use]
    pub fn new(name: &str, counters: &Counters) -> Self {
        Self {
            name: name.to_owned(),
            counters: counters.clone(),
            checked: None,
            latency: Vec::new(),
        }
    }

    /// Returns the sum over all queues of one port, or `None` if there is no queue. The latencies
    /// are those of one queue after the other.
    #[must_use]
    pub fn sum(queues: impl IntoIterator<Item = Self>) -> Option<Self> {
        queues.into_iter().reduce(|mut sum, queue| {
            sum.counters.add(&queue.counters);
            sum.checked = match (sum.checked, queue.checked) {
                (Some(a), Some(b)) => Some(a.plus(b)),
                (a, b) => a.or(b),
            };
            sum.latency.extend(queue.latency);
            sum
        })
    }
}

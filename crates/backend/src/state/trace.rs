//! The trace: the head of each packet that crosses a ring, and the times at which a ring was full.
//!
//! Usually there is no reader. Then the trace costs one load per turn. While there is a reader, all
//! queues write to one bounded list under a lock, one burst at a time. So the records are in the
//! order of the events. The clock is read once for a burst.
//!
//! The list is short: the segments of a flow that follow on each other in a burst share one record
//! ([`run`]). Packets without room are counted, and no queue waits for the reader.

mod run;
#[cfg(test)]
mod tests;

use crate::ids::VifId;
use grantway_ports::FramePlace;
use run::Run;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// Most bytes that are kept of a packet: all headers up to the options of TCP.
pub const TRACE_HEAD: usize = 128;
/// Most records that wait to be read: less than 3 MiB. A reader has as many.
const RECORDS_MAX: usize = 16_384;
/// Records that are worth a wake-up of the reader.
const RECORDS_WORTH: usize = 4096;

/// A ring, named from the guest's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TraceRing {
    /// From the guest to the backend.
    Transmit,
    /// From the backend to the guest.
    Receive,
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceKind {
    /// A packet crossed, or the segments of a run.
    Packet,
    /// The ring is full: the guest has no room for its longest packet, the guest's rate limit holds
    /// its next packet, or a packet for the guest finds no posted page.
    RingFull,
    /// The ring has room again, and the waiting end was signalled.
    RingDrained,
    /// The waiting end continues.
    Woken,
}

/// A record of one packet, of a run of segments, or of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRecord {
    /// Time since 1970 (UTC).
    pub time: Duration,
    /// The vif.
    pub vif: VifId,
    /// Number of the queue in its vif.
    pub queue: u16,
    /// The queue's ring.
    pub ring: TraceRing,
    /// The kind of the record.
    pub kind: TraceKind,
    /// Bytes of the packet, without FCS. A run has the bytes of one packet with all its payload.
    pub len: u32,
    /// Number of packets: 1, more for a run, and 0 for an event.
    pub segments: u32,
    /// Bytes of payload of each segment of a run; the last one may have fewer. 0 if it is no run.
    pub segment_bytes: u32,
    head: [u8; TRACE_HEAD],
    /// Number of bytes in `head`, at most `TRACE_HEAD`.
    kept: u8,
}

impl TraceRecord {
    /// Returns the first bytes of the packet.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        self.head.get(..self.kept.into()).unwrap_or(&[])
    }
}

/// Records of one read.
#[derive(Debug, Default)]
pub struct TraceBatch {
    /// The records, in the order of what happened.
    pub records: Vec<TraceRecord>,
    /// Number of packets and events that came after these and found no room.
    pub lost: u64,
}

/// The list, which all queues share.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    on: AtomicBool,
    list: Mutex<TraceBatch>,
    filled: Condvar,
}

impl Trace {
    fn list(&self) -> MutexGuard<'_, TraceBatch> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reader of a trace. At most one exists.
#[derive(Debug)]
pub struct TraceReader(Arc<Trace>);

impl TraceReader {
    /// Begins to read. Returns `None` if there is a reader already.
    pub(crate) fn new(trace: &Arc<Trace>) -> Option<Self> {
        let was_on = trace.on.swap(true, Relaxed);
        (!was_on).then(|| Self(Arc::clone(trace)))
    }

    /// Puts the records since the last read into `batch`, in place of its own. Waits until there are
    /// enough of them, but no longer than `longest`. The queues write to the memory of `batch` from
    /// then on.
    pub fn read(&self, batch: &mut TraceBatch, longest: Duration) {
        batch.records.clear();
        batch.lost = 0;
        let few = |list: &mut TraceBatch| list.records.len() < RECORDS_WORTH;
        let waited = self.0.filled.wait_timeout_while(self.0.list(), longest, few);
        let (mut list, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *list, batch);
    }
}

impl Drop for TraceReader {
    fn drop(&mut self) {
        let mut list = self.0.list();
        self.0.on.store(false, Relaxed);
        *list = TraceBatch::default();
    }
}

/// The end of the trace to which the queues of one vif write.
#[derive(Debug)]
pub(crate) struct Tap {
    trace: Arc<Trace>,
    vif: VifId,
}

impl Tap {
    pub fn new(trace: Arc<Trace>, vif: VifId) -> Self {
        Self { trace, vif }
    }

    /// Returns an end that no reader reads.
    #[cfg(test)]
    pub fn nowhere() -> Self {
        let domain = grantway_hypervisor::DomId(0);
        Self::new(Arc::default(), VifId { domain, devid: 0 })
    }

    /// Returns true if there is a reader.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.trace.on.load(Relaxed)
    }

    /// Records packets that cross a ring, whose first bytes lie in `arena`.
    #[cold]
    #[inline(never)]
    pub fn packets(&self, queue: u16, ring: TraceRing, arena: &[u8], frames: &[FramePlace]) {
        self.heads(queue, ring, arena, frames.iter().map(|frame| (frame.at, frame.meta.len)));
    }

    /// Records packets that cross a ring, each by its place in `arena` and its length. A record
    /// keeps the whole packet or its first 128 bytes.
    #[cold]
    pub fn heads(
        &self,
        queue: u16,
        ring: TraceRing,
        arena: &[u8],
        packets: impl Iterator<Item = (usize, usize)>,
    ) {
        let blank = self.record(queue, ring, TraceKind::Packet);
        self.add(|list| {
            let mut last = Last::Other;
            for (at, len) in packets {
                let head = arena.get(at..at + len.min(TRACE_HEAD)).unwrap_or(&[]);
                list.packet(&blank, head, len, &mut last);
            }
            list.end(last);
        });
    }

    /// Records an event of a ring.
    #[cold]
    pub fn event(&self, queue: u16, ring: TraceRing, kind: TraceKind) {
        let record = self.record(queue, ring, kind);
        self.add(|list| {
            if list.has_room() {
                list.records.push(record);
            }
        });
    }

    fn record(&self, queue: u16, ring: TraceRing, kind: TraceKind) -> TraceRecord {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        TraceRecord {
            time: now.unwrap_or_default(),
            vif: self.vif,
            queue,
            ring,
            kind,
            len: 0,
            segments: 0,
            segment_bytes: 0,
            head: [0; TRACE_HEAD],
            kept: 0,
        }
    }

    fn add(&self, write: impl FnOnce(&mut TraceBatch)) {
        let mut list = self.trace.list();
        // Looked at again under the lock: the reader may have gone.
        if !self.is_on() {
            return;
        }
        let before = list.records.len();
        write(&mut list);
        let is_enough = (before..list.records.len()).contains(&(RECORDS_WORTH - 1));
        drop(list);
        // The reader would only wait for the lock if it were woken before.
        if is_enough {
            self.trace.filled.notify_one();
        }
    }
}

/// The last record of a list, for the next packet of the burst.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, on the stack")]
enum Last {
    /// A packet, which may be the first segment of a run.
    Packet,
    /// A run.
    Run(Run),
    /// Nothing that this burst can continue.
    Other,
}

impl TraceBatch {
    /// Returns true if there is room for a record. Otherwise the packet or event of that record is
    /// lost, and so are all others until the list is read.
    fn has_room(&mut self) -> bool {
        let fits = self.records.len() < RECORDS_MAX;
        self.lost += u64::from(!fits);
        fits
    }

    /// Adds a packet to the run that it continues, or as a record like `blank`.
    fn packet(&mut self, blank: &TraceRecord, head: &[u8], len: usize, last: &mut Last) {
        if let (Last::Packet, Some(record)) = (&*last, self.records.last()) {
            *last = Run::begin(record).map_or(Last::Other, Last::Run);
        }
        if let Last::Run(run) = last
            && run.takes(head, len)
        {
            return;
        }
        self.end(std::mem::replace(last, Last::Other));
        if !self.has_room() {
            return;
        }
        self.records.push(*blank);
        let Some(record) = self.records.last_mut() else { return };
        // A frame's length fits 32 bits, and a head has at most 128.
        (record.len, record.kept, record.segments) = (len as u32, head.len() as u8, 1);
        if let Some(to) = record.head.get_mut(..head.len()) {
            to.copy_from_slice(head);
        }
        *last = Last::Packet;
    }

    /// Writes the run that ends to the last record.
    fn end(&mut self, last: Last) {
        if let (Last::Run(run), Some(record)) = (last, self.records.last_mut()) {
            run.end(record);
        }
    }
}

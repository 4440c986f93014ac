//! The trace: the head of each packet that crosses a ring, and the times at which a ring was full.
//!
//! Usually there is no reader. Then the trace costs one load per turn. While there is a reader, all
//! queues write to one bounded list under a lock, one burst at a time. So the records are in the
//! order of the events. Records without room are counted, and no queue waits for the reader.

use crate::ids::VifId;
use grantway_ports::FramePlace;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// Most bytes that are kept of a packet: all headers up to the options of TCP.
pub const TRACE_HEAD: usize = 128;
/// Most records that wait to be read: less than 3 MiB.
const RECORDS_MAX: usize = 16_384;
/// Records that are worth a wake-up of the reader.
const RECORDS_WORTH: usize = 1024;

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
    /// A packet crossed.
    Packet,
    /// The ring is full: the guest has no room for its longest packet, the guest's rate limit holds
    /// its next packet, or a packet for the guest finds no posted page.
    RingFull,
    /// The ring has room again, and the waiting end was signalled.
    RingDrained,
    /// The waiting end continues.
    Woken,
}

/// A record of one packet or event.
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
    /// Bytes of the packet, without FCS.
    pub len: u32,
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
    /// Number of later records that found no room.
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

    /// Returns the records since the last read. Waits until there are enough of them for a wake-up,
    /// but at most for `longest`.
    #[must_use]
    pub fn read(&self, longest: Duration) -> TraceBatch {
        let few = |list: &mut TraceBatch| list.records.len() < RECORDS_WORTH;
        let waited = self.0.filled.wait_timeout_while(self.0.list(), longest, few);
        let (mut list, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *list)
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
        self.add(packets.map(|(at, len)| {
            let kept = len.min(TRACE_HEAD);
            let mut record = blank;
            // A frame's length fits 32 bits, and `kept` is at most 128.
            (record.len, record.kept) = (len as u32, kept as u8);
            if let (Some(to), Some(from)) = (record.head.get_mut(..kept), arena.get(at..at + kept))
            {
                to.copy_from_slice(from);
            }
            record
        }));
    }

    /// Records an event of a ring.
    #[cold]
    pub fn event(&self, queue: u16, ring: TraceRing, kind: TraceKind) {
        self.add(std::iter::once(self.record(queue, ring, kind)));
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
            head: [0; TRACE_HEAD],
            kept: 0,
        }
    }

    fn add(&self, records: impl Iterator<Item = TraceRecord>) {
        let mut list = self.trace.list();
        // Looked at again under the lock: the reader may have gone.
        if !self.is_on() {
            return;
        }
        let before = list.records.len();
        for record in records {
            // Records behind a gap are lost, too, until the list is read.
            match list.lost == 0 && list.records.len() < RECORDS_MAX {
                true => list.records.push(record),
                false => list.lost += 1,
            }
        }
        if (before..list.records.len()).contains(&(RECORDS_WORTH - 1)) {
            self.trace.filled.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grantway_hypervisor::DomId;
    use grantway_netif::Offload;
    use grantway_ports::FrameMeta;

    fn frame(at: usize, len: usize) -> FramePlace {
        FramePlace { at, meta: FrameMeta { len, offload: Offload::default() } }
    }

    #[test]
    fn a_trace_reader_gets_heads_and_events_in_order() {
        let trace = Arc::<Trace>::default();
        let vif = VifId { domain: DomId(7), devid: 3 };
        let tap = Tap::new(Arc::clone(&trace), vif);
        let arena: Vec<u8> = (0..3000).map(|n| (n % 251) as u8).collect();
        assert!(!tap.is_on());
        tap.packets(0, TraceRing::Transmit, &arena, &[frame(0, 60)]);

        let reader = TraceReader::new(&trace).unwrap();
        assert!(TraceReader::new(&trace).is_none());
        tap.packets(2, TraceRing::Transmit, &arena, &[frame(64, 60), frame(128, 1500)]);
        tap.event(2, TraceRing::Receive, TraceKind::RingFull);
        let TraceBatch { records, lost } = reader.read(Duration::ZERO);
        assert_eq!((records.len(), lost), (3, 0));
        assert_eq!((records[0].vif, records[0].queue, records[0].len), (vif, 2, 60));
        assert_eq!(records[0].head(), &arena[64..124]);
        assert_eq!((records[1].len, records[1].head()), (1500, &arena[128..256]));
        assert_eq!(records[2].kind, TraceKind::RingFull);
        assert_eq!(records[2].head(), b"");
        assert!(records.is_sorted_by_key(|record| record.time));
        drop(reader);

        tap.event(2, TraceRing::Receive, TraceKind::RingDrained);
        let reader = TraceReader::new(&trace).unwrap();
        assert!(reader.read(Duration::ZERO).records.is_empty());
    }

    #[test]
    fn records_without_room_are_counted() {
        let trace = Arc::<Trace>::default();
        let tap = Tap::new(Arc::clone(&trace), VifId { domain: DomId(1), devid: 0 });
        let reader = TraceReader::new(&trace).unwrap();
        for _ in 0..RECORDS_MAX + 10 {
            tap.event(0, TraceRing::Transmit, TraceKind::Woken);
        }
        let batch = reader.read(Duration::from_secs(9));
        assert_eq!((batch.records.len(), batch.lost), (RECORDS_MAX, 10));
        tap.event(0, TraceRing::Transmit, TraceKind::Woken);
        let batch = reader.read(Duration::ZERO);
        assert_eq!((batch.records.len(), batch.lost), (1, 0));
    }

    /// A lost signal would leave a reader waiting for a day. Some of the many readers wait already
    /// when there are enough records.
    #[test]
    fn a_waiting_reader_is_woken_when_there_are_enough_records() {
        for _ in 0..100 {
            let trace = Arc::<Trace>::default();
            let tap = Tap::new(Arc::clone(&trace), VifId { domain: DomId(1), devid: 0 });
            let reader = TraceReader::new(&trace).unwrap();
            let (send, received) = std::sync::mpsc::channel();
            std::thread::spawn(move || send.send(reader.read(Duration::from_secs(86_400))));
            for _ in 0..RECORDS_WORTH {
                tap.event(0, TraceRing::Transmit, TraceKind::Woken);
            }
            let batch = received.recv_timeout(Duration::from_secs(120)).expect("it is woken");
            assert_eq!(batch.records.len(), RECORDS_WORTH);
        }
    }
}

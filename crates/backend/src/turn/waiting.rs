//! Frames that wait until their guest posts pages (XSA-392). They are bounded in bytes, and dropped
//! once the first of them is too old. If the guest still posts nothing, the vif's carrier goes off.

use crate::ids::Key;
use crate::state::guest::Patience;
use grantway_netif::slots::rx::RxLayout;
use grantway_ports::FrameMeta;
use std::collections::VecDeque;
use std::time::Instant;

/// Bytes of a waiting frame beside its own bytes.
const EACH: usize = size_of::<Waiter>();

/// Most bytes that wait for one queue, with the bytes for each frame beside its own: sixteen of the
/// largest frames, or a window of TCP.
pub const WAITING_MAX: usize = 1024 * 1024;

/// Most memory that is allocated for waiting frames. The allocation grows by doubling.
pub(crate) const ALLOCATED_MAX: usize = 2 * WAITING_MAX;

/// Memory that is kept while no frame waits.
const KEPT: usize = WAITING_MAX / 16;

/// Most memory of flooded frames. A guest that sends to all cannot crowd out frames that are for
/// this guest alone. One flooded frame of any size fits.
const FLOODED_MAX: usize = WAITING_MAX / 16 + EACH;

/// A frame that waits, but for its bytes.
pub(crate) struct Waiter {
    pub meta: FrameMeta,
    /// Layout on the guest's pages.
    pub layout: RxLayout,
    /// Queue of the guest that sent the frame, if it came by the bridge.
    pub from: Option<Key>,
    /// True if other guests got the frame, too.
    pub flooded: bool,
}

impl Waiter {
    /// Pages that it needs: at most a few.
    fn slots(&self) -> u32 {
        self.layout.slots() as u32
    }
}

/// Behaviour of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    /// The guest posts pages.
    Posting,
    /// The guest has posted none for too long: frames for it are dropped.
    Draining,
    /// The guest has posted none for much too long: the carrier is off, too.
    Stalled,
}

/// The frames of one queue that wait.
pub(crate) struct Waiting {
    frames: VecDeque<Waiter>,
    /// Bytes of the waiting frames, one behind the other, in private memory.
    bytes: VecDeque<u8>,
    /// Bytes that flooded frames take.
    flooded: usize,
    patience: Patience,
    mood: Mood,
    /// Pages that the first frame needs, or needed when it was dropped; 0 where
    /// none waits and the guest posts.
    wanted: u32,
    /// Since when.
    since: Instant,
}

/// Result of a look at the waiting frames.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Frames dropped.
    pub dropped: u64,
    /// New state of the carrier, if it changes.
    pub carrier: Option<bool>,
}

impl Waiting {
    pub fn new(patience: Patience, now: Instant) -> Self {
        let (frames, bytes, mood) = (VecDeque::new(), VecDeque::new(), Mood::Posting);
        Self { frames, bytes, flooded: 0, patience, mood, wanted: 0, since: now }
    }

    /// Returns true if no frame waits.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The first that waits.
    pub fn first(&self) -> Option<&Waiter> {
        self.frames.front()
    }

    /// Returns the bytes that the waiting frames take.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.frames.len() * EACH
    }

    /// Memory that is held for them.
    fn allocated(&self) -> usize {
        self.bytes.capacity() + self.frames.capacity() * EACH
    }

    /// Forgets all frames, and keeps no memory.
    fn give_back(&mut self) {
        (self.frames, self.bytes) = (VecDeque::new(), VecDeque::new());
    }

    /// Returns the number of pages that must be posted before anything continues; 0 if nothing
    /// waits for pages.
    pub fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Returns true if frames are dropped because the guest posts no pages.
    pub fn is_draining(&self) -> bool {
        self.mood != Mood::Posting
    }

    /// Returns true if a frame of `len` bytes may wait, too.
    pub fn has_room_for(&self, len: usize, flooded: bool) -> bool {
        !self.is_draining()
            && self.bytes() + len + EACH <= WAITING_MAX
            && (!flooded || self.flooded + len + EACH <= FLOODED_MAX)
    }

    /// Adds a frame behind the others. The caller has asked for room.
    pub fn push(&mut self, frame: Waiter, bytes: &[u8], now: impl FnOnce() -> Instant) {
        if self.frames.is_empty() {
            self.since = now();
            self.wanted = frame.slots();
        }
        self.flooded += if frame.flooded { bytes.len() + EACH } else { 0 };
        self.bytes.extend(bytes);
        self.frames.push_back(frame);
    }

    /// Has all waiting frames begin at `offset` in their first page; 0 has them begin at its start.
    /// A frame that the guest could not take there stays as it is: one that no longer fits a page,
    /// for a guest without `scatter_gather`.
    pub fn move_to(&mut self, offset: u16, scatter_gather: bool) {
        for frame in &mut self.frames {
            let moved = frame.layout.at_offset(offset);
            let fits = |layout: &RxLayout| scatter_gather || layout.slots() <= frame.layout.slots();
            if let Some(layout) = moved.ok().filter(fits) {
                frame.layout = layout;
            }
        }
        if let Some(first) = self.frames.front() {
            self.wanted = first.slots();
        }
    }

    /// Takes the first frame, with its bytes at the start of `room`, if `posted` pages are enough
    /// for it. The time of the next frame begins now.
    pub fn pop(
        &mut self,
        posted: u32,
        room: &mut [u8],
        now: impl FnOnce() -> Instant,
    ) -> Option<Waiter> {
        if self.frames.front()?.slots() > posted {
            return None;
        }
        let frame = self.frames.pop_front()?;
        let len = frame.meta.len;
        let (one, other) = self.bytes.as_slices();
        let split = len.min(one.len());
        room[..split].copy_from_slice(&one[..split]);
        room[split..len].copy_from_slice(&other[..len - split]);
        self.bytes.drain(..len);
        self.flooded -= if frame.flooded { len + EACH } else { 0 };
        self.since = now();
        self.wanted = self.frames.front().map_or(0, |frame| frame.slots());
        if self.frames.is_empty() && self.allocated() > KEPT {
            self.give_back();
        }
        Some(frame)
    }

    /// Looks at the time, and at how many pages are posted.
    pub fn judge(&mut self, posted: u32, now: Instant) -> Verdict {
        let mut verdict = Verdict::default();
        if self.wanted == 0 {
            return verdict;
        }
        if posted >= self.wanted {
            if self.mood == Mood::Stalled {
                verdict.carrier = Some(true);
            }
            if self.is_draining() {
                self.mood = Mood::Posting;
                self.wanted = 0;
            }
            return verdict;
        }
        let waited = now.saturating_duration_since(self.since);
        if self.mood == Mood::Posting && waited >= self.patience.drain {
            verdict.dropped = self.frames.len() as u64;
            self.give_back();
            self.flooded = 0;
            self.mood = Mood::Draining;
        }
        let stall = self.patience.stall.map(|stall| stall.max(self.patience.drain));
        if self.mood == Mood::Draining && stall.is_some_and(|stall| waited >= stall) {
            verdict.carrier = Some(false);
            self.mood = Mood::Stalled;
        }
        verdict
    }

    /// Returns the time of the next look, for a guest that does not signal before.
    pub fn call_at(&self) -> Option<Instant> {
        match self.mood {
            _ if self.wanted == 0 => None,
            Mood::Posting => Some(self.since + self.patience.drain),
            Mood::Draining => Some(self.since + self.patience.stall?.max(self.patience.drain)),
            Mood::Stalled => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grantway_netif::Offload;
    use std::time::Duration;

    const DRAIN: Duration = Duration::from_secs(10);
    const STALL: Duration = Duration::from_secs(60);
    const MS: Duration = Duration::from_millis(1);

    fn waiter(len: usize, slots: u32) -> Waiter {
        let layout = RxLayout::new(len, 0, Offload::default(), None).unwrap();
        assert_eq!(layout.slots(), slots as usize);
        let meta = FrameMeta { len, offload: Offload::default() };
        Waiter { meta, layout, from: None, flooded: false }
    }

    fn push(waiting: &mut Waiting, frame: Waiter, now: Instant) -> bool {
        let len = frame.meta.len;
        let room = waiting.has_room_for(len, frame.flooded);
        if room {
            // The first byte says how long it is, more or less.
            waiting.push(frame, &vec![(len / 7) as u8; len], || now);
        }
        room
    }

    /// Takes the first frame if `posted` pages suffice. Returns its length.
    fn pop(waiting: &mut Waiting, posted: u32, now: Instant) -> Option<usize> {
        let mut room = vec![0; 65_536];
        let len = waiting.pop(posted, &mut room, || now)?.meta.len;
        assert!(room[..len].iter().all(|&byte| byte == (len / 7) as u8), "its own bytes");
        Some(len)
    }

    #[test]
    fn a_guest_that_posts_in_time_gets_every_frame_in_order() {
        let begin = Instant::now();
        let mut waiting = Waiting::new(Patience::default(), begin);
        assert_eq!((waiting.wanted(), waiting.call_at()), (0, None));
        assert!(
            push(&mut waiting, waiter(5000, 2), begin)
                && push(&mut waiting, waiter(60, 1), begin + MS)
        );
        assert_eq!((waiting.wanted(), waiting.call_at()), (2, Some(begin + DRAIN)));
        assert_eq!(pop(&mut waiting, 1, begin), None);
        assert_eq!(waiting.judge(1, begin + DRAIN - MS), Verdict::default());
        assert_eq!(pop(&mut waiting, 2, begin + DRAIN), Some(5000));
        // The next has its own time.
        assert_eq!((waiting.wanted(), waiting.call_at()), (1, Some(begin + 2 * DRAIN)));
        assert_eq!(pop(&mut waiting, 1, begin + DRAIN), Some(60));
        assert!(waiting.is_empty() && waiting.wanted() == 0 && waiting.call_at().is_none());
    }

    #[test]
    fn a_guest_that_posts_nothing_is_drained_and_stalled_until_it_posts() {
        let begin = Instant::now();
        let mut waiting = Waiting::new(Patience::default(), begin);
        for _ in 0..3 {
            assert!(push(&mut waiting, waiter(9000, 3), begin));
        }
        let drained = waiting.judge(2, begin + DRAIN);
        assert_eq!(drained, Verdict { dropped: 3, carrier: None });
        assert!(waiting.is_draining() && !push(&mut waiting, waiter(60, 1), begin + DRAIN));
        assert_eq!(waiting.call_at(), Some(begin + STALL));
        assert_eq!(waiting.judge(2, begin + STALL - MS), Verdict::default());
        let stalled = waiting.judge(2, begin + STALL);
        assert_eq!(stalled, Verdict { dropped: 0, carrier: Some(false) });
        assert_eq!((waiting.call_at(), waiting.wanted()), (None, 3));
        assert_eq!(waiting.judge(2, begin + 9 * STALL), Verdict::default());
        let back = waiting.judge(3, begin + 9 * STALL);
        assert_eq!(back, Verdict { dropped: 0, carrier: Some(true) });
        assert!(push(&mut waiting, waiter(60, 1), begin + 9 * STALL));
    }

    #[test]
    fn a_guest_that_does_not_signal_gets_little_time_and_keeps_its_carrier() {
        let begin = Instant::now();
        let mut waiting = Waiting::new(Patience::default().without_notify(), begin);
        assert!(push(&mut waiting, waiter(60, 1), begin));
        assert_eq!(waiting.call_at(), Some(begin + 30 * MS));
        assert_eq!(waiting.judge(0, begin + 30 * MS).dropped, 1);
        assert_eq!(waiting.call_at(), None);
        assert_eq!(waiting.judge(0, begin + STALL), Verdict::default());
        assert_eq!(waiting.judge(1, begin + STALL), Verdict::default());
        assert!(!waiting.is_draining());
    }

    #[test]
    fn waiting_frames_of_any_length_are_bounded_in_memory() {
        let begin = Instant::now();
        for (len, slots) in [(14, 1), (60, 1), (1514, 1), (65_000, 16)] {
            let mut waiting = Waiting::new(Patience::default(), begin);
            let mut frames = 0;
            while push(&mut waiting, waiter(len, slots), begin) {
                frames += 1;
                assert!(waiting.allocated() <= ALLOCATED_MAX, "{frames} of {len}");
            }
            let taken = frames * (len + EACH);
            assert!((WAITING_MAX - len - EACH..=WAITING_MAX).contains(&taken), "{taken}");
            // Drained by the guest, or by the clock.
            let mut forgotten = Waiting::new(Patience::default(), begin);
            std::mem::swap(&mut forgotten, &mut waiting);
            while push(&mut waiting, waiter(len, slots), begin) {}
            while pop(&mut waiting, slots, begin).is_some() {}
            assert!(waiting.allocated() <= KEPT, "{} of {len}", waiting.allocated());
            assert_eq!(forgotten.judge(0, begin + DRAIN).dropped, frames as u64);
            assert_eq!(forgotten.allocated(), 0);
        }
    }

    #[test]
    fn each_waiting_frame_keeps_its_own_bytes() {
        let begin = Instant::now();
        let mut waiting = Waiting::new(Patience::default(), begin);
        let mut expected = VecDeque::new();
        for number in 0..4000 {
            let len = 60 + number * 7 % 4000;
            assert!(push(&mut waiting, waiter(len, 1), begin));
            expected.push_back(len);
            // They go and come, so that the end of the memory is in the middle of some.
            while number % 3 != 0 && expected.len() > 100 {
                assert_eq!(pop(&mut waiting, 1, begin), expected.pop_front());
            }
        }
        while let Some(len) = expected.pop_front() {
            assert_eq!(pop(&mut waiting, 1, begin), Some(len));
        }
        assert!(waiting.is_empty() && waiting.bytes() == 0);
        assert!(waiting.allocated() <= KEPT, "what a burst needed is given back");
    }

    #[test]
    fn flooded_frames_leave_room_for_other_frames() {
        let begin = Instant::now();
        let mut waiting = Waiting::new(Patience::default(), begin);
        let flooded = |len, slots| Waiter { flooded: true, ..waiter(len, slots) };
        assert!(push(&mut waiting, flooded(65_535, 16), begin), "one of any size");
        assert!(!push(&mut waiting, flooded(60, 1), begin));
        assert!(push(&mut waiting, waiter(60, 1), begin));
        assert_eq!(pop(&mut waiting, 16, begin), Some(65_535));
        let many = (0..5000).filter(|_| push(&mut waiting, flooded(60, 1), begin)).count();
        assert_eq!(many, FLOODED_MAX / (60 + EACH));
        assert_eq!(waiting.judge(0, begin + DRAIN).dropped, 1 + many as u64);
        waiting.judge(1, begin + DRAIN);
        assert!(push(&mut waiting, flooded(65_535, 16), begin), "drained, all is forgotten");
    }
}

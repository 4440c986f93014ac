//! Frames that go through the graph together.

use crate::headers::Headers;
use crate::reason::Reason;
use crate::set::{BATCH_MAX, Set};
use grantway_netif::Offload;

/// Where frames come from and go to: a number for each vif, and for the ports
/// beside them, that whoever fills batches gives out.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// Nanoseconds since some moment that stays the same.
pub type Nanos = u64;

/// A handle to a frame: its first bytes are private, in the arena of the run, and
/// the rest is wherever the buffer policy has it. Nodes read the private bytes and
/// nothing else, so that no byte is judged that its sender can still write.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Where its private bytes begin in the arena.
    pub at: u32,
    /// How many there are; all, where it equals `len`.
    pub head: u32,
    /// Bytes of the whole frame, without FCS.
    pub len: u32,
    /// Whatever tells who filled the batch where the rest is: not looked at.
    pub token: u32,
    /// State of its checksum, and how it is to be segmented.
    pub offload: Offload,
    /// Where it came from.
    pub from: PortId,
}

impl Frame {
    /// Its private bytes; none of a place beyond the arena.
    #[inline]
    #[must_use]
    pub fn bytes<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        arena.get(self.range()).unwrap_or(&[])
    }

    /// The same, to be written.
    #[inline]
    #[must_use]
    pub fn bytes_mut<'a>(&self, arena: &'a mut [u8]) -> &'a mut [u8] {
        arena.get_mut(self.range()).unwrap_or(&mut [])
    }

    fn range(&self) -> std::ops::Range<usize> {
        let at = self.at as usize;
        at..at.saturating_add(self.head.min(self.len) as usize)
    }

    /// Whether nobody else can write any of it.
    #[inline]
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.head >= self.len
    }
}

/// What is to become of a frame.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No node has said yet.
    #[default]
    Open,
    /// It goes to one place.
    To(PortId),
    /// It goes everywhere but where it came from.
    Flood,
    /// It goes nowhere.
    Drop(Reason),
    /// Its payload goes with an earlier frame's.
    Merged,
}

/// One more frame whose payload follows another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The frame.
    pub frame: u8,
    /// Bytes at its start that are left out: its headers.
    pub skip: u32,
}

/// Up to [`BATCH_MAX`] frames, what was read of them, and what is to become of
/// them. Nothing is allocated once it is made.
#[derive(Debug)]
pub struct Batch {
    len: usize,
    frames: Box<[Frame; BATCH_MAX]>,
    headers: Box<[Headers; BATCH_MAX]>,
    verdicts: Box<[Verdict; BATCH_MAX]>,
    queues: Box<[Option<u16>; BATCH_MAX]>,
    links: Box<[Option<Link>; BATCH_MAX]>,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            len: 0,
            frames: Box::new([Frame::default(); BATCH_MAX]),
            headers: Box::new([Headers::default(); BATCH_MAX]),
            verdicts: Box::new([Verdict::Open; BATCH_MAX]),
            queues: Box::new([None; BATCH_MAX]),
            links: Box::new([None; BATCH_MAX]),
        }
    }
}

impl Batch {
    /// Without a frame.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all frames.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a frame; gives it back where the batch is full.
    ///
    /// # Errors
    /// There are [`BATCH_MAX`] already.
    #[inline]
    pub fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        let at = self.len;
        let Some(room) = self.frames.get_mut(at) else { return Err(frame) };
        *room = frame;
        self.headers[at] = Headers::default();
        self.verdicts[at] = Verdict::Open;
        self.queues[at] = None;
        self.links[at] = None;
        self.len += 1;
        Ok(())
    }

    /// Frames in it.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of its frames.
    #[inline]
    #[must_use]
    pub fn all(&self) -> Set {
        Set::first(self.len)
    }

    /// A frame.
    #[inline]
    #[must_use]
    pub fn frame(&self, frame: u8) -> &Frame {
        &self.frames[usize::from(frame)]
    }

    /// A frame, to be changed.
    #[inline]
    pub fn frame_mut(&mut self, frame: u8) -> &mut Frame {
        &mut self.frames[usize::from(frame)]
    }

    /// What was read of it.
    #[inline]
    #[must_use]
    pub fn headers(&self, frame: u8) -> &Headers {
        &self.headers[usize::from(frame)]
    }

    /// The same, for the node that reads.
    #[inline]
    pub fn headers_mut(&mut self, frame: u8) -> &mut Headers {
        &mut self.headers[usize::from(frame)]
    }

    /// What is to become of it.
    #[inline]
    #[must_use]
    pub fn verdict(&self, frame: u8) -> Verdict {
        self.verdicts[usize::from(frame)]
    }

    /// Says what is to become of it.
    #[inline]
    pub fn decide(&mut self, frame: u8, verdict: Verdict) {
        self.verdicts[usize::from(frame)] = verdict;
    }

    /// The receiver's queue that it is to go by, where a filter said so.
    #[inline]
    #[must_use]
    pub fn queue(&self, frame: u8) -> Option<u16> {
        self.queues[usize::from(frame)]
    }

    /// Chooses the receiver's queue.
    #[inline]
    pub fn set_queue(&mut self, frame: u8, queue: u16) {
        self.queues[usize::from(frame)] = Some(queue);
    }

    /// Counts the frames from `first` on, below number `end`, that have the same verdict and the
    /// same queue as `first`. Returns 1 or more.
    #[inline]
    #[must_use]
    pub fn alike(&self, first: usize, end: usize) -> usize {
        let verdicts = self.verdicts.get(first..end).unwrap_or(&[]);
        let queues = self.queues.get(first..end).unwrap_or(&[]);
        let (Some(verdict), Some(queue)) = (verdicts.first(), queues.first()) else { return 1 };
        let (verdict, queue) = (*verdict, *queue);
        let ways = verdicts.iter().zip(queues);
        ways.take_while(|&(other, chosen)| *other == verdict && *chosen == queue).count()
    }

    /// The frame whose payload follows this one's.
    #[inline]
    #[must_use]
    pub fn link(&self, frame: u8) -> Option<Link> {
        self.links[usize::from(frame)]
    }

    /// Lets the payload of a frame follow this one's. A later frame only: so no
    /// chain is a ring.
    #[inline]
    pub fn set_link(&mut self, frame: u8, link: Link) {
        if link.frame > frame {
            self.links[usize::from(frame)] = Some(link);
        }
    }

    /// The pieces that a frame and those that were merged into it consist of, each
    /// with the bytes at its start that are left out.
    pub fn pieces(&self, frame: u8) -> impl Iterator<Item = (&Frame, u32)> {
        let mut next = Some(Link { frame, skip: 0 });
        std::iter::from_fn(move || {
            let link = next?;
            next = self.link(link.frame);
            Some((self.frame(link.frame), link.skip))
        })
    }

    /// The frames that go somewhere, in order, with where.
    pub fn deliveries(&self) -> impl Iterator<Item = (u8, Verdict)> + '_ {
        self.all().iter().filter_map(|frame| match self.verdict(frame) {
            verdict @ (Verdict::To(_) | Verdict::Flood) => Some((frame, verdict)),
            Verdict::Open | Verdict::Drop(_) | Verdict::Merged => None,
        })
    }
}

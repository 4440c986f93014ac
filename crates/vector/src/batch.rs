//! Frames that go through the graph together.

use crate::headers::Headers;
use crate::reason::Reason;
use crate::set::{BATCH_MAX, Set};
use grantway_netif::Offload;

/// Source or destination of frames: a number for each vif, and for the ports beside them. The
/// caller that fills batches assigns the numbers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// Nanoseconds since a fixed moment.
pub type Nanos = u64;

/// Handle of a frame. The first bytes of the frame are private, in the arena of the run; the rest
/// is where the buffer policy has it. Nodes read only private bytes, so a sender cannot change a
/// byte after its validation.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Start of the private bytes in the arena.
    pub at: u32,
    /// Number of private bytes; all bytes are private if it equals `len`.
    pub head: u32,
    /// Bytes of the whole frame, without FCS.
    pub len: u32,
    /// Number by which the caller that filled the batch finds the rest. No node looks at it.
    pub token: u32,
    /// State of the checksum, and how the frame is to be segmented.
    pub offload: Offload,
    /// Source of the frame.
    pub from: PortId,
}

impl Frame {
    /// Returns the private bytes. Returns an empty slice if they are not inside the arena.
    #[inline]
    #[must_use]
    pub fn bytes<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        arena.get(self.range()).unwrap_or(&[])
    }

    /// Returns the private bytes, mutable. Returns an empty slice if they are not inside the arena.
    #[inline]
    #[must_use]
    pub fn bytes_mut<'a>(&self, arena: &'a mut [u8]) -> &'a mut [u8] {
        arena.get_mut(self.range()).unwrap_or(&mut [])
    }

    fn range(&self) -> std::ops::Range<usize> {
        let at = self.at as usize;
        at..at.saturating_add(self.head.min(self.len) as usize)
    }

    /// Returns true if the whole frame is private, so that no other domain can write it.
    #[inline]
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.head >= self.len
    }
}

/// Decision about a frame.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No node has decided yet.
    #[default]
    Open,
    /// The frame goes to one port.
    To(PortId),
    /// The frame goes to every port but its source.
    Flood,
    /// The frame is dropped for this reason.
    Drop(Reason),
    /// The frame's payload goes with an earlier frame.
    Merged,
}

/// A further frame whose payload follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Number of the frame.
    pub frame: u8,
    /// Bytes at the frame's start that are left out: its headers.
    pub skip: u32,
}

/// Up to [`BATCH_MAX`] frames with their headers and verdicts. Nothing is allocated after a batch
/// is made.
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
    /// Makes an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all frames.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// Returns the frame if the batch has [`BATCH_MAX`] frames already.
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

    /// Returns the number of frames.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the batch has no frame.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the set of all frames.
    #[inline]
    #[must_use]
    pub fn all(&self) -> Set {
        Set::first(self.len)
    }

    /// Returns a frame.
    #[inline]
    #[must_use]
    pub fn frame(&self, frame: u8) -> &Frame {
        &self.frames[usize::from(frame)]
    }

    /// Returns a frame to be changed.
    #[inline]
    pub fn frame_mut(&mut self, frame: u8) -> &mut Frame {
        &mut self.frames[usize::from(frame)]
    }

    /// Returns the headers of a frame that nodes have read so far.
    #[inline]
    #[must_use]
    pub fn headers(&self, frame: u8) -> &Headers {
        &self.headers[usize::from(frame)]
    }

    /// Returns the headers of a frame, for the node that reads them.
    #[inline]
    pub fn headers_mut(&mut self, frame: u8) -> &mut Headers {
        &mut self.headers[usize::from(frame)]
    }

    /// Returns the verdict on a frame.
    #[inline]
    #[must_use]
    pub fn verdict(&self, frame: u8) -> Verdict {
        self.verdicts[usize::from(frame)]
    }

    /// Sets the verdict on a frame.
    #[inline]
    pub fn decide(&mut self, frame: u8, verdict: Verdict) {
        self.verdicts[usize::from(frame)] = verdict;
    }

    /// Returns the receiver's queue for a frame, if a filter chose one.
    #[inline]
    #[must_use]
    pub fn queue(&self, frame: u8) -> Option<u16> {
        self.queues[usize::from(frame)]
    }

    /// Chooses the receiver's queue for a frame.
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

    /// Returns the link to the frame whose payload follows this frame's.
    #[inline]
    #[must_use]
    pub fn link(&self, frame: u8) -> Option<Link> {
        self.links[usize::from(frame)]
    }

    /// Lets the payload of a frame follow this frame's. Only a later frame can be linked, so no
    /// chain is a ring.
    #[inline]
    pub fn set_link(&mut self, frame: u8, link: Link) {
        if link.frame > frame {
            self.links[usize::from(frame)] = Some(link);
        }
    }

    /// Returns the pieces of a frame and of the frames that were merged into it, in order. Each
    /// comes with the number of bytes at its start that are left out.
    pub fn pieces(&self, frame: u8) -> impl Iterator<Item = (&Frame, u32)> {
        let mut next = Some(Link { frame, skip: 0 });
        std::iter::from_fn(move || {
            let link = next?;
            next = self.link(link.frame);
            Some((self.frame(link.frame), link.skip))
        })
    }

    /// Returns the frames that are delivered, in order, with their verdicts.
    pub fn deliveries(&self) -> impl Iterator<Item = (u8, Verdict)> + '_ {
        self.all().iter().filter_map(|frame| match self.verdict(frame) {
            verdict @ (Verdict::To(_) | Verdict::Flood) => Some((frame, verdict)),
            Verdict::Open | Verdict::Drop(_) | Verdict::Merged => None,
        })
    }
}

//! Event channels in queues: each port has a word, and Xen links the words of ports that are
//! signalled, a queue per priority. A port is looked at when it was signalled, however many there
//! are.
//!
//! Xen and the guest change words at the same time, by single atomic operations:
//!
//! | bit of a word | set by | cleared by |
//! |---|---|---|
//! | `PENDING`: it was signalled | Xen | the guest, when it takes the port off its queue |
//! | `MASKED`: it is not to be queued | the guest | the guest, unless the word is busy |
//! | `LINKED`: it is on a queue | Xen | the guest, with the link behind it |
//! | `BUSY`: Xen is writing its link | Xen | Xen |
//!
//! The low 17 bits are the link: the next port of the queue, or 0.

/// Bits of a word.
pub(crate) const PENDING: u32 = 1 << 31;
pub(crate) const MASKED: u32 = 1 << 30;
pub(crate) const LINKED: u32 = 1 << 29;
pub(crate) const BUSY: u32 = 1 << 28;
pub(crate) const LINK: u32 = (1 << 17) - 1;
/// Queues, one per priority; the first is the most urgent.
const QUEUES: usize = 16;
/// Attempts to unmask a word while Xen writes its link. Then Xen is asked to.
const TRIES: usize = 64;
/// Most words that one look at the queues takes off. The rest waits for the next look.
const DRAINED: usize = 4096;

/// The memory that Xen and the guest share. Each method is one atomic operation, sequentially
/// consistent.
pub(crate) trait Memory {
    /// Returns the word of a port; none if the port has none.
    fn load(&self, port: u32) -> Option<u32>;
    /// Replaces the word of a port by another one, or returns the word if it was a third one.
    fn exchange(&self, port: u32, old: u32, new: u32) -> Result<(), u32>;
    /// Returns the first port of a queue that was empty before.
    fn head(&self, queue: usize) -> u32;
    /// Returns true if queues became ready.
    fn is_ready(&self) -> bool;
    /// Returns a bit for each queue that became ready, and clears them.
    fn take_ready(&self) -> u32;
}

/// The guest's end of the queues.
#[derive(Debug)]
pub(crate) struct Fifo<M> {
    memory: M,
    /// Queues that are not empty yet.
    ready: u32,
    /// Next port of each of them; 0 if the memory has it.
    heads: [u32; QUEUES],
}

/// A step along the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// A port that was signalled.
    Fired(u32),
    /// A word was taken off that says nothing.
    Idle,
    /// All queues are empty.
    Empty,
}

/// Outcome of an attempt to unmask a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unmasked {
    /// The port was not signalled before.
    Quiet,
    /// The port was signalled before; that is forgotten.
    Fired,
    /// Xen is busy with it, and has to unmask it itself.
    Busy,
}

impl<M: Memory> Fifo<M> {
    pub fn new(memory: M) -> Self {
        Self { memory, ready: 0, heads: [0; QUEUES] }
    }

    /// Returns the memory.
    pub fn memory(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Returns true if a queue is not empty.
    pub fn is_ready(&self) -> bool {
        self.ready != 0 || self.memory.is_ready()
    }

    /// Takes ports that were signalled off their queues, at most [`DRAINED`] words of them.
    pub fn drain(&mut self, fired: &mut impl FnMut(u32)) {
        for _ in 0..DRAINED {
            match self.step() {
                Step::Fired(port) => fired(port),
                Step::Idle => {}
                Step::Empty => return,
            }
        }
    }

    /// Takes the first word off the most urgent queue.
    fn step(&mut self) -> Step {
        if self.memory.is_ready() {
            self.ready |= self.memory.take_ready();
        }
        let queue = self.ready.trailing_zeros() as usize;
        let Some(head) = self.heads.get_mut(queue) else {
            self.ready = 0;
            return Step::Empty;
        };
        let port = if *head == 0 { self.memory.head(queue) } else { *head };
        let (next, signalled) = unlink(&self.memory, port);
        *head = next;
        if next == 0 {
            self.ready &= !(1 << queue);
        }
        if signalled { Step::Fired(port) } else { Step::Idle }
    }

    /// Has a port be queued when it is signalled.
    pub fn unmask(&self, port: u32) -> Unmasked {
        let Some(mut word) = self.memory.load(port) else { return Unmasked::Quiet };
        for _ in 0..TRIES {
            // Xen tries its own exchange a few times only, so a busy word stays masked until then.
            let old = word & !BUSY;
            match self.memory.exchange(port, old, old & !(MASKED | PENDING)) {
                Ok(()) if old & PENDING != 0 => return Unmasked::Fired,
                Ok(()) => return Unmasked::Quiet,
                Err(found) => word = found,
            }
        }
        Unmasked::Busy
    }

    /// Masks a port, and forgets that it was signalled. It may stay on its queue until that is
    /// looked at.
    pub fn retire(&self, port: u32) {
        self.change(port, |word| (word | MASKED) & !PENDING);
    }

    /// Returns true if a port was signalled, and forgets it. For ports that are masked: those are
    /// on no queue.
    pub fn take(&self, port: u32) -> bool {
        let word = self.memory.load(port).unwrap_or(0);
        word & PENDING != 0 && self.change(port, |word| word & !PENDING) & PENDING != 0
    }

    /// Changes a word. Returns the word before.
    fn change(&self, port: u32, by: impl Fn(u32) -> u32) -> u32 {
        change(&self.memory, port, by)
    }
}

/// Changes a word; none if the port has none: 0. Returns the word before.
fn change(memory: &impl Memory, port: u32, by: impl Fn(u32) -> u32) -> u32 {
    let Some(mut word) = memory.load(port) else { return 0 };
    // Xen changes a word a few times only for each of its signals.
    while let Err(found) = memory.exchange(port, word, by(word)) {
        word = found;
    }
    word
}

/// Takes a word off its queue. Returns the next port of the queue, and true if this one was
/// signalled and is not masked. A port without a word, which Xen does not link, ends the queue.
fn unlink(memory: &impl Memory, port: u32) -> (u32, bool) {
    // PENDING goes with the link: whoever signals it later links it again.
    let before = change(memory, port, |word| match word & (LINKED | MASKED) {
        LINKED => word & !(LINKED | LINK | PENDING),
        // It is told once it is unmasked.
        both if both & LINKED != 0 => word & !(LINKED | LINK),
        _ => word,
    });
    match before & LINKED {
        0 => (0, false),
        _ => (before & LINK, before & PENDING != 0 && before & MASKED == 0),
    }
}

#[cfg(test)]
mod tests;

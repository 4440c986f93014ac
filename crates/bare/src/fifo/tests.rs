//! Xen is simulated here, by its single operations on the memory. Each order of these and of the
//! guest's is tried, with a limit on how often the guest is interrupted.

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;

/// The queue of all ports, that of Xen's default priority.
const QUEUE: usize = 7;
/// Most attempts of Xen's to link a word.
const LINK_TRIES: u32 = 4;

/// Xen, and the memory.
#[derive(Default)]
struct Xen {
    words: Vec<u32>,
    heads: [u32; QUEUES],
    ready: u32,
    /// Port that was linked last; Xen's own.
    tail: u32,
    /// Signal that has the queue's lock.
    locked: Option<usize>,
    signals: Vec<(u32, Next)>,
    /// Ports in the order in which they were signalled, and taken: true.
    log: Vec<(u32, bool)>,
}

/// Next operation of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Lock,
    Pend,
    LookAtMask,
    Mark,
    LookAtTail,
    /// The tail's word was seen as this, after so many attempts.
    Link(u32, u32),
    Head,
    /// Unlocks, and then says that the queue is ready, or does not.
    Unlock(bool),
    Ready,
    Done,
}

impl Xen {
    fn new(ports: usize, signals: &[u32]) -> Self {
        let signals = signals.iter().map(|&port| (port, Next::Lock)).collect();
        Self { words: vec![0; ports], signals, ..Self::default() }
    }

    /// Returns the signals that can go on.
    fn runnable(&self) -> Vec<usize> {
        let can = |at: &usize| match self.signals[*at].1 {
            Next::Done => false,
            Next::Lock => self.locked.is_none(),
            _ => true,
        };
        (0..self.signals.len()).filter(can).collect()
    }

    /// Does the next operation of a signal.
    fn go(&mut self, signal: usize) {
        let (port, next) = self.signals[signal];
        let (word, tail) = (port as usize, self.tail as usize);
        self.signals[signal].1 = match next {
            Next::Lock => {
                self.locked = Some(signal);
                Next::Pend
            }
            Next::Pend => {
                self.words[word] |= PENDING;
                self.log.push((port, false));
                Next::LookAtMask
            }
            Next::LookAtMask if self.words[word] & MASKED != 0 => Next::Unlock(false),
            Next::LookAtMask => Next::Mark,
            Next::Mark if self.words[word] & LINKED != 0 => Next::Unlock(false),
            Next::Mark => {
                self.words[word] |= LINKED;
                // A port that is the tail was off the queue: the queue is empty.
                if self.tail == port || self.tail == 0 { Next::Head } else { Next::LookAtTail }
            }
            Next::LookAtTail => Next::Link(self.words[tail], 0),
            Next::Link(seen, _) if seen & LINKED == 0 => {
                self.words[tail] &= !BUSY;
                Next::Head
            }
            Next::Link(seen, _) if self.words[tail] == seen => {
                self.words[tail] = seen & !(BUSY | LINK) | port;
                self.tail = port;
                Next::Unlock(false)
            }
            Next::Link(_, tries) => {
                assert!(tries < LINK_TRIES, "the guest changes a busy word again and again");
                self.words[tail] |= BUSY;
                Next::Link(self.words[tail], tries + 1)
            }
            Next::Head => {
                self.heads[QUEUE] = port;
                self.tail = port;
                Next::Unlock(true)
            }
            Next::Unlock(ready) => {
                self.locked = None;
                if ready { Next::Ready } else { Next::Done }
            }
            Next::Ready => {
                self.ready |= 1 << QUEUE;
                Next::Done
            }
            Next::Done => Next::Done,
        };
    }
}

/// A run of choices, each of a number of options, and the next one in order.
#[derive(Default)]
struct Choices {
    made: Vec<(usize, usize)>,
    at: usize,
}

impl Choices {
    fn choose(&mut self, options: usize) -> usize {
        if self.at == self.made.len() {
            self.made.push((0, options));
        }
        let (choice, known) = self.made[self.at];
        assert_eq!(known, options, "a run repeats");
        self.at += 1;
        choice
    }

    /// Goes on to the next run. Returns false if there is none.
    fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((choice, options)) = self.made.pop() {
            if choice + 1 < options {
                self.made.push((choice + 1, options));
                return true;
            }
        }
        false
    }
}

/// The memory, at each use of which Xen may go on.
struct Interrupted<'a> {
    xen: RefCell<Xen>,
    choices: RefCell<&'a mut Choices>,
    /// Times that Xen may still go on.
    left: RefCell<usize>,
}

impl<'a> Interrupted<'a> {
    fn new(xen: Xen, choices: &'a mut Choices, most: usize) -> Self {
        Self { xen: xen.into(), choices: choices.into(), left: most.into() }
    }

    /// Lets signals go on, as long as the choices say.
    fn interrupt(&self) {
        let (mut xen, mut left) = (self.xen.borrow_mut(), self.left.borrow_mut());
        while *left > 0 {
            let runnable = xen.runnable();
            let choice = self.choices.borrow_mut().choose(1 + runnable.len());
            let Some(&signal) = choice.checked_sub(1).and_then(|at| runnable.get(at)) else {
                return;
            };
            *left -= 1;
            // Up to a number of operations, after which it stops in the middle.
            let operations = 1 + self.choices.borrow_mut().choose(8);
            for _ in 0..operations {
                if xen.runnable().contains(&signal) {
                    xen.go(signal);
                }
            }
        }
    }

    /// Lets all signals go on to their ends.
    fn finish(&self) {
        let mut xen = self.xen.borrow_mut();
        while let Some(&signal) = xen.runnable().first() {
            xen.go(signal);
        }
    }
}

impl Memory for &Interrupted<'_> {
    fn load(&self, port: u32) -> Option<u32> {
        self.interrupt();
        self.xen.borrow().words.get(port as usize).copied()
    }

    fn exchange(&self, port: u32, old: u32, new: u32) -> Result<(), u32> {
        self.interrupt();
        let xen = &mut *self.xen.borrow_mut();
        let word = &mut xen.words[port as usize];
        if *word != old {
            return Err(*word);
        }
        *word = new;
        assert_eq!((old ^ new) & BUSY, 0, "the bit is Xen's");
        if old & !new & PENDING != 0 {
            xen.log.push((port, true));
        }
        Ok(())
    }

    fn head(&self, queue: usize) -> u32 {
        self.interrupt();
        self.xen.borrow().heads[queue]
    }

    fn is_ready(&self) -> bool {
        self.interrupt();
        self.xen.borrow().ready != 0
    }

    fn take_ready(&self) -> u32 {
        self.interrupt();
        core::mem::take(&mut self.xen.borrow_mut().ready)
    }
}

fn drained<M: Memory>(fifo: &mut Fifo<M>) -> Vec<u32> {
    let mut all = Vec::new();
    fifo.drain(&mut |port| all.push(port));
    all
}

/// Tries all orders in which Xen interrupts a guest, which does `work`, `most` times. Returns the
/// number of orders. In each of them, a guest that sleeps only if nothing is ready gets each
/// signal.
fn explore(
    signals: &[u32],
    most: usize,
    words: &[(u32, u32)],
    work: impl Fn(&mut Fifo<&Interrupted<'_>>, &mut Vec<u32>),
) -> usize {
    let (mut choices, mut runs) = (Choices::default(), 0);
    loop {
        let mut xen = Xen::new(6, signals);
        words.iter().for_each(|&(port, word)| xen.words[port as usize] = word);
        let memory = Interrupted::new(xen, &mut choices, most);
        let mut fifo = Fifo::new(&memory);
        let mut taken = Vec::new();
        work(&mut fifo, &mut taken);
        memory.left.replace(0);
        memory.finish();
        taken.extend(drained(&mut fifo));
        assert!(!fifo.is_ready());
        let xen = memory.xen.borrow();
        let mut log = xen.log.iter();
        let got: Vec<u32> = log.by_ref().filter(|(_, got)| *got).map(|(port, _)| *port).collect();
        assert_eq!(got, taken, "{:?}", xen.log);
        for &port in signals {
            let last = xen.log.iter().rev().find(|(of, _)| *of == port);
            let word = xen.words[port as usize];
            match word & MASKED {
                0 => assert_eq!(last, Some(&(port, true)), "{port} is lost: {:?}", xen.log),
                _ => assert_eq!(last == Some(&(port, false)), word & PENDING != 0),
            }
            assert_eq!(word & (LINKED | BUSY | LINK), 0, "{port} is off its queue");
        }
        drop(xen);
        runs += 1;
        if !choices.advance() {
            return runs;
        }
    }
}

#[test]
fn no_signal_is_lost_whatever_the_order() {
    let twice = |fifo: &mut Fifo<&Interrupted<'_>>, taken: &mut Vec<u32>| {
        taken.extend(drained(fifo));
        taken.extend(drained(fifo));
    };
    let mut runs = 0;
    for signals in [&[1][..], &[1, 1], &[1, 2], &[1, 2, 1], &[1, 2, 3]] {
        runs += explore(signals, 3, &[], twice);
    }
    assert!(runs > 100_000, "{runs} orders");
}

#[test]
fn a_port_that_is_unmasked_meanwhile_is_told_once_it_is() {
    let unmask = |fifo: &mut Fifo<&Interrupted<'_>>, taken: &mut Vec<u32>| {
        taken.extend(drained(fifo));
        let unmasked = fifo.unmask(1);
        assert_ne!(unmasked, Unmasked::Busy);
        taken.extend((unmasked == Unmasked::Fired).then_some(1));
        taken.extend(drained(fifo));
    };
    for signals in [&[1][..], &[1, 2], &[1, 2, 1]] {
        assert!(explore(signals, 3, &[(1, MASKED)], unmask) > 1000);
        assert!(explore(signals, 3, &[(1, MASKED | PENDING)], unmask) > 1000);
    }
}

#[test]
fn a_port_that_is_retired_meanwhile_stops_no_other() {
    for signals in [&[1, 2][..], &[2, 1, 3]] {
        let (mut choices, mut runs) = (Choices::default(), 0);
        loop {
            let memory = Interrupted::new(Xen::new(6, signals), &mut choices, 3);
            let mut fifo = Fifo::new(&memory);
            let mut taken = drained(&mut fifo);
            fifo.retire(1);
            memory.left.replace(0);
            memory.finish();
            taken.extend(drained(&mut fifo));
            for port in signals.iter().filter(|&&port| port != 1) {
                assert!(taken.contains(port), "{port}: {:?}", memory.xen.borrow().log);
            }
            assert_eq!(memory.xen.borrow().words[1] & (LINKED | MASKED), MASKED);
            runs += 1;
            if !choices.advance() {
                break;
            }
        }
        assert!(runs > 1000);
    }
}

/// Tells that the exploration finds a guest that loses signals.
#[test]
fn a_guest_that_sleeps_without_a_second_look_is_found_out() {
    /// Memory of a guest that clears PENDING behind the link, as if both were one.
    struct Late<'a, 'b>(&'a Interrupted<'b>);
    impl Memory for Late<'_, '_> {
        fn load(&self, port: u32) -> Option<u32> {
            self.0.load(port)
        }
        fn exchange(&self, port: u32, old: u32, new: u32) -> Result<(), u32> {
            // Not one operation: what came in between is overwritten.
            let found = self.0.load(port).unwrap_or(0);
            self.0.xen.borrow_mut().words[port as usize] = found;
            self.0.interrupt();
            self.0.xen.borrow_mut().words[port as usize] = new;
            if old & !new & PENDING != 0 {
                self.0.xen.borrow_mut().log.push((port, true));
            }
            Ok(())
        }
        fn head(&self, queue: usize) -> u32 {
            self.0.head(queue)
        }
        fn is_ready(&self) -> bool {
            self.0.is_ready()
        }
        fn take_ready(&self) -> u32 {
            self.0.take_ready()
        }
    }
    let (mut choices, mut lost) = (Choices::default(), 0);
    loop {
        let memory = Interrupted::new(Xen::new(6, &[1, 2]), &mut choices, 3);
        let mut fifo = Fifo::new(Late(&memory));
        let mut taken = drained(&mut fifo);
        memory.left.replace(0);
        memory.finish();
        taken.extend(drained(&mut fifo));
        lost += usize::from(![1, 2].iter().all(|port| taken.contains(port)));
        if !choices.advance() {
            break;
        }
    }
    assert!(lost > 0);
}

/// Memory without interruptions.
fn quiet(xen: Xen, run: impl FnOnce(&Interrupted<'_>)) {
    let mut choices = Choices::default();
    run(&Interrupted::new(xen, &mut choices, 0));
}

#[test]
fn ports_come_in_the_order_of_their_signals_and_urgent_ones_first() {
    let signals: Vec<u32> = (1..6).rev().collect();
    quiet(Xen::new(6, &signals), |memory| {
        memory.finish();
        let mut fifo = Fifo::new(memory);
        {
            // One more on the queue of the highest priority.
            let xen = &mut *memory.xen.borrow_mut();
            xen.words.push(PENDING | LINKED);
            xen.heads[0] = 6;
            xen.ready |= 1;
        }
        assert_eq!(drained(&mut fifo), [6, 5, 4, 3, 2, 1]);
        assert!(!fifo.is_ready());
    });
}

#[test]
fn links_that_lead_nowhere_end_the_queue_and_a_circle_does_not_hold_the_guest() {
    for link in [77, LINK] {
        quiet(Xen::new(6, &[]), |memory| {
            memory.xen.borrow_mut().words[1] = PENDING | LINKED | link;
            memory.xen.borrow_mut().heads[QUEUE] = 1;
            memory.xen.borrow_mut().ready = 1 << QUEUE;
            assert_eq!(drained(&mut Fifo::new(memory)), [1]);
        });
    }
    /// A queue without an end.
    struct Circle;
    impl Memory for Circle {
        fn load(&self, port: u32) -> Option<u32> {
            Some(PENDING | LINKED | (port % 5 + 1))
        }
        fn exchange(&self, _: u32, _: u32, _: u32) -> Result<(), u32> {
            Ok(())
        }
        fn head(&self, _: usize) -> u32 {
            1
        }
        fn is_ready(&self) -> bool {
            true
        }
        fn take_ready(&self) -> u32 {
            u32::MAX
        }
    }
    let mut fifo = Fifo::new(Circle);
    assert_eq!(drained(&mut fifo).len(), DRAINED);
    assert!(fifo.is_ready(), "the rest waits for the next look");
}

#[test]
fn a_masked_port_is_on_no_queue_and_is_asked_for_by_itself() {
    quiet(Xen::new(6, &[1, 1]), |memory| {
        memory.xen.borrow_mut().words[1] = MASKED;
        memory.finish();
        let mut fifo = Fifo::new(memory);
        assert!(!fifo.is_ready() && drained(&mut fifo).is_empty());
        assert!(fifo.take(1) && !fifo.take(1) && !fifo.take(2) && !fifo.take(6));
        // While Xen writes its link, a word stays masked.
        memory.xen.borrow_mut().words[1] = MASKED | BUSY;
        assert_eq!(fifo.unmask(1), Unmasked::Busy);
        assert_eq!(memory.xen.borrow().words[1], MASKED | BUSY);
        assert_eq!(fifo.unmask(6), Unmasked::Quiet, "no such port");
    });
}

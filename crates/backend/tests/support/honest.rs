//! A real frontend that carries numbered frames both ways all the while, and
//! must lose none of them whatever its neighbours do.

use super::port::{Behind, Flow, checker, generator};
use super::{PROMPT, eventually};
use grantway_embedded::Domain;
use grantway_frontend::{Policy, SendError, StagingState, Vif, VifStatus, Wishes};
use grantway_netif::Offload;
use grantway_ports::{Checker, FlowReport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of the frames that the guest sends, and of those it gets (two slots).
const SENT_BYTES: usize = 300;
const RECEIVED_BYTES: usize = 5000;
/// Frames each way in a turn; a turn takes a millisecond or more.
const BURST: u64 = 8;

#[derive(Default)]
struct Shared {
    /// Number of the present order to rest or to go on. Odd while the guest is to rest.
    orders: AtomicU64,
    /// Last order to rest that the guest followed. Nothing new is on its way since.
    rests: AtomicU64,
    leave: AtomicBool,
    connected: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    /// Times that it was connected.
    connections: AtomicU64,
    seen: Mutex<(FlowReport, u64)>,
    /// Staging state of each queue. `to_stage` has the queues, and the number of pages that
    /// each is to stage.
    staging: Mutex<Vec<StagingState>>,
    to_stage: Mutex<Vec<(u16, usize)>>,
}

pub struct Honest {
    shared: Arc<Shared>,
    pub behind: Arc<Behind>,
    thread: Option<JoinHandle<()>>,
}

/// Counts of the frames of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub made: u64,
    pub arrived: u64,
    pub lost: u64,
    pub again: u64,
    pub damaged: u64,
}

impl Tally {
    fn of(made: u64, total: FlowReport, damaged: u64) -> Self {
        Self {
            made,
            arrived: total.received,
            lost: total.lost + (made - total.received.min(made)).saturating_sub(total.lost),
            again: total.duplicated + total.stale,
            damaged,
        }
    }
}

impl Honest {
    /// Runs vif 0 of a domain whose folders are there, by grant copy.
    pub fn start(domain: Arc<Domain>, behind: Arc<Behind>) -> Self {
        let wishes = Wishes { policy: Policy::Copy, ..Wishes::default() };
        Self::start_with(domain, behind, wishes)
    }

    /// Runs vif 0 of a domain whose folders are there, with these wishes.
    pub fn start_with(domain: Arc<Domain>, behind: Arc<Behind>, wishes: Wishes) -> Self {
        behind.look().flow = Some(Flow::new(RECEIVED_BYTES));
        let shared = Arc::new(Shared::default());
        let (theirs, port) = (Arc::clone(&shared), Arc::clone(&behind));
        let thread = std::thread::Builder::new()
            .name("honest".into())
            .spawn(move || run(domain, &port, &theirs, wishes))
            .unwrap();
        let honest = Self { shared, behind, thread: Some(thread) };
        eventually("the honest vif's connection", || {
            honest.shared.connected.load(SeqCst).then_some(())
        });
        honest
    }

    pub fn connections(&self) -> u64 {
        self.shared.connections.load(SeqCst)
    }

    /// Returns the staging state of each queue.
    pub fn staging(&self) -> Vec<StagingState> {
        self.shared.staging.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stages `pages` pages of a queue, and waits until they are staged.
    #[track_caller]
    pub fn stages(&self, queue: u16, pages: usize) {
        self.wishes_for(queue, pages);
        self.has_staged(queue, pages);
    }

    /// Wishes for `pages` staged pages of a queue.
    pub fn wishes_for(&self, queue: u16, pages: usize) {
        self.shared.to_stage.lock().unwrap().push((queue, pages));
    }

    /// Waits until `pages` pages of a queue are staged.
    #[track_caller]
    pub fn has_staged(&self, queue: u16, pages: usize) {
        eventually("staged pages", || {
            let state = *self.staging().get(usize::from(queue))?;
            (state.wished.min(pages) == pages && state.staged == pages).then_some(())
        });
    }

    /// Waits until all pages of a queue are staged: more of them while it is busy.
    #[track_caller]
    pub fn has_all_staged(&self, queue: u16) {
        eventually("all pages staged", || {
            let state = *self.staging().get(usize::from(queue))?;
            (state.pages > 0 && state.staged == state.pages).then_some(())
        });
    }

    fn marks(&self) -> (u64, u64) {
        let arrived = self.behind.look().flow.as_ref().map_or(0, |f| f.from_guest.total().received);
        (arrived, self.shared.received.load(SeqCst))
    }

    /// Waits until `frames` more frames arrived each way.
    #[track_caller]
    pub fn carries(&self, frames: u64) {
        let before = self.marks();
        let start = Instant::now();
        loop {
            let now = self.marks();
            if now.0 >= before.0 + frames && now.1 >= before.1 + frames {
                return;
            }
            assert!(
                start.elapsed() < PROMPT,
                "the honest vif carried {} and {} frames in {PROMPT:?}, expected {frames} each way",
                now.0 - before.0,
                now.1 - before.1,
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops sending, and waits until all frames on their way have arrived, except for
    /// `may_be_lost` each way. Returns the counts of both directions: from the guest, and to
    /// it.
    #[track_caller]
    pub fn count(&self, may_be_lost: u64) -> [Tally; 2] {
        let order = self.shared.orders.load(SeqCst) | 1;
        self.shared.orders.store(order, SeqCst);
        eventually("the honest vif rests", || {
            (self.shared.rests.load(SeqCst) == order).then_some(())
        });
        let start = Instant::now();
        let (mut came, mut last) = (0, Instant::now());
        loop {
            let sent = self.shared.sent.load(SeqCst);
            let (seen, damaged) = *self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let (from, to, credits) = {
                let inner = self.behind.look();
                let flow = inner.flow.as_ref().unwrap();
                let judge = &flow.from_guest;
                let bad = judge.corrupt() + judge.foreign();
                (
                    Tally::of(sent, judge.total(), bad),
                    Tally::of(flow.to_guest.made(), seen, damaged),
                    flow.credits,
                )
            };
            let all = credits == 0 && from.arrived >= from.made && to.arrived >= to.made;
            let now = from.arrived + to.arrived;
            if std::mem::replace(&mut came, now) != now {
                last = Instant::now();
            }
            let enough = |way: Tally| way.arrived.saturating_add(may_be_lost) >= way.made;
            let enough = credits == 0 && enough(from) && enough(to);
            // Of those that may be lost some may still come: that is waited for, but does
            // not decide.
            let rested = last.elapsed() > Duration::from_millis(300);
            if all || (enough && rested) || start.elapsed() > PROMPT {
                return [from, to];
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// [`Honest::count`], and demands that nothing was lost, came twice or was
    /// damaged.
    #[track_caller]
    pub fn lost_nothing(&self) {
        for (way, tally) in ["from the guest", "to the guest"].iter().zip(self.count(0)) {
            let bad = (tally.lost, tally.again, tally.damaged);
            assert_eq!(bad, (0, 0, 0), "{way}: {tally:?}");
            assert_eq!(tally.arrived, tally.made, "{way}: {tally:?}");
        }
        assert_eq!(self.connections(), 1, "the honest vif was closed in between");
    }

    /// Calls `act` while nothing is on its way.
    #[track_caller]
    pub fn rests_while<T>(&self, act: impl FnOnce() -> T) -> T {
        self.count(0);
        let done = act();
        self.go_on();
        done
    }

    /// Begins to send again.
    pub fn go_on(&self) {
        let order = self.shared.orders.load(SeqCst);
        self.shared.orders.store(order.next_multiple_of(2), SeqCst);
    }

    /// Ends the guest's side once it was told to close, or at once.
    pub fn leave(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.leave.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                assert!(ended.is_ok(), "the honest vif's thread panicked");
            }
        }
    }
}

impl Drop for Honest {
    fn drop(&mut self) {
        self.end();
    }
}

fn run(domain: Arc<Domain>, port: &Behind, shared: &Shared, wishes: Wishes) {
    let mut vif = Vif::open(domain, 0, wishes).unwrap();
    let mut made = generator(SENT_BYTES);
    let mut seen = checker();
    let mut frame = vec![0; SENT_BYTES];
    let mut buffer = vec![0; 65_536];
    let mut pending = false;
    let mut paced = Instant::now();
    // Those that went with a connection, and were never told.
    let mut gone = 0;
    while !shared.leave.load(SeqCst) {
        let status = vif.store_changed().unwrap();
        let connected = status == VifStatus::Connected;
        if connected && !shared.connected.swap(true, SeqCst) {
            shared.connections.fetch_add(1, SeqCst);
            let made = port.look().flow.as_ref().map_or(0, |flow| flow.to_guest.made());
            gone = made.saturating_sub(settled(&seen));
        } else if !connected {
            shared.connected.store(false, SeqCst);
        }
        if status == VifStatus::Gone {
            return;
        }
        assert_eq!(vif.take_failure(), None, "the real backend broke a rule");
        vif.take_events().unwrap();
        for (queue, pages) in std::mem::take(&mut *shared.to_stage.lock().unwrap()) {
            vif.stage(queue, pages).unwrap();
        }
        *shared.staging.lock().unwrap() = vif.staging();
        while let Some(received) = vif.recv(&mut buffer).unwrap() {
            seen.check(&buffer[..received.len]);
            shared.received.fetch_add(1, SeqCst);
        }
        *shared.seen.lock().unwrap() = (seen.total(), seen.corrupt() + seen.foreign());
        let due = paced.elapsed() >= Duration::from_millis(1);
        let order = shared.orders.load(SeqCst);
        let quiet = order % 2 == 1;
        if connected && (due || pending) {
            paced = Instant::now();
            if due && !quiet {
                port.credit(BURST, settled(&seen) + gone);
            }
            pending = send(&mut vif, &mut made, &mut frame, pending, quiet, shared);
        }
        if quiet && !pending {
            shared.rests.store(order, SeqCst);
        }
        vif.reap().unwrap();
        vif.repost().unwrap();
        if !vif.arm().unwrap() {
            sleep(&vif);
        }
    }
}

/// Returns the number of numbered frames that arrived or are lost.
fn settled(seen: &Checker) -> u64 {
    seen.total().received + seen.total().lost
}

/// Sends a burst. Returns true if a frame waits for room.
fn send(
    vif: &mut Vif,
    made: &mut grantway_ports::Generator,
    frame: &mut [u8],
    mut pending: bool,
    quiet: bool,
    shared: &Shared,
) -> bool {
    for _ in 0..BURST {
        if !pending {
            if quiet {
                break;
            }
            made.next_into(frame);
        }
        match vif.send(frame, Offload::default()) {
            Ok(()) => {
                pending = false;
                shared.sent.fetch_add(1, SeqCst);
            }
            Err(SendError::Full) => {
                pending = true;
                break;
            }
            Err(e) => panic!("{e}"),
        }
    }
    vif.flush().unwrap();
    pending
}

/// Sleeps until something happens, for a millisecond at most.
pub fn sleep(vif: &Vif) {
    let fds = vif.event_descriptors().chain(vif.store().descriptor());
    let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let pause = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let _ = poll(&mut fds, Some(&pause));
}

//! A guest: a process with the real frontend, which may be killed, and the
//! numbered frames that it sends and gets, which outlive the process.

use super::xen::{Domain, Killed, Xen};
use grantway_backend::VifId;
use grantway_frontend::{Queue, SendError, StagingState, Vif, VifError, VifStatus, Wishes};
use grantway_hypervisor::Error;
use grantway_netif::Offload;
use grantway_ports::{Checker, CheckerConfig, Generator, GeneratorConfig, monotonic};
use grantway_testkit::Numbers;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Flows of a generator.
pub const FLOWS: u32 = 4;

/// Frames received at most in one step.
const BURST: usize = 100;

/// Calls `body`, which may kill its process. Returns `None` if it did.
pub fn survived<T>(body: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(panic) if panic.is::<Killed>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

/// Returns true if at least one of the descriptors can be read.
pub fn readable<'a>(fds: impl Iterator<Item = BorrowedFd<'a>>) -> bool {
    let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

/// The Ethernet address of a guest.
pub fn mac(number: usize) -> [u8; 6] {
    [0x00, 0x16, 0x3e, 0, 0, number as u8]
}

pub fn checker() -> Checker {
    Checker::new(CheckerConfig { flows: FLOWS, payload_every: 1, from_zero: true })
}

pub fn generator(size: usize, from: usize, to: usize) -> Generator {
    let config = GeneratorConfig {
        size,
        flows: FLOWS,
        source: mac(from),
        destination: mac(to),
        ..GeneratorConfig::default()
    };
    Generator::new(config, monotonic()).unwrap()
}

struct Process {
    domain: Arc<Domain>,
    vif: Option<Vif>,
}

pub struct Guest {
    pub id: VifId,
    number: usize,
    wishes: Wishes,
    process: Option<Process>,
    /// True if the guest found nothing to do and waits for a signal.
    asleep: bool,
    made: Generator,
    pending: Option<Vec<u8>>,
    /// Frames that it is still to send.
    pub to_send: u64,
    pub sent: u64,
    /// Checker of the frames that the guest received.
    pub seen: Checker,
    /// Something was done to it that may cost frames.
    pub disturbed: bool,
    /// Times that its vif came to be connected.
    pub connections: u64,
    /// Frames that it sent while more pages were out than a queue has at rest.
    pub bulk: u64,
}

impl Guest {
    pub fn new(number: usize, id: VifId, wishes: Wishes, size: usize, to: usize) -> Self {
        Self {
            id,
            number,
            wishes,
            process: None,
            asleep: false,
            made: generator(size, number, to),
            pending: None,
            to_send: 0,
            sent: 0,
            seen: checker(),
            disturbed: false,
            connections: 0,
            bulk: 0,
        }
    }

    /// Lets its process die after `calls` calls.
    pub fn dies_after(&mut self, calls: u64) {
        if let Some(process) = &self.process {
            process.domain.dies_after(calls);
        }
    }

    /// Kills no longer come.
    pub fn lives(&mut self) {
        if let Some(process) = &self.process {
            process.domain.lives();
        }
    }

    /// Its process is no more.
    pub fn kill(&mut self) {
        self.process = None;
        self.pending = None;
        self.disturbed = true;
    }

    /// Its process closes the vif in order, as one that ends does.
    pub fn close(&mut self) {
        self.disturbed = true;
        self.asleep = false;
        self.acts(|vif| vif.shutdown().unwrap());
    }

    /// Lets the frontend act, unless that kills it.
    fn acts(&mut self, act: impl FnOnce(&mut Vif)) {
        let Some(vif) = self.process.as_mut().and_then(|process| process.vif.as_mut()) else {
            return;
        };
        if survived(|| act(vif)).is_none() {
            self.kill();
        }
    }

    /// Its application has something for it.
    pub fn wakes(&mut self) {
        self.asleep = false;
    }

    pub fn is_connected(&self) -> bool {
        self.vif().is_some_and(|vif| vif.status() == VifStatus::Connected)
    }

    pub fn status(&self) -> Option<VifStatus> {
        self.vif().map(Vif::status)
    }

    /// Returns the staging state of each queue.
    pub fn staging(&self) -> Vec<StagingState> {
        self.vif().map(Vif::staging).unwrap_or_default()
    }

    fn vif(&self) -> Option<&Vif> {
        self.process.as_ref()?.vif.as_ref()
    }

    /// Returns true if the guest has something to do.
    pub fn is_ready(&self) -> bool {
        match self.vif() {
            None => false,
            Some(_) if !self.asleep => true,
            Some(vif) => readable(vif.event_descriptors().chain(vif.store().descriptor())),
        }
    }

    /// Starts the process, and looks for the vif. Returns true if the vif is there now and was
    /// not before.
    pub fn opens(&mut self, xen: &Xen) -> bool {
        let process = self.process.get_or_insert_with(|| {
            let domain = xen.spawn(self.id.domain);
            Process { domain, vif: None }
        });
        if process.vif.is_some() {
            return false;
        }
        let (domain, wishes) = (Arc::clone(&process.domain), self.wishes);
        match survived(|| Vif::open(domain, self.id.devid, wishes)) {
            None => {
                self.kill();
                false
            }
            Some(Ok(vif)) => {
                process.vif = Some(vif);
                self.asleep = false;
                true
            }
            Some(Err(VifError::NoVif { .. })) => false,
            Some(Err(e)) => panic!("guest {}: {e}", self.number),
        }
    }

    /// Does some of what a driver does, and at times all of it, and sleeps then.
    pub fn step(&mut self, numbers: &mut Numbers, whole: bool) {
        if self.process.as_ref().is_none_or(|process| process.vif.is_none()) {
            return;
        }
        self.asleep = false;
        let was_connected = self.is_connected();
        let mut numbers = numbers.fork();
        let mut me = Driver {
            made: &mut self.made,
            pending: &mut self.pending,
            to_send: &mut self.to_send,
            sent: &mut self.sent,
            seen: &mut self.seen,
            bulk: &mut self.bulk,
            own: mac(self.number),
        };
        let vif = self.process.as_mut().and_then(|process| process.vif.as_mut());
        let vif = vif.expect("looked at above");
        match survived(|| me.drive(vif, &mut numbers, whole)) {
            None => self.kill(),
            Some(Step::Awake) => {}
            Some(Step::Asleep) => self.asleep = true,
            Some(Step::Gone) => {
                self.process.as_mut().expect("it acts").vif = None;
                self.pending = None;
            }
        }
        self.connections += u64::from(self.is_connected() && !was_connected);
    }

    /// Returns true if the guest sleeps although there is work for it that nobody signalled. To
    /// find out, it runs a step of the sleeping guest.
    pub fn oversleeps(&mut self, numbers: &mut Numbers) -> bool {
        if !self.asleep || self.is_ready() {
            return false;
        }
        let before = (self.seen.total(), self.sent);
        self.step(numbers, true);
        before != (self.seen.total(), self.sent)
    }
}

enum Step {
    Awake,
    Asleep,
    Gone,
}

/// Work of a guest's process on its vif.
struct Driver<'a> {
    made: &'a mut Generator,
    pending: &'a mut Option<Vec<u8>>,
    to_send: &'a mut u64,
    sent: &'a mut u64,
    seen: &'a mut Checker,
    bulk: &'a mut u64,
    own: [u8; 6],
}

impl Driver<'_> {
    fn drive(&mut self, vif: &mut Vif, numbers: &mut Numbers, whole: bool) -> Step {
        match vif.store_changed().unwrap() {
            VifStatus::Gone | VifStatus::Replaced => return Step::Gone,
            VifStatus::Held => {
                match vif.take_failure() {
                    // Its folder may go while it writes into it.
                    None | Some(VifError::Platform(Error::Store { .. })) => {}
                    Some(VifError::Key { .. }) => {}
                    Some(e) => panic!("the backend broke a rule: {e}"),
                }
                vif.restart().unwrap();
                // What that was answered may hold news.
                return Step::Awake;
            }
            VifStatus::Restored => panic!("no guest is restored here"),
            VifStatus::Waiting | VifStatus::Connected => {}
        }
        if !whole {
            for _ in 0..numbers.below(4) {
                match numbers.below(7) {
                    0 => drop(vif.take_events().unwrap()),
                    1 => self.receive(vif, 1 + numbers.below(8)),
                    2 => self.send(vif, 1 + numbers.below(16)),
                    3 => drop(vif.reap().unwrap()),
                    4 => vif.flush().unwrap(),
                    5 => self.stage(vif, numbers),
                    _ => vif.repost().unwrap(),
                }
            }
            if !numbers.once_in(3) {
                return Step::Awake;
            }
        }
        vif.take_events().unwrap();
        self.receive(vif, BURST);
        vif.reap().unwrap();
        self.send(vif, BURST);
        vif.flush().unwrap();
        vif.repost().unwrap();
        if vif.arm().unwrap() { Step::Awake } else { Step::Asleep }
    }

    /// Changes the number of a queue's staged pages now and then.
    fn stage(&mut self, vif: &mut Vif, numbers: &mut Numbers) {
        let states = vif.staging();
        if !states.is_empty() && numbers.once_in(8) {
            let state = numbers.one_of(&states);
            let pages = numbers.below(state.pages + 1);
            vif.stage(state.queue, pages).unwrap();
        }
    }

    fn receive(&mut self, vif: &mut Vif, most: usize) {
        let mut buffer = vec![0; 65_536];
        for _ in 0..most {
            let Some(received) = vif.recv(&mut buffer).unwrap() else { return };
            let frame = &buffer[..received.len];
            // On the bridge, frames to a guest that is not known yet go to all, and hostile
            // ones send to anybody.
            if frame.starts_with(&self.own) && frame.get(6..11) == Some(&mac(0)[..5]) {
                self.seen.check(frame);
            }
        }
    }

    fn send(&mut self, vif: &mut Vif, most: usize) {
        for _ in 0..most {
            if self.pending.is_none() {
                if *self.to_send == 0 || vif.status() != VifStatus::Connected {
                    return;
                }
                let mut frame = vec![0; self.made.config().size];
                self.made.next_into(&mut frame);
                *self.to_send -= 1;
                *self.pending = Some(frame);
            }
            let Some(frame) = self.pending.take() else { return };
            match vif.send(&frame, Offload::default()) {
                Ok(()) => {
                    *self.sent += 1;
                    // A frame of 17,000 bytes is five slots, of four pages and a half.
                    let bulk = |queue: &Queue| queue.outstanding() * 9 / 10 > 128;
                    let large = frame.len() == 17_000;
                    *self.bulk += u64::from(large && vif.queues().iter().any(bulk));
                }
                Err(SendError::Full) => {
                    *self.pending = Some(frame);
                    return;
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
}

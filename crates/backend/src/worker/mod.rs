//! Workers: threads that own queues, each with one set of event channels.
//!
//! A queue belongs to one worker for as long as it is connected, so nothing that
//! it holds is ever locked; the queues of one vif may belong to several. A worker
//! may also have no thread: then the control thread serves its queues between two
//! steps, as a simulation does.

mod serve;
mod share;
mod wake;

use crate::VifError;
use crate::queue::{QueueSpec, VifId};
use crate::shared::Clock;
use grantway_hypervisor::{Error as PlatformError, Platform};
use grantway_ports::{Port, PortReport};
use rustix::fd::{AsFd, OwnedFd};
use serve::Worker;
use share::used;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
pub(crate) use wake::{drain, eventfd, os, ring};

/// How a worker waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMode {
    /// Never sleeps.
    Busy,
    /// Looks for this long, then sleeps.
    Adaptive(Duration),
    /// Sleeps as soon as there is nothing to do.
    Interrupt,
}

impl WaitMode {
    /// Adaptive with a budget of 50 us, about the cost of one blocked wake-up;
    /// interrupt where only one processor is online, since spinning there only
    /// keeps the peer from running.
    #[must_use]
    pub fn fitting() -> Self {
        match std::thread::available_parallelism() {
            Ok(n) if n.get() > 1 => Self::Adaptive(Duration::from_micros(50)),
            _ => Self::Interrupt,
        }
    }

    /// Its name in options, tables and figures.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Adaptive(_) => "adaptive",
            Self::Interrupt => "interrupt",
        }
    }

    fn budget(self) -> Option<Duration> {
        match self {
            Self::Busy => None,
            Self::Adaptive(budget) => Some(budget),
            Self::Interrupt => Some(Duration::ZERO),
        }
    }
}

/// How an attach went: where it failed, the port comes back.
type Attached = Result<(), (VifError, Box<dyn Port>)>;

/// What a worker is told.
enum Command {
    Attach(Box<QueueSpec>, Sender<Attached>),
    Detach(VifId, Sender<Vec<Detached>>),
    Inspect(VifId, Sender<Vec<PortReport>>),
    Stop,
}

/// A queue's number, and the port that was behind it.
type Detached = (u16, Box<dyn Port>);

/// What a worker tells.
pub(crate) enum Notice {
    /// A queue failed and is out of service; the vif is to be disabled. Its port
    /// comes back when the vif is detached, as those of other queues do.
    Failed {
        /// Which vif.
        vif: VifId,
        /// Which of its connections.
        connection: u64,
        /// Why.
        error: VifError,
    },
    /// The platform is gone, and the worker with it.
    Gone(PlatformError),
}

/// How workers tell: a notice, and a ring of the bell (an eventfd) for each.
#[derive(Clone)]
pub(crate) struct Teller {
    pub notices: Sender<Notice>,
    pub bell: Arc<OwnedFd>,
}

impl Teller {
    fn tell(&self, notice: Notice) {
        if self.notices.send(notice).is_ok() {
            ring(self.bell.as_fd());
        }
    }
}

/// What every worker is given.
#[derive(Clone)]
pub(crate) struct Service {
    pub platform: Arc<dyn Platform>,
    pub mode: WaitMode,
    pub clock: Clock,
    pub teller: Teller,
}

/// All workers of a backend.
pub(crate) struct Workers {
    all: Vec<Handle>,
    connections: Cell<u64>,
}

impl Workers {
    /// Starts `count` of them, or one without a thread; the first serves the
    /// bridge, which `uplink` is on too.
    ///
    /// # Errors
    ///
    /// The platform or the system would not give what a worker needs.
    pub fn start(
        count: usize,
        service: &Service,
        mut uplink: Option<Box<dyn Port>>,
    ) -> Result<Self, PlatformError> {
        let mut one = || Handle::start(service.clone(), uplink.take(), count > 0);
        let all = (0..count.max(1)).map(|_| one()).collect::<Result<_, _>>()?;
        Ok(Self { all, connections: Cell::new(0) })
    }

    /// A number for a connection, given once.
    pub fn next_connection(&self) -> u64 {
        self.connections.update(|number| number + 1);
        self.connections.get()
    }

    /// A round of the worker that has no thread; whether it has more to do.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn serve(&self) -> Result<bool, PlatformError> {
        self.all.iter().try_fold(false, |more, worker| Ok(worker.serve()? || more))
    }

    /// Puts a queue into service, with the worker that has the fewest, or with
    /// the bridge's.
    ///
    /// # Errors
    ///
    /// Why it could not be, and its port back where there still is one.
    pub fn attach(&self, spec: QueueSpec) -> Result<(), (VifError, Option<Box<dyn Port>>)> {
        let chosen = match spec.port.is_bridged() {
            true => self.all.first(),
            false => self.all.iter().min_by_key(|worker| worker.load()),
        };
        match chosen {
            Some(worker) => worker.attach(spec),
            None => Err((VifError::WorkerGone, Some(spec.port))),
        }
    }

    /// Takes all queues of a vif out of service and gives their ports back, in
    /// the order of the queues. What the guest had published and was not yet
    /// taken stays on the rings.
    pub fn detach(&self, vif: VifId) -> Vec<Box<dyn Port>> {
        let mut found: Vec<Detached> = self.all.iter().flat_map(|w| w.detach(vif)).collect();
        found.sort_by_key(|&(number, _)| number);
        found.into_iter().map(|(_, port)| port).collect()
    }

    /// What the ports behind a vif's queues have passed so far.
    pub fn inspect(&self, vif: VifId) -> Vec<PortReport> {
        self.all.iter().flat_map(|worker| worker.inspect(vif)).collect()
    }
}

/// Where a worker works.
enum Seat {
    Thread(Option<JoinHandle<()>>),
    /// On the control thread, between its steps.
    Here(Box<RefCell<Worker>>),
}

/// The control thread's end of one worker.
struct Handle {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    seat: Seat,
    /// How many queues of each vif it was given.
    queues: RefCell<BTreeMap<VifId, usize>>,
}

impl Handle {
    fn start(
        service: Service,
        uplink: Option<Box<dyn Port>>,
        threaded: bool,
    ) -> Result<Self, PlatformError> {
        let (commands, inbox) = channel();
        let wake = Arc::new(eventfd()?);
        // Where steps are counted and not time, all turns are alike.
        let meter = if threaded { used } else { || Duration::ZERO };
        let mut worker = Worker::new(service, meter, Arc::clone(&wake), inbox, uplink)?;
        let handle = |seat| Self { commands, wake, seat, queues: RefCell::default() };
        if !threaded {
            return Ok(handle(Seat::Here(Box::new(RefCell::new(worker)))));
        }
        let thread = std::thread::Builder::new()
            .name("worker".into())
            .spawn(move || worker.run())
            .map_err(|e| PlatformError::Os {
                call: "start a worker thread".into(),
                reason: e.to_string(),
                remedy: "raise the limit of threads (ulimit -u)",
            })?;
        Ok(handle(Seat::Thread(Some(thread))))
    }

    fn serve(&self) -> Result<bool, PlatformError> {
        let Seat::Here(worker) = &self.seat else { return Ok(false) };
        let mut worker = worker.borrow_mut();
        // Only its end, which is not here, is told by what this gives.
        let _ = worker.round(Some(Duration::ZERO))?;
        Ok(!worker.is_idle())
    }

    fn load(&self) -> usize {
        self.queues.borrow().values().sum()
    }

    fn send(&self, command: Command) -> Result<(), VifError> {
        self.commands.send(command).map_err(|_| VifError::WorkerGone)?;
        match &self.seat {
            Seat::Thread(_) => ring(self.wake.as_fd()),
            Seat::Here(worker) => {
                let _ = worker.borrow_mut().take_commands();
            }
        }
        Ok(())
    }

    fn attach(&self, spec: QueueSpec) -> Result<(), (VifError, Option<Box<dyn Port>>)> {
        let vif = spec.vif;
        let (reply, answer) = channel();
        self.send(Command::Attach(Box::new(spec), reply)).map_err(|e| (e, None))?;
        match answer.recv() {
            Ok(Ok(())) => {
                *self.queues.borrow_mut().entry(vif).or_default() += 1;
                Ok(())
            }
            Ok(Err((error, port))) => Err((error, Some(port))),
            Err(_) => Err((VifError::WorkerGone, None)),
        }
    }

    fn detach(&self, vif: VifId) -> Vec<Detached> {
        if self.queues.borrow_mut().remove(&vif).is_none() {
            return Vec::new();
        }
        self.ask(|reply| Command::Detach(vif, reply)).unwrap_or_default()
    }

    fn inspect(&self, vif: VifId) -> Vec<PortReport> {
        if !self.queues.borrow().contains_key(&vif) {
            return Vec::new();
        }
        self.ask(|reply| Command::Inspect(vif, reply)).unwrap_or_default()
    }

    fn ask<T>(&self, question: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = channel();
        self.send(question(reply)).ok()?;
        answer.recv().ok()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.send(Command::Stop);
        if let Seat::Thread(thread) = &mut self.seat
            && let Some(thread) = thread.take()
        {
            let _ = thread.join();
        }
    }
}

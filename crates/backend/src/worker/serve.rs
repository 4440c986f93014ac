//! A worker: one thread, one set of event channels, many queues.
//!
//! A queue is either *active*, and gets a bounded turn each round, or *armed*,
//! and costs nothing until its guest signals or its port becomes readable. A
//! queue that found nothing to do stays active for the spin budget, since a
//! blocked wake-up costs far more than a look; then it is armed, which looks
//! again, so that nothing which came in between is lost.

use crate::VifError;
use crate::queue::{Queue, QueueSpec, VifId};
use crate::scratch::Scratch;
use grantway_hypervisor::{Error as PlatformError, EventChannels, Platform, Port as EventPort};
use grantway_ports::{Port, PortReport};
use rustix::event::{EventfdFlags, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
    Detach(VifId, Sender<Vec<Box<dyn Port>>>),
    Inspect(VifId, Sender<Vec<PortReport>>),
    Stop,
}

/// What a worker tells.
pub enum Notice {
    /// A queue failed and is out of service; the vif is to be disabled.
    Failed {
        /// Which vif.
        vif: VifId,
        /// Why.
        error: VifError,
        /// The port that was behind the queue.
        port: Box<dyn Port>,
    },
    /// The platform is gone, and the worker with it.
    Gone(PlatformError),
}

/// The control thread's end of a worker.
pub struct WorkerHandle {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerHandle {
    /// Starts a worker. Notices go to `notices`, and `bell` (an eventfd) is
    /// rung for each.
    ///
    /// # Errors
    ///
    /// The platform or the system would not give what a worker needs.
    pub fn start(
        platform: Arc<dyn Platform>,
        mode: WaitMode,
        notices: Sender<Notice>,
        bell: Arc<OwnedFd>,
    ) -> Result<Self, PlatformError> {
        let events = platform.events()?;
        let (commands, inbox) = channel();
        let wake = Arc::new(eventfd()?);
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| os("epoll_create", e))?;
        let mut worker = Worker {
            platform,
            events,
            epoll,
            wake: Arc::clone(&wake),
            inbox,
            notices,
            bell,
            mode,
            queues: BTreeMap::new(),
            by_event: HashMap::new(),
            by_token: HashMap::new(),
            active: Vec::new(),
            next_token: FIRST_TOKEN,
            scratch: Scratch::new(),
        };
        worker.watch_own_descriptors()?;
        let thread = std::thread::Builder::new()
            .name("worker".into())
            .spawn(move || worker.run())
            .map_err(|e| PlatformError::Os {
                call: "start a worker thread".into(),
                reason: e.to_string(),
                remedy: "raise the limit of threads (ulimit -u)",
            })?;
        Ok(Self { commands, wake, thread: Some(thread) })
    }

    fn send(&self, command: Command) -> Result<(), VifError> {
        self.commands.send(command).map_err(|_| VifError::WorkerGone)?;
        ring(self.wake.as_fd());
        Ok(())
    }

    /// Puts a queue into service.
    ///
    /// # Errors
    ///
    /// Why it could not be, and its port back where there still is one.
    pub fn attach(&self, spec: QueueSpec) -> Result<(), (VifError, Option<Box<dyn Port>>)> {
        let (reply, answer) = channel();
        self.send(Command::Attach(Box::new(spec), reply)).map_err(|e| (e, None))?;
        match answer.recv() {
            Ok(done) => done.map_err(|(e, port)| (e, Some(port))),
            Err(_) => Err((VifError::WorkerGone, None)),
        }
    }

    /// Takes all queues of a vif out of service and gives their ports back.
    /// What the guest had published and was not yet taken stays on the ring.
    #[must_use]
    pub fn detach(&self, vif: VifId) -> Vec<Box<dyn Port>> {
        let (reply, answer) = channel();
        match self.send(Command::Detach(vif, reply)) {
            Ok(()) => answer.recv().unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    /// What the ports behind a vif's queues have passed so far.
    #[must_use]
    pub fn inspect(&self, vif: VifId) -> Vec<PortReport> {
        let (reply, answer) = channel();
        match self.send(Command::Inspect(vif, reply)) {
            Ok(()) => answer.recv().unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        let _ = self.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A queue's key: which vif, which queue.
type Key = (VifId, u16);

const EVENTS_TOKEN: u64 = 0;
const WAKE_TOKEN: u64 = 1;
const FIRST_TOKEN: u64 = 2;

struct Slot {
    queue: Queue,
    token: u64,
    active: bool,
    watched: bool,
    idle_since: Option<Instant>,
}

struct Worker {
    platform: Arc<dyn Platform>,
    events: Box<dyn EventChannels>,
    epoll: OwnedFd,
    wake: Arc<OwnedFd>,
    inbox: Receiver<Command>,
    notices: Sender<Notice>,
    bell: Arc<OwnedFd>,
    mode: WaitMode,
    queues: BTreeMap<Key, Slot>,
    by_event: HashMap<EventPort, Key>,
    by_token: HashMap<u64, Key>,
    active: Vec<Key>,
    next_token: u64,
    scratch: Scratch,
}

/// Whether the worker goes on.
type Flow = std::ops::ControlFlow<()>;

impl Worker {
    fn watch_own_descriptors(&self) -> Result<(), PlatformError> {
        add(&self.epoll, self.events.descriptor(), EVENTS_TOKEN)?;
        add(&self.epoll, self.wake.as_fd(), WAKE_TOKEN)
    }

    fn run(&mut self) {
        loop {
            let result = self.round();
            match result {
                Ok(Flow::Continue(())) => {}
                Ok(Flow::Break(())) => return,
                Err(error) => {
                    self.tell(Notice::Gone(error));
                    return;
                }
            }
        }
    }

    /// A turn for each active queue, then a look at what else woke.
    fn round(&mut self) -> Result<Flow, PlatformError> {
        let moved = self.serve_active();
        let timeout = match (self.active.is_empty(), moved) {
            (true, _) => None,
            (false, _) => Some(Duration::ZERO),
        };
        self.look(timeout)
    }

    fn serve_active(&mut self) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some(&key) = self.active.get(at) {
            match self.serve(key) {
                Ok(Served::Moved) => {
                    moved = true;
                    at += 1;
                }
                Ok(Served::Idle) => at += 1,
                Ok(Served::Armed) => {
                    self.active.swap_remove(at);
                }
                Err(error) => {
                    self.active.swap_remove(at);
                    self.fail(key, error);
                }
            }
        }
        moved
    }

    fn serve(&mut self, key: Key) -> Result<Served, VifError> {
        let Some(slot) = self.queues.get_mut(&key) else { return Ok(Served::Armed) };
        let turn = slot.queue.turn(&mut self.scratch, self.events.as_mut())?;
        if turn.packets > 0 {
            slot.idle_since = None;
            return Ok(Served::Moved);
        }
        let Some(budget) = self.mode.budget() else { return Ok(Served::Idle) };
        if !budget.is_zero() {
            let now = Instant::now();
            if now.duration_since(*slot.idle_since.get_or_insert(now)) < budget {
                core::hint::spin_loop();
                return Ok(Served::Idle);
            }
        }
        if slot.queue.arm()? {
            return Ok(Served::Idle);
        }
        slot.idle_since = None;
        slot.active = false;
        self.watch_port(key);
        Ok(Served::Armed)
    }

    /// Makes epoll's interest in the port's descriptor what the queue wants.
    fn watch_port(&mut self, key: Key) {
        let Some(slot) = self.queues.get_mut(&key) else { return };
        let wanted = slot.queue.wants_frames();
        if wanted == slot.watched {
            return;
        }
        if let Some(fd) = slot.queue.port_descriptor() {
            let flags = if wanted { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
            // A descriptor that cannot be watched any more fails at its next
            // use, which tells why.
            let _ = epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(slot.token), flags);
            slot.watched = wanted;
        }
    }

    fn activate(&mut self, key: Key, by_guest: bool) {
        let Some(slot) = self.queues.get_mut(&key) else { return };
        if by_guest {
            slot.queue.interrupted();
        }
        if !slot.active {
            slot.active = true;
            self.active.push(key);
        }
    }

    /// Takes in events, commands and readable ports; blocks when `timeout` is
    /// none.
    fn look(&mut self, timeout: Option<Duration>) -> Result<Flow, PlatformError> {
        let mut buffer = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 64];
        let timeout = timeout.map(|_| rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 });
        let found = match epoll::wait(&self.epoll, &mut buffer, timeout.as_ref()) {
            Ok(found) => found,
            Err(rustix::io::Errno::INTR) => 0,
            Err(e) => return Err(os("epoll_wait", e)),
        };
        for event in &buffer[..found] {
            match event.data.u64() {
                EVENTS_TOKEN => self.take_events()?,
                WAKE_TOKEN => {
                    drain(self.wake.as_fd());
                    while let Ok(command) = self.inbox.try_recv() {
                        if self.obey(command).is_break() {
                            return Ok(Flow::Break(()));
                        }
                    }
                }
                token => {
                    if let Some(&key) = self.by_token.get(&token) {
                        self.activate(key, false);
                    }
                }
            }
        }
        Ok(Flow::Continue(()))
    }

    fn take_events(&mut self) -> Result<(), PlatformError> {
        let mut fired = Vec::new();
        self.events.poll(&mut |port| fired.push(port))?;
        for port in fired {
            if let Some(&key) = self.by_event.get(&port) {
                self.activate(key, true);
            }
        }
        Ok(())
    }

    fn obey(&mut self, command: Command) -> Flow {
        match command {
            Command::Attach(spec, reply) => {
                let _ = reply.send(self.attach(*spec));
            }
            Command::Detach(vif, reply) => {
                let keys: Vec<Key> =
                    self.queues.keys().filter(|(v, _)| *v == vif).copied().collect();
                let ports = keys.into_iter().filter_map(|key| self.remove(key)).collect();
                let _ = reply.send(ports);
            }
            Command::Inspect(vif, reply) => {
                let queues = self.queues.iter().filter(|((v, _), _)| *v == vif);
                let reports = queues.map(|(_, slot)| slot.queue.port_report()).collect();
                let _ = reply.send(reports);
            }
            Command::Stop => return Flow::Break(()),
        }
        Flow::Continue(())
    }

    fn attach(&mut self, spec: QueueSpec) -> Attached {
        let key = (spec.vif, spec.number);
        if self.queues.contains_key(&key) {
            return Err((VifError::Internal("the queue is attached already"), spec.port));
        }
        let queue = Queue::connect(spec, self.platform.as_ref(), self.events.as_mut())?;
        let token = self.next_token;
        self.next_token += 1;
        let (tx, rx) = queue.events();
        let watched = match queue.port_descriptor() {
            Some(fd) => add(&self.epoll, fd, token).map(|()| true),
            None => Ok(false),
        };
        let watched = match watched {
            Ok(watched) => watched,
            Err(e) => return Err((e.into(), queue.disconnect(self.events.as_mut()))),
        };
        self.by_event.insert(tx, key);
        self.by_event.insert(rx, key);
        self.by_token.insert(token, key);
        self.queues.insert(key, Slot { queue, token, active: false, watched, idle_since: None });
        self.activate(key, false);
        Ok(())
    }

    fn remove(&mut self, key: Key) -> Option<Box<dyn Port>> {
        let slot = self.queues.remove(&key)?;
        let (tx, rx) = slot.queue.events();
        self.by_event.remove(&tx);
        self.by_event.remove(&rx);
        self.by_token.remove(&slot.token);
        self.active.retain(|&k| k != key);
        if let Some(fd) = slot.queue.port_descriptor() {
            let _ = epoll::delete(&self.epoll, fd);
        }
        Some(slot.queue.disconnect(self.events.as_mut()))
    }

    fn fail(&mut self, key: Key, error: VifError) {
        if let Some(port) = self.remove(key) {
            self.tell(Notice::Failed { vif: key.0, error, port });
        }
    }

    fn tell(&self, notice: Notice) {
        if self.notices.send(notice).is_ok() {
            ring(self.bell.as_fd());
        }
    }
}

enum Served {
    Moved,
    Idle,
    Armed,
}

fn add(epoll: &OwnedFd, fd: BorrowedFd<'_>, token: u64) -> Result<(), PlatformError> {
    epoll::add(epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
        .map_err(|e| os("epoll_ctl", e))
}

/// A new eventfd that does not block.
///
/// # Errors
///
/// The system has no descriptor left.
pub(crate) fn eventfd() -> Result<OwnedFd, PlatformError> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|e| os("eventfd", e))
}

pub(crate) fn ring(bell: BorrowedFd<'_>) {
    // A full counter is as good as a rung bell.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

pub(crate) fn drain(bell: BorrowedFd<'_>) {
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}

pub(crate) fn os(call: &str, e: rustix::io::Errno) -> PlatformError {
    PlatformError::Os {
        call: call.into(),
        reason: e.to_string(),
        remedy: "raise the limit of open files (ulimit -n)",
    }
}

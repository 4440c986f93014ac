//! Workers: threads that own queues, each with one set of event channels.
//!
//! A queue belongs to one worker for as long as it is connected, so none of its state is ever
//! locked. The queues of one vif may belong to several workers. A worker may also have no thread:
//! then the control thread serves its queues between two steps, as a simulation does.

mod cost;
mod message;
mod meter;
mod mode;
mod neighbours;
mod pace;
mod round;
mod serve;
mod settings;
mod share;
mod slot;
mod spin;
mod watch;

use crate::VifError;
use crate::bell::Bell;
use crate::bridge::{Elsewhere, mesh};
use crate::error::StartError;
use crate::ids::VifId;
use crate::turn::lists::{GraphReport, Loaded, UPLINK_NAME};
use crate::turn::queue::{Afterwards, QueueSpec};
use grantway_hypervisor::Error as PlatformError;
use grantway_ports::{Port, PortReport};
use grantway_vector::receivers::Takes;
use grantway_vector::rules::{Names, TextFault, parse};
use grantway_vector::{PortId, Secret};
pub use message::WorkerReport;
pub(crate) use message::{Beside, Inspected, Notice, Service, Teller};
use message::{Command, Detached, Parts};
pub use meter::Meter;
pub use mode::WaitMode;
pub use pace::{Idle, Pace, Still};
pub use round::ROUND_MAX;
use serve::Worker;
pub use settings::Settings;
use spin::Spin;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// All workers of a backend.
pub(crate) struct Workers {
    all: Vec<Handle>,
    connections: Cell<u64>,
    by_rules: bool,
    /// Names and numbers of the vifs that are in service, and of the vifs that rules name.
    names: RefCell<Names>,
}

impl Workers {
    /// Starts `count` workers, 1 at least, each with a thread if `threads` is true. The first worker
    /// has the uplink.
    ///
    /// # Errors
    ///
    /// The platform or the system refused something that a worker needs.
    pub fn start(
        (count, threads): (usize, bool),
        service: &Service,
        beside: Beside,
    ) -> Result<Self, StartError> {
        let Beside { nodes, mut uplink } = beside;
        let by_rules = nodes.by_rules();
        let bells = (0..count.max(1)).map(|_| Bell::new().map(Arc::new));
        let bells = bells.collect::<Result<Vec<_>, _>>()?;
        let uplink_takes = uplink.as_ref().map_or(Takes::ALL, |port| Takes::merged(port.caps()));
        let mut uplink_at = None;
        let mut all = Vec::new();
        for (mesh, bell) in mesh(&bells).into_iter().zip(bells) {
            let (graph, uplink) = (nodes.graph()?, uplink.take());
            let parts = Parts { graph, uplink, uplink_at, uplink_takes, mesh };
            if parts.uplink.is_some() {
                uplink_at = Some(all.len());
            }
            all.push(Handle::start(service.clone(), (parts, bell), threads)?);
        }
        let mut names = Names::default();
        // The first name to join gets the number `UPLINK`.
        names.join(UPLINK_NAME);
        Ok(Self { all, connections: Cell::new(0), by_rules, names: RefCell::new(names) })
    }

    /// Loads rules, which judge packets from the next list on.
    ///
    /// # Errors
    ///
    /// The fault of an invalid file, with its place. The previous rules stay loaded.
    pub fn load(&self, text: &str, secret: Secret) -> Result<(), TextFault> {
        let mut names = self.names.borrow().for_other_rules();
        let rules = parse(text, &mut names, secret)?;
        self.names.replace(names);
        let loaded = Loaded::new(rules);
        // All obey the same rules from one moment on: what one learns by them the others have to
        // hear by them.
        self.between_turns(|| {
            for worker in &self.all {
                // A worker that has ended has already told the control thread.
                let _ = worker.send(Command::Load(loaded.clone()));
            }
        });
        Ok(())
    }

    /// Returns the counters of the graphs of all workers, or `None` if all workers have ended.
    pub fn graph(&self) -> Option<GraphReport> {
        let mut reports = self.all.iter().filter_map(|worker| worker.ask(Command::Graph));
        let mut first = reports.next()?;
        reports.for_each(|other| first.add(&other));
        Some(first)
    }

    /// Returns a number for a connection. Each number is given once.
    pub fn next_connection(&self) -> u64 {
        self.connections.update(|number| number + 1);
        self.connections.get()
    }

    /// Serves a round of each worker that has no thread, or of one by its number. Returns true if
    /// one has more to do.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    #[inline]
    pub fn serve(&self, one: Option<usize>) -> Result<bool, PlatformError> {
        let all = one.map_or(&self.all[..], |one| self.all.get(one..=one).unwrap_or_default());
        let more = all.iter().try_fold(false, |more, worker| Ok(worker.serve()? || more))?;
        // A worker may have something of one that came behind it.
        Ok(more || all.len() > 1 && all.iter().any(Handle::has_work))
    }

    /// Puts a queue into service with the worker that has the fewest queues. If the queue goes by
    /// rules or to the bridge, that is the worker of the vif's first queue: what the graph of one
    /// worker knows of a vif, it knows of all its queues.
    ///
    /// # Errors
    ///
    /// The reason why the queue could not be put into service, with its port if there still is one.
    pub fn attach(&self, spec: QueueSpec) -> Result<(), (VifError, Option<Box<dyn Port>>)> {
        let (vif, bridged) = (spec.vif, spec.port.caps().bridged);
        let together = self.by_rules || bridged;
        let of_vif = self.all.iter().position(|worker| together && worker.has(vif));
        let least = || {
            let loads = self.all.iter().enumerate();
            loads.min_by_key(|(_, worker)| worker.load()).map(|(number, _)| number)
        };
        let number = of_vif.or_else(least);
        let Some((number, worker)) = number.and_then(|n| Some((n, self.all.get(n)?))) else {
            return Err((VifError::WorkerGone, Some(spec.port)));
        };
        let Some(id) = self.names.borrow_mut().join(&name(vif)) else {
            return Err((VifError::Names, Some(spec.port)));
        };
        if bridged && of_vif.is_none() {
            // Before its first turn: what is learnt of it is of use to those who know where it is.
            let guest = Elsewhere { vif, worker: number, shared: Arc::clone(&spec.shared) };
            let guest = |reply| Command::Elsewhere(id, Box::new(guest.clone()), reply);
            self.tell_all(Some(number), guest);
        }
        match worker.attach(spec, id) {
            Ok(takes) => {
                if bridged && of_vif.is_none() {
                    self.tell_all(Some(number), |reply| Command::Takes(id, takes, reply));
                }
                Ok(())
            }
            Err(error) => {
                self.let_go(vif);
                Err(error)
            }
        }
    }

    /// Gives all workers a command, except the one with this number, and waits until they have
    /// carried it out.
    fn tell_all<T>(&self, but: Option<usize>, command: impl Fn(Sender<T>) -> Command) {
        let others = self.all.iter().enumerate().filter(|&(number, _)| Some(number) != but);
        // All are told before the first is waited for. If one has ended, `recv` fails.
        let told: Vec<_> = others.filter_map(|(_, worker)| worker.tell(&command)).collect();
        for answer in told {
            let _ = answer.recv();
        }
    }

    /// Frees the number of a vif that has no queue in service, so that another vif may get it.
    fn let_go(&self, vif: VifId) {
        if self.all.iter().any(|worker| worker.has(vif)) {
            return;
        }
        if self.all.len() > 1
            && let Some(id) = self.names.borrow_mut().join(&name(vif))
        {
            // Twice: after the first time no worker says anything new of the vif, and the second
            // time each has heard what was said before.
            for _ in 0..2 {
                self.tell_all(None, |reply| Command::Forget(id, reply));
            }
        }
        self.names.borrow_mut().leave(&name(vif));
    }

    /// Notes that the first worker lost the uplink.
    pub fn lose_uplink(&self) {
        for worker in &self.all {
            let _ = worker.send(Command::NoUplink);
        }
    }

    /// Returns the report of the uplink, if a worker has one.
    pub fn uplink(&self) -> Option<PortReport> {
        self.all.iter().find_map(|worker| worker.ask(Command::Uplink).flatten())
    }

    /// Takes all queues of a vif out of service and returns their ports, in the order of the
    /// queues. Requests that the guest published and no worker took stay on the rings.
    pub fn detach(&self, vif: VifId, after: Afterwards) -> Vec<Box<dyn Port>> {
        let found = self.all.iter().flat_map(|worker| worker.detach(vif, after));
        let mut found: Vec<Detached> = found.collect();
        found.sort_by_key(|&(number, _)| number);
        self.let_go(vif);
        found.into_iter().map(|(_, port)| port).collect()
    }

    /// Returns reports of a vif's queues, in their order.
    pub fn inspect(&self, vif: VifId) -> Inspected {
        let (mut queues, mut failed) = Inspected::default();
        for (further, ports) in self.all.iter().filter_map(|worker| worker.inspect(vif)) {
            queues.extend(further);
            failed.extend(ports);
        }
        queues.sort_by_key(|queue| queue.number);
        (queues, failed)
    }

    /// Gives each queue of a vif a turn, since a setting has changed that it may wait for.
    pub fn wake(&self, vif: VifId) {
        for worker in self.all.iter().filter(|worker| worker.has(vif)) {
            // A worker that has ended gives no turns.
            let _ = worker.send(Command::Wake(vif));
        }
    }

    /// Leaves `headroom` bytes free in front of each frame for a vif's guest. After the call no
    /// frame is published without them.
    pub fn set_headroom(&self, vif: VifId, headroom: u16) {
        for (number, worker) in self.all.iter().enumerate().filter(|(_, worker)| worker.has(vif)) {
            // A worker that has ended publishes nothing.
            let now = worker.ask(|reply| Command::Headroom(vif, headroom, reply)).flatten();
            if let Some((id, takes)) = now {
                self.tell_all(Some(number), |reply| Command::Takes(id, takes, reply));
            }
        }
    }

    /// Calls `read` while no worker is in a turn: the work of a turn is then in all counters or in
    /// none. `read` has to be short, since no packet moves meanwhile.
    pub fn between_turns<T>(&self, read: impl FnOnce() -> T) -> T {
        // All workers are told before the first is waited for. If one has ended, `recv` fails.
        let told: Vec<_> = self.all.iter().filter_map(Handle::hold).collect();
        for (held, _) in &told {
            let _ = held.recv();
        }
        read()
    }

    /// Returns a report of each worker.
    pub fn account(&self) -> Vec<WorkerReport> {
        self.all.iter().filter_map(|worker| worker.ask(Command::Account)).collect()
    }
}

/// Returns the name of a vif in rules.
fn name(VifId { domain, devid }: VifId) -> String {
    format!("{domain}.{devid}")
}

/// The place where a worker runs.
enum Seat {
    Thread(Option<JoinHandle<()>>),
    /// The control thread, between its steps.
    Here(Box<RefCell<Worker>>),
}

/// A guard of a worker's thread, which reports to the control thread if the thread panics. The
/// worker's queues are no longer served then, so the whole backend ends, and its successor
/// continues.
struct Fall(Teller);

impl Drop for Fall {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.tell(Notice::Gone(PlatformError::Os {
                call: "serve vifs".into(),
                reason: "a worker panicked".into(),
                remedy: "the lines before this one say where; a backend that is started anew takes over",
            }));
        }
    }
}

/// The control thread's end of one worker.
struct Handle {
    commands: Sender<Command>,
    wake: Arc<Bell>,
    seat: Seat,
    /// Number of queues of each vif that the worker was given.
    queues: RefCell<BTreeMap<VifId, usize>>,
}

impl Handle {
    fn start(
        service: Service,
        (parts, wake): (Parts, Arc<Bell>),
        threaded: bool,
    ) -> Result<Self, PlatformError> {
        let (commands, inbox) = channel();
        let spin = Spin::new(service.settings.mode, threaded)?;
        let wake_up = Arc::clone(&wake);
        let fall = Fall(service.teller.clone());
        let on_worker = Arc::clone(&service.settings.on_worker);
        let mut worker = Worker::new(service, spin, wake_up, inbox, parts)?;
        let handle = |seat| Self { commands, wake, seat, queues: RefCell::default() };
        if !threaded {
            return Ok(handle(Seat::Here(Box::new(RefCell::new(worker)))));
        }
        // The thread prepares itself, tells how that went, and serves only if it went well.
        let (ready, begun) = channel();
        let thread = std::thread::Builder::new()
            .name("worker".into())
            .spawn(move || {
                let _fall = fall;
                let first = on_worker();
                let serves = first.is_ok();
                let _ = ready.send(first);
                if serves {
                    worker.run();
                }
            })
            .map_err(|e| PlatformError::Os {
                call: "start a worker thread".into(),
                reason: e.to_string(),
                remedy: "raise the limit of threads (ulimit -u)",
            })?;
        match begun.recv() {
            Ok(Ok(())) => Ok(handle(Seat::Thread(Some(thread)))),
            Ok(Err(e)) => Err(PlatformError::Os {
                call: "prepare a worker thread".into(),
                reason: e.to_string(),
                remedy: "look at the kernel's log (dmesg)",
            }),
            // The thread panicked, and its message is in the log.
            Err(_) => Err(PlatformError::Gone { what: "a worker that had just started".into() }),
        }
    }

    fn serve(&self) -> Result<bool, PlatformError> {
        let Seat::Here(worker) = &self.seat else { return Ok(false) };
        let mut worker = worker.borrow_mut();
        // The flow says only whether the worker's thread ends, and there is none.
        let _ = worker.round(Some(Duration::ZERO))?;
        Ok(worker.has_work())
    }

    /// Returns true if a worker without a thread has something to do.
    fn has_work(&self) -> bool {
        matches!(&self.seat, Seat::Here(worker) if worker.borrow().has_work())
    }

    fn has(&self, vif: VifId) -> bool {
        self.queues.borrow().contains_key(&vif)
    }

    fn load(&self) -> usize {
        self.queues.borrow().values().sum()
    }

    fn send(&self, command: Command) -> Result<(), VifError> {
        self.commands.send(command).map_err(|_| VifError::WorkerGone)?;
        match &self.seat {
            Seat::Thread(_) => self.wake.ring(),
            Seat::Here(worker) => {
                let _ = worker.borrow_mut().take_commands();
            }
        }
        Ok(())
    }

    fn attach(
        &self,
        spec: QueueSpec,
        id: PortId,
    ) -> Result<Takes, (VifError, Option<Box<dyn Port>>)> {
        let vif = spec.vif;
        let (reply, answer) = channel();
        self.send(Command::Attach(Box::new(spec), id, reply)).map_err(|e| (e, None))?;
        match answer.recv() {
            Ok(Ok(takes)) => {
                *self.queues.borrow_mut().entry(vif).or_default() += 1;
                Ok(takes)
            }
            Ok(Err((error, port))) => Err((error, Some(port))),
            Err(_) => Err((VifError::WorkerGone, None)),
        }
    }

    fn detach(&self, vif: VifId, after: Afterwards) -> Vec<Detached> {
        if self.queues.borrow_mut().remove(&vif).is_none() {
            return Vec::new();
        }
        self.ask(|reply| Command::Detach(vif, after, reply)).unwrap_or_default()
    }

    fn inspect(&self, vif: VifId) -> Option<Inspected> {
        self.has(vif).then(|| self.ask(|reply| Command::Inspect(vif, reply))).flatten()
    }

    /// Makes the worker's thread take no turn until the returned sender is dropped. The receiver
    /// gets a message when that begins. Returns `None` for a worker without a thread, which takes
    /// no turn during this call in any case.
    fn hold(&self) -> Option<(Receiver<()>, Sender<()>)> {
        let Seat::Thread(_) = &self.seat else { return None };
        let ((reply, held), (go, until)) = (channel(), channel());
        self.send(Command::Hold(reply, until)).ok()?;
        Some((held, go))
    }

    /// Gives the worker a command. Returns the receiver of its answer.
    fn tell<T>(&self, question: impl FnOnce(Sender<T>) -> Command) -> Option<Receiver<T>> {
        let (reply, answer) = channel();
        self.send(question(reply)).ok()?;
        Some(answer)
    }

    fn ask<T>(&self, question: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        self.tell(question)?.recv().ok()
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

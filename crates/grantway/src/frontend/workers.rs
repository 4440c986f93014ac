//! A thread for each queue of the vif. Each thread has a queue of the port.

use super::bridge::{Bridge, Drops, Tally, Trouble};
use grantway_backend::{Idle, Pace, Still, WaitMode};
use grantway_command::args::Api;
use grantway_command::error::CommandError;
use grantway_command::wait::{Bell, which_readable};
use grantway_frontend::{BackendFeatures, Queue, QueueStats, Runner};
use grantway_ports::{Port, PortReport, TapOffloads, uptime};
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time for which a thread with work keeps its processor. The next thread on the way of its frames
/// may wait for this processor, and frames that no thread takes are lost.
const KEPT: Duration = Duration::from_micros(50);
/// Rounds without a frame after which the thread yields its processor. Such a round costs a few
/// loads, and a system call as much as many rounds.
const STILL_ROUNDS: u32 = 64;
/// Time between two looks at commands and events while there is work.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Command for a thread.
enum Command {
    /// True if frames may cross.
    Link(bool),
    /// Request for a report of the queue.
    Inspect(Sender<QueueReport>),
    /// Request to end, and to give back the queue and the port.
    Stop,
}

/// State of one queue.
pub struct QueueReport {
    /// Number of the queue.
    pub number: u16,
    /// Counters since the queue connected.
    pub stats: QueueStats,
    /// Frames that crossed since then, and those that did not.
    pub tally: Tally,
    /// Counters of the port behind the queue.
    pub port: PortReport,
    /// Time at which this was read.
    pub at: Duration,
}

impl QueueReport {
    fn of(bridge: &Bridge) -> Self {
        Self {
            number: bridge.ends.queue.number(),
            stats: *bridge.ends.queue.stats(),
            tally: bridge.ends.tally,
            port: bridge.ends.port.report(),
            at: uptime(),
        }
    }
}

/// The main thread's end of all queue threads.
pub struct Workers {
    mode: WaitMode,
    api: Api,
    merge: bool,
    /// Queues of the port without a thread, in order. The first one is kept for as long as the
    /// command runs.
    ports: Vec<Box<dyn Port>>,
    threads: Vec<Thread>,
    /// Queues of the vif for which no thread could be started.
    idle: Vec<Queue>,
    /// True if frames may cross.
    linked: bool,
    /// Frames that did not cross in ended connections.
    past_drops: Drops,
    /// Counters of queues of the port that were closed.
    past_ports: Option<PortReport>,
    bell: Bell,
    /// Faults of this connection. Those of an earlier one are dropped with it.
    troubles: Receiver<Trouble>,
    teller: Sender<Trouble>,
}

struct Thread {
    commands: Sender<Command>,
    wake: Bell,
    handle: JoinHandle<Bridge>,
}

impl Thread {
    fn tell(&self, command: Command) {
        // A thread that ended has told its trouble.
        if self.commands.send(command).is_ok() {
            self.wake.ring();
        }
    }
}

impl Workers {
    /// Returns the workers without threads and without a port. Segments are merged for the port if
    /// `merge` is true.
    pub fn new(mode: WaitMode, api: Api, merge: bool) -> Result<Self, CommandError> {
        let (teller, troubles) = channel();
        Ok(Self {
            mode,
            api,
            merge,
            ports: Vec::new(),
            threads: Vec::new(),
            idle: Vec::new(),
            linked: false,
            past_drops: Drops::default(),
            past_ports: None,
            bell: Bell::new()?,
            troubles,
            teller,
        })
    }

    /// Sets the port to bridge to, before the first connection.
    pub fn set_port(&mut self, port: Box<dyn Port>) {
        self.ports = vec![port];
    }

    /// Returns a descriptor that is readable if there may be a fault, or other pages to stage.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.descriptor()
    }

    /// Makes the descriptor not readable until a thread rings again. Call this before looking for
    /// the reason.
    pub fn hush(&self) {
        self.bell.hush();
    }

    /// Returns a fault that ended a thread, or prevented its start.
    pub fn trouble(&mut self) -> Option<Trouble> {
        self.troubles.try_recv().ok()
    }

    /// Sets for all threads whether frames can cross.
    pub fn set_link(&mut self, up: bool) {
        if std::mem::replace(&mut self.linked, up) != up {
            self.threads.iter().for_each(|thread| thread.tell(Command::Link(up)));
        }
    }

    /// Returns true if frames can cross.
    pub fn linked(&self) -> bool {
        self.linked
    }

    /// Removes the port, because the vif is gone for ever.
    pub fn remove_port(&mut self) -> Result<(), CommandError> {
        match self.ports.first_mut() {
            Some(port) => port.remove().map_err(CommandError::failed),
            None => Ok(()),
        }
    }

    /// Returns the state of each queue.
    pub fn report(&self) -> Vec<QueueReport> {
        // All threads are asked before the first answer is waited for.
        let ask = |thread: &Thread| {
            let (reply, answer) = channel();
            thread.tell(Command::Inspect(reply));
            answer
        };
        let answers: Vec<_> = self.threads.iter().map(ask).collect();
        answers.into_iter().filter_map(|answer| answer.recv().ok()).collect()
    }

    /// Returns the mode in which the threads wait.
    pub fn mode(&self) -> WaitMode {
        self.mode
    }

    /// Returns the frames that did not cross, over all connections. `now` is the present state of
    /// the queues.
    pub fn drops(&self, now: &[QueueReport]) -> Drops {
        let mut sum = self.past_drops;
        now.iter().for_each(|queue| sum.add(&queue.tally.drops));
        sum
    }

    /// Returns the counters of the port, over all its queues. `now` is the present state of the
    /// queues.
    pub fn port_report(&self, now: &[QueueReport]) -> Option<PortReport> {
        let idle = self.ports.iter().map(|port| port.report());
        let busy = now.iter().map(|queue| queue.port.clone());
        // The name is that of the first queue.
        PortReport::sum(idle.chain(busy).chain(self.past_ports.clone()))
    }

    /// Starts a thread for each queue of the vif, with a queue of the port.
    fn try_start(&mut self, features: BackendFeatures) -> Result<(), Trouble> {
        while self.ports.len() > self.idle.len() {
            // A queue of the port that nobody reads would swallow its flows.
            let surplus = self.ports.pop().map(|port| port.report());
            self.past_ports = PortReport::sum(self.past_ports.take().into_iter().chain(surplus));
        }
        while self.ports.len() < self.idle.len() {
            let none = || Trouble::Thread("the port was lost when its thread ended".into());
            let further = self.ports.first_mut().ok_or_else(none)?.another_queue()?;
            self.ports.push(further);
        }
        let offloads = TapOffloads {
            checksum: features.checksum_ipv4 && features.checksum_ipv6,
            tso4: features.gso_tcpv4,
            tso6: features.gso_tcpv6,
            // netif cannot carry it, and the frontend cuts nothing.
            uso: false,
        };
        for port in &mut self.ports {
            port.set_offloads(offloads)?;
        }
        let queues = std::mem::take(&mut self.idle);
        for (queue, port) in queues.into_iter().zip(std::mem::take(&mut self.ports)) {
            let thread = self.start_thread(Bridge::new(queue, port, self.api, self.merge))?;
            self.threads.push(thread);
        }
        Ok(())
    }

    fn start_thread(&self, bridge: Bridge) -> Result<Thread, Trouble> {
        let failed = |what: String| Trouble::Thread(what);
        let wake = Bell::new().map_err(|e| failed(e.to_string()))?;
        let (commands, inbox) = channel();
        let worker = Worker {
            name: format!("queue {}", bridge.ends.queue.number()),
            bridge,
            mode: self.mode,
            linked: false,
            inbox,
            wake: wake.clone(),
        };
        let (teller, bell) = (self.teller.clone(), self.bell.clone());
        let handle = std::thread::Builder::new()
            .name(worker.name.clone())
            .spawn(move || worker.run(&teller, &bell))
            .map_err(|e| {
                failed(format!("cannot start a thread: {e}; raise the limit (ulimit -u)"))
            })?;
        Ok(Thread { commands, wake, handle })
    }
}

impl Runner for Workers {
    fn start(&mut self, queues: Vec<Queue>) {
        let features = queues.first().map(Queue::features).unwrap_or_default();
        self.idle = queues;
        if let Err(trouble) = self.try_start(features) {
            tell(&self.teller, &self.bell, trouble);
        }
    }

    fn stop(&mut self) -> Vec<Queue> {
        for thread in &self.threads {
            thread.tell(Command::Stop);
        }
        let mut queues = std::mem::take(&mut self.idle);
        for thread in self.threads.drain(..) {
            // A panic would have ended the process.
            let bridge = thread.handle.join().unwrap_or_else(|panic| resume_unwind(panic));
            self.past_drops.add(&bridge.ends.tally.drops);
            self.ports.push(bridge.ends.port);
            queues.push(bridge.ends.queue);
        }
        // Troubles that the threads told are over with them.
        (self.teller, self.troubles) = channel();
        self.linked = false;
        let down = self.ports.first_mut().map_or(Ok(()), |port| port.set_link(false));
        if let Err(e) = down {
            tell(&self.teller, &self.bell, e.into());
        }
        queues
    }
}

/// Sends a fault to the main thread.
fn tell(teller: &Sender<Trouble>, bell: &Bell, trouble: Trouble) {
    // Nobody listens if the connection has ended.
    let _ = teller.send(trouble);
    bell.ring();
}

/// A queue thread.
struct Worker {
    name: String,
    bridge: Bridge,
    mode: WaitMode,
    linked: bool,
    inbox: Receiver<Command>,
    wake: Bell,
}

impl Worker {
    /// Moves frames until a command ends the thread, or an error.
    fn run(mut self, teller: &Sender<Trouble>, bell: &Bell) -> Bridge {
        if let Err(trouble) = self.rounds(bell) {
            tell(teller, bell, trouble);
        }
        // The inbox is dropped here, so that a later request is answered by an error.
        self.bridge
    }

    /// Gives the bridge its turns, and waits if there is no work. Rings the main thread's bell if
    /// other pages are to be staged.
    fn rounds(&mut self, bell: &Bell) -> Result<(), Trouble> {
        let start = Instant::now();
        let (mut kept, mut looks) = (Pace::new(start, KEPT), Pace::new(start, LOOK_EVERY));
        let (mut idle, mut still) = (Idle::default(), Still::default());
        let mut changes = self.bridge.ends.queue.staging().changes();
        loop {
            // While frames may cross there is a turn in each round. A thread without work gives
            // way.
            let moved = self.linked && self.bridge.turn()?;
            if moved {
                (idle, still) = (Idle::default(), Still::default());
            } else if still.gives_way(STILL_ROUNDS) {
                std::thread::yield_now();
            }
            let hurry = moved || (self.linked && idle.looks_again(self.mode, Instant::now));
            // A port may be ready and give its frames later, such as a generator with a rate. This
            // is no reason for system calls.
            let there = hurry || (self.linked && self.bridge.arm()?);
            if there && !kept.is_time(Instant::now) {
                continue;
            }
            if moved {
                std::thread::yield_now();
            }
            if there && !looks.is_time(Instant::now) {
                continue;
            }
            let now = self.bridge.ends.queue.staging().changes();
            if std::mem::replace(&mut changes, now) != now {
                bell.ring();
            }
            let [told, signalled] = self.look(there)?;
            if told {
                // The bell is hushed first: a command that comes later rings it again.
                self.wake.hush();
                while let Ok(command) = self.inbox.try_recv() {
                    if self.obey(command)?.is_break() {
                        return Ok(());
                    }
                }
            }
            // An event that woke the thread is counted.
            if signalled && self.bridge.ends.queue.take_events()? && !there {
                self.bridge.ends.queue.events().woken();
            }
        }
    }

    /// Carries out a command. Breaks if the thread must end.
    fn obey(&mut self, command: Command) -> Result<ControlFlow<()>, Trouble> {
        match command {
            Command::Link(up) => {
                if !up {
                    self.bridge.forget_waiting();
                }
                if self.bridge.ends.queue.number() == 0 {
                    self.bridge.ends.port.set_link(up)?;
                }
                self.linked = up;
            }
            Command::Inspect(reply) => {
                let _ = reply.send(QueueReport::of(&self.bridge));
            }
            Command::Stop => return Ok(ControlFlow::Break(())),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Looks for commands and events of the vif. If there is no work, waits for one of them or for
    /// a frame of the port.
    fn look(&self, there: bool) -> Result<[bool; 2], Trouble> {
        let timeout = there.then_some(Duration::ZERO);
        let queue = self.bridge.ends.queue.descriptor().ok_or_else(|| {
            Trouble::Thread("the platform has no descriptor to wait for".to_owned())
        })?;
        let own = [self.wake.descriptor(), queue];
        let port = match self.linked && self.bridge.wants_frames() {
            true => self.bridge.ends.port.readiness().descriptor(),
            false => None,
        };
        let readable = match port {
            Some(port) => {
                let [wake, queue] = own;
                which_readable([wake, queue, port], timeout).map(|[told, came, _]| [told, came])
            }
            None => which_readable(own, timeout),
        };
        readable.map_err(|e| Trouble::Thread(e.to_string()))
    }
}

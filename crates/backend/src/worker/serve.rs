//! A worker's rounds.
//!
//! A queue is either *active* or *armed*. An active queue gets a bounded turn each round, unless it
//! had more of the worker's time than another active queue (`share`). An armed queue costs nothing
//! until its guest signals, its port becomes readable, or the time comes at which it asked to be
//! called. A queue that found nothing to do stays active for the spin budget, since a blocked
//! wake-up costs far more than a look. Then it is armed. Arming looks again, so that nothing that
//! came in between is lost.

mod bridged;
mod commands;

use super::message::{Command, Notice, Parts, Service};
use super::meter::Gauge;
use super::pace::{Idle, Pace, Still};
use super::round::Rounds;
use super::share::Shares;
use super::slot::{Place, Queues};
use super::spin::Spin;
use super::watch::{REPORTED, Room, Watch, Woke};
use crate::VifError;
use crate::bell::Bell;
use crate::bridge::{Bridge, Hub, Mesh};
use crate::ids::Key;
use crate::turn::Moved;
use crate::turn::lists::{Lists, UPLINK};
use crate::turn::scratch::Scratch;
use crate::turn::stages::Filter;
use grantway_hypervisor::{Error as PlatformError, EventChannels, Port as EventPort};
use grantway_ports::{Port, uptime};
use grantway_vector::{Merger, News};
use rustix::fd::AsFd;
use std::collections::{BTreeSet, HashMap};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Rounds without a frame after which the worker gives its processor away.
const STILL_ROUNDS: u32 = 8;
/// Time between two looks at what else woke, while frames flow.
const LOOK_EVERY: Duration = Duration::from_micros(20);

pub(super) struct Worker {
    number: usize,
    service: Service,
    spin: Spin,
    /// True if there was anything to do since the worker last slept.
    worked: bool,
    events: Box<dyn EventChannels>,
    watch: Watch,
    wake: Arc<Bell>,
    inbox: Receiver<Command>,
    queues: Queues,
    by_event: HashMap<EventPort, Place>,
    active: Vec<Place>,
    /// Queues that a turn of another queue found broken. They fail after the walk of `active`,
    /// since only the walk itself may remove from it.
    broken: Vec<(Key, VifError)>,
    shares: Shares,
    /// Ports of queues that failed, until their vif is detached.
    failed: Vec<(Key, Box<dyn Port>)>,
    timers: BTreeSet<(Instant, Place)>,
    pace: Pace,
    rounds: Rounds,
    gauge: Gauge,
    still: Still,
    scratch: Scratch,
    /// Merges segments, if the backend is to merge any.
    merger: Option<Merger>,
    bridge: Bridge,
    hub: Hub,
    mesh: Mesh,
    /// Room for what other workers tell.
    news: Vec<News>,
    /// Queues on the bridge that have no turn until there is room in the mesh.
    stalled: BTreeSet<Place>,
    /// True if the uplink may have frames.
    uplink_active: bool,
    /// True if the uplink has to wait, as those queues.
    uplink_stalled: bool,
    /// True if the control thread itself serves rounds: it changes lists between two of them.
    by_rounds: bool,
}

/// The decision whether the worker continues.
type Flow = std::ops::ControlFlow<()>;

impl Worker {
    pub fn new(
        service: Service,
        spin: Spin,
        wake: Arc<Bell>,
        inbox: Receiver<Command>,
        parts: Parts,
    ) -> Result<Self, PlatformError> {
        let events = service.platform.events()?;
        let now = (service.settings.clock)();
        let Parts { graph, uplink, uplink_at, uplink_takes, mesh } = parts;
        let mut merger = service.settings.merge.then(|| Merger::new(|| uptime().as_nanos() as u64));
        if let Some(merger) = &mut merger {
            merger.set_receiver(UPLINK, uplink_takes);
        }
        let mut lists = Lists::new(graph, now);
        if mesh.is_shared() {
            lists.has_twins();
        }
        let worker = Self {
            number: mesh.own(),
            scratch: Scratch::new(Some(service.platform.as_ref())),
            merger,
            service,
            spin,
            worked: false,
            events,
            watch: Watch::new()?,
            wake,
            inbox,
            queues: Queues::default(),
            by_event: HashMap::new(),
            active: Vec::new(),
            broken: Vec::new(),
            shares: Shares::default(),
            failed: Vec::new(),
            timers: BTreeSet::new(),
            pace: Pace::new(now, LOOK_EVERY),
            rounds: Rounds::default(),
            gauge: Gauge::default(),
            still: Still::default(),
            uplink_active: uplink.is_some(),
            bridge: Bridge::new(lists, uplink, uplink_at),
            hub: Hub::new(mesh.workers()),
            mesh,
            news: Vec::new(),
            stalled: BTreeSet::new(),
            uplink_stalled: false,
            by_rounds: false,
        };
        worker.watch_own_descriptors()?;
        Ok(worker)
    }

    fn watch_own_descriptors(&self) -> Result<(), PlatformError> {
        self.watch.add(self.events.as_fd(), Woke::Events)?;
        self.watch.add(self.wake.as_fd(), Woke::Bell)?;
        if let Some(timer) = self.spin.descriptor() {
            self.watch.add(timer, Woke::Timer)?;
        }
        match self.bridge.uplink.as_ref().and_then(|uplink| uplink.descriptor()) {
            Some(fd) => self.watch.add(fd, Woke::Uplink),
            None => Ok(()),
        }
    }

    pub fn run(&mut self) {
        self.rounds.begin(self.service.settings.meter.used());
        loop {
            let result = self.round(None);
            match result {
                Ok(Flow::Continue(())) => {}
                Ok(Flow::Break(())) => return,
                Err(error) => {
                    self.service.teller.tell(Notice::Gone(error));
                    return;
                }
            }
        }
    }

    /// Gives each active queue a turn, then looks at what else woke. An idle worker blocks for at
    /// most `longest`, or for as long as it takes.
    pub fn round(&mut self, longest: Option<Duration>) -> Result<Flow, PlatformError> {
        self.by_rounds = longest.is_some();
        if self.by_rounds {
            // The time that the thread spent since the last round belongs to no round.
            self.rounds.begin(self.service.settings.meter.used());
        }
        if self.mesh.is_shared() {
            self.serve_mesh();
        }
        self.serve_active();
        if self.uplink_active {
            self.serve_uplink();
        } else if self.spin.budget().is_some() && self.still.gives_way(STILL_ROUNDS) {
            std::thread::yield_now();
        }
        // While frames flow, what else woke waits a little: asking costs as much as some frames. A
        // caller that gives a bound wants to know at once.
        if longest.is_none() && !self.is_idle() && !self.pace.is_time(self.service.settings.clock) {
            return Ok(Flow::Continue(()));
        }
        let next = self.timers.first().map(|&(at, _)| at);
        let timeout = match (self.is_idle(), next) {
            (false, _) => Some(Duration::ZERO),
            (true, None) => longest,
            (true, Some(at)) => {
                let until = at.saturating_duration_since(self.now());
                Some(longest.map_or(until, |longest| until.min(longest)))
            }
        };
        self.rounds.end(self.service.settings.meter.used());
        if longest.is_none() {
            self.pause_active();
        }
        let flow = self.look(timeout)?;
        if next.is_some() {
            self.call(self.now());
        }
        Ok(flow)
    }

    /// Makes the active queues leave their pages to the control thread, since the next work may
    /// take long.
    fn pause_active(&mut self) {
        for &place in &self.active {
            pause(&mut self.queues, place, self.events.as_mut(), &mut self.broken);
        }
    }

    /// Returns true if there is nothing to do until something wakes the worker.
    pub fn is_idle(&self) -> bool {
        self.active.is_empty() && !self.uplink_active
    }

    /// Returns true if there is something to do at once.
    pub fn has_work(&self) -> bool {
        !self.is_idle()
            || self.mesh.is_shared()
                && (self.mesh.has_bundles() || self.is_stalled() && !self.mesh.is_full())
    }

    fn now(&self) -> Instant {
        (self.service.settings.clock)()
    }

    /// Returns the processor time that accounts are charged by.
    fn used(&mut self) -> Duration {
        self.gauge.read(&self.service.settings.meter)
    }

    /// Wakes the queues whose time has come.
    fn call(&mut self, now: Instant) {
        while let Some(&(at, place)) = self.timers.first().filter(|&&(at, _)| at <= now) {
            self.timers.remove(&(at, place));
            if let Some(slot) = self.queues.get_mut(place) {
                slot.call_at = None;
            }
            self.activate(place, false);
        }
    }

    fn serve_active(&mut self) {
        // A queue that is alone shares with no other, and the clock costs a system call.
        self.scratch.alone = true;
        let (mut since, mut start) = (None, Duration::ZERO);
        let mut at = self.rounds.first(self.active.len());
        while let Some(&place) = self.active.get(at) {
            // A turn may wake other queues, which get their turns in the same round.
            if since.is_none() && self.active.len() > 1 {
                start = self.share();
                since = Some(start);
            }
            // A queue that had more time than another only gives the answers that it owes.
            let shares = since.and_then(|_| self.queues.get(place));
            let served = match shares.is_some_and(|slot| self.shares.is_ahead(slot.account)) {
                true => self.settle_queue(place, since.as_mut()),
                false => self.serve(place, since.as_mut()),
            };
            match served {
                Ok(Served::Active) => at += 1,
                Ok(Served::Armed) => {
                    self.active.swap_remove(at);
                }
                Err(error) => {
                    self.active.swap_remove(at);
                    self.fail(place, error);
                    // The time of the failed turn and of the removal is on no account.
                    since = since.map(|_| self.used());
                    self.rounds.goes_on_with(at);
                    self.pace.worked();
                    break;
                }
            }
            if let Some(now) = since
                && self.rounds.is_enough(now.saturating_sub(start))
            {
                self.rounds.goes_on_with(at);
                break;
            }
        }
        match since {
            Some(until) => {
                self.shares.end(until);
                self.pace.took(until.saturating_sub(start));
            }
            None => self.shares.pause(),
        }
        if !self.broken.is_empty() {
            self.fail_broken();
            if since.is_some() {
                let now = self.used();
                self.shares.end(now);
            }
        }
    }

    /// Begins to share time among the active queues. Returns the processor time used up to now.
    fn share(&mut self) -> Duration {
        self.scratch.alone = false;
        let now = self.used();
        self.shares.begin(now);
        for &place in &self.active {
            if let Some(slot) = self.queues.get_mut(place) {
                self.shares.see(&mut slot.account);
            }
            // It may have kept its pages, and answers, while it was alone.
            pause(&mut self.queues, place, self.events.as_mut(), &mut self.broken);
        }
        now
    }

    /// Charges the time since `since` for a turn that moved `packets` packets, and resets `since`.
    /// Frames that had waited for pages are charged to their senders, but for no more than such
    /// frames are known to cost. The queue itself is charged for the rest.
    fn charge(&mut self, place: Place, packets: usize, since: &mut Duration) {
        let now = self.used();
        let mut time = now.saturating_sub(*since);
        *since = now;
        // A turn moves at most a burst each way, so the count fits.
        let each = time / packets.max(1) as u32;
        for &(sender, most) in &self.scratch.waited_from {
            let part = each.min(most);
            if let Some(slot) = self.queues.find(sender) {
                slot.account.charge(part);
            } else if let Some(shared) = self.bridge.shared_of_vif(sender.0) {
                shared.debt.add(part);
            } else {
                continue;
            }
            time = time.saturating_sub(part);
        }
        if let Some(slot) = self.queues.get_mut(place) {
            slot.account.charge(time + slot.queue.take_debt());
        }
    }

    /// Gives the answers that a queue owes before it waits for other queues. The time is charged to
    /// the queue.
    fn settle_queue(
        &mut self,
        place: Place,
        since: Option<&mut Duration>,
    ) -> Result<Served, VifError> {
        let Some(slot) = self.queues.get_mut(place) else { return Ok(Served::Armed) };
        if slot.queue.settle(self.events.as_mut())?
            && let Some(since) = since
        {
            let now = self.gauge.read(&self.service.settings.meter);
            slot.account.charge(now.saturating_sub(std::mem::replace(since, now)));
        }
        Ok(Served::Active)
    }

    fn serve(&mut self, place: Place, since: Option<&mut Duration>) -> Result<Served, VifError> {
        let Some(mut slot) = self.queues.get_mut(place) else { return Ok(Served::Armed) };
        // A bridged queue reaches other queues in its turn. Any other needs its own slot only.
        let merger = self.merger.as_mut();
        let bridged = slot.queue.is_bridged();
        if bridged && self.mesh.is_full() && self.mesh.waits_for_room() {
            let idle = Moved::default();
            let (scratch, events) = (&mut self.scratch, self.events.as_mut());
            // What waits for the guest goes on, and so does its patience.
            let turn = slot.queue.after_transmit(idle, scratch, None, events)?;
            if let Some(since) = since {
                self.charge(place, turn.packets, since);
            }
            return Ok(self.stall(place, turn));
        }
        let turn = match bridged {
            false => {
                let (lists, id) = (&mut self.bridge.lists, slot.id);
                let rules = lists.are_asked().then(|| Filter {
                    lists,
                    id,
                    now: (self.service.settings.clock)(),
                });
                slot.queue.turn(&mut self.scratch, rules, merger, self.events.as_mut())?
            }
            true => {
                let turn = self.turn_bridged(place)?;
                match self.queues.get_mut(place) {
                    Some(own) => slot = own,
                    None => return Ok(Served::Armed),
                }
                turn
            }
        };
        // A change of its lists waits for no turn of another queue, and for no burst.
        if self.by_rounds || since.is_some() || self.uplink_active {
            slot.queue.pause(self.events.as_mut())?;
        }
        // Frames that had waited are their senders' doing, and do not make the queue one that
        // moves.
        let own = turn.packets.saturating_sub(self.scratch.waited_from.len());
        self.shares.took_turn(&mut slot.account, own > 0);
        if turn.packets > 0 {
            slot.idle = Idle::default();
            self.still = Still::default();
            match since.is_none() && bridged {
                // Each packet may go to all guests.
                true => self.pace.worked(),
                false => self.pace.moved(turn.packets),
            }
        }
        match since {
            Some(since) => self.charge(place, turn.packets, since),
            // What a queue alone does is on no account.
            None if bridged => self.forgive(place),
            None => {}
        }
        match turn.packets {
            0 => self.rest(place, turn.call_at),
            _ => Ok(Served::Active),
        }
    }

    /// Decides about a queue that found nothing to do: it stays active for the spin budget, and is
    /// armed then.
    fn rest(&mut self, place: Place, call_at: Option<Instant>) -> Result<Served, VifError> {
        let Some(slot) = self.queues.get_mut(place) else { return Ok(Served::Armed) };
        let Some(budget) = self.spin.budget() else { return Ok(Served::Active) };
        if slot.idle.spins(budget, self.service.settings.clock) {
            core::hint::spin_loop();
            return Ok(Served::Active);
        }
        if slot.queue.arm(self.events.as_mut())? {
            return Ok(Served::Active);
        }
        slot.idle = Idle::default();
        slot.active = false;
        self.shares.rests(&mut slot.account);
        self.call_later(place, call_at);
        self.watch_port(place);
        Ok(Served::Armed)
    }

    /// Sets the time at which a queue is called.
    fn call_later(&mut self, place: Place, call_at: Option<Instant>) {
        let Some(slot) = self.queues.get_mut(place) else { return };
        if slot.call_at != call_at {
            self.timers.extend(call_at.map(|at| (at, place)));
            let before = std::mem::replace(&mut slot.call_at, call_at);
            before.map(|at| self.timers.remove(&(at, place)));
        }
    }

    /// Has a queue called at `at` at the latest.
    fn call_by(&mut self, place: Place, at: Instant) {
        let Some(slot) = self.queues.get_mut(place) else { return };
        let at = slot.call_at.map_or(at, |before| before.min(at));
        self.call_later(place, Some(at));
    }

    /// Watches the port's descriptor if the queue wants frames, and stops watching it if not.
    fn watch_port(&mut self, place: Place) {
        let Some(slot) = self.queues.get_mut(place) else { return };
        let wanted = slot.queue.wants_frames();
        if wanted == slot.watched {
            return;
        }
        if let Some(fd) = slot.queue.port_descriptor() {
            self.watch.set(fd, Woke::Port(place), wanted);
            slot.watched = wanted;
        }
    }

    fn wake_queue(&mut self, key: Key) {
        if let Some(place) = self.queues.place(key) {
            self.activate(place, false);
        }
    }

    fn activate(&mut self, place: Place, by_guest: bool) {
        let Some(slot) = self.queues.get_mut(place) else { return };
        if by_guest {
            slot.queue.interrupted();
        }
        if !slot.active {
            slot.active = true;
            self.worked = true;
            self.active.push(place);
        }
    }

    /// Takes in events, commands and readable ports. Blocks for `timeout`, or for as long as it
    /// takes if there is none.
    fn look(&mut self, timeout: Option<Duration>) -> Result<Flow, PlatformError> {
        let mut timeout = timeout;
        if timeout != Some(Duration::ZERO) && !self.mesh.falls_asleep() {
            timeout = Some(Duration::ZERO);
        }
        let sleeps = timeout != Some(Duration::ZERO);
        if sleeps {
            self.spin.sleeps(std::mem::take(&mut self.worked));
        }
        let mut room: Room = [const { MaybeUninit::uninit() }; REPORTED];
        let woken = self.watch.wait(timeout, &mut room)?;
        if sleeps {
            self.mesh.wakes();
        }
        for woke in woken {
            match woke {
                Woke::Events => {
                    self.take_events()?;
                    if sleeps {
                        self.events.woken();
                    }
                }
                Woke::Uplink => self.uplink_active = true,
                Woke::Timer => self.spin.measure(sleeps),
                Woke::Bell => {
                    let passed_to = self.wake.hush();
                    if self.take_commands().is_break() {
                        return Ok(Flow::Break(()));
                    }
                    self.wake_passed_to(passed_to);
                }
                Woke::Port(place) => self.activate(place, false),
            }
        }
        Ok(Flow::Continue(()))
    }

    /// Wakes the queues that other queues passed frames on to.
    fn wake_passed_to(&mut self, keys: BTreeSet<Key>) {
        for key in keys {
            if self.queues.find(key).is_some_and(|slot| slot.queue.is_passed_to()) {
                self.wake_queue(key);
            }
        }
    }

    fn take_events(&mut self) -> Result<(), PlatformError> {
        let mut fired = Vec::new();
        self.events.poll(&mut |port| fired.push(port))?;
        for port in fired {
            if let Some(&place) = self.by_event.get(&port) {
                self.activate(place, true);
            }
        }
        Ok(())
    }
}

/// Has a queue leave its pages and show its answers. A queue that cannot do so is broken.
fn pause(
    queues: &mut Queues,
    place: Place,
    events: &mut dyn EventChannels,
    broken: &mut Vec<(Key, VifError)>,
) {
    if let Some(slot) = queues.get_mut(place)
        && let Err(error) = slot.queue.pause(events)
        // Until the queue fails, it is found broken again.
        && broken.iter().all(|(known, _)| *known != slot.key)
    {
        broken.push((slot.key, error));
    }
}

enum Served {
    Active,
    Armed,
}

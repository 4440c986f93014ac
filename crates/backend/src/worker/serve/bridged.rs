//! Turns on the bridge: of a queue, of the uplink, and of what other workers' senders have for the
//! guests of this one.

use super::{Served, Worker};
use crate::VifError;
use crate::bridge::{Bundle, Forward};
use crate::state::stats::VifStats;
use crate::turn::lists::UPLINK;
use crate::turn::queue::Turn;
use crate::turn::work;
use crate::worker::message::Notice;
use crate::worker::neighbours::{Effects, Neighbours};
use crate::worker::slot::Place;
use crate::worker::watch::Woke;

/// Most broken queues that are taken out of service in one round. Each of them is unmapped,
/// which takes some system calls.
const FAILED_IN_ROUND: usize = 4;
/// Work for bundles in one round, beside that of the last of them.
const BUNDLES: u32 = work::TURN / 2;

impl Worker {
    pub(super) fn turn_bridged(&mut self, place: Place) -> Result<Turn, VifError> {
        self.hear();
        // The queue is taken out of its place while its turn reaches the other queues.
        let Some(mut own) = self.queues.take(place) else { return Ok(Turn::default()) };
        let mut beside = Neighbours::new(&mut self.queues);
        let forward = Forward {
            bridge: &mut self.bridge,
            hub: &mut self.hub,
            mesh: &self.mesh,
            others: &mut beside,
            events: self.events.as_mut(),
            merger: self.merger.as_mut(),
            from: own.id,
            sender: Some(own.key),
            now: (self.service.settings.clock)(),
        };
        let turn = forward.turn(&mut own.queue, &mut self.scratch);
        let effects = beside.effects();
        self.queues.put_back(place, own);
        self.settle(effects);
        turn
    }

    /// Does to other queues what a turn on the bridge asked for, and reports a failed uplink.
    fn settle(&mut self, Effects { woken, called, broken }: Effects) {
        for key in woken {
            self.wake_queue(key);
        }
        for (key, at) in called {
            if let Some(place) = self.queues.place(key) {
                self.call_by(place, at);
            }
        }
        for (key, error) in broken {
            // Until the queue fails, other turns find it broken, too.
            if self.broken.iter().all(|(known, _)| *known != key) {
                self.broken.push((key, error));
            }
        }
        if let Some(error) = self.bridge.take_failure() {
            self.uplink_active = false;
            self.service.teller.tell(Notice::NoUplink(error));
        }
    }

    /// Takes queues out of service that the turns of others found broken: only a few per round, as
    /// each takes its time.
    #[cold]
    pub(super) fn fail_broken(&mut self) {
        let now = self.broken.len().min(FAILED_IN_ROUND);
        for (key, error) in self.broken.drain(..now).collect::<Vec<_>>() {
            if let Some(place) = self.queues.place(key) {
                self.fail(place, error);
            }
        }
        self.pace.worked();
        self.broken.retain(|(key, _)| self.queues.place(*key).is_some());
        if let Some(&(key, _)) = self.broken.first() {
            // An active queue keeps the worker from sleeping before the other broken queues fail.
            self.wake_queue(key);
        }
    }

    /// Moves at most a burst from the uplink to the guests.
    pub(super) fn serve_uplink(&mut self) {
        if self.mesh.is_full() && self.mesh.waits_for_room() {
            (self.uplink_active, self.uplink_stalled) = (false, true);
            return self.watch_uplink(false);
        }
        self.hear();
        // A burst may be as much work as a turn, and is on no queue's account.
        let since = self.shares.is_shared().then(|| self.used());
        let mut beside = Neighbours::new(&mut self.queues);
        let mut forward = Forward {
            bridge: &mut self.bridge,
            hub: &mut self.hub,
            mesh: &self.mesh,
            others: &mut beside,
            events: self.events.as_mut(),
            merger: None,
            from: UPLINK,
            sender: None,
            now: (self.service.settings.clock)(),
        };
        self.scratch.left.void();
        let more = forward.burst_from_uplink(&mut self.scratch.arena);
        let effects = beside.effects();
        self.settle(effects);
        if !self.broken.is_empty() {
            self.fail_broken();
        }
        if let Some(since) = since {
            let took = self.used().saturating_sub(since);
            self.shares.leave_out(took);
        }
        self.pace.worked();
        self.uplink_active = more;
    }

    /// Takes in what frames taught other workers.
    pub(super) fn hear(&mut self) {
        if self.mesh.has_news() {
            self.mesh.hear(&mut self.news);
            self.bridge.lists.hear(&self.news, (self.service.settings.clock)());
        }
    }

    fn watch_uplink(&self, wanted: bool) {
        let uplink = self.bridge.uplink.as_ref();
        if let Some(fd) = uplink.and_then(|uplink| uplink.descriptor()) {
            self.watch.set(fd, Woke::Uplink, wanted);
        }
    }

    /// Gives the guests of this worker the frames of other workers, until this is as much work as
    /// half a turn. Lets senders continue that waited for room.
    pub(super) fn serve_mesh(&mut self) {
        self.go_on_where_there_is_room();
        self.hear();
        if !self.mesh.has_bundles() {
            return;
        }
        self.pause_active();
        let mut left = BUNDLES;
        while left > 0
            && let Some((from, work, bundle)) = self.mesh.pop()
        {
            left = left.saturating_sub(work);
            self.give_bundle(&bundle);
            self.mesh.give_back(from, bundle);
        }
        if !self.broken.is_empty() {
            self.fail_broken();
        }
        self.pace.worked();
    }

    /// Gives what is in the next bundles, as many as are there now: others come as fast as these
    /// are taken.
    pub(super) fn take_bundles(&mut self, now: usize) {
        for _ in 0..now {
            let Some((from, _, bundle)) = self.mesh.pop() else { break };
            self.give_bundle(&bundle);
            self.mesh.give_back(from, bundle);
        }
    }

    fn give_bundle(&mut self, bundle: &Bundle) {
        // As the uplink's burst it is on no account of this worker's queues. The sender pays for it
        // where it has its own.
        let since = self.shares.is_shared().then(|| self.used());
        // The sender's own counters are written where it has its turns.
        let counted = VifStats::default();
        let mut beside = Neighbours::new(&mut self.queues);
        let mut forward = Forward {
            bridge: &mut self.bridge,
            hub: &mut self.hub,
            mesh: &self.mesh,
            others: &mut beside,
            events: self.events.as_mut(),
            merger: None,
            from: bundle.from,
            sender: bundle.sender,
            now: (self.service.settings.clock)(),
        };
        self.scratch.left.void();
        forward.give_bundle(bundle, &mut self.scratch.arena, &counted);
        let effects = beside.effects();
        self.settle(effects);
        let took = since.map(|since| self.used().saturating_sub(since));
        if let Some(took) = took {
            self.shares.leave_out(took);
        }
        if let Some(sender) = self.bridge.shared_of(bundle.from) {
            sender.counters.add_all(&counted);
            if let Some(took) = took {
                sender.debt.add(took);
            }
        }
    }

    /// Forgets the time that frames of a queue took other workers.
    pub(super) fn forgive(&mut self, place: Place) {
        if let Some(slot) = self.queues.get_mut(place) {
            slot.queue.take_debt();
        }
    }

    /// Takes a queue off its turns until there is room in the mesh, unless it has more to do for its
    /// guest.
    #[cold]
    pub(super) fn stall(&mut self, place: Place, turn: Turn) -> Served {
        self.stalled.insert(place);
        super::pause(&mut self.queues, place, self.events.as_mut(), &mut self.broken);
        if turn.packets > 0 {
            return Served::Active;
        }
        self.call_later(place, turn.call_at);
        if let Some(slot) = self.queues.get_mut(place) {
            slot.active = false;
            self.shares.rests(&mut slot.account);
        }
        Served::Armed
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.uplink_stalled || !self.stalled.is_empty()
    }

    /// Gives turns again to those that waited for room in the mesh.
    fn go_on_where_there_is_room(&mut self) {
        if !self.is_stalled() || self.mesh.is_full() && self.mesh.waits_for_room() {
            return;
        }
        for place in std::mem::take(&mut self.stalled) {
            self.activate(place, false);
        }
        if std::mem::take(&mut self.uplink_stalled) {
            self.watch_uplink(true);
            self.uplink_active = self.bridge.uplink.is_some();
        }
    }
}

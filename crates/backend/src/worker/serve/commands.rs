//! Commands of the control thread to a worker: queues come and go, and reports are asked for.

use super::{Flow, Worker};
use crate::VifError;
use crate::ids::{Key, VifId};
use crate::turn::queue::{Afterwards, Queue, QueueSpec};
use crate::worker::message::{Attached, Command, Detached, Notice, WorkerReport};
use crate::worker::pace::Idle;
use crate::worker::share::Account;
use crate::worker::slot::{Place, Slot};
use crate::worker::watch::Woke;
use grantway_ports::Port;
use grantway_vector::PortId;
use grantway_vector::receivers::Takes;

impl Worker {
    /// Carries out all commands in the inbox. Returns a break if the worker is to end.
    pub fn take_commands(&mut self) -> Flow {
        while let Ok(command) = self.inbox.try_recv() {
            self.obey(command)?;
        }
        Flow::Continue(())
    }

    fn obey(&mut self, command: Command) -> Flow {
        match command {
            Command::Attach(spec, id, reply) => {
                let _ = reply.send(self.attach(*spec, id));
            }
            Command::Detach(vif, after, reply) => {
                let keys: Vec<Key> = self.queues.of(vif).map(|slot| slot.key).collect();
                let removed =
                    keys.into_iter().filter_map(|key| Some((key.1, self.remove(key, after)?.1)));
                let mut ports: Vec<Detached> = removed.collect();
                let failed = self.failed.extract_if(.., |((v, _), _)| *v == vif);
                ports.extend(failed.map(|((_, number), port)| (number, port)));
                let _ = reply.send(ports);
            }
            Command::Wake(vif) => {
                let keys: Vec<Key> = self.queues.of(vif).map(|slot| slot.key).collect();
                keys.into_iter().for_each(|key| self.wake_queue(key));
            }
            Command::Inspect(vif, reply) => {
                let queues = self.queues.of(vif);
                let failed = self.failed.iter().filter(|((v, _), _)| *v == vif);
                let queues = queues.map(|slot| slot.queue.report(slot.key.1, self.number));
                let failed = failed.map(|(_, port)| port.report());
                let _ = reply.send((queues.collect(), failed.collect()));
            }
            Command::Headroom(vif, headroom, reply) => {
                let _ = reply.send(self.set_headroom(vif, headroom));
            }
            Command::Elsewhere(id, guest, reply) => {
                self.bridge.join_elsewhere(id, *guest);
                let _ = reply.send(());
            }
            Command::Takes(id, takes, reply) => {
                if let Some(merger) = &mut self.merger {
                    merger.set_receiver(id, takes);
                }
                let _ = reply.send(());
            }
            Command::Forget(id, reply) => {
                self.hear();
                self.take_bundles(self.mesh.bundles());
                self.bridge.forget(id);
                let _ = reply.send(());
            }
            Command::Account(reply) => {
                let (number, used, queues) =
                    (self.number, self.service.settings.meter.used(), self.queues.len());
                let (spin, longest_round) = (self.spin.budget(), self.rounds.longest());
                let _ = reply.send(WorkerReport { number, used, queues, spin, longest_round });
            }
            Command::Load(rules) => self.bridge.lists.load(rules),
            Command::NoUplink => self.bridge.lose_uplink(),
            Command::Uplink(reply) => {
                let _ = reply.send(self.bridge.uplink.as_ref().map(|port| port.report()));
            }
            Command::Graph(reply) => {
                let _ = reply.send(self.bridge.lists.report(self.merger.as_ref()));
            }
            Command::Hold(held, until) => {
                let _ = held.send(());
                // Nothing is ever sent: the wait ends when the other end is dropped.
                let _ = until.recv();
            }
            Command::Stop => return Flow::Break(()),
        }
        Flow::Continue(())
    }

    fn attach(&mut self, spec: QueueSpec, id: PortId) -> Attached {
        let (key, connection) = ((spec.vif, spec.number), spec.connection);
        let after = if spec.resume { Afterwards::Resumed } else { Afterwards::Over };
        if self.queues.place(key).is_some() {
            return Err((VifError::Internal("the queue is attached already"), spec.port));
        }
        let queue = Queue::connect(spec, self.service.platform.as_ref(), self.events.as_mut())?;
        let woke = Woke::Port(self.queues.next());
        queue.wake_by(&self.wake, key);
        let (tx, rx) = queue.events();
        // The port's descriptor is watched from now on. Without it no frame would wake the worker.
        let watched = match queue.port_descriptor() {
            Some(fd) => self.watch.add(fd, woke).map(|()| true),
            None => Ok(false),
        };
        let watched = match watched {
            Ok(watched) => watched,
            Err(e) => return Err((e.into(), queue.disconnect(after, self.events.as_mut()))),
        };
        let takes = queue.takes();
        if queue.is_bridged() {
            self.bridge.join(key.0, id);
            if let Some(merger) = &mut self.merger {
                merger.set_receiver(id, takes);
            }
        }
        let slot = Slot {
            queue,
            key,
            id,
            connection,
            active: false,
            watched,
            idle: Idle::default(),
            call_at: None,
            account: Account::default(),
        };
        // A broken queue of this key belonged to an earlier connection.
        self.broken.retain(|(broken, _)| *broken != key);
        let place = self.queues.insert(Box::new(slot));
        self.by_event.insert(tx, place);
        self.by_event.insert(rx, place);
        self.activate(place, false);
        Ok(takes)
    }

    /// Leaves `headroom` bytes free in front of each frame for a vif's guest. Returns the number of
    /// a guest on the bridge, and the unfinished frames that it accepts now.
    fn set_headroom(&mut self, vif: VifId, headroom: u16) -> Option<(PortId, Takes)> {
        let mut now = None;
        let keys: Vec<Key> = self.queues.of(vif).map(|slot| slot.key).collect();
        for key in keys {
            let Some(place) = self.queues.place(key) else { continue };
            let Some(slot) = self.queues.get_mut(place) else { continue };
            slot.queue.set_headroom(headroom);
            if slot.queue.is_bridged() {
                let takes = slot.queue.takes();
                now = Some((slot.id, takes));
                if let Some(merger) = &mut self.merger {
                    merger.set_receiver(slot.id, takes);
                }
            }
            // A frame that waits may need fewer pages now than the guest is to signal.
            self.activate(place, false);
        }
        now
    }

    /// Takes a queue out of service. Returns its connection and its port.
    fn remove(&mut self, key: Key, after: Afterwards) -> Option<(u64, Box<dyn Port>)> {
        let (place, slot) = self.queues.remove(key)?;
        if slot.queue.is_bridged() {
            self.bridge.leave(slot.id);
        } else if self.queues.of(key.0).next().is_none() {
            self.bridge.lists.forget(slot.id);
        }
        let (tx, rx) = slot.queue.events();
        self.by_event.remove(&tx);
        self.by_event.remove(&rx);
        slot.call_at.map(|at| self.timers.remove(&(at, place)));
        self.active.retain(|&active| active != place);
        if let Some(fd) = slot.queue.port_descriptor() {
            self.watch.remove(fd);
        }
        Some((slot.connection, slot.queue.disconnect(after, self.events.as_mut())))
    }

    /// Takes a broken queue out of service, and tells the control thread.
    pub(super) fn fail(&mut self, place: Place, error: VifError) {
        let Some(key) = self.queues.get(place).map(|slot| slot.key) else { return };
        if let Some((connection, port)) = self.remove(key, Afterwards::Over) {
            self.failed.push((key, port));
            self.service.teller.tell(Notice::Failed { vif: key.0, connection, error });
        }
    }
}

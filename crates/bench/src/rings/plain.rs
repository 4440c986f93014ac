//! The plain program: a backend with a bridge and rules as one would write it without a graph. It
//! takes packets from rings, has the functions of [`judge`](super::judge) look at them, and puts
//! them into the rings of other guests.

use super::Server;
use super::judge::{Fate, Judge, headers};
use super::vif::{Queue, Taken, Vif, response};
use grantway_command::error::CommandError;
use grantway_embedded::Domain;
use grantway_hypervisor::{BackendPlatform, DomId, EventChannels, Platform, Store};
use grantway_ports::uptime;
use grantway_vector::headers::Headers;
use grantway_vector::{Nanos, PortId, Secret};
use std::sync::Arc;

/// Most packets of one turn of a queue, as of a NAPI poll.
const WEIGHT: usize = 64;
/// Longest packet, in bytes: one page.
const LONGEST: usize = 4096;

/// The part of the program that handles lists of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lists {
    /// None: each packet goes from ring to ring before the next one is taken.
    Nowhere,
    /// The entry: a turn's packets are taken as a list, and then each goes on by itself. Patches 1
    /// and 2 of the paper.
    Entry,
    /// Each layer: a layer handles the whole list before the next layer begins. All patches of the
    /// paper.
    Layers,
}

/// A packet of a list.
struct Packet {
    /// Its start in the arena.
    at: usize,
    taken: Taken,
    headers: Option<Headers>,
    fate: Fate,
}

/// The program.
pub struct Plain {
    lists: Lists,
    platform: Arc<Domain>,
    store: Box<dyn Store>,
    events: Box<dyn EventChannels>,
    judge: Judge,
    vifs: Vec<Vif>,
    /// Private bytes of a turn's packets.
    arena: Vec<u8>,
    packets: Vec<Packet>,
}

impl Plain {
    /// Makes a program for `guests` guests, domains from 1 on, with at most `queues` queues each.
    ///
    /// # Errors
    ///
    /// The rules are invalid, or the platform is gone.
    pub fn new(
        lists: Lists,
        platform: &Arc<Domain>,
        (guests, queues): (u16, u16),
        rules: &str,
        secret: Secret,
    ) -> Result<Self, CommandError> {
        Ok(Self {
            lists,
            store: platform.store()?,
            events: platform.events()?,
            platform: Arc::clone(platform),
            judge: Judge::new(rules, secret)?,
            vifs: (1..=guests).map(|domain| Vif::new(DomId(domain), queues)).collect(),
            arena: vec![0; WEIGHT * LONGEST],
            packets: Vec::with_capacity(WEIGHT),
        })
    }

    /// Moves packets of one queue from ring to ring, each to its end before the next one.
    fn one_by_one(&mut self, vif: usize, queue: usize, now: Nanos) -> Result<usize, CommandError> {
        let from = port(vif);
        for moved in 0..WEIGHT {
            let sender = &mut self.vifs[vif].queues[queue];
            let Some(taken) = sender.take(&mut self.arena, self.platform.as_ref())? else {
                return Ok(moved);
            };
            if let Some(len) = taken.1 {
                let frame = &self.arena[..len];
                let fate = self.judge.judge(frame, from, now);
                deliver(&mut self.vifs, (vif, queue), fate, frame, self.platform.as_ref())?;
            }
            self.vifs[vif].queues[queue].answer(taken)?;
        }
        Ok(WEIGHT)
    }

    /// Takes packets of one queue as a list, and handles them by [`Lists::Entry`] or
    /// [`Lists::Layers`].
    fn list(&mut self, vif: usize, queue: usize, now: Nanos) -> Result<usize, CommandError> {
        self.take_list(vif, queue)?;
        if self.packets.is_empty() {
            return Ok(0);
        }
        let (from, arena) = (port(vif), &self.arena);
        let bytes = |packet: &Packet| &arena[packet.at..packet.at + packet.taken.1.unwrap_or(0)];
        match self.lists {
            Lists::Nowhere | Lists::Entry => {
                for packet in self.packets.iter().filter(|packet| packet.taken.1.is_some()) {
                    let frame = bytes(packet);
                    let fate = self.judge.judge(frame, from, now);
                    deliver(&mut self.vifs, (vif, queue), fate, frame, self.platform.as_ref())?;
                }
            }
            Lists::Layers => {
                for packet in self.packets.iter_mut().filter(|packet| packet.taken.1.is_some()) {
                    packet.headers = headers(bytes(packet));
                }
                for packet in &mut self.packets {
                    packet.headers.take_if(|headers| !self.judge.passes_firewall(headers, from));
                }
                for packet in &mut self.packets {
                    let frame = bytes(packet);
                    let judge = &self.judge;
                    packet.headers.take_if(|known| !judge.passes_filters(frame, known, from));
                }
                for packet in self.packets.iter_mut().filter(|packet| packet.headers.is_some()) {
                    packet.fate = self.judge.route(bytes(packet), from, now);
                }
                for packet in &self.packets {
                    let (frame, fate) = (bytes(packet), packet.fate);
                    deliver(&mut self.vifs, (vif, queue), fate, frame, self.platform.as_ref())?;
                }
            }
        }
        let mut responses = [[0; 3]; WEIGHT];
        for (words, Packet { taken: (id, packet), .. }) in responses.iter_mut().zip(&self.packets) {
            *words = response(*id, *packet);
        }
        self.vifs[vif].queues[queue].answer_all(&responses[..self.packets.len()])?;
        Ok(self.packets.len())
    }

    /// Takes the packets that wait on one queue, at most [`WEIGHT`].
    fn take_list(&mut self, vif: usize, queue: usize) -> Result<(), CommandError> {
        self.packets.clear();
        let sender = &mut self.vifs[vif].queues[queue];
        let mut requests = [[0; 3]; WEIGHT];
        let count = sender.take_requests(&mut requests)?;
        let mut at = 0;
        for &words in &requests[..count] {
            let taken = sender.fetch(words, &mut self.arena[at..], self.platform.as_ref())?;
            self.packets.push(Packet { at, taken, headers: None, fate: Fate::Drop });
            at = (at + taken.1.unwrap_or(0)).next_multiple_of(64);
        }
        Ok(())
    }

    /// Returns all queues of all vifs.
    fn queues(&mut self) -> impl Iterator<Item = &mut Queue> {
        self.vifs.iter_mut().flat_map(|vif| &mut vif.queues)
    }
}

/// Returns the number of a vif in rules. Number 0 is the uplink's, which the program does not have.
fn port(vif: usize) -> PortId {
    // There are a few guests.
    PortId(vif as u16 + 1)
}

/// Puts a frame of a vif's queue into the rings of its receivers. As flows keep to one queue, it goes
/// to the queue of the same number there.
#[inline]
fn deliver(
    vifs: &mut [Vif],
    (from, queue): (usize, usize),
    fate: Fate,
    frame: &[u8],
    platform: &dyn Platform,
) -> Result<(), CommandError> {
    let give = |vif: &mut Vif| match vif.queues.len() {
        0 => Ok(()),
        queues => vif.queues[queue % queues].give(frame, platform),
    };
    match fate {
        Fate::Drop => Ok(()),
        Fate::To(to) => match usize::from(to.0).checked_sub(1).and_then(|at| vifs.get_mut(at)) {
            Some(vif) => give(vif),
            None => Ok(()),
        },
        Fate::Flood => {
            let others = vifs.iter_mut().enumerate().filter(|(at, _)| *at != from);
            others.map(|(_, vif)| vif).try_for_each(give)
        }
    }
}

impl Server for Plain {
    fn step(&mut self) -> Result<(), CommandError> {
        let Self { vifs, store, platform, events, .. } = self;
        vifs.iter_mut()
            .try_for_each(|vif| vif.step(store.as_mut(), platform.as_ref(), events.as_mut()))
    }

    fn serve(&mut self) -> Result<(), CommandError> {
        // A turn takes microseconds, so one look at the clock is enough for it.
        let now = uptime().as_nanos() as Nanos;
        let platform = Arc::clone(&self.platform);
        let mut given = 0;
        for queue in self.queues() {
            given += queue.give_waiting(platform.as_ref())?;
        }
        let mut publish = given > 0;
        for vif in 0..self.vifs.len() {
            for queue in 0..self.vifs[vif].queues.len() {
                let moved = match self.lists {
                    Lists::Nowhere => self.one_by_one(vif, queue, now)?,
                    Lists::Entry | Lists::Layers => self.list(vif, queue, now)?,
                };
                publish |= moved > 0;
                if std::mem::take(&mut publish) {
                    let Self { vifs, events, .. } = self;
                    let mut queues = vifs.iter_mut().flat_map(|vif| &mut vif.queues);
                    queues.try_for_each(|queue| queue.publish(events.as_mut()))?;
                }
            }
        }
        Ok(())
    }
}

//! One queue of a vif: its two rings, its event channels, its policy, and the port behind it. One
//! worker owns it.

use crate::VifError;
use crate::bell::Bell;
use crate::ids::Key;
use crate::ids::{QueueRefs, VifId};
use crate::journal::Journal;
use crate::policy::{Buffers, Map};
use crate::rings::map_ring;
use crate::state::checksums::Checksums;
use crate::state::guest::Guest;
use crate::state::shared::{QueueState, Shared};
use crate::state::stats::VifStats;
use crate::state::steer::LaneEnd;
use crate::turn::Moved;
use crate::turn::complete::Complete;
use crate::turn::delivery::{Accepted, Delivery};
use crate::turn::outgoing::Outgoing;
use crate::turn::plain::RxPlain;
use crate::turn::receive::{Incoming, Receive};
use crate::turn::scratch::Scratch;
use crate::turn::sink::{Sink, ToPort};
use crate::turn::stages::{Filter, Stages};
use crate::turn::stretches::Stretches;
use crate::turn::transmit::{InPlace, Mapped, Pause, Transmit};
use grantway_hypervisor::{BackendPlatform, EventChannels, Port as EventPort};
use grantway_ports::{FramePlace, Port, PortReport};
use grantway_ring::{Back, Index, RingMemory, RingPage, SharedPage};
use grantway_vector::Merger;
use grantway_vector::receivers::Takes;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Everything that a worker needs to serve a queue.
pub(crate) struct QueueSpec {
    /// The vif.
    pub vif: VifId,
    /// Number of the vif's connection, unique in the process.
    pub connection: u64,
    /// Number of the queue in its vif.
    pub number: u16,
    /// Grants of the queue's rings, and its event channels.
    pub refs: QueueRefs,
    /// Features that the guest accepts.
    pub guest: Guest,
    /// Checksums of the vif's frames.
    pub checksums: Checksums,
    /// The buffers, by which bytes cross.
    pub buffers: Buffers,
    /// Maps pages for the port, under the map policy.
    pub map: Option<Map>,
    /// A page that outlives this process, if the platform has such pages.
    pub journal: Option<SharedPage>,
    /// True if the queue continues a killed process's connection, by the journal.
    pub resume: bool,
    /// The port that the vif's frames go to and come from.
    pub port: Box<dyn Port>,
    /// State that the vif's queues share.
    pub shared: Arc<Shared>,
    /// The way to and from the vif's other queues, if it has any.
    pub lane: Option<LaneEnd>,
}

/// Result of one turn of a queue.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Number of packets moved in both directions.
    pub packets: usize,
    /// Time of the next work for which no signal comes.
    pub call_at: Option<Instant>,
}

/// Report of one queue in service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueReport {
    /// Number of the queue in its vif.
    pub number: u16,
    /// Number of the worker that serves the queue, from 0.
    pub worker: usize,
    /// Counts since the queue was connected.
    pub counts: QueueCounts,
    /// Requests that the guest has published and no worker took, at this moment.
    pub tx_waiting: u32,
    /// Pages that the guest has posted, at this moment.
    pub rx_posted: u32,
    /// Bytes of frames that wait for posted pages, at most [`WAITING_MAX`](crate::WAITING_MAX).
    pub waiting_bytes: usize,
    /// Counters of the port's queue.
    pub port: PortReport,
}

/// Counts of one queue since it was connected. Only its worker writes them, so each costs one
/// addition per turn. The counters of the vif have more detail, and are sums over its queues.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct QueueCounts {
    /// Packets taken from the guest, delivered or dropped.
    pub tx_packets: u64,
    /// Packets given to the guest.
    pub rx_packets: u64,
    /// Signals from the guest.
    pub interrupts: u64,
    /// Signals to the guest.
    pub notifies: u64,
    /// Turns in which the queue moved at least one packet.
    pub turns: u64,
}

/// A queue in service.
pub(crate) struct Queue {
    transmit: Transmit,
    receive: Receive,
    buffers: Buffers,
    port: Box<dyn Port>,
    shared: QueueState,
    tx_event: EventPort,
    rx_event: EventPort,
    journal: Option<Journal>,
    /// Mapped stretches of a turn's packets, if the policy maps any.
    stretches: Option<Stretches>,
    /// Turns in which no packet is sent in place, if the port can read pages that stay mapped.
    in_place: Option<Pause>,
    /// True if the port wants merged segments.
    merges: bool,
    /// True if no packet of the guest is sent on with a blank checksum.
    completes: bool,
    /// True if the port may be full.
    fills: bool,
    /// True if the port had no room for a turn when the queue was armed.
    is_blocked: bool,
    counts: QueueCounts,
}

impl Queue {
    /// Maps the rings and binds the event channels. On failure nothing stays
    /// mapped or bound, and the port comes back.
    pub(crate) fn connect(
        spec: QueueSpec,
        platform: &dyn BackendPlatform,
        events: &mut dyn EventChannels,
    ) -> Result<Self, (VifError, Box<dyn Port>)> {
        match Self::rings(&spec, platform, events) {
            Ok((transmit, receive, tx_event, rx_event)) => {
                let QueueSpec { buffers, map, port, shared, journal, lane, .. } = spec;
                let completes = spec.checksums.are_full();
                let shared = QueueState::new(shared);
                let receive = receive.with_lane(lane);
                let journal = journal.map(Journal::new);
                let stretches = map.map(Stretches::new);
                let merges = port.caps().wants_merged;
                let fills = port.caps().fills;
                let in_place = port.caps().in_place && buffers.keeps_pages();
                let in_place = in_place.then(Pause::default);
                Ok(Self {
                    transmit,
                    receive,
                    buffers,
                    port,
                    shared,
                    tx_event,
                    rx_event,
                    journal,
                    stretches,
                    in_place,
                    merges,
                    completes,
                    fills,
                    is_blocked: false,
                    counts: QueueCounts::default(),
                })
            }
            Err(e) => Err((e, spec.port)),
        }
    }

    fn rings(
        spec: &QueueSpec,
        platform: &dyn BackendPlatform,
        events: &mut dyn EventChannels,
    ) -> Result<(Transmit, Receive, EventPort, EventPort), VifError> {
        let peer = spec.vif.domain;
        let tx_memory = map_ring::<3>(platform, peer, spec.refs.tx_ring)?;
        let rx_memory = map_ring::<2>(platform, peer, spec.refs.rx_ring)?;
        let tx_event = events.bind_interdomain(peer, spec.refs.tx_event)?;
        let rx_event = match spec.refs.rx_event {
            None => tx_event,
            Some(port) => match events.bind_interdomain(peer, port) {
                Ok(port) => port,
                Err(e) => {
                    events.close(tx_event);
                    return Err(e.into());
                }
            },
        };
        match Self::take_up(spec, tx_memory, rx_memory) {
            Ok((transmit, receive)) => {
                if spec.resume {
                    // Whether the killed process still did, nobody knows; an
                    // empty wake-up is legal.
                    let _ = events.notify(tx_event);
                    let _ = events.notify(rx_event);
                }
                Ok((transmit, receive, tx_event, rx_event))
            }
            Err(e) => {
                events.close(tx_event);
                if rx_event != tx_event {
                    events.close(rx_event);
                }
                Err(e)
            }
        }
    }

    /// Takes the rings up where their responses stand, or where the journal
    /// says that a killed process left off.
    fn take_up(
        spec: &QueueSpec,
        tx_memory: RingPage<3>,
        rx_memory: RingPage<2>,
    ) -> Result<(Transmit, Receive), VifError> {
        let tx_at = tx_memory.load(Index::RspProd);
        let rx_at = rx_memory.load(Index::RspProd);
        let journal = || spec.journal.clone().map(Journal::new);
        let bad = |_| VifError::Internal("journalled indices");
        let (tx, rx) = match journal() {
            Some(journal) if spec.resume => {
                (Some(journal.resume_transmit(tx_at)?), Some(journal.resume_receive(rx_at)?))
            }
            Some(journal) => {
                journal.begin(spec.refs, tx_at, rx_at);
                (None, None)
            }
            None => (None, None),
        };
        let tx_consumed = tx.as_ref().map_or(tx_at, |resume| resume.consumed);
        let rx_consumed = rx.as_ref().map_or(rx_at, |resume| resume.consumed);
        let mut tx_ring = Back::attach(tx_memory, tx_consumed, tx_at).map_err(bad)?;
        let mut rx_ring = Back::attach(rx_memory, rx_consumed, rx_at).map_err(bad)?;
        let ring_error = |ring| move |source| VifError::Ring { queue: spec.number, ring, source };
        tx_ring.available().map_err(ring_error("guest transmit"))?;
        rx_ring.available().map_err(ring_error("guest receive"))?;
        let mut transmit = Transmit::new(tx_ring, spec.number, journal());
        if let Some(resume) = tx {
            transmit.answer_owed(&resume.owed)?;
        }
        let carried = rx.map(|resume| resume.owed).unwrap_or_default();
        let now = spec.shared.now();
        Ok((transmit, Receive::new(rx_ring, spec.number, spec.guest, journal(), carried, now)))
    }

    /// Moves at most a burst in each direction, by rules if there are any. Signals the guest if it
    /// asked for a signal.
    pub(crate) fn turn(
        &mut self,
        scratch: &mut Scratch,
        mut rules: Option<Filter<'_>>,
        merger: Option<&mut Merger>,
        events: &mut dyn EventChannels,
    ) -> Result<Turn, VifError> {
        self.show_before_requests(events)?;
        if self.fills && self.is_full(events)? {
            return self.after_transmit(Moved::default(), scratch, rules.as_mut(), events);
        }
        let (port, buffers, shared) = (self.port.as_mut(), &mut self.buffers, &self.shared);
        let out = match &mut self.stretches {
            // A vif whose packets are completed has nothing mapped for its port.
            _ if self.completes => {
                let sink = &mut Complete { sink: &mut ToPort { port, merger: None } };
                let stages = Stages { buffers, rules: rules.as_mut(), sink, shared };
                self.transmit.turn(scratch, stages)?
            }
            None => {
                let mut sink = ToPort { port, merger: merger.filter(|_| self.merges) };
                let pause = self.in_place.as_mut().filter(|_| rules.is_none());
                match pause.filter(|pause| pause.is_over()) {
                    Some(pause) => {
                        let sink = &mut InPlace { sink, pause };
                        let stages = Stages { buffers, rules: None, sink, shared };
                        self.transmit.turn(scratch, stages)?
                    }
                    None => {
                        let (sink, rules) = (&mut sink, rules.as_mut());
                        self.transmit.turn(scratch, Stages { buffers, rules, sink, shared })?
                    }
                }
            }
            Some(stretches) => {
                let sink = &mut Mapped { port, stretches, alone: scratch.alone };
                let stages = Stages { buffers, rules: rules.as_mut(), sink, shared };
                self.transmit.turn(scratch, stages)?
            }
        };
        self.after_transmit(out, scratch, rules.as_mut(), events)
    }

    /// Shows the guest all frames if it has requests: to handle those may be much work.
    #[inline]
    pub(crate) fn show_before_requests(
        &mut self,
        events: &mut dyn EventChannels,
    ) -> Result<(), VifError> {
        if self.receive.has_unshown() && self.transmit.has_requests()? {
            self.show(events)?;
        }
        Ok(())
    }

    /// Returns true if the port might not take a turn's packets, which then stay on the guest's
    /// ring.
    #[cold]
    fn is_full(&mut self, events: &mut dyn EventChannels) -> Result<bool, VifError> {
        let is_full = self.port.is_full()?;
        if is_full {
            self.settle(events)?;
        }
        Ok(is_full)
    }

    /// Moves at most a burst from the guest to a sink that is not the queue's own: what has
    /// to come behind it is done by [`Queue::after_transmit`].
    pub(crate) fn transmit(
        &mut self,
        scratch: &mut Scratch,
        sink: &mut impl Sink,
    ) -> Result<Moved, VifError> {
        let (buffers, shared) = (&mut self.buffers, &self.shared);
        if self.completes {
            let sink = &mut Complete { sink };
            return self.transmit.turn(scratch, Stages { buffers, rules: None, sink, shared });
        }
        self.transmit.turn(scratch, Stages { buffers, rules: None, sink, shared })
    }

    /// Signals what was moved from the guest, and moves at most a burst to it.
    pub(crate) fn after_transmit(
        &mut self,
        out: Moved,
        scratch: &mut Scratch,
        rules: Option<&mut Filter<'_>>,
        events: &mut dyn EventChannels,
    ) -> Result<Turn, VifError> {
        if out.notify {
            self.notify(events, self.tx_event)?;
        }
        let (buffers, port) = (&mut self.buffers, self.port.as_mut());
        let may_wait = scratch.alone && out.packets == 0;
        let into = self.receive.turn(scratch, buffers, port, rules, &self.shared, may_wait)?;
        self.end_turn(out, into, events)
    }

    fn end_turn(
        &mut self,
        out: Moved,
        into: Moved,
        events: &mut dyn EventChannels,
    ) -> Result<Turn, VifError> {
        if into.notify {
            self.notify(events, self.rx_event)?;
        }
        let packets = out.packets + into.packets;
        VifStats::add(&self.shared.stats.turns, u64::from(packets > 0));
        self.counts.turns += u64::from(packets > 0);
        self.counts.tx_packets += out.packets as u64;
        let now = || self.shared.now();
        if let Some(pause) = self.in_place.as_mut().filter(|_| out.packets > 0) {
            pause.end_turn();
        }
        if let Some(stretches) = &mut self.stretches {
            stretches.end_turn(packets == 0);
        }
        let end = self.buffers.end_one_turn(packets == 0, &now, &self.shared.stats);
        let call_at = earlier(earlier(out.call_at, into.call_at), end);
        Ok(Turn { packets, call_at })
    }

    /// Gives the answers that wait, before the queue itself waits. Returns true if packets of the
    /// guest were answered.
    pub(crate) fn settle(&mut self, events: &mut dyn EventChannels) -> Result<bool, VifError> {
        self.show(events)?;
        if !self.stretches.as_ref().is_some_and(Stretches::owe) {
            return Ok(false);
        }
        if self.transmit.settle(self.stretches.as_mut())? {
            self.notify(events, self.tx_event)?;
        }
        Ok(true)
    }

    /// Allows changes of the guest's lists to its pages, and shows the guest all frames. Call this
    /// before anything but the queue's own next turn.
    ///
    /// # Errors
    ///
    /// The guest could not be signalled.
    #[inline]
    pub(crate) fn pause(&mut self, events: &mut dyn EventChannels) -> Result<(), VifError> {
        self.buffers.pause();
        self.show(events)
    }

    /// Shows the guest the frames that it does not see yet, and signals it if it asked.
    #[inline]
    fn show(&mut self, events: &mut dyn EventChannels) -> Result<(), VifError> {
        if self.receive.show() {
            self.notify(events, self.rx_event)?;
        }
        Ok(())
    }

    /// Takes the time that the vif's frames took other workers.
    pub(crate) fn take_debt(&self) -> Duration {
        self.shared.debt.take()
    }

    /// Unfinished frames that its guest takes.
    pub(crate) fn takes(&self) -> Takes {
        self.receive.takes()
    }

    /// Leaves `headroom` bytes free in front of each frame for the guest from now on.
    pub(crate) fn set_headroom(&mut self, headroom: u16) {
        self.receive.set_headroom(headroom);
    }

    /// Returns true if no packet of the guest is sent on with a blank checksum.
    pub(crate) fn completes(&self) -> bool {
        self.completes
    }

    /// Returns true if its frames go to the bridge.
    pub(crate) fn is_bridged(&self) -> bool {
        self.port.caps().bridged
    }

    /// Returns the vif's queue for a frame, by the frame's first bytes, or `None` if the guest set
    /// no hash.
    pub(crate) fn steers(&mut self, frame: &[u8]) -> Option<u16> {
        self.receive.steers(frame, &self.shared)
    }

    /// Sets the bell that rings when a frame comes from another queue of the vif.
    pub(crate) fn wake_by(&self, bell: &Arc<Bell>, key: Key) {
        self.receive.wake_by(bell, key);
    }

    /// Returns true if another queue of the vif passed a frame to this queue.
    pub(crate) fn is_passed_to(&self) -> bool {
        self.receive.is_passed_to()
    }

    /// Takes a frame for its guest, by the bridge.
    pub(crate) fn accept(
        &mut self,
        frame: Incoming,
        arena: &[u8],
        delivery: &mut Delivery,
    ) -> Result<Accepted, VifError> {
        self.receive.accept(frame, arena, delivery, &self.shared)
    }

    /// Takes frames from the bridge for its guest, as one burst. Returns the number of frames
    /// taken, from the first on, and the time of the next work for which no signal comes. The
    /// other frames have to be taken one by one.
    pub(crate) fn take_burst(
        &mut self,
        frames: &[FramePlace],
        plain: &mut RxPlain,
        arena: &mut [u8],
        events: &mut dyn EventChannels,
    ) -> Result<(usize, Option<Instant>), VifError> {
        let (buffers, shared) = (&mut self.buffers, &self.shared);
        let taken = self.receive.take_short(frames, plain, arena, buffers, shared)?;
        if taken == 0 {
            return Ok((0, None));
        }
        let call_at = self.buffers.end_turn(false, &|| self.shared.now(), &self.shared.stats);
        self.show(events)?;
        Ok((taken, call_at))
    }

    /// Takes another guest's packet for its guest.
    pub(crate) fn accept_split(
        &mut self,
        packet: &Outgoing<'_>,
        arena: &[u8],
        delivery: &mut Delivery,
    ) -> Result<Accepted, VifError> {
        self.receive.accept_split(packet, arena, delivery, &self.shared)
    }

    /// Stores the accepted frames, answers, and signals the guest if it asked for a signal. Returns
    /// the time of the next work for which no signal comes.
    pub(crate) fn finish(
        &mut self,
        delivery: &mut Delivery,
        arena: &mut [u8],
        sender: Option<&mut Buffers>,
        events: &mut dyn EventChannels,
    ) -> Result<Option<Instant>, VifError> {
        let buffers = &mut self.buffers;
        let shared = &self.shared;
        self.receive.finish(delivery, arena, buffers, sender, shared)?;
        let call_at = self.buffers.end_turn(false, &|| shared.now(), &shared.stats);
        self.show(events)?;
        Ok(call_at)
    }

    fn notify(&mut self, events: &mut dyn EventChannels, port: EventPort) -> Result<(), VifError> {
        VifStats::add(&self.shared.stats.notifies, 1);
        self.counts.notifies += 1;
        Ok(events.notify(port)?)
    }

    /// Asks for signals for all work that may come. Returns true if there is work already.
    pub(crate) fn arm(&mut self, events: &mut dyn EventChannels) -> Result<bool, VifError> {
        self.pause(events)?;
        let is_ready = self.port.readiness().is_now();
        // A port that is full wakes the worker when it has room, whatever the guest does.
        self.is_blocked = self.fills && self.port.is_full()?;
        let transmit = !self.is_blocked && self.transmit.arm()?;
        let receive = self.receive.arm(is_ready)?;
        Ok(transmit || receive || self.receive.is_passed_to())
    }

    /// Returns the port's descriptor, if it has one.
    pub(crate) fn port_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.port.descriptor()
    }

    /// Reports the queue's state. `number` and `worker` go into the report.
    pub(crate) fn report(&self, number: u16, worker: usize) -> QueueReport {
        QueueReport {
            number,
            worker,
            counts: QueueCounts { rx_packets: self.receive.packets(), ..self.counts },
            tx_waiting: self.transmit.waiting(),
            rx_posted: self.receive.shown(),
            waiting_bytes: self.receive.waiting_bytes(),
            port: self.port.report(),
        }
    }

    /// Returns true if the port's descriptor shall wake the worker.
    pub(crate) fn wants_frames(&self) -> bool {
        self.is_blocked || self.receive.wants_frames()
    }

    /// Returns the ports of the event channels. Both are the same if there is one channel for both
    /// directions.
    pub(crate) fn events(&self) -> (EventPort, EventPort) {
        (self.tx_event, self.rx_event)
    }

    /// Counts a signal from the guest.
    pub(crate) fn interrupted(&mut self) {
        VifStats::add(&self.shared.stats.interrupts, 1);
        self.counts.interrupts += 1;
    }

    /// Takes it out of service: event channels closed, rings unmapped, the
    /// port handed back.
    pub(crate) fn disconnect(
        mut self,
        after: Afterwards,
        events: &mut dyn EventChannels,
    ) -> Box<dyn Port> {
        // What was taken from the guest is answered, if anybody is there to see it.
        let _ = self.settle(events);
        if let Some(journal) = self.journal.as_ref().filter(|_| after == Afterwards::Over) {
            journal.end();
        }
        events.close(self.tx_event);
        if self.rx_event != self.tx_event {
            events.close(self.rx_event);
        }
        self.port
    }
}

/// Fate of a connection whose queue is taken out of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// The connection is over. No successor takes it up by its journal.
    Over,
    /// The connection continues by its journal, as after a kill.
    Resumed,
}

/// Returns the earlier of two times, if there is one.
#[inline]
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

//! One queue of a vif: its two rings, its event channels, its policy, and the
//! port behind it. Owned by one worker.

use crate::VifError;
use crate::policy::Policy;
use crate::receive::Receive;
use crate::scratch::Scratch;
use crate::stats::VifStats;
use crate::transmit::Transmit;
use grantway_hypervisor::{
    Access, DomId, EventChannels, GrantRef, Mapper, Platform, Port as EventPort,
};
use grantway_ports::{Port, PortReport};
use grantway_ring::{Back, Index, RingMemory, RingPage};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Which vif: the guest and the number of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VifId {
    /// The guest.
    pub domain: DomId,
    /// The device's number in that guest.
    pub devid: u32,
}

impl std::fmt::Display for VifId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "vif{}.{}", self.domain, self.devid)
    }
}

/// What a frontend published for one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueRefs {
    /// The page of the guest's transmit ring.
    pub tx_ring: GrantRef,
    /// The page of the guest's receive ring.
    pub rx_ring: GrantRef,
    /// The event channel for transmit, and for receive too where they are not
    /// split.
    pub tx_event: EventPort,
    /// The event channel for receive where they are split.
    pub rx_event: Option<EventPort>,
}

/// All that a worker needs to serve a queue.
pub struct QueueSpec {
    /// Which vif.
    pub vif: VifId,
    /// Which of its queues.
    pub number: u16,
    /// Where its rings and event channels are.
    pub refs: QueueRefs,
    /// Whether the frontend takes frames over several pages (`feature-sg`).
    pub scatter_gather: bool,
    /// How buffers cross.
    pub policy: Box<dyn Policy>,
    /// What the vif's frames go to and come from.
    pub port: Box<dyn Port>,
    /// The vif's counters.
    pub stats: Arc<VifStats>,
}

/// What one turn of a queue did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Packets moved, both directions.
    pub packets: usize,
}

/// A queue in service.
pub(crate) struct Queue {
    transmit: Transmit,
    receive: Receive,
    policy: Box<dyn Policy>,
    port: Box<dyn Port>,
    stats: Arc<VifStats>,
    tx_event: EventPort,
    rx_event: EventPort,
}

impl Queue {
    /// Maps the rings and binds the event channels. On failure nothing stays
    /// mapped or bound, and the port comes back.
    pub(crate) fn connect(
        spec: QueueSpec,
        platform: &dyn Platform,
        events: &mut dyn EventChannels,
    ) -> Result<Self, (VifError, Box<dyn Port>)> {
        match Self::rings(&spec, platform, events) {
            Ok((transmit, receive, tx_event, rx_event)) => {
                let QueueSpec { policy, port, stats, .. } = spec;
                Ok(Self { transmit, receive, policy, port, stats, tx_event, rx_event })
            }
            Err(e) => Err((e, spec.port)),
        }
    }

    fn rings(
        spec: &QueueSpec,
        platform: &dyn Platform,
        events: &mut dyn EventChannels,
    ) -> Result<(Transmit, Receive, EventPort, EventPort), VifError> {
        let peer = spec.vif.domain;
        let transmit = attach::<3>(platform, peer, spec.refs.tx_ring, spec.number)?;
        let receive = attach::<2>(platform, peer, spec.refs.rx_ring, spec.number)?;
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
        Ok((
            Transmit::new(transmit, spec.number),
            Receive::new(receive, spec.number, spec.scatter_gather),
            tx_event,
            rx_event,
        ))
    }

    /// Moves at most a burst each way and signals the guest where it asked.
    pub(crate) fn turn(
        &mut self,
        scratch: &mut Scratch,
        events: &mut dyn EventChannels,
    ) -> Result<Turn, VifError> {
        let (policy, port) = (self.policy.as_mut(), self.port.as_mut());
        let out = self.transmit.turn(scratch, policy, port, &self.stats)?;
        if out.notify {
            self.notify(events, self.tx_event)?;
        }
        let (policy, port) = (self.policy.as_mut(), self.port.as_mut());
        let into = self.receive.turn(scratch, policy, port, &self.stats)?;
        if into.notify {
            self.notify(events, self.rx_event)?;
        }
        let packets = out.packets + into.packets;
        VifStats::add(&self.stats.turns, u64::from(packets > 0));
        Ok(Turn { packets })
    }

    fn notify(&self, events: &mut dyn EventChannels, port: EventPort) -> Result<(), VifError> {
        VifStats::add(&self.stats.notifies, 1);
        Ok(events.notify(port)?)
    }

    /// Asks to be signalled for whatever may come next; true when something is
    /// there already.
    pub(crate) fn arm(&mut self) -> Result<bool, VifError> {
        let transmit = self.transmit.arm()?;
        let receive = self.receive.arm(self.port.always_ready())?;
        Ok(transmit || receive)
    }

    /// The port's descriptor, where it has one.
    pub(crate) fn port_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.port.fd()
    }

    /// What the port has passed so far.
    pub(crate) fn port_report(&self) -> PortReport {
        PortReport::of(self.port.as_ref())
    }

    /// Whether the port's descriptor is to wake the worker.
    pub(crate) fn wants_frames(&self) -> bool {
        self.receive.wants_frames()
    }

    /// The ports of its event channels; both the same where they are not
    /// split.
    pub(crate) fn events(&self) -> (EventPort, EventPort) {
        (self.tx_event, self.rx_event)
    }

    /// Counts a signal from the guest.
    pub(crate) fn interrupted(&self) {
        VifStats::add(&self.stats.interrupts, 1);
    }

    /// Takes it out of service: event channels closed, rings unmapped, the
    /// port handed back.
    pub(crate) fn disconnect(self, events: &mut dyn EventChannels) -> Box<dyn Port> {
        events.close(self.tx_event);
        if self.rx_event != self.tx_event {
            events.close(self.rx_event);
        }
        self.port
    }
}

/// Maps a ring page and takes it up where its responses stand.
fn attach<const W: usize>(
    mapper: &(impl Mapper + ?Sized),
    peer: DomId,
    gref: GrantRef,
    queue: u16,
) -> Result<Back<RingPage<W>, W>, VifError> {
    let run = mapper.map(peer, &[gref], Access::ReadWrite)?;
    let page = run.page(0).ok_or(VifError::Internal("a mapped run without a page"))?;
    let memory = RingPage::<W>::new(page);
    let at = memory.load(Index::RspProd);
    let mut back = Back::attach(memory, at, at).map_err(|_| VifError::Internal("ring indices"))?;
    let ring = if W == 3 { "guest transmit" } else { "guest receive" };
    back.available().map_err(|source| VifError::Ring { queue, ring, source })?;
    Ok(back)
}

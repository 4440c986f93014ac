//! One queue: a transmit and a receive ring and their event channels.

use crate::pool::Pool;
use crate::receive::{Receive, Received};
use crate::stats::QueueStats;
use crate::transmit::Transmit;
use crate::{SendError, VifError};
use grantway_hypervisor::{
    Access, DomId, Error as PlatformError, EventChannels, GrantRef, Granted, Platform, Port,
    Released,
};
use grantway_netif::Offload;
use grantway_ring::{Front, RingPage};

/// Pages in each direction's pool: one for each slot of the ring.
const POOL_PAGES: u16 = 256;

/// A queue that is connected, or ready to be.
pub struct Queue {
    transmit: Transmit,
    receive: Receive,
    rings: [Granted; 2],
    tx_event: Port,
    rx_event: Port,
    stats: QueueStats,
}

/// What a backend is told of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueRefs {
    pub tx_ring: GrantRef,
    pub rx_ring: GrantRef,
    pub tx_event: Port,
    pub rx_event: Port,
}

impl Queue {
    /// Grants rings and pools to the backend's domain and makes the event
    /// channels. On failure nothing stays granted.
    pub(crate) fn new(
        platform: &dyn Platform,
        events: &mut dyn EventChannels,
        backend: DomId,
        scatter_gather: bool,
        split_events: bool,
    ) -> Result<Self, PlatformError> {
        let tx_event = events.alloc_unbound(backend)?;
        let rx_event = if split_events { events.alloc_unbound(backend) } else { Ok(tx_event) };
        let made = rx_event.and_then(|rx_event| {
            let halves = Self::halves(platform, backend, scatter_gather);
            if halves.is_err() && rx_event != tx_event {
                events.close(rx_event);
            }
            halves.map(|halves| (halves, rx_event))
        });
        match made {
            Ok(((transmit, receive, rings), rx_event)) => {
                let stats = QueueStats::default();
                Ok(Self { transmit, receive, rings, tx_event, rx_event, stats })
            }
            Err(e) => {
                events.close(tx_event);
                Err(e)
            }
        }
    }

    fn halves(
        platform: &dyn Platform,
        backend: DomId,
        scatter_gather: bool,
    ) -> Result<(Transmit, Receive, [Granted; 2]), PlatformError> {
        let tx_ring = platform.grant(backend, 1, Access::ReadWrite)?;
        let rest = || {
            let rx_ring = platform.grant(backend, 1, Access::ReadWrite)?;
            let pools = || {
                let tx_pool = Pool::new(platform, backend, POOL_PAGES, Access::ReadOnly)?;
                match Pool::new(platform, backend, POOL_PAGES, Access::ReadWrite) {
                    Ok(rx_pool) => Ok((tx_pool, rx_pool)),
                    Err(e) => {
                        tx_pool.release(platform);
                        Err(e)
                    }
                }
            };
            match pools() {
                Ok(pools) => Ok((rx_ring, pools)),
                Err(e) => {
                    platform.release(rx_ring);
                    Err(e)
                }
            }
        };
        let (rx_ring, (tx_pool, rx_pool)) = match rest() {
            Ok(rest) => rest,
            Err(e) => {
                platform.release(tx_ring);
                return Err(e);
            }
        };
        let lost = || PlatformError::Protocol {
            what: "granted run",
            found: "no page".into(),
            expected: "one page",
        };
        let tx_page = tx_ring.run.page(0).ok_or_else(lost)?;
        let rx_page = rx_ring.run.page(0).ok_or_else(lost)?;
        let transmit = Transmit::new(Front::init(RingPage::new(tx_page)), tx_pool, scatter_gather);
        let receive = Receive::new(Front::init(RingPage::new(rx_page)), rx_pool);
        Ok((transmit, receive, [tx_ring, rx_ring]))
    }

    pub(crate) fn refs(&self) -> Option<QueueRefs> {
        Some(QueueRefs {
            tx_ring: *self.rings[0].grefs.first()?,
            rx_ring: *self.rings[1].grefs.first()?,
            tx_event: self.tx_event,
            rx_event: self.rx_event,
        })
    }

    /// Copies a frame to granted pages and queues it. It goes out with the next
    /// [`Queue::flush`], and a burst is best flushed once.
    ///
    /// # Errors
    ///
    /// [`SendError`]; nothing was taken then.
    pub fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        self.transmit.send(frame, offload, &mut self.stats)
    }

    /// Shows the backend what was queued, and signals it if it asked.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn flush(&mut self, events: &mut dyn EventChannels) -> Result<(), VifError> {
        if self.transmit.publish() {
            self.stats.notifies += 1;
            events.notify(self.tx_event)?;
        }
        Ok(())
    }

    /// Takes transmit completions in; returns how many pages came back. For
    /// when [`Queue::send`] gave [`SendError::Full`], or on an event.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol.
    pub fn reap(&mut self) -> Result<usize, VifError> {
        Ok(self.transmit.reap(&mut self.stats)?)
    }

    /// Copies the next frame to `buf`, which best has room for 65,535 bytes.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol.
    pub fn recv(&mut self, buf: &mut [u8]) -> Result<Option<Received>, VifError> {
        Ok(self.receive.recv(buf, &mut self.stats)?)
    }

    /// Posts pages that [`Queue::recv`] emptied, where enough are, and signals
    /// the backend if it asked.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn repost(&mut self, events: &mut dyn EventChannels) -> Result<(), VifError> {
        if self.receive.wants_refill() {
            self.post(events)?;
        }
        Ok(())
    }

    /// Posts every free page.
    pub(crate) fn post(&mut self, events: &mut dyn EventChannels) -> Result<(), VifError> {
        if self.receive.refill() {
            self.stats.notifies += 1;
            events.notify(self.rx_event)?;
        }
        Ok(())
    }

    /// The last look before sleeping: asks to be signalled for a received
    /// frame, and, with `for_room`, once transmit pages come back. True when
    /// something is there already: do not sleep.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol, or the platform is gone.
    pub fn arm(
        &mut self,
        events: &mut dyn EventChannels,
        for_room: bool,
    ) -> Result<bool, VifError> {
        self.flush(events)?;
        self.post(events)?;
        let frame = self.receive.arm()?;
        let room = for_room && self.transmit.arm()?;
        Ok(frame || room)
    }

    /// Counts a signal if it is one of this queue's; true when it is.
    pub fn take_event(&mut self, port: Port) -> bool {
        let ours = port == self.tx_event || port == self.rx_event;
        self.stats.interrupts += u64::from(ours);
        ours
    }

    /// Counts a call that moved packets.
    pub fn count_turn(&mut self) {
        self.stats.turns += 1;
    }

    /// Slots on the transmit ring that the backend has not answered.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.transmit.outstanding()
    }

    /// What it carried.
    #[must_use]
    pub fn stats(&self) -> &QueueStats {
        &self.stats
    }

    /// Takes the queue down: event channels closed, every grant taken back or
    /// left to the platform's deferred reclaim.
    pub(crate) fn close(self, platform: &dyn Platform, events: &mut dyn EventChannels) -> Released {
        events.close(self.tx_event);
        if self.rx_event != self.tx_event {
            events.close(self.rx_event);
        }
        let mut sum = Released::default();
        let pools = [self.transmit.into_pool(), self.receive.into_pool()];
        let pools = pools.into_iter().map(|pool| pool.release(platform));
        let rings = self.rings.into_iter().map(|ring| platform.release(ring));
        for part in pools.chain(rings) {
            sum.revoked += part.revoked;
            sum.deferred += part.deferred;
        }
        sum
    }
}

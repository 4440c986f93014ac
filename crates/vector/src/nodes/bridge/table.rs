//! Stations and their ports. They are learnt from frames, and forgotten with age.

use crate::batch::{Nanos, PortId};
use crate::secret::{Keyed, Secret};
use crate::wire::is_group;
use std::collections::HashMap;

/// Most stations of one bridge.
pub const STATIONS_MAX: usize = 16_384;
/// Least time between two searches for old stations, which take time.
const SWEEP: Nanos = 1_000_000_000;

/// Settings of a bridge's learning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learning {
    /// Time that a station is remembered without a further frame.
    pub age: Nanos,
    /// Most stations that are remembered of one port. Frames to further stations of that port are
    /// flooded. A port that has used up its share takes no station of another port.
    pub stations: u32,
}

impl Default for Learning {
    fn default() -> Self {
        // The age is that of Linux's bridge.
        Self { age: 300_000_000_000, stations: 64 }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Learnt {
    port: PortId,
    seen: Nanos,
    /// Time at which `learn` called it news.
    told: Nanos,
}

#[derive(Debug, Default, Clone, Copy)]
struct Share {
    stations: u32,
    swept: Option<Nanos>,
}

/// The stations of one bridge.
#[derive(Debug)]
pub struct Table {
    pub(super) learnt: HashMap<u64, Learnt, Keyed>,
    shares: Vec<Share>,
    /// Stations that were not learnt for want of room.
    pub refused: u64,
}

impl Table {
    /// Makes an empty table.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        // With twice the room, making room for a station never moves all of them.
        let learnt = HashMap::with_capacity_and_hasher(2 * STATIONS_MAX, Keyed(secret));
        Self { learnt, shares: Vec::new(), refused: 0 }
    }

    /// Returns the number of stations that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.learnt.len()
    }

    /// Returns true if no station is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.learnt.is_empty()
    }

    /// Returns the port of a station, if it is known. A station that is too old is forgotten.
    #[inline]
    pub fn find(&mut self, station: u64, age: Nanos, now: Nanos) -> Option<PortId> {
        let learnt = *self.learnt.get(&station)?;
        if now.saturating_sub(learnt.seen) > age {
            self.forget(station, learnt.port);
            return None;
        }
        Some(learnt.port)
    }

    /// Returns true if the port of a station is known.
    #[must_use]
    pub fn knows(&self, station: u64, age: Nanos, now: Nanos) -> bool {
        self.learnt.get(&station).is_some_and(|learnt| now.saturating_sub(learnt.seen) <= age)
    }

    /// Learns that a frame of a station came from a port, which may have `most` stations. Returns
    /// true if twins need to know it: the station is new at the port, or a quarter of its time has
    /// passed since they were last informed.
    #[inline]
    pub fn learn(
        &mut self,
        station: u64,
        port: PortId,
        (age, most): (Nanos, u32),
        now: Nanos,
    ) -> bool {
        if station == 0 || is_group(station) {
            return false;
        }
        if let Some(learnt) = self.learnt.get_mut(&station).filter(|learnt| learnt.port == port) {
            learnt.seen = now;
            let is_due = now.saturating_sub(learnt.told) > age / 4;
            if is_due {
                learnt.told = now;
            }
            return is_due;
        }
        self.remember(station, port, (age, most), now)
    }

    /// Learns a station that a twin heard. It is kept for a quarter longer, since the twin may hear
    /// the station for that time before it reports it again.
    pub fn hear(&mut self, station: u64, port: PortId, limits: (Nanos, u32), now: Nanos) {
        self.learn(station, port, limits, now);
        if let Some(learnt) = self.learnt.get_mut(&station).filter(|learnt| learnt.port == port) {
            learnt.seen = now.saturating_add(limits.0 / 4);
        }
    }

    /// Notes a station that is new, or that moved to this port. Its old place stays until there is
    /// room for the new one. So no port makes a station of another port unknown, and its frames
    /// flooded. Returns true if there is room.
    fn remember(
        &mut self,
        station: u64,
        port: PortId,
        (age, most): (Nanos, u32),
        now: Nanos,
    ) -> bool {
        let at = usize::from(port.0);
        if self.shares.len() <= at {
            self.shares.resize(at + 1, Share::default());
        }
        let Some(share) = self.shares.get(at).copied() else { return false };
        let due = share.swept.is_none_or(|swept| now.saturating_sub(swept) >= SWEEP);
        if (share.stations >= most || self.learnt.len() >= STATIONS_MAX) && due {
            self.sweep(port, age, now);
        }
        let full = self.learnt.len() >= STATIONS_MAX && !self.learnt.contains_key(&station);
        let Some(share) = self.shares.get_mut(at) else { return false };
        if share.stations >= most || full {
            self.refused += 1;
            return false;
        }
        share.stations += 1;
        if let Some(old) = self.learnt.insert(station, Learnt { port, seen: now, told: now })
            && let Some(share) = self.shares.get_mut(usize::from(old.port.0))
        {
            share.stations = share.stations.saturating_sub(1);
        }
        true
    }

    fn forget(&mut self, station: u64, port: PortId) {
        if self.learnt.remove(&station).is_some()
            && let Some(share) = self.shares.get_mut(usize::from(port.0))
        {
            share.stations = share.stations.saturating_sub(1);
        }
    }

    /// Forgets stations that are too old. The time is noted as that of the port's last search.
    fn sweep(&mut self, port: PortId, age: Nanos, now: Nanos) {
        let shares = &mut self.shares;
        self.learnt.retain(|_, learnt| {
            let stays = now.saturating_sub(learnt.seen) <= age;
            if !stays && let Some(share) = shares.get_mut(usize::from(learnt.port.0)) {
                share.stations = share.stations.saturating_sub(1);
            }
            stays
        });
        if let Some(share) = shares.get_mut(usize::from(port.0)) {
            share.swept = Some(now);
        }
    }

    /// Forgets all stations of a port that is gone.
    pub fn forget_port(&mut self, port: PortId) {
        self.learnt.retain(|_, learnt| learnt.port != port);
        if let Some(share) = self.shares.get_mut(usize::from(port.0)) {
            *share = Share::default();
        }
    }
}

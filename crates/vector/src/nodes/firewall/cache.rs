//! Cache of the rules that fit flows. One rule fits all frames of a flow that are in one state, so
//! that thousands of rules cost as much as one.

use super::rule::State;
use crate::batch::PortId;
use crate::headers::{Headers, Network};
use crate::secret::Secret;
use crate::set::BATCH_MAX;

/// Rows of flows that are remembered. A row has two flows.
const ROWS: usize = 8192;
const _: () = assert!(ROWS <= 1 << 16);

/// Everything that rules look at.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key([u64; 6]);

impl Key {
    #[inline]
    pub fn of(headers: &Headers, from: PortId, state: State) -> Self {
        let [p, q] = headers.ports.map(u64::from);
        let is_ip = matches!(headers.network, Network::V4 | Network::V6);
        let protocol = if is_ip { u64::from(headers.protocol) } else { 0 };
        Self([
            (headers.source >> 64) as u64,
            headers.source as u64,
            (headers.target >> 64) as u64,
            headers.target as u64,
            p << 48 | q << 32 | protocol << 24 | (headers.network as u64) << 16 | state as u64,
            // A key is never all zero, as a place without a flow is.
            u64::from(from.0) << 2 | u64::from(headers.has_ports) << 1 | 1,
        ])
    }

    #[inline]
    fn number(&self, secret: Secret) -> u64 {
        let Self([a, b, c, d, e, f]) = *self;
        match (a, c) {
            // IPv4 addresses have a quarter of the bits.
            (0, 0) => secret.number(&[b << 32 | d & 0xffff_ffff, e, f]),
            _ => secret.number(&self.0),
        }
    }
}

/// A flow, and the rule that fits it.
#[derive(Debug, Default, Clone, Copy)]
struct Known {
    key: Key,
    fits: Option<u32>,
}

/// Flows and the rules that fit them. A flow for which a row has no room replaces the older of its
/// two.
#[derive(Debug)]
pub(super) struct Cache {
    secret: Secret,
    rows: Box<[[Known; 2]]>,
    /// Rows of a list's frames.
    places: Box<[u16; BATCH_MAX]>,
}

impl Cache {
    /// Makes an empty cache.
    pub fn new(secret: Secret) -> Self {
        let rows = vec![[Known::default(); 2]; ROWS].into_boxed_slice();
        Self { secret, rows, places: Box::new([0; BATCH_MAX]) }
    }

    /// Finds a frame's row. Returns a word of the row, so that the processor fetches it; meanwhile
    /// the row of the next frame can be found.
    #[inline]
    pub fn find(&mut self, number: u8, key: &Key) -> u64 {
        let row = key.number(self.secret) as usize % ROWS;
        self.places[usize::from(number)] = row as u16;
        self.rows.get(row).map_or(0, |[newer, _]| newer.key.0[1])
    }

    /// Returns the rule that fits a frame whose row was found. An unknown flow's rule is found by
    /// `search`.
    #[inline]
    pub fn first(
        &mut self,
        number: u8,
        key: Key,
        search: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        let row = usize::from(self.places[usize::from(number)]);
        let Some([newer, older]) = self.rows.get_mut(row) else { return search() };
        if newer.key != key {
            let found = match older.key == key {
                true => *older,
                false => Known { key, fits: search().map(|rule| rule as u32) },
            };
            *older = *newer;
            *newer = found;
        }
        newer.fits.map(|rule| rule as usize)
    }
}

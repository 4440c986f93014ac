//! From the rings of some guests to the rings of another guest, through rules and a bridge: packet
//! by packet, and in lists. Paper 002 from end to end.
//!
//! - [`plain`]: the plain program, with its [`judge`] of one frame and its [`vif`]s. It handles
//!   packets one by one, or in lists at its entry or in each layer.
//! - [`guests`]: senders and receiver; [`setup`]: a host, a server and its guests.

mod guests;
mod judge;
mod plain;
mod setup;
#[cfg(test)]
mod tests;
mod vif;

use crate::probe::Machine;
use crate::slices::{self, Series, Timing};
use crate::stats::{Ratio, median};
use grantway_command::error::CommandError;
use guests::Slice;
use serde::Serialize;
use setup::Running;

/// True if indirect calls of this build are retpolines, as in the paper's measurements. Stable Rust
/// passes `-C target-feature=+retpoline` on to LLVM; `make retpolines` builds that way.
pub const RETPOLINES: bool = cfg!(retpolines);

/// A program that serves guests' vifs, without a thread of its own.
pub trait Server {
    /// Does what is due in the store.
    ///
    /// # Errors
    ///
    /// The store is gone, or a guest's rings cannot be used.
    fn step(&mut self) -> Result<(), CommandError>;

    /// Gives each queue a turn.
    ///
    /// # Errors
    ///
    /// The platform is gone, or a guest broke the protocol.
    fn serve(&mut self) -> Result<(), CommandError>;
}

/// Way of packets through a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The plain program: each packet goes from ring to ring by itself.
    OneByOne,
    /// The plain program with lists at its entry: patches 1 and 2 of the paper.
    Entry,
    /// The plain program with lists in each layer: all patches of the paper.
    Layers,
    /// Grantway's backend: lists through its graph.
    Graph,
}

impl Way {
    /// All ways. The first is the one that others are compared with.
    pub const ALL: [Self; 4] = [Self::OneByOne, Self::Entry, Self::Layers, Self::Graph];
}

/// Rules of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// No rule.
    Nothing,
    /// One rule of the firewall that fits no packet.
    OneRule,
    /// Filters with eight masks, as tc's flower has them. None fits a packet.
    Flower,
}

/// A case: guests, and rules. Four streams go to one guest in each.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Name of the case.
    pub name: &'static str,
    /// Number of guests that send.
    pub senders: u16,
    /// Number of queues of each guest. The server takes packets from as many rings as all senders
    /// have queues: these are the receive queues of the paper.
    pub queues: u16,
    /// Rules.
    pub load: Load,
}

/// Figures of one case: each array has a value for each of [`Way::ALL`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// Millions of packets per second.
    pub mpps: [f64; 4],
    /// Ratios to one by one; `None` for that way itself, and if no pair of slices was in one state.
    pub gains: [Option<Ratio>; 4],
    /// Shares of the guests' looks at their rings that found nothing to do. If one is near to 0,
    /// the guests limit the rate of that way.
    pub guests_wait: [f64; 4],
    /// State of the machine, and the round trip of a cache line.
    #[serde(flatten)]
    pub machine: Machine,
    /// Number of slices of the way that has the fewest.
    pub n: usize,
}

/// Measures a case: all ways in turns. Calls `progress` with the part that is done.
///
/// # Errors
///
/// A part of a set-up failed.
pub fn measure(
    case: &Case,
    timing: Timing,
    progress: &mut dyn FnMut(f64),
) -> Result<Found, CommandError> {
    let mut all: Vec<Running> = Vec::new();
    for way in Way::ALL {
        all.push(Running::start(case, way)?);
    }
    let series = slices::in_turns(all.len(), timing, progress, |way| all[way].slice(timing.slice))?;
    Ok(Found::of(&series))
}

impl Found {
    fn of(series: &Series<Slice>) -> Self {
        let ways = [0, 1, 2, 3];
        let typical = |way: usize, value: fn(&Slice) -> f64| {
            let (_, slices) = series.counted(way);
            let values: Vec<f64> = slices.into_iter().map(value).collect();
            median(&values).unwrap_or(0.0)
        };
        let gain = |way: usize| match way {
            0 => None,
            way => Ratio::of(&series.ratios(way, 0, |slice| slice.rate)),
        };
        let counted = ways.map(|way| series.counted(way));
        Self {
            mpps: ways.map(|way| typical(way, |slice| slice.rate / 1e6)),
            gains: ways.map(gain),
            guests_wait: ways.map(|way| typical(way, |slice| slice.waits)),
            machine: counted[0].0,
            n: counted.iter().map(|(_, slices)| slices.len()).min().unwrap_or(0),
        }
    }
}

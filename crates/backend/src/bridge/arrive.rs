//! The arrival of a bundle at the worker of its receivers.

use super::bundle::{Bundle, To};
use super::forward::{Forward, Others};
use super::route::Aimed;
use crate::state::stats::VifStats;
use crate::turn::lists::UPLINK;
use grantway_ports::FramePlace;

impl<O: Others> Forward<'_, O> {
    /// Gives the frames of a bundle to this worker's guests, and to its uplink. `stats` are the
    /// sender's.
    pub fn give_bundle(&mut self, bundle: &Bundle, arena: &mut [u8], stats: &VifStats) {
        // A turn brings no more than fits, and so does a bundle of it.
        let Some(room) = arena.get_mut(..bundle.bytes.len()) else { return };
        room.copy_from_slice(&bundle.bytes);
        let mut rest = bundle.places.as_slice();
        for &(to, many) in &bundle.runs {
            let (places, later) = rest.split_at(many.min(rest.len()));
            rest = later;
            self.aim_here(places, to, arena, stats);
        }
        self.send_to_uplink(arena, stats);
        self.give(arena, None);
        self.flush();
    }

    /// Adds frames of another worker's sender to what their receivers here are given.
    fn aim_here(&mut self, places: &[FramePlace], to: To, arena: &[u8], stats: &VifStats) {
        let aimed = Aimed { places, rest: None, flooded: false, queue: None };
        match to {
            To::Port(UPLINK, _) if self.bridge.uplink.is_some() => self.aim_at_uplink(places),
            To::Port(port, queue) => {
                if !self.aim_at(port, Aimed { queue, ..aimed }, arena) {
                    // It went meanwhile.
                    VifStats::add(&stats.tx_dropped_port, places.len() as u64);
                }
            }
            To::All => {
                for port in self.reached() {
                    self.aim_at(port, Aimed { flooded: true, ..aimed }, arena);
                }
                if self.bridge.uplink.is_some() && self.may_reach_uplink() {
                    self.aim_at_uplink(places);
                }
            }
        }
    }
}

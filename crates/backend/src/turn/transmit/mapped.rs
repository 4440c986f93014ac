//! A port that reads packets in the pages where their guest has them.

use crate::VifError;
use crate::layout::HEAD;
use crate::layout::HEADS;
use crate::policy::{Buffers, Map, Piece, Stretch};
use crate::state::stats::VifStats;
use crate::turn::outlet::{Outgoing, Outlet, Rest, Tally, sent};
use crate::turn::scratch::Scratch;
use crate::turn::taken::Taken;
use arrayvec::ArrayVec;
use grantway_hypervisor::GrantRef;
use grantway_netif::slots::tx::{SLOTS_ACCEPTED, TxFragment, TxPacket};
use grantway_ports::{Port, SplitFrame};
use grantway_ring::VolatileSlice;

/// Slots with which a turn has enough where the queue has its worker for itself, and
/// where others wait: to map costs more than to copy, and a turn is to be short.
const SLOTS_ALONE: usize = 128;
const SLOTS_BESIDE: usize = 32;

/// What a queue maps for its port, and what of a turn's packets: lists that keep their room.
pub(crate) struct Stretches {
    map: Map,
    all: Vec<Stretch>,
    /// Those of each packet of the turn, first and one past the last: none where
    /// all of it is private.
    of: Vec<(usize, usize)>,
}

impl Stretches {
    pub fn new(map: Map) -> Self {
        Self { map, all: Vec::new(), of: Vec::new() }
    }

    /// As [`Map::unmap`].
    pub fn unmap(&mut self) {
        self.map.unmap();
    }

    /// As [`Map::end_turn`].
    pub fn end_turn(&mut self, idle: bool) {
        self.map.end_turn(idle);
    }

    /// As [`Map::mapped`].
    pub fn mapped(&self) -> usize {
        self.map.mapped()
    }
}

/// The way to a port by mappings. What is copied of a packet, and judged, is its
/// first bytes; the guest may write the others while the port reads them.
pub(crate) struct Mapped<'a> {
    pub port: &'a mut dyn Port,
    pub stretches: &'a mut Stretches,
    /// Whether its worker has nobody else to serve.
    pub alone: bool,
}

/// The packet, where it goes to the port, its first bytes are here, and they are
/// not all.
fn unfinished<'a>(taken: &Taken, slots: &'a [[u32; 3]], pieces: &[Piece]) -> Option<TxPacket<'a>> {
    // Most packets are short: those are not parsed for it.
    if taken.len() <= HEAD {
        return None;
    }
    taken.here(slots, pieces)
}

impl Mapped<'_> {
    /// Lists the pages that are to be mapped: of whole packets, as far as there is
    /// room.
    fn list(&mut self, packets: &[Taken], slots: &[[u32; 3]], pieces: &[Piece]) {
        let Stretches { map, all, of } = &mut *self.stretches;
        let room = map.room();
        all.clear();
        of.clear();
        for taken in packets {
            let first = all.len();
            let packet = unfinished(taken, slots, pieces);
            let mut rest = packet.map(|packet| Rest::behind(&packet, HEAD));
            while let Some(fragment) = rest.as_mut().and_then(|rest| rest.take(usize::MAX)) {
                let TxFragment { gref, offset, size, .. } = fragment;
                all.push(Stretch { gref: GrantRef(gref), offset, len: size, page: None });
            }
            if all.len() > room {
                all.truncate(first);
            }
            of.push((first, all.len()));
        }
    }

    /// Lists what is to be copied, behind the first bytes of each packet.
    fn list_rest(
        &self,
        packets: &mut [Taken],
        slots: &[[u32; 3]],
        pieces: &mut Vec<Piece>,
        arena: &mut [u8],
    ) {
        for (taken, of) in packets.iter_mut().zip(&self.stretches.of) {
            if of.0 != of.1 {
                continue;
            }
            let Some(packet) = unfinished(taken, slots, pieces) else { continue };
            let (at, whole_at) = (taken.at as usize, taken.whole_at as usize);
            arena.copy_within(at..at + HEAD, whole_at);
            let (first, mut end) = (pieces.len(), whole_at + HEAD);
            let mut rest = Rest::behind(&packet, HEAD);
            while let Some(TxFragment { gref, offset, size, .. }) = rest.take(usize::MAX) {
                pieces.push(Piece::new(gref, offset, size, end));
                end += usize::from(size);
            }
            taken.at = taken.whole_at;
            // A few a slot, and slots are a ring's.
            taken.pieces = (first as u16, pieces.len() as u16);
        }
    }
}

impl Outlet for Mapped<'_> {
    fn head(&self) -> usize {
        HEAD
    }

    fn has_enough(&self, slots: usize) -> bool {
        slots >= if self.alone { SLOTS_ALONE } else { SLOTS_BESIDE }
    }

    fn prepare(
        &mut self,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
        stats: &VifStats,
    ) -> Result<(), VifError> {
        let Scratch { arena, pieces, tx_packets, tx_slots, .. } = scratch;
        if tx_packets.iter().all(|taken| taken.len() <= HEAD) {
            // All of each is here.
            let Stretches { all, of, .. } = &mut *self.stretches;
            all.clear();
            of.clear();
            of.resize(tx_packets.len(), (0, 0));
            return Ok(());
        }
        self.list(tx_packets, &tx_slots[..], pieces);
        let Stretches { map, all, of } = &mut *self.stretches;
        if !all.is_empty() && map.map(all) {
            VifStats::add(&stats.mapped_hits, all.len() as u64);
            VifStats::add(&stats.mapped_pages, all.len() as u64);
        } else {
            all.clear();
            of.fill((0, 0));
        }
        let heads = pieces.len();
        self.list_rest(tx_packets, &tx_slots[..], pieces, arena);
        VifStats::add(&stats.mapped_misses, (pieces.len() - heads) as u64);
        Ok(buffers.fetch(&mut pieces[heads..], arena)?)
    }

    fn send(
        &mut self,
        packet: &Outgoing<'_>,
        arena: &mut [u8],
        _: &mut Buffers,
        stats: &mut Tally<'_>,
    ) -> Result<i16, VifError> {
        let (first, end) = self.stretches.of[packet.number];
        if first == end {
            let bytes = &arena[packet.at..packet.at + packet.len()];
            return sent(self.port.send(bytes, packet.offload()), packet.len(), stats);
        }
        let rest: ArrayVec<_, SLOTS_ACCEPTED> = self.stretches.all[first..end]
            .iter()
            .filter_map(|stretch| {
                VolatileSlice::new(stretch.page.as_ref()?, stretch.offset, stretch.len).ok()
            })
            .take(SLOTS_ACCEPTED)
            .collect();
        // The private bytes of all packets lie before the room for whole ones.
        let (heads, room) = arena.split_at_mut(HEADS);
        let frame = SplitFrame::new(&heads[packet.at..packet.at + HEAD], &rest);
        let room = &mut room[packet.whole_at - HEADS..][..packet.len()];
        sent(self.port.send_split(&frame, packet.offload(), room), packet.len(), stats)
    }

    fn mapped(&self) -> usize {
        self.stretches.mapped()
    }

    fn unmap(&mut self) {
        self.stretches.unmap();
    }

    fn finish(&mut self, _: &mut [u8], _: &mut Buffers, _: &mut [i16]) -> Result<(), VifError> {
        // Nothing is unmapped while a page is named here.
        self.stretches.all.clear();
        Ok(self.port.flush()?)
    }
}

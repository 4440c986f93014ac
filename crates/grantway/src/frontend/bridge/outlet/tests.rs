//! Counts of the frames that the port reads in the vif's pages, and of those that are copied.

use super::*;
use crate::frontend::bridge::{Bridge, InPages};
use grantway_command::args::Api;
use grantway_embedded::Domain;
use grantway_frontend::{Policy, Runner, Wishes};
use grantway_hypervisor::Platform;
use grantway_netif::slots::rx::{RxLayout, RxSlot};
use grantway_netif::{Checksum, Gso, GsoKind, Offload};
use grantway_ports::{
    Counters, PortCaps, PortControl, PortReport, Probe, Readiness, SendError, SplitFrame as Split,
};
use grantway_ring::SharedRun;
use std::any::Any;
use std::sync::Arc;
use support::frame;
use support::server::Rings;
use support::world::{World, paths};

#[path = "../../../../../frontend/tests/support/mod.rs"]
mod support;

const PLAIN: Offload = Offload { checksum: Checksum::Unknown, gso: None };
const LARGE: Offload =
    Offload { checksum: Checksum::Partial, gso: Some(Gso { kind: GsoKind::Tcpv4, size: 1448 }) };
/// Byte by which the backend replaces all others.
const CHANGED: u8 = 0xee;

/// A port that keeps what it is sent.
#[derive(Default)]
struct Kept {
    sent: Vec<Sent>,
    /// Pages that the backend changes once the port is called with a frame in pages, or with any
    /// frame.
    changes: Vec<SharedRun>,
    changes_early: bool,
    /// Split frames that are refused.
    busy: usize,
}

impl Kept {
    fn change(&mut self) {
        for run in self.changes.drain(..) {
            run.page(0).unwrap().write(0, &[CHANGED; 4096]).unwrap();
        }
    }
}

#[derive(Debug, PartialEq)]
struct Sent {
    bytes: Vec<u8>,
    offload: Offload,
    /// Bytes that were private.
    private: usize,
}

impl Port for Kept {
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        if self.changes_early {
            self.change();
        }
        self.sent.push(Sent { bytes: frame.to_vec(), offload, private: frame.len() });
        Ok(())
    }

    fn send_split(
        &mut self,
        frame: &Split<'_>,
        offload: Offload,
        room: &mut [u8],
    ) -> Result<(), SendError> {
        if self.busy > 0 {
            self.busy -= 1;
            return Err(SendError::Busy);
        }
        self.change();
        let bytes = frame.gather(room).unwrap().to_vec();
        self.sent.push(Sent { bytes, offload, private: frame.head().len() });
        Ok(())
    }

    fn recv(&mut self, _: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        Ok(None)
    }

    fn readiness(&self) -> Readiness<'_> {
        Readiness::Idle
    }

    fn caps(&self) -> PortCaps {
        PortCaps { in_place: true, ..PortCaps::default() }
    }
}

impl PortControl for Kept {}

impl Probe for Kept {
    fn name(&self) -> &str {
        "kept"
    }

    fn report(&self) -> PortReport {
        PortReport::new("kept", &Counters::default())
    }
}

/// A frontend, and a backend by hand.
struct Ends {
    world: World,
    rings: Rings,
    outlet: Outlet,
    port: Kept,
    tally: Tally,
}

impl Ends {
    fn new(in_place: bool) -> Self {
        let mut world = World::with(Wishes { policy: Policy::Copy, ..Wishes::default() });
        let rings = world.connect();
        let outlet = Outlet::new(false, in_place);
        Self { world, rings, outlet, port: Kept::default(), tally: Tally::default() }
    }

    /// Has the backend put a frame on the ring, unpublished. Returns its pages.
    fn put(&mut self, bytes: &[u8], offload: Offload, offset: u16) -> Vec<SharedRun> {
        let layout = RxLayout::new(bytes.len(), offset, offload, None).unwrap();
        let mut pages = Vec::new();
        for slot in 0..layout.slots() {
            let (index, request) = (self.rings.rx_cons, self.rings.take());
            if let Some(RxSlot::Data { offset, start, len, .. }) = layout.slot(slot) {
                let part = &bytes[start..start + usize::from(len)];
                self.world.server.fill(request.gref, offset, part);
                let gref = grantway_hypervisor::GrantRef(request.gref);
                pages.push(self.world.server.map(gref).unwrap());
            }
            let words = layout.words(slot, request.id).unwrap();
            grantway_ring::RingMemory::write_slot(&self.rings.rx, index, words);
        }
        pages
    }

    fn turn(&mut self) -> bool {
        self.rings.rx_publish(self.rings.rx_cons);
        let queue = &mut self.world.vif.queues()[0];
        self.outlet.turn(queue, &mut self.port, &mut self.tally).unwrap()
    }

    /// Has a large frame come, so that further ones are expected.
    fn expects_large(mut self) -> Self {
        self.put(&frame(20_000, 0), LARGE, 0);
        assert!(self.turn());
        let [first] = &self.sent()[..] else { panic!("one frame") };
        assert_eq!((first.private, self.tally.in_pages.rx_frames), (20_000, 0));
        self.world.vif.arm().unwrap();
        self
    }

    fn sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.port.sent)
    }
}

/// Returns what is to arrive of a frame, of which so many bytes are private.
fn sent(bytes: &[u8], offload: Offload, private: usize) -> Sent {
    Sent { bytes: bytes.to_vec(), offload, private }
}

#[test]
fn large_frames_are_sent_in_their_pages_all_others_are_copied_and_all_keep_their_order() {
    let kinds = [
        (60, PLAIN),
        (COPIED, LARGE),
        (COPIED + 1, LARGE),
        (1500, PLAIN),
        (1501, PLAIN),
        (30_000, LARGE),
        (9000, PLAIN),
        (65_535, LARGE),
        (60, PLAIN),
    ];
    for (in_place, offset) in [(true, 0), (true, 100), (true, 2048), (false, 0)] {
        let mut ends = Ends::new(in_place).expects_large();
        let mut expected = Vec::new();
        for (number, (len, offload)) in kinds.into_iter().enumerate() {
            let bytes = frame(len, number as u8);
            ends.put(&bytes, offload, offset);
            let large = in_place && offload == LARGE && len > COPIED;
            expected.push(sent(&bytes, offload, if large { HEAD } else { len }));
        }
        while ends.turn() {}
        assert!(ends.sent() == expected, "in place: {in_place}, offset {offset}");
        let InPages { rx_frames, rx_bytes, .. } = ends.tally.in_pages;
        let of_all = (3, (COPIED + 1 + 30_000 + 65_535) as u64);
        assert_eq!((rx_frames, rx_bytes), if in_place { of_all } else { (0, 0) });
        let stats = *ends.world.vif.queues()[0].stats();
        let lent = if in_place { kinds.len() as u64 } else { 0 };
        assert_eq!((stats.rx_packets, stats.rx_lent, stats.rx_copied), (10, lent, 0));
        ends.world.works(&mut ends.rings);
        ends.world.ends(ends.rings);
    }
}

#[test]
fn later_writes_of_the_backend_change_no_judged_or_copied_byte() {
    for len in [60, 1500, COPIED, COPIED + 1, 30_000, 65_535] {
        let mut ends = Ends::new(true).expects_large();
        let (before, after) = (frame(1400, 1), frame(61, 2));
        let mut pages = ends.put(&before, PLAIN, 0);
        let bytes = frame(len, 3);
        pages.extend(ends.put(&bytes, LARGE, 0));
        (ends.port.changes, ends.port.changes_early) = (pages, len <= COPIED);
        ends.put(&after, PLAIN, 0);
        while ends.turn() {}
        let mut arrived = bytes;
        let mut private = len;
        if len > COPIED {
            // These bytes were read after the call, so nothing had copied them.
            arrived[HEAD..].fill(CHANGED);
            private = HEAD;
        }
        let expected =
            [sent(&before, PLAIN, 1400), sent(&arrived, LARGE, private), sent(&after, PLAIN, 61)];
        assert!(ends.sent() == expected, "{len} bytes");
        ends.world.ends(ends.rings);
    }
}

#[test]
fn a_burst_lends_a_quarter_of_the_ring_which_is_posted_again_also_if_the_port_is_busy() {
    let mut ends = Ends::new(true).expects_large();
    let bytes = frame(65_000, 1);
    // 16 pages each, and an extra; a quarter of the ring has 64 slots.
    let (slots, burst) = (17, 4);
    for round in 0..50 {
        let posted = ends.rings.posted();
        assert!(posted >= 5 * slots, "round {round}: {posted} pages");
        for _ in 0..5 {
            ends.put(&bytes, LARGE, 0);
        }
        let left = ends.rings.posted();
        ends.port.busy = round % 3;
        assert!(ends.turn());
        assert_eq!(ends.sent().len() + round % 3, burst as usize, "round {round}");
        assert_eq!(ends.rings.posted(), left + burst * slots, "round {round}");
        assert!(ends.turn() && !ends.turn());
        assert_eq!(ends.sent().len(), 1, "round {round}");
        ends.world.vif.arm().unwrap();
    }
    let InPages { rx_frames, rx_bytes, .. } = ends.tally.in_pages;
    let busy = (0..50).map(|round| round % 3).sum::<u64>();
    assert_eq!((rx_frames, rx_bytes), (250 - busy, (250 - busy) * 65_000));
    let drops: Vec<_> = ends.tally.drops.fields().filter(|&(_, count)| count > 0).collect();
    assert_eq!(drops, [("rx_busy", busy)]);
    ends.world.works(&mut ends.rings);
    ends.world.ends(ends.rings);
}

#[test]
fn while_only_short_frames_come_no_page_is_lent_and_a_large_one_brings_lending_back() {
    let mut ends = Ends::new(true).expects_large();
    let lent = |ends: &mut Ends| ends.world.vif.queues()[0].stats().rx_lent;
    let (short, large) = (frame(1500, 1), frame(9000, 2));
    // Each turn has frames of one kind.
    let turns = [(&short, PLAIN, 3), (&short, PLAIN, 3), (&large, LARGE, 3), (&large, LARGE, 6)];
    for (bytes, offload, expected) in turns {
        for _ in 0..3 {
            ends.put(bytes, offload, 0);
        }
        assert!(ends.turn() && !ends.turn());
        assert_eq!(lent(&mut ends), expected);
        assert_eq!(ends.sent().len(), 3);
    }
    assert_eq!((ends.tally.in_pages.rx_frames, ends.tally.in_pages.rx_bytes), (3, 27_000));
    ends.world.works(&mut ends.rings);
    ends.world.ends(ends.rings);
}

#[test]
fn no_page_is_lent_from_an_untrusted_backend() {
    for trusted in ["1", "0"] {
        let mut ends = Ends::new(false);
        let node = format!("{}/trusted", paths().0);
        ends.world.toolstack.write(&node, trusted.as_bytes()).unwrap();
        let platform: Arc<dyn Platform> = Arc::<Domain>::clone(&ends.world.guest);
        ends.world.vif.resume(platform).unwrap();
        ends.rings = ends.world.connect();
        let queue = ends.world.vif.runner_mut().stop().remove(0);
        let mut bridge = Bridge::new(queue, Box::new(Kept::default()), Api::Copy, false);
        for _ in 0..3 {
            ends.put(&frame(20_000, 1), LARGE, 0);
            ends.rings.rx_publish(ends.rings.rx_cons);
            assert!(bridge.turn().unwrap());
        }
        let port: &mut dyn Any = bridge.ends.port.as_mut();
        let port: &mut Kept = port.downcast_mut().unwrap();
        let private: Vec<_> = port.sent.iter().map(|sent| sent.private).collect();
        let behind = if trusted == "1" { HEAD } else { 20_000 };
        assert_eq!(private, [20_000, behind, behind], "trusted: {trusted}");
        let stats = bridge.ends.queue.stats();
        let lent = if trusted == "1" { 2 } else { 0 };
        // A frame that is to be copied anyhow is copied once.
        assert_eq!((stats.rx_packets, stats.rx_lent, stats.rx_copied), (3, lent, 0));
    }
}

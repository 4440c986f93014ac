//! Guests that load XDP programs, for which frames are to begin 256 bytes into their first page.

use crate::restart::lost_at_most;
use crate::support::eventually;
use crate::support::hostile::{Hostile, frame};
use crate::support::inbox::Inbox;
use crate::support::rings::{Rings, SLOTS};
use crate::support::tcp::{SEQUENCE, Tcp};
use crate::support::world::{GUEST, World};
use grantway_backend::policy::Policy;
use grantway_hypervisor::{Access, GrantRef};
use grantway_netif::ctrl::{GrefEntry, GrefFlags};
use grantway_netif::{Checksum, Offload, XenbusState as S};
use grantway_ring::{Index, RingMemory};

const KEY: &str = "xdp-headroom";
const ROOM: u16 = 256;

/// Lengths of frames: some fit the first page in any case, some only without headroom.
const LENGTHS: [usize; 8] = [14, 60, 1514, 3840, 3841, 4096, 9014, 65_535];

/// A guest with all its pages posted.
struct Guest {
    hostile: Hostile,
    rings: Rings,
    inbox: Inbox,
}

impl Guest {
    fn connected(world: &mut World, keys: &[(&str, &str)]) -> Self {
        let mut hostile = world.guest();
        let mut rings = hostile.connect_as(keys);
        let inbox = Inbox::posted(&mut hostile, &mut rings);
        Self { hostile, rings, inbox }
    }

    /// Lets the port give a frame, and returns the offset at which it begins in its page.
    #[track_caller]
    fn gets(&mut self, world: &World, len: usize) -> u16 {
        world.behind(self.hostile.vif).give(frame(len), Offload::default());
        self.inbox.post(&mut self.hostile, &mut self.rings, SLOTS);
        let (bytes, offload) = self.inbox.next(&mut self.rings);
        assert_eq!(offload, Offload::default());
        assert!(bytes == frame(len), "{len} bytes");
        self.inbox.offset
    }

    /// Every frame begins behind the headroom.
    #[track_caller]
    fn has_room(&mut self, world: &World, room: u16) {
        for len in LENGTHS {
            assert_eq!(self.gets(world, len), room, "{len} bytes");
        }
    }

    /// A smaller headroom comes some time after the guest can read Connected. A frame that fills a
    /// page begins just behind it.
    #[track_caller]
    fn shrinks_to(&mut self, world: &World, room: u16) {
        eventually("frames begin behind the smaller headroom", || {
            (self.gets(world, 4096) == room).then_some(())
        });
    }

    /// The headroom goes: a frame that fills a page fits one again.
    #[track_caller]
    fn has_no_room(&mut self, world: &World) {
        self.shrinks_to(world, 0);
        // Shorter frames lie anywhere in their page.
        let offsets: Vec<_> = (0..64).map(|_| self.gets(world, 60)).collect();
        assert!(offsets.iter().any(|&offset| offset != ROOM), "{offsets:?}");
        for len in LENGTHS {
            self.gets(world, len);
        }
    }
}

#[test]
fn frames_begin_behind_the_headroom_from_reconfigured_to_connected() {
    let mut world = World::new();
    let mut guest = Guest::connected(&mut world, &[]);
    assert_eq!(guest.hostile.backend_key("feature-xdp-headroom").as_deref(), Some("1"));
    guest.has_no_room(&world);
    for _ in 0..3 {
        // The key comes behind the state: the answer does not depend on it.
        guest.hostile.state(S::Reconfiguring);
        guest.hostile.await_backend(S::Reconfigured);
        guest.has_room(&world, ROOM);
        guest.hostile.key(KEY, "256");
        guest.hostile.state(S::Connected);
        guest.hostile.await_backend(S::Connected);
        guest.has_room(&world, ROOM);
        // One program for another.
        guest.hostile.reconfigure("256");
        guest.has_room(&world, ROOM);
        // As long as the program may run, there is room for it.
        guest.hostile.state(S::Reconfiguring);
        guest.hostile.key(KEY, "0");
        guest.hostile.await_backend(S::Reconfigured);
        guest.has_room(&world, ROOM);
        guest.hostile.state(S::Connected);
        guest.hostile.await_backend(S::Connected);
        guest.has_no_room(&world);
    }
    guest.hostile.is_served(&mut guest.rings);
    world.stands();
}

#[test]
fn headroom_by_each_policy() {
    for most in [Policy::Copy, Policy::Map, Policy::Persistent, Policy::Staging] {
        let mut world = World::new();
        world.setup.policy.most = most;
        world.restart();
        let mut hostile = world.guest();
        let (mut rings, into) = match most {
            Policy::Staging => {
                let (mut lists, rings) = crate::support::ctrl::Lists::connect_as(&mut hostile, &[]);
                let inbox = Inbox::new(&hostile, &rings);
                let flags = GrefFlags::empty();
                let entry = |gref: &GrantRef| GrefEntry { gref: gref.0, flags, status: 0 };
                let list: Vec<_> = inbox.into.grefs.iter().map(entry).collect();
                assert_eq!(lists.add(&mut hostile, &list), Ok(0));
                (rings, inbox)
            }
            _ => {
                let rings = hostile.connect_as(&[("feature-persistent", "1")]);
                let inbox = Inbox::new(&hostile, &rings);
                (rings, inbox)
            }
        };
        into.post(&mut hostile, &mut rings, SLOTS);
        let mut guest = Guest { hostile, rings, inbox: into };
        let mut before = 0;
        for headroom in [ROOM, 2048, 1] {
            // Only the headroom of Linux is there before the key is read.
            guest.hostile.key(KEY, &headroom.to_string());
            guest.hostile.state(S::Reconfiguring);
            guest.hostile.await_backend(S::Reconfigured);
            guest.has_room(&world, headroom.max(before));
            guest.hostile.state(S::Connected);
            guest.hostile.await_backend(S::Connected);
            guest.shrinks_to(&world, headroom);
            before = headroom;
            // Pages are used twice, so that they are mapped by then where they ever are.
            (0..16).for_each(|_| guest.has_room(&world, headroom));
            let report = world.control().report_of(GUEST).unwrap();
            let maps = matches!(most, Policy::Persistent | Policy::Staging);
            assert_eq!((report.policy, report.mapped > 0), (most, maps));
        }
        guest.hostile.reconfigure("0");
        guest.has_no_room(&world);
        world.stands_and(lost_at_most(1));
    }
}

#[test]
fn headroom_that_a_guest_asks_for_when_it_connects() {
    let mut world = World::new();
    let mut guest = Guest::connected(&mut world, &[(KEY, "256")]);
    guest.has_room(&world, ROOM);
    guest.hostile.unkey(KEY);
    guest.rings = guest.hostile.connect();
    guest.inbox = Inbox::posted(&mut guest.hostile, &mut guest.rings);
    guest.has_no_room(&world);
    // Stock netfront may reconfigure before anybody saw it Connected.
    guest.hostile.start_anew();
    guest.rings = guest.hostile.rings();
    guest.hostile.publish(&guest.rings);
    guest.hostile.key(KEY, "256");
    guest.hostile.state(S::Reconfiguring);
    guest.hostile.await_backend(S::Reconfigured);
    guest.inbox = Inbox::posted(&mut guest.hostile, &mut guest.rings);
    guest.has_room(&world, ROOM);
    guest.hostile.state(S::Connected);
    guest.hostile.await_backend(S::Connected);
    guest.has_room(&world, ROOM);
    world.stands();
}

#[test]
fn large_frames_are_cut_for_a_guest_with_a_program() {
    let mut world = World::new();
    let mut guest = Guest::connected(&mut world, &[]);
    let tcp = Tcp { v6: false };
    let payload: Vec<u8> = (0..40_000u32).map(|n| ((n * 7) >> 3) as u8).collect();
    let whole = tcp.frame([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], &payload);
    for _ in 0..2 {
        guest.hostile.reconfigure("256");
        world.behind(GUEST).give(whole.clone(), tcp.offload(1448));
        let mut got = Vec::new();
        while got.len() < payload.len() {
            let (segment, offload) = guest.inbox.next(&mut guest.rings);
            assert_eq!(offload, Offload { checksum: Checksum::Partial, gso: None });
            assert_eq!(guest.inbox.offset, ROOM);
            let (sequence, part) = tcp.check(&segment, Checksum::Partial);
            assert_eq!(sequence, SEQUENCE.wrapping_add(got.len() as u32));
            got.extend_from_slice(part);
        }
        assert!(got == payload);
        guest.hostile.reconfigure("0");
        guest.has_no_room(&world);
        world.behind(GUEST).give(whole.clone(), tcp.offload(1448));
        assert!(guest.inbox.next(&mut guest.rings) == (whole.clone(), tcp.offload(1448)));
        guest.inbox.post(&mut guest.hostile, &mut guest.rings, SLOTS);
    }
    world.stands();
}

#[test]
fn frames_that_wait_for_pages_get_the_headroom_of_the_moment_they_find_some() {
    let mut world = World::new();
    let mut hostile = world.guest();
    let rings = hostile.connect();
    let inbox = Inbox::new(&hostile, &rings);
    let mut guest = Guest { hostile, rings, inbox };
    let behind = world.behind(GUEST);
    for (room, lengths) in [("256", [4096, 60]), ("0", [3841, 9014]), ("256", [65_535, 1514])] {
        for len in lengths {
            behind.give(frame(len), Offload::default());
        }
        eventually("a frame waits", || {
            let report = world.control().report_of(GUEST)?;
            (report.queues.first()?.waiting_bytes > 0).then_some(())
        });
        guest.hostile.reconfigure(room);
        if room == "0" {
            // Until its headroom is gone, the guest sends: its queue has turns meanwhile.
            (0..4).for_each(|_| guest.hostile.is_served(&mut guest.rings));
        }
        assert_eq!(guest.rings.rx.load(Index::RspProd), guest.rings.rx_cons);
        guest.inbox.post(&mut guest.hostile, &mut guest.rings, 40);
        for len in lengths {
            let (bytes, _) = guest.inbox.next(&mut guest.rings);
            assert!(bytes == frame(len), "{len} bytes");
            if room == "256" {
                assert_eq!(guest.inbox.offset, ROOM, "{len} bytes");
            }
        }
        // The pages that are left are filled, so that the next frames wait again.
        while guest.rings.rx_prod != guest.rings.rx_cons {
            behind.give(frame(60), Offload::default());
            guest.inbox.next(&mut guest.rings);
        }
    }
    world.stands();
}

#[test]
fn a_frame_that_fits_the_posted_pages_without_headroom_waits_no_longer() {
    let mut world = World::new();
    let mut hostile = world.guest();
    let rings = hostile.connect_as(&[(KEY, "256")]);
    let inbox = Inbox::new(&hostile, &rings);
    let mut guest = Guest { hostile, rings, inbox };
    world.behind(GUEST).give(frame(4096), Offload::default());
    guest.inbox.post(&mut guest.hostile, &mut guest.rings, 1);
    // Its queue had turns with the page, and asks for a signal at the second.
    (0..4).for_each(|_| guest.hostile.is_served(&mut guest.rings));
    assert_eq!(guest.rings.rx.load(Index::RspProd), 0);
    guest.hostile.reconfigure("0");
    let (bytes, _) = guest.inbox.next(&mut guest.rings);
    assert!(bytes == frame(4096) && guest.inbox.offset == 0);
    world.stands();
}

#[test]
fn takeover_gives_the_headroom_and_the_answer_that_the_guest_waits_for() {
    let mut world = World::new();
    let mut guest = Guest::connected(&mut world, &[]);
    let mut kills = 0;
    let mut killed = |world: &mut World| {
        world.restart();
        kills += 1;
    };
    for program in ["256", "256", "0"] {
        // Killed before it saw anything, between the guest's two writes.
        world.stop();
        guest.hostile.state(S::Reconfiguring);
        world.start();
        guest.hostile.await_backend(S::Reconfigured);
        guest.has_room(&world, ROOM);
        // With its answer in the store, whatever the key says.
        killed(&mut world);
        guest.has_room(&world, ROOM);
        guest.hostile.key(KEY, program);
        killed(&mut world);
        guest.has_room(&world, ROOM);
        assert_eq!(guest.hostile.backend_state(), Some(S::Reconfigured));
        // And before it saw that the guest went on.
        world.stop();
        guest.hostile.state(S::Connected);
        world.start();
        guest.hostile.await_backend(S::Connected);
        for _ in 0..2 {
            match program {
                "0" => guest.has_no_room(&world),
                _ => guest.has_room(&world, ROOM),
            }
            killed(&mut world);
        }
        assert_eq!(guest.hostile.backend_state(), Some(S::Connected));
        guest.hostile.is_served(&mut guest.rings);
    }
    world.stands_and(lost_at_most(kills + 6));
}

#[test]
fn invalid_headroom_is_reported_and_not_given() {
    let mut world = World::new();
    let mut guest = Guest::connected(&mut world, &[]);
    for bad in ["2049", "4096", "65535", "65536", "-1", "256 bytes", "", "\u{1b}[2J"] {
        guest.hostile.reconfigure("256");
        guest.has_room(&world, ROOM);
        guest.hostile.reconfigure(bad);
        guest.has_no_room(&world);
        let told = guest.hostile.backend_key("error").unwrap();
        assert!(told.contains(KEY) && told.contains("up to 2048"), "{told}");
        assert!(!told.contains('\u{1b}'), "{told:?}");
    }
    // Nor does it keep a guest from connecting.
    let mut rings = guest.hostile.connect_as(&[(KEY, "9999")]);
    guest.hostile.is_served(&mut rings);
    guest.hostile.reconfigure("256");
    guest.rings = rings;
    guest.inbox = Inbox::posted(&mut guest.hostile, &mut guest.rings);
    guest.has_room(&world, ROOM);
    world.stands();
}

#[test]
fn a_guest_that_flips_its_state_and_its_key_disturbs_no_other_guest() {
    let mut world = World::new();
    let mut guest = Guest::connected(&mut world, &[]);
    for n in 0..1500u32 {
        let key = ["256", "0", "1", "2048", "x", "70000"][n as usize % 6];
        if n % 5 == 0 {
            guest.hostile.key(KEY, key);
        }
        let state = match n % 7 {
            0 | 2 | 5 => S::Reconfiguring,
            3 => S::Reconfigured,
            6 => S::InitWait,
            _ => S::Connected,
        };
        guest.hostile.state(state);
        if n % 100 == 0 {
            world.honest().carries(8);
            guest.hostile.is_served(&mut guest.rings);
        }
    }
    // Once the backend has seen the last change, its answers are to what comes now.
    guest.hostile.reconfigure("0");
    guest.has_no_room(&world);
    guest.hostile.reconfigure("256");
    guest.has_room(&world, ROOM);
    // Away in the middle of a change.
    guest.hostile.state(S::Reconfiguring);
    guest.hostile.await_backend(S::Reconfigured);
    guest.hostile.state(S::Closing);
    guest.hostile.await_backend(S::Closing);
    guest.hostile.state(S::Reconfiguring);
    guest.hostile.state(S::Closed);
    guest.hostile.await_backend(S::Closed);
    world.holds_nothing_of(GUEST.domain);
    guest.hostile.unkey(KEY);
    guest.rings = guest.hostile.connect();
    guest.inbox = Inbox::posted(&mut guest.hostile, &mut guest.rings);
    guest.has_no_room(&world);
    world.stands();
}

#[test]
fn control_ring_is_served_while_the_guest_reconfigures() {
    let mut world = World::new();
    let mut hostile = world.guest();
    let (mut lists, _rings) = crate::support::ctrl::Lists::connect_as(&mut hostile, &[]);
    let pages = hostile.pages(4, Access::ReadWrite);
    let flags = GrefFlags::empty();
    let entry = |gref: &GrantRef| GrefEntry { gref: gref.0, flags, status: 0 };
    let list: Vec<_> = pages.grefs.iter().map(entry).collect();
    hostile.state(S::Reconfiguring);
    hostile.await_backend(S::Reconfigured);
    assert_eq!(lists.add(&mut hostile, &list), Ok(0));
    assert_eq!(lists.del(&mut hostile, &list), Ok(4));
    world.stands();
}

//! Sixteen guests use up whatever a guest can, step by step over ten minutes: room for
//! what is mapped, memory of frames that wait, connections, fragments, stations, control
//! requests, nodes and events of the store, and connections of their own that they break.
//! Then one more vif is attached: it connects, has its pages mapped, is heard and hears,
//! and has as much of the worker as beside sixteen guests like itself.

use super::support::PROMPT;
use super::support::ctrl::Lists;
use super::support::flood::{Guest, Habit, address};
use super::support::port::UPLINK;
use super::support::rings::{SLOTS, slot};
use super::support::world::World;
use super::{LEAST, SETTLE, SLICE, Scene, meter};
use crate::support::control::SECRET;
use grantway_backend::policy::Mapped;
use grantway_backend::{Meter, VifId, VifReport, WAITING_MAX};
use grantway_hypervisor::{Access, DomId, Granted};
use grantway_netif::Offload;
use grantway_netif::ctrl::{GrefEntry, GrefFlags, HashTypes, Message};
use grantway_netif::tx::TxFlags;
use grantway_ring::{Index, RingMemory};
use std::time::{Duration, Instant};

const HOARDERS: u16 = 16;
/// The vif that comes last, and the station behind the uplink.
const LAST: u16 = HOARDERS + 1;
const OUTSIDE: u16 = 200;
/// Number of guests that share a slice of the worker's time.
const MANY: u32 = LAST as u32;
/// Ten minutes.
const STEPS: u32 = 60;
const STEP: Duration = Duration::from_secs(10);
/// Counts for each hoarder and step: connections that begin, fragmented packets, and short
/// frames to a guest that posts no page.
const BEGUN: u32 = 176;
const FRAGMENTED: u32 = 40;
const SHORT: u32 = 80;
/// Pages of each hoarder for lists, lists in a step, and pages in a list: one, which uses up
/// areas, or several. `MAPPED` is the limit of what all vifs may have mapped.
const PAGES: usize = 240;
const LISTS: usize = 2;
const LISTED: [usize; 2] = [1, 16];
const MAPPED: Mapped = Mapped { pages: 1024, areas: 136 };
/// Pages that the last vif lists at once.
const STAGED: usize = 8;
/// Connections that all vifs share.
const CONNECTIONS: u64 = 65_536;
/// Frames of the last vif, each way.
const FRAMES: u16 = 64;

/// Rules that drop TCP packets without a known connection, and UDP packets unless one port is
/// 5000. So a later fragment is dropped, too, if its packet is not known.
const RULES: &str = "
    [firewall]
    default = \"accept\"
    [[rule]]
    action = \"drop\"
    state = \"invalid\"
    [[rule]]
    action = \"accept\"
    network = \"ipv4\"
    protocol = \"udp\"
    to-ports = 5000
    [[rule]]
    action = \"accept\"
    network = \"ipv4\"
    protocol = \"udp\"
    from-ports = 5000
    [[rule]]
    action = \"drop\"
    network = \"ipv4\"
    protocol = \"udp\"
";

fn world() -> World {
    let mut world = World::counted(true, Meter::counted(meter));
    world.setup.by_rules = true;
    world.setup.policy.all = MAPPED;
    world.restart();
    world.control().with(|backend| backend.load(RULES, SECRET)).unwrap();
    // The bridge learns where the station behind the uplink is.
    let hello = udp((OUTSIDE, 0), (OUTSIDE + 1, 0), [5000; 2], Part::WHOLE);
    world.behind(UPLINK).give(hello, Offload::default());
    world.control().rounds(4);
    world
}

/// Part of a packet that a frame carries: the packet's number, the offset of the part in bytes,
/// and true if more parts follow.
#[derive(Debug, Clone, Copy)]
struct Part {
    id: u16,
    at: u16,
    more: bool,
}

impl Part {
    const WHOLE: Self = Self { id: 0, at: 0, more: false };
}

/// A frame of 60 bytes with an IPv4 packet of a protocol, from and to guests by their
/// numbers, with Ethernet addresses of their own beside the first.
fn ipv4(protocol: u8, to: (u16, u8), from: (u16, u8), part: Part, payload: &[u8]) -> Vec<u8> {
    let station = |(number, more): (u16, u8)| {
        let [a, b, c, d, _, f] = address(number);
        [a, b, c, d, more, f]
    };
    let mut frame = [station(to), station(from)].concat();
    let place = (part.at / 8) | (u16::from(part.more) << 13);
    let mut header = vec![0x45, 0];
    header.extend((20 + payload.len() as u16).to_be_bytes());
    header.extend(part.id.to_be_bytes());
    header.extend(place.to_be_bytes());
    header.extend([64, protocol, 0, 0]);
    for (number, _) in [from, to] {
        header.extend([10, 1, 0, number as u8]);
    }
    let (pairs, _) = header.as_chunks::<2>();
    let mut sum: u32 = pairs.iter().map(|&pair| u32::from(u16::from_be_bytes(pair))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    header[10..12].copy_from_slice(&(!sum as u16).to_be_bytes());
    frame.extend([8, 0]);
    frame.extend(header);
    frame.extend(payload);
    frame.resize(60.max(frame.len()), 0);
    frame
}

/// Returns a frame of UDP with eight bytes of data. A later part has these bytes only.
fn udp(to: (u16, u8), from: (u16, u8), ports: [u16; 2], part: Part) -> Vec<u8> {
    let mut payload = Vec::new();
    if part.at == 0 {
        let length = if part.more { 24 } else { 16u16 };
        payload.extend(ports.map(u16::to_be_bytes).concat());
        payload.extend(length.to_be_bytes());
        payload.extend([0; 2]);
    }
    payload.extend([0x5a; 8]);
    ipv4(17, to, from, part, &payload)
}

/// Returns a frame of TCP with these flags and no data.
fn tcp(to: (u16, u8), from: (u16, u8), ports: [u16; 2], flags: u8) -> Vec<u8> {
    let mut payload = ports.map(u16::to_be_bytes).concat();
    payload.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    ipv4(6, to, from, Part::WHOLE, &payload)
}

const SYN: u8 = 2;
const SYN_ACK: u8 = 0x12;

/// Guest that uses up all that it can.
struct Hoarder {
    number: u16,
    lists: Lists,
    staged: usize,
    pages: Granted,
    half: [u32; 3],
}

impl Hoarder {
    fn boot(world: &mut World, number: u16) -> (Self, Guest) {
        let mut hostile = world.guest_of(vif(number));
        let (lists, rings) = Lists::connect(&mut hostile);
        let pages = hostile.pages(PAGES, Access::ReadWrite);
        let mut guest = Guest::over(hostile, rings, number);
        guest.withholds = true;
        let half = slot(pages.grefs[0], 0, 60, 0, TxFlags::MORE_DATA);
        (Self { number, lists, staged: 0, pages, half }, guest)
    }

    /// The one that it works with.
    fn partner(&self) -> u16 {
        ((self.number - 1) ^ 1) + 1
    }

    /// Connections of this step that it begins, or answers.
    fn connections(&self, step: u32, answers: bool) -> Vec<Vec<u8>> {
        let (own, partner) = (self.number, self.partner());
        let frame = |n: u32| {
            let port = 1024 + (step * BEGUN + n) as u16;
            let (to, from) = ((partner, 0), (own, 0));
            match answers {
                false => tcp(to, from, [port, 80 + own], SYN),
                true => tcp(to, from, [80 + partner, port], SYN_ACK),
            }
        };
        (0..BEGUN).map(frame).collect()
    }

    /// Parts of packets that stay incomplete, and frames of 14 bytes from more stations
    /// than it may have, for one that posts no page.
    fn litter(&self, step: u32) -> Vec<Vec<u8>> {
        let (own, partner) = (self.number, self.partner());
        let part = |n: u32| Part { id: (step * FRAGMENTED + n) as u16, at: 0, more: true };
        let first = |n| udp((partner, 0), (own, 0), [5000; 2], part(n));
        let mut frames: Vec<_> = (0..FRAGMENTED).map(first).collect();
        let [a, b, c, d, _, f] = address(own);
        let short = |n: u32| {
            let from = [a, b, c, d, n as u8, f];
            [&address(partner)[..], &from, &[0x88, 0xb6]].concat()
        };
        frames.extend((0..SHORT).map(short));
        frames
    }

    fn lists_more(&mut self, guest: &mut Guest, step: u32) {
        let pages = LISTED[usize::from(self.number % 2)];
        for _ in 0..LISTS {
            let grefs = self.pages.grefs.iter().skip(self.staged).take(pages);
            let list: Vec<_> = grefs.map(|gref| entry(gref.0)).collect();
            // There may be no room for it.
            if !list.is_empty() && self.lists.add(&mut guest.hostile, &list).is_ok() {
                self.staged += list.len();
            }
        }
        // Requests that cost work: a setting, a list that fails at its end.
        if step.is_multiple_of(10) {
            let rest = self.pages.grefs.iter().skip(self.staged);
            let mut bad: Vec<_> = rest.map(|gref| entry(gref.0)).collect();
            bad.push(entry(30_000));
            let bad = self.lists.to_add(0, &bad);
            let types = Message::SetHashFlags { types: HashTypes::all() };
            let _ = self.lists.ring.ask_all(&mut guest.hostile, &[types, bad, types, bad]);
        }
    }

    fn litters_the_store(&self, guest: &mut Guest, step: u32) {
        let front = guest.hostile.front();
        for n in 0..10 {
            // As much as its quota lets it.
            let path = format!("{front}/more-{step}-{n}");
            let _ = guest.hostile.store.write(&path, &[b'x'; 2000]);
        }
        for _ in 0..10 {
            guest.hostile.key("state", "4");
            guest.hostile.key("feature-rx-notify", "1");
        }
    }

    /// Sends half a packet, is closed for it, and begins anew.
    fn breaks(&mut self, world: &World, guest: &mut Guest) {
        let room = guest.rings.tx_prod.wrapping_sub(guest.served());
        if room >= SLOTS {
            return;
        }
        guest.rings.put_tx(&[self.half]);
        guest.hostile.kick(guest.rings.tx_event);
        serves_until(world, "the end of a vif", || guest.hostile.backend_key("error").is_some());
        let (lists, rings) = Lists::connect(&mut guest.hostile);
        guest.rings = rings;
        (self.lists, self.staged) = (lists, 0);
    }
}

fn entry(gref: u32) -> GrefEntry {
    GrefEntry { gref, flags: GrefFlags::empty(), status: 0 }
}

fn vif(number: u16) -> VifId {
    VifId { domain: DomId(20 + number), devid: 0 }
}

/// Rounds of the worker until something holds.
#[track_caller]
fn serves_until(world: &World, what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        world.control().rounds(1);
        assert!(start.elapsed() < PROMPT, "not so: {what}");
    }
}

/// Lets each guest fill its ring once with its frames, and waits until all are served.
fn all_send(scene: &mut Scene, frames: impl Fn(usize) -> Vec<Vec<u8>>) {
    for (n, guest) in scene.guests.iter_mut().enumerate() {
        guest.offers(&frames(n));
        guest.sends();
    }
    let guests = &scene.guests;
    serves_until(&scene.world, "what was sent is served", || {
        guests.iter().all(|guest| guest.served() == guest.rings.tx_prod)
    });
}

/// Returns the rate of the last vif beside guests like itself, and checks that all rates are
/// alike.
fn fair() -> f64 {
    let mut scene = Scene::over(world());
    for number in 1..=LAST {
        let mut guest = Guest::boot(&mut scene.world, number);
        guest.takes_up(Habit::SendsTo(OUTSIDE));
        scene.guests.push(guest);
    }
    scene.run(SETTLE * MANY);
    let rates = scene.run(SLICE * MANY);
    let last = rates[usize::from(LAST) - 1];
    for rate in &rates {
        assert!((LEAST..=1.0 / LEAST).contains(&(rate / last)), "not like each other: {rates:?}");
    }
    scene.ends();
    last
}

#[test]
fn a_vif_that_comes_after_sixteen_that_hoard_for_ten_minutes_is_served() {
    let fair = fair();
    let mut scene = Scene::over(world());
    let mut hoarders = Vec::new();
    for number in 1..=HOARDERS {
        let (hoarder, guest) = Hoarder::boot(&mut scene.world, number);
        hoarders.push(hoarder);
        scene.guests.push(guest);
    }
    for step in 0..STEPS {
        all_send(&mut scene, |n| hoarders[n].connections(step, false));
        all_send(&mut scene, |n| hoarders[n].connections(step, true));
        all_send(&mut scene, |n| hoarders[n].litter(step));
        // What it gave back is taken by the others.
        hoarders[0].breaks(&scene.world, &mut scene.guests[0]);
        for (hoarder, guest) in hoarders.iter_mut().zip(&mut scene.guests) {
            hoarder.lists_more(guest, step);
            hoarder.litters_the_store(guest, step);
        }
        scene.world.control().passes(STEP);
    }
    holds_what_it_may(&scene.world);
    comes_last(&mut scene, &hoarders, fair);
    drop(hoarders);
    scene.ends();
}

/// Checks that the hoarders have used up what all vifs share. Otherwise the test would show
/// little.
fn holds_what_it_may(world: &World) {
    let known = world.control().with(|backend| backend.graph()).unwrap().known;
    let mapped: usize = world.control().report().iter().map(|report| report.mapped).sum();
    let (connections, stations) = (known.connections, known.stations);
    println!("{connections} connections, {stations} stations, {mapped} pages mapped");
    assert!(connections >= CONNECTIONS, "{connections} connections");
    assert!(stations >= 64 * u64::from(HOARDERS - 1), "{stations} stations");
    assert!(mapped > MAPPED.pages * 3 / 4, "{mapped} pages are mapped");
    // All but the one that its partner did not leave in peace.
    let wait = |report: &VifReport| report.queues.iter().map(|queue| queue.waiting_bytes).max();
    for report in world.control().report().iter().skip(1) {
        let bytes = wait(report).unwrap_or(0);
        assert!((WAITING_MAX - 4096..=WAITING_MAX).contains(&bytes), "{}: {bytes}", report.vif);
    }
}

fn comes_last(scene: &mut Scene, hoarders: &[Hoarder], fair: f64) {
    let mut hostile = scene.world.guest_of(vif(LAST));
    let (mut lists, rings) = Lists::connect(&mut hostile);
    let pages = hostile.pages(STAGED, Access::ReadWrite);
    let all: Vec<_> = pages.grefs.iter().map(|gref| entry(gref.0)).collect();
    assert_eq!(lists.add(&mut hostile, &all), Ok(0));
    assert_eq!(scene.world.control().report_of(vif(LAST)).unwrap().mapped, STAGED);
    let mut last = Guest::over(hostile, rings, LAST);
    last.receives();
    // Out: connections that are new, and parts of packets with others' between them.
    let flood = |scene: &mut Scene, step| all_send(scene, |n| hoarders[n].litter(step));
    let to = |n: u16, part| udp((OUTSIDE, 0), (LAST, 0), [1000 + n, 5000], part);
    let new: Vec<_> = (0..FRAMES).map(|n| to(n, Part::WHOLE)).collect();
    let firsts: Vec<_> =
        (0..FRAMES).map(|n| to(n, Part { id: 7000 + n, at: 0, more: true })).collect();
    let rests: Vec<_> =
        (0..FRAMES).map(|n| to(n, Part { id: 7000 + n, at: 16, more: false })).collect();
    for (n, frames) in [new, firsts, rests].iter().enumerate() {
        flood(scene, STEPS + n as u32);
        let came = sends(scene, &mut last, frames);
        assert!(came == *frames, "{} frames of {} came through", came.len(), frames.len());
    }
    // Nobody who has as many stations as it may makes another's unknown, whose frames
    // would go to all.
    all_send(scene, |n| {
        let partner = (hoarders[n].partner(), 0);
        vec![udp(partner, (LAST, 0), [5000; 2], Part::WHOLE); 8]
    });
    for (hoarder, guest) in hoarders.iter().zip(&mut scene.guests) {
        guest.offers_once(&[tcp((LAST, 0), (hoarder.number, 0), [1; 2], SYN)]);
    }
    scene.world.control().rounds(40);
    let uplink = scene.world.behind(UPLINK);
    assert!(!uplink.look().taken.iter().any(|(frame, _)| frame[..6] == last.own), "went to all");
    // In: the answers.
    let answer = |n: u16| udp((LAST, 0), (OUTSIDE, 0), [5000, 1000 + n], Part::WHOLE);
    let answers: Vec<_> = (0..FRAMES).map(answer).collect();
    flood(scene, STEPS + 9);
    for frame in &answers {
        uplink.give(frame.clone(), Offload::default());
    }
    let mut got = Vec::new();
    let end = Instant::now() + PROMPT;
    while got.len() < answers.len() && Instant::now() < end {
        scene.world.control().rounds(1);
        let of_uplink = |frame: &Vec<u8>| frame[6..12] == address(OUTSIDE);
        got.extend(last.takes().into_iter().filter(of_uplink));
        last.receives();
    }
    assert!(got == answers, "{} answers of {} came", got.len(), answers.len());
    scene.guests.push(last);
    // Its share, beside what costs most.
    for (hoarder, guest) in hoarders.iter().zip(&mut scene.guests) {
        let mut frames = hoarder.litter(STEPS + 10);
        frames.drain(..88);
        frames.extend_from_slice(&hoarder.connections(STEPS + 10, false)[..32]);
        guest.offers(&frames);
    }
    scene.guests.last_mut().unwrap().takes_up(Habit::SendsTo(OUTSIDE));
    scene.run(SETTLE * MANY);
    let share = scene.run(SLICE * MANY).last().unwrap() / fair;
    println!("the last vif has {share:.3} of its fair share");
    assert!(share >= LEAST, "{share:.3} of its fair share");
}

/// Sends frames; those of its own that came out at the uplink.
fn sends(scene: &mut Scene, last: &mut Guest, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let uplink = scene.world.behind(UPLINK);
    uplink.look().taken.clear();
    last.offers_once(frames);
    serves_until(&scene.world, "what was sent is served", || {
        last.rings.tx.load(Index::RspProd) == last.rings.tx_prod
    });
    let taken = &uplink.look().taken;
    taken.iter().map(|(bytes, _)| bytes.clone()).filter(|frame| frame[6..12] == last.own).collect()
}

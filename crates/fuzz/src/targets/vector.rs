//! Target: frames made by a guest, through the whole graph.

use super::{Bytes, Tally};
use grantway_netif::{Checksum, Gso, GsoKind, Offload};
use grantway_vector::deliver::{Delivery, Sink};
use grantway_vector::nodes::Checks;
use grantway_vector::path::{Settings, graph};
use grantway_vector::reason::Drops;
use grantway_vector::receivers::Takes;
use grantway_vector::rules::{Names, parse};
use grantway_vector::{Batch, Frame, Graph, PortId, Reason, Rules, Secret, Verdict};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

const SECRET: Secret = Secret(1, 2);
const PORTS: u16 = 4;

/// Rules that read every field.
const RULES: &str = r#"
flows = true
[[vif]]
name = "0.0"
mac = "02:00:00:00:00:01"
addresses = ["10.0.0.0/8", "fd00::/8"]
[[vif]]
name = "1.0"
isolated = true
stations = 1
[[vif]]
name = "2.0"
isolated = true
rate = 1000
burst = 1600
[firewall]
default = "accept"
[[rule]]
action = "accept"
state = "established"
[[rule]]
action = "drop"
state = "invalid"
[[rule]]
action = "drop"
protocol = "udp"
to-ports = "1-99"
from = ["10.0.0.0/9", "fd00::1"]
[[filter]]
action = "redirect"
port = "1.0"
vlan = 5
[[filter]]
action = "drop"
vlan = 6
[[filter]]
action = "police"
rate = 1000
burst = 1600
protocol = "icmp"
[[filter]]
action = "mirror"
tcp-flags = "2/2"
"#;

static LOADED: LazyLock<[Arc<Rules>; 2]> = LazyLock::new(|| {
    let rules = parse(RULES, &mut Names::default(), SECRET).expect("rules in order");
    [Arc::default(), Arc::new(rules)]
});

/// Frames of all runs, and their drops. It outlives the graphs, which live for one input each.
static SEEN: Mutex<Option<(u64, Drops)>> = Mutex::new(None);

pub(super) fn tally() -> Tally {
    let (frames, drops) = seen(|seen| seen.clone());
    let named = |&reason: &Reason| (reason.as_str(), drops.of(reason));
    Tally { frames, drops: Reason::ALL.iter().map(named).collect() }
}

fn seen<T>(look: impl FnOnce(&mut (u64, Drops)) -> T) -> T {
    // A run that panicked has left nothing half done.
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    look(seen.get_or_insert_with(Default::default))
}

struct Given(Vec<(PortId, Vec<u8>, Offload)>);

impl Sink for Given {
    fn whole(&mut self, to: PortId, _: Option<u16>, frame: &[u8], offload: Offload) {
        self.0.push((to, frame.to_vec(), offload));
    }

    fn handle(&mut self, to: PortId, _: Option<u16>, batch: &Batch, frame: u8) {
        let pieces = batch.pieces(frame).map(|(piece, skip)| piece.len.saturating_sub(skip));
        self.0.push((to, pieces.sum::<u32>().to_be_bytes().to_vec(), Offload::default()));
    }
}

pub(super) fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let what = bytes.u8();
    let rules = &LOADED[usize::from(what & 1)];
    let checks = if what & 2 == 0 { Checks::Leave } else { Checks::Verify };
    let mut arena = Vec::new();
    let mut frames = Vec::new();
    while !bytes.0.is_empty() && frames.len() < 64 {
        let make = if what & 4 == 0 { frame } else { spoiled };
        frames.push(make(&mut bytes, &mut arena));
    }
    // Lists of one frame have to give the same as lists of all.
    let one = given(&frames, &arena, (rules, checks, Takes::default()), 1);
    let many = given(&frames, &arena, (rules, checks, Takes::default()), 64);
    assert_eq!(one, many);
    seen(|(count, drops)| {
        *count += frames.len() as u64;
        for &(reason, times) in many.drops.iter().chain(&many.unfinished) {
            drops.add(reason, times);
        }
    });
    // Merging makes no more frames. But receivers that accept only finished frames lose those that
    // could not be finished.
    let merged = given(&frames, &arena, (rules, checks, Takes::ALL), 64);
    let unfinished: u64 = many.unfinished.iter().map(|&(_, times)| times).sum();
    assert!(merged.given.len() as u64 <= many.given.len() as u64 + unfinished);
}

/// Returns the next frame: its length, its sender and its offload are part of the input.
fn frame(bytes: &mut Bytes<'_>, arena: &mut Vec<u8>) -> Frame {
    let (length, said) = (usize::from(bytes.u8()), bytes.u8());
    let (private, rest) = bytes.0.split_at(length.min(bytes.0.len()));
    bytes.0 = rest;
    let at = arena.len() as u32;
    arena.extend(private);
    let head = private.len() as u32;
    if said & 32 == 0 {
        finish(&mut arena[at as usize..]);
    }
    // Some frames have more bytes that are not private.
    let len = if said & 64 == 0 { head } else { head + 1000 };
    Frame { at, head, len, token: 0, offload: offload(said), from: PortId(u16::from(said) % PORTS) }
}

/// Returns the next frame: a correct one with a few bytes changed. Few frames of random bytes would
/// get past the first header.
fn spoiled(bytes: &mut Bytes<'_>, arena: &mut Vec<u8>) -> Frame {
    let (kind, hosts, said, end) = (bytes.u8(), bytes.u8(), bytes.u8(), bytes.u8());
    let mut frame = in_order(kind, hosts);
    for _ in 0..said >> 5 & 3 {
        let (at, value) = (usize::from(bytes.u8()), bytes.u8());
        if let Some(byte) = frame.get_mut(at) {
            *byte = value;
        }
    }
    // One frame in four ends early.
    frame.truncate(if end < 64 { usize::from(end) } else { frame.len() });
    let (at, head) = (arena.len() as u32, frame.len() as u32);
    arena.extend(frame);
    if said & 128 == 0 {
        finish(&mut arena[at as usize..]);
    }
    // Some frames have more bytes that are not private.
    let len = if end & 1 == 0 { head } else { head + 1000 };
    Frame { at, head, len, token: 0, offload: offload(said), from: PortId(u16::from(said) % PORTS) }
}

/// Returns a correct frame of this kind, between these hosts.
fn in_order(kind: u8, hosts: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, hosts >> 4, 2, 0, 0, 0, 0, hosts & 15];
    if kind & 64 != 0 {
        frame.extend([0x81, 0, 0, 4 + (hosts & 3)]);
    }
    let transport: &[u8] = match kind & 3 {
        0 => &[4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0, 1, 2, 3, 4],
        1 => &[4, 0, 0, 53, 0, 24, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8],
        2 => &[8, 0, 0, 0, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8],
        _ => &[0, 9, 0, 9, 0, 24, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8],
    };
    let protocol = [6, 17, 1, 17][usize::from(kind & 3)];
    // A fragment has a flag for more fragments, and its place among up to four.
    let place = [kind >> 4 & 1, kind >> 5 & 3].map(u16::from);
    // The kinds are IPv4, IPv6 without and with an extension, and ARP.
    match kind >> 2 & 3 {
        0 => {
            frame.extend([8, 0, 0x46, 0, 0, 48, 0, 1]);
            let [more, at] = if kind & 128 == 0 { [0, 0] } else { place };
            frame.extend(((more << 13) | (3 * at)).to_be_bytes());
            frame.extend([64, protocol, 0, 0, 10, 0, 0, hosts & 15, 10, 0, 0, hosts >> 4]);
            frame.extend([1, 1, 1, 0]);
            frame.extend(transport);
        }
        1 | 2 => {
            let extension = kind >> 2 & 3 == 2;
            let next = [protocol, if kind & 128 == 0 { 0 } else { 44 }][usize::from(extension)];
            let length = if extension { 32 } else { 24 };
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, length, next, 64]);
            for host in [hosts & 15, hosts >> 4] {
                frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
            }
            if extension {
                let [more, at] = place;
                let place = if next == 44 { (24 * at) | more } else { 0x0104 };
                frame.extend([protocol, 0]);
                frame.extend(place.to_be_bytes());
                frame.extend([0, 0, 0, 0]);
            }
            frame.extend(transport);
        }
        _ => {
            frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1 + (kind & 1), 2, 0, 0, 0, 0, hosts & 15]);
            frame.extend([10, 0, 0, hosts & 15, 0, 0, 0, 0, 0, 0, 10, 0, 0, hosts >> 4]);
        }
    }
    frame
}

/// Returns the offload that these bits say.
fn offload(said: u8) -> Offload {
    let kind = if said & 4 == 0 { GsoKind::Tcpv4 } else { GsoKind::Tcpv6 };
    match said >> 3 & 3 {
        0 => Offload::default(),
        1 => Offload { checksum: Checksum::Complete, gso: None },
        2 => Offload { checksum: Checksum::Partial, gso: None },
        _ => Offload { checksum: Checksum::Partial, gso: Some(Gso { kind, size: 8 }) },
    }
}

/// Writes the right checksum into a header of IPv4, since most random ones are wrong.
fn finish(frame: &mut [u8]) {
    let at = if frame.get(12..14) == Some(&[0x81, 0]) { 18 } else { 14 };
    if frame.get(at - 2..at) != Some(&[8, 0]) {
        return;
    }
    let Some(header) = frame.get_mut(at..) else { return };
    let length = header.first().map_or(0, |first| 4 * usize::from(first & 15));
    let Some(header) = header.get_mut(..length).filter(|header| header.len() >= 20) else { return };
    header[10..12].fill(0);
    let words = header.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
    let sum: u32 = words.sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = !((sum >> 16) + sum) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    given: Vec<(PortId, Vec<u8>, Offload)>,
    drops: Vec<(Reason, u64)>,
    unfinished: Vec<(Reason, u64)>,
}

fn given(
    frames: &[Frame],
    arena: &[u8],
    (rules, checks, takes): (&Arc<Rules>, Checks, Takes),
    list: usize,
) -> Outcome {
    let wall = grantway_ports::wall();
    let (clock, capture, merge) = (|| 0, None, true);
    let settings = Settings { secret: SECRET, clock, capture, wall, checks, merge };
    let mut graph: Graph = graph(settings).expect("a graph within its bounds");
    graph.load(rules);
    let members: Vec<PortId> = (0..PORTS).map(PortId).collect();
    members.iter().for_each(|&port| graph.set_receiver(port, takes));
    let (mut batch, mut delivery, mut given) =
        (Batch::new(), Delivery::default(), Given(Vec::new()));
    let mut dropped = 0;
    for frames in frames.chunks(list) {
        let mut arena = arena.to_vec();
        batch.clear();
        frames.iter().for_each(|&frame| batch.push(frame).expect("room for a list"));
        graph.run(&mut batch, &mut arena, 1_000_000_000);
        for number in &batch.all() {
            let verdict = batch.verdict(number);
            assert!(verdict != Verdict::Open, "no node said what becomes of it");
            dropped += u64::from(matches!(verdict, Verdict::Drop(_)));
        }
        let to = (&**rules, graph.receivers());
        delivery.run((&batch, &arena), to, &members, &mut given);
    }
    assert_eq!(graph.drops().total(), dropped, "each is counted once");
    let unfinished = delivery.drops().iter().collect();
    Outcome { given: given.0, drops: graph.drops().iter().collect(), unfinished }
}

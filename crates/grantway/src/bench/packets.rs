//! `grantway bench packets`: one point, measured in slices between probes.

use super::probe::{self, State};
use super::rig::{Direction, Plan, Rig, Sample};
use crate::error::CommandError;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// Longest slice between two probes.
const SLICE: Duration = Duration::from_millis(500);
/// A probe of the machine.
const PROBE: Duration = Duration::from_millis(100);
/// What runs before the first slice.
const WARM_UP: Duration = Duration::from_millis(200);

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Point {
    /// The buffer policy's name.
    pub policy: String,
    /// Which way.
    pub direction: Direction,
    /// Frame size in bytes, FCS not counted.
    pub size: usize,
    /// Queues.
    pub queues: u16,
    /// Frames that the generator makes at a time.
    pub burst: u32,
    /// How long, in seconds, probes not counted.
    pub seconds: f64,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// The buffer policy.
    pub policy: String,
    /// Which way.
    pub direction: Direction,
    /// Frame size in bytes.
    pub size: usize,
    /// Queues.
    pub queues: u16,
    /// Frames that the generator makes at a time.
    pub burst: u32,
    /// Seconds that the figures are from: slices whose state did not change.
    pub seconds: f64,
    /// Packets received in them.
    pub packets: u64,
    /// Packets lost since the start, by their sequence numbers.
    pub lost: u64,
    /// Millions of packets a second.
    pub mpps: f64,
    /// Gbit/s at layer 2, FCS not counted.
    pub gbps: f64,
    /// Packets per interrupt of the receiving end; none where it was never
    /// interrupted, since it never slept.
    pub ppi: Option<f64>,
    /// Slots per interrupt.
    pub spi: Option<f64>,
    /// Packets per turn that found some.
    pub ppn: Option<f64>,
    /// Slots per such turn.
    pub spn: Option<f64>,
    /// Grant copies, maps and unmaps of all ends for each packet.
    pub grant_ops_per_packet: f64,
    /// Notifications of all ends for each packet.
    pub notifies_per_packet: f64,
    /// Where it ran.
    pub host: String,
    /// Where the processors were.
    pub state: State,
}

/// Counters that a slice is the difference of.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    packets: u64,
    slots: u64,
    interrupts: u64,
    turns: u64,
    grant_ops: u64,
    notifies: u64,
    seconds: f64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.slots += other.slots;
        self.interrupts += other.interrupts;
        self.turns += other.turns;
        self.grant_ops += other.grant_ops;
        self.notifies += other.notifies;
        self.seconds += other.seconds;
    }

    /// What happened between two samples.
    fn between(direction: Direction, before: &Sample, after: &Sample) -> Self {
        let grew = |read: &dyn Fn(&Sample) -> u64| read(after).saturating_sub(read(before));
        let vif = |s: &Sample, key: &str| number(&s.backend["vifs"][0]["stats"][key]);
        let guest = |s: &Sample, key: &str| number(&s.guests[0]["stats"][key]);
        // All ends together.
        let asked = |s: &Sample, key: &str| -> u64 {
            let ends = s.guests.iter().chain([&s.backend]);
            ends.map(|end| number(&end["platform"][key])).sum()
        };
        let ops = |s: &Sample| ["copies", "maps", "unmaps"].map(|key| asked(s, key)).iter().sum();
        let receiver = |key: &str| match direction {
            Direction::Tx => grew(&|s| vif(s, key)),
            Direction::Rx | Direction::GuestToGuest => grew(&|s| guest(s, key)),
        };
        let (packets, slots) = match direction {
            Direction::Tx => (receiver("tx_packets"), receiver("tx_slots")),
            Direction::Rx | Direction::GuestToGuest => {
                (receiver("rx_packets"), receiver("rx_slots"))
            }
        };
        Self {
            packets,
            slots,
            interrupts: receiver("interrupts"),
            turns: receiver("turns"),
            grant_ops: grew(&ops),
            notifies: grew(&|s| asked(s, "notifies")),
            seconds: after.at.duration_since(before.at).as_secs_f64(),
        }
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn per(count: u64, of: u64) -> Option<f64> {
    (of != 0).then(|| count as f64 / of as f64)
}

/// Measures one point; `progress` hears how far it is, from 0 to 1.
///
/// # Errors
///
/// A part of the rig failed.
pub fn measure(point: &Point, progress: &mut dyn FnMut(f64)) -> Result<Measured, CommandError> {
    let generator = format!("generator:size={},burst={}", point.size, point.burst);
    let cpus = probe::processors();
    let (direction, queues) = (point.direction, point.queues);
    let rig = Rig::start(&Plan { direction, generator: &generator, queues, cpus: &cpus })?;
    std::thread::sleep(WARM_UP);
    let slices = (point.seconds / SLICE.as_secs_f64()).ceil().max(1.0) as u32;
    let slice = Duration::from_secs_f64(point.seconds / f64::from(slices));
    let probed = || {
        rig.pause();
        let state = probe::state(PROBE);
        rig.resume();
        // The ends find their stride again.
        std::thread::sleep(Duration::from_millis(20));
        state
    };
    let mut before = probed();
    let mut by_state: Vec<(State, Tally)> = Vec::new();
    let mut host = String::new();
    let mut lost = 0;
    for done in 0..slices {
        progress(f64::from(done) / f64::from(slices));
        let first = rig.sample()?;
        std::thread::sleep(slice);
        let last = rig.sample()?;
        let after = probed();
        // A slice whose state changed belongs to no state.
        let state = if before == after { before } else { State::Changed };
        let tally = Tally::between(point.direction, &first, &last);
        match by_state.iter_mut().find(|(s, _)| *s == state) {
            Some((_, sum)) => sum.add(&tally),
            None => by_state.push((state, tally)),
        }
        before = after;
        host = last.backend["host"].as_str().unwrap_or_default().to_string();
        lost = match point.direction {
            Direction::Tx => number(&last.backend["vifs"][0]["port"]["checked"]["lost"]),
            Direction::Rx | Direction::GuestToGuest => {
                number(&last.guests[0]["port"]["checked"]["lost"])
            }
        };
    }
    progress(1.0);
    // The state that held longest, a stable one if there was any.
    by_state.sort_by(|a, b| {
        let stable = |state: State| state != State::Changed;
        (stable(b.0), b.1.seconds)
            .partial_cmp(&(stable(a.0), a.1.seconds))
            .unwrap_or_else(|| a.0.cmp(&b.0))
    });
    let (state, sum) = by_state.first().copied().unwrap_or((State::Changed, Tally::default()));
    if sum.packets == 0 {
        return Err(CommandError::Failed(format!(
            "no packet of {} bytes came through in {:.1} s; look at `RUST_LOG=info` of a backend \
             and a frontend started by hand",
            point.size, point.seconds
        )));
    }
    let rate = sum.packets as f64 / sum.seconds;
    Ok(Measured {
        policy: point.policy.clone(),
        direction: point.direction,
        size: point.size,
        queues: point.queues,
        burst: point.burst,
        seconds: sum.seconds,
        packets: sum.packets,
        lost,
        mpps: rate / 1e6,
        gbps: rate * point.size as f64 * 8.0 / 1e9,
        ppi: per(sum.packets, sum.interrupts),
        spi: per(sum.slots, sum.interrupts),
        ppn: per(sum.packets, sum.turns),
        spn: per(sum.slots, sum.turns),
        grant_ops_per_packet: sum.grant_ops as f64 / sum.packets as f64,
        notifies_per_packet: sum.notifies as f64 / sum.packets as f64,
        host,
        state,
    })
}

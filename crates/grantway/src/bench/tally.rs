//! What a slice was the difference of.

use super::rig::{Direction, Sample};
use serde_json::Value;
use std::collections::BTreeMap;

/// What happened between two samples of a rig.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    /// Packets that arrived.
    pub packets: u64,
    /// Packets that did not, by their numbers.
    pub lost: u64,
    /// Slots of those that arrived.
    pub slots: u64,
    /// Signals that the receiving end took in.
    pub interrupts: u64,
    /// Turns of the receiving end that found packets.
    pub turns: u64,
    /// Grant copies of all ends.
    pub copies: u64,
    /// Bytes that they moved.
    pub copied_bytes: u64,
    /// Grants mapped by all ends.
    pub maps: u64,
    /// Grants unmapped by all ends.
    pub unmaps: u64,
    /// Notifications sent by all ends.
    pub notifies: u64,
    /// Wake-ups of all ends.
    pub wakeups: u64,
    /// Between the two, by the receiving end's clock.
    pub seconds: f64,
    /// Nanoseconds that packets were under way, and how many took so long.
    pub latency: BTreeMap<u64, u64>,
}

impl Tally {
    /// What happened from one sample to the next.
    pub fn between(direction: Direction, before: &Sample, after: &Sample) -> Self {
        let grew = |read: &dyn Fn(&Sample) -> u64| read(after).saturating_sub(read(before));
        let at = |key| grew(&|s| count(&receiver(direction, s)[key]));
        let carried = |key: &str| grew(&|s| count(&stats(direction, s)[key]));
        let asked = |key: &str| grew(&|s| asked(s, key));
        let (packets, slots) = match direction.ends_at_backend() {
            true => ("tx_packets", "tx_slots"),
            false => ("rx_packets", "rx_slots"),
        };
        Self {
            packets: carried(packets),
            lost: grew(&|s| count(&port(direction, s)["checked"]["lost"])),
            slots: carried(slots),
            interrupts: carried("interrupts"),
            turns: carried("turns"),
            copies: asked("copies"),
            copied_bytes: asked("copy_bytes"),
            maps: asked("maps"),
            unmaps: asked("unmaps"),
            notifies: asked("notifies"),
            wakeups: asked("wakeups"),
            seconds: at("at_ns") as f64 / 1e9,
            latency: latency(
                &port(direction, before)["latency_ns"],
                &port(direction, after)["latency_ns"],
            ),
        }
    }

    /// Adds another slice's.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.lost += other.lost;
        self.slots += other.slots;
        self.interrupts += other.interrupts;
        self.turns += other.turns;
        self.copies += other.copies;
        self.copied_bytes += other.copied_bytes;
        self.maps += other.maps;
        self.unmaps += other.unmaps;
        self.notifies += other.notifies;
        self.wakeups += other.wakeups;
        self.seconds += other.seconds;
        for (&nanos, &packets) in &other.latency {
            *self.latency.entry(nanos).or_default() += packets;
        }
    }

    /// All of these together.
    pub fn sum<'a>(tallies: impl Iterator<Item = &'a Self>) -> Self {
        tallies.fold(Self::default(), |mut sum, tally| {
            sum.add(tally);
            sum
        })
    }

    /// Packets a second.
    pub fn rate(&self) -> f64 {
        self.packets as f64 / self.seconds
    }

    /// So many for each packet.
    pub fn per_packet(&self, n: u64) -> f64 {
        n as f64 / self.packets as f64
    }
}

/// The end that what is measured arrives at.
fn receiver(direction: Direction, sample: &Sample) -> &Value {
    if direction.ends_at_backend() { &sample.backend } else { &sample.guests[0] }
}

/// Its counters.
fn stats(direction: Direction, sample: &Sample) -> &Value {
    match direction.ends_at_backend() {
        true => &sample.backend["vifs"][0]["stats"],
        false => &sample.guests[0]["stats"],
    }
}

/// The port behind it.
fn port(direction: Direction, sample: &Sample) -> &Value {
    match direction.ends_at_backend() {
        true => &sample.backend["vifs"][0]["port"],
        false => &sample.guests[0]["port"],
    }
}

/// What all ends asked of the platform.
fn asked(sample: &Sample, key: &str) -> u64 {
    let ends = sample.guests.iter().chain([&sample.backend]);
    ends.map(|end| count(&end["platform"][key])).sum()
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// What came to a histogram, of which several may stand one behind the other.
fn latency(before: &Value, after: &Value) -> BTreeMap<u64, u64> {
    let pairs = |value: &Value| -> Vec<(u64, u64)> {
        let pairs = value.as_array().into_iter().flatten();
        pairs.map(|pair| (count(&pair[0]), count(&pair[1]))).collect()
    };
    let mut grown = BTreeMap::new();
    for (nanos, packets) in pairs(after) {
        *grown.entry(nanos).or_default() += packets;
    }
    for (nanos, packets) in pairs(before) {
        if let Some(sum) = grown.get_mut(&nanos) {
            *sum = u64::saturating_sub(*sum, packets);
        }
    }
    grown.retain(|_, packets| *packets > 0);
    grown
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample(n: u64) -> Sample {
        let platform = json!({"copies": 2 * n, "copy_bytes": 64 * n, "notifies": n, "wakeups": n});
        let port = json!({"checked": {"lost": n}, "latency_ns": [[100, n], [200, 7]]});
        let stats = json!({"tx_packets": 10 * n, "rx_packets": 20 * n, "rx_slots": 40 * n});
        let guest = json!({
            "at_ns": 1_000_000_000 * n, "stats": stats, "port": port, "platform": platform,
        });
        let backend = json!({
            "at_ns": 500_000_000 * n, "vifs": [{"stats": stats, "port": port}],
            "platform": platform,
        });
        Sample { backend, guests: vec![guest.clone(), guest] }
    }

    #[test]
    fn the_receiving_end_counts_packets_and_all_ends_what_they_asked_for() {
        let tally = Tally::between(Direction::Tx, &sample(1), &sample(3));
        assert_eq!((tally.packets, tally.seconds, tally.lost), (20, 1.0, 2));
        assert_eq!((tally.copies, tally.copied_bytes, tally.wakeups), (12, 384, 6));
        let tally = Tally::between(Direction::GuestToGuest, &sample(1), &sample(3));
        assert_eq!((tally.packets, tally.slots, tally.seconds), (40, 80, 2.0));
        assert_eq!((tally.rate(), tally.per_packet(tally.copies)), (20.0, 0.3));
    }

    #[test]
    fn latencies_are_those_that_came_since() {
        let tally = Tally::between(Direction::RoundTrip, &sample(1), &sample(3));
        assert_eq!(tally.latency, BTreeMap::from([(100, 2)]));
        let sum = Tally::sum([&tally, &tally].into_iter());
        assert_eq!((sum.latency[&100], sum.packets), (4, 80));
        let two_queues = json!([[100, 5], [300, 1], [100, 6]]);
        assert_eq!(latency(&json!([[100, 4]]), &two_queues), BTreeMap::from([(100, 7), (300, 1)]));
    }

    #[test]
    fn a_part_that_counts_anew_makes_nothing_negative() {
        let tally = Tally::between(Direction::Tx, &sample(3), &sample(1));
        assert_eq!((tally.packets, tally.copies, tally.latency.len()), (0, 0, 0));
    }
}

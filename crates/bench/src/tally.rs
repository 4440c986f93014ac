//! Differences between two samples of a rig; a slice is such a difference.
//!
//! The ends are read one after the other, and each report is of one moment between the turns of its
//! end. So operations of an end are counted per packet that this end handled by then, and never per
//! packet of another end. A packet between two ends is in no account, or is in one together with
//! its operations.

use super::rig::{Direction, Sample};
use serde_json::Value;
use std::collections::BTreeMap;

/// Operations and packets of one end between two of its reports.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Packets that the end handled. For a backend, the packets that it took from guests, including
    /// dropped ones; if guests only receive, the packets that it gave. For a guest, the packets
    /// that it sent or received.
    pub packets: u64,
    /// Grant copies.
    pub copies: u64,
    /// Bytes that the grant copies moved.
    pub copied_bytes: u64,
    /// Grants mapped.
    pub maps: u64,
    /// Grants unmapped.
    pub unmaps: u64,
    /// Notifications sent.
    pub notifies: u64,
    /// Sleeps that an event ended.
    pub wakeups: u64,
}

impl Account {
    fn between(before: &Value, after: &Value, packets: u64) -> Self {
        let asked = |key: &str| {
            let [before, after] = [before, after].map(|end| count(&end["platform"][key]));
            after.saturating_sub(before)
        };
        Self {
            packets,
            copies: asked("copies"),
            copied_bytes: asked("copy_bytes"),
            maps: asked("maps"),
            unmaps: asked("unmaps"),
            notifies: asked("notifies"),
            wakeups: asked("wakeups"),
        }
    }

    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.copies += other.copies;
        self.copied_bytes += other.copied_bytes;
        self.maps += other.maps;
        self.unmaps += other.unmaps;
        self.notifies += other.notifies;
        self.wakeups += other.wakeups;
    }
}

/// Events between two samples of a rig.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    /// Packets that arrived.
    pub packets: u64,
    /// Packets that did not arrive, by their numbers.
    pub lost: u64,
    /// Slots of the packets that arrived.
    pub slots: u64,
    /// Signals that the receiving end took.
    pub interrupts: u64,
    /// Turns of the receiving end that found packets.
    pub turns: u64,
    /// Packets that the backend took from guests, dropped ones included.
    pub taken: u64,
    /// Packets that the backend gave to guests.
    pub given: u64,
    /// Accounts of the ends: the backend, then the guests.
    pub ends: Vec<Account>,
    /// Seconds between the two samples, by the receiving end's clock.
    pub seconds: f64,
    /// Number of packets by the nanoseconds that they were under way.
    pub latency: BTreeMap<u64, u64>,
}

impl Tally {
    /// Returns the difference between two samples.
    pub fn between(direction: Direction, before: &Sample, after: &Sample) -> Self {
        let grew = |read: &dyn Fn(&Sample) -> u64| read(after).saturating_sub(read(before));
        let at = |key| grew(&|s| count(&receiver(direction, s)[key]));
        let carried = |key: &str| grew(&|s| count(&stats(direction, s)[key]));
        let (packets, slots) = match direction.ends_at_backend() {
            true => ("tx_packets", "tx_slots"),
            false => ("rx_packets", "rx_slots"),
        };
        let (taken, given) = (grew(&|s| taken(&s.backend)), grew(&|s| given(&s.backend)));
        let handled = if direction == Direction::Rx { given } else { taken };
        let mut ends = vec![Account::between(&before.backend, &after.backend, handled)];
        for (guest, (first, last)) in before.guests.iter().zip(&after.guests).enumerate() {
            let key = direction.handled_by(guest);
            let handled = count(&last["stats"][key]).saturating_sub(count(&first["stats"][key]));
            ends.push(Account::between(first, last, handled));
        }
        Self {
            packets: carried(packets),
            lost: grew(&|s| count(&port(direction, s)["checked"]["lost"])),
            slots: carried(slots),
            interrupts: carried("interrupts"),
            turns: carried("turns"),
            taken,
            given,
            ends,
            seconds: at("at_ns") as f64 / 1e9,
            latency: latency(
                &port(direction, before)["latency_ns"],
                &port(direction, after)["latency_ns"],
            ),
        }
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.lost += other.lost;
        self.slots += other.slots;
        self.interrupts += other.interrupts;
        self.turns += other.turns;
        self.taken += other.taken;
        self.given += other.given;
        self.ends.resize(self.ends.len().max(other.ends.len()), Account::default());
        for (end, further) in self.ends.iter_mut().zip(&other.ends) {
            end.add(further);
        }
        self.seconds += other.seconds;
        for (&nanos, &packets) in &other.latency {
            *self.latency.entry(nanos).or_default() += packets;
        }
    }

    /// Returns the sum of the tallies.
    pub fn sum<'a>(tallies: impl Iterator<Item = &'a Self>) -> Self {
        tallies.fold(Self::default(), |mut sum, tally| {
            sum.add(tally);
            sum
        })
    }

    /// Returns true if a packet arrived, and each end handled one. Otherwise there is nothing to
    /// divide by.
    pub fn is_any(&self) -> bool {
        self.packets > 0 && self.ends.iter().all(|end| end.packets > 0)
    }

    /// Returns the packets per second.
    pub fn rate(&self) -> f64 {
        self.packets as f64 / self.seconds
    }

    /// Returns the sum of `of` over all ends.
    pub fn of_all(&self, of: impl Fn(&Account) -> u64) -> u64 {
        self.ends.iter().map(of).sum()
    }

    /// Divides `of` of each end by the packets that this end handled. Returns the sum of the
    /// quotients.
    pub fn per_packet(&self, of: impl Fn(&Account) -> u64) -> f64 {
        let ends = self.ends.iter().filter(|end| end.packets > 0);
        ends.map(|end| of(end) as f64 / end.packets as f64).sum()
    }
}

/// Returns the number of packets that a backend took from its guests.
pub fn taken(backend: &Value) -> u64 {
    let of_vif = |vif: &Value| -> u64 {
        let stats = vif["stats"].as_object().into_iter().flatten();
        let taken = |name: &str| name == "tx_packets" || name.starts_with("tx_dropped_");
        stats.filter(|(name, _)| taken(name)).map(|(_, n)| count(n)).sum()
    };
    backend["vifs"].as_array().into_iter().flatten().map(of_vif).sum()
}

/// Returns the number of packets that a backend gave to its guests.
pub fn given(backend: &Value) -> u64 {
    let vifs = backend["vifs"].as_array().into_iter().flatten();
    vifs.map(|vif| count(&vif["stats"]["rx_packets"])).sum()
}

/// Returns the report of the end at which the measured packets arrive.
fn receiver(direction: Direction, sample: &Sample) -> &Value {
    if direction.ends_at_backend() { &sample.backend } else { &sample.guests[0] }
}

/// Returns the counters of the vif at the receiving end.
fn stats(direction: Direction, sample: &Sample) -> &Value {
    match direction.ends_at_backend() {
        true => &sample.backend["vifs"][0]["stats"],
        false => &sample.guests[0]["stats"],
    }
}

/// Returns the report of the port behind the receiving end's vif.
fn port(direction: Direction, sample: &Sample) -> &Value {
    match direction.ends_at_backend() {
        true => &sample.backend["vifs"][0]["port"],
        false => &sample.guests[0]["port"],
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Returns the increase of a histogram. A report may have several histograms one behind the other,
/// which are added.
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
        let platform = json!({"copies": 60 * n, "copy_bytes": 640 * n, "maps": n, "unmaps": n,
            "notifies": 3 * n, "wakeups": 2 * n});
        let own = json!({"copies": 0, "notifies": 10 * n, "wakeups": n});
        let port = json!({"checked": {"lost": n}, "latency_ns": [[100, n], [200, 7]]});
        let stats = json!({
            "tx_packets": 10 * n, "tx_dropped_port": 3 * n, "tx_dropped_grant": 2 * n,
            "rx_packets": 20 * n, "rx_dropped_drained": 5 * n, "rx_slots": 40 * n,
        });
        let guest = json!({
            "at_ns": 1_000_000_000 * n, "stats": stats, "port": port, "platform": own,
        });
        let vif = json!({"stats": stats, "port": port});
        let backend = json!({
            "at_ns": 500_000_000 * n, "vifs": [vif, vif], "platform": platform,
        });
        Sample { backend, guests: vec![guest.clone(), guest] }
    }

    #[test]
    fn what_arrived_is_counted_by_the_receiving_end() {
        let tally = Tally::between(Direction::Tx, &sample(1), &sample(3));
        assert_eq!((tally.packets, tally.seconds, tally.lost), (20, 1.0, 2));
        let tally = Tally::between(Direction::GuestToGuest, &sample(1), &sample(3));
        assert_eq!((tally.packets, tally.slots, tally.seconds), (40, 80, 2.0));
        assert_eq!(tally.rate(), 20.0);
    }

    #[test]
    fn what_an_end_did_is_for_the_packets_of_that_end() {
        let between = |direction| Tally::between(direction, &sample(1), &sample(3));
        let tally = between(Direction::GuestToGuest);
        // Both vifs count, and dropped packets were taken, too.
        assert_eq!((tally.taken, tally.given), (60, 80));
        let handled = |tally: &Tally| tally.ends.iter().map(|end| end.packets).collect::<Vec<_>>();
        assert_eq!(handled(&tally), [60, 40, 20]);
        assert_eq!(handled(&between(Direction::Tx)), [60, 20, 20]);
        assert_eq!(handled(&between(Direction::Rx)), [80, 40, 40]);
        assert_eq!(tally.per_packet(|end| end.copies), 2.0);
        assert_eq!(tally.per_packet(|end| end.maps + end.unmaps), 4.0 / 60.0);
        // Each end's operations are divided by its own packets: 6 of 60, 20 of 40, 20 of 20.
        assert_eq!(tally.per_packet(|end| end.notifies), 0.1 + 0.5 + 1.0);
        assert_eq!((tally.of_all(|end| end.wakeups), tally.is_any()), (8, true));
    }

    /// The end that is read later has more in its report: more packets and more operations.
    #[test]
    fn when_the_other_end_is_read_changes_no_account() {
        let pair = |backend: u64, guest: u64| {
            let mut sample = sample(backend);
            sample.guests = self::sample(guest).guests;
            sample
        };
        for guest in [3, 4, 9] {
            let tally = Tally::between(Direction::Tx, &pair(1, 1), &pair(3, guest));
            assert_eq!(tally.per_packet(|end| end.copies), 2.0, "{guest}");
            assert_eq!(tally.per_packet(|end| end.notifies), 0.1 + 1.0 + 1.0, "{guest}");
        }
    }

    #[test]
    fn sums_are_by_end_and_an_end_that_did_nothing_is_told() {
        let tally = Tally::between(Direction::Rx, &sample(1), &sample(3));
        let sum = Tally::sum([&tally, &tally].into_iter());
        assert_eq!((sum.ends.len(), sum.ends[0].packets, sum.given), (3, 160, 160));
        assert_eq!(sum.per_packet(|end| end.copies), tally.per_packet(|end| end.copies));
        let mut still = sample(3);
        still.guests[0]["stats"] = sample(1).guests[0]["stats"].clone();
        assert!(tally.is_any() && sum.is_any());
        assert!(!Tally::between(Direction::Tx, &sample(1), &still).is_any());
        assert!(!Tally::default().is_any());
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
        assert_eq!((tally.packets, tally.taken, tally.latency.len()), (0, 0, 0));
        assert_eq!((tally.of_all(|end| end.copies), tally.per_packet(|end| end.copies)), (0, 0.0));
    }
}

//! Traces with known causes.

mod talk;

use grantway_flows::{Cause, Event, Limits, Ring};
use talk::{Flag, Talk};

#[test]
fn round_trips_windows_and_what_is_under_way() {
    for (stamps, v6, vlan) in
        [(false, false, None), (true, false, Some(5)), (false, true, None), (true, true, Some(9))]
    {
        let mut talk = Talk::new();
        (talk.stamps, talk.v6, talk.vlan) = (stamps, v6, vlan);
        talk.shake();
        for n in 0..10 {
            talk.data(2000 * n).data(2000 * n + 1000).wait(20).ack(2000 * (n + 1));
        }
        let flow = talk.flow();
        let ends = match v6 {
            false => ["10.0.0.1:40000", "10.0.0.2:5201"],
            true => ["[fd00::1]:40000", "[fd00::2]:5201"],
        };
        assert_eq!([&*flow.client, &*flow.server], ends);
        assert_eq!((flow.vlan, flow.packets), (vlan.unwrap_or(0), 33));
        let [client, server] = &flow.directions;
        let trips = client.rtt.unwrap();
        // The client's round trips are that of the handshake, and one for each of ten turns.
        assert_eq!((trips.samples, trips.min_ms, trips.max_ms), (11, 10.0, 20.0));
        assert_eq!(client.payload_bytes, 20_000);
        assert_eq!(client.in_flight_max, 2000);
        assert_eq!(client.window_max, 10_000 << 7);
        assert_eq!((client.retransmissions, client.duplicate_acks, client.out_of_order), (0, 0, 0));
        assert_eq!(server.payload_bytes, 0);
        assert!((flow.seconds - 0.21).abs() < 1e-9 && flow.stalls.is_empty());
        assert!((client.mbit_per_second - 160_000.0 / 210_000.0).abs() < 1e-9);
        assert!((client.waiting_s - 0.21).abs() < 1e-9, "{}", client.waiting_s);
    }
}

#[test]
fn a_segment_that_is_lost_at_the_end_is_the_networks_stall() {
    let mut talk = Talk::new();
    talk.shake().data(0).wait(10).ack(1000).data(1000).wait(300).data(1000).wait(600).data(1000);
    talk.wait(10).ack(2000);
    // Both waits are one stall, since nothing moved in between.
    assert_eq!(talk.stalls(), [(20, 900, Cause::Network)]);
    let client = &talk.flow().directions[0];
    assert_eq!((client.retransmissions, client.retransmitted_bytes), (2, 2000));
    // By Karn, the last acknowledgement may be for either segment, so it is not measured.
    assert_eq!(talk.flow().directions[0].rtt.unwrap().max_ms, 10.0);
}

#[test]
fn timestamps_tell_which_one_was_answered() {
    let mut talk = Talk::new();
    talk.stamps = true;
    talk.shake().data(0).wait(300).data(0).wait(15).ack(1000);
    assert_eq!(talk.flow().directions[0].rtt.unwrap().max_ms, 15.0);
}

#[test]
fn a_window_that_is_shut_or_full() {
    let mut talk = Talk::new();
    talk.shake().data(0).wait(10);
    talk.windows[1] = 0;
    talk.ack(1000);
    // Probes are an old byte and a new one. Neither is data that moves.
    talk.wait(200).send(0, 999, 1, Flag::None).send(1, 0, 0, Flag::None);
    talk.wait(200).send(0, 1000, 1, Flag::None).send(1, 0, 0, Flag::None);
    talk.wait(100);
    talk.windows[1] = 10_000;
    talk.ack(1000).wait(5).data(1000);
    let flow = talk.flow();
    assert_eq!(talk.stalls(), [(10, 515, Cause::Window)]);
    assert_eq!((flow.directions[0].zero_windows, flow.directions[0].retransmissions), (1, 0));

    let mut talk = Talk::new();
    talk.windows[1] = 16; // of 128 bytes each
    talk.shake().data(0).data(1000).wait(400);
    talk.ack(2000).data(2000);
    assert_eq!(talk.stalls(), [(10, 400, Cause::Window)]);
    assert_eq!(talk.flow().directions[0].window_max, 2048);
}

#[test]
fn a_sender_without_anything_to_send() {
    let mut talk = Talk::new();
    talk.shake().data(0).wait(10).ack(1000).wait(490).data(1000).wait(10).ack(2000);
    // A late answer is a stall of the server, and the client's data is not late.
    talk.wait(200).send(1, 0, 500, Flag::None).wait(10);
    talk.acked[0] = 500;
    talk.send(0, 2000, 0, Flag::None).wait(50).data(2000).wait(10).ack(3000);
    // Silence before the end is no stall.
    talk.wait(5000).send(0, 3000, 0, Flag::Fin);
    assert_eq!(talk.stalls(), [(10, 500, Cause::Sender), (510, 210, Cause::Sender)]);
    let directions: Vec<_> = talk.flow().stalls.iter().map(|stall| stall.direction).collect();
    assert_eq!(directions, [0, 1]);
}

#[test]
fn rings_and_wake_ups_are_told_by_events_only() {
    let stalls = |events: &[(u64, Event)]| {
        let mut talk = Talk::new();
        talk.shake().data(0).data(1000).wait(10).ack(2000);
        let ring = talk.ring;
        for &(after, event) in events {
            talk.wait(after);
            talk.flows.event(talk.now, ring, event);
        }
        let told: u64 = events.iter().map(|(after, _)| after).sum();
        talk.wait(600 - told).data(2000);
        talk.stalls()
    };
    use Event::{RingDrained, RingFull, Woken};
    assert_eq!(stalls(&[]), [(10, 610, Cause::Sender)]);
    let full = [(0, RingFull), (500, RingDrained), (1, Woken)];
    assert_eq!(stalls(&full), [(10, 610, Cause::Ring)]);
    let asleep = [(0, RingFull), (20, RingDrained), (570, Woken)];
    assert_eq!(stalls(&asleep), [(10, 610, Cause::WakeUp)]);
    assert_eq!(stalls(&asleep[..2]), [(10, 610, Cause::WakeUp)], "the data shows that it woke");
    assert_eq!(stalls(&[(500, RingFull)]), [(10, 610, Cause::Sender)]);
    // The events are of another interface's ring.
    let mut talk = Talk::new();
    talk.shake().data(0).wait(10).ack(1000);
    talk.flows.event(talk.now, Ring { interface: 3, ..Ring::default() }, RingFull);
    talk.wait(600).data(1000);
    assert_eq!(talk.stalls(), [(10, 610, Cause::Sender)]);
}

/// The events are those of a guest that is held by its rate: its ring stays full from one time at
/// which it may send to the next.
#[test]
fn stalls_of_one_full_ring_are_all_the_rings() {
    let mut talk = Talk::new();
    talk.shake();
    let ring = talk.ring;
    for n in 0..5 {
        talk.data(2000 * n).data(2000 * n + 1000);
        talk.flows.event(talk.now, ring, Event::RingFull);
        // All that was sent is acknowledged early. Without the event, the sender would be the
        // cause.
        talk.wait(30).ack(2000 * (n + 1)).wait(370);
    }
    talk.data(10_000);
    talk.flows.event(talk.now, ring, Event::RingDrained);
    talk.wait(1).data(11_000).wait(400).data(12_000);
    let ring = (0..5).map(|n| (10 + 400 * n, 400, Cause::Ring));
    assert_eq!(talk.stalls(), ring.chain([(2011, 400, Cause::Unknown)]).collect::<Vec<_>>());
}

#[test]
fn a_ring_has_to_be_full_for_half_of_a_stall() {
    for (full, cause) in [(199, Cause::Sender), (200, Cause::Ring), (201, Cause::Ring)] {
        // The ring is full at the end of a stall, or at its beginning.
        for late in [false, true] {
            let mut talk = Talk::new();
            talk.shake().data(0).wait(10).ack(1000).wait(90).data(1000);
            let ring = talk.ring;
            talk.ack(2000).wait(if late { 400 - full } else { 0 });
            talk.flows.event(talk.now, ring, Event::RingFull);
            talk.wait(full);
            talk.flows.event(talk.now, ring, Event::RingDrained);
            talk.flows.event(talk.now, ring, Event::Woken);
            talk.wait(if late { 0 } else { 400 - full }).data(2000);
            let stalls = talk.stalls();
            assert_eq!(stalls.last(), Some(&(110, 400, cause)), "{full} ms, {late}: {stalls:?}");
        }
    }
}

#[test]
fn going_on_without_a_reason_is_not_known() {
    let mut talk = Talk::new();
    talk.shake().data(0).wait(250).data(1000);
    assert_eq!(talk.stalls(), [(10, 250, Cause::Unknown)]);
    // A long round trip is no stall.
    let mut talk = Talk::new();
    talk.send(0, 0, 0, Flag::Syn).wait(400).send(1, 0, 0, Flag::Syn).send(0, 0, 0, Flag::None);
    talk.data(0).wait(400).ack(1000).data(1000).wait(400).ack(2000).data(2000);
    assert_eq!(talk.stalls(), []);
}

#[test]
fn a_stall_that_goes_on_at_the_end() {
    let mut talk = Talk::new();
    talk.shake().data(0).wait(10).ack(1000).data(1000).wait(800);
    // Another packet shows that time passes.
    talk.give(&[0; 60]);
    assert_eq!(talk.stalls(), [(20, 800, Cause::Unknown)]);
    assert!(!talk.flow().stalls[0].ended);
    talk.data(1000).wait(500);
    talk.flows.advance(talk.now);
    assert_eq!(talk.stalls(), [(20, 1300, Cause::Network)]);
    talk.send(1, 0, 0, Flag::Reset).wait(9000).give(&[0; 60]);
    assert_eq!(talk.stalls(), [(20, 800, Cause::Network)], "closed");
}

#[test]
fn out_of_order_is_not_sent_again() {
    for stamps in [false, true] {
        let mut talk = Talk::new();
        talk.stamps = stamps;
        talk.shake();
        let early = talk.frame(0, 0, 1000, Flag::None);
        talk.data(1000).give(&early).data(2000).wait(10);
        // The segment is lost before the capture, and sent again.
        talk.data(4000).ack(3000).ack(3000).ack(3000).wait(60).data(3000).wait(10).ack(5000);
        let client = &talk.flow().directions[0];
        assert_eq!((client.out_of_order, client.retransmissions), (1, 1), "{stamps}");
        assert_eq!(client.retransmitted_bytes, 1000);
        assert_eq!(client.duplicate_acks, 2);
        assert_eq!(client.payload_bytes, 5000);
    }
}

#[test]
fn another_flow_between_the_same_ends() {
    let mut talk = Talk::new();
    talk.shake().data(0).wait(10).ack(1000);
    talk.send(0, 1000, 0, Flag::Fin);
    talk.acked = [1, 1001];
    talk.send(1, 0, 0, Flag::Fin).send(0, 1001, 0, Flag::None);
    assert!(talk.flow().closed);
    talk.acked = [0; 2];
    talk.wait(10).shake().data(0);
    let report = talk.report();
    assert_eq!(report.flows.iter().map(|flow| flow.packets).collect::<Vec<_>>(), [8, 4]);
    // Two interfaces make two flows, so nothing counts as sent again.
    talk.point = 1;
    talk.data(0);
    assert_eq!(talk.report().flows.len(), 3);
    assert!(talk.report().flows.iter().all(|flow| flow.directions[0].retransmissions == 0));
}

#[test]
fn where_there_are_too_many_the_small_ones_that_are_over_go() {
    let limits = Limits { flows: 8, points: 64, ..Limits::default() };
    let mut talk = Talk::with(limits);
    for port in 0..8 {
        talk.client_port = port;
        talk.shake().data(0).data(1000);
        if port < 5 {
            for n in 0..u32::from(port) {
                talk.data(2000 + 1000 * n);
            }
            talk.send(0, 9000, 0, Flag::Reset);
        }
    }
    talk.client_port = 100;
    talk.shake().data(0);
    let report = talk.report();
    assert_eq!(report.flows.len(), 7);
    assert_eq!(report.skipped.forgotten_flows, 2);
    assert!(report.flows.iter().all(|flow| ![":0", ":1"].iter().any(|p| flow.client.ends_with(p))));
    // None of the other flows is over once these are gone.
    for port in 101..200 {
        talk.client_port = port;
        talk.data(0);
    }
    let report = talk.report();
    assert!(report.flows.len() <= 8 && report.skipped.forgotten.packets > 80, "{report:?}");
    let told: u64 = report.flows.iter().map(|flow| flow.packets).sum();
    assert_eq!(told + report.skipped.forgotten.packets, report.all.packets);
}

#[test]
fn what_is_no_flow_is_counted() {
    let mut talk = Talk::new();
    let whole = talk.frame(0, 0, 100, Flag::None);
    talk.give(&[]).give(&[0; 60]).give(&whole[..50]);
    let report = talk.report();
    assert!(report.flows.is_empty());
    assert_eq!((report.skipped.other.packets, report.skipped.unread.packets), (2, 1));
    // The headers of a long frame are enough.
    let (time, ring) = (talk.now, talk.ring);
    let packet =
        grantway_flows::Packet { time, head: &whole[..54], length: whole.len(), point: 0, ring };
    talk.flows.packet(&packet);
    assert_eq!(talk.flow().directions[0].payload_bytes, 100);
}

/// A sender loses segments at random, by a seed, and sends each again after a known time.
#[test]
fn losses_by_a_seed_are_all_found() {
    for seed in 1..40_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut talk = Talk::new();
        talk.stamps = seed % 2 == 0;
        talk.shake();
        let (mut resent, mut expected) = (0, Vec::new());
        let start = talk.now - 10_000_000;
        // Each segment may be lost once, and is acknowledged before the next one.
        for n in 0..200 {
            talk.wait(1).data(1000 * n);
            let since = (talk.now - start) / 1_000_000;
            if random(10) == 0 {
                let timeout = 200 + random(300);
                talk.wait(timeout).data(1000 * n);
                resent += 1;
                expected.push((since, timeout, Cause::Network));
            }
            talk.wait(5 + random(20)).ack(1000 * (n + 1));
        }
        // Each loss is one stall, of exactly its time-out.
        let flow = talk.flow();
        let client = &flow.directions[0];
        let again = (client.retransmissions, client.retransmitted_bytes);
        assert_eq!(again, (resent, 1000 * resent), "seed {seed}");
        assert_eq!(talk.stalls(), expected, "seed {seed}");
        let trips = client.rtt.unwrap();
        assert!(trips.min_ms >= 5.0 && trips.max_ms < 25.0, "seed {seed}: {trips:?}");
        assert_eq!(client.payload_bytes, 200_000);
    }
}

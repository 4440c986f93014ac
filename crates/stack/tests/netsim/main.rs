//! TCP between two stacks over a simulated link: loss, reordering, jitter, and queues that are too
//! short, by a seed and by a clock of the simulation's own. `table.txt` has the result of each row.
//! `GRANTWAY_KEEP=1` writes it anew.

mod host;
mod wire;

use grantway_frontend::BackendFeatures;
use grantway_stack::smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer};
use grantway_stack::smoltcp::time::{Duration, Instant};
use grantway_stack::{FlowState, tcp_socket};
use grantway_testkit::Numbers;
use host::{End, Host, address};
use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::rc::Rc;
use wire::{Path, Wire};

const PORT: u16 = 5001;
/// Seeds of a row under congestion control on whose path chance decides. The row has the outcome of the
/// median time.
const SEEDS: u64 = 5;
/// Bytes of a row.
const BYTES: usize = 8_000_000;
/// Room of a socket for bytes to be sent, and for bytes that came.
const WINDOW: usize = 1 << 20;
/// Simulated time of a row after which it is taken to stand still, in nanoseconds.
const LONGEST: u64 = 600 * 1_000_000_000;

const MICROSECOND: u64 = 1000;
const MILLISECOND: u64 = 1_000_000;
const PERCENT: u32 = 10_000;

/// Two guests of one host: 10 Gbit/s, and 100 us there and back.
const HOST: Path = Path {
    rate: 10_000_000_000,
    delay: 50 * MICROSECOND,
    queue: 1000,
    loss: 0,
    reorder: 0,
    jitter: 0,
};
/// A line: 1 Gbit/s, and 20 ms there and back.
const LINE: Path = Path { rate: 1_000_000_000, delay: 10 * MILLISECOND, ..HOST };

const PATHS: [(&str, Path); 13] = [
    ("host", HOST),
    ("host, txqueuelen 500", Path { queue: 500, ..HOST }),
    ("host, txqueuelen 32", Path { queue: 32, ..HOST }),
    ("host, loss 0.1 %", Path { loss: PERCENT / 10, ..HOST }),
    ("host, loss 1 %", Path { loss: PERCENT, ..HOST }),
    ("host, loss 5 %", Path { loss: 5 * PERCENT, ..HOST }),
    ("host, reorder 1 %", Path { reorder: PERCENT, ..HOST }),
    ("line", LINE),
    ("line, txqueuelen 32", Path { queue: 32, ..LINE }),
    ("line, loss 0.1 %", Path { loss: PERCENT / 10, ..LINE }),
    ("line, loss 1 %", Path { loss: PERCENT, ..LINE }),
    ("line, reorder 1 %", Path { reorder: PERCENT, ..LINE }),
    ("line, jitter 1 ms", Path { jitter: MILLISECOND, ..LINE }),
];

const CONTROLS: [(&str, CongestionControl); 3] = [
    ("none", CongestionControl::None),
    ("reno", CongestionControl::Reno),
    ("cubic", CongestionControl::Cubic),
];

/// Result of a row.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    /// Simulated time until the last byte came, and none if it did not come.
    time: Option<u64>,
    /// Frames with payload that were sent.
    frames: u64,
    /// Bytes of payload that were sent more than once.
    again: u64,
    /// Frames that the queue dropped, on the way of the payload.
    dropped: u64,
    /// Frames that the wire lost, on the way of the payload.
    lost: u64,
    /// The state of the sender's flow at the end, and the most of some values on the way.
    log: Log,
}

/// The sender's log of its flow.
#[derive(Debug, Clone, Copy, Default)]
struct Log {
    last: Option<FlowState>,
    congestion_max: u32,
    congestion_min: Option<u32>,
    in_flight_max: u32,
    rto_max: Duration,
    rtt_min: Option<Duration>,
}

impl Log {
    fn take(&mut self, state: &FlowState) {
        self.last = Some(*state);
        let least = |one: Option<u32>, other| one.into_iter().chain(other).min();
        self.congestion_max = self.congestion_max.max(state.congestion.unwrap_or(0));
        self.congestion_min = least(self.congestion_min, state.congestion);
        self.in_flight_max = self.in_flight_max.max(state.in_flight);
        self.rto_max = self.rto_max.max(state.rto.unwrap_or(Duration::ZERO));
        self.rtt_min = self.rtt_min.into_iter().chain(state.rtt).min();
    }
}

/// Sends [`BYTES`] over a path, by segments or, if `large`, by frames of up to 64 KiB. Checks that
/// they come as they were sent.
fn transfer(path: Path, control: CongestionControl, large: bool, seed: u64) -> Outcome {
    transfer_to(false, path, control, large, seed)
}

/// Sends [`BYTES`] over a path, as [`transfer`] does. The receiver's window changes with each frame if
/// it `grows`.
fn transfer_to(
    grows: bool,
    path: Path,
    control: CongestionControl,
    large: bool,
    seed: u64,
) -> Outcome {
    let features = match large {
        true => BackendFeatures {
            scatter_gather: true,
            gso_tcpv4: true,
            checksum_ipv4: true,
            queues: 1,
            ..BackendFeatures::default()
        },
        false => BackendFeatures { queues: 1, ..BackendFeatures::default() },
    };
    let mut numbers = Numbers::new(seed);
    let clock = Rc::new(Cell::new(0));
    let mut wire = || Rc::new(RefCell::new(Wire::new(path, numbers.fork())));
    let (there, back) = (wire(), wire());
    let host = |number, out: &Rc<RefCell<Wire>>, back: &Rc<RefCell<Wire>>| {
        let (out, back, clock) = (Rc::clone(out), Rc::clone(back), Rc::clone(&clock));
        Host::new(
            number,
            End { out, back, clock, features, grows: Cell::default(), sent: Cell::default() },
        )
    };
    let mut hosts = [host(1, &there, &back), host(2, &back, &there)];
    let [sender, receiver] = hosts.each_mut().map(|host| {
        let send = SocketBuffer::new(vec![0; WINDOW]);
        let mut socket = tcp_socket(WINDOW, send, Duration::from_secs(600));
        socket.set_congestion_control(control);
        host.sockets.add(socket)
    });
    hosts[1].get(receiver).listen(PORT).unwrap();
    let Host { sockets, interface, .. } = &mut hosts[0];
    let socket: &mut Socket<'_> = sockets.get_mut(sender);
    socket.connect(interface.context(), (address(2), PORT), 40_000).unwrap();

    hosts[0].device.log_flows(true);
    hosts[1].device.link().unwrap().grows.set(grows.then_some(0));
    let mut log = Log::default();
    let (mut wrote, mut read) = (0, 0);
    while read < BYTES {
        let now = Instant::from_micros((clock.get() / 1000) as i64);
        hosts.iter_mut().for_each(|host| host.receive(now));
        // Twice, since the room may lie at both ends of the buffer.
        for _ in 0..2 {
            let sent = hosts[0].get(sender).send(|room| {
                let len = room.len().min(BYTES - wrote);
                room[..len].iter_mut().zip(wrote..).for_each(|(byte, n)| *byte = (n % 251) as u8);
                (len, len)
            });
            wrote += sent.unwrap_or(0);
            let got = hosts[1].get(receiver).recv(|bytes| {
                let right = bytes.iter().zip(read..).all(|(&byte, n)| byte == (n % 251) as u8);
                assert!(right, "other bytes came, from byte {read} on");
                (bytes.len(), bytes.len())
            });
            read += got.unwrap_or(0);
        }
        hosts.iter_mut().for_each(|host| host.send(now));
        let Host { device, sockets, .. } = &mut hosts[0];
        let queue = sockets.get::<Socket<'_>>(sender).send_queue();
        device.flow_states(|_| Some(queue), &mut |state| log.take(state));
        // Nothing happens until a frame arrives or a socket has something to do.
        let arrival = [&there, &back].map(|wire| wire.borrow().next());
        let due = hosts.each_mut().map(|host| host.due(now));
        let next = arrival.into_iter().chain(due).flatten().min();
        let next = next.expect("a socket that waits for something").max(clock.get() + 1000);
        if next >= LONGEST {
            break;
        }
        // smoltcp's clock has microseconds.
        clock.set(next.next_multiple_of(1000));
    }
    let (frames, bytes) = hosts[0].device.link().unwrap().sent.get();
    let wire = there.borrow();
    Outcome {
        time: (read == BYTES).then_some(clock.get()),
        frames,
        again: bytes.saturating_sub(wrote as u64),
        dropped: wire.dropped,
        lost: wire.lost,
        log,
    }
}

fn line(text: &mut String, name: &str, form: &str, control: &str, outcome: &Outcome) {
    let Outcome { time, frames, again, dropped, lost, .. } = *outcome;
    let (ms, rate) = match time {
        Some(time) => (
            format!("{:.1}", time as f64 / 1e6),
            format!("{:.1}", BYTES as f64 * 8.0 / time as f64 * 1000.0),
        ),
        None => ("-".to_owned(), "-".to_owned()),
    };
    let _ = writeln!(
        text,
        "{name:<22} {form:<8} {control:<5} {ms:>9} {rate:>7} {frames:>7} {again:>9} {dropped:>7} {lost:>5}"
    );
}

/// Returns the outcome of the median time, of all seeds.
fn median(path: Path, control: CongestionControl, large: bool) -> Outcome {
    let controlled = control != CongestionControl::None;
    let seeds = if controlled && path.is_by_chance() { SEEDS } else { 1 };
    let mut outcomes: Vec<_> =
        (1..=seeds).map(|seed| transfer(path, control, large, seed)).collect();
    outcomes.sort_by_key(|outcome| outcome.time.unwrap_or(LONGEST));
    outcomes[outcomes.len() / 2]
}

#[test]
fn every_path_carries_all_bytes_as_the_table_says() {
    let mut text = format!(
        "{:<22} {:<8} {:<5} {:>9} {:>7} {:>7} {:>9} {:>7} {:>5}\n",
        "path", "frames", "", "ms", "Mbit/s", "sent", "B again", "dropped", "lost"
    );
    for (name, path) in PATHS {
        for (form, large) in [("segments", false), ("large", true)] {
            for (called, control) in CONTROLS {
                let outcome = median(path, control, large);
                line(&mut text, name, form, called, &outcome);
                let controlled = control != CongestionControl::None;
                assert!(outcome.time.is_some() || !controlled, "{name}, {form}, {called}");
                let clean = outcome.dropped == 0 && !path.is_by_chance();
                assert!(!clean || outcome.again == 0, "{name}, {form}, {called}");
            }
        }
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/netsim/table.txt");
    if std::env::var_os("GRANTWAY_KEEP").is_some() {
        std::fs::write(file, &text).unwrap();
    }
    let kept = std::fs::read_to_string(file).unwrap_or_default();
    for (found, expected) in text.lines().zip(kept.lines()) {
        assert_eq!(found, expected, "GRANTWAY_KEEP=1 keeps the new table");
    }
    assert_eq!(text.lines().count(), kept.lines().count());
}

#[test]
fn a_short_queue_drops_less_under_congestion_control() {
    let path = Path { queue: 32, ..HOST };
    for seed in 1..5 {
        let [none, reno, cubic] = CONTROLS.map(|(_, control)| transfer(path, control, false, seed));
        for controlled in [reno, cubic] {
            assert!(controlled.dropped * 2 < none.dropped, "{controlled:?}, {none:?}");
            assert!(controlled.again * 2 < BYTES as u64, "{controlled:?}");
        }
    }
}

#[test]
fn losses_are_found_before_the_timer_though_the_receivers_window_changes() {
    let path = Path { loss: PERCENT, ..LINE };
    for (seed, grows) in (1..5).flat_map(|seed| [(seed, false), (seed, true)]) {
        let outcome = transfer_to(grows, path, CongestionControl::Reno, false, seed);
        let last = outcome.log.last.unwrap();
        let text = format!("seed {seed}, {grows}: {outcome:?}");
        assert!(outcome.lost > 50 && outcome.time.is_some(), "{text}");
        // A segment that is lost is sent again, and little else. One in ten waits for an answer.
        assert!(outcome.again < 2 * 1460 * outcome.lost, "{text}");
        assert!(last.timeouts * 10 <= outcome.lost, "{text}");
        assert!(outcome.log.rto_max < Duration::from_secs(1), "{text}");
    }
}

#[test]
fn a_segment_that_is_lost_again_seldom_waits_for_the_timer() {
    // Loss in percent, and the most waits for an answer per thousand lost segments.
    for (name, path, loss, most) in [
        ("host", HOST, 3, 15),
        ("host", HOST, 10, 130),
        ("line", LINE, 3, 30),
        ("line", LINE, 10, 140),
    ] {
        let path = Path { loss: loss * PERCENT, ..path };
        let (mut lost, mut again, mut waits) = (0, 0, 0);
        for seed in 1..=8 {
            let outcome = transfer(path, CongestionControl::Reno, false, seed);
            assert!(outcome.time.is_some(), "{name}, {loss} %, seed {seed}: {outcome:?}");
            lost += outcome.lost;
            again += outcome.again / 1448;
            waits += outcome.log.last.unwrap().timeouts;
        }
        let text = format!("{name}, {loss} %: {waits} waits, {lost} lost, {again} sent again");
        println!("{text}");
        assert!(1000 * waits <= most * lost, "{text}");
        assert!(100 * again <= 105 * lost, "{text}");
    }
}

#[test]
fn the_log_of_a_flow_says_what_the_wire_saw() {
    for (name, path) in PATHS {
        for (called, control) in CONTROLS.into_iter().filter(|(called, _)| *called != "none") {
            let outcome = transfer(path, control, false, 2);
            let log = outcome.log;
            let last = log.last.unwrap_or_else(|| panic!("no state: {name}, {called}"));
            let text = format!("{name}, {called}: {outcome:?}");
            assert_eq!((last.sent, last.again_bytes), (BYTES as u64, outcome.again), "{text}");
            assert!(last.acked <= last.sent && log.in_flight_max <= WINDOW as u32 + 1, "{text}");
            // Each is what sends again at all.
            let causes = last.timeouts + last.fast;
            assert_eq!(last.again > 0, causes > 0, "{text}");
            assert!(causes <= last.again, "{text}");
            assert!(last.timeouts == 0 || log.rto_max >= Duration::from_millis(200), "{text}");
            // A round trip is no shorter than the way there and back, unless frames overtake.
            let trip = log.rtt_min.expect("a round trip");
            let way = Duration::from_micros(2 * path.delay / 1000);
            assert!(trip >= way || path.reorder > 0, "{text}");
            // A congestion window begins with two segments, and grows.
            assert!(log.congestion_min.is_some_and(|least| least <= 4096), "{text}");
            assert!(log.congestion_max > 8 * 1460, "{text}");
        }
    }
}

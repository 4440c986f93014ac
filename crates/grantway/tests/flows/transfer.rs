//! A transfer over a link that delays and loses by count, captured where it is sent:
//! its counts against the kernel's own. Its times are tested by traces of which all is
//! known, in `grantway-flows`.
//!
//! The link is a thread between two TAPs, since not every kernel has netem.

use super::common::network::{Namespace, available};
use super::common::part::Part;
use super::common::{PROMPT, alone, grantway_with, say, wait_for};
use super::json;
use grantway_netif::Offload;
use grantway_netif::headers::{self, Protocol};
use grantway_ports::{Port, RECV_BUFFER, Tap, TapConfig, TapOffloads};
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Travel time of a frame in each direction.
const DELAY: Duration = Duration::from_millis(10);
/// One segment of so many is lost on its way to the server, the first time that it is sent.
const LOST: u64 = 150;
/// Bytes of the transfer.
const SIZE: usize = 12 << 20;
const PORT: u16 = 5207;
/// Most frames under way, each way: a window of TCP is less.
const QUEUE: usize = 20_000;

/// Ends the thread of a link when dropped.
struct Running(Arc<AtomicBool>, Option<std::thread::JoinHandle<u64>>);

/// Returns the TCP number behind a segment's payload, if the frame has one.
fn payload_end(frame: &[u8]) -> Option<u32> {
    let found =
        headers::read(frame, frame.len()).ok().filter(|found| found.protocol == Protocol::Tcp)?;
    let payload = u32::try_from(found.end - found.header_end).expect("a frame's");
    let begin = frame[found.start + 4..found.start + 8].try_into().expect("four bytes");
    (payload > 0).then(|| u32::from_be_bytes(begin).wrapping_add(payload))
}

impl Running {
    /// Returns the number of lost segments.
    fn end(mut self) -> u64 {
        self.0.store(true, Relaxed);
        self.1.take().map_or(0, |thread| thread.join().expect("the link"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn link(mut taps: [Tap; 2]) -> Running {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let mut waiting: [VecDeque<(Instant, Vec<u8>)>; 2] = Default::default();
        let (mut lost, mut first, mut sent_to) = (0, 0, None);
        let mut buffer = vec![0; RECV_BUFFER];
        while !stopped.load(Relaxed) {
            let mut quiet = true;
            for side in 0..2 {
                while let Ok(Some(meta)) = taps[side].recv(&mut buffer) {
                    quiet = false;
                    let frame = &buffer[..meta.len];
                    assert!(waiting[side].len() < QUEUE, "no window of TCP is so large");
                    if let Some(end) = payload_end(frame).filter(|_| side == 0) {
                        // What is sent again crosses: each that was lost is sent again once.
                        if sent_to.is_none_or(|to| end.wrapping_sub(to).cast_signed() > 0) {
                            (first, sent_to) = (first + 1, Some(end));
                            if first % LOST == 0 {
                                lost += 1;
                                continue;
                            }
                        }
                    }
                    // Not from when the round began: this thread may have stood still since.
                    waiting[side].push_back((Instant::now() + DELAY, frame.to_vec()));
                }
                let now = Instant::now();
                while waiting[side].front().is_some_and(|(due, _)| *due <= now) {
                    let (_, frame) = waiting[side].pop_front().expect("a frame");
                    // A TAP that is going down takes none.
                    let _ = taps[1 - side].send(&frame, Offload::default());
                }
                let _ = taps[1 - side].flush();
            }
            if quiet {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        lost
    });
    Running(stop, Some(thread))
}

fn counter(namespace: &Namespace, name: &str) -> u64 {
    let shown = namespace.run("nstat", &["-aszj", name]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON of nstat");
    shown["kernel"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {shown}"))
}

/// Segments that a report says were sent again by the client.
fn told(report: &Value) -> u64 {
    let flows = report["flows"].as_array().into_iter().flatten();
    flows.filter_map(|flow| flow["directions"][0]["retransmissions"].as_u64()).sum()
}

/// Carries bytes from one namespace to the other.
fn transfer(client: &Namespace, server: &Namespace) {
    let (listens, ready) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            server.enter();
            let listener = TcpListener::bind(("10.99.7.2", PORT)).expect("to listen");
            listens.send(()).expect("somebody to tell");
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.set_read_timeout(Some(PROMPT)).expect("a bound");
            let mut bytes = vec![0; SIZE];
            stream.read_exact(&mut bytes).expect("all of it");
            stream.write_all(&[1]).expect("a word that all came");
            // It stays open until the other end has that.
            let _ = stream.read(&mut [0]);
        });
        scope.spawn(move || {
            client.enter();
            ready.recv_timeout(PROMPT).expect("a listener");
            let mut stream = TcpStream::connect(("10.99.7.2", PORT)).expect("to connect");
            stream.set_read_timeout(Some(PROMPT)).expect("a bound");
            stream.set_write_timeout(Some(PROMPT)).expect("a bound");
            stream.write_all(&vec![7; SIZE]).expect("to send");
            stream.read_exact(&mut [0]).expect("a word that all came");
        });
    });
}

#[test]
fn retransmissions_are_those_of_the_kernel() {
    if !available(&["ip", "tcpdump", "nstat"]) {
        return;
    }
    let _alone = alone();
    let sides = [Namespace::new("c"), Namespace::new("d")];
    // They begin where the test runs, maybe beside another run of it.
    let names = ["a", "b"].map(|side| format!("gwf{side}{}", std::process::id()));
    let taps = names.each_ref().map(|name| {
        let mut config = TapConfig::named(name);
        config.offloads = TapOffloads::NONE;
        Tap::open(&config).expect("a TAP")
    });
    for (number, (name, side)) in (1..).zip(names.iter().zip(&sides)) {
        super::common::succeed(
            {
                let mut command = std::process::Command::new("ip");
                command.args(["link", "set", name, "netns", side.name()]);
                command
            },
            PROMPT,
        );
        side.address(name, 7, number);
    }
    let running = link(taps);
    let [client, server] = &sides;
    client.wait_ping("10.99.7.2");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.pcap");
    let file = path.to_str().expect("a path");
    let args =
        ["-i", &names[0], "-s", "128", "-B", "32768", "--immediate-mode", "-U", "-w", file, "tcp"];
    let mut capture = Part::spawn("tcpdump", client.command_with("tcpdump", &args));
    capture.wait_said("listening on", PROMPT);
    let before = counter(client, "TcpRetransSegs");
    transfer(client, server);
    let resent = || counter(client, "TcpRetransSegs") - before;
    // tcpdump is to have seen the last of it.
    wait_for("all that was sent again to be captured", PROMPT, || {
        let output = super::common::finish(grantway_with(&["flows", "--json", file]), PROMPT);
        let report: Value = serde_json::from_slice(&output.stdout).ok()?;
        (told(&report) == resent()).then_some(())
    });
    capture.interrupt();
    capture.wait_end(PROMPT);
    let (said, resent) = (capture.said(), resent());
    let lost = running.end();
    assert!(said.contains("0 packets dropped by kernel"), "the capture is not whole: {said}");
    let report = json(&path, &[]);
    let flows = report["flows"].as_array().expect("flows");
    let told = told(&report);
    let main = &flows[0]["directions"][0];
    let trips = &main["rtt"];
    let [least, mean] = ["min_ms", "mean_ms"].map(|key| trips[key].as_f64().expect("a time"));
    say(format!(
        "{lost} lost; sent again: {resent} by the kernel, {told} told; round trips: {least:.2} ms \
         at least, {mean:.2} in the mean, {} measured",
        trips["samples"]
    ));
    assert_eq!(told, resent, "{report}");
    // Those that the TAP itself had no room for came second, and are none of these.
    assert!(lost > 10, "{lost} lost");
    // What was held up may be sent again, too.
    assert!(told >= lost, "{lost} lost, {told} sent again");
    // The capture is taken between the kernel and the link, which holds each frame for 10 ms by
    // another clock: a round trip is never shorter there than the link's.
    assert!(least >= 19.9 && mean >= least, "{trips}");
    let measured = trips["samples"].as_u64().expect("a count");
    let answers = flows[0]["directions"][1]["packets"].as_u64().expect("a count");
    assert!(measured > 0 && measured <= answers, "{measured} measured of {answers} answers");
    assert_eq!(main["payload_bytes"].as_u64(), Some(SIZE as u64), "{main}");
}

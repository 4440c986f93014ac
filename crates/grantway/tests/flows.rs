//! `grantway flows`: captures of which all is known, a real transfer, and the page in
//! a real browser.

#[path = "flows/browser.rs"]
mod browser;
mod common;
#[path = "flows/live.rs"]
mod live;
#[path = "flows/transfer.rs"]
mod transfer;

use common::{PROMPT, alone, finish, grantway_with, succeed, words};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// A millisecond, in nanoseconds.
const MS: u64 = 1_000_000;

/// A pcapng file, written by a few lines of this test.
pub struct Trace {
    bytes: Vec<u8>,
    /// In nanoseconds.
    now: u64,
}

/// Sender of the data: the client or the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Client,
    Server,
}

impl Trace {
    fn new() -> Self {
        let mut trace = Self { bytes: Vec::new(), now: 1_700_000_000_000 * MS };
        trace.block(0x0a0d_0d0a, &words_of(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
        // Ethernet, nanoseconds.
        trace.block(1, &words_of(&[1, 0, 9 | 1 << 16, 9, 0]));
        trace
    }

    fn block(&mut self, kind: u32, body: &[u8]) {
        let length = 12 + body.len() as u32;
        self.bytes.extend(words_of(&[kind, length]));
        self.bytes.extend(body);
        self.bytes.extend(words_of(&[length]));
    }

    fn wait(&mut self, milliseconds: u64) -> &mut Self {
        self.now += milliseconds * MS;
        self
    }

    /// A segment: numbers count from each side's SYN, which is 0.
    fn send(&mut self, from: From, numbers: [u32; 2], flags: u8, length: usize) -> &mut Self {
        self.send_with(from, numbers, flags, length, "")
    }

    fn send_with(
        &mut self,
        from: From,
        [number, awaited]: [u32; 2],
        flags: u8,
        length: usize,
        comment: &str,
    ) -> &mut Self {
        let (mut hosts, mut ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [40_000_u16, 5201]);
        if from == From::Server {
            hosts.reverse();
            ports.reverse();
        }
        let options: &[u8] = if flags & 2 != 0 { &[3, 3, 7, 0] } else { &[] };
        let header = 20 + options.len();
        let total = (20 + header + length) as u16;
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(total.to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        frame.extend(hosts.concat());
        frame.extend(ports.map(u16::to_be_bytes).concat());
        frame.extend((1000 + number).to_be_bytes());
        frame.extend((1000 + awaited).to_be_bytes());
        frame.extend([(header as u8 / 4) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend(options);
        let captured = frame.len() as u32;
        let whole = captured + length as u32;
        // The payload tells nothing, and is not captured.
        let mut body = words_of(&[0, (self.now >> 32) as u32, self.now as u32, captured, whole]);
        body.extend(&frame);
        body.resize(body.len().next_multiple_of(4), 0);
        if !comment.is_empty() {
            body.extend(words_of(&[1 | (comment.len() as u32) << 16]));
            body.extend(comment.bytes());
            body.resize(body.len().next_multiple_of(4), 0);
            body.extend([0; 4]);
        }
        self.block(6, &body);
        self
    }

    fn shake(&mut self) -> &mut Self {
        self.send(From::Client, [0, 0], 2, 0).wait(10).send(From::Server, [0, 1], 18, 0);
        self.send(From::Client, [1, 1], 16, 0)
    }

    /// Rounds of two segments and an acknowledgement after 20 ms.
    fn rounds(&mut self, numbers: std::ops::Range<u32>) -> &mut Self {
        for n in numbers {
            self.send(From::Client, [1 + 2800 * n, 1], 16, 1400);
            self.send(From::Client, [1401 + 2800 * n, 1], 16, 1400).wait(20);
            self.send(From::Server, [1, 2801 + 2800 * n], 16, 0);
        }
        self
    }

    fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("trace.pcapng");
        std::fs::write(&path, &self.bytes).expect("a trace to write");
        path
    }
}

fn words_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A transfer that stands still twice: a segment is lost and sent again after 350 ms,
/// and the sender sleeps for 400 ms after its ring had room again.
pub fn planted() -> Trace {
    let mut trace = Trace::new();
    trace.shake().rounds(0..30);
    let next = 1 + 2800 * 30;
    trace.send(From::Client, [next, 1], 16, 1400).wait(350);
    trace.send(From::Client, [next, 1], 16, 1400).wait(20);
    trace.send(From::Server, [1, next + 1400], 16, 0);
    trace.send_with(From::Client, [next + 1400, 1], 16, 1400, "grantway:ring-full").wait(20);
    trace.send_with(From::Server, [1, next + 2800], 16, 0, "grantway:ring-drained").wait(400);
    trace.send_with(From::Client, [next + 2800, 1], 16, 2800, "grantway:woken").wait(20);
    trace.send(From::Server, [1, next + 5600], 16, 0).rounds(32..60);
    trace
}

fn json(path: &Path, args: &[&str]) -> Value {
    let mut command = grantway_with(&["flows", "--json"]);
    command.args(args).arg(path);
    serde_json::from_str(&succeed(command, PROMPT)).expect("JSON")
}

fn run(path: &Path, args: &[&str]) -> String {
    let mut command = grantway_with(&["flows"]);
    command.arg(path).args(args);
    succeed(command, PROMPT)
}

#[test]
fn a_made_up_trace_is_reported_correctly() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = planted().write(folder.path());
    let text = run(&path, &[]);
    assert!(text.lines().skip(1).all(|line| line.chars().count() <= 80), "{text}");
    let row = text.lines().find(|line| line.contains("10.0.0.1:40000 > 10.0.0.2:5201"));
    let cells: Vec<_> = row.expect("the flow").split_whitespace().collect();
    assert_eq!((cells[0], cells[6], cells[7], cells[8]), ("1", "19.8", "1", "2"), "{text}");
    let stalls: Vec<_> = text.lines().skip_while(|line| !line.contains("cause")).skip(1).collect();
    let stalls: Vec<_> =
        stalls.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(stalls, ["1 client 0.610 350 network", "1 client 0.980 420 wake-up"], "{text}");

    let flow = &json(&path, &[])["flows"][0];
    let client = &flow["directions"][0];
    assert_eq!(client["retransmissions"], 1);
    assert_eq!(client["in_flight_max"], 2800);
    assert_eq!(client["window_max"], 0xffff << 7);
    assert_eq!(client["rtt"]["max_ms"], 20.0);
    assert_eq!(client["payload_bytes"], 60 * 2800);
    // A longer stall is all that is asked for.
    let stalls = json(&path, &["--stall", "400"])["flows"][0]["stalls"].clone();
    assert_eq!(
        (stalls.as_array().map(Vec::len), &stalls[0]["cause"]),
        (Some(1), &"wake-up".into())
    );

    let details = run(&path, &["--flow", "1", "--stats"]);
    assert!(details.lines().skip(1).all(|line| line.chars().count() <= 80), "{details}");
    for part in ["retransmissions", "1 stall by network, 0.350 s", "M packets/s", "rom client"] {
        assert!(details.contains(part), "no {part:?} in {details}");
    }
}

#[test]
fn the_sample_of_the_documentation_is_the_planted_trace() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/samples/stalls.pcapng");
    let bytes = std::fs::read(&sample).expect("the sample");
    assert!(bytes == planted().bytes, "the planted trace was changed: write it to {sample:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("flows.html");
    let text = run(&sample, &["--report", page.to_str().expect("a path")]);
    for stall in ["network", "wake-up"] {
        assert!(text.contains(stall), "no {stall} in {text}");
    }
    let page = std::fs::read_to_string(&page).expect("a page");
    assert!(page.contains("stalls.pcapng"), "the page names its capture");
}

#[test]
fn unreadable_files_are_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = planted().write(folder.path());
    let refused = |args: &[&str], parts: &[&str]| {
        let mut command = grantway_with(&["flows"]);
        command.current_dir(folder.path()).args(args);
        let output = finish(command, PROMPT);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            (output.status.code(), said.lines().count()),
            (Some(1), 1),
            "{}",
            words(&output)
        );
        for part in parts {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    refused(&["none.pcapng"], &["none.pcapng", "expected a capture file"]);
    refused(&["trace.pcapng", "--flow", "7"], &["--flow 7", "flows 1 to 1"]);
    refused(&["trace.pcapng", "--report", "/none/x.html"], &["--report", "expected a file"]);
    let log = |text: &str| std::fs::write(folder.path().join("log"), text).expect("a file");
    let with_log = ["trace.pcapng", "--stack-log", "log"];
    refused(&with_log, &["log: No such file"]);
    log("{}\n");
    refused(&with_log, &["log:1: missing field", "grantway iperf --stack-log"]);
    log(&"x".repeat(10_000));
    refused(&with_log, &["log:1: "]);
    std::fs::write(folder.path().join("x"), "no capture").expect("a file");
    assert_eq!(refused(&["x"], &["neither pcap nor pcapng"]), "");
    // What there is of a file that was cut is told.
    let bytes = std::fs::read(&path).expect("the trace");
    std::fs::write(folder.path().join("cut"), &bytes[..bytes.len() - 5]).expect("a file");
    let told = refused(&["cut"], &["cut: offset ", "cut short"]);
    assert!(told.contains("wake-up"), "{told}");
}

#[test]
fn a_million_packets_take_little_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut trace = Trace::new();
    trace.shake().rounds(0..20_000);
    let one = trace.bytes.clone();
    let path = trace.write(folder.path());
    drop(trace);
    // The same again and again, as further sections: a million packets.
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).expect("the trace");
    for _ in 1..17 {
        std::io::Write::write_all(&mut file, &one).expect("room for 80 MB");
    }
    let _alone = alone();
    let began = Instant::now();
    let mut command = Command::new("sh");
    // In KiB: what is kept is bounded, and the file is not read into memory.
    command.args(["-c", "ulimit -v 300000; exec \"$0\" flows \"$1\" --stats"]);
    command.arg(env!("CARGO_BIN_EXE_grantway")).arg(&path);
    let text = succeed(command, PROMPT);
    common::say(format!("{:?}: {}", began.elapsed(), text.lines().last().unwrap_or_default()));
    assert!(text.contains("1020051 packets"), "{text}");
}

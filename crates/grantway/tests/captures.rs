//! A capture played in at one end of a vif comes out of the other byte for
//! byte, in order; and numbered frames lose none, double none and keep their
//! order. Needs no rights.

mod common;

use common::capture::{check_same, frames, read, write};
use common::site::{MAC, Site};
use common::{PROMPT, alone, say};
use serde_json::Value;
use std::time::Instant;

/// Ends that play a capture.
struct Play {
    name: &'static str,
    from_guest: usize,
    to_guest: usize,
    longest: usize,
}

/// Plays captures through a vif and compares what comes out.
fn play(play: &Play) {
    let start = Instant::now();
    let site = Site::start();
    let out = frames(play.from_guest, play.longest, 0x6772_616e);
    let back = frames(play.to_guest, play.longest, 0x7477_6179);
    write(&site.file("guest.pcap"), &out);
    write(&site.file("world.pcap"), &back);
    let path = site.path();
    let spec = |input: &str, output: &str, plays: bool| match plays {
        true => format!("pcap:in={path}/{input}.pcap,out={path}/{output}.pcap"),
        false => format!("pcap:out={path}/{output}.pcap"),
    };
    site.attach(&format!("mac={MAC}"));
    let behind = spec("world", "from-guest", play.to_guest > 0);
    let within = spec("guest", "to-guest", play.from_guest > 0);
    let mut backend = site.backend(None, &["--port", &behind]);
    let mut frontend = site.frontend(None, &["--port", &within]);
    let sent = |report: &Value| report["port"]["sent"].as_u64().unwrap_or(0);
    site.wait(&format!("{}: every frame", play.name), PROMPT, || {
        let arrived = (sent(&site.vif_report()), sent(&site.frontend_report()));
        (arrived >= (out.len() as u64, back.len() as u64)).then_some(())
    });
    frontend.terminate();
    backend.terminate();
    check_same(play.name, &out, &read(&site.file("from-guest.pcap")));
    check_same(play.name, &back, &read(&site.file("to-guest.pcap")));
    say(format!(
        "{}: {} frames of up to {} bytes within {:.2} s",
        play.name,
        out.len() + back.len(),
        play.longest,
        start.elapsed().as_secs_f64()
    ));
}

#[test]
fn a_capture_from_the_guest_arrives_byte_for_byte() {
    let _alone = alone();
    let name = "from the guest";
    play(&Play { name, from_guest: 4000, to_guest: 0, longest: 9000 });
    play(&Play { name, from_guest: 600, to_guest: 0, longest: 65_000 });
}

#[test]
fn a_capture_to_the_guest_arrives_byte_for_byte() {
    let _alone = alone();
    let name = "to the guest";
    play(&Play { name, from_guest: 0, to_guest: 4000, longest: 9000 });
    play(&Play { name, from_guest: 0, to_guest: 600, longest: 65_000 });
}

#[test]
fn captures_both_ways_at_once_arrive_byte_for_byte() {
    let _alone = alone();
    let name = "both ways";
    play(&Play { name, from_guest: 3000, to_guest: 2000, longest: 9000 });
    play(&Play { name, from_guest: 300, to_guest: 500, longest: 65_535 });
}

/// Sends numbered frames one way and has every one of them accounted for.
fn count(from_guest: bool, frames: u64, generator: &str, mode: &[&str]) {
    let start = Instant::now();
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let spec = format!("generator:count={frames},flows=3,{generator}");
    let (behind, within) =
        if from_guest { ("check", spec.as_str()) } else { (spec.as_str(), "check") };
    let mut backend = site.backend(None, &[&["--port", behind], mode].concat());
    let mut frontend = site.frontend(None, &[&["--port", within], mode].concat());
    let way = if from_guest { "from the guest" } else { "to the guest" };
    let what = format!("{frames} frames {way}, {generator} {}", mode.join(" "));
    let checked = site.wait(&what, PROMPT, || {
        let report = if from_guest { site.vif_report() } else { site.frontend_report() };
        let checked = report["port"]["checked"].clone();
        (checked["received"].as_u64()? >= frames).then_some(checked)
    });
    for (key, wanted) in [
        ("received", frames),
        ("lost", 0),
        ("duplicated", 0),
        ("reordered", 0),
        ("corrupt", 0),
        ("foreign", 0),
    ] {
        assert_eq!(checked[key], wanted, "{what}: {key}: {checked}");
    }
    frontend.terminate();
    backend.terminate();
    say(format!("{what}: within {:.2} s", start.elapsed().as_secs_f64()));
}

#[test]
fn numbered_frames_are_neither_lost_nor_doubled_nor_reordered() {
    let _alone = alone();
    for from_guest in [true, false] {
        count(from_guest, 200_000, "size=64", &[]);
        count(from_guest, 100_000, "size=1496", &[]);
        count(from_guest, 5_000, "size=65535", &[]);
    }
}

#[test]
fn every_way_of_waiting_brings_every_frame() {
    let _alone = alone();
    for from_guest in [true, false] {
        for mode in ["busy", "adaptive", "interrupt"] {
            // As fast as can be, and in bursts that let the receiver sleep in
            // between.
            count(from_guest, 50_000, "size=256", &["--mode", mode]);
            count(from_guest, 4_000, "size=256,rate=20k,burst=7", &["--mode", mode]);
        }
    }
}

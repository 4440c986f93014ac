//! An uplink that is a packet socket on one end of a veth: real traffic, tags, an interface that goes
//! and comes back, and successors.
//!
//! Needs root, /dev/net/tun, `ip`, `ethtool`, `nstat`, `ping` and `iperf3`; where one is
//! missing, says `skipped` and passes.

mod common;

use common::datagrams::{self, datagrams, send_segmented, socket};
use common::network::{Namespace, available};
use common::part::Part;
use common::site::Site;
use common::{PROMPT, alone, finish, say, succeed, words};
use grantway_ports::{Packet, Port, PortControl, RECV_BUFFER, TapOffloads};
use serde_json::Value;
use std::net::IpAddr;
use std::time::{Duration, Instant};

const PROGRAMS: [&str; 5] = ["ip", "ethtool", "nstat", "ping", "iperf3"];
const SERVES: [&str; 4] = ["--port", "bridge", "--uplink", "packet:gwu"];
/// Address of the far end.
const FAR: &str = "10.99.1.3";

/// Two guests on the bridge of a backend, whose uplink gwu is a veth to gwe in the namespace `far`.
struct Wire {
    guests: [Namespace; 2],
    /// Namespace of the backend, with the interface gwu.
    own: Namespace,
    far: Namespace,
    backend: Part,
    _frontends: Vec<Part>,
    site: Site,
}

impl Wire {
    fn start(more: &[&str]) -> Self {
        let guests = [Namespace::new("g"), Namespace::new("h")];
        let (own, far) = (Namespace::new("o"), Namespace::new("f"));
        connect(&own, &far);
        let site = Site::start();
        for n in ["1", "2"] {
            let vif = format!("mac=00:16:3e:00:00:0{n}");
            succeed(site.command(None, "attach", &["--domain", n, &vif]), PROMPT);
        }
        let backend = site.backend(Some(&own), &[&SERVES[..], more].concat());
        let mut frontends = Vec::new();
        for (n, guest) in (1..).zip(&guests) {
            let (domain, tap) = (format!("{n}"), format!("gwf{n}"));
            let args = ["--domain", &domain, "--devid", "0", "--tap", &tap];
            frontends.push(Part::start("frontend", site.command(Some(guest), "frontend", &args)));
            guest.address(&tap, 1, n);
        }
        let wire = Self { guests, own, far, backend, _frontends: frontends, site };
        wire.wait_pings();
        wire
    }

    fn wait_pings(&self) {
        for guest in &self.guests {
            guest.wait_ping(FAR);
        }
        self.guests[0].wait_ping("10.99.1.2");
    }

    fn uplink(&self) -> Value {
        self.site.backend_report()["uplink"].take()
    }

    fn wait_state(&self, state: &str) {
        let what = format!("the uplink to be {state}");
        self.site.wait(&what, PROMPT, || (self.uplink()["state"] == state).then_some(()));
    }

    fn drops(&self, reason: &str) -> u64 {
        self.uplink()["drops"][reason].as_u64().unwrap_or(0)
    }

    #[track_caller]
    fn check_checksums(&self) {
        for place in [&self.guests[0], &self.guests[1], &self.far] {
            let bad = place.checksum_errors();
            assert!(bad.is_empty(), "{}: {bad:?}", place.name());
        }
    }
}

/// Makes the veth.
fn connect(own: &Namespace, far: &Namespace) {
    // Neighbours know its address, and ask again for minutes.
    let address = ["address", "00:16:3e:00:00:03"];
    let peer = ["type", "veth", "peer", "name", "gwe", "netns", far.name()];
    own.ip(&[&["link", "add", "gwu"], &peer[..], &address].concat());
    own.ip(&["link", "set", "gwu", "up"]);
    far.address("gwe", 1, 3);
}

#[test]
fn iperf3_crosses_the_uplink_both_ways_with_and_without_offloads() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    for workers in ["1", "2"] {
        let wire = Wire::start(&["--workers", workers]);
        let mut ports = 5201..;
        for (offloads, amount) in [(true, "400M"), (false, "100M")] {
            wire.far.set_offloads("gwe", offloads);
            wire.guests[1].set_offloads("gwf2", offloads);
            for (n, guest) in (1..).zip(&wire.guests) {
                for (to, kind) in [
                    (FAR, &["-n", amount][..]),
                    (FAR, &["-n", amount, "-R"]),
                    ("fd99:1::3", &["-n", amount]),
                    (FAR, &["-n", "10M", "-u", "-b", "50M"]),
                    (FAR, &["-n", "10M", "-u", "-b", "50M", "-R"]),
                ] {
                    let port = ports.next().expect("a port");
                    let _server = wire.far.iperf_server(port);
                    let port = port.to_string();
                    let args = [&["-c", to, "-p", &port], kind].concat();
                    let gbps = guest.iperf(&args, PROMPT).gbps;
                    let kind = kind.join(" ");
                    say(format!("{workers} workers, guest {n} to {to} {kind}: {gbps:.3} Gbit/s"));
                }
            }
        }
        let (answered, text) = wire.far.ping("10.99.1.1", 200, 1400, "0.005");
        assert_eq!(answered, 200, "{text}");
        wire.check_checksums();
        let uplink = wire.uplink();
        assert_eq!((&uplink["name"], &uplink["state"]), (&"packet:gwu".into(), &"up".into()));
        for counter in ["sent", "received"] {
            assert!(uplink[counter].as_u64() > Some(1000), "{uplink:#}");
        }
    }
}

/// Opens a packet socket in a namespace.
fn open(place: &Namespace, interface: &str) -> Packet {
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| {
            place.enter();
            Packet::open(interface).expect("a packet socket").0
        });
        let mut port = opened.join().expect("a thread that ends");
        port.set_offloads(TapOffloads::ALL).expect("offloads");
        port
    })
}

/// Receives until a frame is `wanted`.
fn expect(port: &mut Packet, wanted: &[u8]) {
    let until = Instant::now() + Duration::from_secs(60);
    let mut buf = vec![0; RECV_BUFFER];
    while Instant::now() < until {
        match port.recv(&mut buf).expect("a sound port") {
            Some(meta) if buf[..meta.len] == *wanted => return,
            Some(_) => {}
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    panic!("a frame of {} bytes did not come", wanted.len());
}

#[test]
fn tagged_frames_cross_unchanged_both_ways() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let wire = Wire::start(&[]);
    let (mut guest, mut far) = (open(&wire.guests[0], "gwf1"), open(&wire.far, "gwe"));
    // A tag of the second kind counts to the MTU.
    for (kind, most) in [([0x81, 0x00], 1518), ([0x88, 0xa8], 1514)] {
        for (n, len) in (0..).zip([64, 64, 1000, most, 64]) {
            let mut frame = vec![n; len];
            frame[..6].fill(0xff);
            frame[6..12].copy_from_slice(&[2, 0, 0, 0, 9, n]);
            frame[12..14].copy_from_slice(&kind);
            frame[14..18].copy_from_slice(&[0x60, 0x05, 0x88, 0xb5]);
            guest.send(&frame, Default::default()).expect("a frame to the wire");
            expect(&mut far, &frame);
            frame[6..12].copy_from_slice(&[2, 0, 0, 0, 7, n]);
            far.send(&frame, Default::default()).expect("a frame from the wire");
            expect(&mut guest, &frame);
        }
    }
}

#[test]
fn the_bridge_goes_on_while_the_interface_is_down_or_gone_and_uses_it_again() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let wire = Wire::start(&["--workers", "2"]);
    let pinged = |reason: &str| {
        let before = wire.drops(reason);
        let args = ["-q", "-c", "1", "-W", "1", FAR];
        let output = finish(wire.guests[0].command_with("ping", &args), PROMPT);
        assert!(!output.status.success(), "nobody answers: {}", words(&output));
        assert!(wire.drops(reason) > before, "{reason}: {:#}", wire.uplink());
        wire.guests[0].wait_ping("10.99.1.2");
    };
    wire.own.ip(&["link", "set", "gwu", "down"]);
    wire.wait_state("down");
    pinged("interface-down");
    wire.backend.wait_said("gwu is down", PROMPT);
    wire.own.ip(&["link", "set", "gwu", "up"]);
    wire.wait_state("up");
    wire.wait_pings();
    wire.far.ip(&["link", "set", "gwe", "down"]);
    wire.wait_state("no-carrier");
    wire.far.ip(&["link", "set", "gwe", "up"]);
    wire.wait_state("up");
    for _ in 0..3 {
        wire.own.ip(&["link", "delete", "gwu"]);
        wire.wait_state("gone");
        pinged("interface-gone");
        wire.backend.wait_said("gwu is gone", PROMPT);
        connect(&wire.own, &wire.far);
        wire.wait_state("up");
        wire.wait_pings();
    }
    // A new name of the interface changes nothing.
    wire.own.ip(&["link", "set", "gwu", "down"]);
    wire.own.ip(&["link", "set", "gwu", "name", "gwx"]);
    wire.own.ip(&["link", "set", "gwx", "up"]);
    wire.wait_state("up");
    wire.wait_pings();
}

#[test]
fn frames_longer_than_the_mtu_are_counted() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let wire = Wire::start(&[]);
    wire.own.set_mtu("gwu", 1400);
    let args = ["-q", "-c", "3", "-i", "0.01", "-W", "1", "-s", "1450", "-M", "do", FAR];
    let output = finish(wire.guests[0].command_with("ping", &args), PROMPT);
    assert!(!output.status.success(), "nobody answers: {}", words(&output));
    assert_eq!(wire.drops("longer-than-mtu"), 3, "{:#}", wire.uplink());
}

#[test]
fn successors_open_the_interface_again_and_connections_live_on() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let mut wire = Wire::start(&[]);
    let _server = wire.far.iperf_server(5201);
    for kill in [true, false, true] {
        let before = wire.uplink()["sent"].as_u64();
        assert!(before > Some(0));
        let args = ["-c", FAR, "-t", "4"];
        std::thread::scope(|scope| {
            let guest = &wire.guests[0];
            let transfer = scope.spawn(|| guest.iperf(&args, PROMPT));
            std::thread::sleep(Duration::from_secs(1));
            match kill {
                true => wire.backend.kill(),
                false => wire.backend.terminate(),
            }
            wire.backend = wire.site.backend(Some(&wire.own), &SERVES);
            let gbps = transfer.join().expect("a thread that ends").gbps;
            say(format!("over a successor (killed: {kill}): {gbps:.3} Gbit/s"));
        });
        wire.wait_pings();
        wire.wait_state("up");
    }
    wire.check_checksums();
}

/// The host has an address on the interface, and the bridge does not know its station.
#[test]
fn frames_for_the_host_alone_reach_no_guest() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let wire = Wire::start(&[]);
    wire.own.address("gwu", 1, 9);
    wire.far.wait_ping("10.99.1.9");
    let received = || {
        let vifs = wire.site.backend_report()["vifs"].take();
        let vifs = vifs.as_array().expect("vifs").clone();
        vifs.iter().map(|vif| vif["stats"]["rx_packets"].as_u64().expect("a count")).sum::<u64>()
    };
    let before = received();
    let (answered, text) = wire.far.ping("10.99.1.9", 100, 1000, "0");
    assert_eq!(answered, 100, "{text}");
    // Guests get what is for all, such as questions for addresses.
    let more = received() - before;
    assert!(more < 20, "guests received {more} frames of 100 that were for the host");
    wire.wait_pings();
}

/// A veth hands over what its other end's socket segments, as one frame.
#[test]
fn datagrams_in_one_frame_from_the_wire_reach_a_guest_one_by_one() {
    let _alone = alone();
    if !available(&[&PROGRAMS[..], &["python3"]].concat()) {
        return;
    }
    let wire = Wire::start(&[]);
    for (n, guest) in (1..).zip(&wire.guests) {
        for (host, lengths) in [
            (format!("10.99.1.{n}"), [[1000; 30].as_slice(), &[300]].concat()),
            (format!("fd99:1::{n}"), vec![18; 40]),
        ] {
            let at = (host.parse::<IpAddr>().expect("an address"), 5298).into();
            let here = socket(guest, at);
            let last = lengths[lengths.len() - 1];
            wire.far.wait_ping(&host);
            send_segmented(&wire.far, &host, [5298, lengths[0], lengths.len(), last]);
            datagrams::expect(&here, &datagrams(&lengths), &host);
        }
    }
    let drops = wire.uplink()["drops"].take();
    assert!(drops.as_object().is_some_and(|drops| drops.is_empty()), "{drops}");
    wire.check_checksums();
}

#[test]
fn an_impossible_uplink_is_refused_in_one_line() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let (own, site) = (Namespace::new("o"), Site::start());
    for (args, status, parts) in [
        (
            &["--port", "bridge", "--uplink", "packet:nosuch"][..],
            1,
            &[
                "packet:nosuch",
                "no interface of this name",
                "expected one that exists",
                "`ip link`",
            ][..],
        ),
        (&["--port", "bridge", "--uplink", "packet:lo"], 1, &["packet:lo", "kind 772", "Ethernet"]),
        (&["--port", "bridge", "--uplink", "packet:a/b"], 2, &["a/b", "'/'"]),
        (&["--port", "bridge", "--uplink", "packet"], 2, &["no interface", "packet:NAME"]),
        (&["--port", "packet:lo"], 2, &["--port bridge --uplink packet:lo"]),
    ] {
        let mut command = site.command(Some(&own), "backend", args);
        command.env("RUST_LOG", "error");
        let output = finish(command, PROMPT);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {}", words(&output));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said.lines().count(), 1, "{args:?}: one line, not\n{said}");
        for part in parts {
            assert!(said.contains(part), "{args:?}: no {part:?} in {said}");
        }
    }
}

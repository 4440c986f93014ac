//! Real traffic by the backend's own bridge: two guests and an uplink, each in a
//! network namespace of its own; and what a `rate` leaves of it.
//!
//! Needs root, /dev/net/tun, `ip`, `nstat`, `ping` and `iperf3`; where one is
//! missing, says `skipped` and passes.

mod common;

use common::network::{Namespace, Transfer, available};
use common::part::Part;
use common::site::Site;
use common::{PROMPT, alone, say, succeed};

const PROGRAMS: [&str; 5] = ["ip", "ethtool", "nstat", "ping", "iperf3"];
/// Guests 1 and 2, and an uplink, all joined by the bridge only.
struct Bridge {
    guests: [Namespace; 2],
    outside: Namespace,
    _parts: Vec<Part>,
    site: Site,
}

impl Bridge {
    /// `vifs` is what each guest's vif has beside its address.
    fn start(vifs: [&str; 2]) -> Self {
        let guests = [Namespace::new("g"), Namespace::new("h")];
        let outside = Namespace::new("o");
        let site = Site::start();
        for (n, more) in (1..).zip(vifs) {
            let (domain, vif) = (n.to_string(), format!("mac=00:16:3e:00:00:0{n}{more}"));
            succeed(site.command(None, "attach", &["--domain", &domain, &vif]), PROMPT);
        }
        let mut parts =
            vec![site.backend(Some(&outside), &["--port", "bridge", "--uplink", "tap:gwup"])];
        for (n, guest) in (1..).zip(&guests) {
            let (domain, tap) = (format!("{n}"), format!("gwf{n}"));
            let args = ["--domain", &domain, "--devid", "0", "--tap", &tap];
            parts.push(Part::start("frontend", site.command(Some(guest), "frontend", &args)));
            guest.address(&tap, 1, n);
        }
        outside.address("gwup", 1, 3);
        for place in [&guests[0], &guests[1]] {
            place.wait_ping("10.99.1.3");
        }
        guests[0].wait_ping("10.99.1.2");
        Self { guests, outside, _parts: parts, site }
    }

    #[track_caller]
    fn check_checksums(&self) {
        for place in [&self.guests[0], &self.guests[1], &self.outside] {
            for (counter, count) in place.checksum_errors() {
                assert_eq!(count, 0, "{}: {counter}", place.name());
            }
        }
    }
}

fn run<'a>(to: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["-c", to], more].concat()
}

#[test]
fn iperf3_crosses_the_bridge_between_guests_and_to_the_uplink() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let bridge = Bridge::start(["", ""]);
    let tcp = ["-n", "400M"];
    let udp = ["-n", "25M", "-u", "-b", "100M"];
    let kinds =
        [tcp.to_vec(), udp.to_vec()].map(|kind| [kind.clone(), [kind, vec!["-R"]].concat()]);
    let kinds = kinds.concat();
    let [from, guest] = &bridge.guests;
    let mut ports = 5201..;
    for (name, place, to) in [
        ("guest", guest, "10.99.1.2"),
        ("guest", guest, "fd99:1::2"),
        ("uplink", &bridge.outside, "10.99.1.3"),
    ] {
        for kind in &kinds {
            // One that has served takes a late datagram for the first of the next run.
            let port = ports.next().expect("a port");
            let _server = place.iperf_server(port);
            let port = port.to_string();
            let args = run(to, &[&kind[..], &["-p", &port]].concat());
            let transfer = from.iperf(&args, PROMPT);
            say(format!("guest to {name} {to} {}: {:.3} Gbit/s", kind.join(" "), transfer.gbps));
        }
    }
    let (answered, text) = bridge.guests[1].ping("10.99.1.1", 200, 1400, "0.005");
    assert_eq!(answered, 200, "{text}");
    bridge.check_checksums();
    // Nothing of one guest's was refused, and who asks for his own TAP finds none.
    for vif in bridge.site.backend_report()["vifs"].as_array().expect("vifs") {
        assert_eq!(vif["port"]["name"], "bridge");
        for reason in ["tx_dropped_malformed", "tx_dropped_grant", "rx_dropped_offload"] {
            assert_eq!(vif["stats"][reason], 0, "{reason}: {vif:#}");
        }
    }
}

#[test]
fn guests_without_offloads_get_finished_frames() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let bridge = Bridge::start(["", ""]);
    let _server = bridge.guests[1].iperf_server(5201);
    // What its TAP may not leave undone its frontend does not offer either; the
    // sender still does.
    bridge.guests[1].set_offloads("gwf2", false);
    for kind in [&[][..], &["-R"]] {
        let Transfer { gbps, .. } =
            bridge.guests[0].iperf(&run("10.99.1.2", &[&["-n", "400M"], kind].concat()), PROMPT);
        say(format!("to a guest whose offloads are off {}: {gbps:.3} Gbit/s", kind.join(" ")));
    }
    bridge.check_checksums();
}

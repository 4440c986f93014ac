//! A vif between two network namespaces that nothing else joins: gwb1, the backend,
//! the frontend, gwf1.

use super::PROMPT;
use super::network::{Pair, Transfer};
use super::part::Part;
use super::site::{MAC, Site};
use std::time::Duration;

/// The ports of iperf3's servers.
const SERVERS: [u16; 4] = [5201, 5202, 5203, 5204];

/// A connected vif between two namespaces, with iperf3 servers outside.
pub struct Link {
    _servers: [Part; SERVERS.len()],
    pub frontend: Part,
    pub backend: Part,
    pub site: Site,
    pub pair: Pair,
}

impl Link {
    /// With so many queues, and as many workers up to two.
    pub fn start(mtu: u32, queues: usize) -> Self {
        let (count, workers) = (queues.to_string(), queues.min(2).to_string());
        Self::start_with(mtu, &["--workers", &workers], &["--queues", &count])
    }

    /// With these arguments of the backend and the frontend.
    pub fn start_with(mtu: u32, backend: &[&str], frontend: &[&str]) -> Self {
        let pair = Pair::new();
        let site = Site::start();
        site.attach(&format!("mac={MAC},vifname=gwb1,mtu={mtu}"));
        let backend = site.backend(Some(&pair.outside), backend);
        let frontend = site.frontend(Some(&pair.inside), &[&["--tap", "gwf1"], frontend].concat());
        pair.address();
        site.wait_connected();
        pair.inside.wait_ping("10.99.1.1");
        pair.inside.wait_ping("fd99:1::1");
        let servers = SERVERS.map(|port| pair.outside.iperf_server(port));
        Self { _servers: servers, frontend, backend, site, pair }
    }

    /// Sets the MTU of both interfaces.
    pub fn set_mtu(&self, mtu: u32) {
        self.pair.outside.set_mtu("gwb1", mtu);
        self.pair.inside.set_mtu("gwf1", mtu);
    }

    /// Turns the offloads of both interfaces on or off.
    pub fn set_offloads(&self, on: bool) {
        for (namespace, interface) in [(&self.pair.outside, "gwb1"), (&self.pair.inside, "gwf1")] {
            namespace.set_offloads(interface, on);
            for feature in ["tx-checksumming", "tcp-segmentation-offload"] {
                let is = namespace.offload(interface, feature);
                assert_eq!(is, on, "{interface}: {feature}");
            }
        }
    }

    /// Runs iperf3 from the guest.
    pub fn iperf(&self, args: &[&str]) -> Transfer {
        let transfer = self.pair.inside.iperf(args, PROMPT);
        if args.contains(&"-u") {
            self.drains();
        }
        transfer
    }

    /// Runs it several times at once, four at most.
    pub fn iperf_at_once<'a>(&self, runs: &[Vec<&'a str>]) -> Vec<Transfer> {
        assert!(runs.len() <= SERVERS.len(), "{} runs at once", runs.len());
        let inside = &self.pair.inside;
        let transfers = std::thread::scope(|scope| {
            let run = |(args, port): (&Vec<&'a str>, u16)| {
                let args = args.clone();
                scope.spawn(move || {
                    let port = port.to_string();
                    inside.iperf(&[&args[..], &["-p", &port]].concat(), PROMPT)
                })
            };
            let threads: Vec<_> = runs.iter().zip(SERVERS).map(run).collect();
            threads.into_iter().map(|thread| thread.join().expect("iperf3")).collect()
        });
        self.drains();
        transfers
    }

    /// Waits until nothing is under way: iperf3's server takes a datagram of an
    /// earlier run for the first of a new one, which then waits in vain.
    fn drains(&self) {
        let passed = || {
            let (vif, frontend) = (self.site.vif_report(), self.site.frontend_report());
            [&vif, &frontend]
                .map(|end| [&end["port"]["received"], &end["port"]["sent"]].map(|n| n.as_u64()))
        };
        let mut last = passed();
        self.site.wait("nothing under way", PROMPT, || {
            std::thread::sleep(Duration::from_millis(30));
            let now = passed();
            (std::mem::replace(&mut last, now) == now).then_some(())
        });
    }

    /// Nothing was dropped that should not be, and both ends still run.
    pub fn check_sound(&mut self, after: &str) {
        assert!(self.backend.is_alive() && self.frontend.is_alive(), "{after}: a part ended");
        self.pair.check_checksums(after);
        let (vif, frontend) = self.site.wait(after, PROMPT, || {
            // What one end read from its TAP, the other wrote to its own: what
            // iperf3 misses of UDP was lost in a socket's buffer, not here.
            let (vif, frontend) = (self.site.vif_report(), self.site.frontend_report());
            let (behind, within) = (&vif["port"], &frontend["port"]);
            let same = behind["received"] == within["sent"] && within["received"] == behind["sent"];
            same.then_some((vif, frontend))
        });
        for (end, port) in [("backend", &vif["port"]), ("frontend", &frontend["port"])] {
            let drops = port["drops"].as_object().expect("drops");
            assert!(drops.is_empty(), "{after}: the {end}'s port dropped: {drops:?}");
        }
        for (reason, count) in vif["dropped"].as_object().into_iter().flatten() {
            assert_eq!(count, 0, "{after}: the backend dropped: {reason}");
        }
        for reason in ["tx_length", "tx_not_offered", "rx_port"] {
            let count = &frontend["drops"][reason];
            assert_eq!(count, 0, "{after}: the frontend dropped: {reason}");
        }
    }
}

//! A vif between two network namespaces that nothing else joins: gwb1, the backend,
//! the frontend, gwf1.

use super::PROMPT;
use super::network::{Pair, Transfer};
use super::part::Part;
use super::site::{MAC, Site};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// The ports of iperf3's servers that stay.
const SERVERS: [u16; 3] = [5201, 5203, 5204];

/// A connected vif between two namespaces, with iperf3 servers outside.
pub struct Link {
    _servers: [Part; SERVERS.len()],
    /// The port of the next server that is for one run only.
    next: AtomicU16,
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
        Self { _servers: servers, next: AtomicU16::new(5300), frontend, backend, site, pair }
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
        match args.contains(&"-u") {
            true => self.iperf_at_once(&[args.to_vec()]).remove(0),
            false => self.pair.inside.iperf(args, PROMPT),
        }
    }

    /// Runs it several times at once, each with a server of its own: a server that has served
    /// takes a late datagram of that run for the first of the next run, which then waits in
    /// vain.
    pub fn iperf_at_once(&self, runs: &[Vec<&str>]) -> Vec<Transfer> {
        let Pair { outside, inside } = &self.pair;
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for args in runs {
                let port = self.next.fetch_add(1, Relaxed);
                let server = outside.iperf_server(port);
                threads.push(scope.spawn(move || {
                    let _server = server;
                    inside.iperf(&[&args[..], &["-p", &port.to_string()]].concat(), PROMPT)
                }));
            }
            threads.into_iter().map(|thread| thread.join().expect("iperf3")).collect()
        })
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

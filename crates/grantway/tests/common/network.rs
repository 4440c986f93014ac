//! Network namespaces, and the tools that run in them.

use super::part::Part;
use super::{PROMPT, finish, succeed, try_wait_for, wait_for, words};
use grantway_needs::{Need, met};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Returns true if this machine allows namespaces and TAPs, and has these programs. Otherwise
/// prints that the test is skipped.
pub fn available(programs: &[&str]) -> bool {
    let package = |name: &str| match name {
        "ip" | "nstat" | "ss" => "iproute2",
        "ping" => "iputils-ping",
        "nft" => "nftables",
        "dnsmasq" => "dnsmasq-base",
        _ => "of that name",
    };
    let programs = programs.iter().map(|name| Need::Program(name, package(name)));
    let rights = [Need::Root, Need::File("/dev/net/tun", "the kernel's module tun")];
    met(&rights.into_iter().chain(programs).collect::<Vec<_>>())
}

/// A network namespace; deleted with its interfaces when dropped.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one, named after this process, `letter` and how many there were.
    pub fn new(letter: &str) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("gw{}{letter}{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        succeed(ip(&["netns", "add", &name]), PROMPT);
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"]);
        namespace
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves the calling thread into it.
    pub fn enter(&self) {
        let path = Path::new("/run/netns").join(&self.name);
        let place = File::open(path).expect("a namespace");
        move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("to enter");
    }

    /// A program in it. `ip` becomes the program, so that the child's number
    /// is the program's.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// A program in it, with arguments.
    pub fn command_with(&self, program: &str, args: &[&str]) -> Command {
        let mut command = self.command(program);
        command.args(args);
        command
    }

    /// Runs a program in it, which must succeed.
    pub fn run(&self, program: &str, args: &[&str]) -> String {
        succeed(self.command_with(program, args), PROMPT)
    }

    /// Runs `ip` in it, which must succeed.
    pub fn ip(&self, args: &[&str]) -> String {
        succeed(ip(&[&["-n", &self.name], args].concat()), PROMPT)
    }

    /// Gives an interface its addresses, IPv4 and IPv6 by the same number, and
    /// sets it up.
    pub fn address(&self, interface: &str, net: u8, number: u8) {
        self.ip(&["address", "add", &format!("10.99.{net}.{number}/24"), "dev", interface]);
        let six = format!("fd99:{net}::{number}/64");
        self.ip(&["address", "add", &six, "dev", interface, "nodad"]);
        self.ip(&["link", "set", interface, "up"]);
        // A neighbour that answers late is asked again, for minutes.
        for table in ["arp_cache", "ndisc_cache"] {
            let of = ["ntable", "change", "name", table, "dev", interface];
            self.ip(&[&of[..], &["mcast_probes", "200", "ucast_probes", "200"]].concat());
        }
    }

    /// Returns the output of `ip` about an interface, or `None` if the interface does not exist.
    pub fn interface(&self, name: &str) -> Option<Value> {
        let args = ["-n", &self.name, "-j", "address", "show", "dev", name];
        let output = finish(ip(&args), PROMPT);
        let shown: Value = serde_json::from_slice(&output.stdout).ok()?;
        let found = shown.as_array()?.iter().find(|link| link["ifname"] == name)?;
        Some(found.clone())
    }

    /// The MTU of an interface.
    pub fn mtu(&self, name: &str) -> u64 {
        let link = self.interface(name).unwrap_or_else(|| panic!("no {name} in {}", self.name));
        link["mtu"].as_u64().expect("an MTU")
    }

    /// Sets the MTU of an interface.
    pub fn set_mtu(&self, name: &str, mtu: u32) {
        self.ip(&["link", "set", name, "mtu", &mtu.to_string()]);
    }

    /// Turns the offloads of an interface on or off.
    pub fn set_offloads(&self, name: &str, on: bool) {
        let to = if on { "on" } else { "off" };
        let mut args = vec!["-K", name];
        for feature in ["tx", "tso", "gso", "gro"] {
            args.extend([feature, to]);
        }
        self.run("ethtool", &args);
    }

    /// Returns true if an offload of an interface is on.
    pub fn offload(&self, name: &str, feature: &str) -> bool {
        let shown = self.run("ethtool", &["-k", name]);
        let prefix = format!("{feature}: ");
        let line = shown.lines().find_map(|line| line.trim().strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("no {feature} in {shown}")).starts_with("on")
    }

    /// The counters of bad checksums that are not zero, by name.
    pub fn checksum_errors(&self) -> Vec<(String, u64)> {
        // Absolute, without a history, all of them.
        let shown = self.run("nstat", &["-aszj"]);
        let shown: Value = serde_json::from_str(&shown).expect("JSON of nstat");
        let counters = shown["kernel"].as_object().expect("counters");
        let wanted = counters.iter().filter(|(name, _)| name.contains("CsumErrors"));
        let wanted: Vec<_> = wanted.map(|(n, v)| (n.clone(), v.as_u64().unwrap_or(0))).collect();
        for name in ["TcpInCsumErrors", "UdpInCsumErrors", "Udp6InCsumErrors", "IcmpInCsumErrors"] {
            assert!(wanted.iter().any(|(n, _)| n == name), "nstat has no {name}");
        }
        wanted.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Starts `iperf3 -s` on a port.
    pub fn iperf_server(&self, port: u16) -> Part {
        let port = port.to_string();
        let command = self.command_with("iperf3", &["-s", "-p", &port, "--forceflush"]);
        let mut part = Part::spawn("iperf3 -s", command);
        part.wait_line("listening", |line| line.starts_with("Server listening"));
        part
    }

    /// Sends `count` pings, `pace` seconds apart or as soon as one is answered
    /// (0), and gives how many of them were answered, however late.
    pub fn ping(&self, to: &str, count: u32, size: u32, pace: &str) -> (u32, String) {
        let [asked, answered] = self.echoes();
        let (wanted, size) = (count.to_string(), size.to_string());
        let pace = if pace == "0" { ["-f", "-q"] } else { ["-i", pace] };
        // With a deadline it waits for so many answers, and asks on where one is late.
        let args = [&pace[..], &["-q", "-c", &wanted, "-s", &size, "-w", "100", to]].concat();
        let output = finish(self.command_with("ping", &args), PROMPT);
        let open = || {
            let [now_asked, now_answered] = self.echoes();
            (now_asked - asked).saturating_sub(now_answered - answered)
        };
        let all = try_wait_for(PROMPT, || (open() == 0).then_some(()));
        let lost = if all.is_some() { 0 } else { open() };
        let text = format!("{lost} not answered: {}", words(&output));
        let lost = u32::try_from(lost).unwrap_or(u32::MAX);
        (if output.status.success() { count.saturating_sub(lost) } else { 0 }, text)
    }

    /// Pings that were sent from here, and answers that came.
    fn echoes(&self) -> [u64; 2] {
        let shown = self.run("nstat", &["-aszj"]);
        let shown: Value = serde_json::from_str(&shown).expect("JSON of nstat");
        let of = |name: &str| shown["kernel"][name].as_u64().unwrap_or(0);
        [of("IcmpOutEchos") + of("Icmp6OutEchos"), of("IcmpInEchoReps") + of("Icmp6InEchoReplies")]
    }

    /// Waits until a ping is answered.
    pub fn wait_ping(&self, to: &str) {
        wait_for(&format!("an answer from {to}"), PROMPT, || {
            let args = ["-q", "-c", "1", "-W", "1", to];
            finish(self.command_with("ping", &args), PROMPT).status.success().then_some(())
        });
    }

    /// Runs an iperf3 client; `args` name the server and what is wanted. Where the test did
    /// not begin, since the server still ends its last run, it is asked again.
    pub fn iperf(&self, args: &[&str], within: Duration) -> Transfer {
        let base = ["-J", "--connect-timeout", "100000"];
        let args = [&base[..], args].concat();
        let until = Instant::now() + within;
        loop {
            let output = finish(self.command_with("iperf3", &args), within);
            let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let began = report["error"].is_null() || report["start"]["test_start"].is_object();
            if began || Instant::now() > until {
                return Transfer::of(&args.join(" "), &output);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "delete", &self.name]).output();
    }
}

fn ip(args: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(args);
    command
}

/// Result of iperf3.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// Gbit/s that the receiver got, payload only.
    pub gbps: f64,
    /// Part of the datagrams that was lost, in percent; none for TCP.
    pub lost: Option<f64>,
    /// Segments sent again; none for UDP.
    pub retransmits: Option<u64>,
}

impl Transfer {
    /// Reads the report of a client, which must have ended well.
    pub fn of(what: &str, output: &Output) -> Self {
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("iperf3 {what}: {e}\n{}", words(output)));
        let error = report["error"].as_str();
        assert!(
            output.status.success() && error.is_none(),
            "iperf3 {what}: {}: {}",
            output.status,
            error.unwrap_or("no reason given")
        );
        let end = &report["end"];
        let received = &end["sum_received"];
        let sum = if received.is_object() { received } else { &end["sum"] };
        let gbps = sum["bits_per_second"].as_f64().unwrap_or(0.0) / 1e9;
        assert!(gbps > 0.0, "iperf3 {what}: nothing came: {end}");
        Self {
            gbps,
            lost: end["sum"]["lost_percent"].as_f64(),
            retransmits: end["sum_sent"]["retransmits"].as_u64(),
        }
    }
}

/// Two namespaces that only the vif joins: `outside` with the backend's
/// interface gwb1, and `inside` with the frontend's, gwf1.
pub struct Pair {
    /// Namespace of the backend: 10.99.1.1 and fd99:1::1.
    pub outside: Namespace,
    /// Namespace of the frontend: 10.99.1.2 and fd99:1::2.
    pub inside: Namespace,
}

impl Pair {
    /// Makes both, empty.
    pub fn new() -> Self {
        Self { outside: Namespace::new("a"), inside: Namespace::new("b") }
    }

    /// Gives both interfaces of the vif their addresses.
    pub fn address(&self) {
        self.outside.address("gwb1", 1, 1);
        self.inside.address("gwf1", 1, 2);
    }

    /// Fails where a packet came with a bad checksum.
    pub fn check_checksums(&self, after: &str) {
        for namespace in [&self.outside, &self.inside] {
            let bad = namespace.checksum_errors();
            assert!(bad.is_empty(), "{after}: bad checksums in {}: {bad:?}", namespace.name());
        }
    }
}

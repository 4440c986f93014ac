//! A guest with a stack in user space takes its address from a real server of DHCP: dnsmasq, in a
//! network namespace, behind the guest's TAP. The guest's clock is the test's own, so leases pass
//! in no time. Needs root, /dev/net/tun, `ip`, `ping` and `dnsmasq`.

mod common;

use common::network::{Namespace, available};
use common::part::Part;
use common::site::{MAC, Site};
use common::{PROMPT, alone, succeed, wait_for};
use grantway_embedded::{Domain, Role};
use grantway_frontend::{Vif, VifStatus, Wishes};
use grantway_hypervisor::DomId;
use grantway_stack::smoltcp::time::Instant as StackInstant;
use grantway_stack::{Lease, Stack, StackConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::Path;
use std::time::{Duration, Instant};

/// Seconds of a lease: far longer than the test takes on any machine.
const LEASE: u64 = 3600;
/// Longest sleep of the guest, in milliseconds.
const SLEEP_MS: i64 = 20;

/// The guest, and its clock.
struct Guest {
    vif: Vif<Stack>,
    began: Instant,
    /// Time that the guest's clock is ahead of the machine's.
    ahead: Duration,
}

impl Guest {
    fn open(dir: &Path) -> Self {
        let domain = Domain::connect(dir, DomId(1), Role::Guest).expect("a domain");
        let config = StackConfig { dhcp: true, ..StackConfig::new(0x6477) };
        let stack = Stack::new(&config, StackInstant::ZERO).expect("a stack");
        let mut vif = Vif::open_with(domain, 0, Wishes::default(), stack).expect("a vif");
        let mac = MAC.split(':').map(|byte| u8::from_str_radix(byte, 16).expect("a byte"));
        let mac = mac.collect::<Vec<_>>().try_into().expect("six bytes");
        assert!(vif.runner_mut().set_station(mac, 1500));
        wait_for("a vif to connect", PROMPT, || {
            vif.take_answers().expect("answers");
            let status = vif.store_changed().expect("a store");
            (status == VifStatus::Connected).then_some(())
        });
        Self { vif, began: Instant::now(), ahead: Duration::ZERO }
    }

    fn lease(&self) -> Option<Lease> {
        self.vif.runner().lease().copied()
    }

    /// Goes on until that holds.
    fn run(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < PROMPT, "{what} did not come; lease {:?}", self.lease());
            let micros = (self.began.elapsed() + self.ahead).as_micros();
            let now = StackInstant::from_micros(i64::try_from(micros).expect("microseconds"));
            let stack = self.vif.runner_mut();
            let moved = stack.receive(now).expect("a sound backend");
            if moved | stack.send(now).expect("a sound backend") {
                continue;
            }
            stack.take_events().expect("a host");
            if stack.arm().expect("a sound backend") {
                continue;
            }
            let descriptor = stack.descriptor().expect("a connection");
            let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
            let timeout = Timespec { tv_sec: 0, tv_nsec: SLEEP_MS * 1_000_000 };
            poll(&mut polled, Some(&timeout)).expect("poll");
        }
    }
}

/// Starts a server that gives this one address, and this gateway.
fn server(outside: &Namespace, site: &Site, address: &str, gateway: &str) -> Part {
    let leases = site.file("leases");
    let part = Part::spawn(
        "dnsmasq",
        outside.command_with(
            "dnsmasq",
            &[
                "--no-daemon",
                "--conf-file=/dev/null",
                "--user=root",
                "--pid-file=",
                "--port=0",
                "--interface=gwd1",
                "--no-ping",
                "--log-dhcp",
                "--log-facility=-",
                "--dhcp-authoritative",
                &format!("--dhcp-option=option:router,{gateway}"),
                &format!("--dhcp-range={address},{address},255.255.255.0,{LEASE}s"),
                &format!("--dhcp-leasefile={}", leases.display()),
            ],
        ),
    );
    part.wait_said("DHCP, IP range", PROMPT);
    part
}

/// Returns how often the server said some words.
fn times(server: &Part, words: &str) -> usize {
    server.said().matches(words).count()
}

#[test]
fn a_real_server_gives_renews_and_changes_an_address() {
    let _alone = alone();
    if !available(&["ip", "ping", "dnsmasq"]) {
        return;
    }
    let outside = Namespace::new("d");
    let site = Site::start();
    let vif = format!("mac={MAC},vifname=gwd1");
    succeed(site.command(None, "attach", &["--domain", "1", &vif]), PROMPT);
    let mut backend = site.backend(Some(&outside), &[]);
    wait_for("gwd1", PROMPT, || outside.interface("gwd1"));
    outside.address("gwd1", 1, 1);
    let mut first = server(&outside, &site, "10.99.1.50", "10.99.1.250");
    let mut guest = Guest::open(site.dir());
    let lease = |address: &str, gateway: &str| {
        let address = format!("{address}/24").parse().expect("an address");
        Some(Lease { address, gateway: Some(gateway.parse().expect("an address")) })
    };

    guest.run("a lease", |guest| guest.lease().is_some());
    assert_eq!(guest.lease(), lease("10.99.1.50", "10.99.1.250"));
    let said = std::fs::read_to_string(site.file("leases")).expect("leases");
    assert!(said.contains(&format!("{MAC} 10.99.1.50")), "{said}");
    // The address is of use. The guest may have to ask for the other's address of Ethernet first,
    // and drops an answer then.
    let args = ["-c1", "-w600", "-i0.2", "10.99.1.50"];
    let mut ping = Part::spawn("ping", outside.command_with("ping", &args));
    guest.run("an answer to a ping", |_| !ping.is_alive());
    assert!(ping.wait_end(PROMPT).success());

    // At half of its time the lease is renewed. A server that was started anew has another gateway,
    // by which the renewal is seen; the address stays.
    for gateway in ["10.99.1.251", "10.99.1.252", "10.99.1.253"] {
        first.kill();
        first = server(&outside, &site, "10.99.1.50", gateway);
        guest.ahead += Duration::from_secs(LEASE / 2 + 1);
        guest.run("a renewal", |guest| {
            assert!(guest.lease().is_some(), "it is never without its address");
            guest.lease() == lease("10.99.1.50", gateway)
        });
        // Its log is read by another thread, and may come after the packets that it tells of.
        first.wait_said("DHCPACK", PROMPT);
        assert_eq!(times(&first, "DHCPDISCOVER"), 0, "{}", first.said());
    }

    // A server that has another address refuses the renewal, and gives that one.
    first.kill();
    std::fs::remove_file(site.file("leases")).expect("leases");
    let mut second = server(&outside, &site, "10.99.1.60", "10.99.1.250");
    guest.ahead += Duration::from_secs(LEASE / 2 + 1);
    guest.run("another lease", |guest| guest.lease() == lease("10.99.1.60", "10.99.1.250"));
    second.wait_said("DHCPNAK", PROMPT);

    // Without a server the lease ends.
    second.kill();
    guest.ahead += Duration::from_secs(LEASE + 1);
    guest.run("the end of the lease", |guest| guest.lease().is_none());
    drop(guest);
    backend.terminate();
}

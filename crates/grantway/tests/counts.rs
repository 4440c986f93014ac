//! Costs of packets, counted exactly. A fixed number of frames is sent. Once all have come, both
//! ends are at rest, and every count is exact. Needs neither root nor Xen.

mod common;

use common::site::{MAC, Site};
use common::{PROMPT, alone, succeed};
use serde_json::Value;

/// Pages of the rings and of the control ring, which are mapped for each vif of one queue.
const RINGS: u64 = 3;
/// Bytes of a frame that the backend copies out to judge them, before it maps the rest or
/// passes it on to another guest.
const HEAD: u64 = 128;
/// The frame by which a checker tells bridges its address.
const ANNOUNCED: u64 = 60;
/// Buffers of a ring, and so the most that are copied the first time they are seen.
const BUFFERS: u64 = 256;

/// Reports of both ends at rest.
struct Account {
    backend: Value,
    guests: Vec<Value>,
}

impl Account {
    /// Returns the number of the backend's calls to the hypervisor.
    fn asked(&self, key: &str) -> u64 {
        number(&self.backend["platform"][key])
    }

    /// Returns the number of calls of all ends to the hypervisor.
    fn asked_by_all(&self, key: &str) -> u64 {
        self.asked(key) + self.guests.iter().map(|end| number(&end["platform"][key])).sum::<u64>()
    }

    /// A counter of a guest's vif.
    fn vif(&self, guest: usize, key: &str) -> u64 {
        number(&self.backend["vifs"][guest]["stats"][key])
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Direction of the frames, their number and their size.
#[derive(Debug, Clone, Copy)]
struct Load {
    size: u64,
    frames: u64,
    mode: &'static str,
}

impl Load {
    fn generator(self) -> String {
        format!("generator:size={},count={},burst=8", self.size, self.frames)
    }

    fn bytes(self) -> u64 {
        self.size * self.frames
    }

    /// Slots of one frame.
    fn slots(self) -> u64 {
        self.size.div_ceil(4096)
    }
}

fn wish(policy: &str) -> &str {
    if policy == "map" { "copy" } else { policy }
}

/// Waits until a checker had every frame.
fn wait_received(site: &Site, load: Load, checked: impl Fn() -> Value) {
    site.wait("every frame", PROMPT, || {
        let found = checked();
        for key in ["lost", "duplicated", "reordered", "corrupt", "foreign"] {
            assert!(found[key].is_null() || found[key] == 0, "{load:?}: {found}");
        }
        (found["received"] == load.frames).then_some(())
    });
}

/// From or to one guest.
fn one_way(policy: &str, from_guest: bool, load: Load) -> Account {
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let generator = load.generator();
    let (behind, within) = match from_guest {
        true => ("check", generator.as_str()),
        false => (generator.as_str(), "check"),
    };
    let args = ["--port", behind, "--policy", policy, "--mode", load.mode];
    let mut backend = site.backend(None, &args);
    let args = ["--port", within, "--policy", wish(policy), "--mode", load.mode];
    let mut frontend = site.frontend(None, &args);
    wait_received(&site, load, || match from_guest {
        true => site.vif_report()["port"]["checked"].take(),
        false => site.frontend_report()["port"]["checked"].take(),
    });
    let account = Account { backend: site.backend_report(), guests: vec![site.frontend_report()] };
    frontend.terminate();
    backend.terminate();
    account
}

/// From the second guest to the first one, by the backend's own bridge.
fn between_guests(policy: &str, load: Load) -> Account {
    let (mut backend, site) = bridged(policy, load);
    let [to, from] = ["00:16:3e:00:00:01", "00:16:3e:00:00:02"];
    let start = |domain: &str, port: &str| {
        let args = ["--domain", domain, "--devid", "0", "--port", port];
        let more = ["--policy", wish(policy), "--mode", load.mode];
        let command = site.command(None, "frontend", &[&args[..], &more].concat());
        common::part::Part::start("frontend", command)
    };
    let mut receiver = start("1", &format!("check:from={to}"));
    // Then the bridge knows where it is.
    site.wait("the receiver's own frame", PROMPT, || {
        (site.vif_report()["stats"]["tx_packets"] == 1).then_some(())
    });
    let mut sender = start("2", &format!("{},to={to},from={from}", load.generator()));
    wait_received(&site, load, || site.frontend_report()["port"]["checked"].take());
    let guests = vec![site.frontend_report()];
    let account = Account { backend: site.backend_report(), guests };
    sender.terminate();
    receiver.terminate();
    backend.terminate();
    account
}

fn bridged(policy: &str, load: Load) -> (common::part::Part, Site) {
    let site = Site::start();
    for domain in ["1", "2"] {
        let vif = format!("mac=00:16:3e:00:00:0{domain}");
        succeed(site.command(None, "attach", &["--domain", domain, &vif]), PROMPT);
    }
    let args = ["--port", "bridge", "--policy", policy, "--mode", load.mode];
    (site.backend(None, &args), site)
}

const LOADS: [Load; 3] = [
    Load { size: 64, frames: 3000, mode: "adaptive" },
    Load { size: 1496, frames: 3000, mode: "adaptive" },
    Load { size: 65_535, frames: 500, mode: "adaptive" },
];

#[test]
fn each_slot_is_copied_once_by_grant_copy() {
    let _alone = alone();
    for load in LOADS {
        for (from_guest, slots) in [(true, "tx_slots"), (false, "rx_slots")] {
            let account = one_way("copy", from_guest, load);
            assert_eq!(account.vif(0, slots), load.frames * load.slots(), "{load:?}");
            assert_eq!(account.asked("copies"), account.vif(0, slots), "{load:?}");
            assert_eq!(account.asked("copy_bytes"), load.bytes(), "{load:?}");
            assert_eq!(account.asked("maps"), RINGS, "{load:?}");
            assert!(account.asked("copy_batches") <= account.asked("copies"), "{load:?}");
        }
    }
}

#[test]
fn between_guests_the_head_is_copied_out_and_in_and_the_rest_across() {
    let _alone = alone();
    // Few enough that all of them can wait for a receiver that does not run: what finds no
    // room would be dropped, and has been copied out.
    let loads = [(64, 2000), (1496, 500)];
    for (size, frames) in loads {
        let load = Load { size, frames, mode: "adaptive" };
        let account = between_guests("copy", load);
        let (heads, rest) = (size.min(HEAD), u64::from(size > HEAD));
        assert_eq!(account.asked("copies"), frames * (2 + rest) + 1, "{load:?}");
        // The rest of a frame that had to wait for a page crossed twice.
        let least = frames * (size + heads) + ANNOUNCED;
        let twice = account.asked("copy_bytes") - least;
        assert!(twice <= frames * (size - heads), "{load:?}: {twice}");
        assert!(twice == 0 || twice.is_multiple_of(size - heads), "{load:?}: {twice}");
        assert_eq!(account.asked("maps"), 2 * RINGS, "{load:?}");
        assert_eq!((account.vif(1, "tx_packets"), account.vif(0, "rx_packets")), (frames, frames));
    }
}

#[test]
fn a_mapped_packet_has_its_head_copied_and_the_rest_mapped_and_unmapped() {
    let _alone = alone();
    for load in LOADS {
        let account = one_way("map", true, load);
        assert_eq!(account.asked("copies"), load.frames, "{load:?}");
        assert_eq!(account.asked("copy_bytes"), load.frames * load.size.min(HEAD), "{load:?}");
        let mapped = if load.size > HEAD { load.frames * load.slots() } else { 0 };
        assert_eq!(account.asked("maps"), RINGS + mapped, "{load:?}");
        // They are unmapped late, at rest.
        let (maps, unmaps) = (account.asked("maps"), account.asked("unmaps"));
        assert_eq!(account.asked("mapped"), maps - unmaps, "{load:?}");
    }
}

#[test]
fn a_persistent_page_is_copied_the_first_time_and_stays_mapped() {
    let _alone = alone();
    for load in LOADS {
        for from_guest in [true, false] {
            let account = one_way("persistent", from_guest, load);
            let copies = account.asked("copies");
            assert!((1..=BUFFERS).contains(&copies), "{load:?}: {copies} copies");
            let seen = account.vif(0, "mapped_pages");
            assert!((1..=BUFFERS).contains(&seen), "{load:?}: {seen} pages seen");
            assert_eq!(account.asked("mapped"), seen + RINGS, "{load:?}: nothing goes");
            // Each once, and a few times more where small areas were joined.
            let (maps, unmaps) = (account.asked("maps") - RINGS, account.asked("unmaps"));
            assert_eq!(maps - unmaps, seen, "{load:?}");
            assert!(maps <= 8 * seen, "{load:?}: {maps} maps of {seen} pages");
        }
    }
}

#[test]
fn an_end_that_sleeps_is_signalled_and_woken_and_not_more_than_that() {
    let _alone = alone();
    for from_guest in [true, false] {
        let load = Load { size: 64, frames: 3000, mode: "interrupt" };
        let account = one_way("copy", from_guest, load);
        let (notifies, wakeups) =
            (account.asked_by_all("notifies"), account.asked_by_all("wakeups"));
        assert!(notifies >= 1 && wakeups >= 1, "{notifies} signals, {wakeups} wake-ups");
        // A burst of eight is signalled once at the most, and so is what is given back of it;
        // beside them are those of the handshake.
        let bursts = load.frames.div_ceil(8);
        assert!(notifies <= 2 * bursts + 16, "{notifies} signals for {bursts} bursts");
    }
}

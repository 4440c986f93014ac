//! Two network namespaces, and the vif between them.

use crate::namespace::Namespace;
use crate::rig::{Direction, PATIENCE};
use crate::tools::{PROMPT, Process, Watch, run};
use grantway_backend::policy::Policy;
use grantway_command::args::Switch;
use grantway_command::control::{backend_socket, fetch_within, frontend_socket};
use grantway_command::error::CommandError;
use grantway_command::program::find;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Time limit for a run of iperf3.
const START: Duration = Duration::from_secs(60);
/// Number of flows for each of several queues. It is large enough that each queue gets some.
const FLOWS_A_QUEUE: u16 = 8;
/// Names of the backend's TAP and of the guest's.
const TAPS: [&str; 2] = ["gwb1", "gwf1"];
/// Addresses of the two TAPs.
const ADDRESSES: [&str; 2] = ["10.99.1.1", "10.99.1.2"];

/// Counters of both ends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Packets that the backend moved, in both directions.
    pub packets: u64,
    /// Grant copies.
    pub copies: u64,
    /// Grants mapped and unmapped.
    pub maps: u64,
    /// Bytes that grant copies moved.
    pub copied_bytes: u64,
    /// Notifications.
    pub notifies: u64,
    /// Sleeps that an event ended.
    pub wakeups: u64,
}

impl Counts {
    fn read(backend: &Value, frontend: &Value) -> Self {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let stats = &backend["vifs"][0]["stats"];
        let asked = |key: &str| -> u64 {
            [backend, frontend].iter().map(|end| number(&end["platform"][key])).sum()
        };
        Self {
            packets: number(&stats["tx_packets"]) + number(&stats["rx_packets"]),
            copies: asked("copies"),
            maps: asked("maps") + asked("unmaps"),
            copied_bytes: asked("copy_bytes"),
            notifies: asked("notifies"),
            wakeups: asked("wakeups"),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            copies: self.copies.saturating_sub(before.copies),
            maps: self.maps.saturating_sub(before.maps),
            copied_bytes: self.copied_bytes.saturating_sub(before.copied_bytes),
            notifies: self.notifies.saturating_sub(before.notifies),
            wakeups: self.wakeups.saturating_sub(before.wakeups),
        }
    }

    /// Adds the counters of another slice.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.copies += other.copies;
        self.maps += other.maps;
        self.copied_bytes += other.copied_bytes;
        self.notifies += other.notifies;
        self.wakeups += other.wakeups;
    }
}

/// One run of iperf3.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// Gbit/s of payload that the receiver got.
    pub gbps: f64,
    /// Segments that the sender sent again.
    pub retransmits: u64,
    /// Counters of both ends for this run.
    pub counts: Counts,
}

impl Transfer {
    /// Reads a report of iperf3.
    pub fn parse(text: &str) -> Result<Self, String> {
        let report: Value = serde_json::from_str(text).map_err(|e| format!("no JSON: {e}"))?;
        if let Some(error) = report["error"].as_str() {
            return Err(error.to_owned());
        }
        let end = &report["end"];
        match end["sum_received"]["bits_per_second"].as_f64() {
            Some(rate) if rate > 0.0 => Ok(Self {
                gbps: rate / 1e9,
                retransmits: end["sum_sent"]["retransmits"].as_u64().unwrap_or(0),
                counts: Counts::default(),
            }),
            _ => Err("nothing arrived".to_owned()),
        }
    }
}

/// Settings of the ends of a vif.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Policy by which the buffers cross.
    pub policy: Policy,
    /// Use of large TCP frames by the frontend.
    pub gso: Switch,
    /// Merging of TCP segments by both ends.
    pub merge: Switch,
}

/// A vif by one policy, with an iperf3 that listens behind the backend.
pub struct Link {
    // Fields are in the order in which they are to end.
    _server: Process,
    frontend: Process,
    backend: Process,
    _host: Process,
    _outside: Namespace,
    inside: Namespace,
    dir: TempDir,
    /// Number of flows that iperf3 is to have.
    pub flows: u16,
    /// Host that the ends run on.
    pub host: String,
    /// Wait mode of the backend.
    pub mode: String,
}

impl Link {
    /// Starts all parts, and waits until packets flow.
    ///
    /// # Errors
    ///
    /// A part did not start, or the ends agreed on another policy.
    pub fn start(settings: Settings, queues: u16, watch: &Watch) -> Result<Self, CommandError> {
        let Settings { policy, gso, merge } = settings;
        let failed = |what: &str| {
            let what = what.to_owned();
            move |e: std::io::Error| CommandError::Failed(format!("{what}: {e}"))
        };
        let exe = find("grantway")?;
        let dir = tempfile::Builder::new().prefix("grantway-").tempdir();
        let dir = dir.map_err(failed("cannot create the directory of the host"))?;
        let path = dir.path().to_string_lossy().into_owned();
        // Names have the process and the settings, since several links exist at a time.
        let [large, merges] = [gso, merge].map(|switch| u8::from(switch.is_on()));
        let own = format!("gws{}-{policy}-{queues}-{large}{merges}", std::process::id());
        let outside = Namespace::new(format!("{own}a"), watch)?;
        let inside = Namespace::new(format!("{own}b"), watch)?;
        // The host and the vif come first, then the backend and the guest, each in its namespace.
        let mut host = Process::start("host", Command::new(&exe).args(["host", "--dir", &path]))?;
        host.wait_words("ready", watch)?;
        let exe_name = exe.to_string_lossy();
        let vif = format!("mac=00:16:3e:00:00:01,vifname={}", TAPS[0]);
        run(&exe_name, &["attach", "--host", &path, "--domain", "1", &vif], PROMPT, watch)?;
        let (count, workers) = (queues.to_string(), queues.min(2).to_string());
        let mut command = outside.command(&exe);
        command.args(["backend", "--host", &path, "--queues", &count, "--workers", &workers]);
        command.args(["--policy", policy.as_str(), "--merge", merge.as_str()]);
        let mut backend = Process::start("backend", &mut command)?;
        backend.wait_words("ready", watch)?;
        let mut command = inside.command(&exe);
        command.args(["frontend", "--host", &path, "--domain", "1", "--tap", TAPS[1]]);
        command.args(["--queues", &count, "--policy", wish(policy)]);
        command.args(["--gso", gso.as_str(), "--merge", merge.as_str()]);
        let mut frontend = Process::start("frontend", &mut command)?;
        frontend.wait_words("ready", watch)?;
        // Both TAPs exist by now.
        for ((namespace, tap), address) in [&outside, &inside].into_iter().zip(TAPS).zip(ADDRESSES)
        {
            namespace.ip(&["address", "add", &format!("{address}/24"), "dev", tap], watch)?;
            namespace.ip(&["link", "set", tap, "up"], watch)?;
        }
        // The server of iperf3 is behind the backend.
        let mut command = outside.command("iperf3");
        // iperf3 makes a file for each flow. The file stays if iperf3 is killed, so it is in our
        // folder.
        command.env("TMPDIR", dir.path());
        let mut server = Process::start("iperf3 -s", command.args(["-s", "--forceflush"]))?;
        server.wait_words("Server listening", watch)?;
        let flows = if queues == 1 { 1 } else { queues.saturating_mul(FLOWS_A_QUEUE).min(128) };
        // The ends have to agree before packets flow.
        let mut link = Self {
            _server: server,
            frontend,
            backend,
            _host: host,
            _outside: outside,
            inside,
            dir,
            flows,
            host: String::new(),
            mode: String::new(),
        };
        link.wait_ready(policy, watch)?;
        // A first transfer each way lets all pages be used once, and TCP find its window.
        link.send(Direction::Tx, &["-n", "64M"], watch)?;
        link.send(Direction::Rx, &["-n", "64M"], watch)?;
        Ok(link)
    }

    fn wait_ready(&mut self, policy: Policy, watch: &Watch) -> Result<(), CommandError> {
        let backend = watch.wait("connecting", PROMPT, || {
            self.check()?;
            // The sockets may not exist yet.
            let Ok((backend, frontend)) = self.reports() else { return Ok(None) };
            let both = backend["vifs"][0]["connected"] == true && frontend["connected"] == true;
            let staged = frontend["agreed"] != Policy::Staging.as_str() || frontend["staged"] != 0;
            Ok((both && staged).then_some(backend))
        })?;
        let agreed = &backend["vifs"][0]["policy"];
        if agreed != policy.as_str() {
            return Err(CommandError::Failed(format!(
                "the ends agreed on {agreed}, expected {policy}; remove that policy"
            )));
        }
        let word = |key: &str| backend[key].as_str().unwrap_or_default().to_owned();
        (self.host, self.mode) = (word("host"), word("mode"));
        Ok(())
    }

    fn check(&mut self) -> Result<(), CommandError> {
        self.backend.check()?;
        self.frontend.check()
    }

    fn reports(&self) -> Result<(Value, Value), CommandError> {
        let read = |path: std::path::PathBuf| {
            fetch_within(&path, PATIENCE)
                .map_err(|e| CommandError::Failed(format!("{}: {e}", path.display())))
        };
        let dir = self.dir.path();
        Ok((read(backend_socket(dir, 0))?, read(frontend_socket(dir, Some(1), 0))?))
    }

    fn counts(&self) -> Result<Counts, CommandError> {
        let (backend, frontend) = self.reports()?;
        Ok(Counts::read(&backend, &frontend))
    }

    /// Sends for one second.
    ///
    /// # Errors
    ///
    /// iperf3 or an end failed, or a signal asked this process to end.
    pub fn second(
        &mut self,
        direction: Direction,
        watch: &Watch,
    ) -> Result<Transfer, CommandError> {
        let before = self.counts()?;
        let transfer = self.send(direction, &["-t", "1"], watch)?;
        Ok(Transfer { counts: self.counts()?.since(before), ..transfer })
    }

    fn send(
        &mut self,
        direction: Direction,
        much: &[&str],
        watch: &Watch,
    ) -> Result<Transfer, CommandError> {
        let flows = self.flows.to_string();
        let reverse = (direction == Direction::Rx).then_some("-R");
        watch.wait("iperf3: the server stayed busy and", START, || {
            let mut command = self.inside.command("iperf3");
            command.env("TMPDIR", self.dir.path());
            command.args(["-J", "--connect-timeout", "3000", "-c", ADDRESSES[0], "-P", &flows]);
            command.args(much).args(reverse);
            let done = Process::start("iperf3", &mut command)?.finish(START, watch);
            let why = match done {
                Ok(text) => match Transfer::parse(&text) {
                    Ok(transfer) => return Ok(Some(transfer)),
                    Err(why) => why,
                },
                Err(error) => error.to_string(),
            };
            watch.check()?;
            self.check()?;
            match is_ending_its_last_run(&why) {
                true => Ok(None),
                false => Err(CommandError::Failed(format!("iperf3: {why}"))),
            }
        })
    }
}

/// Returns true if an iperf3 server refused a client since it had not ended its last run. Such a
/// server says that it is busy, or closes its socket with the connections that wait there, and
/// listens anew.
pub fn is_ending_its_last_run(why: &str) -> bool {
    let said = ["the server is busy", "Connection reset by peer", "Connection refused"];
    said.iter().any(|said| why.contains(said))
}

/// Returns the policy that a frontend is to ask for. For a policy that needs no agreement of the
/// frontend, this is copy.
fn wish(policy: Policy) -> &'static str {
    match policy {
        Policy::Persistent | Policy::Staging => policy.as_str(),
        _ => Policy::Copy.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_iperf3_says() {
        let text = r#"{"end":{"sum_sent":{"bits_per_second":2.5e10,"retransmits":3},
            "sum_received":{"bits_per_second":2.4e10}}}"#;
        let transfer = Transfer::parse(text).unwrap();
        assert_eq!((transfer.gbps, transfer.retransmits), (24.0, 3));
        let busy = r#"{"error":"the server is busy running a test. try again later"}"#;
        let closing = r#"{"error":"unable to receive control message: Connection reset by peer"}"#;
        for text in [busy, closing] {
            assert!(is_ending_its_last_run(&Transfer::parse(text).unwrap_err()));
        }
        let other = r#"{"error":"unable to connect to server: No route to host"}"#;
        assert!(!is_ending_its_last_run(&Transfer::parse(other).unwrap_err()));
        for odd in ["", "{}", r#"{"end":{"sum_received":{"bits_per_second":0}}}"#] {
            assert!(Transfer::parse(odd).is_err(), "{odd}");
        }
    }
}

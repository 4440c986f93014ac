//! Paths of a TCP stream: a veth, or the bridge between two guests.

use crate::namespace::Namespace;
use crate::stream::link::{Transfer, is_ending_its_last_run};
use crate::tools::{PROMPT, Process, Watch, run};
use grantway_backend::policy::Policy;
use grantway_command::control::{backend_socket, fetch};
use grantway_command::error::CommandError;
use grantway_command::program::find;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Time limit for a run that sends for one second.
const START: Duration = Duration::from_secs(60);
/// Interfaces of a veth, and the address of its server.
const INTERFACES: [&str; 2] = ["gwv1", "gwv2"];
const SERVER: &str = "10.99.2.1";
/// Address of the guest that is the server.
const GUEST: &str = "10.99.1.1";

/// Manner of a stream.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// True if checksums and segmentation are left to others.
    pub offloads: bool,
    /// True if the programs copy the data.
    pub copies: bool,
    /// True if a reader of the flows listens to the backend.
    pub traced: bool,
}

/// A path of a TCP stream.
pub trait Way {
    /// Sends for a second. Returns the Gbit/s of payload that arrived.
    ///
    /// # Errors
    ///
    /// A part failed, or a signal asked this process to end.
    fn second(&mut self, watch: &Watch) -> Result<f64, CommandError>;
}

/// A veth between two namespaces.
pub struct Veth {
    // Fields are in the order in which they are to end.
    _server: Process,
    inside: Namespace,
    _outside: Namespace,
}

impl Veth {
    /// Makes the veth, with an iperf3 that listens at one end.
    ///
    /// # Errors
    ///
    /// A part could not be made or started.
    pub fn start(offloads: bool, watch: &Watch) -> Result<Self, CommandError> {
        let own = format!("gwt{}-{}", std::process::id(), u8::from(offloads));
        let outside = Namespace::new(format!("{own}a"), watch)?;
        let inside_name = format!("{own}b");
        let inside = Namespace::new(inside_name.clone(), watch)?;
        let [one, other] = INTERFACES;
        let peer = ["type", "veth", "peer", "name", other, "netns", &inside_name];
        outside.ip(&[&["link", "add", one][..], &peer].concat(), watch)?;
        for (number, (namespace, name)) in (1..).zip([(&outside, one), (&inside, other)]) {
            namespace
                .ip(&["address", "add", &format!("10.99.2.{number}/24"), "dev", name], watch)?;
            namespace.ip(&["link", "set", name, "up"], watch)?;
            if !offloads {
                let mut command = namespace.command("ethtool");
                command.args(["-K", name, "tx", "off", "tso", "off", "gso", "off", "gro", "off"]);
                Process::start("ethtool", &mut command)?.finish(PROMPT, watch)?;
            }
        }
        let mut command = outside.command("iperf3");
        let mut server = Process::start("iperf3 -s", command.args(["-s", "--forceflush"]))?;
        server.wait_words("Server listening", watch)?;
        Ok(Self { _server: server, inside, _outside: outside })
    }
}

impl Way for Veth {
    fn second(&mut self, watch: &Watch) -> Result<f64, CommandError> {
        watch.wait("iperf3: the server stayed busy and", START, || {
            let mut command = self.inside.command("iperf3");
            command.args(["-J", "--connect-timeout", "3000", "-t", "1", "-c", SERVER]);
            let done = Process::start("iperf3", &mut command)?.finish(START, watch);
            let why = match done.map_err(|e| e.to_string()).and_then(|text| Transfer::parse(&text))
            {
                Ok(transfer) => return Ok(Some(transfer.gbps)),
                Err(why) => why,
            };
            watch.check()?;
            match is_ending_its_last_run(&why) {
                true => Ok(None),
                false => Err(CommandError::Failed(format!("iperf3: {why}"))),
            }
        })
    }
}

/// Two guests on a backend's bridge.
pub struct Guests {
    // Fields are in the order in which they are to end.
    tracer: Option<Process>,
    server: Process,
    backend: Process,
    _host: Process,
    dir: TempDir,
    policy: Policy,
    how: How,
    /// Host of the guests.
    pub host: String,
}

impl Guests {
    /// Starts all parts but the client, and a reader of the flows if one is to listen.
    ///
    /// # Errors
    ///
    /// A part did not start.
    pub fn start(policy: Policy, how: How, watch: &Watch) -> Result<Self, CommandError> {
        let failed = |what: &'static str| {
            move |e: std::io::Error| CommandError::Failed(format!("{what}: {e}"))
        };
        let exe = find("grantway")?;
        let dir = tempfile::Builder::new().prefix("grantway-").tempdir();
        let dir = dir.map_err(failed("cannot create the directory of the host"))?;
        let path = dir.path().to_string_lossy().into_owned();
        let mut host = Process::start("host", Command::new(&exe).args(["host", "--dir", &path]))?;
        host.wait_words("ready", watch)?;
        for domain in ["1", "2"] {
            let vif = format!("mac=00:16:3e:00:00:0{domain}");
            let args = ["attach", "--host", &path, "--domain", domain, &vif];
            run(&exe.to_string_lossy(), &args, PROMPT, watch)?;
        }
        let mut command = Command::new(&exe);
        command.args(["backend", "--host", &path, "--port", "bridge"]);
        let mut backend = Process::start("backend", &mut command)?;
        backend.wait_words("ready", watch)?;
        let report = fetch(&backend_socket(dir.path(), 0));
        let report = report.map_err(failed("the backend's report"))?;
        let host_name = report["host"].as_str().unwrap_or_default().to_owned();
        let mut command = end("server", "1", &path, policy, how)?;
        let mut server = Process::start("iperf server", &mut command)?;
        server.wait_words("ready", watch)?;
        let mut tracer = None;
        if how.traced {
            let args = ["flows", "--host", &path, "--json"];
            tracer = Some(Process::start("flows", Command::new(&exe).args(args))?);
        }
        Ok(Self { tracer, server, backend, _host: host, dir, policy, how, host: host_name })
    }
}

/// Returns the command of an end of the stream, in a guest.
fn end(
    what: &str,
    domain: &str,
    path: &str,
    policy: Policy,
    how: How,
) -> Result<Command, CommandError> {
    let mut command = Command::new(find("grantway")?);
    command.args(["iperf", what, "--host", path, "--domain", domain, "--json"]);
    command.args(["--address", &format!("10.99.1.{domain}/24"), "--policy", policy.as_str()]);
    command.args((!how.offloads).then_some("--no-offloads"));
    command.args(how.copies.then_some("--copies"));
    Ok(command)
}

impl Way for Guests {
    fn second(&mut self, watch: &Watch) -> Result<f64, CommandError> {
        self.backend.check()?;
        self.server.check()?;
        self.tracer.as_mut().map_or(Ok(()), Process::check)?;
        let path = self.dir.path().to_string_lossy();
        let mut command = end("client", "2", &path, self.policy, self.how)?;
        command.args(["-c", GUEST, "-t", "1"]);
        let said = Process::start("iperf client", &mut command)?.finish(START, watch)?;
        let rate = said.lines().find_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            line["bits_per_second"].as_f64().filter(|_| line["kind"] == "end")
        });
        let found =
            || CommandError::Failed(format!("iperf client: found {said:?}, expected an end"));
        rate.map(|rate| rate / 1e9).ok_or_else(found)
    }
}

//! `grantway bench packets --end`: one half of a set-up, measured by its own reports. The other
//! half runs in another domain.

use crate::args::{End, EndArgs, List, PacketsArgs};
use crate::document::{self, Column, Shown};
use crate::probe::processors;
use crate::rig::{Direction, PATIENCE, Part, Plan};
use crate::tally;
use grantway_command::args::Api;
use grantway_command::control::{backend_socket, fetch_within, frontend_socket};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_netif::tx::TX_RING_ENTRIES;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Time limit for the other half to connect.
const OTHER: Duration = Duration::from_secs(120);
/// Time limit for both halves to agree on the policy, once they are connected.
const AGREE: Duration = Duration::from_secs(60);

/// Figures of one end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The end that was measured.
    pub end: End,
    /// The buffer policy.
    pub policy: String,
    /// Direction of the packets.
    pub direction: Direction,
    /// Frame size in bytes, FCS not counted.
    pub size: usize,
    /// Number of queues of each vif.
    pub queues: u16,
    /// Frames that the generator makes at a time.
    pub burst: u32,
    /// Wait mode of this end.
    pub mode: String,
    /// Way of frames from and to the frontend's buffers.
    pub api: Api,
    /// Seconds that the figures are from, by this end's clock.
    pub seconds: f64,
    /// Packets that crossed in these seconds.
    pub packets: u64,
    /// Packets lost in these seconds, if this end checks them.
    pub lost: u64,
    /// Millions of packets per second.
    pub mpps: f64,
    /// Gbit/s at layer 2, FCS not counted.
    pub gbps: f64,
    /// Packets per turn that found packets.
    pub ppn: Option<f64>,
    /// Grant copies of this end per packet.
    pub copies_per_packet: f64,
    /// Grants that this end mapped, per packet.
    pub maps_per_packet: f64,
    /// Grants that this end unmapped, per packet.
    pub unmaps_per_packet: f64,
    /// Bytes that grant copies of this end moved, per packet.
    pub copied_bytes_per_packet: f64,
    /// Notifications that this end sent, per packet.
    pub notifies_per_packet: f64,
    /// Sleeps of this end that an event ended, per packet.
    pub wakeups_per_packet: f64,
}

/// Columns of the table.
const COLUMNS: [Column<Row>; 18] = {
    use Shown::{Always, Varying};
    [
        Column::of("end", Varying, |r| r.end.name().into()),
        Column::of("direction", Varying, |r| r.direction.words().into()),
        Column::of("bytes#", Always, |r| r.size.to_string()),
        Column::of("queues#", Varying, |r| r.queues.to_string()),
        Column::of("burst#", Varying, |r| r.burst.to_string()),
        Column::of("mode", Varying, |r| r.mode.clone()),
        Column::of("api", Varying, |r| r.api.name().into()),
        Column::of("policy", Always, |r| r.policy.clone()),
        Column::of("Mpps#", Always, |r| format!("{:.3}", r.mpps)),
        Column::of("Gbit/s#", Always, |r| format!("{:.2}", r.gbps)),
        Column::of("lost#", Always, |r| r.lost.to_string()),
        Column::of("copies#", Always, |r| format!("{:.2}", r.copies_per_packet)),
        Column::of("maps#", Always, |r| format!("{:.2}", r.maps_per_packet)),
        Column::of("unmaps#", Always, |r| format!("{:.2}", r.unmaps_per_packet)),
        Column::of("B copied#", Always, |r| format!("{:.0}", r.copied_bytes_per_packet)),
        Column::of("notifies#", Always, |r| format!("{:.4}", r.notifies_per_packet)),
        Column::of("wake-ups#", Always, |r| format!("{:.4}", r.wakeups_per_packet)),
        Column::of("PPN#", Always, |r| r.ppn.map_or("-".into(), |ppn| format!("{ppn:.1}"))),
    ]
};

/// Runs one end, measures it, and prints its row.
///
/// # Errors
///
/// The command line asks for more than one point, the end could not be started, or the other half
/// did not connect.
pub fn run(args: &PacketsArgs, end: End) -> Result<(), CommandError> {
    let half = Half::of(args, end)?;
    let mut part = Part::start(end.name(), &half.command())?;
    let (before, after, margin) = match args.end.packets {
        Some(packets) => {
            // Each counter begins at zero. Only the clock does not.
            let before = json!({ "at_ns": half.report()?["at_ns"] });
            half.wait(&mut part)?;
            (before, half.count(&mut part, packets)?, Duration::ZERO)
        }
        None => {
            half.wait(&mut part)?;
            // Each half measures in the middle of its run. Both see the other connect at about the
            // same time, so both run while either measures.
            let margin = Duration::from_secs_f64(args.seconds / 2.0);
            std::thread::sleep(margin);
            let before = half.report()?;
            std::thread::sleep(2 * margin);
            (before, half.report()?, margin)
        }
    };
    let row = half.row(&before, &after);
    let host = after["host"].as_str().unwrap_or_default();
    if args.output.json {
        let (version, processors) = (grantway_command::VERSION, processors().len());
        let document = json!({
            "bench": "packets", "version": version, "host": host, "processors": processors,
            "rows": [row],
        });
        output::line(document.to_string())?;
    } else {
        let conditions = document::conditions(std::slice::from_ref(&row), &COLUMNS);
        let table = document::table(&[row], &COLUMNS);
        let what = "copies to wake-ups: of this end, per packet";
        output::line(format!("{host}, {conditions}\n{what}\n\n{table}"))?;
    }
    // The end runs for a while after its measurement, since the other half may still measure.
    std::thread::sleep(margin);
    // The backend ends after its guest, since a guest that closes waits for its backend.
    let since = Instant::now();
    while end == End::Backend && half.is_met(&half.report()?) && since.elapsed() < AGREE {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// One end, and the point that it measures.
struct Half<'a> {
    end: End,
    args: &'a EndArgs,
    plan: Plan,
    size: usize,
    burst: u32,
    port: String,
}

impl<'a> Half<'a> {
    fn of(args: &'a PacketsArgs, end: End) -> Result<Self, CommandError> {
        let direction = one(&args.direction, "--direction")?;
        let (size, burst) = (one(&args.size, "--size")?, one(&args.burst, "--burst")?);
        let mut generator = format!("generator:size={size},burst={burst}");
        if let Some(rates) = &args.rate {
            generator += &format!(",rate={}", one(rates, "--rate")?);
        }
        let queues = one(&args.queues, "--queues")?;
        if let Some(packets) = args.end.packets {
            // Each queue has a generator of its own. Once the generators are done, both ends are at
            // rest, and every account is exact.
            let each = packets.div_ceil(queues.into()) + ring_of(end, direction);
            generator += &format!(",count={each}");
        }
        // The plan is that of a whole set-up, of which this end is one half.
        let plan = Plan {
            direction,
            policy: one(&args.policy, "--policy")?,
            mode: one(&args.mode, "--mode")?,
            api: one(&args.api, "--api")?,
            generator,
            sink: "check",
            queues,
            cpus: Vec::new(),
        };
        // Between guests the frontends' ports depend on the guest, so the user gives them.
        let (behind, guests) = direction.ports(&plan.generator, plan.sink);
        let port = match (&args.end.port, end, &guests[..]) {
            (Some(port), ..) => port.clone(),
            (None, End::Backend, _) => behind,
            (None, End::Frontend, [port]) => port.clone(),
            (None, End::Frontend, _) => {
                return Err(CommandError::Usage(
                    "guest-to-guest needs a port for each frontend: add --port check:from=MAC or \
                     --port generator:size=N,to=MAC,from=MAC"
                        .into(),
                ));
            }
        };
        // The remaining options must fit each other.
        if args.end.packets.is_some() && direction.guests() > 1 {
            return Err(CommandError::Usage(
                "--packets: found --direction guest-to-guest, expected tx or rx: a sending guest \
                 does not know what arrived"
                    .into(),
            ));
        }
        if end == End::Frontend && args.end.host.is_some() && args.end.domain.is_none() {
            return Err(CommandError::Usage("the frontend needs a domain; add --domain N".into()));
        }
        Ok(Self { end, args: &args.end, plan, size, burst, port })
    }

    fn command(&self) -> Vec<String> {
        let (queues, devid) = (self.plan.queues.to_string(), self.args.devid.to_string());
        let mut command = vec![self.end.name(), "--port", &self.port, "--queues", &queues];
        command.extend(["--mode", self.plan.mode.name()]);
        match self.end {
            End::Backend => command.extend(["--policy", self.plan.policy.as_str()]),
            End::Frontend => command.extend([
                "--policy",
                self.plan.wish(),
                "--devid",
                &devid,
                "--api",
                self.plan.api.name(),
            ]),
        }
        let folder = self.folder().to_string_lossy();
        let domain = self.args.domain.unwrap_or(0).to_string();
        match self.args.host {
            Some(_) => command.extend(["--host", &*folder, "--domain", &domain]),
            None => command.extend(["--run-dir", &*folder]),
        }
        command.into_iter().map(str::to_owned).collect()
    }

    fn folder(&self) -> &std::path::Path {
        self.args.host.as_ref().unwrap_or(&self.args.run_dir)
    }

    fn report(&self) -> Result<Value, CommandError> {
        let path = match (self.end, self.args.domain) {
            (End::Backend, domain) => backend_socket(self.folder(), domain.unwrap_or(0)),
            (End::Frontend, domain) => frontend_socket(self.folder(), domain, self.args.devid),
        };
        fetch_within(&path, PATIENCE)
            .map_err(|e| CommandError::Failed(format!("{}: {e}", path.display())))
    }

    /// Waits until the other half is connected, and both agreed on the policy.
    fn wait(&self, part: &mut Part) -> Result<(), CommandError> {
        let started = Instant::now();
        let mut met = None;
        loop {
            if !part.is_alive() {
                return Err(part.obituary());
            }
            let report = self.report()?;
            // A guest may have connected and ended between two looks.
            if self.args.packets.is_some_and(|packets| self.has_all(&report, packets)) {
                return Ok(());
            }
            // Agreement has its own time limit, which begins once both are connected.
            if self.is_met(&report) {
                let met = *met.get_or_insert_with(Instant::now);
                let agreed = self.agreed(&report);
                if agreed == self.wanted() {
                    return Ok(());
                }
                if met.elapsed() > AGREE {
                    let wanted = self.wanted();
                    return Err(CommandError::Failed(format!(
                        "both ends agreed on {agreed}, expected {wanted}; give both the same \
                         --policy"
                    )));
                }
            } else if started.elapsed() > OTHER {
                return Err(CommandError::Failed(format!(
                    "no vif connected within {} s; start the other end in its domain",
                    OTHER.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until `packets` packets crossed. Returns the first report that says so.
    fn count(&self, part: &mut Part, packets: u64) -> Result<Value, CommandError> {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            if !part.is_alive() {
                return Err(part.obituary());
            }
            let report = self.report()?;
            if self.has_all(&report, packets) {
                return Ok(report);
            }
            let crossed = self.packets(&report);
            if crossed > last {
                (last, since) = (crossed, Instant::now());
            }
            if since.elapsed() > OTHER {
                return Err(CommandError::Failed(format!(
                    "only {last} of {packets} packets crossed, and none in the last {} s; start \
                     the other end with the same options",
                    OTHER.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns true if `packets` packets crossed, and the packets that an end sends beyond them.
    fn has_all(&self, report: &Value, packets: u64) -> bool {
        let under_way = ring_of(self.end, self.plan.direction) * u64::from(self.plan.queues);
        self.packets(report) >= packets + under_way
    }

    /// Returns the number of packets that crossed, by a report.
    fn packets(&self, report: &Value) -> u64 {
        match (self.end, self.plan.direction) {
            // Between guests a frontend either sends or receives. At the backend each packet is in
            // both counters, so one of them is read.
            (End::Frontend, Direction::GuestToGuest) => {
                self.stats(report, "tx_packets") + self.stats(report, "rx_packets")
            }
            (_, Direction::Rx | Direction::GuestToGuest) => self.stats(report, "rx_packets"),
            (_, Direction::Tx | Direction::RoundTrip) => self.stats(report, "tx_packets"),
        }
    }

    fn is_met(&self, report: &Value) -> bool {
        match self.end {
            End::Frontend => report["connected"] == true,
            End::Backend => {
                let connected = vifs(report).filter(|vif| vif["connected"] == true).count();
                connected == self.plan.direction.guests()
            }
        }
    }

    fn agreed<'r>(&self, report: &'r Value) -> &'r str {
        let policy = match self.end {
            End::Frontend => &report["agreed"],
            End::Backend => &report["vifs"][0]["policy"],
        };
        policy.as_str().unwrap_or_default()
    }

    /// Returns the name by which this end reports the policy. The frontend is not told of maps.
    fn wanted(&self) -> &'static str {
        match self.end {
            End::Frontend => self.plan.wish(),
            End::Backend => self.plan.policy.as_str(),
        }
    }

    fn row(&self, before: &Value, after: &Value) -> Row {
        let grew = |read: &dyn Fn(&Value) -> u64| read(after).saturating_sub(read(before));
        let asked = |key: &str| grew(&|report| count(&report["platform"][key]));
        let did = |key: &str| grew(&|report| self.stats(report, key));
        let seconds = grew(&|report| count(&report["at_ns"])) as f64 / 1e9;
        let packets = grew(&|report| self.packets(report));
        // Operations are divided by the packets that the end handled, as in a row of both ends.
        let handled = match (self.end, self.plan.direction) {
            (End::Frontend, _) | (End::Backend, Direction::Rx) => packets,
            (End::Backend, _) => grew(&tally::taken),
        };
        let (turns, rate) = (did("turns"), packets as f64 / seconds);
        let per_packet = |n: u64| n as f64 / handled.max(1) as f64;
        Row {
            end: self.end,
            policy: self.plan.policy.to_string(),
            direction: self.plan.direction,
            size: self.size,
            queues: self.plan.queues,
            burst: self.burst,
            mode: after["mode"].as_str().unwrap_or_default().to_owned(),
            api: self.plan.api,
            seconds,
            packets,
            lost: grew(&|report| self.lost(report)),
            mpps: rate / 1e6,
            gbps: rate * self.size as f64 * 8.0 / 1e9,
            ppn: (turns > 0).then(|| packets as f64 / turns as f64),
            copies_per_packet: per_packet(asked("copies")),
            maps_per_packet: per_packet(asked("maps")),
            unmaps_per_packet: per_packet(asked("unmaps")),
            copied_bytes_per_packet: per_packet(asked("copy_bytes")),
            notifies_per_packet: per_packet(asked("notifies")),
            wakeups_per_packet: per_packet(asked("wakeups")),
        }
    }

    fn stats(&self, report: &Value, key: &str) -> u64 {
        match self.end {
            End::Frontend => count(&report["stats"][key]),
            End::Backend => vifs(report).map(|vif| count(&vif["stats"][key])).sum(),
        }
    }

    fn lost(&self, report: &Value) -> u64 {
        match self.end {
            End::Frontend => count(&report["port"]["checked"]["lost"]),
            End::Backend => vifs(report).map(|vif| count(&vif["port"]["checked"]["lost"])).sum(),
        }
    }
}

/// Returns the number of packets that an end must send per queue beyond those that are to be
/// counted. A guest that sends ends first, and up to a ring of its packets may not have crossed by
/// then.
fn ring_of(end: End, direction: Direction) -> u64 {
    match (end, direction) {
        (End::Frontend, Direction::Tx) => TX_RING_ENTRIES as u64,
        _ => 0,
    }
}

fn vifs(report: &Value) -> impl Iterator<Item = &Value> {
    report["vifs"].as_array().into_iter().flatten()
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Returns the only value of a list. Two halves that are started apart cannot go through several
/// values together.
fn one<T: Copy>(list: &List<T>, option: &str) -> Result<T, CommandError> {
    match list.0[..] {
        [only] => Ok(only),
        _ => Err(CommandError::Usage(format!(
            "found {} values of {option}, expected one: start both ends once per value",
            list.0.len()
        ))),
    }
}

//! `grantway bench vector --nftables`: equal frames and equal rules, in our graph and in the
//! kernel, in one run.
//!
//! A frame enters a namespace by a TAP, is passed to one end of a veth, and leaves the other end,
//! which has the rules. All this happens in the call that writes the frame, so it is part of the
//! thread's own time.

use super::args::VectorArgs;
use super::case::{Case, Drawn, Feed, Load, Traffic, drawn, frames};
use super::measure::{Subject, measure};
use super::page;
use crate::document::{self, Column, Document, Shown};
use crate::namespace::Namespace;
use crate::probe::{Machine, State};
use crate::progress::Progress;
use crate::slices::{Series, Timing};
use crate::stats::Ratio;
use crate::tools::{PROMPT, Process, Watch, check_programs, check_rights};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::report::Destination;
use grantway_netif::Offload;
use grantway_ports::{Port, Tap, TapConfig};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;

/// Default numbers of rules.
const RULES: [usize; 3] = [1, 100, 10_000];
/// Number of frames between two looks at the clock.
const SOME: usize = 64;
/// Time limit for nft to read ten thousand rules.
const READING: std::time::Duration = std::time::Duration::from_secs(120);
/// Traffic with different flows, as for the graph alone.
const TRAFFIC: Traffic = Traffic::Flows(4096);
/// The TAP, and both ends of the veth.
const INTERFACES: [&str; 3] = ["gwt", "gwv0", "gwv1"];

/// Figures of one number of rules on one path.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Number of rules.
    pub rules: usize,
    /// Path of the frames: `vector` or `nftables`.
    pub path: &'static str,
    /// Number of frames at a time; `None` for the kernel, which takes them one by one.
    pub list: Option<usize>,
    /// Nanoseconds per packet, including all that is around the rules.
    pub ns_per_packet: f64,
    /// Nanoseconds per packet beyond the time without rules.
    pub rules_ns: Option<Ratio>,
    /// Ratio of the time of the kernel's rules alone to the time of our whole graph.
    pub kernel: Option<Ratio>,
    /// Share of packets that a rule fitted.
    pub fitted: f64,
    /// Host that the row was measured on: none.
    host: &'static str,
    /// State of the machine, and the round trip of a cache line.
    #[serde(flatten)]
    machine: Machine,
    /// Number of slices.
    pub n: usize,
}

impl document::Row for Row {
    fn host(&self) -> &str {
        self.host
    }

    fn state(&self) -> State {
        self.machine.state
    }
}

/// Columns of the table.
pub const COLUMNS: [Column<Row>; 9] = {
    use Shown::Always;
    [
        Column::of("rules#", Always, |r| r.rules.to_string()),
        Column::of("path", Always, |r| r.path.to_owned()),
        Column::of("list#", Always, |r| r.list.map_or(String::new(), |list| list.to_string())),
        Column::of("ns/packet#", Always, |r| format!("{:.1}", r.ns_per_packet)),
        Column::of("of rules#", Always, |r| {
            let text = |ns: Ratio| match ns.pairs {
                1 => format!("{:.1}", ns.median),
                _ => format!("{:.1} [{:.1}, {:.1}]", ns.median, ns.low, ns.high),
            };
            r.rules_ns.map_or("-".to_owned(), text)
        }),
        Column::of("kernel#", Always, |r| r.kernel.map_or(String::new(), |ratio| ratio.text())),
        Column::of("fitted#", Always, |r| format!("{:.1} %", 100.0 * r.fitted)),
        Column::of("state ns", Always, |r| r.machine.words()),
        Column::of("n#", Always, |r| r.n.to_string()),
    ]
};

/// The conditions of the measurement.
pub const SETTING: &str = "one thread, UDP of 60 bytes, 4096 flows; nftables: written to a TAP, \
                           forwarded to a veth, one rule after the other at its far end";

/// Runs the command.
///
/// # Errors
///
/// nft or the rights for it are missing, frames did not reach the kernel's rules, or a signal asked
/// this process to end.
pub fn run(
    args: &VectorArgs,
    lists: &[usize],
    timing: Timing,
    page: Option<Destination>,
) -> Result<(), CommandError> {
    check_programs(&[("nft", "nftables"), ("ip", "iproute2")])?;
    check_rights()?;
    let watch = Watch::start()?;
    let rules = args.rules.as_ref().map_or(RULES.to_vec(), |list| list.0.clone());
    let progress = Progress::new(rules.len(), args.output.json);
    let mut rows = Vec::new();
    for (number, &count) in rules.iter().enumerate() {
        let what = format!("{count} rules");
        let mut show = |part| progress.show(number, &what, part);
        rows.extend(beside(count, lists, timing, &watch, &mut show)?);
    }
    progress.done();
    if let Some(page) = page {
        page.write(&page::beside(&rows))?;
    }
    match args.output.json {
        true => Document::new("vector-nftables", &rows).print(),
        false => output::line(format!("{SETTING}\n\n{}", document::table(&rows, &COLUMNS))),
    }
}

/// Measures the paths with `rules` rules, and each path without rules. Returns the rows.
fn beside(
    rules: usize,
    lists: &[usize],
    timing: Timing,
    watch: &Watch,
    progress: &mut dyn FnMut(f64),
) -> Result<Vec<Row>, CommandError> {
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    let mut fitted = Vec::new();
    let loads = [Load::Nothing, Load::Rules(rules)];
    for load in loads {
        let kernel = Kernel::new(load.size().unwrap_or(0), watch)?;
        fitted.push(kernel.fitted);
        subjects.push(Box::new(kernel));
    }
    for &list in lists {
        for load in loads {
            let mut feed = Feed::new(&Case::new("", load, TRAFFIC, None), list)?;
            let frames = feed.some()?;
            fitted.push(feed.fitted() as f64 / frames as f64);
            subjects.push(Box::new(feed));
        }
    }
    let series = measure(&mut subjects, timing, &mut |part| progress(part))?;
    watch.check()?;
    let paths = std::iter::once(None).chain(lists.iter().copied().map(Some));
    let row = |(at, list): (usize, Option<usize>)| row(&series, 2 * at, list, rules, &fitted);
    Ok(paths.enumerate().map(row).collect())
}

/// Makes the row of a path. Subject `plain` is the path without rules, and the next one the path
/// with rules. Subjects 0 and 1 are those of the kernel.
fn row(
    series: &Series<f64>,
    plain: usize,
    list: Option<usize>,
    rules: usize,
    fitted: &[f64],
) -> Row {
    let ruled = plain + 1;
    let (ns_per_packet, machine, n) = series.typical(ruled);
    let more = series.rounds([ruled, plain]).into_iter().map(|[with, without]| *with - *without);
    let kernel = series.rounds([0, 1, ruled]);
    let kernel = kernel.iter().map(|[without, with, ours]| (*with - *without) / *ours);
    Row {
        rules,
        path: if list.is_some() { "vector" } else { "nftables" },
        list,
        ns_per_packet,
        rules_ns: Ratio::of(&more.collect::<Vec<_>>()),
        kernel: list.and_then(|_| Ratio::of(&kernel.collect::<Vec<_>>())),
        fitted: fitted.get(ruled).copied().unwrap_or(0.0),
        host: "none",
        machine,
        n,
    }
}

/// A namespace with rules, and the TAP that leads into it.
struct Kernel {
    tap: Tap,
    frames: Vec<Vec<u8>>,
    next: usize,
    /// Share of the frames that a rule fitted.
    fitted: f64,
    namespace: Namespace,
}

impl Kernel {
    fn new(rules: usize, watch: &Watch) -> Result<Self, CommandError> {
        let [way, near, far] = INTERFACES;
        let name = format!("gwn{}-{rules}", std::process::id());
        let namespace = Namespace::new(name.clone(), watch)?;
        namespace.ip(&["link", "add", near, "type", "veth", "peer", "name", far], watch)?;
        for end in [near, far] {
            namespace.ip(&["link", "set", end, "up"], watch)?;
        }
        let tap = tap_in(&name, way)?;
        let mut file = tempfile::NamedTempFile::new().map_err(CommandError::failed)?;
        file.write_all(script(rules).as_bytes()).map_err(CommandError::failed)?;
        let mut nft = namespace.command("nft");
        nft.arg("-f").arg(file.path());
        Process::start("nft -f", &mut nft)?.finish(READING, watch)?;
        let frames: Vec<Vec<u8>> = frames(TRAFFIC).map(|(_, bytes)| bytes).collect();
        let mut kernel = Self { tap, frames, next: 0, fitted: 0.0, namespace };
        for _ in 0..kernel.frames.len().div_ceil(SOME) {
            kernel.some()?;
        }
        let count = |chain| counted(&kernel.namespace, chain, watch);
        let (arrived, fitted) = (count("arrived")?, count("fitted")?);
        let sent = kernel.frames.len() as u64;
        if arrived < sent {
            return Err(CommandError::Failed(format!(
                "only {arrived} of {sent} frames reached the rules of {name}; check that {far} is \
                 a veth and up"
            )));
        }
        kernel.fitted = fitted as f64 / sent as f64;
        Ok(kernel)
    }
}

impl Subject for Kernel {
    fn some(&mut self) -> Result<u64, CommandError> {
        for _ in 0..SOME {
            let Some(frame) = self.frames.get(self.next) else { continue };
            self.tap.send(frame, Offload::default()).map_err(CommandError::failed)?;
            self.next = if self.next + 1 >= self.frames.len() { 0 } else { self.next + 1 };
        }
        Ok(SOME as u64)
    }
}

/// Opens a TAP in a namespace, from a thread that enters the namespace.
fn tap_in(namespace: &str, name: &str) -> Result<Tap, CommandError> {
    let open = || {
        let place = File::open(format!("/run/netns/{namespace}")).map_err(CommandError::failed)?;
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(place.as_fd(), kind).map_err(CommandError::failed)?;
        let config = TapConfig { up: true, ..TapConfig::named(name) };
        Tap::open(&config).map_err(CommandError::failed)
    };
    let lost = |_| Err(CommandError::Failed("the thread that opens a TAP ended".into()));
    std::thread::scope(|scope| scope.spawn(open).join().unwrap_or_else(lost))
}

/// Returns the packets that a named counter counted.
fn counted(namespace: &Namespace, chain: &str, watch: &Watch) -> Result<u64, CommandError> {
    let mut nft = namespace.command("nft");
    nft.args(["-j", "list", "counter", "netdev", "grantway", chain]);
    let said = Process::start("nft list counter", &mut nft)?.finish(PROMPT, watch)?;
    let found: Option<u64> = serde_json::from_str(&said).ok().and_then(|said: Value| {
        let objects = said["nftables"].as_array()?;
        objects.iter().find_map(|object| object["counter"]["packets"].as_u64())
    });
    found.ok_or_else(|| {
        CommandError::Failed(format!("nft list counter said {said:?}, expected its packets"))
    })
}

/// Returns the rules as nft reads them. All frames are accepted, by a rule or without one, and the
/// kernel then drops them, since they are for another station.
fn script(rules: usize) -> String {
    let [way, near, far] = INTERFACES;
    let mut script = format!(
        "table netdev grantway {{\n counter arrived {{}}\n counter fitted {{}}\n \
         chain in {{ type filter hook ingress device \"{way}\" priority 0; policy drop; \
         fwd to \"{near}\"; }}\n chain fitted {{ counter name \"fitted\" accept; }}\n \
         chain rules {{ type filter hook ingress device \"{far}\" priority 0; policy accept;\n  \
         counter name \"arrived\"\n"
    );
    for Drawn { source: (network, length), ports, tcp } in drawn(rules) {
        let protocol = if tcp { "tcp" } else { "udp" };
        let (first, last) = (ports.start(), ports.end());
        let ports = if first == last { first.to_string() } else { format!("{first}-{last}") };
        // Writing to a string cannot fail.
        let _ =
            writeln!(script, "  ip saddr {network}/{length} {protocol} dport {ports} goto fitted");
    }
    script + " }\n}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_written_as_nft_reads_them() {
        let script = script(50);
        assert_eq!(script.matches(" goto fitted").count(), 50);
        assert!(script.matches("ip saddr 10.").count() == 50 && script.contains(" udp dport "));
        assert_eq!(script.matches('{').count(), script.matches('}').count());
    }

    #[test]
    fn what_rules_take_is_a_difference() {
        let mut series = Series::new();
        for round in 0..3 {
            for (subject, ns) in [100.0, 160.0, 10.0, 20.0].into_iter().enumerate() {
                series.add(subject, round, Machine::SINGLE, ns);
            }
        }
        let kernel = row(&series, 0, None, 7, &[0.0, 0.5, 0.0, 0.5]);
        assert_eq!((kernel.ns_per_packet, kernel.rules_ns.unwrap().median), (160.0, 60.0));
        assert_eq!((kernel.kernel, kernel.fitted), (None, 0.5));
        let ours = row(&series, 2, Some(64), 7, &[0.0, 0.5, 0.0, 0.5]);
        assert_eq!((ours.path, ours.ns_per_packet), ("vector", 20.0));
        assert_eq!((ours.kernel.unwrap().median, ours.rules_ns.unwrap().median), (3.0, 10.0));
    }
}

//! The command line of `grantway bench`.

use super::rig::Direction;
use clap::{Args, Subcommand, ValueEnum};
use grantway_backend::policy::Policy;
use grantway_command::args::{Api, QUEUES_MAX, WaitModeArg, seconds, whole_seconds};
use grantway_ports::quantity::{number, packets_per_second};
use serde::Serialize;
use std::path::PathBuf;

/// `grantway bench`.
#[derive(Debug, Args)]
#[command(after_help = "\
Every bench except `vector` and `prices` starts its own embedded host, backend
and guests as processes, and ends them. Variants are measured interleaved, in
slices of at most 0.5 s, first forwards and then backwards (A B B A). The place
of the virtual processors is checked before and after each slice; a slice in
which it changed is dropped. The column `state` shows that place, with the
nanoseconds that a cache line needs from one processor to the other and back.
Ratios are medians of the pairs of slices of one round; the 95 % interval of
resampled medians is in brackets.

Separate the values of a list by commas: --size 64,1496,65535. --json prints one
document in one line: bench, version, host, processors, state and rows. The name
of a field contains its unit (_ns, _pps, mpps, gbps, _per_packet); sizes are in
bytes. --report writes a page with the same tables and plots, for a browser.

Example:
  grantway bench packets
  grantway bench latency --mode all
  grantway bench papers --paper 004")]
pub struct BenchArgs {
    /// Bench to run.
    #[command(subcommand)]
    pub what: BenchWhat,
}

/// The benches.
#[derive(Debug, Subcommand)]
pub enum BenchWhat {
    /// Packets per second of each buffer policy.
    Packets(PacketsArgs),
    /// Latency of packets at a fixed rate.
    Latency(LatencyArgs),
    /// Tables of the papers that Grantway is based on, with our figures.
    #[command(visible_alias = "seeds")]
    Papers(PapersArgs),
    /// Packets per second and round trips, compared with DPDK's testpmd over memif, vhost-user and
    /// the kernel.
    Peers(crate::peers::args::PeersArgs),
    /// TCP through TAPs, with iperf3.
    Stream(crate::stream::args::StreamArgs),
    /// TCP between two user-space stacks, compared with a veth.
    Tcp(crate::tcp::args::TcpArgs),
    /// Packet graph: frames one by one and in lists.
    Vector(crate::vector::args::VectorArgs),
    /// One backend with many vifs: cost and packet rate.
    Scale(crate::scale::args::ScaleArgs),
    /// Cost of a locked operation, a system call and a wake-up on this machine.
    Prices(PricesArgs),
    /// Process that runs all guests of `scale`.
    #[command(hide = true)]
    Guests(crate::scale::args::GuestsArgs),
    /// Program at one end of the TAPs of `peers`.
    #[command(hide = true)]
    TapEnd(crate::peers::tap_end::TapEndArgs),
    /// Both ends in one thread, to count instructions.
    #[command(hide = true)]
    Turns(TurnsArgs),
    /// Several workers of one bridge in one thread, to count instructions.
    #[command(hide = true)]
    Crew(CrewArgs),
    /// Packet graph alone, to count instructions.
    #[command(hide = true)]
    Lists(crate::vector::args::ListsArgs),
}

/// `grantway bench prices`.
#[derive(Debug, Args)]
#[command(after_help = "\
`make instructions` counts the instructions per packet. In that count a system
call or a locked operation is one instruction. This bench measures the time of
such operations on this machine, in nanoseconds, interleaved in one pinned
thread, and names the place where a packet pays for them. Only the processor
time of that thread counts. The row of a wake-up contains the signal to the
other side, the sleep and the return from it; the other side pays the same.

Example:
  grantway bench prices
  grantway bench prices --seconds 2 --json")]
pub struct PricesArgs {
    /// Time of measurement per row.
    #[arg(long, value_name = "TIME", default_value = "0.5s", value_parser = seconds)]
    pub seconds: f64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `grantway bench turns`.
#[derive(Debug, Args)]
#[command(after_help = "\
For `make instructions`, which reads the counts of callgrind.

Example:
  valgrind --tool=callgrind grantway bench turns --policy staging --direction tx")]
pub struct TurnsArgs {
    /// Buffer policy.
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    pub policy: Policy,
    /// Direction of the packets.
    #[arg(long, value_enum)]
    pub direction: Direction,
    /// Access to a guest's buffers.
    #[arg(long, value_enum, default_value_t = Api::Copy)]
    pub api: Api,
    /// Frame size in bytes, without FCS.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(60..=4096))]
    pub size: u16,
    /// Frames per poll round.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub burst: u16,
    /// Packets, rounded up to whole poll rounds.
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    pub packets: usize,
    /// Apply rules that allow each vif only its own address.
    #[arg(long)]
    pub spoof: bool,
    /// Packets for a reader of the trace.
    #[arg(long, value_enum)]
    pub traced: Option<Traced>,
}

/// Packets that are counted while a reader listens to the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Traced {
    /// Segments of TCP that follow on each other, which share a record.
    Segments,
    /// Datagrams, of which each has a record.
    Datagrams,
}

/// `grantway bench crew`.
#[derive(Debug, Args)]
#[command(after_help = "\
For `make instructions`, which reads the counts of callgrind: the instructions
of one worker while eight guests send bursts to each other through all workers.

Example:
  valgrind --tool=callgrind grantway bench crew --policy copy --workers 4")]
pub struct CrewArgs {
    /// Buffer policy.
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    pub policy: Policy,
    /// Workers of the backend.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub workers: u8,
    /// Counted worker, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub counted: u8,
    /// Frame size in bytes, without FCS.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(60..=4096))]
    pub size: u16,
    /// Burst: frames that a guest sends to another at once.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub burst: u16,
    /// Packets, rounded up to whole laps.
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    pub packets: usize,
}

/// Output formats of a bench, in addition to the table.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Also write a page with tables and plots.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `grantway bench packets`.
#[derive(Debug, Args)]
#[command(after_help = "\
A generator sends numbered frames as fast as they are accepted. A checker at the
other end detects lost frames. Figures of the embedded host compare policies and
sizes on this machine; they are not figures of Xen.

The platform counts grant operations, copied bytes, notifications and wake-ups.
The counts of each end are divided by the packets that this end handled in the
same time, and the quotients of all ends are added. The backend handles the
packets that it receives from guests, including those that it drops; with
--direction rx the packets that it gives to the guest. A packet and its grant
operations are always counted together, so a packet at the start or end of a
slice does not change a quotient.

With --rate the generator sends --burst frames at a time at a fixed rate, and
each slice has its own processes. This shows the wake-ups of the ends at a load.

With --end the two halves of one row run in different domains on real Xen: start
one in dom0 and the other in a guest with a vif, both with the same options.
Each half measures for --seconds after both are connected, and prints its own
figures. With --packets each half counts from the first packet, including the
connection set-up, until that many packets have crossed. Use this for exact
counts, not for rates.

Example:
  grantway bench packets --size 64,1496 --direction tx,rx
  grantway bench packets --policy copy,staging --burst 1,8,32 --json
  grantway bench packets --policy staging --burst 1 --rate 1k,10k,100k \\
      --mode all
  grantway bench packets --size 64,256,1496,9000,65535 --report packets.html
  grantway bench packets --end backend --policy staging
  grantway bench packets --end frontend --policy staging")]
pub struct PacketsArgs {
    /// Buffer policies, or `all`. The first one is the reference of the ratios.
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = policies)]
    pub policy: List<Policy>,
    /// Wait mode of the ends: busy, adaptive, interrupt, or `all`.
    #[arg(long, value_name = "LIST", default_value = "adaptive", value_parser = modes)]
    pub mode: List<WaitModeArg>,
    /// Access to a guest's buffers: copy, lend (generator and checker use the buffers directly), or
    /// `all`.
    #[arg(long, value_name = "LIST", default_value = "copy", value_parser = apis)]
    pub api: List<Api>,
    /// Direction, seen from the guest: tx, rx, guest-to-guest, or `all`.
    #[arg(long, value_name = "LIST", default_value = "tx", value_parser = one_way)]
    pub direction: List<Direction>,
    /// Frame size in bytes, without FCS.
    #[arg(long, value_name = "LIST", default_value = "64", value_parser = sizes)]
    pub size: List<usize>,
    /// Burst: frames that the generator sends at a time.
    #[arg(long, value_name = "LIST", default_value = "32", value_parser = bursts)]
    pub burst: List<u32>,
    /// Total frames per second to send. Default: as many as are accepted.
    #[arg(long, value_name = "LIST", value_parser = rates)]
    pub rate: Option<List<u64>>,
    /// Queues per vif, each with its own generator.
    #[arg(long, value_name = "LIST", default_value = "1", value_parser = queues)]
    pub queues: List<u16>,
    /// Time of measurement per row.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = seconds)]
    pub seconds: f64,
    /// Slices per row. Default: one per 0.1 s and at most 20, or more if a slice would take longer
    /// than 0.5 s; with --rate the fewest possible.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub pairs: Option<u32>,
    #[command(flatten)]
    pub end: EndArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The ends of a vif.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The end in the guest.
    Frontend,
    /// The end in dom0, or in a driver domain.
    Backend,
}

impl End {
    /// Returns the name of the end on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Frontend => "frontend",
            Self::Backend => "backend",
        }
    }
}

/// One half of a set-up.
#[derive(Debug, Args)]
pub struct EndArgs {
    /// Run and measure one end only, with its own counters. Start the other end in its own domain
    /// with the same options.
    #[arg(long, value_enum, conflicts_with_all = ["pairs", "report"])]
    pub end: Option<End>,
    /// Directory of that end's embedded host. Default: the Xen domain that this machine is.
    #[arg(long, value_name = "DIR", requires = "end")]
    pub host: Option<PathBuf>,
    /// Domain of that end on the embedded host.
    #[arg(long, value_name = "N", requires = "host")]
    pub domain: Option<u16>,
    /// Number of the vif in the guest.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "end")]
    pub devid: u32,
    /// Count until N packets have crossed, instead of for --seconds. Only with --direction tx or
    /// rx.
    #[arg(long, value_name = "N", requires = "end", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub packets: Option<u64>,
    /// Port of that end. Default: the generator or the checker.
    #[arg(long, value_name = "SPEC", requires = "end")]
    pub port: Option<String>,
    /// Directory of sockets on Xen.
    #[arg(long, value_name = "DIR", default_value = grantway_command::place::RUN_FOLDER, requires = "end", conflicts_with = "host")]
    pub run_dir: PathBuf,
}

/// `grantway bench latency`.
#[derive(Debug, Args)]
#[command(after_help = "\
The sender keeps its fixed rate even if frames are lost. The time of a packet
counts from the moment when it was due, not from the moment when there was space
for it. The sender never sleeps; the other ends wait as --mode says. A round
trip goes from a guest to an echo port behind the backend and back. Times have
two significant digits.

Example:
  grantway bench latency --direction round-trip
  grantway bench latency --policy copy,staging --mode busy,interrupt \\
      --rate 10k --json
  grantway bench latency --mode all --report latency.html")]
pub struct LatencyArgs {
    /// Policies by which the buffers cross, or `all`.
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = policies)]
    pub policy: List<Policy>,
    /// Wait mode of the ends: busy, adaptive, interrupt, or `all`.
    #[arg(long, value_name = "LIST", default_value = "adaptive", value_parser = modes)]
    pub mode: List<WaitModeArg>,
    /// Direction: tx, rx, guest-to-guest, round-trip, or `all`.
    #[arg(long, value_name = "LIST", default_value = "tx,rx,round-trip", value_parser = any_way)]
    pub direction: List<Direction>,
    /// Frame size in bytes, without FCS.
    #[arg(long, value_name = "LIST", default_value = "64", value_parser = timed_sizes)]
    pub size: List<usize>,
    /// Frames per second.
    #[arg(long, value_name = "LIST", default_value = "20k", value_parser = rates)]
    pub rate: List<u64>,
    /// Time one frame in N. Reading the clock takes longer than a packet.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub every: u32,
    /// Time of measurement per row.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = seconds)]
    pub seconds: f64,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `grantway bench papers`.
#[derive(Debug, Args)]
#[command(after_help = "\
The papers:
  000  persistent grants for xen-netback and xen-netfront; Joao Martins, 2015
  001  copying against mapping in xen-netback; Wei Liu, 2013
  002  lists of packets through each layer of Linux; Edward Cree, 2018
  003  MirageOS on Xen; Dimosthenis Pediaditakis and David Scott, 2013
  004  staging grants; Joao Martins, 2017
Each row shows the figures of the paper, from its hardware and from Xen, and the
figures of this machine from the embedded host, before and after the proposal.
Compare only the factors, and compare them with care: grant operations of the
embedded host cost more than those of Xen. Bursts and waiting are those of the
paper. Frames of 65535 bytes stand for the TCP of a paper; --tcp measures TCP
itself, too. Rows that are not measured are listed with the reason or with the
command that measures them.

Paper 002 has two tables. In the first one packets go from guests' rings to a
guest's rings: one by one through a plain program, through the same program with
lists at its entry and in each layer, and through Grantway's backend. The second
one is the packet graph alone. `make retpolines` builds a grantway-bench whose
indirect calls are retpolines, as in the paper.

--on-xen measures nothing: it shows the rows that `make lab-bench` wrote, in
instructions of an emulated machine (lab/README.md).

Example:
  grantway bench papers
  grantway bench papers --paper 000,004 --seconds 2 --report papers.html
  grantway bench papers --tcp 4s
  grantway bench papers --on-xen")]
pub struct PapersArgs {
    /// Papers: 000, 001, 002, 003, 004, or `all`.
    #[arg(long, alias = "seed", value_name = "LIST", default_value = "all", value_parser = papers)]
    pub paper: List<&'static str>,
    /// Burst: frames that the generator sends at a time. Default: the number of each paper.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=BURST_MAX as i64))]
    pub burst: Option<u32>,
    /// Time of measurement per side of a row.
    #[arg(long, value_name = "TIME", default_value = "0.5s", value_parser = seconds)]
    pub seconds: f64,
    /// Also measure by TCP what the papers measured by TCP, in slices of one second, TIME per side
    /// of a row. Needs root, iperf3 and ip.
    #[arg(long, value_name = "TIME", value_parser = whole_seconds(1..=3600))]
    pub tcp: Option<u32>,
    /// Also write the JSON document to this file.
    #[arg(long, value_name = "FILE", conflicts_with = "on_xen")]
    pub save: Option<PathBuf>,
    /// Show the figures that lab/bench wrote to this file, and measure nothing.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = ".cache/lab/bookworm/bench.json", conflicts_with_all = ["burst", "seconds", "tcp", "report"])]
    pub on_xen: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Most frames that a generator may make at a time in these benches.
const BURST_MAX: u64 = 1024;
/// Most frames per second.
const RATE_MAX: u64 = 1_000_000_000;

/// The values of a list, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

/// Reads a list. `one` reads one value; `expected` says in an error which values there are.
fn list<T: PartialEq>(text: &str, one: impl Fn(&str) -> Option<T>, expected: &str) -> Listed<T> {
    let mut found = Vec::new();
    for word in text.split(',') {
        let value = one(word).ok_or_else(|| format!("found {word:?}, expected {expected}"))?;
        if found.contains(&value) {
            return Err(format!("{word:?} is given twice; remove one"));
        }
        found.push(value);
    }
    Ok(List(found))
}

/// Result of reading a list.
pub type Listed<T> = Result<List<T>, String>;

/// Reads a list of names, or `all`.
pub fn named<T: PartialEq + Copy>(text: &str, all: &[T], name: impl Fn(T) -> String) -> Listed<T> {
    if text == "all" {
        return Ok(List(all.to_vec()));
    }
    let names: Vec<String> = all.iter().map(|&value| name(value)).collect();
    let one = |word: &str| names.iter().position(|name| name == word).map(|at| all[at]);
    list(text, one, &format!("all, or a list of {}, separated by commas", names.join(", ")))
}

/// Reads a list of whole numbers within bounds; k, M and G are powers of 1000.
pub fn numbers(text: &str, least: u64, most: u64, what: &str) -> Listed<u64> {
    quantities(text, number, least, most, what)
}

/// Reads a list of quantities within bounds.
fn quantities(
    text: &str,
    read: impl Fn(&str) -> Option<u64>,
    least: u64,
    most: u64,
    what: &str,
) -> Listed<u64> {
    let one = |word: &str| read(word).filter(|n| (least..=most).contains(n));
    list(text, one, &format!("{what} from {least} to {most}, or a list separated by commas"))
}

/// Reads a list of policies, or `all`.
pub fn policies(text: &str) -> Listed<Policy> {
    named(text, &Policy::ALL, |policy| policy.as_str().to_owned())
}

fn policy(text: &str) -> Result<Policy, String> {
    let found = Policy::ALL.into_iter().find(|policy| policy.as_str() == text);
    found.ok_or_else(|| "expected copy, map, persistent or staging".to_owned())
}

fn modes(text: &str) -> Listed<WaitModeArg> {
    named(text, &WaitModeArg::ALL, |mode| mode.name().to_owned())
}

fn apis(text: &str) -> Listed<Api> {
    named(text, Api::value_variants(), |api| api.name().to_owned())
}

fn one_way(text: &str) -> Listed<Direction> {
    named(text, &Direction::ONE_WAY, Direction::name)
}

fn any_way(text: &str) -> Listed<Direction> {
    named(text, Direction::value_variants(), Direction::name)
}

fn papers(text: &str) -> Listed<&'static str> {
    named(text, &["000", "001", "002", "003", "004"], str::to_owned)
}

fn sizes(text: &str) -> Listed<usize> {
    // Room for a numbered UDP packet.
    numbers(text, 60, 65_535, "bytes").map(narrow)
}

fn timed_sizes(text: &str) -> Listed<usize> {
    // Room for a time as well.
    numbers(text, 64, 65_535, "bytes").map(narrow)
}

fn bursts(text: &str) -> Listed<u32> {
    numbers(text, 1, BURST_MAX, "frames").map(narrow)
}

fn rates(text: &str) -> Listed<u64> {
    quantities(text, packets_per_second, 1, RATE_MAX, "frames per second")
}

/// Reads a list of numbers of queues of a vif.
pub fn queues(text: &str) -> Listed<u16> {
    numbers(text, 1, QUEUES_MAX.unsigned_abs(), "queues").map(narrow)
}

/// Converts the numbers to a type that holds the bounds which were checked.
pub fn narrow<T: TryFrom<u64>>(list: List<u64>) -> List<T> {
    List(list.0.into_iter().filter_map(|n| T::try_from(n).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_take_names_and_numbers_with_units() {
        assert_eq!(policies("all").unwrap().0, Policy::ALL);
        let two = policies("staging,copy").unwrap().0;
        assert_eq!(two, [Policy::Staging, Policy::Copy], "in the order given");
        assert_eq!(rates("1k,2Mpps").unwrap().0, [1000, 2_000_000]);
        assert_eq!(sizes("60,65535").unwrap().0, [60, 65_535]);
    }

    #[test]
    fn errors_say_what_was_found_and_expected() {
        for (refused, parts) in [
            (policies("copy,best").err(), ["\"best\"", "staging"]),
            (policies("").err(), ["\"\"", "all, or a list of copy"]),
            (modes("idle").err(), ["\"idle\"", "busy, adaptive, interrupt"]),
            (one_way("round-trip").err(), ["\"round-trip\"", "guest-to-guest"]),
            (sizes("64,0").err(), ["\"0\"", "60 to 65535"]),
            (sizes("64,64").err(), ["\"64\"", "twice"]),
            (timed_sizes("60").err(), ["\"60\"", "64 to 65535"]),
            (bursts("1025").err(), ["\"1025\"", "1 to 1024"]),
            (rates("0").err(), ["\"0\"", "frames per second from 1"]),
            (queues("17").err(), ["\"17\"", "queues from 1 to 16"]),
            (papers("005").err(), ["\"005\"", "000, 001, 002, 003, 004"]),
        ] {
            let said = refused.expect("an error");
            for part in parts {
                assert!(said.contains(part), "no {part} in {said}");
            }
        }
    }
}

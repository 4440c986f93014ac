//! Command line of `grantway bench vector`.

use crate::args::{List, Listed, OutputArgs, numbers};
use clap::Args;
use grantway_command::args::seconds;
use grantway_vector::BATCH_MAX;
use grantway_vector::nodes::{classifier::FILTERS_MAX, firewall::RULES_MAX};

/// `grantway bench vector`.
#[derive(Debug, Args)]
#[command(after_help = "\
The same graph is fed with the same frames, one at a time and in lists, by turns, in
one pinned thread: what a frame costs between the ring that it comes from and the
place that it goes to, with no ring and no guest, by the time of that thread. `gain`
is against lists of one, `cost` against the first row of its group. Frames are UDP of
60 bytes, headers of which are read again each time. The last column is what the paper
on lists of packets gained in the Linux kernel, on its hardware (seed 002).

Without --rules and --filters: the paper's cases, and traffic that splits at every
node. With --rules, as many rules of the firewall, of random networks and ports, and
4096 flows; with --filters, as many exact keys, or 32 masks where 0.

With --nftables, which needs root, the same frames go through the same rules in the
kernel, too, in the same run: from a TAP to a veth, at the far end of which nft's
rules are, one after the other, in a network namespace that ends with the bench. What
a packet takes there without any rule is subtracted: `rules` is what they alone took,
`kernel` is how many times that is what our whole graph takes. nft looks at each
packet anew; our firewall remembers what it said of a flow.

Example:
  grantway bench vector
  grantway bench vector --rules 1,100,10000 --list 1,64
  grantway bench vector --filters 1,10000,0 --json
  grantway bench vector --rules 1,10,100,1000,10000 --report vector.html
  grantway bench vector --nftables --list 1,64")]
pub struct VectorArgs {
    /// Rules of the firewall.
    #[arg(long, value_name = "LIST", value_parser = rules)]
    pub rules: Option<List<usize>>,
    /// Filters of the classifier.
    #[arg(long, value_name = "LIST", value_parser = filters)]
    pub filters: Option<List<usize>>,
    /// Frames at a time; 1 is always measured, too.
    #[arg(long, value_name = "LIST", default_value = "1,8,32,64,256", value_parser = lists)]
    pub list: List<usize>,
    /// Seconds that each row of the table is measured.
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub seconds: f64,
    /// Slices of each row; by default one per 0.1 s, at most 20 unless that makes them longer than
    /// 0.5 s.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub pairs: Option<u32>,
    /// Compare with nftables by equal rules: 1, 100 and 10,000 unless --rules is given.
    #[arg(long, conflicts_with = "filters")]
    pub nftables: bool,
    /// Forms of the output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `grantway bench lists`.
#[derive(Debug, Args)]
#[command(after_help = "\
For make instructions, which reads what callgrind counted of it.

Example:
  valgrind --tool=callgrind grantway bench lists --rules 100 --list 64")]
pub struct ListsArgs {
    /// Rules of the firewall.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=RULES_MAX as i64))]
    pub rules: u16,
    /// Apply rules that allow each vif only its own address.
    #[arg(long)]
    pub spoof: bool,
    /// Frames at a time.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=BATCH_MAX as i64))]
    pub list: u16,
    /// Frames, rounded up to whole lists.
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    pub packets: usize,
}

fn rules(text: &str) -> Listed<usize> {
    numbers(text, 1, RULES_MAX as u64, "rules").map(sizes)
}

fn filters(text: &str) -> Listed<usize> {
    numbers(text, 0, FILTERS_MAX as u64, "filters").map(sizes)
}

fn lists(text: &str) -> Listed<usize> {
    numbers(text, 1, BATCH_MAX as u64, "frames").map(sizes)
}

fn sizes(list: List<u64>) -> List<usize> {
    List(list.0.into_iter().filter_map(|number| usize::try_from(number).ok()).collect())
}

//! Command line of `grantway bench vector`.

use crate::args::{List, Listed, OutputArgs, numbers};
use clap::Args;
use grantway_command::args::seconds;
use grantway_vector::BATCH_MAX;
use grantway_vector::nodes::{classifier::FILTERS_MAX, firewall::RULES_MAX};

/// `grantway bench vector`.
#[derive(Debug, Args)]
#[command(after_help = "\
The same frames go through the same packet graph one at a time and in lists,
interleaved, in one pinned thread. This is the cost of a frame between its
source ring and its destination, without rings and guests, in processor time of
that thread. `gain` compares with lists of one, `cost` with the first row of the
group. Frames are UDP of 60 bytes, and their headers are read anew each time.
The last column shows the gain of packet lists in the Linux kernel, on the
hardware of the paper (paper 002).

Without --rules and --filters: the cases of the paper, and traffic that splits
at every node. --rules adds that many firewall rules with random networks and
ports, and uses 4096 flows. --filters adds that many exact keys; 0 means 32
masks.

--nftables needs root. The same frames also go through the same rules in the
kernel, in the same run: from a TAP to a veth whose far end has the nft rules
one after the other, in a network namespace that ends with the bench. The cost
of a packet on that path without rules is subtracted: `rules` is the cost of the
nft rules alone, and `kernel` is that cost divided by the cost of our whole
graph. nft checks each packet anew; our firewall remembers its verdict per flow.

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
    /// Frames per list; 1 is always measured too.
    #[arg(long, value_name = "LIST", default_value = "1,8,32,64,256", value_parser = lists)]
    pub list: List<usize>,
    /// Time of measurement per row.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = seconds)]
    pub seconds: f64,
    /// Slices per row. Default: one per 0.1 s and at most 20, or more if a slice would take longer
    /// than 0.5 s.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub pairs: Option<u32>,
    /// Compare with nftables with the same rules. Default of --rules: 1, 100 and 10,000.
    #[arg(long, conflicts_with = "filters")]
    pub nftables: bool,
    /// Forms of the output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `grantway bench lists`.
#[derive(Debug, Args)]
#[command(after_help = "\
For `make instructions`, which reads the counts of callgrind.

Example:
  valgrind --tool=callgrind grantway bench lists --rules 100 --list 64")]
pub struct ListsArgs {
    /// Rules of the firewall.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=RULES_MAX as i64))]
    pub rules: u16,
    /// Apply rules that allow each vif only its own address.
    #[arg(long)]
    pub spoof: bool,
    /// Frames per list.
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

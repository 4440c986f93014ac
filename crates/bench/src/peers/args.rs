//! Command line of `grantway bench peers`.

use super::end::SIZE_MAX;
use super::link::Link;
use crate::args::{List, Listed, OutputArgs, named, narrow, numbers};
use crate::rig::Direction;
use clap::Args;
use grantway_command::args::WaitModeArg;
use grantway_command::args::seconds;

/// Largest burst that testpmd accepts.
const BURST_MAX: u64 = 512;

/// `grantway bench peers`.
#[derive(Debug, Args)]
#[command(after_help = "\
Peers:
  memif         testpmd of DPDK at both ends, connected by net_memif
  vhost-split   net_vhost as backend, net_virtio_user as guest, split ring
  vhost-packed  like vhost-split, with a packed ring
  veth          AF_PACKET at both ends of a veth; needs root
  tap           two TAPs (DPDK's net_tap) and a bridge of the kernel; needs root
  plain-tap     like tap, with two programs of ours that read and write one
                frame per system call, with a header of the TAP and without
                offloads
Each set-up has two processes, each pinned to a processor, one queue of 256
slots, copy mode and no hugepages. Grantway's set-up is a backend and a frontend
with staging, a generator, and a port that counts frames and discards them, like
those of testpmd.

With the copying API the guest sends frames from one buffer each and rewrites
only their heads (tx); received frames are copied out (rx). With the lending API
frames are made in the buffers that the backend reads, and received frames are
discarded in place. Virtio's receiver also discards in place; memif's copies.
The backend's generator (rx) writes whole frames, which is one pass more over
the bytes than testpmd makes.

Each burst of the list is tried first, and each set-up is measured with its best
burst. Set-ups that are not being measured are stopped.

A round trip has one packet in flight, which both ends return at once. Its mean
follows from the packets of a slice. Grantway also times one packet in 16. The
ratio is Grantway's rate divided by the rate of the row: above 1 Grantway is
faster. Figures are medians of slices. `CPUs` is the processor time that both
processes had: below 2 another program was running, and the figures are not
reliable. Needs dpdk-testpmd (apt install dpdk-dev, or make bench-peers).

Example:
  grantway bench peers
  grantway bench peers --peer memif,vhost-packed --size 64 --direction tx \\
      --pairs 40
  grantway bench peers --direction round-trip --json --report peers.html")]
pub struct PeersArgs {
    /// Peers to compare with, or `all`.
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = peers)]
    pub peer: List<Link>,
    /// Wait mode of Grantway's ends. The peers always poll.
    #[arg(long, value_enum, default_value_t = WaitModeArg::Busy)]
    pub mode: WaitModeArg,
    /// Direction, seen from the guest: tx, rx, round-trip, or `all`.
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = directions)]
    pub direction: List<Direction>,
    /// Frame size in bytes, without FCS.
    #[arg(long, value_name = "LIST", default_value = "64,256,1500", value_parser = sizes)]
    pub size: List<usize>,
    /// Bursts to try at both ends.
    #[arg(long, value_name = "LIST", default_value = "32,64,128", value_parser = bursts)]
    pub burst: List<u32>,
    /// Time of measurement per row.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = seconds)]
    pub seconds: f64,
    /// Slices per row. Default: one per 0.1 s and at most 20, or more if a slice would take longer
    /// than 0.5 s.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub pairs: Option<u32>,
    #[command(flatten)]
    pub output: OutputArgs,
}

fn peers(text: &str) -> Listed<Link> {
    named(text, &Link::ALL, |link| link.name().to_owned())
}

fn directions(text: &str) -> Listed<Direction> {
    named(text, &[Direction::Tx, Direction::Rx, Direction::RoundTrip], Direction::name)
}

fn sizes(text: &str) -> Listed<usize> {
    // Room for a numbered UDP packet and a time.
    numbers(text, 64, SIZE_MAX, "bytes").map(narrow)
}

fn bursts(text: &str) -> Listed<u32> {
    numbers(text, 1, BURST_MAX, "frames").map(narrow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_was_found_and_expected() {
        for (refused, parts) in [
            (
                peers("xdp").err(),
                ["\"xdp\"", "memif, vhost-split, vhost-packed, veth, tap, plain-tap"],
            ),
            (directions("guest-to-guest").err(), ["\"guest-to-guest\"", "tx, rx, round-trip"]),
            (sizes("1515").err(), ["\"1515\"", "64 to 1514"]),
            (bursts("513").err(), ["\"513\"", "1 to 512"]),
        ] {
            let said = refused.expect("an error");
            for part in parts {
                assert!(said.contains(part), "no {part} in {said}");
            }
        }
        assert_eq!(peers("all").unwrap().0, Link::ALL);
    }
}

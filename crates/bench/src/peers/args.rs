//! Command line of `grantway bench peers`.

use super::link::Link;
use crate::args::{List, Listed, OutputArgs, named, narrow, numbers};
use crate::rig::Direction;
use clap::Args;
use grantway_command::args::WaitModeArg;
use grantway_command::args::seconds;

/// Largest burst that testpmd accepts.
const BURST_MAX: u64 = 512;
/// Largest frame that fits into a buffer of every peer, and through an MTU of 1500.
const SIZE_MAX: u64 = 1514;

/// `grantway bench peers`.
#[derive(Debug, Args)]
#[command(after_help = "\
  memif         testpmd of DPDK at both ends, net_memif between them
  vhost-split   net_vhost behind, net_virtio_user in the guest's place, split ring
  vhost-packed  the same with a packed ring
  veth          AF_PACKET on both ends of a veth; needs root
  tap           two TAPs, by DPDK's net_tap, and a bridge of the kernel's; needs root
All have two processes, each pinned to a processor, one queue of 256 slots, and
copy; none has hugepages. In Grantway's place are a backend and a frontend that
stage, with a generator and a port that counts what arrives and forgets it, as
testpmd's are. By the copying API the guest's frames lie ready in a buffer each, of
which only the head is written anew (tx), and what comes is copied out (rx). By the
lending API frames are made where the backend reads them, and what comes is forgotten
where it lies; virtio's receiver does that, and memif's copies. The backend's
generator (rx) writes whole frames, which is one pass more over the bytes than
testpmd's. Everybody measured is tried with each
burst of the list first, and has the best. Who is not measured is held still.

A round trip has one packet under way, which both ends send back at once, and its
mean is what the packets of a slice came to; Grantway times one in 16 besides. The
ratio is Grantway's rate to that row's: above 1 it is faster. Figures are medians of
slices. CPUs are what both processes had of the two processors: where that is less
than 2 somebody else worked, too, and the figures are worth little. Needs dpdk-testpmd (apt install dpdk-dev, or make bench-peers).

Example:
  grantway bench peers
  grantway bench peers --peer memif,vhost-packed --size 64 --direction tx --pairs 40
  grantway bench peers --direction round-trip --json --report peers.html")]
pub struct PeersArgs {
    /// Peers that Grantway is compared with, or `all`.
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = peers)]
    pub peer: List<Link>,
    /// Behaviour of Grantway's ends when there is no work; the peers always poll.
    #[arg(long, value_enum, default_value_t = WaitModeArg::Busy)]
    pub mode: WaitModeArg,
    /// Direction as the guest sees it: tx, rx, round-trip, or `all`.
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = directions)]
    pub direction: List<Direction>,
    /// Bytes of a frame, without FCS.
    #[arg(long, value_name = "LIST", default_value = "64,256,1500", value_parser = sizes)]
    pub size: List<usize>,
    /// Frames at a time, to be tried at both ends.
    #[arg(long, value_name = "LIST", default_value = "32,64,128", value_parser = bursts)]
    pub burst: List<u32>,
    /// Seconds that each row of the table is measured.
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub seconds: f64,
    /// Slices of each row; by default one per 0.1 s, at most 20 unless that makes them longer than
    /// 0.5 s.
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
            (peers("xdp").err(), ["\"xdp\"", "memif, vhost-split, vhost-packed, veth, tap"]),
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

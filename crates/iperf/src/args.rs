//! `grantway iperf` on the command line.

use clap::{Args, Subcommand, ValueEnum};
use grantway_command::args::seconds;
use grantway_command::args::within;
use grantway_command::args::{BufferPolicy, GuestArgs, WaitModeArg};
use grantway_stack::Address;
use smoltcp::socket::tcp::CongestionControl;
use smoltcp::wire::IpAddress;
use std::path::PathBuf;

/// `grantway iperf`.
#[derive(Debug, Args)]
#[command(after_help = "\
TCP and UDP are spoken in user space, over a vif that this command has to itself: no
kernel's stack is under it, and no TAP at this end. The other end is any iperf 2 (2.1
was tried), behind the backend's TAP or wherever that leads, or another of these, on
the same backend's bridge.

Example:
  grantway iperf server --host /tmp/gw --domain 1 --address 10.0.0.1/24
  grantway iperf client --host /tmp/gw --domain 2 --address 10.0.0.2/24 -c 10.0.0.1")]
pub struct IperfArgs {
    /// The end of the test.
    #[command(subcommand)]
    pub end: IperfEnd,
}

/// The two ends of a test.
#[derive(Debug, Subcommand)]
pub enum IperfEnd {
    /// Receive what clients send, and say how much came.
    Server(ServerArgs),
    /// Send to a server.
    Client(ClientArgs),
}

/// Options of both ends: the vif, and the stack on it.
#[derive(Debug, Args)]
pub struct EndArgs {
    /// The guest that has the vif.
    #[command(flatten)]
    pub guest: GuestArgs,
    /// The vif's number in the guest.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=65_535))]
    pub devid: u32,
    /// An address of this end and the length of its network's prefix, IPv4 or IPv6; may
    /// be given up to eight times.
    #[arg(long, value_name = "ADDR/BITS", required = true, value_parser = address)]
    pub address: Vec<Address>,
    /// Gateway of packets to other networks; may be given for IPv4 and for IPv6.
    #[arg(long, value_name = "ADDR", value_parser = host)]
    pub gateway: Vec<IpAddress>,
    /// UDP in place of TCP.
    #[arg(short, long)]
    pub udp: bool,
    /// The server's port.
    #[arg(short, long, value_name = "N", default_value_t = grantway_iperf2::PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Print a line every S seconds; by default only one at the end.
    #[arg(short, long, value_name = "S", value_parser = seconds)]
    pub interval: Option<f64>,
    /// Buffer policy to ask for. If the backend does not offer it, the next best is used.
    #[arg(long, value_enum, default_value_t)]
    pub policy: BufferPolicy,
    /// Take no offload of the backend's: checksums and segments are made here.
    #[arg(long)]
    pub no_offloads: bool,
    /// Copy what is sent out of a buffer of this program, and what comes into one, as a program
    /// with data of its own does. Otherwise sockets' buffers are sent as they are, and what comes is
    /// not read.
    #[arg(long, conflicts_with = "udp")]
    pub copies: bool,
    /// The way to wait, as for `grantway backend`.
    #[arg(long, value_enum)]
    pub mode: Option<WaitModeArg>,
    /// Run on this processor only.
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
    /// Largest IP packet in bytes; by default the vif's own.
    #[arg(long, value_name = "N", value_parser = within::<u32>(1280..=65_521))]
    pub mtu: Option<u32>,
    /// Write the stack's own state of each flow, a line of JSON every 10 ms, for `grantway
    /// flows --stack-log`.
    #[arg(long, value_name = "FILE", conflicts_with = "udp")]
    pub stack_log: Option<PathBuf>,
    /// Print JSON: one object per line.
    #[arg(long)]
    pub json: bool,
}

/// Algorithm by which a sender of TCP finds how much the network takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Congestion {
    /// CUBIC (RFC 9438): the window grows by the time since the last loss.
    Cubic,
    /// Reno (RFC 5681): the window grows by a segment per round trip.
    Reno,
    /// No congestion window: all that the receiver has room for is sent at once.
    None,
}

impl Congestion {
    /// Returns smoltcp's name of the algorithm.
    #[must_use]
    pub fn control(self) -> CongestionControl {
        match self {
            Self::Cubic => CongestionControl::Cubic,
            Self::Reno => CongestionControl::Reno,
            Self::None => CongestionControl::None,
        }
    }
}

/// `grantway iperf server`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints `ready` once it listens, and ends on SIGTERM or SIGINT, or after `--tests` tests.
Up to 16 connections are served at once, and 64 senders of UDP.

Example:
  grantway iperf server --host /tmp/gw --domain 1 --address 10.0.0.1/24
  grantway iperf server --host /tmp/gw --domain 1 --address fd00::1/64 -u -i 1")]
pub struct ServerArgs {
    /// Options of both ends.
    #[command(flatten)]
    pub end: EndArgs,
    /// End after N tests.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub tests: Option<u32>,
}

/// `grantway iperf client`.
#[derive(Debug, Args)]
#[command(after_help = "\
Numbers are decimal: 10M are 10,000,000. With -u the server's own report is shown
last, as iperf 2 sends it.

Example:
  grantway iperf client --host /tmp/gw --domain 1 --address 10.0.0.2/24 -c 10.0.0.1 -t 5 -i 1
  grantway iperf client --host /tmp/gw --domain 1 --address fd00::2/64 -c fd00::1 -u -b 100M
  grantway iperf client --address 10.0.0.2/24 -c 10.0.0.1 --policy copy --json")]
pub struct ClientArgs {
    /// Options of both ends.
    #[command(flatten)]
    pub end: EndArgs,
    /// The server's address, IPv4 or IPv6.
    #[arg(short, long, value_name = "ADDR", value_parser = host)]
    pub client: IpAddress,
    /// Seconds to send.
    #[arg(short, long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub time: f64,
    /// Bytes to send per stream, in place of a time.
    #[arg(short, long, value_name = "N[kMG]", conflicts_with = "time", value_parser = bytes)]
    pub num: Option<u64>,
    /// Bits per second that UDP sends, per stream.
    #[arg(short, long, value_name = "N[kMG]", default_value = "1M", value_parser = rate)]
    pub bandwidth: u64,
    /// Bytes of a datagram, or of a write of TCP; by default 1470 or 131072.
    #[arg(short, long, value_name = "N", value_parser = within::<u32>(100..=1_048_576))]
    pub len: Option<u32>,
    /// Congestion control of TCP.
    #[arg(long, value_enum, default_value_t = Congestion::Cubic)]
    pub congestion: Congestion,
    /// Streams at once.
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub parallel: u8,
}

fn host(text: &str) -> Result<IpAddress, String> {
    let address: Result<std::net::IpAddr, _> = text.parse();
    let address = address.map(IpAddress::from);
    address.map_err(|_| "expected an address of IPv4 or IPv6, such as 10.0.0.1".to_owned())
}

fn address(text: &str) -> Result<Address, String> {
    let expected = || "expected an address and a prefix, such as 10.0.0.1/24".to_owned();
    let (address, bits) = text.split_once('/').ok_or_else(expected)?;
    let (address, bits) = (host(address)?, bits.parse::<u8>().map_err(|_| expected())?);
    let most = if matches!(address, IpAddress::Ipv4(_)) { 32 } else { 128 };
    match bits <= most && address.is_unicast() {
        true => Ok(Address::new(address, bits)),
        false => Err(format!("expected a host's own address, and a prefix of up to {most} bits")),
    }
}

fn rate(text: &str) -> Result<u64, String> {
    let number = grantway_ports::number(text).filter(|n| (1_000..=1_000_000_000_000).contains(n));
    number.ok_or_else(|| "expected bits a second from 1k to 1000G, such as 10M".to_owned())
}

fn bytes(text: &str) -> Result<u64, String> {
    let number = grantway_ports::number(text).filter(|n| (1..=1_000_000_000_000).contains(n));
    number.ok_or_else(|| "expected bytes from 1 to 1000G, such as 10M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_a_hosts_own() {
        assert_eq!(address("10.0.0.1/24").map(|a| a.to_string()), Ok("10.0.0.1/24".to_owned()));
        assert_eq!(address("fd00::1/64").map(|a| a.prefix_len()), Ok(64));
        for odd in ["", "10.0.0.1", "10.0.0.1/33", "/8", "fd00::1/129", "224.0.0.1/4", "0.0.0.0/0"]
        {
            assert!(address(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn rates_have_bounds() {
        assert_eq!(rate("10M"), Ok(10_000_000));
        for odd in ["", "0", "999", "2000G", "-1", "1m"] {
            assert!(rate(odd).is_err(), "{odd}");
            assert!(odd == "999" || bytes(odd).is_err(), "{odd}");
        }
    }
}

//! `grantway iperf` on the command line.

use clap::{Args, Subcommand, ValueEnum};
use grantway_command::args::seconds;
use grantway_command::args::within;
use grantway_command::args::{BufferPolicy, GuestArgs, WaitModeArg};
use grantway_ports::quantity::{bits_per_second, number};
use grantway_stack::Address;
use smoltcp::socket::tcp::CongestionControl;
use smoltcp::wire::IpAddress;
use std::path::PathBuf;

/// `grantway iperf`.
#[derive(Debug, Args)]
#[command(after_help = "\
Runs TCP and UDP in user space, over a vif that this command uses alone, without
a kernel stack and without a TAP at this end. The other end is any iperf 2
(tested with 2.1) behind the backend's TAP, or another `grantway iperf` on the
same backend's bridge.

Example:
  grantway iperf server --host /tmp/gw --domain 1 --address 10.0.0.1/24
  grantway iperf client --host /tmp/gw --domain 2 \\
      --address 10.0.0.2/24 -c 10.0.0.1")]
pub struct IperfArgs {
    /// End of the test to run.
    #[command(subcommand)]
    pub end: IperfEnd,
}

/// The two ends of a test.
#[derive(Debug, Subcommand)]
pub enum IperfEnd {
    /// Receive data from clients and report it.
    Server(ServerArgs),
    /// Send data to a server.
    Client(ClientArgs),
}

/// Options of both ends: the vif, and the stack on it.
#[derive(Debug, Args)]
pub struct EndArgs {
    /// Guest that has the vif.
    #[command(flatten)]
    pub guest: GuestArgs,
    /// Number of the vif in the guest.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=65_535))]
    pub devid: u32,
    /// Address of this end with its prefix length, IPv4 or IPv6. Can be given up to eight times.
    #[arg(long, value_name = "ADDR/BITS", required = true, value_parser = address)]
    pub address: Vec<Address>,
    /// Gateway to other networks. Can be given for IPv4 and for IPv6.
    #[arg(long, value_name = "ADDR", value_parser = host)]
    pub gateway: Vec<IpAddress>,
    /// Use UDP instead of TCP.
    #[arg(short, long)]
    pub udp: bool,
    /// Port of the server.
    #[arg(short, long, value_name = "N", default_value_t = grantway_iperf2::PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Print a line every TIME. Default: one line at the end.
    #[arg(short, long, value_name = "TIME", value_parser = seconds)]
    pub interval: Option<f64>,
    /// Buffer policy to ask for. If the backend does not offer it, the next best is used.
    #[arg(long, value_enum, default_value_t)]
    pub policy: BufferPolicy,
    /// Use no offloads of the backend: compute checksums and segments at this end.
    #[arg(long)]
    pub no_offloads: bool,
    /// Copy sent and received data between sockets and a buffer, like a program with its own data.
    /// Default: socket buffers are sent as they are, and received data is not read.
    #[arg(long, conflicts_with = "udp")]
    pub copies: bool,
    /// Wait mode, as for `grantway backend`.
    #[arg(long, value_enum)]
    pub mode: Option<WaitModeArg>,
    /// Run on this processor only.
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
    /// Largest IP packet in bytes. Default: the vif's MTU.
    #[arg(long, value_name = "N", value_parser = within::<u32>(1280..=65_521))]
    pub mtu: Option<u32>,
    /// Write the state of the stack per flow to FILE: a line of JSON every 10 ms, for `grantway
    /// flows --stack-log`.
    #[arg(long, value_name = "FILE", conflicts_with = "udp")]
    pub stack_log: Option<PathBuf>,
    /// Print JSON: one object per line.
    #[arg(long)]
    pub json: bool,
}

/// Congestion control of a TCP sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Congestion {
    /// CUBIC (RFC 9438): the window grows with the time since the last loss.
    Cubic,
    /// Reno (RFC 5681): the window grows by one segment per round trip.
    Reno,
    /// No congestion window: the receiver's window is the only limit.
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
Prints `ready` when it listens, and ends on SIGTERM or SIGINT, or after --tests
tests. It serves up to 16 TCP connections and 64 UDP senders at once.

Example:
  grantway iperf server --host /tmp/gw --domain 1 --address 10.0.0.1/24
  grantway iperf server --host /tmp/gw --domain 1 --address fd00::1/64 -u -i 1")]
pub struct ServerArgs {
    /// Options of both ends.
    #[command(flatten)]
    pub end: EndArgs,
    /// Exit after N tests.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub tests: Option<u32>,
}

/// `grantway iperf client`.
#[derive(Debug, Args)]
#[command(after_help = "\
Numbers are decimal: 10M means 10,000,000. With -u the last line is the report
of the server, as iperf 2 sends it.

Example:
  grantway iperf client --host /tmp/gw --domain 1 \\
      --address 10.0.0.2/24 -c 10.0.0.1 -t 5 -i 1
  grantway iperf client --host /tmp/gw --domain 1 \\
      --address fd00::2/64 -c fd00::1 -u -b 100M
  grantway iperf client --address 10.0.0.2/24 -c 10.0.0.1 --policy copy --json")]
pub struct ClientArgs {
    /// Options of both ends.
    #[command(flatten)]
    pub end: EndArgs,
    /// Address of the server, IPv4 or IPv6.
    #[arg(short, long, value_name = "ADDR", value_parser = host)]
    pub client: IpAddress,
    /// Time to send.
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = seconds)]
    pub time: f64,
    /// Bytes to send per stream, instead of a time.
    #[arg(short, long, value_name = "N[kMG]", conflicts_with = "time", value_parser = bytes)]
    pub num: Option<u64>,
    /// Bits per second per UDP stream.
    #[arg(short, long, value_name = "N[kMG]", default_value = "1M", value_parser = rate)]
    pub bandwidth: u64,
    /// Bytes per datagram (default: 1470), or per TCP write (default: 131072).
    #[arg(short, long, value_name = "N", value_parser = within::<u32>(100..=1_048_576))]
    pub len: Option<u32>,
    /// Congestion control of TCP.
    #[arg(long, value_enum, default_value_t = Congestion::Cubic)]
    pub congestion: Congestion,
    /// Number of parallel streams.
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub parallel: u8,
}

fn host(text: &str) -> Result<IpAddress, String> {
    let address: Result<std::net::IpAddr, _> = text.parse();
    let address = address.map(IpAddress::from);
    address.map_err(|_| "expected an IPv4 or IPv6 address, such as 10.0.0.1".to_owned())
}

fn address(text: &str) -> Result<Address, String> {
    let expected = || "expected an address and a prefix length, such as 10.0.0.1/24".to_owned();
    let (address, bits) = text.split_once('/').ok_or_else(expected)?;
    let (address, bits) = (host(address)?, bits.parse::<u8>().map_err(|_| expected())?);
    let most = if matches!(address, IpAddress::Ipv4(_)) { 32 } else { 128 };
    match bits <= most && address.is_unicast() {
        true => Ok(Address::new(address, bits)),
        false => {
            Err(format!("expected the address of a host, and a prefix length of up to {most}"))
        }
    }
}

fn rate(text: &str) -> Result<u64, String> {
    let number = bits_per_second(text).filter(|n| (1_000..=1_000_000_000_000).contains(n));
    number.ok_or_else(|| {
        "expected bits per second from 1k to 1000G, such as 10M, 10Mbit/s or 1.25MB/s".to_owned()
    })
}

fn bytes(text: &str) -> Result<u64, String> {
    let number = number(text).filter(|n| (1..=1_000_000_000_000).contains(n));
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
        for text in ["10M", "10Mbit/s", "1.25MB/s"] {
            assert_eq!(rate(text), Ok(10_000_000), "{text}");
        }
        for odd in ["", "0", "999", "2000G", "-1", "1m"] {
            assert!(rate(odd).is_err(), "{odd}");
            assert!(odd == "999" || bytes(odd).is_err(), "{odd}");
        }
    }
}

//! Arguments of the commands that have no folder of their own. The help text of an option
//! says what it means.

use crate::config::ConfigArgs;
use crate::running::FolderArgs;
use clap::{Args, Command, ValueEnum};
use grantway_backend::Checksums;
use grantway_backend::policy::Policy;
use grantway_command::args::{
    Api, BufferPolicy, DOMAIN_MAX, GuestArgs, QUEUES_MAX, Switch, WaitModeArg, milliseconds, within,
};
use grantway_command::log::LogFormat;
use grantway_command::toolstack::mac::Mac;
use grantway_ports::PortSpec;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Options about the log, which every command has.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// Log more: -v for debug, -vv for trace. RUST_LOG overrides this.
    #[arg(short, long, global = true, action = clap::ArgAction::Count, display_order = 900)]
    pub verbose: u8,
    /// Log format on standard error: text, or json with one object per event.
    #[arg(
        long,
        value_enum,
        global = true,
        value_name = "FORMAT",
        hide_possible_values = true,
        default_value_t,
        display_order = 901
    )]
    pub log_format: LogFormat,
}

/// `grantway host`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints `ready` when it serves, and runs until SIGTERM or SIGINT. The store uses
Xen's own wire protocol, so Xen's tools work with it.

Example:
  grantway host --dir /tmp/gw &
  XENSTORED_PATH=/tmp/gw/xenstored/socket xenstore-ls -f")]
pub struct HostArgs {
    /// Directory of the host's sockets. It is created if it does not exist.
    #[arg(long, visible_alias = "host", value_name = "DIR")]
    pub dir: PathBuf,
    /// Event channels per domain.
    #[arg(long, value_enum, default_value_t = PortsArg::TwoLevel)]
    pub ports: PortsArg,
}

/// Number of event channels that a domain has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PortsArg {
    /// Number of Xen's two-level tables.
    #[value(name = "4096")]
    TwoLevel,
    /// Number of Xen's FIFO tables.
    #[value(name = "131072")]
    Fifo,
}

/// `grantway attach`.
#[derive(Debug, Args)]
#[command(after_help = "\
Keys of VIF, all optional, separated by commas. xl-network-configuration(5)
defines all of them except checksum:
  mac      MAC address of the guest; default: random, with Xen's prefix
  vifname  name of the backend's network device; default: vifDOMAIN.DEVID
  bridge   bridge that the device joins
  script   hotplug script
  rate     limit on what the guest transmits: 10Mb/s, 1MB/s@20ms
  mtu      largest IP packet in bytes, 68 to 65535
  devid    number of the vif; default: the lowest free one
  backend  domain of the backend; default: 0
  checksum `full` or `offload`, as for `grantway backend --checksum`
Words without a value:
  trusted    the guest trusts its backend (default)
  untrusted  the guest does not trust its backend

Example:
  grantway attach --host /tmp/gw --domain 1 'mac=00:16:3e:00:00:01,vifname=gwb1'")]
pub struct AttachArgs {
    /// Directory of the embedded host.
    #[arg(long, value_name = "DIR")]
    pub host: PathBuf,
    /// Domain, 1 to 32751. It is created if it does not exist.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=DOMAIN_MAX))]
    pub domain: u16,
    /// The vif, in the syntax of xl.
    #[arg(value_name = "VIF", default_value = "")]
    pub vif: String,
}

/// `grantway detach`.
#[derive(Debug, Args)]
#[command(after_help = "\
Asks the backend to close the vif, waits up to 10 s, and then removes the vif.

Example:
  grantway detach --host /tmp/gw --domain 1 --devid 0")]
pub struct DetachArgs {
    /// Directory of the embedded host.
    #[arg(long, value_name = "DIR")]
    pub host: PathBuf,
    /// Domain that has the vif.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=DOMAIN_MAX))]
    pub domain: u16,
    /// Number of the vif in its domain.
    #[arg(long, value_name = "N")]
    pub devid: u16,
    /// Remove the vif at once, without asking the backend.
    #[arg(long)]
    pub force: bool,
}

/// `grantway list`.
#[derive(Debug, Args)]
#[command(after_help = "\
A dash means that there is no value.

Example:
  grantway list --host /tmp/gw --tables
  grantway list --host /tmp/gw --json | jq '.vifs[].backend_state'")]
pub struct ListArgs {
    /// Directory of the embedded host.
    #[arg(long, value_name = "DIR")]
    pub host: PathBuf,
    /// Also show the event channels, grants and store nodes of each domain.
    #[arg(long)]
    pub tables: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `grantway backend`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without --host the backend runs on Xen, in dom0 or in a driver domain, in place
of the kernel's xen-netback. Each vif gets a TAP, which the hotplug script sets
up.

Ports:
  tap[:NAME]            a TAP; default NAME: the one that the vif asks for
  vhost[:NAME]          a TAP whose frames a kernel thread moves (modprobe
                        vhost_net): less work for the backend's thread, most for
                        short frames to the host; more work in total for TCP
                        from the host
  bridge                Grantway's own bridge between the vifs
  packet:NAME           an existing interface; only with --uplink
  null                  discards all frames
  echo                  sends all frames back
  check[:from=MAC]      checks the frames of a generator
  pcap:in=FILE,out=FILE
                        reads frames from one capture, writes to another
  generator[:KEY=VALUE,...]
                        sends numbered frames; keys: size, rate, burst, flows,
                        count, window, timed (numbers), to, from (MACs)

An uplink connects the bridge to other networks. With packet:NAME it uses a
card, a veth or a VLAN interface. The host's own network stack and the guests
cannot reach each other through that interface. If they must, use a TAP and a
bridge of the kernel.

With --config, further options come from a file of TOML, one line per option:

  port = \"bridge\"
  queues = 2
  drain-timeout = \"20s\"
  no-sandbox = false

A key is the long name of an option, and a value is written as on the command
line, in quotes. Numbers, true and false need no quotes. An option on the
command line wins over the file. The file is read when the backend starts:
restart the backend after a change. --check shows all faults of the file, or all
options with their origin, and `grantway show config` those of the running
backend.

The backend prints `ready` when it serves. SIGTERM ends it and leaves the vifs
connected: the next backend takes them over, and guests do not notice. The same
holds after SIGKILL. SIGINT closes the vifs.

With --rules, frames go through one graph of rules for each worker. In rules,
\"uplink\" is the network behind the vifs' own ports. SIGHUP loads the file again
without losing a frame. `grantway show rules` and `grantway show nodes` show
what happened to the frames.

When it serves, the backend keeps only the rights that it needs: it runs no
program, the threads that move frames open no files and make no connections,
and the control thread opens only its devices, the run directory and the files
named here. The log lists the parts that the kernel does not support.

Example:
  grantway backend
  grantway backend --port bridge --uplink tap --rules rules.toml
  grantway backend --port bridge --uplink packet:eth0
  grantway backend --merge off
  grantway backend --config /etc/grantway/backend.toml --check
  grantway backend --host /tmp/gw --port null --mode busy --cpu 0")]
pub struct BackendArgs {
    /// Options in a file.
    #[command(flatten)]
    pub options: ConfigArgs,
    /// Directory of the embedded host. Default: real Xen.
    #[arg(long, value_name = "DIR")]
    pub host: Option<PathBuf>,
    /// Directory of sockets and journals on Xen.
    #[arg(long, value_name = "DIR", default_value = grantway_command::place::RUN_FOLDER, conflicts_with = "host")]
    pub run_dir: PathBuf,
    /// Port that each vif is connected to.
    #[arg(long, value_name = "SPEC", default_value = "tap", value_parser = port)]
    pub port: String,
    /// MAC address of the TAP of a new vif. The default is the address of xen-netback's interfaces:
    /// a bridge never uses it as its own address, and routed guests may rely on it. `keep`: an
    /// address chosen by the kernel. An existing TAP keeps its address, and so does a TAP that
    /// --port names.
    #[arg(long, value_name = "MAC|keep", default_value = "fe:ff:ff:ff:ff:ff", hide_short_help = true, value_parser = TapMac::from_str)]
    pub tap_mac: TapMac,
    /// Wait mode of threads without work. Default: adaptive. On a machine with one processor the
    /// mode is always interrupt.
    #[arg(long, value_enum)]
    pub mode: Option<WaitModeArg>,
    /// Best buffer policy to offer. Each vif uses the best policy that both ends support. `copy`
    /// and `map` apply to all vifs.
    #[arg(long, value_enum, default_value_t = PolicyBound::Staging)]
    pub policy: PolicyBound,
    /// Largest number of pages mapped at once per vif, rings excluded. Buffers beyond this limit
    /// are copied.
    #[arg(long, value_name = "N", default_value_t = 4096, hide_short_help = true, value_parser = within::<u32>(0..=u32::MAX.into()))]
    pub mapped_pages: u32,
    /// Largest number of pages mapped at once for all vifs, rings excluded. One vif may hold no
    /// more pages than are still free. Default: three quarters of what Xen allows; no limit on an
    /// embedded host.
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = within::<u64>(0..=i64::MAX))]
    pub mapped_total: Option<u64>,
    /// Port that connects the bridge to other networks, with --port bridge: any port listed below,
    /// or packet:NAME for an existing interface.
    #[arg(long, value_name = "SPEC", value_parser = port)]
    pub uplink: Option<String>,
    /// Rules file for the packets of all vifs (see `grantway rules check --help`). SIGHUP loads it
    /// again; an invalid file is rejected.
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Write the packets that a filter mirrors to this capture. Needs --rules.
    #[arg(long, value_name = "FILE.pcap", requires = "rules")]
    pub mirror: Option<PathBuf>,
    /// Merge TCP segments and UDP datagrams from guests for receivers that accept large frames, and
    /// segment large frames from a TAP for guests that do not accept them.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub merge: Switch,
    /// Checksums of vifs that have no setting of their own. The setting of a vif is the node
    /// `checksum` in its backend directory of the store, or `other-config:checksum` of the VIF on
    /// XAPI. It is read when the guest connects.
    #[arg(long, value_enum, default_value_t = ChecksumArg::Offload)]
    pub checksum: ChecksumArg,
    /// Largest number of queues per vif. The frontend may use fewer.
    #[arg(long, value_name = "N", default_value_t = QUEUES_OFFERED, value_parser = within::<u8>(1..=QUEUES_MAX))]
    pub queues: u8,
    /// Threads that move frames. The queues are shared out among them. Default: one per two
    /// processors, at most 4.
    #[arg(long, value_name = "N", value_parser = within::<u8>(1..=64))]
    pub workers: Option<u8>,
    /// Time that a frame waits for a guest that posts no pages, in ms if it has no unit. Then the
    /// frame is dropped.
    #[arg(long, value_name = "TIME", default_value = "10s", hide_short_help = true, value_parser = milliseconds(0))]
    pub drain_timeout: u32,
    /// Time after which the interface of a guest that posts no pages loses its carrier, in ms if it
    /// has no unit.
    #[arg(long, value_name = "TIME", default_value = "60s", hide_short_help = true, value_parser = milliseconds(0))]
    pub stall_timeout: u32,
    /// Run on this processor only.
    #[arg(long, value_name = "N", value_parser = within::<usize>(0..=CPU_MAX))]
    pub cpu: Option<usize>,
    /// Serve Prometheus metrics at http://ADDR/metrics. Example: 127.0.0.1:9633.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub metrics: Option<SocketAddr>,
    /// Switch the sandbox off. Without it, a guest that takes over a thread gets the rights of this
    /// user: it can open files, run programs and make connections. Use this option to debug: the
    /// sandbox also hides symbols from backtraces.
    #[arg(long)]
    pub no_sandbox: bool,
    /// Domain of the embedded host that the backend runs in. Default: 0.
    #[arg(long, value_name = "N", requires = "host", value_parser = within::<u16>(0..=DOMAIN_MAX))]
    pub domain: Option<u16>,
}

/// Checksums of the frames that vifs carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ChecksumArg {
    /// Checksums may stay blank between guests and interfaces that accept this.
    Offload,
    /// Every frame to or from the guest has a complete checksum, and none is left to be segmented.
    /// For guests that route, such as FreeBSD with pf.
    Full,
}

impl ChecksumArg {
    /// Returns the backend's setting of this name.
    pub fn kind(self) -> Checksums {
        match self {
            Self::Offload => Checksums::Offload,
            Self::Full => Checksums::Full,
        }
    }
}

/// Address of the TAPs of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapMac(pub Option<Mac>);

impl FromStr for TapMac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "keep" {
            return Ok(Self(None));
        }
        let expected = || "expected `keep`, or the address of one device: fe:ff:ff:ff:ff:ff".into();
        text.parse().map(|mac| Self(Some(mac))).map_err(|_| expected())
    }
}

/// `grantway frontend`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without --host it runs a vif of the Xen domain that this machine is, in place of
the kernel's xen-netfront, which must not use that vif. It needs
/dev/xen/gntalloc and /dev/xen/evtchn, and continues after the domain was saved
and restored.

`grantway backend --help` lists the ports. The frontend prints `ready` when it
found the vif and opened the port, and runs until SIGTERM or SIGINT.

With --queues above 1 the TAP has the same number of queues, and the kernel
spreads flows over them. A generator sends its own flows on each queue.

Example:
  grantway frontend --tap gw0 --policy staging
  grantway frontend --host /tmp/gw --domain 1 --devid 0 --tap gwf1
  grantway frontend --host /tmp/gw --domain 1 --tap gwf1 --queues 2 --gso off")]
pub struct FrontendArgs {
    /// Options in a file.
    #[command(flatten)]
    pub options: ConfigArgs,
    /// Domain that has the vif.
    #[command(flatten)]
    pub guest: GuestArgs,
    /// Number of the vif in its domain.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = within::<u32>(0..=65_535))]
    pub devid: u32,
    /// Connect the vif to a TAP of this name.
    #[arg(long, value_name = "NAME", conflicts_with = "port", required_unless_present = "port")]
    pub tap: Option<String>,
    /// Connect the vif to another port.
    #[arg(long, value_name = "SPEC", value_parser = port)]
    pub port: Option<String>,
    /// Queues to ask for. Each queue has its own thread and its own queue of the port. The backend
    /// may offer fewer.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within::<u8>(1..=QUEUES_MAX))]
    pub queues: u8,
    /// Buffer policy to ask for. If the backend does not offer it, the next best is used.
    #[arg(long, value_enum, default_value_t)]
    pub policy: BufferPolicy,
    /// Use large TCP frames that the other end segments, if the backend offers this. `off` is for
    /// tests and comparisons.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub gso: Switch,
    /// Merge TCP segments and UDP datagrams from the vif for a port that accepts large frames.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub merge: Switch,
    /// Wait mode, as for `grantway backend`.
    #[arg(long, value_enum)]
    pub mode: Option<WaitModeArg>,
    /// Access of a generator or a checker to the vif's buffers.
    #[arg(long, value_enum, default_value_t = Api::Copy, hide = true)]
    pub api: Api,
    /// Run on this processor only.
    #[arg(long, value_name = "N", value_parser = within::<usize>(0..=CPU_MAX))]
    pub cpu: Option<usize>,
    /// Largest IP packet of the TAP in bytes. Default: the vif's MTU.
    #[arg(long, value_name = "BYTES", value_parser = within::<u32>(68..=65_535))]
    pub mtu: Option<u32>,
}

/// Best buffer policy that a backend accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PolicyBound {
    /// One grant copy per slot.
    Copy,
    /// Pages that guests send are mapped until the packet has left; headers are copied. Packets to
    /// guests are copied. For large packets, with any guest.
    Map,
    /// Pages stay mapped after their first use (feature-persistent).
    Persistent,
    /// Pages that the frontend lists over the control ring stay mapped.
    Staging,
}

impl PolicyBound {
    /// Returns the backend's policy of this name.
    pub fn kind(self) -> Policy {
        match self {
            Self::Copy => Policy::Copy,
            Self::Map => Policy::Map,
            Self::Persistent => Policy::Persistent,
            Self::Staging => Policy::Staging,
        }
    }
}

/// `grantway doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without --host it checks Xen: devices, the kernel's xen-netback, limits, the
vifs in the store and their interfaces. Each finding is one line: ok, warn or
FAIL, the finding, and the remedy after an arrow. It changes nothing and waits
for at most 2 s. Run it as root, as you run the backend.

Exit status: 0 if nothing is a FAIL, 1 otherwise.

Example:
  grantway doctor
  grantway doctor --json | jq '.findings[].remedy'
  grantway doctor --host /tmp/gw")]
pub struct DoctorArgs {
    /// Directory of the sockets.
    #[command(flatten)]
    pub folder: FolderArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Returns the definition of `grantway backend` alone, for a look at its options.
pub fn backend_definition() -> Command {
    LogArgs::augment_args(BackendArgs::augment_args(Command::new("backend")))
}

/// Queues that a backend offers by default.
pub const QUEUES_OFFERED: u8 = 4;

/// Largest number of a processor.
const CPU_MAX: i64 = 65_535;

/// Reads a port. Returns its name as it is written.
fn port(text: &str) -> Result<String, String> {
    text.parse::<PortSpec>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Reads an address of this machine.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an address and a port, such as 127.0.0.1:9633".to_owned())
}

//! Arguments of the commands that have no folder of their own. The help text of an option
//! says what it means.

use clap::{Args, ValueEnum};
use grantway_backend::Checksums;
use grantway_backend::policy::Policy;
use grantway_command::args::{
    Api, BufferPolicy, DOMAIN_MAX, GuestArgs, QUEUES_MAX, Switch, WaitModeArg,
};
use grantway_command::toolstack::mac::Mac;
use std::path::PathBuf;
use std::str::FromStr;

/// `grantway host`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints `ready` once it serves, and serves until SIGTERM or SIGINT.
The store speaks Xen's own wire protocol, so Xen's tools work against it.

Example:
  grantway host --dir /tmp/gw &
  XENSTORED_PATH=/tmp/gw/xenstored/socket xenstore-ls -f")]
pub struct HostArgs {
    /// Folder of the host's sockets, which is made if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Event channels that a domain has.
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
The keys, all optional, with commas between (xl-network-configuration(5), but for checksum):
  mac      address of the guest; default: a random one with Xen's prefix
  vifname  name of the backend's network device; default: vifDOMAIN.DEVID
  bridge   bridge that the device is to join
  script   hotplug script
  rate     limit on what the guest transmits: 10Mb/s, 1MB/s@20ms
  mtu      largest IP packet in bytes, 68 to 65535
  devid    the vif's number; default: the lowest free one
  backend  domain of the backend; default: 0
  checksum `full` or `offload`, as for `grantway backend --checksum`
And, without a value:
  trusted, untrusted  whether the guest trusts its backend; default: trusted

Example:
  grantway attach --host /tmp/gw --domain 1 'mac=00:16:3e:00:00:01,vifname=gwb1'")]
pub struct AttachArgs {
    /// Folder of the embedded host.
    #[arg(long, value_name = "DIR")]
    pub host: PathBuf,
    /// Domain, 1 to 32751, which is made if it does not exist.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=DOMAIN_MAX))]
    pub domain: u16,
    /// The vif, as written for xl.
    #[arg(value_name = "VIF", default_value = "")]
    pub vif: String,
}

/// `grantway detach`.
#[derive(Debug, Args)]
#[command(after_help = "\
Asks the backend to close, waits up to 10 s for it, and removes the vif.

Example:
  grantway detach --host /tmp/gw --domain 1 --devid 0")]
pub struct DetachArgs {
    /// Folder of the embedded host.
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
A dash stands for what is not there.

Example:
  grantway list --host /tmp/gw --tables
  grantway list --host /tmp/gw --json | jq '.vifs[].backend_state'")]
pub struct ListArgs {
    /// Folder of the embedded host.
    #[arg(long, value_name = "DIR")]
    pub host: PathBuf,
    /// Also show what the host holds: ports, grants, and the domains that reach them.
    #[arg(long)]
    pub tables: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `grantway backend`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without --host it runs on Xen, in dom0 or in a driver domain, in place of the
kernel's xen-netback; each vif gets a TAP that the hotplug script sets up.

Ports: tap[:NAME], vhost[:NAME], bridge, null, echo, check[:from=MAC],
pcap:in=FILE,out=FILE,
generator[:size=N,rate=N,burst=N,flows=N,count=N,window=N,timed=N,to=MAC,from=MAC].
A TAP without a name is named as its vif asks. With vhost a thread of the kernel moves the
TAP's frames (modprobe vhost_net): it takes work off the backend's thread, most for short
frames to the host, and costs more in all for TCP from the host. An uplink may also be packet:NAME: a card,
a veth or a VLAN interface. The host's own stack and the guests do not reach each other
through that interface; if they must, use a TAP and a bridge of the kernel's.
Prints `ready` once it serves. SIGTERM leaves the vifs to a successor, which
takes over without any guest noticing, as it does after a kill; SIGINT closes
them.

With --rules one thread moves all frames, so that a connection or a rate is known in
one place; to rules, what is behind a vif's own port is \"uplink\". SIGHUP loads the
file again, between two lists of frames: none is lost. `grantway rules show` and
`grantway graph` say what became of them.

Once it serves it has only the rights that it needs: no thread runs a program, threads that
move frames open and connect nothing, and the control thread opens only the devices, the
run folder and the files named here. The log says which parts of this the kernel lacks.

Example:
  grantway backend
  grantway backend --port bridge --uplink tap --rules rules.toml
  grantway backend --port bridge --uplink packet:eth0
  grantway backend --merge off
  grantway backend --host /tmp/gw --port null --mode busy --cpu 0")]
pub struct BackendArgs {
    /// Folder of the embedded host. Default: real Xen.
    #[arg(long, value_name = "DIR")]
    pub host: Option<PathBuf>,
    /// Folder of sockets and journals on Xen.
    #[arg(long, value_name = "DIR", default_value = grantway_command::place::RUN_FOLDER, conflicts_with = "host")]
    pub run_dir: PathBuf,
    /// Port to which each vif is bridged.
    #[arg(long, value_name = "SPEC", default_value = "tap")]
    pub port: String,
    /// Address of the TAP of a new vif. The default is that of xen-netback's interfaces: a bridge
    /// never takes it for its own, and routed guests may rely on it. `keep`: the kernel's choice. A
    /// TAP that is taken over keeps its address, and so does one that --port names.
    #[arg(long, value_name = "MAC|keep", default_value = "fe:ff:ff:ff:ff:ff", hide_short_help = true, value_parser = TapMac::from_str)]
    pub tap_mac: TapMac,
    /// Mode of waiting. Default: adaptive. With only one processor no thread spins, and all modes
    /// are interrupt.
    #[arg(long, value_enum)]
    pub mode: Option<WaitModeArg>,
    /// Best buffer policy to offer. Each vif gets the best that both ends support; copy and map
    /// hold for all vifs.
    #[arg(long, value_enum, default_value_t = PolicyBound::Staging)]
    pub policy: PolicyBound,
    /// Most pages of a vif's guest that are mapped at once, without its rings; buffers beyond that
    /// are copied.
    #[arg(long, value_name = "N", default_value_t = 4096, hide_short_help = true)]
    pub mapped_pages: u32,
    /// Most pages of all guests that are mapped at once, without rings. A vif may hold no more of
    /// them than are still free. Default: three quarters of what Xen allows; no limit on an
    /// embedded host.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub mapped_total: Option<u64>,
    /// Port beside the guests on the bridge, with --port bridge: one of the ports above, or
    /// packet:NAME for the wire behind an interface that exists.
    #[arg(long, value_name = "SPEC")]
    pub uplink: Option<String>,
    /// File of rules for the packets of every vif, as `grantway rules check --help` shows. SIGHUP
    /// loads it again; a file with errors is refused.
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Capture of the packets that a filter mirrors, with --rules.
    #[arg(long, value_name = "FILE.pcap", requires = "rules")]
    pub mirror: Option<PathBuf>,
    /// Merge TCP segments and UDP datagrams of guests for receivers that accept large frames, and
    /// cut large frames from a TAP for guests that do not.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub merge: Switch,
    /// Checksums of vifs that have no mark of their own. A node `checksum` in a vif's backend folder
    /// marks it, or `other-config:checksum` of the VIF on XAPI; both are read when the guest
    /// connects.
    #[arg(long, value_enum, default_value_t = ChecksumArg::Offload)]
    pub checksum: ChecksumArg,
    /// Most queues that a vif may have. Its frontend uses as many of them as it wants.
    #[arg(long, value_name = "N", default_value_t = QUEUES_OFFERED, value_parser = clap::value_parser!(u8).range(1..=QUEUES_MAX))]
    pub queues: u8,
    /// Threads that move frames, each for its share of the queues. Default: one for every second
    /// processor, at most 4.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub workers: Option<u8>,
    /// Time that a frame waits for a guest that posts no pages, before it is dropped.
    #[arg(long, value_name = "MS", default_value_t = 10_000, hide_short_help = true)]
    pub drain_timeout: u64,
    /// Time after which the interface of a guest that posts no pages loses its carrier.
    #[arg(long, value_name = "MS", default_value_t = 60_000, hide_short_help = true)]
    pub stall_timeout: u64,
    /// Run on this processor only.
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
    /// Serve metrics for Prometheus at http://ADDR/metrics, such as 127.0.0.1:9633.
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<std::net::SocketAddr>,
    /// Keep all rights. Without the sandbox, a worker that a guest takes over has the rights of
    /// this user: it can open files, run programs and make connections. The control thread can open
    /// every file. Use this option to debug: the sandbox also hides symbols from backtraces.
    #[arg(long)]
    pub no_sandbox: bool,
    /// Domain of the embedded host in which the backend serves. Default: 0.
    #[arg(long, value_name = "N", requires = "host", value_parser = clap::value_parser!(u16).range(0..=DOMAIN_MAX))]
    pub domain: Option<u16>,
}

/// Checksums of the frames that vifs carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ChecksumArg {
    /// A checksum may be left blank between guests and interfaces that accept that.
    Offload,
    /// No frame to or from the guest has a blank checksum, and none is left to be segmented. For
    /// routers that drop or forward such frames, as those of FreeBSD's pf.
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
the kernel's xen-netfront, which must not hold it. It needs /dev/xen/gntalloc
and /dev/xen/evtchn, and goes on where the domain was saved and restored.

Ports are written as for `grantway backend`. Prints `ready` once the vif is
found and the port is open, and runs until SIGTERM or SIGINT.

With --queues above 1 the TAP has as many, and the kernel spreads flows over
them; a generator makes flows of their own for each.

Example:
  grantway frontend --tap gw0 --policy staging
  grantway frontend --host /tmp/gw --domain 1 --devid 0 --tap gwf1
  grantway frontend --host /tmp/gw --domain 1 --tap gwf1 --queues 2 --gso off")]
pub struct FrontendArgs {
    /// Domain that has the vif.
    #[command(flatten)]
    pub guest: GuestArgs,
    /// Number of the vif in its domain.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=65_535))]
    pub devid: u32,
    /// Bridge the vif to a TAP of this name.
    #[arg(long, value_name = "NAME", conflicts_with = "port", required_unless_present = "port")]
    pub tap: Option<String>,
    /// Bridge the vif to another port.
    #[arg(long, value_name = "SPEC")]
    pub port: Option<String>,
    /// Queues to ask for, each with a thread and a queue of the port to itself. The backend may
    /// offer fewer.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=QUEUES_MAX))]
    pub queues: u8,
    /// Buffer policy to ask for. If the backend does not offer it, the next best is used.
    #[arg(long, value_enum, default_value_t)]
    pub policy: BufferPolicy,
    /// Use large TCP frames that the other end segments, if the backend offers that. Off is for
    /// tests and comparisons.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub gso: Switch,
    /// Merge TCP segments and UDP datagrams from the vif for a port that accepts large frames.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub merge: Switch,
    /// Mode of waiting, as for `grantway backend`.
    #[arg(long, value_enum)]
    pub mode: Option<WaitModeArg>,
    /// Way in which a generator's frames cross to the vif's buffers, and a checker's from them.
    #[arg(long, value_enum, default_value_t = Api::Copy, hide = true)]
    pub api: Api,
    /// Run on this processor only.
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
    /// Largest IP packet of the TAP in bytes. Default: the vif's MTU.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(68..=65_535))]
    pub mtu: Option<u32>,
}

/// `grantway report`.
#[derive(Debug, Args)]
#[command(after_help = "\
One object, with a report for each socket in the folder: counters of vifs, queues
and ports, and what was asked of the hypervisor.

Example:
  grantway report | jq '.\"backend-0\".platform.copies'
  grantway report --host /tmp/gw")]
pub struct ReportArgs {
    /// Folder of the embedded host. Default: real Xen.
    #[arg(long, value_name = "DIR")]
    pub host: Option<PathBuf>,
    /// Folder of the sockets on Xen.
    #[arg(long, value_name = "DIR", default_value = grantway_command::place::RUN_FOLDER, conflicts_with = "host")]
    pub run_dir: PathBuf,
}

/// Best buffer policy that a backend agrees to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PolicyBound {
    /// A grant copy for each slot.
    Copy,
    /// Pages that guests send are mapped while they are under way, except headers. Packets to
    /// guests are grant-copied. For large packets of any guest.
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
Without --host it looks at Xen: devices, the kernel's xen-netback, limits, the
store's vifs and their interfaces. One finding a line: ok, warn or FAIL, what
was found, and after an arrow what to do. It changes nothing, and waits for
nothing longer than 2 s. Run it as root, as the backend runs.

Exit status: 0 where nothing is a FAIL, 1 otherwise.

Example:
  grantway doctor
  grantway doctor --json | jq '.findings[].remedy'
  grantway doctor --host /tmp/gw")]
pub struct DoctorArgs {
    /// Folder of the embedded host. Default: real Xen.
    #[arg(long, value_name = "DIR")]
    pub host: Option<PathBuf>,
    /// Folder of the backend's socket on Xen.
    #[arg(long, value_name = "DIR", default_value = grantway_command::place::RUN_FOLDER, conflicts_with = "host")]
    pub run_dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Queues that a backend offers by default.
pub const QUEUES_OFFERED: u8 = 4;

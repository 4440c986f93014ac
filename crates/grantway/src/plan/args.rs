//! Command line of `grantway plan`.

use crate::args::PolicyBound;
use clap::{Args, ValueEnum};
use grantway_command::args::QUEUES_MAX;

/// Most vifs that are planned for.
const VIFS_MAX: i64 = 1_000_000;

/// `grantway plan`.
#[derive(Debug, Args)]
#[command(after_help = "\
The first table shows what the vifs need: per queue, per vif and in total. A
grant belongs to the guest and lets the backend use one page. Each page that the
backend keeps mapped takes a maptrack handle in Xen (two if the backend's domain
is PV, as dom0 is by default), and each map call takes an area of the backend's
address space. All figures are maxima, for Grantway's frontend while all its
queues are busy. At rest a queue has half as many receive pages. A stock guest
grants at most 512 pages per queue.

The second table shows the limits: the default, the value on this machine
('-': not known here), and the command that raises a limit that is too small.
It counts only the vifs: other programs in a domain need their share too. The
verdict uses this machine's value if it is known. Descriptors are those that the
installed units allow. A backend that is started by hand has the limit of its
shell: ulimit -n.

The third table shows what the vifs share: how long one vif may wait for the
others, and what remains for a vif when its neighbours take all they can.
`grantway doctor` and `grantway top` show the longest round and step so far.

Policies: copy and map need the same grants. With map the pages of transmitted
packets are mapped while the packets are processed. With persistent and staging
all pages stay mapped, up to --mapped-pages per vif; the rest is copied.

Exit status: 0, also if a limit is too small, unless --check is given; 2 if the
command line is invalid.

Example:
  grantway plan --vifs 200 --queues 2 --policy staging
  grantway plan --vifs 80 --driver-domain --type hvm
  grantway plan --vifs 500 --check
  grantway plan --vifs 40 --queues 2 --port vhost
  grantway plan --vifs 64 --policy persistent --json | jq '.limits[].raise'")]
pub struct PlanArgs {
    /// Total number of vifs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=VIFS_MAX as u64))]
    pub vifs: u64,
    /// Queues of each vif.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=QUEUES_MAX))]
    pub queues: u8,
    /// Buffer policy.
    #[arg(long, value_enum, default_value_t = PolicyBound::Copy)]
    pub policy: PolicyBound,
    /// Port of each vif. `tap` is also right for all other ports but `vhost`.
    #[arg(long, value_enum, default_value_t = PlanPort::Tap)]
    pub port: PlanPort,
    /// Vifs per guest.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub per_guest: u64,
    /// The backend runs in a driver domain, not in dom0.
    #[arg(long)]
    pub driver_domain: bool,
    /// Type of the backend's domain. Default: the type of this machine on Xen, otherwise PV.
    #[arg(long = "type", value_enum)]
    pub kind: Option<DomainKind>,
    /// Largest number of pages mapped at once per vif, as for `grantway backend`.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub mapped_pages: u32,
    /// Exit with status 1 if a limit is too small.
    #[arg(long)]
    pub check: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Port of a vif, if it uses resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanPort {
    /// A TAP that the backend reads and writes.
    Tap,
    /// A TAP whose frames a kernel thread moves.
    Vhost,
}

impl PlanPort {
    /// Returns the name for the option `--port` of the backend.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tap => "tap",
            Self::Vhost => "vhost",
        }
    }
}

/// Mode of a domain, as xl.cfg names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DomainKind {
    /// Paravirtualised: Linux maps each page twice.
    Pv,
    /// Hardware page tables.
    Pvh,
    /// Hardware page tables and emulated devices.
    Hvm,
}

impl DomainKind {
    /// Returns the name that Xen's own tools write.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pv => "PV",
            Self::Pvh => "PVH",
            Self::Hvm => "HVM",
        }
    }
}

//! Command line of `grantway plan`.

use crate::args::PolicyBound;
use clap::{Args, ValueEnum};
use grantway_command::args::QUEUES_MAX;

/// Most vifs that are planned for.
const VIFS_MAX: i64 = 1_000_000;

/// `grantway plan`.
#[derive(Debug, Args)]
#[command(after_help = "\
Three tables. The first says what the vifs take: for a queue, for a vif, in all.
Grants are the guest's: it lets its backend reach a page. Each page that the
backend keeps mapped takes a maptrack handle in Xen (two where the backend's
domain is PV, as dom0 is by default), and each map call an area of the
backend's address space. Everything is counted at its most, of our own
frontend while all its queues are busy; at rest a queue receives into half as
many pages. A stock guest grants no more than 512 pages a queue.

The second says which limits these meet, what they are by default and on this
machine ('-': not to be seen from here), and where one is too small, what to
type. It counts the vifs alone: what else runs in a domain needs its share too.
A verdict goes by this machine's value where there is one.

The third says what the vifs share whatever their guests do: how long others
wait, and what a vif has for itself when its neighbours take all they can.
`grantway doctor` and `top` say how long the longest round and step were.

Policies: copy and map grant the same; map has the pages of transmitted packets
mapped while they are looked at; persistent and staging keep all pages mapped,
up to --mapped-pages of a vif, and copy the rest.

Exit status: 0, whatever fits; 2 the command line is wrong.

Example:
  grantway plan --vifs 200 --queues 2 --policy staging
  grantway plan --vifs 80 --driver-domain --type hvm
  grantway plan --vifs 64 --policy persistent --json | jq '.limits[].raise'")]
pub struct PlanArgs {
    /// Vifs of all guests together.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=VIFS_MAX as u64))]
    pub vifs: u64,
    /// Queues of each vif.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=QUEUES_MAX))]
    pub queues: u8,
    /// Policy by which buffers cross.
    #[arg(long, value_enum, default_value_t = PolicyBound::Copy)]
    pub policy: PolicyBound,
    /// Vifs that one guest has.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub per_guest: u64,
    /// The backend runs in a driver domain, not in dom0.
    #[arg(long)]
    pub driver_domain: bool,
    /// Mode of the backend's domain; by default that of this machine if it is Xen, else PV.
    #[arg(long = "type", value_enum)]
    pub kind: Option<DomainKind>,
    /// Most pages of a vif's guest that stay mapped, as for `grantway backend`.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub mapped_pages: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Mode of a domain, as xl.cfg names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DomainKind {
    /// Paravirtualised: Linux maps each page twice.
    Pv,
    /// With page tables of the processor's.
    Pvh,
    /// With page tables of the processor's, and devices emulated.
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

//! `grantway show` shows running backends and frontends, by subject.
//!
//! [`ends`] has the data of a report, and [`rows`] the rows of each subject.

mod ends;
mod rows;

use crate::args::ListArgs;
use crate::ctl::{self, Subject};
use crate::running::{self, FolderArgs, some_reports};
use crate::{config, list, nodes, rules};
use clap::{Args, ValueEnum};
use ends::Ends;
use grantway_command::args::DOMAIN_MAX;
use grantway_command::error::CommandError;
use grantway_command::output;
use serde_json::Value;

/// `grantway show`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = false)]
#[command(after_help = "\
Counters count from the start of the backend or frontend; of a vif, from its
connection. tx is from the guest, rx is to the guest, at both ends. For rates
use `grantway top`, and `grantway flows --live` for TCP flows. Tables round
counters, JSON does not.

Without a subject, --json prints the whole report of each program.

Other names: `report` is show --json, `graph` is show nodes, `list --tables` is
show host, and `rules show`, `ctl hash show` and `ctl staging show` are show
rules, hash and staging.

Example:
  grantway show
  grantway show drops
  grantway show queues --vif vif1.0 --json | jq '.[].tx_waiting'
  grantway show --json | jq '.\"backend-0\".platform.copies'
  grantway show nodes --host /tmp/gw")]
pub struct ShowArgs {
    /// Subject.
    #[arg(value_name = "SUBJECT", value_enum)]
    pub subject: Option<ShowSubject>,
    /// Directory of the sockets.
    #[command(flatten)]
    pub folder: FolderArgs,
    /// Only the backend that runs in this domain.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=DOMAIN_MAX))]
    pub domain: Option<u16>,
    /// Only the vif of this name, in vifs, queues and drops.
    #[arg(long, value_name = "NAME")]
    pub vif: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ShowSubject {
    /// State, policy and packets of each vif (default).
    Vifs,
    /// Packets, signals and waiting slots of each queue.
    Queues,
    /// Dropped packets of each vif, by reason.
    Drops,
    /// Threads that move frames: their queues and processor time.
    Workers,
    /// Packets and time per node of a backend's graph.
    Nodes,
    /// Packets per rule of a backend.
    Rules,
    /// Staged pages of each frontend.
    Staging,
    /// Hash that spreads frames over the queues of each frontend.
    Hash,
    /// Options of each program, and where each comes from.
    Config,
    /// Domains, vifs, event channels and grants of an embedded host.
    Host,
}

/// Shows a subject.
///
/// # Errors
///
/// No program with the subject runs in the folder, or an option does not fit the subject.
pub fn run(args: &ShowArgs) -> Result<(), CommandError> {
    use ShowSubject::{Config, Drops, Hash, Host, Nodes, Queues, Rules, Staging, Vifs, Workers};

    let subject = args.subject.unwrap_or(Vifs);
    let unfit = |option: &str| {
        let value = subject.to_possible_value();
        let name = value.as_ref().map_or("", |value| value.get_name());
        Err(CommandError::Usage(format!("{option} has no effect on `show {name}`; remove it")))
    };
    if args.vif.is_some() && !matches!(subject, Vifs | Queues | Drops) {
        return unfit("--vif");
    }
    if args.domain.is_some() && matches!(subject, Staging | Hash | Host) {
        return unfit("--domain");
    }
    let dir = args.folder.dir();
    let backend = || running::find(dir, args.domain).map(|(_, report)| report);
    match subject {
        Nodes => return nodes::show(&backend()?, args.json),
        Rules => return rules::show(&backend()?, args.json),
        Staging => return ctl::show(dir, Subject::Staging, args.json),
        Hash => return ctl::show(dir, Subject::Hash, args.json),
        Host => return host(args),
        Vifs | Queues | Drops | Workers | Config => {}
    }
    let mut reports = some_reports(dir)?;
    if let Some(domain) = args.domain {
        let wanted = format!("backend-{domain}");
        reports.retain(|name, _| *name == wanted);
        if reports.is_empty() {
            return Err(CommandError::Failed(format!(
                "{}: no backend of domain {domain} is running; {}",
                dir.display(),
                running::REMEDY
            )));
        }
    }
    if args.json && args.subject.is_none() && args.vif.is_none() {
        return output::line(Value::Object(reports).to_string());
    }
    if subject == Config {
        return config::show(&reports, args.json);
    }
    let ends = Ends::read(reports)?;
    let vif = args.vif.as_deref();
    match subject {
        Queues => rows::show(&rows::queues(&ends, vif), vif, args.json),
        Drops => rows::show(&rows::drops(&ends, vif), vif, args.json),
        Workers => rows::show(&rows::workers(&ends), None, args.json),
        _ => rows::show(&rows::vifs(&ends, vif), vif, args.json),
    }
}

fn host(args: &ShowArgs) -> Result<(), CommandError> {
    let Some(host) = args.folder.host.clone() else {
        return Err(CommandError::Usage(
            "`show host` shows an embedded host; give its directory with --host (on Xen: `xl list`, \
             `xenstore-ls`)"
                .into(),
        ));
    };
    list::run(&ListArgs { host, tables: true, json: args.json })
}

//! `grantway plan` shows the resources that vifs need, and whether they are there.
//!
//! - [`args`]: the command line.
//! - [`need`]: resources for the vifs.
//! - [`judge`]: limits that the vifs may reach.
//! - [`machine`]: limits of this machine.
//! - [`bounds`]: resources that the vifs share.
//!
//! [`grantway_command::footprint`] has the needs of one vif, and [`grantway_command::limits`] the
//! default limits.

pub mod args;
mod bounds;
mod judge;
mod machine;
mod need;

use crate::doctor::roots::Roots;
use args::{DomainKind, PlanArgs, PlanPort};
use grantway_backend::policy::Policy;
use grantway_command::args::DOMAIN_MAX;
use grantway_command::error::CommandError;
use grantway_command::footprint::Footprint;
use grantway_command::output;
use grantway_command::place::RUN_FOLDER;
use machine::Machine;
use serde::{Serialize, Serializer};
use serde_json::json;
use std::path::Path;

/// Planned vifs, and the place of their backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Plan {
    vifs: u64,
    queues: u64,
    #[serde(serialize_with = "name")]
    policy: Policy,
    port: PlanPort,
    /// Vifs of one guest.
    per_guest: u64,
    guests: u64,
    driver_domain: bool,
    /// Mode of the backend's domain.
    #[serde(rename = "type")]
    kind: DomainKind,
    /// Most pages of buffers that stay mapped for a vif.
    mapped_pages: u64,
}

fn name<S: Serializer>(policy: &Policy, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(policy.as_str())
}

impl Plan {
    fn of(args: &PlanArgs, machine: &Machine) -> Result<Self, CommandError> {
        let per_guest = args.per_guest;
        if per_guest > args.vifs {
            return Err(CommandError::Usage(format!(
                "--per-guest {per_guest} is more than --vifs {}, expected 1 to {}",
                args.vifs, args.vifs
            )));
        }
        let guests = args.vifs.div_ceil(per_guest);
        if guests > DOMAIN_MAX as u64 {
            return Err(CommandError::Usage(format!(
                "--vifs {} need {guests} guests, expected at most {DOMAIN_MAX}; use --per-guest {}",
                args.vifs,
                args.vifs.div_ceil(DOMAIN_MAX as u64)
            )));
        }
        Ok(Self {
            vifs: args.vifs,
            queues: args.queues.into(),
            policy: args.policy.kind(),
            port: args.port,
            per_guest,
            guests,
            driver_domain: args.driver_domain,
            kind: args.kind.or(machine.kind).unwrap_or(DomainKind::Pv),
            mapped_pages: args.mapped_pages.into(),
        })
    }

    fn vif(&self) -> Footprint {
        let vif = Footprint::new(self.policy, self.queues, self.mapped_pages);
        match self.port {
            PlanPort::Tap => vif,
            PlanPort::Vhost => vif.by_vhost(),
        }
    }

    /// Returns the number of handles that Xen keeps for a mapped page.
    fn handles_a_page(&self) -> u64 {
        // On PV the kernel's own mapping of the page takes a second handle.
        if self.kind == DomainKind::Pv { 2 } else { 1 }
    }

    fn place(&self) -> &'static str {
        if self.driver_domain { "driver domain" } else { "dom0" }
    }
}

/// Prints the needs of the vifs.
///
/// # Errors
///
/// The command line asks for something impossible. Or, with `--check`, a limit is too small.
pub fn run(args: &PlanArgs) -> Result<(), CommandError> {
    let machine = Machine::gather(&Roots::system(Path::new(RUN_FOLDER)));
    let plan = Plan::of(args, &machine)?;
    let limits = judge::limits(&plan, &machine);
    output::line(if args.json { json_of(&plan, &limits) } else { text_of(&plan, &limits) })?;
    match limits.iter().all(judge::Limit::fits) {
        false if args.check => Err(CommandError::Reported),
        _ => Ok(()),
    }
}

fn json_of(plan: &Plan, limits: &[judge::Limit]) -> String {
    let fits = limits.iter().all(judge::Limit::fits);
    let limits: Vec<_> = limits.iter().map(judge::Limit::json).collect();
    json!({
        "plan": plan,
        "needs": need::needs(plan),
        "limits": limits,
        "bounds": bounds::bounds(plan),
        "fits": fits,
    })
    .to_string()
}

fn text_of(plan: &Plan, limits: &[judge::Limit]) -> String {
    let many = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let small = limits.iter().filter(|limit| !limit.fits()).count();
    let verdict = match small {
        0 => "Everything fits.".to_owned(),
        _ => format!("{} too small.", many(small as u64, "limit")),
    };
    format!(
        "{} with {} each, policy {}, port {}, {} per guest,\n\
         backend in {} ({}). Maxima:\n\n{}\n{}\n{}\n{verdict}",
        many(plan.vifs, "vif"),
        many(plan.queues, "queue"),
        plan.policy.as_str(),
        plan.port.as_str(),
        plan.per_guest,
        plan.place(),
        plan.kind.as_str(),
        need::table(&need::needs(plan)),
        judge::table(limits),
        bounds::table(&bounds::bounds(plan)),
    )
}

#[cfg(test)]
mod tests;

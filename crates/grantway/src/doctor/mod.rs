//! `grantway doctor` finds what prevents a backend from serving the vifs of this machine, or a
//! frontend from running one. Each finding is a line, with its remedy.
//!
//! - [`facts`]: facts from the system, the store and the backend. All paths are below a
//!   [`roots::Roots`], so that a test can pass a folder of its own. Work that may hang has a limit
//!   of two seconds ([`bound`]).
//! - [`checks`]: findings from facts, without access to the system.
//! - [`finding`]: a finding, as a line and as JSON.
//!
//! The doctor changes nothing. The operator runs the commands that it names.

mod bound;
mod checks;
pub mod facts;
mod finding;
mod hints;
pub mod roots;

use crate::args::DoctorArgs;
use facts::backend::BackendFact;
use facts::frontends::FrontendFact;
use facts::limits::Limits;
use facts::links;
use facts::netback::Netback;
use facts::options::OptionsFact;
use facts::platform::{PlatformFacts, Role};
use facts::process::Process;
use facts::vhost::Vhost;
use facts::vifs::StoreFact;
use finding::{Finding, Verdict};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_sandbox::Offer;
use hints::Hints;
use roots::Roots;
use std::path::Path;

/// Looks at the system and prints the findings.
///
/// # Errors
///
/// [`CommandError::Reported`] if a finding is a FAIL.
pub fn run(args: &DoctorArgs) -> Result<(), CommandError> {
    let findings = match &args.folder.host {
        Some(dir) => on_embedded(&Roots::system(dir), dir),
        None => on_xen(&Roots::system(&args.folder.run_dir)),
    };
    output::line(match args.json {
        true => finding::json(&findings).to_string(),
        false => finding::lines(&findings),
    })?;
    match findings.iter().any(|f| f.verdict() == Verdict::Fail) {
        true => Err(CommandError::Reported),
        false => Ok(()),
    }
}

/// Returns the findings on Xen. On a machine without Xen, there is only one finding.
fn on_xen(roots: &Roots) -> Vec<Finding> {
    let platform = PlatformFacts::gather(roots);
    if !platform.is_xen() {
        return vec![checks::platform::not_xen(&platform)];
    }
    let store = StoreFact::gather(&roots.stores(), roots.patience);
    let role = platform.role(&store);
    let process = Process::gather(roots);
    let mut findings = vec![checks::platform::judge(&platform, role)];
    findings.extend(checks::devices::judge(&process, role));
    let limits = Limits::gather(roots, role);
    // A guest has frontends only: what a backend needs does not matter to it.
    if role == Role::Guest {
        findings.push(checks::vifs::store(&store, None));
        findings.extend(checks::limits::judge(&limits, &platform, role, 0));
        findings.extend(
            store
                .own_vifs()
                .iter()
                .map(|vif| checks::frontends::judge(vif, &FrontendFact::gather(roots, vif.devid))),
        );
        return findings;
    }
    // From here on the domain is one in which a backend runs.
    let hints = Hints::on_xen(role);
    findings.push(checks::devices::tun(&process, true));
    findings.push(checks::sandbox::judge(&Offer::of_kernel(&roots.at(""))));
    let netback = Netback::gather(roots);
    findings.extend(checks::netback::judge(&netback));
    findings.push(checks::vifs::store(&store, None));
    let vifs = store.vifs();
    let queues = vifs.iter().map(|vif| vif.queues).sum();
    findings.extend(checks::limits::judge(&limits, &platform, role, queues));
    let backend = BackendFact::gather(&roots.run_folder, roots.patience);
    let kept_away = netback.forbidden.as_deref().filter(|_| !netback.loaded);
    findings.extend(checks::backend::options(&OptionsFact::gather(roots), &hints));
    findings.push(checks::backend::judge(&backend, vifs, kept_away, &hints));
    findings.extend(checks::devices::vhost(&Vhost::gather(roots, &backend), &hints));
    findings.extend(checks::backend::bounds(&backend));
    findings.extend(checks::backend::uplinks(&backend, &hints));
    findings.extend(vifs.iter().map(|vif| checks::vifs::judge(vif, &backend, &hints)));
    let links = links::gather(roots);
    findings.extend(checks::links::judge(vifs, &links, &hints));
    // Without the store every TAP would look left over.
    if store.is_read() {
        findings.extend(checks::links::leftovers(vifs, &links));
    }
    findings
}

/// Returns the findings for the embedded host in `dir`.
fn on_embedded(roots: &Roots, dir: &Path) -> Vec<Finding> {
    let hints = Hints::on_embedded(dir);
    let socket = roots::StoreAt::Socket(dir.join("xenstored/socket"));
    let store = StoreFact::gather(&[socket], roots.patience);
    let process = Process::gather(roots);
    let mut findings = vec![checks::vifs::store(&store, Some(dir))];
    findings.push(checks::embedded::ptrace(&process));
    findings.push(checks::embedded::memfd(&process));
    findings.push(checks::devices::tun(&process, false));
    findings.push(checks::sandbox::judge(&Offer::of_kernel(&roots.at(""))));
    if !store.is_read() {
        return findings;
    }
    let vifs = store.vifs();
    let backend = BackendFact::gather(dir, roots.patience);
    findings.push(checks::backend::judge(&backend, vifs, None, &hints));
    findings.extend(checks::devices::vhost(&Vhost::gather(roots, &backend), &hints));
    findings.extend(checks::backend::bounds(&backend));
    findings.extend(checks::backend::uplinks(&backend, &hints));
    findings.extend(vifs.iter().map(|vif| checks::vifs::judge(vif, &backend, &hints)));
    findings.extend(checks::links::judge(vifs, &links::gather(roots), &hints));
    findings
}

#[cfg(test)]
mod tests;

//! `grantway attach` and `grantway detach` add a vif to a domain, and remove it.

use crate::args::{AttachArgs, DetachArgs};
use grantway_command::error::CommandError;
use grantway_command::input;
use grantway_command::output;
use grantway_command::patience;
use grantway_command::toolstack::config::VifConfig;
use grantway_command::toolstack::device::{self, DeviceError, VifId};
use grantway_command::toolstack::of_host;
use grantway_hypervisor::DomId;
use std::time::Duration;

/// Time for a backend to close a vif, the same as libxl's.
const PATIENCE: Duration = Duration::from_secs(10);

/// Attaches a vif. Creates its domain if it does not exist.
///
/// # Errors
///
/// The vif string is invalid, the host does not run, or the number is in use.
pub fn attach(args: &AttachArgs) -> Result<(), CommandError> {
    let config: VifConfig = args.vif.parse().map_err(CommandError::usage)?;
    let (host, mut store) = of_host(&args.host)?;
    let domain = DomId(args.domain);
    let home = grantway_xenstore::path::home(domain);
    let spare = spare()?;
    let made = match store.read_text(&home)? {
        Some(_) => false,
        None => host.create_domain(domain, &format!("guest-{domain}"))?,
    };
    let attached = device::attach(store.as_mut(), domain, &config, spare);
    if made && attached.is_err() {
        // A failure leaves nothing behind. The first error is the one that is told.
        let _ = host.destroy_domain(domain);
    }
    let attached = attached.map_err(|e| refused(&e, args.vif.as_str()))?;
    output::line(format!("attached {} (mac {})", attached.vif, attached.mac))
}

/// Detaches a vif.
///
/// # Errors
///
/// The host does not run, the vif does not exist, or its backend does not close it.
pub fn detach(args: &DetachArgs) -> Result<(), CommandError> {
    let (_host, mut store) = of_host(&args.host)?;
    let vif = VifId { domain: DomId(args.domain), devid: args.devid };
    let gone = match args.force {
        true => device::remove(store.as_mut(), vif),
        false => device::detach(store.as_mut(), vif, patience::answer(PATIENCE)),
    };
    gone.map_err(CommandError::failed)?;
    output::line(format!("detached {vif}"))
}

/// Returns the error for the operator, with the domain of the missing backend.
fn refused(error: &DeviceError, vif: &str) -> CommandError {
    match error {
        DeviceError::NoDomain { .. } => CommandError::Failed(format!("vif {vif:?}: {error}")),
        _ => CommandError::failed(error),
    }
}

/// Returns the random part of an address.
fn spare() -> Result<[u8; 3], CommandError> {
    input::random().map_err(|e| {
        CommandError::Failed(format!("getrandom: {e}; give the vif an address with mac="))
    })
}

//! `grantway host` runs the embedded host as a process of its own.

use crate::args::{HostArgs, PortsArg};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::wait::Signals;
use grantway_embedded::{Host, HostConfig, PortTable};
use tracing::info;

/// Serves until a signal ends the process.
///
/// # Errors
///
/// The folder cannot be served.
pub fn run(args: &HostArgs) -> Result<(), CommandError> {
    let ports = match args.ports {
        PortsArg::TwoLevel => PortTable::TwoLevel,
        PortsArg::Fifo => PortTable::Fifo,
    };
    // Signals come before the folder, so that a signal never leaves sockets behind.
    let signals = Signals::take()?;
    let config = HostConfig { ports, ..HostConfig::default() };
    let mut host = Host::bind(&args.dir, config).map_err(CommandError::failed)?;
    info!("serving {} with {} event channels per domain", host.dir().display(), ports.ports());
    output::line("ready")?;
    host.run(signals.descriptor()).map_err(CommandError::failed)?;
    info!("ended");
    Ok(())
}

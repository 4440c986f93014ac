//! The work of a toolstack for a vif: it reads the operator's words, and writes both ends' folders
//! into the store.
//!
//! - [`config`]: xl's vif string; [`mac`] and [`rate`] are its values.
//! - [`device`]: attach, detach and list, over any [`Store`].

pub mod config;
pub mod device;
pub mod mac;
pub mod rate;

use crate::error::CommandError;
use grantway_embedded::{Domain, Role};
use grantway_hypervisor::{DomId, Platform, Store};
use std::path::Path;
use std::sync::Arc;

/// Connects to domain 0 of a host. Returns it and its store.
///
/// # Errors
///
/// No host serves the folder.
pub fn of_host(dir: &Path) -> Result<(Arc<Domain>, Box<dyn Store>), CommandError> {
    let host = Domain::connect(dir, DomId::ZERO, Role::Service).map_err(CommandError::failed)?;
    let store = host.store()?;
    Ok((host, store))
}

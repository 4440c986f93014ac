//! The place in which a command runs: an embedded host, or Xen.

use crate::args::GuestArgs;
use crate::error::CommandError;
use crate::footprint::Footprint;
use crate::obstacle::{self, TakeAway};
use grantway_embedded::{Domain, Role};
use grantway_hypervisor::{DomId, Error as PlatformError, Platform};
use grantway_netif::xenbus::Reopen;
use grantway_xen::Xen;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Folder of sockets and journals of running parts on Xen.
pub const RUN_FOLDER: &str = "/run/grantway";

/// Makes a folder that only its owner can use, if it is missing.
///
/// # Errors
///
/// The folder cannot be made.
pub fn make_folder(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A platform, and what a command needs beside it.
pub struct Place {
    /// The platform.
    pub platform: Arc<dyn Platform>,
    /// Folder of sockets and journals of running parts.
    pub run_folder: PathBuf,
    host: Host,
}

enum Host {
    Embedded(Arc<Domain>),
    Xen(Arc<Xen>),
}

impl Place {
    /// Returns the place in which a frontend that takes `need` is to run, with nothing in its way.
    ///
    /// # Errors
    ///
    /// There is no such place, or something keeps the vif from the frontend.
    pub fn of_guest(guest: &GuestArgs, devid: u32, need: Footprint) -> Result<Self, CommandError> {
        let GuestArgs { host, domain, run_dir } = guest;
        if let (Some(dir), Some(domain)) = (host, domain) {
            return Self::embedded(dir, *domain, Role::Guest);
        }
        let place = Self::xen(run_dir, Role::Guest)?;
        obstacle::check(Path::new("/"), devid, need).map_err(CommandError::failed)?;
        Ok(place)
    }

    /// Joins domain `id` of the embedded host at `dir`.
    ///
    /// # Errors
    ///
    /// No host serves the folder, or it has no such domain.
    pub fn embedded(dir: &Path, id: u16, role: Role) -> Result<Self, CommandError> {
        let domain = Domain::connect(dir, DomId(id), role).map_err(CommandError::failed)?;
        let platform: Arc<dyn Platform> = Arc::clone(&domain) as _;
        Ok(Self { platform, run_folder: dir.to_owned(), host: Host::Embedded(domain) })
    }

    /// Opens the Xen domain that this machine is.
    ///
    /// # Errors
    ///
    /// This is no Xen domain, or a device or the run folder cannot be used.
    pub fn xen(run_folder: &Path, role: Role) -> Result<Self, CommandError> {
        let platform = Xen::open().map_err(CommandError::failed)?;
        // A missing device is an error now, and not with the first vif.
        match role {
            Role::Service => platform.require_backend(),
            Role::Guest => platform.require_gntalloc(),
        }
        .map_err(CommandError::failed)?;
        make_folder(run_folder).map_err(|e| {
            CommandError::Failed(format!(
                "{}: {e}; give a writable directory with --run-dir",
                run_folder.display()
            ))
        })?;
        let host = Host::Xen(Arc::clone(&platform));
        Ok(Self { platform, run_folder: run_folder.to_owned(), host })
    }

    /// Goes on in the same domain after it was saved and restored.
    ///
    /// # Errors
    ///
    /// The domain's store does not say which domain it is.
    pub fn restore(&mut self) -> Result<(), CommandError> {
        if let Host::Xen(xen) = &self.host {
            let restored = xen.restored().map_err(CommandError::failed)?;
            self.platform = Arc::<Xen>::clone(&restored);
            self.host = Host::Xen(restored);
        }
        Ok(())
    }

    /// Returns true if a vif that came back is free for us, and takes it from a driver of the
    /// kernel's otherwise: then to be called again. Never blocks.
    pub fn is_free(&self, take: &mut TakeAway, devid: u32) -> bool {
        match &self.host {
            Host::Embedded(_) => true,
            Host::Xen(_) => take.is_free(Path::new("/"), devid, Instant::now()),
        }
    }

    /// Returns true if a driver of the kernel's has the vif.
    pub fn is_held(&self, devid: u32) -> bool {
        self.is_xen() && obstacle::is_held(Path::new("/"), devid)
    }

    /// Returns how a vif of this domain is to come back.
    pub fn reopen(&self, devid: u32) -> Reopen {
        match &self.host {
            Host::Embedded(_) => Reopen::Initialising,
            Host::Xen(_) => obstacle::reopen(Path::new("/"), devid),
        }
    }

    /// Returns true if this is real Xen.
    pub fn is_xen(&self) -> bool {
        matches!(self.host, Host::Xen(_))
    }

    /// Returns the file whose lock makes a process the domain's only backend. It does not depend on
    /// the run folder: on Xen a machine is one domain, whatever its number is now.
    pub fn claim(&self) -> PathBuf {
        match &self.host {
            Host::Embedded(domain) => {
                domain.dir().join(format!("backend-{}.lock", self.platform.domain()))
            }
            Host::Xen(_) => Path::new(RUN_FOLDER).join("backend.lock"),
        }
    }

    /// Returns a descriptor that is hung up when the place ends, if it can end under us.
    pub fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        match &self.host {
            Host::Embedded(domain) => Some(domain.host_descriptor()),
            Host::Xen(_) => None,
        }
    }

    /// Checks that the place is still there.
    ///
    /// # Errors
    ///
    /// The place is gone. The error says which host ended.
    pub fn check(&self) -> Result<(), CommandError> {
        match &self.host {
            Host::Embedded(domain) if !domain.host_is_alive() => {
                Err(CommandError::failed(PlatformError::Gone {
                    what: format!("the embedded host at {}", domain.dir().display()),
                }))
            }
            _ => Ok(()),
        }
    }
}

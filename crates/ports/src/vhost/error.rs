//! Errors of a TAP with vhost-net, and their remedies.

use rustix::io::Errno;

/// Reason why the kernel's thread could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VhostError {
    /// The device /dev/vhost-net does not exist.
    #[error(
        "/dev/vhost-net is missing or has no driver; load it with `modprobe vhost_net`, pass the device into the container, or use `tap` in place of `vhost`"
    )]
    NoDevice,
    /// The mode of the device excludes this process.
    #[error(
        "no permission for /dev/vhost-net; run as root or give this user access to it, or use `tap` in place of `vhost`"
    )]
    NoPermission,
    /// The kernel's vhost-net is too old.
    #[error(
        "/dev/vhost-net has no {missing}; use a kernel of Linux 5.10 or later, or `tap` in place of `vhost`"
    )]
    Feature {
        /// Name of the feature, as the virtio specification has it.
        missing: &'static str,
    },
    /// The system refused for another reason.
    #[error("TAP {name}, /dev/vhost-net: {operation} failed: {source}")]
    System {
        /// The interface.
        name: String,
        /// Operation that failed.
        operation: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl VhostError {
    pub(super) fn system(name: &str, operation: &'static str, errno: Errno) -> Self {
        Self::System { name: name.to_owned(), operation, source: errno.into() }
    }
}

/// Returns the error of opening /dev/vhost-net.
pub(super) fn opening(name: &str, errno: Errno) -> VhostError {
    match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => VhostError::NoDevice,
        Errno::PERM | Errno::ACCESS => VhostError::NoPermission,
        _ => VhostError::system(name, "opening it", errno),
    }
}

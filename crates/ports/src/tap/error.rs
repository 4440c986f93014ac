//! Errors of a TAP, and their remedies.

use rustix::io::Errno;

/// Reason why a TAP could not be opened or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapError {
    /// The name is longer than the kernel allows.
    #[error("interface name {name:?} has {length} bytes, at most 15 fit; choose a shorter one")]
    NameTooLong {
        /// Requested name.
        name: String,
        /// Length of the name in bytes.
        length: usize,
    },
    /// The name contains a character that is not allowed in names.
    #[error(
        "interface name {name:?} holds {found}; use 1 to 15 ASCII letters, digits, '.', '-' or '_'"
    )]
    BadName {
        /// Requested name.
        name: String,
        /// Defect of the name.
        found: &'static str,
    },
    /// Another program holds the TAP of this name.
    #[error(
        "TAP {name} is held by another program; stop that program (`fuser -v /dev/net/tun` finds it) or choose another name"
    )]
    InUse {
        /// Requested name.
        name: String,
    },
    /// The interface of this name is not a TAP.
    #[error(
        "interface {name} exists and is {found}; choose another name, or delete it with `ip link del {name}`"
    )]
    NotATap {
        /// Requested name.
        name: String,
        /// Kind of the interface, as far as it is known.
        found: &'static str,
    },
    /// The process lacks CAP_NET_ADMIN, or the device's mode excludes it.
    #[error(
        "no permission for {operation} on TAP {name}; run as root or give CAP_NET_ADMIN, or create it beforehand with `ip tuntap add dev {name} mode tap user $USER vnet_hdr`"
    )]
    NoPermission {
        /// The interface.
        name: String,
        /// Operation that was refused.
        operation: &'static str,
    },
    /// The device /dev/net/tun does not exist.
    #[error(
        "/dev/net/tun is missing or has no driver; load it with `modprobe tun`, or pass the device into the container"
    )]
    NoDevice,
    /// The folder that records the owners of TAPs cannot be used.
    #[error("TAP {name}: claiming it failed: {source}; make that folder this user's alone")]
    Claim {
        /// The interface.
        name: String,
        /// Defect of the folder; it names the folder.
        source: std::io::Error,
    },
    /// The system refused for another reason.
    #[error("TAP {name}: {operation} failed: {source}")]
    System {
        /// The interface.
        name: String,
        /// Operation that failed.
        operation: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl TapError {
    pub(super) fn system(name: &str, operation: &'static str, errno: Errno) -> TapError {
        let name = name.to_owned();
        match errno {
            Errno::PERM | Errno::ACCESS => TapError::NoPermission { name, operation },
            _ => TapError::System { name, operation, source: errno.into() },
        }
    }
}

/// Returns the error of opening /dev/net/tun.
pub(super) fn opening(name: &str, errno: Errno) -> TapError {
    match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => TapError::NoDevice,
        _ => TapError::system(name, "opening /dev/net/tun", errno),
    }
}

/// Returns the error of TUNSETIFF.
pub(super) fn attaching(name: &str, errno: Errno) -> TapError {
    match errno {
        Errno::BUSY => TapError::InUse { name: name.to_owned() },
        Errno::INVAL => TapError::NotATap { name: name.to_owned(), found: what_is(name) },
        _ => TapError::system(name, "creating it", errno),
    }
}

/// Guesses why the kernel does not accept `name` for this kind of TAP. /sys may show another
/// network namespace, so the guess is used only in the message.
fn what_is(name: &str) -> &'static str {
    const IFF_TUN: u32 = 0x1;
    let Ok(text) = std::fs::read_to_string(format!("/sys/class/net/{name}/tun_flags")) else {
        return "not a TAP";
    };
    match u32::from_str_radix(text.trim().trim_start_matches("0x"), 16) {
        Ok(flags) if flags & IFF_TUN != 0 => "a TUN (layer 3), not a TAP",
        _ => "a TAP of another kind",
    }
}

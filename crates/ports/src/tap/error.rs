//! What can go wrong with a TAP, and what to do about it.

use rustix::io::Errno;

/// Why a TAP could not be opened or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapError {
    /// The name is longer than the kernel allows.
    #[error("interface name {name:?} has {length} bytes, at most 15 fit; choose a shorter one")]
    NameTooLong {
        /// The name asked for.
        name: String,
        /// Its length in bytes.
        length: usize,
    },
    /// The name holds something that a name may not.
    #[error(
        "interface name {name:?} holds {found}; use 1 to 15 ASCII letters, digits, '.', '-' or '_'"
    )]
    BadName {
        /// The name asked for.
        name: String,
        /// What is wrong with it.
        found: &'static str,
    },
    /// Another program holds the TAP of this name.
    #[error(
        "TAP {name} is held by another program; stop that program (`fuser -v /dev/net/tun` finds it) or choose another name"
    )]
    InUse {
        /// The name asked for.
        name: String,
    },
    /// There is an interface of this name that is no TAP.
    #[error(
        "interface {name} exists and is {found}; choose another name, or delete it with `ip link del {name}`"
    )]
    NotATap {
        /// The name asked for.
        name: String,
        /// What it is, as far as can be told.
        found: &'static str,
    },
    /// The process lacks CAP_NET_ADMIN, or the device's mode shuts it out.
    #[error(
        "no permission for {operation} on TAP {name}; run as root or give CAP_NET_ADMIN, or create it beforehand with `ip tuntap add dev {name} mode tap user $USER vnet_hdr`"
    )]
    NoPermission {
        /// The interface.
        name: String,
        /// What was refused.
        operation: &'static str,
    },
    /// There is no /dev/net/tun.
    #[error(
        "/dev/net/tun is missing or has no driver; load it with `modprobe tun`, or pass the device into the container"
    )]
    NoDevice,
    /// The folder where the owners of TAPs are known cannot be used.
    #[error("TAP {name}: claiming it failed: {source}; make that folder this user's alone")]
    Claim {
        /// The interface.
        name: String,
        /// What is wrong with the folder, which it names.
        source: std::io::Error,
    },
    /// The system refused for another reason.
    #[error("TAP {name}: {operation} failed: {source}")]
    System {
        /// The interface.
        name: String,
        /// What was being done.
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

/// The error of opening /dev/net/tun.
pub(super) fn opening(name: &str, errno: Errno) -> TapError {
    match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => TapError::NoDevice,
        _ => TapError::system(name, "opening /dev/net/tun", errno),
    }
}

/// The error of TUNSETIFF.
pub(super) fn attaching(name: &str, errno: Errno) -> TapError {
    match errno {
        Errno::BUSY => TapError::InUse { name: name.to_owned() },
        Errno::INVAL => TapError::NotATap { name: name.to_owned(), found: what_is(name) },
        _ => TapError::system(name, "creating it", errno),
    }
}

/// Best guess at why the kernel does not take `name` for our kind of TAP.
/// /sys may show another network namespace, so it only words the message.
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

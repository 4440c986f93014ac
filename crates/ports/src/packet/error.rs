//! Errors of a packet socket, and their remedies.

use rustix::io::Errno;

/// Reason why a packet socket could not be opened on an interface.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// No interface has this name.
    #[error(
        "packet:{name}: no interface of this name in this network namespace, expected one that \
         exists; `ip link` lists them"
    )]
    NoInterface {
        /// Requested name.
        name: String,
    },
    /// The interface does not carry Ethernet frames.
    #[error(
        "packet:{name}: the interface is of kind {found} (ARPHRD), expected an Ethernet interface \
         (1), such as a card, a veth or a VLAN"
    )]
    NotEthernet {
        /// The interface.
        name: String,
        /// Kind of the interface.
        found: u16,
    },
    /// The process lacks CAP_NET_RAW.
    #[error(
        "packet:{name}: no permission for a packet socket; run as root, or give CAP_NET_RAW (in a \
         unit by CapabilityBoundingSet=: docs/admin.md, \"The backend's own bridge\")"
    )]
    NoPermission {
        /// The interface.
        name: String,
    },
    /// The kernel has no packet sockets or no netlink, or a unit does not allow them.
    #[error(
        "packet:{name}: there are no packet sockets, or no netlink sockets; allow AF_PACKET and \
         AF_NETLINK in the unit by RestrictAddressFamilies= (docs/admin.md, \"The backend's own \
         bridge\"), or load them with `modprobe af_packet`"
    )]
    NoSockets {
        /// The interface.
        name: String,
    },
    /// The system refused for another reason.
    #[error("packet:{name}: {operation} failed: {source}")]
    System {
        /// The interface.
        name: String,
        /// Operation that failed.
        operation: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl PacketError {
    pub(super) fn system(name: &str, operation: &'static str, errno: Errno) -> Self {
        let name = name.to_owned();
        match errno {
            Errno::NODEV | Errno::NXIO => Self::NoInterface { name },
            Errno::PERM | Errno::ACCESS => Self::NoPermission { name },
            Errno::AFNOSUPPORT => Self::NoSockets { name },
            _ => Self::System { name, operation, source: errno.into() },
        }
    }
}

//! The network interfaces of this domain.

use crate::doctor::roots::Roots;

/// Flag of a tun device: the device is a TAP.
const IFF_TAP: u64 = 0x2;
/// Flag of a tun device: the device stays if no program has it.
const IFF_PERSIST: u64 = 0x800;
/// Flag of an interface: the interface is up.
const IFF_UP: u64 = 0x1;

/// One interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Name of the interface.
    pub name: String,
    /// Largest IP packet in bytes.
    pub mtu: Option<u64>,
    /// The bridge (or other master) of the interface.
    pub bridge: Option<String>,
    /// True if the interface is a TAP.
    pub tap: bool,
    /// True for a TAP that stays if no program has it.
    pub persistent: bool,
    /// True if the interface has a carrier: a program has the other end of a TAP that is up.
    pub carrier: bool,
    /// True if the interface is up.
    pub up: bool,
}

/// Reads the facts of every interface.
pub fn gather(roots: &Roots) -> Vec<Link> {
    let net = "sys/class/net";
    let link = |name: String| {
        let file = |what: &str| format!("{net}/{name}/{what}");
        let flags = |what: &str| hexadecimal(&roots.text(file(what)).unwrap_or_default());
        let tun = flags("tun_flags");
        Link {
            mtu: roots.number(file("mtu")),
            bridge: roots.link(file("brport/bridge")).or_else(|| roots.link(file("master"))),
            tap: tun & IFF_TAP != 0,
            persistent: tun & IFF_TAP != 0 && tun & IFF_PERSIST != 0,
            carrier: roots.number(file("carrier")) == Some(1),
            up: flags("flags") & IFF_UP != 0,
            name,
        }
    };
    // Beside interfaces there may be files, such as bonding_masters.
    let names = roots.names(net).into_iter().filter(|name| roots.at(net).join(name).is_dir());
    names.map(link).collect()
}

fn hexadecimal(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or_default()
}

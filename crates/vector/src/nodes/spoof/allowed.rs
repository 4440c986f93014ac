//! Addresses that a vif may send from.

use crate::headers::{Headers, Network, Transport};
use crate::prefix::Prefix;
use crate::reason::Reason;
use crate::wire::{mac_at, u128_at};

const DHCP: [u16; 2] = [68, 67];
const ADVERTISEMENT: u16 = 136;
/// Messages of ICMPv6 that a host sends before it has an address: reports and the end of MLD's
/// membership, router and neighbour solicitations (RFC 2710, 3810, 4861).
const ADDRESSLESS: [u16; 5] = [131, 132, 133, 135, 143];
const LINK_LOCAL: u128 = 0xfe80 << 112;

/// Addresses that a vif may send from. An empty list allows any.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// Addresses of stations, as numbers.
    pub macs: Vec<u64>,
    /// Networks.
    pub networks: Vec<Prefix>,
}

impl Allowed {
    pub(super) fn is_anything(&self) -> bool {
        self.macs.is_empty() && self.networks.is_empty()
    }

    fn has(&self, network: Network, address: u128) -> bool {
        self.networks.iter().any(|prefix| prefix.contains(network, address))
    }

    /// Returns true for the link-local address that a host makes of its station's (RFC 4291, A).
    fn is_own_link_local(&self, address: u128) -> bool {
        let own = |&mac: &u64| {
            let (upper, lower) = (mac >> 24 ^ 0x2_0000, mac & 0xff_ffff);
            LINK_LOCAL | u128::from(upper << 40 | 0xff_fe00_0000 | lower)
        };
        self.macs.iter().map(own).any(|own| own == address)
    }

    pub(super) fn check(&self, bytes: &[u8], headers: &Headers) -> Result<(), Reason> {
        let sender = mac_at(bytes, 6).ok_or(Reason::EthernetTruncated)?;
        if !self.macs.is_empty() && !self.macs.contains(&sender) {
            return Err(Reason::SpoofedMac);
        }
        let source = headers.source;
        match headers.network {
            Network::Arp => {
                let claimed = mac_at(bytes, usize::from(headers.network_at) + 8);
                // A probe has no address yet.
                let known =
                    source == 0 || self.networks.is_empty() || self.has(Network::V4, source);
                (claimed == Some(sender) && known).then_some(()).ok_or(Reason::SpoofedArp)
            }
            Network::V4 if !self.networks.is_empty() => {
                let asks = headers.transport == Transport::Udp && headers.ports == DHCP;
                let known = self.has(Network::V4, source) || (source == 0 && asks);
                known.then_some(()).ok_or(Reason::SpoofedIpv4)
            }
            Network::V6 if !self.networks.is_empty() => {
                let own =
                    |address| self.has(Network::V6, address) || self.is_own_link_local(address);
                let message =
                    (headers.transport == Transport::Icmp).then_some(headers.ports[0] >> 8);
                let addressless = message.is_some_and(|kind| ADDRESSLESS.contains(&kind));
                let known = (source == 0 && addressless) || own(source);
                let advertises = message == Some(ADVERTISEMENT);
                let target = u128_at(bytes, usize::from(headers.payload_at));
                let honest = !advertises || target.is_some_and(own);
                (known && honest).then_some(()).ok_or(Reason::SpoofedIpv6)
            }
            // RARP, or IP in SNAP, which some hosts accept.
            Network::Other if !self.networks.is_empty() => Err(Reason::SpoofedOther),
            _ => Ok(()),
        }
    }
}

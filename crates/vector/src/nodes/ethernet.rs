//! Ethernet headers, and VLAN tags.

use crate::headers::Headers;
use crate::node::{Context, Edge, Node, Out};
use crate::reason::Reason;
use crate::set::Set;
use crate::wire::{is_group, mac_at};
use grantway_netif::ETH_HEADER_BYTES;
use grantway_netif::headers::{Link, ethertype};

/// Splits frames by their network layer. A frame with too many VLAN tags is dropped, since no rule
/// could be applied to its content.
#[derive(Debug, Default)]
pub struct Ethernet;

impl Ethernet {
    /// Frames with IPv4.
    pub const IPV4: Edge = Edge(0);
    /// Frames with IPv6.
    pub const IPV6: Edge = Edge(1);
    /// Frames with ARP.
    pub const ARP: Edge = Edge(2);
    /// All other frames.
    pub const OTHER: Edge = Edge(3);

    #[inline]
    pub(super) fn read(bytes: &[u8], headers: &mut Headers) -> Result<Edge, Reason> {
        if bytes.len() < usize::from(ETH_HEADER_BYTES) {
            return Err(Reason::EthernetTruncated);
        }
        let source = mac_at(bytes, 6).ok_or(Reason::EthernetTruncated)?;
        if is_group(source) {
            return Err(Reason::EthernetSource);
        }
        let link = Link::read(bytes).map_err(|_| Reason::VlanTruncated)?;
        headers.vlan = link.vlan;
        headers.ethertype = link.ethertype;
        headers.network_at = link.at as u16;
        Ok(match link.ethertype {
            ethertype::IPV4 => Self::IPV4,
            ethertype::IPV6 => Self::IPV6,
            ethertype::ARP => Self::ARP,
            ethertype::VLAN | ethertype::QINQ => return Err(Reason::VlanDepth),
            _ => Self::OTHER,
        })
    }
}

impl Node for Ethernet {
    fn name(&self) -> &'static str {
        "ethernet"
    }

    fn process(&mut self, list: &Set, context: &mut Context<'_>, out: &mut Out) {
        for number in list {
            let frame = *context.batch.frame(number);
            let bytes = frame.bytes(context.arena);
            let headers = context.batch.headers_mut(number);
            headers.end = frame.len;
            match Self::read(bytes, headers) {
                // A frame that is to be segmented is TCP or UDP, and so IP.
                Ok(Self::ARP | Self::OTHER) if frame.offload.gso.is_some() => {
                    context.drop(number, Reason::Gso);
                }
                Ok(edge) => out.to(edge, number),
                Err(reason) => context.drop(number, reason),
            }
        }
    }
}

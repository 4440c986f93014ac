//! Ethernet, and VLAN tags.

use crate::headers::Headers;
use crate::node::{Context, Edge, Node, Out};
use crate::reason::Reason;
use crate::set::Set;
use crate::wire::{is_group, mac_at, u16_at};
use grantway_netif::headers::MAX_VLAN_TAGS;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const VLAN: u16 = 0x8100;
const IPV6: u16 = 0x86dd;
const QINQ: u16 = 0x88a8;

/// Splits frames by what they carry. What hides behind more tags than are looked
/// at is dropped: no rule could be applied to it.
#[derive(Debug, Default)]
pub struct Ethernet;

impl Ethernet {
    /// Frames with IPv4.
    pub const IPV4: Edge = Edge(0);
    /// Frames with IPv6.
    pub const IPV6: Edge = Edge(1);
    /// Frames with ARP.
    pub const ARP: Edge = Edge(2);
    /// All others.
    pub const OTHER: Edge = Edge(3);

    #[inline]
    pub(super) fn read(bytes: &[u8], headers: &mut Headers) -> Result<Edge, Reason> {
        let source = mac_at(bytes, 6).ok_or(Reason::EthernetTruncated)?;
        let mut kind = u16_at(bytes, 12).ok_or(Reason::EthernetTruncated)?;
        if is_group(source) {
            return Err(Reason::EthernetSource);
        }
        let mut at = 14;
        let mut tags = 0;
        while matches!(kind, VLAN | QINQ) {
            if tags == MAX_VLAN_TAGS {
                return Err(Reason::VlanDepth);
            }
            let tag = u16_at(bytes, at).ok_or(Reason::VlanTruncated)?;
            kind = u16_at(bytes, at + 2).ok_or(Reason::VlanTruncated)?;
            if tags == 0 {
                headers.vlan = tag & 0x0fff;
            }
            tags += 1;
            at += 4;
        }
        headers.ethertype = kind;
        headers.network_at = at as u16;
        Ok(match kind {
            IPV4 => Self::IPV4,
            IPV6 => Self::IPV6,
            ARP => Self::ARP,
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
                // What is to be segmented is TCP, and so IP.
                Ok(Self::ARP | Self::OTHER) if frame.offload.gso.is_some() => {
                    context.drop(number, Reason::Gso);
                }
                Ok(edge) => out.to(edge, number),
                Err(reason) => context.drop(number, reason),
            }
        }
    }
}

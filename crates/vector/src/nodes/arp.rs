//! ARP packets.

use crate::headers::{Headers, Network};
use crate::node::{Context, Edge, Single, Step};
use crate::reason::Reason;
use crate::wire::u32_at;

/// Start of a packet: hardware Ethernet, protocol IPv4, and the lengths of their addresses.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];
/// Bytes of an ARP packet for IPv4 over Ethernet.
const BYTES: usize = 28;

/// Checks ARP packets. Packets that are not for IPv4 over Ethernet are dropped, since their claims
/// could not be checked.
#[derive(Debug, Default)]
pub struct Arp;

impl Arp {
    /// Valid packets.
    pub const ON: Edge = Edge(0);

    fn read(bytes: &[u8], headers: &mut Headers) -> Option<()> {
        let packet = bytes.get(usize::from(headers.network_at)..)?.get(..BYTES)?;
        if !packet.starts_with(&KIND) {
            return None;
        }
        headers.source = u32_at(packet, 14)?.into();
        headers.target = u32_at(packet, 24)?.into();
        headers.network = Network::Arp;
        Some(())
    }
}

impl Single for Arp {
    fn name(&self) -> &'static str {
        "arp"
    }

    fn process(&mut self, number: u8, context: &mut Context<'_>) -> Step {
        let bytes = context.batch.frame(number).bytes(context.arena);
        match Self::read(bytes, context.batch.headers_mut(number)) {
            Some(()) => Step::To(Self::ON),
            None => Step::Drop(Reason::Arp),
        }
    }
}

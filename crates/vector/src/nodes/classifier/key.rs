//! Fields that filters compare, in words that are masked and compared as a whole.

use crate::batch::Frame;
use crate::headers::{Headers, Network};
use crate::prefix::Prefix;
use crate::wire::mac_at;

/// Words of a key.
pub const WORDS: usize = 8;

/// Fields of a frame, fields that a filter requires, or a mask of fields.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(pub [u64; WORDS]);

const SOURCE: usize = 0;
const TARGET: usize = 2;
const PORTS: usize = 4;
const TARGET_MAC: usize = 5;
const SOURCE_MAC: usize = 6;
const FROM: usize = 7;

impl Key {
    /// Returns the key of a frame.
    #[inline]
    #[must_use]
    pub fn of(frame: &Frame, bytes: &[u8], headers: &Headers) -> Self {
        let [p, q] = headers.ports.map(u64::from);
        let is_ip = matches!(headers.network, Network::V4 | Network::V6);
        let protocol = if is_ip { u64::from(headers.protocol) } else { 0 };
        Self([
            (headers.source >> 64) as u64,
            headers.source as u64,
            (headers.target >> 64) as u64,
            headers.target as u64,
            p << 48
                | q << 32
                | protocol << 24
                | (headers.network as u64) << 16
                | u64::from(headers.tcp_flags) << 8
                | u64::from(headers.has_ports) << 1
                | u64::from(is_ip),
            mac_at(bytes, 0).unwrap_or(0) << 16 | u64::from(headers.vlan),
            mac_at(bytes, 6).unwrap_or(0) << 16 | u64::from(headers.ethertype),
            u64::from(frame.from.0),
        ])
    }

    /// Returns the bits of this key that the mask has.
    #[inline]
    #[must_use]
    pub fn masked(&self, mask: &Self) -> Self {
        let mut words = self.0;
        for (word, mask) in words.iter_mut().zip(mask.0) {
            *word &= mask;
        }
        Self(words)
    }
}

/// Fields that a filter requires: a value, and a mask of the bits that are compared.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    pub(super) value: Key,
    pub(super) mask: Key,
}

impl Pattern {
    fn want(mut self, word: usize, value: u64, mask: u64) -> Self {
        if let (Some(values), Some(masks)) = (self.value.0.get_mut(word), self.mask.0.get_mut(word))
        {
            *values = (*values & !mask) | (value & mask);
            *masks |= mask;
        }
        self
    }

    fn address(self, word: usize, prefix: &Prefix) -> Self {
        let (first, last) = prefix.range();
        let full = if prefix.network() == Network::V4 { u128::from(u32::MAX) } else { u128::MAX };
        let mask = !(first ^ last) & full;
        self.network(prefix.network()).want(word, (first >> 64) as u64, (mask >> 64) as u64).want(
            word + 1,
            first as u64,
            mask as u64,
        )
    }

    /// Requires a network layer.
    #[must_use]
    pub fn network(self, network: Network) -> Self {
        self.want(PORTS, (network as u64) << 16, 0xff << 16)
    }

    /// Requires a source address in a network.
    #[must_use]
    pub fn source(self, prefix: &Prefix) -> Self {
        self.address(SOURCE, prefix)
    }

    /// Requires a destination address in a network.
    #[must_use]
    pub fn target(self, prefix: &Prefix) -> Self {
        self.address(TARGET, prefix)
    }

    /// Requires an IP protocol.
    #[must_use]
    pub fn protocol(self, protocol: u8) -> Self {
        self.want(PORTS, u64::from(protocol) << 24 | 1, 0xff << 24 | 1)
    }

    /// Requires a source port, in the bits of the mask.
    #[must_use]
    pub fn source_port(self, port: u16, mask: u16) -> Self {
        self.want(PORTS, u64::from(port) << 48 | 2, u64::from(mask) << 48 | 2)
    }

    /// Requires a destination port, in the bits of the mask.
    #[must_use]
    pub fn target_port(self, port: u16, mask: u16) -> Self {
        self.want(PORTS, u64::from(port) << 32 | 2, u64::from(mask) << 32 | 2)
    }

    /// Requires these TCP flags, in the bits of the mask.
    #[must_use]
    pub fn tcp_flags(self, flags: u8, mask: u8) -> Self {
        self.want(PORTS, u64::from(flags) << 8, u64::from(mask) << 8)
    }

    /// Requires a source station, in the bits of the mask.
    #[must_use]
    pub fn source_mac(self, mac: u64, mask: u64) -> Self {
        self.want(SOURCE_MAC, mac << 16, mask << 16)
    }

    /// Requires a destination station, in the bits of the mask.
    #[must_use]
    pub fn target_mac(self, mac: u64, mask: u64) -> Self {
        self.want(TARGET_MAC, mac << 16, mask << 16)
    }

    /// Requires an EtherType, behind VLAN tags.
    #[must_use]
    pub fn ethertype(self, kind: u16) -> Self {
        self.want(SOURCE_MAC, kind.into(), 0xffff)
    }

    /// Requires a VLAN.
    #[must_use]
    pub fn vlan(self, vlan: u16) -> Self {
        self.want(TARGET_MAC, vlan.into(), 0xffff)
    }

    /// Requires frames from a vif.
    #[must_use]
    pub fn vif(self, vif: crate::batch::PortId) -> Self {
        self.want(FROM, vif.0.into(), 0xffff)
    }

    /// Returns true if a key matches the pattern.
    #[must_use]
    pub fn fits(&self, key: &Key) -> bool {
        key.masked(&self.mask) == self.value
    }
}

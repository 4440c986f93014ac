//! Networks, as rules write them.

use crate::headers::Network;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An IP network. A single address is a network of full length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    network: Network,
    first: u128,
    length: u8,
}

impl Prefix {
    /// Returns the network of `length` bits that has this address. Returns `None` if the address
    /// has fewer bits.
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let (network, address, bits) = match address {
            IpAddr::V4(address) => (Network::V4, u128::from(address.to_bits()), 32),
            IpAddr::V6(address) => (Network::V6, address.to_bits(), 128),
        };
        let free = u32::from(u8::checked_sub(bits, length)?);
        let rest = 1u128.checked_shl(free).map_or(u128::MAX, |end| end - 1);
        Some(Self { network, first: address & !rest, length })
    }

    /// Returns the network layer: IPv4 or IPv6.
    #[must_use]
    pub const fn network(&self) -> Network {
        self.network
    }

    /// Returns the first and the last address.
    #[must_use]
    pub fn range(&self) -> (u128, u128) {
        let bits = if self.network == Network::V4 { 32 } else { 128 };
        let rest = 1u128.checked_shl(bits - u32::from(self.length)).map_or(u128::MAX, |n| n - 1);
        (self.first, self.first | rest)
    }

    /// Returns true if an address of this network layer is in the network.
    #[inline]
    #[must_use]
    pub fn contains(&self, network: Network, address: u128) -> bool {
        let (first, last) = self.range();
        self.network == network && (first..=last).contains(&address)
    }
}

impl FromStr for Prefix {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let full = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            Some(text) if text.bytes().all(|b| b.is_ascii_digit()) => {
                text.parse().map_err(|_| ())?
            }
            Some(_) => return Err(()),
            None => full,
        };
        Self::new(address, length).ok_or(())
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network {
            Network::V4 => write!(f, "{}/{}", Ipv4Addr::from(self.first as u32), self.length),
            _ => write!(f, "{}/{}", Ipv6Addr::from(self.first), self.length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_bounds() {
        let within = |network: &str, address: &str| {
            let address = Prefix::from_str(address).unwrap();
            Prefix::from_str(network).unwrap().contains(address.network, address.first)
        };
        assert!(within("10.0.0.0/8", "10.255.255.255") && !within("10.0.0.0/8", "11.0.0.0"));
        assert!(within("0.0.0.0/0", "255.255.255.255") && !within("0.0.0.0/0", "::"));
        assert!(within("::/0", "ffff::") && within("fd00::/8", "fd12::1"));
        assert!(within("1.2.3.4", "1.2.3.4") && !within("1.2.3.4", "1.2.3.5"));
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8", "ten", "10.0.0/8"] {
            assert!(Prefix::from_str(text).is_err(), "{text}");
        }
        assert_eq!(Prefix::from_str("10.1.2.3/8").unwrap().to_string(), "10.0.0.0/8");
    }
}

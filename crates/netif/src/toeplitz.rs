//! Toeplitz hash of receive-side scaling, by `netif.h` and Microsoft's RSS.
//!
//! The hash is the exclusive or of 32-bit windows of the key. Each set bit of the input adds the
//! window that begins at the same bit of the key.

use crate::ctrl::{HashTypes, algorithm};
use crate::extra::Hash;
use crate::flow::{Addresses, names};
use crate::headers::protocol::TCP;

/// Bytes of the longest input: two IPv6 addresses and two ports.
pub const INPUT_BYTES: usize = 36;

/// Bytes of the longest key. Further bytes would have no effect: the last bit of the longest input
/// needs 32 bits of key.
pub const KEY_BYTES: usize = INPUT_BYTES + 4;

/// Nibbles of the longest input.
const NIBBLES: usize = INPUT_BYTES * 2;

/// Prepared key: a table of the contribution of each half byte of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toeplitz {
    table: [[u32; 16]; NIBBLES],
}

impl Toeplitz {
    /// Prepares a key. Missing bytes are zero, so with an empty key every hash is 0. Ignores bytes
    /// after the first [`KEY_BYTES`].
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        let byte = |at: usize| u64::from(key.get(at).copied().unwrap_or(0));
        let mut table = [[0; 16]; NIBBLES];
        for (nibble, row) in table.iter_mut().enumerate() {
            // Five bytes have the 32 bits from any bit of the first on.
            let at = nibble / 2;
            let five = (at..at + 5).fold(0, |sum, at| sum << 8 | byte(at));
            let window = |bit: usize| (five >> (8 - bit)) as u32;
            let first = nibble % 2 * 4;
            for (value, sum) in row.iter_mut().enumerate() {
                for bit in 0..4 {
                    if value & 8 >> bit != 0 {
                        *sum ^= window(first + bit);
                    }
                }
            }
        }
        Self { table }
    }

    /// Returns the hash of an input. Ignores bytes after the first [`INPUT_BYTES`].
    #[inline]
    #[must_use]
    pub fn hash(&self, input: &[u8]) -> u32 {
        let (pairs, _) = self.table.as_chunks::<2>();
        let sum = |sum, (byte, [high, low]): (&u8, &[[u32; 16]; 2])| {
            sum ^ high[usize::from(byte >> 4)] ^ low[usize::from(byte & 15)]
        };
        input.iter().zip(pairs).fold(0, sum)
    }

    /// Returns the hash of a frame for an extra, by the most specific of `types` that fits the
    /// frame. Returns `None` if no type fits. A fragment counts as a frame without ports.
    #[inline]
    #[must_use]
    pub fn hash_frame(&self, frame: &[u8], types: HashTypes) -> Option<Hash> {
        let names = names(frame)?;
        let (addresses, plain, tcp): (&[u8], _, _) = match names.addresses {
            Addresses::V4(both) => (both, HashTypes::IPV4, HashTypes::IPV4_TCP),
            Addresses::V6(both) => (both, HashTypes::IPV6, HashTypes::IPV6_TCP),
        };
        let mut input = [0; INPUT_BYTES];
        let mut len = addresses.len();
        input.get_mut(..len)?.copy_from_slice(addresses);
        let kind = match names.ports {
            Some((TCP, ports)) if types.contains(tcp) => {
                input.get_mut(len..len + 4)?.copy_from_slice(&ports);
                len += 4;
                tcp
            }
            _ if types.contains(plain) => plain,
            _ => return None,
        };
        Some(Hash {
            // The number of its one bit: 0 to 3.
            kind: kind.bits().trailing_zeros() as u8,
            algorithm: algorithm::TOEPLITZ,
            value: self.hash(input.get(..len)?),
        })
    }
}

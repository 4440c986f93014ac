//! Ethernet addresses, and frames that announce them to bridges.

use crate::testframe::EXPERIMENTAL;

#[cfg(feature = "std")]
mod presence;

#[cfg(feature = "std")]
pub(crate) use presence::{Presence, written};

/// Length of the announcing frame in bytes: the shortest of a wire.
const LEN: usize = 60;

/// Reads an address: six pairs of hexadecimal digits with colons in between. Returns `None` if the
/// text is no address.
#[must_use]
pub fn parse_address(text: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut pairs = text.split(':');
    for byte in &mut address {
        let pair = pairs.next().filter(|pair| pair.len() == 2)?;
        // `from_str_radix` would accept a sign before the digits.
        let digits = pair.bytes().all(|b| b.is_ascii_hexdigit());
        *byte = digits.then(|| u8::from_str_radix(pair, 16).ok()).flatten()?;
    }
    pairs.next().is_none().then_some(address)
}

/// Returns the frame that announces an address to bridges: a broadcast from it.
#[must_use]
pub fn presence_frame(address: [u8; 6]) -> [u8; LEN] {
    let mut frame = [0; LEN];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&address);
    frame[12..14].copy_from_slice(&EXPERIMENTAL.to_be_bytes());
    frame
}

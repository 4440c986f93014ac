//! Reading and writing of fields, within bounds.

/// Returns a byte.
#[inline]
pub(crate) fn u8_at(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

/// Returns a number of two bytes.
#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns a number of four bytes.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns an IPv6 address.
#[inline]
pub(crate) fn u128_at(bytes: &[u8], at: usize) -> Option<u128> {
    Some(u128::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns a station's address as a number.
#[inline]
pub(crate) fn mac_at(bytes: &[u8], at: usize) -> Option<u64> {
    let &[a, b, c, d, e, f] = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

/// Returns true if a station's address is that of a group.
#[inline]
pub(crate) const fn is_group(mac: u64) -> bool {
    mac >> 40 & 1 == 1
}

/// Writes bytes if they fit. Returns true if so.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) -> bool {
    match bytes.get_mut(at..).and_then(|rest| rest.get_mut(..value.len())) {
        Some(room) => {
            room.copy_from_slice(value);
            true
        }
        None => false,
    }
}

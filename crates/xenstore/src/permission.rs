//! Permissions of a node as text: a letter and a domain, such as `n0` or `r7`.

use alloc::format;
use alloc::string::String;
use grantway_hypervisor::{DomId, Permission, Rights};

/// Returns a permission as text, without a NUL.
#[must_use]
pub fn to_text(permission: Permission) -> String {
    let letter = match permission.rights {
        Rights::None => 'n',
        Rights::Read => 'r',
        Rights::Write => 'w',
        Rights::Both => 'b',
    };
    format!("{letter}{}", permission.domain)
}

/// Reads a permission. Returns `None` if the text is invalid.
#[must_use]
pub fn from_text(text: &[u8]) -> Option<Permission> {
    let (letter, digits) = text.split_first()?;
    let rights = match letter {
        b'n' => Rights::None,
        b'r' => Rights::Read,
        b'w' => Rights::Write,
        b'b' => Rights::Both,
        _ => return None,
    };
    Some(Permission { domain: domain(digits)?, rights })
}

/// Reads the number of a domain. Returns `None` if there is anything but decimal digits, or the
/// number is out of range.
#[must_use]
pub fn domain(digits: &[u8]) -> Option<DomId> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    core::str::from_utf8(digits).ok()?.parse().ok().map(DomId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for text in ["n0", "r7", "w65535", "b12"] {
            assert_eq!(to_text(from_text(text.as_bytes()).unwrap()), text);
        }
        for text in ["", "n", "x0", "r-1", "r+1", "r65536", "r1 ", "1"] {
            assert_eq!(from_text(text.as_bytes()), None, "{text}");
        }
    }
}

//! Paths: their validation and their kinds.

use alloc::format;
use alloc::string::String;
use grantway_hypervisor::DomId;

/// Length of the longest absolute path, in bytes (`XENSTORE_ABS_PATH_MAX`).
pub const ABSOLUTE_MAX: usize = 3072;

/// Length of the longest relative path, in bytes (`XENSTORE_REL_PATH_MAX`).
pub const RELATIVE_MAX: usize = 2048;

/// Kind of a path, by its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The path begins at the root, as `/local/domain/0/name`.
    Absolute,
    /// The path begins at the domain's own folder, as `device/vif/0`.
    Relative,
    /// The path is outside of the tree: `@introduceDomain`, `@releaseDomain`.
    Special,
}

/// Reason why a path is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The path is empty.
    #[error("xenstore path: found an empty path, expected at least 1 byte")]
    Empty,
    /// The path is too long.
    #[error("xenstore path: found {found} bytes, expected at most {limit}")]
    TooLong {
        /// Length of the path in bytes.
        found: usize,
        /// Length of the longest path of this kind, in bytes.
        limit: usize,
    },
    /// The path has an invalid byte.
    #[error("xenstore path: found byte {byte:#04x} at {at}, expected A-Z a-z 0-9 - _ @ /")]
    Byte {
        /// The byte.
        byte: u8,
        /// Index of the byte, from 0.
        at: usize,
    },
    /// A name is empty: there are two slashes in a row, or one at the end.
    #[error(
        "xenstore path: found an empty name, expected one slash between names and none at the end"
    )]
    EmptyName,
}

/// Validates a path of the wire, without its NUL. Returns its kind and its text.
///
/// # Errors
///
/// Returns [`PathError`] for an invalid path.
pub fn validate(path: &[u8]) -> Result<(Kind, &str), PathError> {
    let kind = match path.first() {
        None => return Err(PathError::Empty),
        Some(b'/') => Kind::Absolute,
        Some(b'@') => Kind::Special,
        Some(_) => Kind::Relative,
    };
    let limit = match kind {
        Kind::Absolute => ABSOLUTE_MAX,
        Kind::Relative | Kind::Special => RELATIVE_MAX,
    };
    if path.len() > limit {
        let found = path.len();
        return Err(PathError::TooLong { found, limit });
    }
    let wrong = |byte: &u8| !(byte.is_ascii_alphanumeric() || b"-_@/".contains(byte));
    if let Some(at) = path.iter().position(wrong) {
        let byte = path[at];
        return Err(PathError::Byte { byte, at });
    }
    // All bytes are ASCII, so this cannot fail; were it to, it would be said.
    let text =
        core::str::from_utf8(path).map_err(|e| PathError::Byte { byte: 0, at: e.valid_up_to() })?;
    let names = match kind {
        Kind::Absolute => &text[1..],
        Kind::Relative | Kind::Special => text,
    };
    if text != "/" && names.split('/').any(str::is_empty) {
        return Err(PathError::EmptyName);
    }
    Ok((kind, text))
}

/// Returns a domain's own folder, `/local/domain/N`.
#[must_use]
pub fn home(domain: DomId) -> String {
    format!("/local/domain/{domain}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        assert_eq!(validate(b"/"), Ok((Kind::Absolute, "/")));
        assert_eq!(validate(b"/a/B-_@9"), Ok((Kind::Absolute, "/a/B-_@9")));
        assert_eq!(validate(b"device/vif"), Ok((Kind::Relative, "device/vif")));
        assert_eq!(validate(b"@releaseDomain"), Ok((Kind::Special, "@releaseDomain")));
    }

    #[test]
    fn what_no_path_is() {
        assert_eq!(validate(b""), Err(PathError::Empty));
        for path in ["//", "/a/", "/a//b", "a/", "a//b"] {
            assert_eq!(validate(path.as_bytes()), Err(PathError::EmptyName), "{path}");
        }
        for path in [&b"/a b"[..], b"/a\0", b"/\xff", b"/a:b", b"/a.b"] {
            assert!(matches!(validate(path), Err(PathError::Byte { .. })));
        }
    }

    #[test]
    fn lengths() {
        let absolute = |len: usize| [&b"/"[..], &vec![b'a'; len - 1]].concat();
        assert!(validate(&absolute(ABSOLUTE_MAX)).is_ok());
        assert!(validate(&absolute(ABSOLUTE_MAX + 1)).is_err());
        assert!(validate(&vec![b'a'; RELATIVE_MAX]).is_ok());
        assert!(validate(&vec![b'a'; RELATIVE_MAX + 1]).is_err());
    }
}

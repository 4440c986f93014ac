//! Names of interfaces.

use super::TapError;

/// Longest name of an interface in bytes (`IFNAMSIZ` less the final zero).
pub const MAX_NAME: usize = 15;

/// Checks a name as the kernel does, and also refuses a name that the kernel would use as a
/// template.
///
/// # Errors
/// [`TapError::NameTooLong`] or [`TapError::BadName`].
pub fn check_name(name: &str) -> Result<&str, TapError> {
    let bad = |found: &'static str| Err(TapError::BadName { name: name.to_owned(), found });
    if name.len() > MAX_NAME {
        return Err(TapError::NameTooLong { name: name.to_owned(), length: name.len() });
    }
    match name {
        "" => return bad("nothing"),
        "." | ".." => return bad("the name of a directory"),
        _ => {}
    }
    for c in name.chars() {
        match c {
            '/' => return bad("a '/'"),
            ':' => return bad("a ':'"),
            '%' => return bad("a '%', which the kernel would number"),
            // The kernel's isspace() is of Latin-1: 0xa0 is a space there.
            c if c.is_whitespace() => return bad("white space"),
            c if c.is_control() => return bad("a control character"),
            c if !c.is_ascii() => return bad("a character that is not ASCII"),
            _ => {}
        }
    }
    Ok(name)
}

//! Files that people write, and random bytes.

use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Returns the text of a file of at most `most` bytes.
///
/// # Errors
///
/// The file cannot be read, is longer or is not UTF-8.
pub fn text(path: &Path, most: u64) -> Result<String> {
    let mut text = String::new();
    let length = File::open(path)?.take(most.saturating_add(1)).read_to_string(&mut text)?;
    match length as u64 > most {
        true => Err(Error::new(ErrorKind::FileTooLarge, format!("more than {most} bytes"))),
        false => Ok(text),
    }
}

/// Returns random bytes that nobody outside can guess, from the kernel: at most 256, which come at once
/// or not at all. No file is opened.
///
/// # Errors
///
/// The kernel gives no random numbers.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    const { assert!(N <= 256) };
    let mut bytes = [0; N];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_are_not_the_same_twice() {
        assert_ne!(random::<16>().unwrap(), random::<16>().unwrap());
    }

    #[test]
    fn a_text_has_a_limit_and_a_device_without_end_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "four").unwrap();
        assert_eq!(text(file.path(), 4).unwrap(), "four");
        assert_eq!(text(file.path(), 3).unwrap_err().to_string(), "more than 3 bytes");
        let endless = text(Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert_eq!(endless.kind(), ErrorKind::FileTooLarge);
    }
}

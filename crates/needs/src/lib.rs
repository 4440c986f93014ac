//! Needs of a test on the machine, and the report of a skipped test.
//!
//! A test harness of Rust has no way to skip a test while it runs. So a test that
//! cannot run here prints one line, `skipped TEST: REASON`, on standard error, past the
//! harness's capture, and returns. `scripts/test` counts those lines.
//!
//! Only tests call this crate. It calls nothing of the workspace.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::Path;

/// One thing that a test needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need<'a> {
    /// The rights of root.
    Root,
    /// A file or device: its path, and what provides it.
    File(&'a str, &'a str),
    /// A program in `PATH`, and the Debian package that has it.
    Program(&'a str, &'a str),
}

impl Need<'_> {
    /// Returns the missing part and the remedy, or nothing if the need is met.
    fn missing(self) -> Option<String> {
        match self {
            Self::Root => (!rustix::process::geteuid().is_root()).then(|| "needs root".to_owned()),
            Self::File(path, from) => {
                (!Path::new(path).exists()).then(|| format!("needs {path} ({from})"))
            }
            Self::Program(name, package) => {
                (!has_program(name)).then(|| format!("needs {name} (Debian package {package})"))
            }
        }
    }
}

/// Returns true if a program is in `PATH`.
pub fn has_program(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

/// Returns true if the machine has everything that the calling test needs. If not, prints that the
/// test is skipped, and why; the test then returns.
#[must_use = "a test that is not able to run returns"]
pub fn met(needs: &[Need<'_>]) -> bool {
    match needs.iter().find_map(|need| need.missing()) {
        Some(missing) => {
            skip(&missing);
            false
        }
        None => true,
    }
}

/// Says that the calling test, or a part of it, is skipped. The harness runs each test
/// in a thread of the test's name.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    // One write, so that lines of tests at the same time stay whole.
    let line = format!("skipped {name}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_missing() {
        assert_eq!(Need::File("/", "the machine").missing(), None);
        assert_eq!(Need::Program("sh", "dash").missing(), None);
    }

    #[test]
    fn what_is_missing_is_named_with_its_remedy() {
        let missing = Need::Program("gw-no-such", "gw").missing();
        assert_eq!(missing.as_deref(), Some("needs gw-no-such (Debian package gw)"));
        let missing = Need::File("/gw/no/such", "package gw").missing();
        assert_eq!(missing.as_deref(), Some("needs /gw/no/such (package gw)"));
    }
}

//! Gives the version that the programs show the commit that they are built from, if it is known:
//! from git in a work tree, from the record that `cargo package` puts beside the sources, or from
//! the file `commit`, into which `git archive` writes it.
//!
//! Without all of these the version is that of the package alone. Nothing here fails a build.

use std::path::Path;
use std::process::Command;

/// Characters of a commit that are shown.
const SHOWN: usize = 9;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let package = env!("CARGO_PKG_VERSION");
    println!("cargo:rerun-if-changed=commit");
    let version = match of_git().or_else(of_package).or_else(of_archive) {
        Some(commit) => format!("{package} ({commit})"),
        None => package.to_owned(),
    };
    println!("cargo:rustc-env=GRANTWAY_VERSION={version}");
}

/// Returns commit and date, such as `0123456789 2026-11-28`.
fn of_git() -> Option<String> {
    // A package that was unpacked inside of another project's work tree is not of that project.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    // Each commit and each change of the branch writes to this file.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo:rerun-if-changed={log}");
    }
    git(&["log", "-1", &format!("--abbrev={SHOWN}"), "--format=%h %cs"])
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}

/// Returns the commit of which `cargo package` made this package.
fn of_package() -> Option<String> {
    let record = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = record.split_once("\"sha1\"")?;
    let commit = rest.split('"').nth(1)?;
    is_commit(commit).then(|| commit[..SHOWN].to_owned())
}

/// Returns commit and date of the archive of sources that this file is of. In a work tree the file
/// `commit` has the words for `git archive` instead, and there is nothing to return.
fn of_archive() -> Option<String> {
    let record = std::fs::read_to_string("commit").ok()?;
    let mut words = record.split_whitespace();
    let (commit, date) = (words.next()?, words.next()?);
    is_commit(commit).then(|| format!("{} {date}", &commit[..SHOWN]))
}

fn is_commit(text: &str) -> bool {
    text.len() >= SHOWN && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

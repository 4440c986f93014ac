//! Gives the version that the programs show the commit that they are built from, if it is known:
//! from git in a work tree, or from the record that `cargo package` puts beside the sources.
//!
//! Without both the version is that of the package alone. Nothing here fails a build.

use std::path::Path;
use std::process::Command;

/// Characters of a commit that are shown.
const SHOWN: usize = 9;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let package = env!("CARGO_PKG_VERSION");
    let version = match of_git().or_else(of_package) {
        Some(commit) => format!("{package} ({commit})"),
        None => package.to_owned(),
    };
    println!("cargo:rustc-env=GRANTWAY_VERSION={version}");
}

/// Returns commit and date, such as `0123456789 2026-11-28`.
fn of_git() -> Option<String> {
    // Each commit and each change of the branch writes to this file.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo:rerun-if-changed={log}");
    }
    // A package that was unpacked inside of another project's work tree is not of that project.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
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
    let is_commit = commit.len() >= SHOWN && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| commit[..SHOWN].to_owned())
}

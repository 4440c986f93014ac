//! Each finding, ok and not ok, from trees that look like a system.

mod network;
mod system;
mod tree;

use super::finding::{Finding, Verdict};

/// The findings about a subject.
fn about<'a>(findings: &'a [Finding], subject: &str) -> Vec<&'a Finding> {
    findings.iter().filter(|finding| finding.subject() == subject).collect()
}

/// Checks a finding: its verdict, and words of it and of its remedy.
#[track_caller]
fn check(finding: &Finding, verdict: Verdict, found: &str, remedy: &str) {
    assert_eq!(finding.verdict(), verdict, "{finding:?}");
    assert!(finding.found().contains(found), "{found:?} in {finding:?}");
    assert!(finding.remedy().contains(remedy), "{remedy:?} in {finding:?}");
    assert_eq!(finding.remedy().is_empty(), verdict == Verdict::Ok, "{finding:?}");
}

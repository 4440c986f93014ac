//! Each finding, ok and not ok, from trees that look like a system.

mod network;
mod system;
mod tree;

use super::finding::{Finding, Verdict};
use std::time::Duration;

/// Limit of time for what answers; `SHORT` is for what never does.
const LONG: Duration = Duration::from_secs(120);
const SHORT: Duration = Duration::from_millis(50);

/// Returns the findings about a subject.
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

//! A finding: its subject, what was found, and the remedy.

use serde_json::{Value, json};
use std::fmt::Write;

/// Longest text of another program or guest that is shown, in characters.
const SHOWN_MAX: usize = 200;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The subject is in order.
    Ok,
    /// The subject works, but not as it should, or not for long.
    Warn,
    /// The subject does not work.
    Fail,
}

impl Verdict {
    /// Returns the verdict's word at the start of a line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// A finding about one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    verdict: Verdict,
    subject: String,
    found: String,
    remedy: Option<String>,
}

impl Finding {
    /// Makes a finding about a subject in order.
    pub fn ok(subject: impl AsRef<str>, found: impl AsRef<str>) -> Self {
        Self::new(Verdict::Ok, subject.as_ref(), found.as_ref(), None)
    }

    /// Makes a finding about a subject that should be changed.
    pub fn warn(subject: impl AsRef<str>, found: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        Self::new(Verdict::Warn, subject.as_ref(), found.as_ref(), Some(remedy.as_ref()))
    }

    /// Makes a finding about a subject that must be changed.
    pub fn fail(subject: impl AsRef<str>, found: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        Self::new(Verdict::Fail, subject.as_ref(), found.as_ref(), Some(remedy.as_ref()))
    }

    /// Makes a finding with any verdict. A remedy is kept only if the verdict is not ok.
    pub fn new(verdict: Verdict, subject: &str, found: &str, remedy: Option<&str>) -> Self {
        Self {
            verdict,
            subject: one_line(subject),
            found: one_line(found),
            remedy: remedy.filter(|_| verdict != Verdict::Ok).map(one_line),
        }
    }

    /// Returns the severity of the finding.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    #[cfg(test)]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    #[cfg(test)]
    pub fn found(&self) -> &str {
        &self.found
    }

    /// Returns the command or the advice for the operator.
    #[cfg(test)]
    pub fn remedy(&self) -> &str {
        self.remedy.as_deref().unwrap_or_default()
    }
}

/// Returns a line for each finding: verdict, subject, what was found, `->` and the remedy.
pub fn lines(findings: &[Finding]) -> String {
    let width = findings.iter().map(|f| f.subject.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for finding in findings {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{:<4}  {:<width$}  {}",
            finding.verdict.word(),
            finding.subject,
            finding.found
        );
        if let Some(remedy) = &finding.remedy {
            let _ = write!(text, " -> {remedy}");
        }
        text.push('\n');
    }
    text
}

/// Returns the findings as JSON, with the worst verdict.
pub fn json(findings: &[Finding]) -> Value {
    let worst = findings.iter().map(Finding::verdict).max().unwrap_or(Verdict::Ok);
    let each = |f: &Finding| {
        json!({
            "verdict": f.verdict.word().to_lowercase(),
            "subject": f.subject,
            "found": f.found,
            "remedy": f.remedy,
        })
    };
    json!({
        "verdict": worst.word().to_lowercase(),
        "findings": findings.iter().map(each).collect::<Vec<_>>(),
    })
}

/// Returns the text of another program or guest, shortened, and without characters that control a
/// terminal.
pub fn shown(text: &str) -> String {
    let text = one_line(text.trim());
    match text.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Vec<Finding> {
        vec![
            Finding::ok("a", "fine"),
            Finding::warn("vif1.0", "odd", "ip link set dev vif1.0 up"),
            Finding::fail("ab", "broken\n\x1b[31m", "modprobe x"),
        ]
    }

    #[test]
    fn one_aligned_line_each() {
        assert_eq!(
            lines(&three()),
            "ok    a       fine\n\
             warn  vif1.0  odd -> ip link set dev vif1.0 up\n\
             FAIL  ab      broken  [31m -> modprobe x\n"
        );
        assert_eq!(lines(&[]), "");
    }

    #[test]
    fn the_same_as_json() {
        let value = json(&three());
        assert_eq!(value["verdict"], "fail");
        assert_eq!(value["findings"][0]["remedy"], Value::Null);
        assert_eq!(value["findings"][1]["subject"], "vif1.0");
        assert_eq!(json(&three()[..2])["verdict"], "warn");
        assert_eq!(json(&[])["verdict"], "ok");
    }

    #[test]
    fn text_of_others_is_made_harmless() {
        assert_eq!(shown(" a\tb\r\n"), "a b");
        let long = shown(&"\u{e9}".repeat(1000));
        assert_eq!(long.chars().count(), SHOWN_MAX + 3);
    }
}

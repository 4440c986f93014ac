//! Error in a file of rules, and its place.

/// Error in a file of rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: found {found}, expected {expected}; {remedy}")]
pub struct RulesError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Text that stands there.
    pub found: String,
    /// Text that may stand there.
    pub expected: String,
    /// Remedy.
    pub remedy: String,
}

impl RulesError {
    /// Makes an error at `offset` bytes from the start of a text.
    pub(super) fn at(
        text: &str,
        offset: usize,
        found: impl Into<String>,
        expected: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        let column = before.get(begin..).unwrap_or("").chars().count() + 1;
        Self { line, column, found: found.into(), expected: expected.into(), remedy: remedy.into() }
    }
}

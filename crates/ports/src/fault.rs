//! Faults in files that people write: where they are, and what to do about them.

/// Most characters of a line that an excerpt shows.
const LINE_MAX: usize = 72;
/// Most characters of a text that is not TOML that an error repeats.
const FOUND_MAX: usize = 40;
/// Jaro similarity above which a name may be a misspelt other one. clap has the same limit.
const SIMILAR: f64 = 0.7;

/// Fault in a text, and its place.
///
/// ```
/// use grantway_ports::TextFault;
///
/// let text = "flows = true\nfirewal = 1\n";
/// let fault = TextFault::at(text, 13, "\"firewal\"", "\"firewall\"", "correct it");
/// let line = "line 2, column 1: found \"firewal\", expected \"firewall\"; correct it";
/// assert_eq!(fault.to_string(), line);
/// assert_eq!(fault.excerpt(text), "  2 | firewal = 1\n    | ^");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: found {found}, expected {expected}; {remedy}")]
#[non_exhaustive]
pub struct TextFault {
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

impl TextFault {
    /// Makes a fault at `offset` bytes from the start of a text.
    #[must_use]
    pub fn at(
        text: &str,
        offset: usize,
        found: impl Into<String>,
        expected: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let (line, begin) = (line_of(text, offset), before.rfind('\n').map_or(0, |at| at + 1));
        let column = before.get(begin..).unwrap_or("").chars().count() + 1;
        Self { line, column, found: found.into(), expected: expected.into(), remedy: remedy.into() }
    }

    /// Makes the fault of a text that is not TOML. `said` is the parser's message about the byte at
    /// `offset`.
    #[must_use]
    pub fn not_toml(text: &str, offset: usize, said: &str) -> Self {
        let said = said.lines().collect::<Vec<_>>().join(", ");
        let line = text.get(offset..).and_then(|rest| rest.lines().next()).unwrap_or("").trim_end();
        let found = format!("{:?} ({said})", line.chars().take(FOUND_MAX).collect::<String>());
        Self::at(text, offset, found, "TOML", "see https://toml.io for the syntax")
    }

    /// Returns the line of the fault in its text, and a caret below its column.
    #[must_use]
    pub fn excerpt(&self, text: &str) -> String {
        let line = text.lines().nth(self.line.saturating_sub(1)).unwrap_or("");
        // A long line is cut at its start, so that the column is shown.
        let skipped = self.column.saturating_sub(LINE_MAX);
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let line: String = line.chars().skip(skipped).take(LINE_MAX).map(plain).collect();
        let (number, before) = (self.line.to_string(), (self.column - skipped).saturating_sub(1));
        let (space, caret) = (" ".repeat(number.len()), " ".repeat(before));
        format!("  {number} | {}\n  {space} | {caret}^", line.trim_end())
    }
}

/// Returns the number of the line that has the byte at `offset` of a text, from 1.
#[must_use]
pub fn line_of(text: &str, offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or(text);
    before.bytes().filter(|&byte| byte == b'\n').count() + 1
}

/// Returns the name that is most similar to a wrong one, if one is similar at all.
///
/// ```
/// use grantway_ports::nearest;
///
/// assert_eq!(nearest("queus", &["port", "queues"]), Some("queues"));
/// assert_eq!(nearest("x", &["port", "queues"]), None);
/// ```
#[must_use]
pub fn nearest<'n>(wrong: &str, names: &[&'n str]) -> Option<&'n str> {
    let near = |name: &&'n str| (strsim::jaro(wrong, name), *name);
    let best = names.iter().map(near).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > SIMILAR).then_some(best.1)
}

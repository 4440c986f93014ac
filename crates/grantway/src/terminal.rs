//! A text on a terminal, of which a part is shown, and keys that change it.
//!
//! [`View`] is the part that is shown; keys change it. [`Terminal`] has the terminal. When it is
//! dropped, the terminal is as it was before.

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};
use crossterm::{execute, queue};
use grantway_command::error::CommandError;
use std::io::{self, Stdout, Write};
use std::time::Duration;

/// Longest time for which keys are waited for without a look at signals.
pub const SLICE: Duration = Duration::from_millis(200);

/// Part of a text that is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct View {
    /// Lines above the first that is shown.
    above: usize,
    /// True while the text stands still.
    pub is_held: bool,
}

/// Effect of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Another part of the text, or none. The text is to be drawn again.
    Stay,
    /// A key that the command has for itself.
    Own(char),
    /// The program ends.
    Quit,
}

impl View {
    /// Changes the view by a key, for a text of `lines` lines of which `rows` fit.
    pub fn on_key(&mut self, key: KeyEvent, lines: usize, rows: usize) -> Step {
        let page = rows.saturating_sub(1).max(1);
        let mut step = Step::Stay;
        self.above = match key.code {
            KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Step::Quit;
            }
            KeyCode::Char('q') | KeyCode::Esc => return Step::Quit,
            KeyCode::Char('p') => {
                self.is_held = !self.is_held;
                self.above
            }
            KeyCode::Up | KeyCode::Char('k') => self.above.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.above + 1,
            KeyCode::PageUp => self.above.saturating_sub(page),
            KeyCode::PageDown | KeyCode::Char(' ') => self.above + page,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => lines,
            KeyCode::Char(key) => {
                step = Step::Own(key);
                self.above
            }
            _ => self.above,
        };
        self.above = self.above.min(lines.saturating_sub(rows));
        step
    }

    /// Shows the first line again.
    pub fn restart(&mut self) {
        self.above = 0;
    }

    /// Returns the lines that are shown, `rows` at most.
    fn lines<'t>(&self, text: &'t str, rows: usize) -> impl Iterator<Item = &'t str> {
        let above = self.above.min(text.lines().count().saturating_sub(rows));
        text.lines().skip(above).take(rows)
    }

    /// Returns the last line of the screen: `note`, the lines that are shown, and `keys`.
    fn status(&self, note: &str, keys: &str, (lines, rows): (usize, usize)) -> String {
        let above = self.above.min(lines.saturating_sub(rows));
        let held = if self.is_held { "paused, " } else { "" };
        let (first, last) = ((above + 1).min(lines), (above + rows).min(lines));
        format!(
            " {held}{note}lines {first}-{last} of {lines}   q quit  {keys}p pause  arrows scroll "
        )
    }
}

/// The terminal, while it shows nothing else.
pub struct Terminal {
    out: Stdout,
    /// The command's own keys, for the last line.
    keys: &'static str,
}

impl Terminal {
    /// Takes the terminal over. `keys` names the command's own keys for the last line, and ends with
    /// blanks.
    ///
    /// # Errors
    ///
    /// The terminal refused.
    pub fn open(keys: &'static str) -> Result<Self, CommandError> {
        let mut terminal = Self { out: io::stdout(), keys };
        enable_raw_mode().map_err(failed)?;
        execute!(terminal.out, EnterAlternateScreen, Hide).map_err(failed)?;
        Ok(terminal)
    }

    /// Shows the part of a text that a view has. `note` is for the last line.
    ///
    /// # Errors
    ///
    /// The terminal refused.
    pub fn draw(&mut self, view: &View, note: &str, text: &str) -> Result<(), CommandError> {
        let (columns, rows) = room()?;
        let fit = |line: &str| line.chars().take(columns).collect::<String>();
        let status = fit(&view.status(note, self.keys, (text.lines().count(), rows)));
        let draw = |out: &mut Stdout| {
            queue!(out, MoveTo(0, 0))?;
            for line in view.lines(text, rows) {
                // In raw mode a line does not begin at the left by itself.
                queue!(out, Print(fit(line)), Clear(ClearType::UntilNewLine), Print("\r\n"))?;
            }
            queue!(
                out,
                Clear(ClearType::FromCursorDown),
                MoveTo(0, u16::try_from(rows).unwrap_or(u16::MAX)),
                SetAttribute(Attribute::Reverse),
                Print(status),
                SetAttribute(Attribute::Reset),
            )?;
            out.flush()
        };
        draw(&mut self.out).map_err(failed)
    }

    /// Waits for a key, at most for `within`, and changes the view of a text by it. Returns none if
    /// nothing happened.
    ///
    /// # Errors
    ///
    /// The terminal refused.
    pub fn key(
        &mut self,
        view: &mut View,
        text: &str,
        within: Duration,
    ) -> Result<Option<Step>, CommandError> {
        if !event::poll(within).map_err(failed)? {
            return Ok(None);
        }
        Ok(match event::read().map_err(failed)? {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                let (_, rows) = room()?;
                Some(view.on_key(key, text.lines().count(), rows))
            }
            Event::Resize(..) => Some(Step::Stay),
            _ => None,
        })
    }
}

/// Returns the columns of the terminal, and its rows without the last.
fn room() -> Result<(usize, usize), CommandError> {
    let (columns, rows) = size().map_err(failed)?;
    // A terminal that does not know its size says 0.
    let rows = usize::from(if rows < 2 { 24 } else { rows }) - 1;
    Ok((usize::from(if columns == 0 { 80 } else { columns }), rows))
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _ = execute!(self.out, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

fn failed(error: io::Error) -> CommandError {
    CommandError::Failed(format!("terminal: {error}; use --json without a terminal"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(view: &mut View, codes: &[KeyCode]) -> Vec<Step> {
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        codes.iter().map(|&code| view.on_key(key(code), 100, 20)).collect()
    }

    #[test]
    fn keys_scroll_within_the_text() {
        let mut view = View::default();
        let text: String = (1..=100).map(|n| format!("{n}\n")).collect();
        let mut first = |codes: &[KeyCode]| {
            press(&mut view, codes);
            view.lines(&text, 20).next().map(str::to_owned)
        };
        assert_eq!(first(&[KeyCode::Up]).as_deref(), Some("1"));
        assert_eq!(first(&[KeyCode::Down, KeyCode::Char('j')]).as_deref(), Some("3"));
        assert_eq!(first(&[KeyCode::PageDown]).as_deref(), Some("22"));
        assert_eq!(first(&[KeyCode::End, KeyCode::Down]).as_deref(), Some("81"));
        assert_eq!(first(&[KeyCode::PageUp, KeyCode::Char('k')]).as_deref(), Some("61"));
        assert_eq!(first(&[KeyCode::Home]).as_deref(), Some("1"));
    }

    #[test]
    fn a_text_that_became_shorter_fills_the_screen() {
        let mut view = View::default();
        press(&mut view, &[KeyCode::End]);
        assert_eq!(view.lines("1\n2\n3", 2).collect::<Vec<_>>(), ["2", "3"]);
        assert_eq!(view.lines("1", 2).collect::<Vec<_>>(), ["1"]);
        let status = view.status("by name, ", "s sort  ", (3, 2));
        assert_eq!(status, " by name, lines 2-3 of 3   q quit  s sort  p pause  arrows scroll ");
    }

    #[test]
    fn keys_pause_and_quit_and_others_are_the_commands_own() {
        let mut view = View::default();
        press(&mut view, &[KeyCode::Char('p')]);
        assert!(view.is_held && view.status("", "", (1, 1)).contains("paused"));
        let steps = press(&mut view, &[KeyCode::Char('s'), KeyCode::F(1), KeyCode::Esc]);
        assert_eq!(steps, [Step::Own('s'), Step::Stay, Step::Quit]);
        press(&mut view, &[KeyCode::End]);
        assert_eq!(view.above, 80);
        view.restart();
        assert_eq!(view.above, 0);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.on_key(interrupt, 1, 1), Step::Quit);
    }
}

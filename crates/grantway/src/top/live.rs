//! `grantway top` on a terminal: keys, and the part of the text that fits.
//!
//! [`View`] is what is shown; keys change it. [`Screen`] is the terminal. When it is dropped, the
//! terminal is as it was before.

use super::figures::Order;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};
use crossterm::{execute, queue};
use grantway_command::error::CommandError;
use grantway_command::wait::Signals;
use std::io::{self, Stdout, Write};
use std::time::{Duration, Instant};

/// Longest time for which a signal waits.
const SLICE: Duration = Duration::from_millis(200);

/// Choice of the text that is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct View {
    /// Order of the vifs.
    pub order: Order,
    /// Lines above the first that is shown.
    above: usize,
    /// True while the figures stand still.
    pub is_held: bool,
}

/// Effect of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Another view of the figures, or none.
    Stay,
    /// The program ends.
    Quit,
}

impl View {
    /// Changes the view by a key, for a text of `lines` lines of which `rows` fit.
    pub fn on_key(&mut self, key: KeyEvent, lines: usize, rows: usize) -> Step {
        let page = rows.saturating_sub(1).max(1);
        self.above = match key.code {
            KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Step::Quit;
            }
            KeyCode::Char('q') | KeyCode::Esc => return Step::Quit,
            KeyCode::Char('s') => {
                self.order = self.order.next();
                0
            }
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
            _ => self.above,
        };
        self.above = self.above.min(lines.saturating_sub(rows));
        Step::Stay
    }

    /// Returns the lines that are shown, `rows` at most.
    fn lines<'t>(&self, text: &'t str, rows: usize) -> impl Iterator<Item = &'t str> {
        let above = self.above.min(text.lines().count().saturating_sub(rows));
        text.lines().skip(above).take(rows)
    }

    /// Returns the last line of the screen.
    fn status(&self, lines: usize, rows: usize) -> String {
        let above = self.above.min(lines.saturating_sub(rows));
        let held = if self.is_held { "paused, " } else { "" };
        format!(
            " {held}by {}, lines {}-{} of {lines}   q quit  s sort  p pause  arrows scroll ",
            self.order.name(),
            (above + 1).min(lines),
            (above + rows).min(lines),
        )
    }
}

/// The terminal, while it shows nothing else.
pub struct Screen {
    out: Stdout,
    signals: Signals,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    ///
    /// The terminal refused.
    pub fn open() -> Result<Self, CommandError> {
        let mut screen = Self { out: io::stdout(), signals: Signals::take()? };
        enable_raw_mode().map_err(failed)?;
        execute!(screen.out, EnterAlternateScreen, Hide).map_err(failed)?;
        Ok(screen)
    }

    /// Shows a text until `end`, and obeys keys. `text` returns the text in the order of a view.
    ///
    /// # Errors
    ///
    /// The terminal refused.
    pub fn show(
        &mut self,
        view: &mut View,
        end: Instant,
        text: impl Fn(Order) -> String,
    ) -> Result<Step, CommandError> {
        loop {
            let shown = text(view.order);
            let (columns, rows) = size().map_err(failed)?;
            // A terminal that does not know its size says 0. The last row is the status.
            let rows = usize::from(if rows < 2 { 24 } else { rows }) - 1;
            let columns = usize::from(if columns == 0 { 80 } else { columns });
            self.draw(view, &shown, columns, rows).map_err(failed)?;
            loop {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() && !view.is_held {
                    return Ok(Step::Stay);
                }
                let left = if view.is_held { SLICE } else { left.min(SLICE) };
                if self.signals.came().is_some() {
                    return Ok(Step::Quit);
                }
                if !event::poll(left).map_err(failed)? {
                    continue;
                }
                match event::read().map_err(failed)? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        if view.on_key(key, shown.lines().count(), rows) == Step::Quit {
                            return Ok(Step::Quit);
                        }
                        break;
                    }
                    Event::Resize(..) => break,
                    _ => {}
                }
            }
        }
    }

    fn draw(&mut self, view: &View, text: &str, columns: usize, rows: usize) -> io::Result<()> {
        let fit = |line: &str| line.chars().take(columns).collect::<String>();
        queue!(self.out, MoveTo(0, 0))?;
        for line in view.lines(text, rows) {
            // In raw mode a line does not begin at the left by itself.
            queue!(self.out, Print(fit(line)), Clear(ClearType::UntilNewLine), Print("\r\n"))?;
        }
        let status = fit(&view.status(text.lines().count(), rows));
        queue!(
            self.out,
            Clear(ClearType::FromCursorDown),
            MoveTo(0, u16::try_from(rows).unwrap_or(u16::MAX)),
            SetAttribute(Attribute::Reverse),
            Print(status),
            SetAttribute(Attribute::Reset),
        )?;
        self.out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _ = execute!(self.out, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

fn failed(error: io::Error) -> CommandError {
    CommandError::Failed(format!("terminal: {error}; use --once or --json without a terminal"))
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
        assert!(view.status(3, 2).contains("lines 2-3 of 3"), "{}", view.status(3, 2));
    }

    #[test]
    fn keys_sort_pause_and_quit() {
        let mut view = View::default();
        press(&mut view, &[KeyCode::End, KeyCode::Char('s')]);
        assert_eq!((view.order, view.above), (Order::Drops, 0), "the first line again");
        press(&mut view, &[KeyCode::Char('s'), KeyCode::Char('s')]);
        assert_eq!(view.order, Order::Packets);
        press(&mut view, &[KeyCode::Char('p')]);
        assert!(view.is_held && view.status(1, 1).contains("paused"));
        assert_eq!(press(&mut view, &[KeyCode::Char('x'), KeyCode::Esc]), [Step::Stay, Step::Quit]);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.on_key(interrupt, 1, 1), Step::Quit);
    }
}

//! A table of a file: values by their names, and errors with their place.

use super::RulesError;
use std::ops::Range;
use toml_edit::{Item, TableLike, Value};

/// Most characters of a wrong value that an error repeats.
const FOUND_MAX: usize = 60;

/// A table of the file.
pub(super) struct Section<'a> {
    pub text: &'a str,
    table: &'a dyn TableLike,
    /// Name of the table, for errors.
    what: &'static str,
    /// Start of the table in the file, in bytes.
    at: usize,
}

/// A value, and its place in the file.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub text: &'a str,
    pub value: &'a Value,
    key: &'static str,
}

impl<'a> Section<'a> {
    /// Takes a table, in which only `keys` may stand.
    pub fn new(
        text: &'a str,
        (table, span): (&'a dyn TableLike, Option<Range<usize>>),
        what: &'static str,
        keys: &[&str],
    ) -> Result<Self, RulesError> {
        for (key, item) in table.iter() {
            if keys.contains(&key) {
                continue;
            }
            let span = table.get_key_value(key).and_then(|(key, _)| key.span());
            let at = span.or_else(|| item.span()).map_or(0, |span| span.start);
            let expected = format!("one of {}", keys.join(", "));
            let remedy = format!("{what} has no {key:?}: correct or remove it");
            return Err(RulesError::at(text, at, format!("{key:?}"), expected, remedy));
        }
        Ok(Self { text, table, what, at: span.map_or(0, |span| span.start) })
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &'static str) -> Result<Option<Place<'a>>, RulesError> {
        let text = self.text;
        match self.table.get(key) {
            None => Ok(None),
            Some(Item::Value(value)) => Ok(Some(Place { text, value, key })),
            Some(item) => {
                let at = item.span().map_or(self.at, |span| span.start);
                let remedy = format!("write {key} = ... into {}", self.what);
                Err(RulesError::at(text, at, item.type_name(), "a value", remedy))
            }
        }
    }

    /// Returns the value of a key that has to be there.
    pub fn need(&self, key: &'static str, expected: &str) -> Result<Place<'a>, RulesError> {
        self.get(key)?.ok_or_else(|| {
            let found = format!("{} without {key:?}", self.what);
            RulesError::at(self.text, self.at, found, expected, format!("add {key} = ..."))
        })
    }

    /// Returns the sections of this name.
    pub fn sections(
        &self,
        key: &'static str,
        keys: &[&str],
        what: &'static str,
    ) -> Result<Vec<Section<'a>>, RulesError> {
        let Some(item) = self.table.get(key) else { return Ok(Vec::new()) };
        match item {
            Item::ArrayOfTables(tables) => tables
                .iter()
                .map(|table| Section::new(self.text, (table, table.span()), what, keys))
                .collect(),
            _ => {
                let at = item.span().map_or(0, |span| span.start);
                let remedy = format!("begin each with a line [[{key}]]");
                Err(RulesError::at(self.text, at, item.type_name(), format!("[[{key}]]"), remedy))
            }
        }
    }

    /// Returns the only section of this name, if there is one.
    pub fn section(
        &self,
        key: &'static str,
        keys: &[&str],
        what: &'static str,
    ) -> Result<Option<Section<'a>>, RulesError> {
        let Some(item) = self.table.get(key) else { return Ok(None) };
        match item.as_table_like() {
            Some(table) => Section::new(self.text, (table, item.span()), what, keys).map(Some),
            None => {
                let at = item.span().map_or(0, |span| span.start);
                let remedy = format!("begin it with a line [{key}]");
                Err(RulesError::at(self.text, at, item.type_name(), format!("[{key}]"), remedy))
            }
        }
    }

    /// Returns an error about the whole table.
    pub fn wrong(&self, found: String, expected: &str, remedy: &str) -> RulesError {
        RulesError::at(self.text, self.at, found, expected, remedy)
    }
}

impl<'a> Place<'a> {
    /// Returns an error about this value, instead of which `expected` should stand here.
    pub fn wrong(&self, expected: &str, remedy: &str) -> RulesError {
        let written = self.value.span().and_then(|span| self.text.get(span)).unwrap_or("");
        let found: String = written.chars().take(FOUND_MAX).collect();
        RulesError::at(self.text, self.offset(), found, expected, remedy)
    }

    fn offset(&self) -> usize {
        self.value.span().map_or(0, |span| span.start)
    }

    fn mismatch(&self, expected: &str) -> RulesError {
        self.wrong(expected, &format!("correct {}", self.key))
    }

    /// Returns the value as a text.
    pub fn text(&self, expected: &str) -> Result<&'a str, RulesError> {
        self.value.as_str().ok_or_else(|| self.mismatch(expected))
    }

    /// Returns the value as `true` or `false`.
    pub fn truth(&self) -> Result<bool, RulesError> {
        self.value.as_bool().ok_or_else(|| self.mismatch("true or false"))
    }

    /// Returns the value as a whole number within bounds.
    pub fn number(&self, least: u64, most: u64) -> Result<u64, RulesError> {
        let number = self.value.as_integer().and_then(|number| u64::try_from(number).ok());
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| self.mismatch(&format!("a whole number from {least} to {most}")))
    }

    /// Returns the meaning of the value's text.
    pub fn meaning<T>(
        &self,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, RulesError> {
        read(self.text(expected)?).ok_or_else(|| self.mismatch(expected))
    }

    /// Returns the values of a list. A single value is a list of itself.
    pub fn list(self) -> impl Iterator<Item = Place<'a>> {
        let (one, many) = match self.value.as_array() {
            Some(array) => (None, Some(array.iter())),
            None => (Some(self), None),
        };
        let many = many.into_iter().flatten();
        one.into_iter().chain(many.map(move |value| Place { value, ..self }))
    }
}

//! A table of a file: values by their names, and errors with their place.

use super::TextFault;
use super::faults::Faults;
use grantway_ports::nearest;
use grantway_ports::quantity::bytes_per_second;
use std::ops::Range;
use toml_edit::{Item, Table, TableLike, Value};

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
    faults: &'a Faults,
}

/// A value, and its place in the file.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub text: &'a str,
    pub value: &'a Value,
    key: &'static str,
}

impl<'a> Section<'a> {
    /// Takes a table, in which only `keys` may stand. Each other key is a fault.
    pub fn new(
        text: &'a str,
        (table, span): (&'a dyn TableLike, Option<Range<usize>>),
        what: &'static str,
        keys: &[&str],
        faults: &'a Faults,
    ) -> Self {
        for (key, item) in table.iter() {
            if faults.is_full() {
                break;
            }
            if keys.contains(&key) {
                continue;
            }
            let span = table.get_key_value(key).and_then(|(key, _)| key.span());
            let at = span.or_else(|| item.span()).map_or(0, |span| span.start);
            let expected = format!("one of {}", keys.join(", "));
            let remedy = match nearest(key, keys) {
                Some(meant) => format!("did you mean {meant:?}?"),
                None => format!("{what} has no {key:?}: correct or remove it"),
            };
            faults.add(TextFault::at(text, at, format!("{key:?}"), expected, remedy));
        }
        Self { text, table, what, at: span.map_or(0, |span| span.start), faults }
    }

    /// Returns the value of a key. A key that has no value, but a table, is a fault.
    pub fn get(&self, key: &'static str) -> Option<Place<'a>> {
        if self.faults.is_full() {
            return None;
        }
        let text = self.text;
        match self.table.get(key)? {
            Item::Value(value) => Some(Place { text, value, key }),
            item => {
                let at = item.span().map_or(self.at, |span| span.start);
                let remedy = format!("write {key} = ... into {}", self.what);
                self.faults.add(TextFault::at(text, at, item.type_name(), "a value", remedy));
                None
            }
        }
    }

    /// Returns the value of a key, as `read` understands it.
    pub fn read<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&Place<'a>) -> Result<T, TextFault>,
    ) -> Option<T> {
        self.get(key).and_then(|place| self.faults.keep(read(&place)))
    }

    /// Returns what `read` understands of each value of a key.
    pub fn read_all<T>(
        &self,
        key: &'static str,
        mut read: impl FnMut(&Place<'a>) -> Result<T, TextFault>,
    ) -> Vec<T> {
        let places = self.get(key).into_iter().flat_map(Place::list);
        places.filter_map(|place| self.faults.keep(read(&place))).collect()
    }

    /// Returns the value of a key. A missing key is a fault.
    pub fn need(&self, key: &'static str, expected: &str) -> Option<Place<'a>> {
        if !self.faults.is_full() && self.table.get(key).is_none() {
            let found = format!("{} without {key:?}", self.what);
            let remedy = format!("add {key} = ...");
            self.faults.add(TextFault::at(self.text, self.at, found, expected, remedy));
        }
        self.get(key)
    }

    /// Returns the value of a key, as `read` understands it. A missing key is a fault.
    pub fn need_read<T>(
        &self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&Place<'a>) -> Result<T, TextFault>,
    ) -> Option<T> {
        self.need(key, expected).and_then(|place| self.faults.keep(read(&place)))
    }

    /// Returns the faults of the file.
    pub fn faults(&self) -> &'a Faults {
        self.faults
    }

    /// Returns the sections of this name.
    pub fn sections(
        &self,
        key: &'static str,
        keys: &[&str],
        what: &'static str,
    ) -> Vec<Section<'a>> {
        let section = |table: &'a Table| {
            Section::new(self.text, (table, table.span()), what, keys, self.faults)
        };
        match self.table.get(key) {
            None => Vec::new(),
            Some(Item::ArrayOfTables(tables)) => tables.iter().map(section).collect(),
            Some(item) => {
                let at = item.span().map_or(0, |span| span.start);
                let remedy = format!("begin each with a line [[{key}]]");
                let expected = format!("[[{key}]]");
                self.faults.add(TextFault::at(self.text, at, item.type_name(), expected, remedy));
                Vec::new()
            }
        }
    }

    /// Returns the only section of this name, if there is one.
    pub fn section(
        &self,
        key: &'static str,
        keys: &[&str],
        what: &'static str,
    ) -> Option<Section<'a>> {
        let item = self.table.get(key)?;
        match item.as_table_like() {
            Some(table) => {
                Some(Section::new(self.text, (table, item.span()), what, keys, self.faults))
            }
            None => {
                let at = item.span().map_or(0, |span| span.start);
                let remedy = format!("begin it with a line [{key}]");
                let expected = format!("[{key}]");
                self.faults.add(TextFault::at(self.text, at, item.type_name(), expected, remedy));
                None
            }
        }
    }

    /// Returns an error about the whole table.
    pub fn wrong(&self, found: String, expected: &str, remedy: &str) -> TextFault {
        TextFault::at(self.text, self.at, found, expected, remedy)
    }
}

impl<'a> Place<'a> {
    /// Returns an error about this value, instead of which `expected` should stand here.
    pub fn wrong(&self, expected: &str, remedy: &str) -> TextFault {
        let written = self.value.span().and_then(|span| self.text.get(span)).unwrap_or("");
        let found: String = written.chars().take(FOUND_MAX).collect();
        TextFault::at(self.text, self.offset(), found, expected, remedy)
    }

    fn offset(&self) -> usize {
        self.value.span().map_or(0, |span| span.start)
    }

    fn mismatch(&self, expected: &str) -> TextFault {
        self.wrong(expected, &format!("correct {}", self.key))
    }

    /// Returns the value as a text.
    pub fn text(&self, expected: &str) -> Result<&'a str, TextFault> {
        self.value.as_str().ok_or_else(|| self.mismatch(expected))
    }

    /// Returns the value as `true` or `false`.
    pub fn truth(&self) -> Result<bool, TextFault> {
        self.value.as_bool().ok_or_else(|| self.mismatch("true or false"))
    }

    /// Returns the value as a whole number within bounds.
    pub fn number(&self, least: u64, most: u64) -> Result<u64, TextFault> {
        let number = self.value.as_integer().and_then(|number| u64::try_from(number).ok());
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| self.mismatch(&format!("a whole number from {least} to {most}")))
    }

    /// Returns the value as bytes per second: a whole number, or a text such as `100Mbit/s`.
    pub fn rate(&self, most: u64) -> Result<u64, TextFault> {
        let number = self.value.as_integer().and_then(|number| u64::try_from(number).ok());
        let rate = number.or_else(|| self.value.as_str().and_then(bytes_per_second));
        rate.filter(|rate| (1..=most).contains(rate)).ok_or_else(|| {
            self.mismatch(&format!(
                "bytes per second from 1 to {most}, or a rate such as \"100Mbit/s\""
            ))
        })
    }

    /// Returns the meaning of the value's text.
    pub fn meaning<T>(
        &self,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, TextFault> {
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

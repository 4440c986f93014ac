//! A file of options: its keys are the long names of options, and its values are judged by the
//! options' own parsers.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};
use grantway_command::error::CommandError;
use grantway_command::input;
use grantway_ports::{TextFault, line_of, nearest};
use std::error::Error;
use std::ffi::OsString;
use std::path::Path;
use toml_edit::{Document, Item, Key, Table, Value};

/// Largest file, in bytes.
const FILE_MAX: u64 = 1 << 20;
/// Most faults of a file that are told at a time.
pub const FAULTS_MAX: usize = 100;
/// Most characters of a wrong value that a fault repeats.
const FOUND_MAX: usize = 60;

/// An option of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Option.
    pub id: clap::Id,
    /// Line of the file, from 1.
    pub line: usize,
    /// Words that give the option on a command line.
    pub words: Vec<OsString>,
}

/// Returns the text of a file.
///
/// # Errors
///
/// The file cannot be read, is too long or is not UTF-8.
pub fn text(path: &Path) -> Result<String, CommandError> {
    input::text(path, FILE_MAX).map_err(|error| {
        let path = path.display();
        CommandError::Failed(format!(
            "{path}: {error}; expected a file of options in UTF-8: create it (it may be empty), or leave \
             --config out"
        ))
    })
}

/// Returns the options of a file.
///
/// # Errors
///
/// The faults of the file in its order, at least one and at most [`FAULTS_MAX`]. Text that is not TOML
/// has one.
pub fn entries(text: &str, options: &[&Arg]) -> Result<Vec<Entry>, Vec<TextFault>> {
    let document = Document::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        vec![
            without_quotes(text, at)
                .unwrap_or_else(|| TextFault::not_toml(text, at, error.message())),
        ]
    })?;
    let (mut entries, mut faults) = (Vec::new(), Vec::new());
    for (name, item) in document.as_table() {
        match entry(text, document.as_table(), (name, item), options) {
            Ok(entry) => entries.push(entry),
            Err(fault) => faults.push(fault),
        }
        if faults.len() == FAULTS_MAX {
            break;
        }
    }
    faults.sort_by_key(|fault| (fault.line, fault.column));
    if faults.is_empty() { Ok(entries) } else { Err(faults) }
}

/// Returns the fault of a value at this byte that lacks its quotes, if it is such a value.
fn without_quotes(text: &str, at: usize) -> Option<TextFault> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(start..)?.lines().next()?;
    let (name, value) = line.split_once('=')?;
    let value = value.split('#').next().unwrap_or(value).trim();
    let is_word = value.starts_with(|c: char| c.is_alphabetic() || "/.~".contains(c));
    if name.trim().is_empty() || !is_word || value.contains('"') {
        return None;
    }
    let at = start + line.find(value)?;
    let found: String = value.chars().take(FOUND_MAX).collect();
    let remedy = format!("write {} = {found:?}", name.trim());
    Some(TextFault::at(text, at, found, "a value in quotes", remedy))
}

/// Returns the option of a key.
fn entry(
    text: &str,
    table: &Table,
    (name, item): (&str, &Item),
    options: &[&Arg],
) -> Result<Entry, TextFault> {
    let span = table.key(name).and_then(Key::span).or_else(|| item.span());
    let at = span.map_or(0, |span| span.start);
    let known = options.iter().find(|arg| arg.get_long() == Some(name));
    let value = match (known, item) {
        (_, Item::Table(_) | Item::ArrayOfTables(_)) => {
            let remedy = "write all options without a heading in [ ]";
            return Err(TextFault::at(text, at, "a table", "lines NAME = VALUE", remedy));
        }
        (Some(_), item) => item.as_value(),
        (None, _) => None,
    };
    let (Some(arg), Some(value)) = (known, value) else {
        let names: Vec<_> = options.iter().filter_map(|arg| arg.get_long()).collect();
        let shown = options.iter().filter(|arg| !arg.is_hide_set());
        let shown: Vec<_> = shown.filter_map(|arg| arg.get_long()).collect();
        let remedy = match nearest(name, &names) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => format!("there is no option --{name}: correct or remove it"),
        };
        let expected = format!("one of {}", shown.join(", "));
        return Err(TextFault::at(text, at, format!("{name:?}"), expected, remedy));
    };
    let words = words(name, value, arg).map_err(|Wrong { expected, remedy }| {
        let span = value.span().unwrap_or_default();
        let written = text.get(span.clone()).unwrap_or("").lines().next().unwrap_or("");
        let found: String = written.chars().take(FOUND_MAX).collect();
        TextFault::at(text, span.start, found, expected, remedy)
    })?;
    Ok(Entry { id: arg.get_id().clone(), line: line_of(text, at), words })
}

/// A value that an option does not accept.
struct Wrong {
    expected: String,
    remedy: String,
}

/// Returns the words that give an option this value on a command line.
fn words(name: &str, value: &Value, arg: &Arg) -> Result<Vec<OsString>, Wrong> {
    let wrong =
        |expected: &str| Wrong { expected: expected.to_owned(), remedy: format!("correct {name}") };
    let flag = OsString::from(format!("--{name}"));
    match arg.get_action() {
        ArgAction::SetTrue => match value.as_bool() {
            Some(given) => Ok(vec![flag; given.into()]),
            None => Err(wrong("true or false")),
        },
        ArgAction::Count => match value.as_integer().map(u8::try_from) {
            Some(Ok(times)) => Ok(vec![flag; times.into()]),
            _ => Err(wrong("a whole number from 0 to 255")),
        },
        _ => {
            let given = match value {
                Value::String(given) => given.value().clone(),
                Value::Integer(given) => given.value().to_string(),
                _ => return Err(wrong(&expected_of(arg))),
            };
            match judged(&given, arg) {
                Ok(()) => Ok(vec![format!("--{name}={given}").into()]),
                Err((expected, meant)) => {
                    let remedy = meant.map(|meant| format!("did you mean {meant:?}?"));
                    let wrong = wrong(&expected);
                    Err(Wrong { remedy: remedy.unwrap_or(wrong.remedy), ..wrong })
                }
            }
        }
    }
}

/// Returns the values that an option accepts, for a fault.
fn expected_of(arg: &Arg) -> String {
    let values = arg.get_possible_values();
    let values: Vec<_> = values.iter().map(|value| format!("{:?}", value.get_name())).collect();
    match values.is_empty() {
        true => "a text in quotes, or a whole number".to_owned(),
        false => format!("one of {}", values.join(", ")),
    }
}

/// Judges a value by an option's own parser. An error has the values that were expected, and the
/// nearest one if the value resembles one.
fn judged(given: &str, arg: &Arg) -> Result<(), (String, Option<String>)> {
    // The option alone: what it may stand beside is judged with the whole command line.
    let option = Arg::new("value").long("value").value_parser(arg.get_value_parser().clone());
    let alone = Command::new("option").no_binary_name(true).disable_help_flag(true).arg(option);
    let Err(error) = alone.try_get_matches_from([format!("--value={given}")]) else {
        return Ok(());
    };
    let meant = match error.get(ContextKind::SuggestedValue) {
        Some(ContextValue::String(meant)) => Some(meant.clone()),
        _ => None,
    };
    let said = match error.kind() {
        ErrorKind::ValueValidation => error.source().map(ToString::to_string),
        _ => None,
    };
    let expected = match said {
        None if given.is_empty() => "a text that is not empty".to_owned(),
        Some(said) => match said.split_once("expected ") {
            Some((_, expected)) => expected.to_owned(),
            None => format!("a value that --{} accepts ({said})", arg.get_id()),
        },
        None => expected_of(arg),
    };
    Err((expected, meant))
}

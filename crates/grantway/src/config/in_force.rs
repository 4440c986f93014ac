//! Options in force: each with its value and its origin.

use super::FromFile;
use super::file::Entry;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};
use grantway_command::error::CommandError;
use grantway_command::output;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt;
use std::path::{Path, PathBuf};

/// Longest line before the origin of an option, in characters.
const WIDTH_MAX: usize = 40;

/// All options of a command that runs.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    command: String,
    file: Option<PathBuf>,
    options: Vec<Setting>,
}

/// An option.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Setting {
    name: String,
    value: Value,
    #[serde(flatten)]
    from: Origin,
}

/// Origin of an option's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "kebab-case")]
enum Origin {
    /// The option has no value.
    Nothing,
    /// The option is in the file, and gives way to one of the command line.
    Yielding {
        line: usize,
    },
    Default,
    File {
        line: usize,
    },
    CommandLine,
}

impl InForce {
    /// Takes the options of a command line that was read, with those of a file. An option without
    /// an effect has no value.
    pub(super) fn of(
        command: &str,
        options: &[&Arg],
        found: &ArgMatches,
        file: Option<FromFile>,
        has_effect: impl Fn(&Arg) -> bool,
    ) -> Self {
        let line = |entries: fn(&FromFile) -> &Vec<Entry>, arg: &Arg| {
            let entries = file.as_ref().map(entries);
            entries?.iter().find(|entry| entry.id == *arg.get_id()).map(|entry| entry.line)
        };
        let origin = |arg: &Arg| {
            let value = found.value_source(arg.get_id().as_str()).filter(|_| has_effect(arg));
            match (value, line(|file| &file.entries, arg), line(|file| &file.yielding, arg)) {
                (Some(_), Some(line), _) => Origin::File { line },
                (None | Some(ValueSource::DefaultValue), None, Some(line)) => {
                    Origin::Yielding { line }
                }
                (None, ..) => Origin::Nothing,
                (Some(ValueSource::DefaultValue), ..) => Origin::Default,
                (Some(_), ..) => Origin::CommandLine,
            }
        };
        let shown = options.iter().filter(|arg| !arg.is_hide_set());
        let setting = |arg: &&Arg| {
            let from = origin(arg);
            let value = match from {
                Origin::Nothing | Origin::Yielding { .. } => Value::Null,
                _ => value(found, arg),
            };
            Setting { name: arg.get_long().unwrap_or_default().to_owned(), value, from }
        };
        let options = shown.map(setting).collect();
        Self {
            command: command.to_owned(),
            file: file.as_ref().map(|file| file.path.clone()),
            options,
        }
    }

    /// Returns the file that options are from, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

/// Returns the value of an option.
fn value(found: &ArgMatches, arg: &Arg) -> Value {
    let id = arg.get_id().as_str();
    match arg.get_action() {
        ArgAction::SetTrue => json!(found.get_flag(id)),
        ArgAction::Count => json!(found.get_count(id)),
        _ => found.get_raw(id).and_then(|mut values| values.next()).map_or(Value::Null, |value| {
            let text = value.to_string_lossy();
            // A number of TOML is no larger.
            let number = text.parse::<i64>().ok();
            let number = number.filter(|number| number.to_string() == text);
            number.map_or_else(|| json!(text), |number| json!(number))
        }),
    }
}

/// Writes a file that `--config` reads, with the origin of each value.
impl fmt::Display for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Options of grantway {}, and where each comes from", self.command)?;
        // The name of the file is one line of a comment, whatever it has.
        let plain = |c: char| if c.is_control() { '?' } else { c };
        let file = self.file.as_ref().map(|file| file.display().to_string());
        let file = file.map_or_else(String::new, |file| file.chars().map(plain).collect());
        let line = |setting: &Setting| {
            // A text of JSON is one of TOML, except for this character.
            let value = setting.value.to_string().replace('\u{7f}', "\\u007f");
            format!("{} = {value}", setting.name)
        };
        let widths = self.options.iter().map(|setting| line(setting).chars().count());
        let width = widths.max().unwrap_or(0).min(WIDTH_MAX);
        for setting in &self.options {
            let from = match setting.from {
                Origin::Nothing => {
                    writeln!(f, "# {} is not set", setting.name)?;
                    continue;
                }
                Origin::Yielding { line } => {
                    let name = &setting.name;
                    writeln!(f, "# {name} is not set: {file}, line {line}, gives way")?;
                    continue;
                }
                Origin::Default => "default".to_owned(),
                Origin::File { line } => format!("{file}, line {line}"),
                Origin::CommandLine => "command line".to_owned(),
            };
            writeln!(f, "{:<width$}  # {from}", line(setting))?;
        }
        Ok(())
    }
}

/// Shows the options in force of programs, by their reports.
///
/// # Errors
///
/// No report has options.
pub fn show(reports: &Map<String, Value>, json: bool) -> Result<(), CommandError> {
    let read = |report: &Value| serde_json::from_value::<InForce>(report["config"].clone()).ok();
    let all: Vec<_> =
        reports.iter().filter_map(|(name, report)| Some((name, read(report)?))).collect();
    if all.is_empty() {
        let found = "no running program reports its options; restart it with this version";
        return Err(CommandError::Failed(found.into()));
    }
    if json {
        let all: Map<_, _> =
            all.into_iter().map(|(name, own)| (name.clone(), json!(own))).collect();
        return output::line(Value::Object(all).to_string());
    }
    let text: Vec<_> = all.iter().map(|(name, own)| format!("# {name}\n{own}")).collect();
    output::line(text.join("\n"))
}

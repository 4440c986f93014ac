//! Options in a file: `grantway backend --config FILE`.
//!
//! A key of the file is the long name of an option, and its value is read by the option's own parser
//! ([`mod@file`]). The options that the command line does not have are added to it, and the whole is
//! read as one command line. [`mod@in_force`] is the result: each option with its value and its origin.

mod file;
mod in_force;
#[cfg(test)]
mod tests;

pub use in_force::{InForce, show};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use file::{Entry, FAULTS_MAX};
use grantway_command::args::one_line;
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::program::Refusal;
use grantway_ports::TextFault;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Options of a command line that no file can have.
const NOT_IN_FILES: [&str; 4] = ["config", "check", "help", "version"];

/// File of further options.
#[derive(Debug, Default, Args)]
pub struct ConfigArgs {
    /// Read further options from this file: lines `NAME = VALUE`, in TOML. An option on the command
    /// line wins.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the options and the files that they name, print the configuration in force, and exit.
    #[arg(long)]
    pub check: bool,
    /// Every option, its value and its origin.
    #[arg(skip)]
    pub in_force: InForce,
}

impl ConfigArgs {
    /// Prints the configuration if that is asked for. Returns true if it is.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written.
    pub fn is_check(&self) -> Result<bool, CommandError> {
        if self.check {
            output::line(self.in_force.to_string())?;
        }
        Ok(self.check)
    }

    /// Returns an error about options that do not go together, with the file if options are from one.
    pub fn blame(&self, error: CommandError) -> CommandError {
        match (error, self.in_force.file()) {
            (CommandError::Usage(said), Some(file)) => CommandError::Failed(format!(
                "{} with the command line: {said}; correct the file",
                file.display()
            )),
            (error, _) => error,
        }
    }
}

/// Options of a file that the command line leaves to it.
struct FromFile {
    command: String,
    path: PathBuf,
    entries: Vec<Entry>,
    /// Options that give way to those of the command line.
    yielding: Vec<Entry>,
}

/// Reads a command line, with the options of a file if it names one. `config` returns the options
/// about files of the command that was read, if it has any.
///
/// # Errors
///
/// The command line or the file is invalid.
pub fn read<C: FromArgMatches>(
    mut definition: Command,
    mut words: Vec<OsString>,
    config: impl FnOnce(&mut C) -> Option<&mut ConfigArgs>,
) -> Result<C, Refusal> {
    let file = from_file(&definition, &words)?;
    words.extend(file.iter().flat_map(|file| &file.entries).flat_map(|entry| entry.words.clone()));
    let found = definition.try_get_matches_from_mut(words);
    let read = found.and_then(|found| Ok((C::from_arg_matches(&found)?, found)));
    let (mut line, found) = read.map_err(|error| refusal(error, &mut definition, file.as_ref()))?;
    if let (Some(args), Some((name, found))) = (config(&mut line), found.subcommand()) {
        args.in_force = in_force(&definition, name, found, file);
    }
    Ok(line)
}

/// Returns the file that a command line names, with the options that it adds.
fn from_file(definition: &Command, words: &[OsString]) -> Result<Option<FromFile>, Refusal> {
    // What a command line lacks may be in the file, so errors come later.
    let lenient = definition.clone().ignore_errors(true);
    let found = lenient.try_get_matches_from(words);
    let Some((name, found)) = found.as_ref().ok().and_then(ArgMatches::subcommand) else {
        return Ok(None);
    };
    let Ok(Some(path)) = found.try_get_one::<PathBuf>("config") else { return Ok(None) };
    let (command, options) = options(definition, name);
    let refused = |error| Refusal::Failed { command: name.to_owned(), error };
    let text = file::text(path).map_err(refused)?;
    let entries = file::entries(&text, &options).map_err(|faults| {
        refused(match found.get_flag("check") {
            true => reported(path, &text, &faults),
            false => CommandError::Failed(format!("{}: {}", path.display(), faults[0])),
        })
    })?;
    let given =
        |arg: &Arg| found.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let given: Vec<&Arg> = options.iter().copied().filter(|arg| given(arg)).collect();
    // An option on the command line also wins over options that it cannot stand beside.
    let wins = |given: &&Arg, entry: &Entry| {
        let arg = options.iter().find(|arg| arg.get_id() == &entry.id);
        arg.is_some_and(|arg| arg.get_id() == given.get_id() || excludes(command, given, arg))
    };
    let left = |entry: &Entry| !given.iter().any(|given| wins(given, entry));
    let (entries, yielding) = entries.into_iter().partition(left);
    Ok(Some(FromFile { command: name.to_owned(), path: path.clone(), entries, yielding }))
}

/// Returns a command and all its options, with those that all commands have.
fn options<'d>(definition: &'d Command, name: &str) -> (&'d Command, Vec<&'d Arg>) {
    let command = definition.find_subcommand(name).unwrap_or(definition);
    let global = definition.get_arguments().filter(|arg| arg.is_global_set());
    let all = command.get_arguments().filter(|arg| !arg.is_global_set()).chain(global);
    let named = |arg: &&Arg| arg.get_long().is_some_and(|name| !NOT_IN_FILES.contains(&name));
    (command, all.filter(named).collect())
}

/// Returns true if two options of a command cannot stand side by side.
fn excludes(command: &Command, one: &Arg, other: &Arg) -> bool {
    let names = |one: &Arg, other: &Arg| {
        command.get_arg_conflicts_with(one).iter().any(|arg| arg.get_id() == other.get_id())
    };
    names(one, other) || names(other, one)
}

/// Returns the options in force of a command that was read.
fn in_force(
    definition: &Command,
    name: &str,
    found: &ArgMatches,
    file: Option<FromFile>,
) -> InForce {
    let (command, options) = options(definition, name);
    let origin = |arg: &Arg| found.value_source(arg.get_id().as_str());
    let given = options.iter().filter(|arg| origin(arg) == Some(ValueSource::CommandLine));
    let given: Vec<&&Arg> = given.collect();
    // A default that cannot stand beside an option that was given has no effect.
    let has_effect = |arg: &Arg| {
        origin(arg) != Some(ValueSource::DefaultValue)
            || !given.iter().any(|given| excludes(command, given, arg))
    };
    InForce::of(name, &options, found, file, has_effect)
}

/// Returns the reason why a command line was refused. A value of the file was judged before, so
/// only options that do not go together can be its fault.
fn refusal(error: clap::Error, definition: &mut Command, file: Option<&FromFile>) -> Refusal {
    let together =
        matches!(error.kind(), ErrorKind::ArgumentConflict | ErrorKind::MissingRequiredArgument);
    let error = error.format(definition);
    match file {
        Some(file) if together && !file.entries.is_empty() => {
            let (path, said) = (file.path.display(), one_line(&error));
            let lines = lines_named(&file.entries, &said);
            let error = format!("{path}{lines} with the command line: {said}; correct the file");
            Refusal::Failed { command: file.command.clone(), error: CommandError::Failed(error) }
        }
        _ => Refusal::Line(error),
    }
}

/// Returns the lines of the options that a message names, as `, line 1` or `, lines 1 and 3`; an
/// empty text if it names none of them.
fn lines_named(entries: &[Entry], said: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let named: Vec<&str> = said.split(|c| !is_part(c)).collect();
    let is_named = |entry: &&Entry| {
        let word = entry.words.first().and_then(|word| word.to_str()).unwrap_or_default();
        named.contains(&word.split('=').next().unwrap_or(word))
    };
    let lines: Vec<String> = entries.iter().filter(is_named).map(|e| e.line.to_string()).collect();
    match lines.as_slice() {
        [] => String::new(),
        [line] => format!(", line {line},"),
        lines => format!(", lines {},", lines.join(" and ")),
    }
}

/// Prints the faults of a file, each with its line.
fn reported(path: &Path, text: &str, faults: &[TextFault]) -> CommandError {
    let path = path.display();
    let lines = faults.iter().map(|fault| format!("{path}: {fault}\n{}\n", fault.excerpt(text)));
    let count = match faults.len() {
        1 => "1 fault".to_owned(),
        FAULTS_MAX => format!("{FAULTS_MAX} faults or more"),
        count => format!("{count} faults"),
    };
    let printed = output::line(lines.collect::<String>() + &format!("{path}: invalid: {count}"));
    printed.err().unwrap_or(CommandError::Reported)
}

/// Returns the value of an option, if a file of options of a command has it.
pub fn value_of(definition: &Command, text: &str, name: &str) -> Option<String> {
    let (_, options) = options(definition, definition.get_name());
    let entries = file::entries(text, &options).ok()?;
    let words = entries.into_iter().flat_map(|entry| entry.words);
    let value = |word: OsString| {
        let word = word.into_string().ok()?;
        let (found, value) = word.strip_prefix("--")?.split_once('=')?;
        (found == name).then(|| value.to_owned())
    };
    words.filter_map(value).next()
}

/// Returns the first fault of a file of options of a command, if it has one.
pub fn fault_of(definition: &Command, text: &str) -> Option<TextFault> {
    let (_, options) = options(definition, definition.get_name());
    file::entries(text, &options).err().map(|mut faults| faults.swap_remove(0))
}
